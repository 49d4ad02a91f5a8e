"""Problems for requantize.fp8b128: every element with scales of all magnitudes, powers of two and not; the answers are zoo.reference's."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy

from zoo.checks.problem import Later, NoChecks, Placed, Problem
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.gemm_powers_of_two import ue8m0_of_powers
from zoo.reference.requantize import requantize_rows, requantize_squares

# Around a thread's 16 columns, a block of 128, a CTA's 1024 columns, its 4 and 32 rows, and the 128 rows of a square.
_SHAPES = ((1, 16), (3, 128), (4, 144), (5, 272), (31, 112), (33, 1040), (32, 2064), (130, 64), (128, 128), (257, 1024), (300, 400))
_ODD = (0.0, -0.0, 1e-45, 2.0**-127, 2.0**-126, 1.1754945e-38, 2.0**127, 3e38, numpy.inf, -1.0, numpy.nan, 1.0, 0.75, 1 / 448)


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    if kernel.fields["formats"] != "fp8b128" or "scales_out" not in kernel.arguments:
        raise NoChecks(kernel, f"requantising {kernel.fields['formats']}", "add their problems to zoo/checks/requantize.py")
    squares = kernel.fields["direction"] == "squares"
    for number, shape in enumerate(_SHAPES):
        yield _problem(squares, number, *shape)
    yield _problem(squares, 0, 0, 64)


def _problem(squares: bool, number: int, M: int, K: int) -> Problem:
    random = numpy.random.default_rng(M * 1009 + K)
    matrices, gap, turned, as_bytes = (1, 3)[number % 2], number % 3, number % 2 == 1, number % 4 > 1
    stack = (matrices,) if squares else ()
    q = random.integers(0, 256, (*stack, M, K), dtype=numpy.uint8).view(ml_dtypes.float8_e4m3fn)
    rows, blocks = -(-M // 128) if squares else M, -(-K // 128)
    scales = numpy.exp2(random.uniform(-20, 20, (*stack, rows, blocks))).astype(numpy.float32)
    odd = random.choice(numpy.array(_ODD, numpy.float32), scales.shape)
    scales = numpy.where(random.random(scales.shape) < 0.4, odd, scales)

    def strides(row: int, rows: int) -> tuple[int, ...]:
        return (rows * row, row, 1) if squares else (row, 1)

    def strides_of_scales() -> tuple[int, ...]:
        row, block = (1, rows + gap) if turned else (blocks + gap, 1)
        return (rows * row + blocks * block, row, block) if squares else (row, block)

    def outputs() -> dict[str, Placed]:
        made = (requantize_squares if squares else requantize_rows)(q, scales)
        out = Placed(ue8m0_of_powers(made.scales), strides_of_scales(), "ue8m0") if as_bytes else Placed(made.scales, strides_of_scales())
        return {"q_out": Placed(made.q, strides(K + 16 * (2 - gap), M)), "scales_out": out}

    words = f"{'x'.join(map(str, q.shape))}, {'scales turned' if turned else 'scales row by row'}, to {'bytes' if as_bytes else 'f32'}"
    inputs = {"q": Placed(q, strides(K + 16 * gap, M)), "scales": Placed(scales, strides_of_scales())}
    return Problem(words, inputs, Later(outputs))
