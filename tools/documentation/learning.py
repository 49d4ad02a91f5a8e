"""The part of docs/layers.md that shows training: a picture and a paragraph, made of docs/learning.json."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from tools.documentation.svg import THEMES, Colours, Place, band, drawing, stroke, text

FILE = Path(__file__).resolve().parents[2] / "docs" / "learning.json"
WIDTH, HEIGHT = 880, 400
SMOOTHED = 5  # points of the file to a point of the right plot
_TICKS = 4
_NAMES = {"bf16": "bf16 (torch)", "fp8": "FP8 (zoo)"}


class Learning:
    """Whole runs of both precisions, by seed. A run that was cut, and the run of the same seed in the other precision, is left out."""

    def __init__(self, record: dict[str, Any]):
        self.record = record
        self.steps: int = record["plan"]["steps"]
        whole = {(run["precision"], run["seed"]): run for run in record["runs"] if run["steps"] == self.steps}
        self.seeds = [seed for precision, seed in whole if precision == "fp8" and ("bf16", seed) in whole]
        if not self.seeds:
            raise SystemExit(f"{FILE.name} has no seed with {self.steps} steps in bf16 and in FP8; run python -m tools.lab.language_model")
        self.runs = {name: [whole[name, seed] for seed in self.seeds] for name in _NAMES}

    def losses(self, precision: str) -> list[list[float]]:
        """Of each seed."""
        return [[loss for _, loss in run["losses"]] for run in self.runs[precision]]

    @property
    def at(self) -> list[int]:
        return [step for step, _ in self.runs["fp8"][0]["losses"]]

    def validation(self, precision: str) -> list[float]:
        return [run["validation"][-1][1] for run in self.runs[precision]]

    def speed(self, precision: str) -> float:
        return float(mean(run["tokens_per_second"] for run in self.runs[precision]))

    @property
    def resumed(self) -> list[dict[str, Any]]:
        return [run["resumed"] for run in self.record["runs"] if run["resumed"]]


def learning() -> Learning | None:
    return Learning(json.loads(FILE.read_text())) if FILE.exists() else None


def pictures(root: Path) -> list[Path]:
    return [root / "docs" / "pictures" / f"learning_{theme}.svg" for theme in THEMES]


def section(found: Learning) -> str:
    """What docs/layers.md says of the runs."""
    sizes, record = found.record["sizes"], found.record
    means = {name: mean(found.validation(name)) for name in _NAMES}
    spreads = {name: max(some) - min(some) for name, some in ((name, found.validation(name)) for name in _NAMES)}
    ratio = found.speed("fp8") / found.speed("bf16")
    faster = f"{100 * ratio - 100:.0f} % faster" if ratio >= 1 else f"{100 / ratio - 100:.0f} % slower"
    lines = [
        "## Does FP8 training learn as well as bf16?",
        "",
        _verdict(means, spreads),
        "",
        "<picture>",
        '  <source media="(prefers-color-scheme: dark)" srcset="pictures/learning_dark.svg">',
        '  <img alt="Training losses in bf16 and FP8 over steps, and their difference" src="pictures/learning_light.svg">',
        "</picture>",
        "",
        f"A model of {record['parameters'] / 1e6:.0f} M parameters predicts the bytes of Python's standard library. It has {sizes['layers']} layers of width "
        f"{sizes['width']} with {sizes['experts']} experts, {sizes['top_k']} for each token. "
        f"{_seeds(found)} trained for {found.steps:,} steps of {record['plan']['batch'] * sizes['window']:,} tokens.",
        "",
        "| | torch in bf16 | zoo in FP8 |",
        "|---|---|---|",
        f"| validation loss, mean | {means['bf16']:.4f} | {means['fp8']:.4f} |",
        *([f"| largest difference between seeds | {spreads['bf16']:.4f} | {spreads['fp8']:.4f} |"] if len(found.seeds) > 1 else []),
        f"| tokens a second, {record['device']} | {found.speed('bf16'):,.0f} | {found.speed('fp8'):,.0f} |",
        "",
        f"FP8 is {faster} than bf16. {_how(record)} {_resumed(found)}`python -m tools.lab.language_model` trains both.",
    ]
    return "\n".join(lines)


def _verdict(means: dict[str, float], spreads: dict[str, float]) -> str:
    off = means["fp8"] - means["bf16"]
    apart = {name: f"{100 * spreads[name] / means[name]:.1f} %" for name in means}
    beside = f"{100 * abs(off) / means['bf16']:.1f} % {'higher' if off > 0 else 'lower'} than in bf16"
    return f"The mean validation loss in FP8 is {beside}. Between seeds FP8 differs by {apart['fp8']}, bf16 by {apart['bf16']}."


def _seeds(found: Learning) -> str:
    asked = len({run["seed"] for run in found.record["runs"]})
    cut = f" ({asked - len(found.seeds)} more stopped early)" if asked > len(found.seeds) else ""
    return f"{len(found.seeds)} seeds{cut}" if len(found.seeds) > 1 else f"One seed{cut}"


def _how(record: dict[str, Any]) -> str:
    experts = "The experts of bf16 are torch's `_grouped_mm`."
    return f"{experts} A step is one CUDA graph." if record["plan"]["graphs"] else f"{experts} Steps are launched from Python."


def _resumed(found: Learning) -> str:
    if not found.resumed:
        return ""
    first, equal = found.resumed[0], all(one["equal"] for one in found.resumed)
    verb = "repeated" if equal else "did not repeat"
    return f"Runs of one seed, resumed from step {first['from']:,}, {verb} the next {first['steps']} losses exactly. "


@dataclass(frozen=True)
class _Plot:
    left: float
    right: float
    steps: int
    values: tuple[float, float]
    top: float = 64
    bottom: float = 318

    def places(self, steps: Sequence[float], values: Sequence[float]) -> list[Place]:
        return [(self.x(step), self.y(value)) for step, value in zip(steps, values, strict=True)]

    def x(self, step: float) -> float:
        return self.left + step / self.steps * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.values
        return self.bottom - (min(max(value, low), high) - low) / (high - low) * (self.bottom - self.top)


def picture(found: Learning, theme: str) -> str:
    colours = THEMES[theme]
    notes = (
        f"{found.record['device']}, torch {found.record['torch']}; {found.record['date']}. Bands reach from the least to the largest seed.",
        f"Left: means of {found.at[0]} steps. Right: means of {SMOOTHED * found.at[0]} steps; both precisions of a seed read equal batches.",
    )
    parts = [
        *_curves(found, colours),
        *_differences(found, colours),
        *(text(20, HEIGHT - 26 + 17 * row, words, colours.quiet, style="small") for row, words in enumerate(notes)),
    ]
    return drawing(WIDTH, HEIGHT, "Training losses in bf16 and FP8", parts)


def _colours(colours: Colours) -> dict[str, str]:
    return {"bf16": colours.rivals[0], "fp8": colours.zoo}


def _curves(found: Learning, colours: Colours) -> Iterator[str]:
    """The loss of each precision: the mean of the seeds, and a band around it."""
    every = [loss for name in _NAMES for some in found.losses(name) for loss in some]
    plot = _Plot(64, 400, found.steps, (0, 2 * math.ceil(max(every) / 2)))
    yield text(plot.left, 26, "Training loss, nats a byte", colours.text, style="title")
    yield from _axes(plot, "{:.1f}", colours)
    for row, (name, colour) in reversed(list(enumerate(_colours(colours).items()))):  # dashes above the line
        by_step = list(zip(*found.losses(name), strict=True))
        low, middle, high = ([of(values) for values in by_step] for of in (min, mean, max))
        yield band(plot.places(found.at, low), plot.places(found.at, high), colour)
        yield stroke(plot.places(found.at, middle), colour, 2, "" if name == "fp8" else "6 4")
        yield from _legend(plot.right - 120, plot.top + 16 + 18 * row, _NAMES[name], colour, colours)


def _differences(found: Learning, colours: Colours) -> Iterator[str]:
    """Each seed less the mean of bf16 (bands), and FP8 less bf16 of the same seed (line)."""
    smooth = {name: [_smoothed(one) for one in found.losses(name)] for name in _NAMES}
    at = found.at[SMOOTHED - 1 :: SMOOTHED] or found.at[-1:]
    at = [*at, found.steps][: len(smooth["fp8"][0])]
    centre = [mean(values) for values in zip(*smooth["bf16"], strict=True)]
    away = {name: [[value - middle for value, middle in zip(one, centre, strict=True)] for one in some] for name, some in smooth.items()}
    difference = [
        mean(fp8 - bf16 for fp8, bf16 in zip(*pair, strict=True))
        for pair in zip(zip(*smooth["fp8"], strict=True), zip(*smooth["bf16"], strict=True), strict=True)
    ]
    later = [abs(value) for some in away.values() for one in some for value in one[len(one) // 5 :]]  # the first steps differ most
    reach = _above(max(*later, *map(abs, difference[len(difference) // 5 :]), 1e-3))
    plot = _Plot(520, 850, found.steps, (-reach, reach))
    yield text(plot.left, 26, "Less the mean loss of bf16, nats a byte", colours.text, style="title")
    yield from _axes(plot, "{:+.3f}", colours)
    for row, (name, colour) in enumerate(_colours(colours).items()):
        by_step = list(zip(*away[name], strict=True))
        yield band(plot.places(at, [min(one) for one in by_step]), plot.places(at, [max(one) for one in by_step]), colour)
        yield text(plot.left + 8, plot.bottom - 28 + 18 * row, f"band: seeds of {_NAMES[name]}", colour, style="small")
    yield stroke(plot.places(at, difference), colours.zoo, 2.5, "")
    yield from _legend(plot.left + 8, plot.top + 16, "FP8 less bf16, mean of seeds", colours.zoo, colours)


def _above(value: float) -> float:
    """1, 2, 4, 6 or 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 4, 6, 8, 10) if factor * power >= value)


def _smoothed(losses: Sequence[float]) -> list[float]:
    return [mean(losses[one : one + SMOOTHED]) for one in range(0, len(losses), SMOOTHED)]


def _legend(x: float, y: float, words: str, colour: str, colours: Colours) -> Iterator[str]:
    yield stroke([(x, y), (x + 24, y)], colour, 2.5, "6 4" if colour == colours.rivals[0] else "")
    yield text(x + 30, y + 4, words, colours.text, style="small")


def _axes(plot: _Plot, form: str, colours: Colours) -> Iterator[str]:
    low, high = plot.values
    for tick in range(_TICKS + 1):
        value, step = low + (high - low) * tick / _TICKS, plot.steps * tick / _TICKS
        yield stroke([(plot.left, plot.y(value)), (plot.right, plot.y(value))], colours.grid, 1, "")
        yield text(plot.left - 8, plot.y(value) + 4, form.format(value), colours.text, "end", "small")
        yield stroke([(plot.x(step), plot.top), (plot.x(step), plot.bottom)], colours.grid, 1, "")
        yield text(plot.x(step), plot.bottom + 18, f"{step:,.0f}", colours.text, "middle", "small")
    yield text((plot.left + plot.right) / 2, plot.bottom + 38, "steps", colours.text, "middle")
