"""The README's picture: the dense FP8 GEMM beside torch's product over the number of tokens, drawn as SVG from the evidence.

Left: the time of the weight matrix with the longest K and, of those, the largest N. Right: zoo's time over torch's for each weight matrix that was timed, and their geometric mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from tools.documentation.dense_ratios import Ratios

WIDTH, HEIGHT = 880, 420
MARKERS = ("circle", "square", "triangle", "diamond")
LEAST_GAP = 15  # pixels between two labels


@dataclass(frozen=True)
class Colours:
    text: str
    quiet: str  # labels of thin lines
    grid: str
    zoo: str
    torch: str


THEMES = {
    "light": Colours(text="#1f2328", quiet="#59636e", grid="#d1d9e0", zoo="#0969da", torch="#bc4c00"),
    "dark": Colours(text="#f0f6fc", quiet="#9198a1", grid="#3d444d", zoo="#4493f8", torch="#f0883e"),
}


@dataclass(frozen=True)
class Panel:
    """A plot of its own: where it lies, and how a number of tokens and a value become pixels."""

    left: float
    right: float
    top: float
    bottom: float
    tokens: tuple[int, int]
    values: tuple[float, float]
    logarithmic: bool

    def x(self, tokens: float) -> float:
        low, high = self.tokens
        return self.left + math.log(tokens / low) / math.log(high / low) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.values
        share = math.log(value / low) / math.log(high / low) if self.logarithmic else (value - low) / (high - low)
        return self.bottom - share * (self.bottom - self.top)


def picture(ratios: Ratios, theme: str) -> str:
    colours = THEMES[theme]
    font = "font:13px -apple-system,'Segoe UI','Noto Sans',Helvetica,Arial,sans-serif"
    style = f"text{{{font}}}.title{{font-size:14px;font-weight:600}}.small{{font-size:12px}}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{escape(caption(ratios))}</title><style>{style}</style>",
        *_times(ratios, colours),
        *_ratios(ratios, colours),
        *(_text(20, HEIGHT - 30 + 17 * row, words, colours.quiet, "start", "small") for row, words in enumerate(_footnotes(ratios))),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def caption(ratios: Ratios) -> str:
    means = ", ".join(f"{ratios.mean(tokens):.2f} at {tokens}" for tokens in ratios.tokens)
    product = f"Time of gemm.fp8b128.dense over that of torch's FP8 product on an {ratios.device}"
    return f"{product}, geometric mean of {len(ratios.weights)} weight matrices: {means} tokens"


def _footnotes(ratios: Ratios) -> tuple[str, str]:
    return (
        f"{ratios.device}, result in bf16. zoo: gemm.fp8b128.dense, an f32 scale for every 1 x 128 of A and every 128 x 128 of B.",
        "torch: _scaled_mm with one scale for each whole matrix, which is less to compute.",
    )


def _times(ratios: Ratios, colours: Colours) -> Iterator[str]:
    shown = ratios.weights[-1]
    points = ratios.of_weights(shown)
    values = [value for one in points for value in (one.zoo, one.torch)]
    panel = Panel(64, 350, 64, 318, (ratios.tokens[0], ratios.tokens[-1]), (_below(min(values)), _above(max(values))), True)
    yield _text(panel.left, 26, f"Time of one product, K = {shown[0]}, N = {shown[1]}", colours.text, "start", "title")
    yield from _axes(panel, ratios.tokens, _round_numbers(*panel.values), "{:g}", "microseconds", colours)
    lines = {
        "zoo": (colours.zoo, "circle", "", [one.zoo for one in points]),
        "torch": (colours.torch, "square", "6 4", [one.torch for one in points]),
    }
    for colour, marker, dash, times in reversed(lines.values()):  # zoo's on top
        yield from _line(panel, ratios.tokens, times, colour, marker, 2.5, dash)
    for row, (name, (colour, marker, dash, _)) in enumerate(lines.items()):
        x, y = panel.left + 18, panel.top + 16 + 20 * row
        yield _stroke([(x, y), (x + 32, y)], colour, 2.5, dash)
        yield _marker(marker, x + 16, y, colour)
        yield _text(x + 42, y + 4, name, colours.text)


def _ratios(ratios: Ratios, colours: Colours) -> Iterator[str]:
    values = [one.ratio for one in ratios.points]
    low, high = math.floor(min(values) * 10) / 10, math.ceil(max(values) * 10 + 0.2) / 10
    panel = Panel(452, 738, 64, 318, (ratios.tokens[0], ratios.tokens[-1]), (low, high), False)
    ticks = [count / 10 for count in range(round(low * 10), round(high * 10) + 1)]
    yield _text(panel.left, 26, "zoo's time over torch's, by weight matrix", colours.text, "start", "title")
    yield from _axes(panel, ratios.tokens, ticks, "{:.1f}", "zoo's time / torch's time", colours)
    yield _stroke([(panel.left, panel.y(1)), (panel.right, panel.y(1))], colours.text, 1.5, "")
    yield _text(panel.right - 4, panel.bottom - 10, "below 1: zoo is faster", colours.quiet, "end", "small")
    yield _text(panel.left + 6, panel.top + 14, "above 1: torch is faster", colours.quiet, "start", "small")
    last = ratios.tokens[-1]
    labels = []
    for weights, marker in zip(ratios.weights, itertools.cycle(MARKERS), strict=False):
        points = ratios.of_weights(weights)
        yield from _line(panel, [one.tokens for one in points], [one.ratio for one in points], colours.quiet, marker, 1, "")
        labels.append((panel.y(points[-1].ratio), f"{weights[0]} x {weights[1]}", colours.quiet, marker))
    means = [ratios.mean(tokens) for tokens in ratios.tokens]
    yield from _line(panel, ratios.tokens, means, colours.zoo, "circle", 3, "")
    labels.append((panel.y(ratios.mean(last)), "mean", colours.zoo, "circle"))
    yield _text(panel.right + 44, panel.top - 8, "K x N", colours.quiet, "start", "small")
    for (y, words, colour, marker), place in zip(labels, _spread([label[0] for label in labels]), strict=True):
        yield _stroke([(panel.right + 6, y), (panel.right + 22, place)], colour, 1, "")
        yield _marker(marker, panel.right + 32, place, colour)
        yield _text(panel.right + 44, place + 4, words, colour, "start", "small")


def _axes(panel: Panel, tokens: Sequence[int], ticks: Sequence[float], form: str, label: str, colours: Colours) -> Iterator[str]:
    for tick in ticks:
        y = panel.y(tick)
        yield _stroke([(panel.left, y), (panel.right, y)], colours.grid, 1, "")
        yield _text(panel.left - 8, y + 4, form.format(tick), colours.text, "end", "small")
    for count in tokens:
        x = panel.x(count)
        yield _stroke([(x, panel.top), (x, panel.bottom)], colours.grid, 1, "")
        yield _text(x, panel.bottom + 18, str(count), colours.text, "middle", "small")
    yield _text((panel.left + panel.right) / 2, panel.bottom + 40, "tokens, M", colours.text, "middle")
    middle = (panel.top + panel.bottom) / 2
    yield f'<g transform="rotate(-90 {panel.left - 44:.1f} {middle:.1f})">{_text(panel.left - 44, middle, label, colours.text, "middle")}</g>'


def _line(panel: Panel, tokens: Sequence[int], values: Sequence[float], colour: str, marker: str, width: float, dash: str) -> Iterator[str]:
    places = [(panel.x(count), panel.y(value)) for count, value in zip(tokens, values, strict=True)]
    yield _stroke(places, colour, width, dash)
    for x, y in places:
        yield _marker(marker, x, y, colour)


def _stroke(places: Sequence[tuple[float, float]], colour: str, width: float, dash: str) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def _marker(kind: str, x: float, y: float, colour: str) -> str:
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    corners = {
        "square": ((-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)),
        "triangle": ((0, -4.5), (4.5, 3.5), (-4.5, 3.5)),
        "diamond": ((0, -5), (5, 0), (0, 5), (-5, 0)),
    }[kind]
    points = " ".join(f"{x + across:.1f},{y + down:.1f}" for across, down in corners)
    return f'<polygon points="{points}" fill="{colour}"/>'


def _text(x: float, y: float, words: str, colour: str, anchor: str = "start", style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{named}>{escape(words)}</text>'


def _spread(places: Sequence[float]) -> list[float]:
    """The same order, no two closer than LEAST_GAP, moved as little as one pass each way does."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = [places[index] for index in order]
    for above in range(1, len(moved)):
        moved[above] = max(moved[above], moved[above - 1] + LEAST_GAP)
    shift = (moved[-1] - places[order[-1]]) / 2
    return [moved[order.index(index)] - shift for index in range(len(places))]


def _round_numbers(low: float, high: float) -> list[float]:
    """1, 2 and 5 times a power of ten."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [factor * 10.0**power for power in powers for factor in (1, 2, 5) if low <= factor * 10.0**power <= high]


def _below(value: float) -> float:
    return max(number for number in _round_numbers(value / 10, value))


def _above(value: float) -> float:
    return min(number for number in _round_numbers(value, value * 10))
