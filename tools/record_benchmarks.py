"""Times every quantiser and its helpers at their usual sizes and records the figures in evidence.json, which `zoo bench --recorded` prints.

    python tools/record_benchmarks.py [--cubins DIR] [--seconds S] [PATTERN ...]

Every variant of this GPU is timed. Those of bf16 and e4m3 get all sizes, and groups of all kinds; others two sizes, for they differ little.
What does not fit into the seconds given is named, and recorded by a later run: it starts with what has no figures yet.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from zoo.benchmark.arguments import check_call, named_sizes, takes_groups
from zoo.benchmark.groups import DISTRIBUTIONS, Groups
from zoo.benchmark.measure import measure
from zoo.benchmark.record import line_of, record, words_of
from zoo.benchmark.rivals import RIVALS
from zoo.benchmark.shapes import usual_shapes
from zoo.catalog import Zoo
from zoo.checks.gpu import runnable
from zoo.cli.text import progress
from zoo.contract.manifest import Kernel, Variant
from zoo.errors import ConstraintError, VariantError
from zoo.runtime import driver
from zoo.runtime.hardware import describe
from zoo.shipped.evidence import Evidence

Settings = dict[str, str]  # of a launch: the dtypes and options by name
Call = tuple[Variant, Settings, dict[str, int], Groups | None]
BESIDE = {"torch tensor-wise": RIVALS["torch tensor-wise"]}  # of a GEMM
GROUPS = [Groups(count, sizes) for count in (8, 64, 256) for sizes in DISTRIBUTIONS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", default=["quantize.*", "dequantize.*", "scales.*", "experts.*", "norm.*"])
    parser.add_argument("--cubins", type=Path, default=ROOT / "cubins")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so many (default: never)")
    asked = parser.parse_args()
    end = time.monotonic() + asked.seconds
    zoo, device = Zoo(asked.cubins), driver.device(0)
    machine, evidence = describe(device), Evidence(asked.cubins)
    names = [name for name in zoo.manifest.names if any(fnmatch.fnmatchcase(name, pattern) for pattern in asked.patterns)]
    work = [
        (zoo.kernel(name), call) for name in names for call in calls(zoo.kernel(name), device) if takes(zoo.kernel(name), device, *call)
    ]
    work.sort(key=lambda one: is_recorded(evidence, *one))
    left = []
    with progress(work, len(work), "bench") as steps:
        for kernel, (variant, settings, sizes, groups) in steps:
            if time.monotonic() > end:
                left.append(kernel.name)
                continue
            seen = measure(zoo, kernel.name, sizes, settings, variant.name, groups=groups, rivals=BESIDE)
            record(evidence, kernel, machine, [(words_of(kernel, sizes, settings, groups), seen)])
    evidence.write()
    for name in dict.fromkeys(left):
        print(f"no time for {left.count(name)} calls of {name}", file=sys.stderr)
    sys.exit(1 if left else 0)


def calls(kernel: Kernel, device: driver.Device) -> Iterator[Call]:
    """All that is timed."""
    shapes = [named_sizes(kernel, shape) for shape in usual_shapes(kernel)]
    grouped = takes_groups(kernel)
    if grouped and kernel.fields["op"] == "quantize":
        shapes = [sizes for sizes in shapes if sizes["M"] in (8192, 32768)]
    for variant in runnable(kernel, device):
        main = all(dtype not in ("f16", "f32", "e5m2") for name, dtype in variant.dtypes.items() if not name.startswith("scales"))
        for settings in settings_of(kernel, variant, main):
            for sizes in shapes if main else [shapes[0], shapes[-1]] if grouped else few(kernel, device, variant, settings, shapes):
                for groups in group_sizes(main, shapes.index(sizes)) if grouped else [None]:
                    yield variant, settings, sizes, groups


def few(kernel: Kernel, device: driver.Device, variant: Variant, settings: Settings, shapes: list[dict[str, int]]) -> list[dict[str, int]]:
    """Two of the sizes that a lesser variant takes, or the only one."""
    own = [sizes for sizes in shapes if takes(kernel, device, variant, settings, sizes, None)]
    return [own[place] for place in dict.fromkeys((len(own) // 2, max(len(own) - 3, 0)))] if own else []


def group_sizes(main: bool, place: int) -> list[Groups]:
    """All kinds for the smallest sizes, one of each count and of each distribution for others; of lesser variants eight of one size."""
    return (GROUPS if place == 0 else GROUPS[::4]) if main else GROUPS[:1]


def settings_of(kernel: Kernel, variant: Variant, main: bool) -> list[Settings]:
    """What a launch chooses: each layout, order of columns and of gates, and of main variants all optional arrays or none."""
    chosen = [[(name, value) for value in option.values] for name, option in kernel.options.items()
              if name in ("layout", "gates", "order") and name not in variant.options]  # fmt: skip
    for name, option in kernel.options.items():  # that must not have its default
        named = [value for value in option.values if f"{name}.{value}" in variant.when.text]
        if named and option.default not in named:
            chosen.append([(name, value) for value in named])
    dtypes = dict(variant.dtypes)
    if kernel.fields["op"] in ("experts", "norm"):  # all matrices have one dtype
        matrices = [name for name, one in kernel.arguments.items() if {*one.dtypes} == {"bf16", "f16"}]
        dtypes |= {name: variant.dtypes[given] for given in matrices if given in variant.dtypes for name in matrices}
        main = True
    optional = {name: dtypes.get(name, one.dtypes[0]) for name, one in kernel.arguments.items() if one.optional}
    fixed = {**variant.options, **{name: dtype for name, dtype in dtypes.items() if name not in optional}}
    choices = [fixed | dict(one) for one in itertools.product(*chosen)]
    return [one | more for one in choices for more in ([{}, optional] if optional and main else [{}])]


def takes(
    kernel: Kernel, device: driver.Device, variant: Variant, settings: Settings, sizes: dict[str, int], groups: Groups | None
) -> bool:
    """Whether the variant is one for this layout and these sizes."""
    try:
        check_call(kernel, sizes, settings, variant.name, groups, device)
    except (ConstraintError, VariantError):
        return False
    return True


def is_recorded(evidence: Evidence, kernel: Kernel, call: Call) -> bool:
    variant, settings, sizes, groups = call
    return line_of(kernel, variant, words_of(kernel, sizes, settings, groups)) in evidence.of(variant).get("benchmark", {}).get(
        "shapes", {}
    )


if __name__ == "__main__":
    main()
