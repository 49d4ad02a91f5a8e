"""The table of docs/formats.md that says how far a product of each format is from the product of the numbers that were quantised."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy

from tools.documentation.text import table
from zoo.reference.block_formats import BlockFormat, block_format, nvfp4_tensor_scale
from zoo.reference.dequantize import dequantize
from zoo.reference.four_bit_weights import NVFP4_SHIFT, nvfp4_as_e4m3
from zoo.reference.quantize import quantize_rows, quantize_squares_rows
from zoo.reference.small_floats import E4M3, decode
from zoo.reference.token_rows import quantize_token_rows

Matrix = numpy.ndarray

M, N, K = 64, 128, 4096
EVERY, FACTOR = 128, 30  # every so many columns of A are so much larger: outliers, as activations of language models have

PRODUCTS = {  # kernels: how A and B are quantised
    "`gemm.fp8b128.*`": ("fp8b128", "squares"),
    "`gemm.fp8_mxfp4.*`": ("fp8token", "mxfp4"),
    "`gemm.fp8_nvfp4.*`": ("fp8token", "nvfp4"),
    "`gemm.bf16_mxfp4.*`": ("bf16", "mxfp4"),
    "`gemm.bf16_nvfp4.*`": ("bf16", "nvfp4"),
    "`gemm.mxfp8.*`": ("mxfp8", "mxfp8"),
    "`gemm.mxfp8_mxfp4.*`": ("mxfp8", "mxfp4"),
    "`gemm.mxfp4.*`": ("mxfp4", "mxfp4"),
    "`gemm.nvfp4.*`": ("nvfp4", "nvfp4"),
}
OF_BOTH = {"squares": "fp8b128"}


def accuracy_table() -> str:
    rows = []
    for kernels, (of_a, of_b) in PRODUCTS.items():
        errors = [_error(of_a, of_b, False), _error(of_a, of_b, True), _error(of_a, of_b, False, of_b)]
        rows.append((kernels, *(f"{100 * error:.1f}" for error in errors)))
    head = ("error in %", "from bf16", "outliers in A", "B dequantised")
    return table(head, rows)


def _error(of_a: str, of_b: str, outliers: bool, exact_b: str = "bf16") -> float:
    """Of the whole product: the root mean square of what is wrong over that of what is right."""
    a, b = _matrices(outliers)
    exact = a @ _rounded(b, exact_b).T
    weights = _nvfp4_in_e4m3(b) if (of_a, of_b) == ("fp8token", "nvfp4") else _rounded(b, of_b)
    return float(numpy.linalg.norm(_rounded(a, of_a) @ weights.T - exact) / numpy.linalg.norm(exact))


@cache
def _matrices(outliers: bool) -> tuple[Matrix, Matrix]:
    random = numpy.random.default_rng(0)
    a, b = (random.standard_normal((rows, K)) for rows in (M, N))
    if outliers:
        a[:, ::EVERY] *= FACTOR
    return _rounded(a, "bf16"), _rounded(b, "bf16")


def _rounded(x: Matrix, format: str) -> Matrix:
    """The numbers that x's elements and scales stand for."""
    if format == "bf16":
        return x.astype(ml_dtypes.bfloat16).astype(numpy.float64)
    values = x.astype(numpy.float32)
    if format == "fp8token":
        rows = quantize_token_rows(values)
        token: Matrix = decode(rows.q, E4M3).astype(numpy.float64) * rows.scales[:, None]
        return token
    made_by = quantize_squares_rows if format == "squares" else quantize_rows
    rule = _rule(OF_BOTH.get(format, format), values)
    quantised = made_by(values, rule)
    return dequantize(quantised.q, quantised.scales, rule, K).astype(numpy.float64)


def _nvfp4_in_e4m3(x: Matrix) -> Matrix:
    """Weights as Hopper multiplies them: code times block scale, rounded to e4m3."""
    rule = _rule("nvfp4", x)
    assert rule.tensor_scale is not None
    quantised = quantize_rows(x.astype(numpy.float32), rule)
    weights = decode(nvfp4_as_e4m3(quantised.q, quantised.scales), E4M3).astype(numpy.float64)
    return weights * 2.0**NVFP4_SHIFT * float(rule.tensor_scale)


def _rule(format: str, x: Matrix) -> BlockFormat:
    return block_format(format, tensor_scale=nvfp4_tensor_scale(numpy.abs(x).max()) if format == "nvfp4" else None)
