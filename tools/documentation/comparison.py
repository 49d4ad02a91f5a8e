"""docs/rivals.json: zoo beside other libraries, as tools/compare_rivals.py measured it on one GPU. "earlier" has the date, cubins and seeds of parts
that the last run did not time.

Whole layers are those that serve in docs/layers.json.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.lab.gemm_shapes import BANDS

FILE = Path(__file__).resolve().parents[2] / "docs" / "rivals.json"
COMMAND = "python tools/compare_rivals.py"
Band = tuple[int, int]
_LESS = {"torch bf16": "bf16 weights, with 3.8 times the bytes"}


@dataclass(frozen=True)
class Part:
    """A kind of GEMM, and the bands of sizes in which its problems are drawn."""

    title: str
    size: str  # that the bands are of, by its name in a record
    words: str  # the same for readers
    bands: tuple[Band, ...]


PARTS = {
    "dense": Part("One FP8 GEMM", "M", "tokens", BANDS),
    "contiguous": Part("FP8 experts, contiguous rows", "rows", "rows of an expert", ((16, 127), (128, 255), (256, 511), (512, 4096))),
    "masked": Part("FP8 experts, masked slots", "rows", "rows of a slot", ((1, 64), (65, 256))),
    "experts": Part("MXFP4 experts, FP8 activations", "tokens", "tokens", ((1, 8), (9, 128), (129, 2048), (2049, 8192))),
    "bf16 experts": Part("MXFP4 experts, bf16 activations", "tokens", "tokens", ((1, 8), (9, 128), (129, 2048), (2049, 8192))),
}


@dataclass(frozen=True)
class Ratio:
    """zoo's time over a rival's, of the problems of a band. `form`: how zoo was called, such as "zoo, never promoted"."""

    form: str
    tokens: Band
    rival: str
    problems: int
    mean: float  # geometric
    worst: float


class Comparison:
    """What a record says. `less`: what a rival does less than zoo; a rival that does the same job is not in it."""

    def __init__(self, record: dict[str, Any]):
        self.record, self.less = {"layers": [], **record}, dict[str, str](record["less"]) | _LESS
        last = [record.get(name) for name in ("date", "seeds")]  # an earlier run of this day and these seeds is not told apart
        self.record["earlier"] = {part: run for part, run in record.get("earlier", {}).items() if [run["date"], run["seeds"]] != last}

    @property
    def machine(self) -> str:
        libraries = ", ".join(f"{name} {version}" for name, version in self.record["libraries"].items() if version)
        return f"{self.record['device']}, driver {self.record['driver']}, {libraries}; {self.record['date']}"

    @property
    def drawn(self) -> str:
        """How many problems there are, and the seed that draws them again."""
        counts = sorted({one.problems for part in PARTS if part not in self.record["earlier"] for one in self.ratios(part)})
        return f"{' to '.join(map(str, counts[:1] + counts[1:][-1:]))} problems a band, {_of_seeds(self.record['seeds'])}"

    def earlier(self, part: str) -> str:
        """The date and seeds of a part that the last run did not time, else an empty text."""
        run = self.record["earlier"].get(part)
        return f"Measured {run['date']}, {_of_seeds(run['seeds'])}." if run else ""

    def rivals(self, part: str) -> list[str]:
        """Those that have a time somewhere, those of the same job first."""
        named = dict.fromkeys(name for one in self.record.get(part, []) for name in one["microseconds"] if not name.startswith("zoo"))
        return sorted(named, key=lambda name: name in self.less)

    def ratios(self, part: str = "dense") -> list[Ratio]:
        """Band by band."""
        found, problems = [], self.record.get(part, [])
        forms = dict.fromkeys(name for one in problems for name in one["microseconds"] if name.startswith("zoo"))
        for rival, form in itertools.product(self.rivals(part), forms):
            for least, most in PARTS[part].bands:
                times = [one["microseconds"] for one in problems if least <= one["sizes"][PARTS[part].size] <= most]
                pairs = [one[form] / one[rival] for one in times if rival in one and form in one]
                if pairs:
                    found.append(Ratio(form, (least, most), rival, len(pairs), statistics.geometric_mean(pairs), max(pairs)))
        return found

    def layers(self) -> dict[str, list[tuple[int, dict[str, float]]]]:
        """model -> tokens and the time of each library, by tokens."""
        found: dict[str, list[tuple[int, dict[str, float]]]] = {}
        for one in self.record["layers"]:
            if "zoo" in one["microseconds"]:
                times = {name: time for name, time in one["microseconds"].items() if not name.startswith("zoo,")}
                found.setdefault(one["model"], []).append((one["tokens"], times))
        return {model: sorted(rows, key=lambda row: row[0]) for model, rows in found.items()}

    def refused(self, part: str) -> dict[str, str]:
        """Rivals that have no time at all, and why."""
        timed = self.rivals(part)
        return {name: why for one in self.record.get(part, []) for name, why in one["refused"].items() if name not in timed}


def _of_seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {' and '.join(map(str, seeds))}"


def percent(ratio: float) -> str:
    """A time over another's in words: .8 is 25 % faster, since the other's time is 25 % longer."""
    return f"{100 / ratio - 100:.0f} % faster" if ratio <= 1 else f"{100 * ratio - 100:.0f} % slower"


def kinds_of_tokens(band: Sequence[int]) -> str:
    return f"{band[0]:,} to {band[1]:,}"


def comparison(file: Path = FILE) -> Comparison:
    if not file.exists():
        sys.exit(f"{file.name} does not exist; on a GPU `{COMMAND}` makes it")
    layers = file.with_name("layers.json")
    served = json.loads(layers.read_text()).get("serving", {}).get("rows", []) if layers.exists() else []
    return Comparison({**json.loads(file.read_text()), "layers": served})
