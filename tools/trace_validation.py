"""How far is the clock of `zoo trace` from times recorded on an H200? `python tools/trace_validation.py`, in 4 minutes.

Predicts ten kernels at three shapes each, and prints for how many pairs of calls, whose times differ by more than 10 %, the order is right.
Calls whose cubins have no recorded time are left out and named."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from zoo.benchmark.arguments import named_sizes
from zoo.benchmark.record import Timing, timings_of
from zoo.clock.chip import Chip, chip_for
from zoo.clock.prediction import lengths, predicted
from zoo.clock.recorded import call_of, record
from zoo.packaged import packaged
from zoo.shipped.evidence import evidence_of
from zoo.text import table

ARCH = "sm_90a"
SHAPES = ((16, 4096, 7168), (512, 7168, 2048), (4096, 7168, 2048))  # M, N, K; SwiGLU has N / 2 gates
KERNELS = (
    "gemm.fp8b128.dense", "gemm.fp8b128.dense.swiglu", "gemm.fp8b128.dense.swiglu_fp8b128", "gemm.fp8_nvfp4.dense.stored",
    "gemm.fp8_nvfp4.dense.swiglu", "gemm.fp8_nvfp4.dense.swiglu_fp8b128", "gemm.bf16_nvfp4.dense", "gemm.bf16_nvfp4.dense.stored",
    "gemm.bf16_nvfp4.dense.swiglu", "gemm.bf16_mxfp4.dense",
)  # fmt: skip
DIFFERENT = 1.1


def timed(name: str, shape: tuple[int, ...]) -> Timing | None:
    """The time that is recorded of a kernel at a shape. A cubin that was built anew has none until a GPU has run it."""
    kernel = packaged.kernel(name)
    sizes = named_sizes(kernel, (shape[0], shape[1] // 2, shape[2]) if "swiglu" in name else shape)
    found = [
        one for one in timings_of(kernel, evidence_of(packaged.directory)) if one.sizes == sizes and not one.settings and one.arch == ARCH
    ]
    return found[0] if found else None


def predicted_microseconds(timing: Timing, chip: Chip) -> float:
    call = call_of(packaged, packaged.kernel(timing.kernel), timing.sizes, ARCH, chip, timing.variant)
    return predicted(call, [record(call, length) for length in lengths(call)]).microseconds


def right_orders(found: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """Of pairs of (predicted, recorded) times, those whose recorded times differ: whose order is right, and all."""
    pairs = [(one, other) for one, other in itertools.combinations(found, 2) if max(one[1], other[1]) > DIFFERENT * min(one[1], other[1])]
    return sum((one[0] > other[0]) == (one[1] > other[1]) for one, other in pairs), len(pairs)


def validate(chip: Chip) -> None:
    errors, without = [], []
    for shape in SHAPES:
        rows, found = [], list[tuple[float, float]]()
        for name in KERNELS:
            timing = timed(name, shape)
            if timing is None:
                without.append(f"{name} at {' x '.join(map(str, shape))}")
                continue
            time, seen = predicted_microseconds(timing, chip), timing.microseconds
            found.append((time, seen))
            rows.append((name.removeprefix("gemm."), timing.variant, f"{time:.1f}", f"{seen:.1f}", f"{100 * time / seen - 100:+.0f} %"))
        right, pairs = right_orders(found)
        errors += [abs(time / seen - 1) for time, seen in found]
        print(f"{' x '.join(map(str, shape))}, us: {right} of {pairs} pairs in the right order")
        print(table(("kernel", "variant", "clock", "H200", "change"), rows), flush=True)
    for call in without:
        print(f"{call}: no time is recorded")
    if errors:
        print(f"mean error {sum(errors) / len(errors):.1%}, worst {max(errors):.0%}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    validate(chip_for(ARCH))
