"""What the emulator says the raw instructions give: the same inputs through zoo/emulator/arithmetic.py, number_formats.py and conversions.py."""

from __future__ import annotations

import numpy

from tests.emulator.hardware.instructions import Elementwise, Matrix
from zoo.emulator import arithmetic, conversions, number_formats

_TYPE = {"h": numpy.uint16, "r": numpy.uint32, "l": numpy.uint64}


def matrix(m: Matrix, a: numpy.ndarray, b: numpy.ndarray, c: numpy.ndarray) -> numpy.ndarray:
    """D register words (tiles, M, N) in `hw` mode."""
    return numpy.stack([_tile(m, a[t], b[t], c[t]) for t in range(len(a))])


def _tile(m: Matrix, a, b, c) -> numpy.ndarray:
    if m.result == "s32":
        left = a if m.a == "u8" else (a ^ 0x80) - 0x80
        right = b if m.b == "u8" else (b ^ 0x80) - 0x80
        return arithmetic.integer_sum(left, right, c, saturate=m.family == "mma")
    left = arithmetic.operand(number_formats.FORMATS[m.a], a)
    right = arithmetic.operand(number_formats.FORMATS[m.b], b)
    fp8 = m.a in ("e4m3", "e5m2")
    if m.family == "mma":
        return arithmetic.mma_sync_sum(left, right, c, m.result, fp8=fp8, native_fp8=False, mode="hw")
    return arithmetic.wgmma_sum(left, right, c, m.result, fp8=fp8, mode="hw")


def elementwise(e: Elementwise, inputs: list[numpy.ndarray]) -> numpy.ndarray:
    parts = e.mnemonic.split(".")
    arguments = [x if x.dtype == numpy.uint64 else x.astype(numpy.uint32) for x in inputs]
    with numpy.errstate(all="ignore"):
        if parts[0] == "cvt":
            result = conversions.conversion(e.mnemonic)(*arguments)
        elif parts[-1] == "f32":
            operation = {"fma": number_formats.fma, "add": number_formats.add, "mul": number_formats.multiply}[parts[0]]
            result = operation(*arguments, parts[1], ftz="ftz" in parts)
        else:
            operation = {"fma": number_formats.half_fma, "add": number_formats.half_add, "mul": number_formats.half_multiply}[parts[0]]
            options = {"relu": True} if "relu" in parts else {}
            result = operation(number_formats.FORMATS[parts[-1]], *arguments, parts[1], **options)
    return result.astype(_TYPE[e.output])
