"""The README's picture, drawn as SVG from docs/rivals.json and docs/layers.json: zoo's dense FP8 GEMM and a gpt-oss layer beside other libraries, over tokens."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tools.documentation.comparison import Comparison, kinds_of_tokens, percent
from tools.documentation.svg import THEMES, Colours, drawing, sign, stroke, text

WIDTH, HEIGHT = 880, 420
MARKERS = ("square", "triangle", "diamond")
LAYER = "gpt-oss-20b"
LEAST_GAP = 15  # pixels between two labels
ACTIVATIONS = {"triton_kernels": "bf16 activations"}  # of MXFP4 weights, where zoo's are FP8


@dataclass(frozen=True)
class Panel:
    """A plot of its own: its place, and how a number of tokens and a value become pixels."""

    left: float
    right: float
    tokens: tuple[float, float]
    values: tuple[float, float]
    top: float = 64
    bottom: float = 318

    def x(self, tokens: float) -> float:
        low, high = self.tokens
        return self.left + math.log(tokens / low) / math.log(high / low) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.values
        return self.bottom - math.log(value / low) / math.log(high / low) * (self.bottom - self.top)


def picture(found: Comparison, theme: str) -> str:
    colours = THEMES[theme]
    parts = [
        *_dense(found, colours),
        *_layer(found, colours),
        *(text(20, HEIGHT - 30 + 17 * row, words, colours.quiet, style="small") for row, words in enumerate(_footnotes(found))),
    ]
    return drawing(WIDTH, HEIGHT, caption(found), parts)


def caption(found: Comparison) -> str:
    """What the picture shows, in figures: the fewest and the most tokens, the worst problem, a layer."""
    ratios = [one for one in found.ratios() if one.rival not in found.less]
    sentences: list[str] = []
    if ratios:
        bands = sorted({one.tokens for one in ratios})
        for band in dict.fromkeys((bands[0], bands[-1])):
            of_band = [one for one in ratios if one.tokens == band]
            speeds = " and ".join(f"{percent(one.mean)} than {one.rival}" for one in of_band)
            subject = "it" if sentences else f"zoo's block-scaled FP8 GEMM on an {found.record['device']}"
            mean = f" (geometric mean of {of_band[0].problems} problems)" * (not sentences)
            sentences.append(f"At {kinds_of_tokens(band)} tokens {subject} is {speeds}{mean}.")
        worst = max(ratios, key=lambda one: one.worst)
        sentences.append(f"In the worst problem on this GPU it is {percent(worst.worst)} than {worst.rival}.")
    rows, rivals = found.layers().get(LAYER, []), found.rivals("layers")
    if rows and rivals:
        of_layers = sorted(times["zoo"] / times[rivals[0]] for _, times in rows if rivals[0] in times)
        least, most = percent(of_layers[-1]), percent(of_layers[0])
        unit = " % faster"
        spread = most if least == most else f"{least.removesuffix(unit) if most.endswith(unit) else least} to {most}"
        sentences.append(
            f"At {rows[0][0]} to {rows[-1][0]:,} tokens zoo's {LAYER} layer with FP8 activations is {spread} than {_named(found, rivals[0])}."
        )
    return " ".join(sentences)


def _footnotes(found: Comparison) -> tuple[str, str]:
    return (
        f"{found.machine}. Each result was checked.",
        f"Left: {len(found.record['dense'])} problems drawn by a seed, lines are geometric means. Right: MXFP4 weights, from the router's logits.",
    )


def _named(found: Comparison, rival: str) -> str:
    words = found.less[rival].partition(",")[0] if rival in found.less else ACTIVATIONS.get(rival, "")
    return f"{rival} ({words})" if words else rival


def _dense(found: Comparison, colours: Colours) -> Iterator[str]:
    """Each rival's time, zoo's being 1: a point for each problem, a line through the bands."""
    rivals = found.rivals("dense")
    points = {
        rival: [
            (one["sizes"]["M"], one["microseconds"][rival] / one["microseconds"]["zoo"])
            for one in found.record["dense"]
            if rival in one["microseconds"] and "zoo" in one["microseconds"]
        ]
        for rival in rivals
    }
    values = [value for pairs in points.values() for _, value in pairs] + [1.0]
    panel = Panel(64, 372, (1, 16384), (min(values) * 0.95, max(values) * 1.05))
    yield text(panel.left, 26, "One FP8 GEMM: the other's time, zoo = 1", colours.text, style="title")
    ticks = [tick for tick in (0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0) if panel.values[0] <= tick <= panel.values[1]]
    yield from _axes(panel, (1, 16, 128, 2048, 16384), ticks, "{:g}", "", colours)
    yield stroke([(panel.left, panel.y(1)), (panel.right, panel.y(1))], colours.zoo, 3, "")
    yield text(panel.right + 6, panel.y(1) + 4, "zoo", colours.zoo, style="small")
    yield text(panel.right - 4, panel.top + 14, "above 1: zoo is faster", colours.quiet, "end", "small")
    legend = list[tuple[str, str, str, str]]()
    for rival, (colour, marker, dash) in _styles(found, rivals, colours):
        for tokens, value in points[rival]:
            yield sign(marker, panel.x(tokens), panel.y(value), colour, 0.45)
        means = [one for one in found.ratios() if one.rival == rival]
        places = [(panel.x(math.sqrt(one.tokens[0] * one.tokens[1])), panel.y(1 / one.mean)) for one in means]
        yield stroke(places, colour, 2.5, dash)
        legend.append((rival if rival not in found.less else f"{rival.removeprefix('torch ')}, less work", colour, marker, dash))
    yield from _legend(panel.left, 44, legend, colours, across=True)


def _layer(found: Comparison, colours: Colours) -> Iterator[str]:
    """Microseconds of a whole layer."""
    rows, rivals = found.layers().get(LAYER, []), found.rivals("layers")
    if not rows:
        return
    values = [time for _, times in rows for time in times.values()]
    panel = Panel(500, 790, (rows[0][0], max(rows[-1][0], rows[0][0] + 1)), (_below(min(values)), _above(max(values))))
    yield text(panel.left, 26, f"A mixture-of-experts layer of {LAYER}", colours.text, style="title")
    ticks = _round_numbers(*panel.values)
    yield from _axes(panel, [tokens for tokens, _ in rows], ticks, "{:g}", "microseconds", colours)
    legend, labels = list[tuple[str, str, str, str]](), list[tuple[float, str, str]]()
    lines = [*_styles(found, rivals, colours), ("zoo", (colours.zoo, "circle", ""))]
    for name, (colour, marker, dash) in lines:
        places = [(panel.x(tokens), panel.y(times[name])) for tokens, times in rows if name in times]
        yield stroke(places, colour, 3 if name == "zoo" else 2, dash)
        for x, y in places:
            yield sign(marker, x, y, colour)
        labels.append((places[-1][1], f"{rows[-1][1].get(name, 0):,.0f}", colour))
        legend.insert(0, ("zoo, FP8 activations" if name == "zoo" else _named(found, name), colour, marker, dash))
    for (y, words, colour), place in zip(labels, _spread([label[0] for label in labels]), strict=True):
        yield stroke([(panel.right + 5, y), (panel.right + 14, place)], colour, 1, "")
        yield text(panel.right + 18, place + 4, words, colour, style="small")
    yield from _legend(panel.left + 12, panel.top + 16, legend, colours, across=False)


def _styles(found: Comparison, rivals: Sequence[str], colours: Colours) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Colour, marker and dashes: a rival that does less, or other, work is quiet and dashed."""
    own = iter(zip(colours.rivals, MARKERS, strict=True))
    for rival in rivals:
        yield rival, (colours.quiet, "diamond", "6 4") if rival in found.less else (*next(own), "")


def _legend(x: float, y: float, entries: Sequence[tuple[str, str, str, str]], colours: Colours, across: bool) -> Iterator[str]:
    for words, colour, marker, dash in entries:
        yield stroke([(x, y), (x + 24, y)], colour, 2.5, dash)
        yield sign(marker, x + 12, y, colour)
        yield text(x + 30, y + 4, words, colours.text, style="small")
        x, y = (x + 48 + 7.2 * len(words), y) if across else (x, y + 18)


def _axes(panel: Panel, tokens: Sequence[int], ticks: Sequence[float], form: str, label: str, colours: Colours) -> Iterator[str]:
    for tick in ticks:
        y = panel.y(tick)
        yield stroke([(panel.left, y), (panel.right, y)], colours.grid, 1, "")
        yield text(panel.left - 8, y + 4, form.format(tick), colours.text, "end", "small")
    for count in tokens:
        x = panel.x(count)
        yield stroke([(x, panel.top), (x, panel.bottom)], colours.grid, 1, "")
        yield text(x, panel.bottom + 18, f"{count:,}", colours.text, "middle", "small")
    yield text((panel.left + panel.right) / 2, panel.bottom + 40, "tokens, M", colours.text, "middle")
    if label:
        x, y = panel.left - 48, (panel.top + panel.bottom) / 2
        yield f'<g transform="rotate(-90 {x:.1f} {y:.1f})">{text(x, y, label, colours.text, "middle")}</g>'


def _spread(places: Sequence[float]) -> list[float]:
    """The places in their order, no two closer than LEAST_GAP."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = [places[index] for index in order]
    for above, below in itertools.pairwise(range(len(moved))):
        moved[below] = max(moved[below], moved[above] + LEAST_GAP)
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
