"""Calls in which an operand has the layout of another kernel, beside the call that is right. In Python, C, torch and JAX a test makes each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy

from zoo.contract.dtypes import DTYPES
from zoo.contract.numpy_dtypes import numpy_dtype

M, I, K = 4, 64, 128  # noqa: E741
G, N = 2, 2 * I
TOKENS = {"a": ("e4m3", M, 2, 64)}
GATES = {"b": ("u8", 2, 2, 2, 1088), "b_row_scale": ("ue8m0", 8, 2, 8)}
ROWS = {"b": ("u8", 2, 2, 2176), "b_row_scale": ("ue8m0", N)}
FP8B128 = {"a": ("e4m3", M, K), "a_scale": ("f32", M, 1), "b": ("e4m3", 2, I, K), "b_scale": ("f32", 1, 1)}
NVFP4 = {
    "a": ("e2m1x2", M, K // 2), "a_scale": ("e4m3", 1, 2, 32, 16), "b": ("e2m1x2", I, 2, K // 2), "b_scale": ("e4m3", 1, 2, 32, 16),
}  # fmt: skip
IN_TURN = {"gates": "interleaved"}
HALVES = 'viewed as (2, I, ...) with gates="halves" or as (I, 2, ...) with gates="interleaved"'


@dataclass(frozen=True)
class Mistake:
    hazard: str
    kernel: str
    right: dict[str, tuple[Any, ...]]  # dtype and shape of each input
    wrong: tuple[str, tuple[int, ...]]  # the operand, and the shape that the other layout has
    maker: str  # what the refusal says of who makes the right one
    settings: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # for C, which makes none

    def inputs(self, spoilt: bool) -> dict[str, tuple[Any, ...]]:
        name, shape = self.wrong
        return self.right | ({name: (self.right[name][0], *shape)} if spoilt else {})

    def arrays(self, spoilt: bool) -> dict[str, numpy.ndarray]:
        """Any numbers. Of integers those that name rows of two groups."""
        found = {}
        for name, (dtype, *shape) in self.inputs(spoilt).items():
            if dtype == "i32":
                found[name] = numpy.array([M // 2, M], numpy.int32)
            else:
                random = numpy.random.default_rng(math.prod(shape)).integers(0x20, 0x28, (*shape, DTYPES[dtype].bytes), numpy.uint8)
                found[name] = random.view(numpy_dtype(dtype))[..., 0] if dtype != "f32" else numpy.ones(shape, numpy.float32)
        return found


D = {"d": ("bf16", M, N)}
H = {"d": ("bf16", M, I)}
MISTAKES = [
    Mistake("columns of tokens lie in turn", "gemm.fp8_mxfp4.dense", TOKENS | ROWS, ("a", (M, K)), 'with order="fragments"', {"N": N}, D),
    Mistake(
        "one token of 64 columns that lie in turn", "gemm.fp8_mxfp4.dense",
        {"a": ("e4m3", 1, 1, 64), "b": ("u8", 2, 1, 2176), "b_row_scale": ("ue8m0", N)}, ("a", (1, 64)), 'with order="fragments"', {"N": N},
        {"d": ("bf16", 1, N)},
    ),
    Mistake(
        "columns of the first product's result lie in turn", "gemm.fp8_mxfp4.m_grouped_contiguous",
        {**TOKENS, "b": ("u8", G, 2, 2, 2176), "b_row_scale": ("ue8m0", G, N), "offsets": ("i32", G)}, ("a", (M, K)), 'with order="fragments"',
        {"N": N}, D,
    ),
    Mistake(
        "plain rows of packed weights for gates and ups", "gemm.fp8_mxfp4.dense.swiglu", TOKENS | GATES, ("b", (2, 2, 2176)),
        'as pack.mxfp4.fragments writes them with gates="halves" or gates="interleaved" and tokens="fp8"', {"I": I}, H,
    ),
    Mistake(
        "packed gates and ups for plain rows", "gemm.fp8_mxfp4.dense", TOKENS | ROWS, ("b", (2, 2, 2, 1088)),
        'as pack.mxfp4.fragments writes them with gates="plain" and tokens="fp8"', {"N": N}, D,
    ),
    Mistake(
        "scales of plain packed rows for gates and ups", "gemm.fp8_mxfp4.dense.swiglu", TOKENS | GATES, ("b_row_scale", (N,)),
        "as pack.mxfp4.fragments writes it beside b", {"I": I}, H,
    ),
    Mistake(
        "packed for fp8 tokens", "gemm.bf16_nvfp4.dense.swiglu", {"a": ("bf16", M, K), "b": ("u8", 2, 2, 9, 2, 128)}, ("b", (2, 2, 2, 1152)),
        'gates="halves" or gates="interleaved" and tokens="bf16"', {"I": I}, H,
    ),
    Mistake(
        "rows of two experts for the gates and ups of one", "pack.mxfp4.fragments",
        {"q": ("e2m1x2", 1, 2, I, K // 2), "scales": ("ue8m0", 1, 2, I, K // 32)}, ("q", (2, I, K // 2)), '(G, 2, R, ...) with gates="halves"',
        {"gates": "halves"}, {"b": ("u8", 1, 2, 2, 2, 1088), "row_scale": ("ue8m0", 1, 8, 2, 8)},
    ),
    Mistake("rows that say nothing of gates", "gemm.fp8b128.dense.swiglu", FP8B128, ("b", (N, K)), 'viewed as (2, I, K) with gates="halves"', {}, H),
    Mistake(
        "gates and ups in turn, taken for halves", "gemm.fp8b128.dense.swiglu", FP8B128, ("b", (I, 2, K)), 'viewed as (2, I, K) with gates="halves"',
        {}, H,
    ),
    Mistake("four-bit rows that say nothing of gates", "gemm.nvfp4.dense.swiglu", NVFP4, ("b", (N, K // 2)), HALVES, IN_TURN, H),
    Mistake(
        "a bias in the order of rows", "gemm.fp8_mxfp4.dense.swiglu", TOKENS | GATES | {"bias": ("f32", 2, I)}, ("bias", (N,)),
        '(2, I) with gates="halves" or (I, 2) with gates="interleaved"', {"I": I}, H,
    ),
    Mistake(
        "two rows of gates and ups, taken for those of one", "quantize.fp8token.rows.swiglu", {"x": ("bf16", 2, 2, K)}, ("x", (2, 2 * K)),
        'viewed as (M, 2, K) with gates="halves"', {}, {"q": ("e4m3", 2, K), "scales": ("f32", 2)},
    ),
    Mistake(
        "columns of packed gates and ups, taken for halves", "quantize.fp8token.rows.swiglu", {"x": ("bf16", 2, K // 8, 2, 8)}, ("x", (2, 2, K)),
        '(M, K / 8, 2, 8) with gates="packed"', {"gates": "packed"}, {"q": ("e4m3", 2, K), "scales": ("f32", 2)},
    ),
    Mistake(
        "plain scales where tiles are read", "gemm.nvfp4.dense.swiglu", NVFP4, ("a_scale", (M, K // 16)), 'with layout="blocked"', IN_TURN, H,
    ),
    Mistake(
        "tiles of another matrix's height", "scales.unblocked", {"blocked": ("e4m3", 1, 2, 32, 16)}, ("blocked", (128, 8)), 'with layout="blocked"',
        {"M": M, "C": 8}, {"scales": ("e4m3", M, 8)},
    ),
]  # fmt: skip
HAZARDS = [one.hazard for one in MISTAKES]
