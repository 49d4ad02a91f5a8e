"""Fits the numbers in src_cu/*/costs/<gpu>/*.toml to measured times of each tile.

    python tools/lab/gemm_numbers.py CUBINS --numbers numbers.json                                # on the GPU
    python tools/lab/gemm_numbers.py CUBINS --sweep seed.json --shapes unseen@2753@90
    python tools/measure_costs.py src_cu/gemm/hopper_fp8/tables/product.toml --numbers numbers.json --sweep seed.json [--write]
    python tools/lab/four_bit_tiles.py --seed 501 --json seed.json [--grouping m_grouped_contiguous]        # on the GPU
    python tools/measure_costs.py src_cu/gemm/hopper_w4/tables/packed.toml --grouping dense --sweep seed.json --far 0.06 [--write]
    python tools/measure_costs.py src_cu/gemm/hopper_w4/tables/stored.toml --grouping dense --costs gemm/costs/h200/w4_bf16.toml --sweep seed.json

Each tile is fitted to its own times: its numbers minimise the mean of |log(cost / time)|. The fit reads no choice between tiles, so a number cannot
correct the error of another tile. A sweep has the times of all tiles that may be fast. A time counts if it is less than 1.4 times the fastest
tile's, and counts more the nearer it is. --far gives all other times a small weight, so that no tile looks fast where it never was. The numbers of
[chip] minimise the error of all tiles. They stay as they are where a tile that reads them has no times.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.builder import BuildError
from tools.builder.costs import Gpu, manifest_name, with_costs, words_of
from tools.builder.documents import Documents
from tools.builder.include import included
from tools.builder.per_format import formats_of, instances
from tools.builder.sections import sections
from tools.sweeps import read_json, read_sweep
from zoo.contract.expressions import Expression
from zoo.errors import ExpressionError, ManifestError

STEPS = (0.8, 0.9, 0.95, 0.98, 0.99, 0.997, 1.003, 1.01, 1.02, 1.05, 1.1, 1.25)
LARGEST_ERROR = 0.3  # of a logarithm: a time that the formula has no term for shall not bend the others
OUT_OF_QUESTION, FALLS_OFF = 1.4, 6.0  # in a sweep, over the fastest
NEVER = str(2**60)
EITHER = {"pair alone": "pairs_alone", "pair shared": "pairs_sharing", "turn alone": "turns_alone", "turn shared": "turns_sharing"}
MODES: dict[str, dict[str, str]] = {
    "": {},
    "shared": {"lonely": "0"},
    "alone": {"lonely": "1"},
    **{mode: {word: NEVER for word in EITHER.values() if word != own} for mode, own in EITHER.items()},
    "pair": {"turns_alone": NEVER},
    "turn": {"pairs_alone": NEVER},
}
Numbers = dict[str, int]


class Tile:
    """Its cost as a function of numbers, and its times: (what the expression reads, nanoseconds, weight)."""

    def __init__(self, tile: dict[str, Any], table: dict[str, Any], gpu: Gpu, documents: Documents):
        self.name, self.constants = manifest_name(tile), tile["constants"]
        self.numbers, self.chip = dict(gpu.tiles[table["name"]][self.name]), gpu.chip
        named = {name: name for name in (*gpu.chip, *self.numbers)}
        filled_in = words_in(table, tile, documents)
        self.costs = {  # a sweep says of CTAs that may share a multiprocessor, or be pairs, whether they did
            mode: Expression(
                filled_in(gpu.expression(tile["cost"], {**self.constants, **named, **known}, self.name, words_of(table), table["name"])[0])
            )
            for mode, known in MODES.items()
        }
        self.times: list[tuple[dict[str, int], float, float, str]] = []

    def add(self, values: dict[str, int], nanoseconds: float, weight: float, mode: str = "") -> None:
        if "lonely" not in MODES[mode] or self.has(values | self.constants, mode):
            self.times.append((values | self.constants, nanoseconds, weight, mode))

    def has(self, values: dict[str, int], mode: str) -> bool:
        """Whether a launch would be so. Times of the other mode are of calls that nobody makes, and would bend the numbers of those that are made."""
        apart = self.numbers | {"alone": 1, "shared": 10**6}
        said, meant = (self.costs[one].evaluate(values | self.chip | apart) for one in ("", mode))
        return said == meant

    def reads_chip(self) -> bool:
        return any(name in self.chip for name in self.costs[""].names)

    def error(self, chip: Numbers, numbers: Numbers) -> float:
        total = weights = 0.0
        for values, nanoseconds, weight, mode in self.times:
            cost = max(self.costs[mode].evaluate(values | chip | numbers), 1)
            total += weight * min(abs(math.log(cost / nanoseconds)), LARGEST_ERROR)
            weights += weight
        return total / weights


def words_in(table: dict[str, Any], tile: dict[str, Any], documents: Documents) -> Callable[[str], str]:
    """Puts the table's words into a text, those of a format that the tile is for."""
    if "formats" not in table:
        return str
    meant = next(one for one in formats_of(table, documents) if one.is_meant(tile))
    return lambda text: str(meant.text(text))


class Problems:
    """What a table's costs read of a problem."""

    def __init__(self, table: dict[str, Any], sms: int):
        self.sms, self.derived = sms, [(name, Expression(text)) for name, text in table.get("derived", {}).items()]

    def values(
        self, m: int, n: int, k: int, b_constant: str = "no", groups: int = 0, symbols: Mapping[str, int] = MappingProxyType({})
    ) -> dict[str, int]:
        options = {"batch_invariant.no": 1, "batch_invariant.yes": 0, "b_constant.no": int(b_constant == "no")}
        gates = {"I": n // 2, "Q": n // 2, "columns": 0, "q_scale.present": 0}  # N of these have N / 2 columns of the result
        values = {
            "M": m,
            "N": n,
            "K": k,
            "G": groups,
            "sms": self.sms,
            **gates,
            **options,
            "b_constant.yes": int(b_constant == "yes"),
            **symbols,
        }
        for name, expression in self.derived:
            try:
                values[name] = expression.evaluate(values)
            except ExpressionError:
                continue  # it reads what is of another GPU; a cost that reads it says so
        return values


def descend(numbers: Numbers, error: Any, rounds: int = 40) -> Numbers:
    """One number after the other, as long as that helps."""
    least = error(numbers)
    for _ in range(rounds):
        before = least
        for name in numbers:
            for step in STEPS:
                tried = numbers | {name: max(1, round(numbers[name] * step))}
                found = error(tried)
                if found < least - 1e-9:
                    numbers, least = tried, found
        if least > before - 1e-6:
            break
    return numbers


def fitted(tiles: list[Tile], chip: Numbers, rounds: int, keep_chip: bool) -> Numbers:
    """The chip's numbers; each tile has its own then."""
    for _ in range(rounds):
        for tile in tiles:
            tile.numbers = descend(tile.numbers, lambda numbers, tile=tile, chip=chip: tile.error(chip, numbers))
        if keep_chip:
            break
        before = chip
        chip = descend(chip, lambda numbers: sum(tile.error(numbers, tile.numbers) for tile in tiles), 1)
        if chip == before:
            break
    return chip


def rewritten(text: str, table: str, chip: Numbers, tiles: list[Tile]) -> str:
    for name, number in chip.items():
        text, count = re.subn(rf"(?m)^{name} = \d+$", f"{name} = {number}", text)
        assert count == 1, name
    start = text.index(f'[tile."{table}"]')
    before, section = text[:start], text[start:]
    for tile in tiles:
        line = f"{tile.name} = {{ {', '.join(f'{name} = {number}' for name, number in tile.numbers.items())} }}"
        section = re.sub(rf"(?m)^{tile.name} = \{{.*\}}$", line, section, count=1)
    return before + section


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--grouping", help="which section of the table (default: the first)")
    parser.add_argument("--costs", help="where the table's tiles name several files: of which (default: the first tile's)")
    parser.add_argument("--numbers", type=Path, help="of gemm_numbers.py --numbers")
    parser.add_argument("--sweep", type=Path, nargs="+", default=[], help="of gemm_numbers.py --sweep, or of four_bit_tiles.py")
    parser.add_argument("--far", type=float, default=0, help="least weight of a time in a sweep, however far from the fastest (default: 0)")
    parser.add_argument("--sms", type=int, default=132, help="multiprocessors, where no numbers say so (default: 132)")
    parser.add_argument("--only", nargs="+", metavar="TILE", help="tiles whose numbers are looked for (default: all)")
    parser.add_argument("--rounds", type=int, default=6, help="0: judge what stands")
    parser.add_argument("--write", action="store_true", help="put what is found into the GPU's file")
    arguments = parser.parse_args()
    if arguments.numbers is None and not arguments.sweep:
        parser.error("give --numbers or --sweep: times to find numbers in")
    try:
        return measured(arguments, parser)
    except (BuildError, ManifestError, ExpressionError) as error:
        parser.error(str(error))


def read_table(path: Path, parser: argparse.ArgumentParser) -> tuple[Path, dict[str, Any]]:
    """The root of the tree that a file of tables is in, and what the file holds."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        parser.error(f"{path}: {error.strerror}")
    except ValueError as error:
        parser.error(f"{path}: not TOML: {error}")
    root = next((folder for folder in path.absolute().parents if (folder / "common").is_dir()), None)
    if root is None:
        parser.error(f"{path}: no folder above it has a folder `common`, as a tree of sources has")
    return root, data


def measured(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    root, written = read_table(arguments.table, parser)
    documents = Documents(root)
    tables = {str(one.table.get("name", "")): one.table for one in (included(part, documents) for part in sections(written))}
    name = next((one for one in tables if arguments.grouping in (None, *one.split(".")[2:3])), None)
    if name is None:
        parser.error(f"{arguments.table}: no table of the grouping {arguments.grouping}; there are: {', '.join(tables)}")
    table = tables[name]
    data = read_json(arguments.numbers, parser) if arguments.numbers else {"sms": arguments.sms, "rows": []}
    if not isinstance(data, dict) or not {"sms", "rows"} <= data.keys():
        parser.error(f"{arguments.numbers}: has no 'sms' and 'rows'; it must be what tools/lab/gemm_numbers.py --numbers has written")
    variants = table.get("variants")
    named = [tile for tile in (variants or {}).get("tiles", ()) if "costs" in tile]
    if not named:
        parser.error(f"{arguments.table}: no tile of {name} names a file of costs")
    gpu = Gpu(arguments.costs or named[0]["costs"], documents)
    tiles = {  # those with numbers of their own
        manifest_name(tile): Tile(tile, table, gpu, documents)
        for tile in named
        if tile["costs"] == gpu.name and tile.get("cost") in gpu.formulas and manifest_name(tile) in gpu.tiles.get(name, {})
    }
    if unknown := set(arguments.only or ()) - tiles.keys():
        parser.error(f"{' '.join(sorted(unknown))}: no tile of {name} whose cost names a formula; there are {' '.join(tiles)}")
    problems = Problems(instances(with_costs(table, documents), documents)[0], data["sms"])  # sizes are the same in all formats
    for m, n, k, b_constant, variant, microseconds in sorted({(*row[2:6], row[1], row[6]) for row in data["rows"]}):
        if variant in tiles:
            tiles[variant].add(problems.values(m, n, k, b_constant), 1e3 * microseconds, 1)
    for result in (one for file in arguments.sweep for one in read_sweep(file, ("shape", "options", "times"), parser)):
        values = problems.values(
            *result["shape"], **{"groups": result.get("groups", 0), "symbols": result.get("symbols", {}), **result["options"]}
        )
        # those of earlier commits are of no tile that there is
        times = {called: time for called, time in result["times"].items() if called.partition(" ")[2] in MODES}
        fastest = min(times.values(), default=0)
        for called, microseconds in times.items():
            variant, _, mode = called.partition(" ")
            near = math.exp(-FALLS_OFF * (microseconds / fastest - 1)) if microseconds < OUT_OF_QUESTION * fastest else 0
            if variant in tiles and max(near, arguments.far) > 0:
                tiles[variant].add(values, 1e3 * microseconds, max(near, arguments.far), mode)
    timed = [tile for tile in tiles.values() if tile.times and (arguments.only is None or tile.name in arguments.only)]
    keep_chip = any(tile not in timed and tile.reads_chip() for tile in tiles.values())
    chip = fitted(timed, gpu.chip, arguments.rounds, keep_chip)
    print("chip:", ", ".join(f"{key} {number}" for key, number in chip.items()))
    for tile in timed:
        numbers = ", ".join(f"{key} {number}" for key, number in tile.numbers.items())
        print(f"{tile.name}: {numbers}; error {tile.error(chip, tile.numbers):.3f} of {len(tile.times)} times")
    if arguments.write:
        path = root / gpu.name
        path.write_text(rewritten(path.read_text(), name, chip, timed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
