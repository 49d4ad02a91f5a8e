"""How far is the clock of `zoo trace` from times recorded on an H200? `python tools/trace_validation.py [--fit]`, in 6 minutes.

Predicts ten kernels at three shapes each, and prints for how many pairs of calls, whose times differ by more than 10 %, the order is right.
--fit prints the mean error over other kernels and shapes for values of the fitted numbers of zoo/clock/h200.toml.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from zoo.benchmark.arguments import named_sizes
from zoo.benchmark.record import Timing, timings_of
from zoo.clock.chip import Chip, chip_for
from zoo.clock.prediction import lengths, predicted
from zoo.clock.recorded import Call, call_of, record
from zoo.emulator.recording import Recording
from zoo.packaged import packaged
from zoo.shipped.evidence import evidence_of
from zoo.text import table

ARCH = "sm_90a"
SHAPES = ((16, 4096, 7168), (512, 7168, 2048), (4096, 4096, 7168))  # M, N, K; SwiGLU has N / 2 gates
KERNELS = (
    "gemm.fp8b128.dense", "gemm.fp8b128.dense.swiglu", "gemm.fp8b128.dense.swiglu_fp8b128", "gemm.fp8_nvfp4.dense",
    "gemm.fp8_nvfp4.dense.stored", "gemm.fp8_nvfp4.dense.swiglu", "gemm.bf16_nvfp4.dense", "gemm.bf16_nvfp4.dense.stored",
    "gemm.bf16_nvfp4.dense.swiglu", "gemm.fp8_mxfp4.dense",
)  # fmt: skip
FIT_SHAPES = ((1, 24576, 1536), (64, 7168, 2048), (128, 4096, 7168), (512, 2048, 7168))
FIT_KERNELS = ("gemm.bf16_mxfp4.dense", "gemm.bf16_mxfp4.dense.stored", "gemm.fp8_mxfp4.dense.swiglu", "gemm.fp8_mxfp4.dense.stored")
FITTED = {"barrier_latency": (0, 20, 40, 60), "issue": (0.8, 0.9, 1.0, 1.1, 1.2)}
DIFFERENT = 1.1


@dataclass(frozen=True)
class Case:
    shape: tuple[int, ...]  # of the product
    timing: Timing
    call: Call
    recordings: tuple[Recording, ...]

    def ratio(self, chip: Chip) -> float:
        return predicted(self.call, chip, self.recordings).microseconds / self.timing.microseconds


def cases(kernels: Sequence[str], shapes: Iterable[tuple[int, ...]], chip: Chip) -> Iterable[Case]:
    evidence = evidence_of(packaged.directory)
    for shape, name in itertools.product(shapes, kernels):
        kernel = packaged.kernel(name)
        given = (shape[0], shape[1] // 2, shape[2]) if "swiglu" in name else shape
        sizes = named_sizes(kernel, given)
        timings = [one for one in timings_of(kernel, evidence) if one.sizes == sizes and not one.settings and one.arch == ARCH]
        if not timings:
            raise SystemExit(f"{name}: no time is recorded at {given}; {len(list(timings_of(kernel, evidence)))} others are")
        timing = timings[0]
        call = call_of(packaged, kernel, sizes, ARCH, chip.multiprocessors, timing.variant)
        yield Case(shape, timing, call, tuple(record(call, length) for length in lengths(call)))


def right_orders(found: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """Of pairs of (predicted, recorded) times, those whose recorded times differ: whose order is right, and all."""
    pairs = [(one, other) for one, other in itertools.combinations(found, 2) if max(one[1], other[1]) > DIFFERENT * min(one[1], other[1])]
    return sum((one[0] > other[0]) == (one[1] > other[1]) for one, other in pairs), len(pairs)


def validate(chip: Chip) -> None:
    rows, found = [], list[tuple[tuple[int, ...], float, float]]()
    for case in cases(KERNELS, SHAPES, chip):
        seen = case.timing.microseconds
        time = seen * case.ratio(chip)
        found.append((case.shape, time, seen))
        rows.append(
            (case.timing.kernel, case.timing.variant, "x".join(map(str, case.shape)), f"{time:.1f}", f"{seen:.1f}", f"{time / seen:.2f}")
        )
        print(*rows[-1], file=sys.stderr)
    print(table(("kernel", "variant", "shape", "clock us", "recorded us", "ratio"), rows))
    groups = {"all": found, **{"x".join(map(str, shape)): [one for one in found if one[0] == shape] for shape in SHAPES}}
    for name, group in groups.items():
        right, pairs = right_orders([one[1:] for one in group])
        error = sum(abs(time / seen - 1) for _, time, seen in group) / len(group)
        print(f"{name}: {right} of {pairs} pairs in the right order ({right / pairs:.0%}), mean error {error:.0%}")


def fit(chip: Chip) -> None:
    found = list(cases(FIT_KERNELS, FIT_SHAPES, chip))
    for values in itertools.product(*FITTED.values()):
        chosen = dict(zip(FITTED, values, strict=True))
        changed = replace(chip, **chosen)  # type: ignore[arg-type]
        errors = [abs(case.ratio(changed) - 1) for case in found]
        print(f"{chosen}: mean error {sum(errors) / len(errors):.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="fit, instead of judging")
    (fit if parser.parse_args().fit else validate)(chip_for(ARCH))


if __name__ == "__main__":
    main()
