"""The two grouped GEMMs of a frozen MoE layer, in every format: which operators prepare the weights, and which multiply.

x (T, K) -> quantise -> gather, gates and ups, activation, quantise -> h (R, I) -> second GEMM -> d (R, K)

Many rows an expert take less time if SwiGLU follows a plain GEMM. FP8 tokens and 4-bit weights need that to leave sums unpromoted: no GEMM with an
epilogue leaves its sums in the tensor cores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from zoo.torch.nn.formats import FORMATS
from zoo.torch.nn.products import with_bias_of_groups
from zoo.torch.nn.routing import Routing
from zoo.torch.quantized import Quantized

ops: Any = torch.ops.zoo


@dataclass(frozen=True, eq=False)
class Matrices:
    """One matrix of each expert, as the GEMMs of a format read it."""

    elements: torch.Tensor
    scales: torch.Tensor | None  # none for packed NVFP4
    alpha: torch.Tensor | None  # NVFP4: factor of each expert (E,), of gates and ups of each (E, 2)
    bias: torch.Tensor | None  # (E, N), of gates and ups (E, 2, I) or (E, I, 2)
    promotion: str = "regular"  # of sums of FP8 tokens and 4-bit weights

    @property
    def operands(self) -> tuple[torch.Tensor, ...]:
        return (self.elements,) if self.scales is None else (self.elements, self.scales)

    @property
    def factors(self) -> dict[str, torch.Tensor | None]:
        return {"alpha": self.alpha, "bias": self.bias}


@dataclass(frozen=True)
class Gating:
    """How gates and ups become h."""

    gates: str  # halves: all gates before all ups; interleaved: each gate before its up
    activation: str
    limit: float | None
    hidden: int
    intermediate: int

    @property
    def options(self) -> dict[str, Any]:
        limit = {} if self.limit is None else {"limit": self.limit}
        return {"gates": self.gates, "activation": self.activation, **limit}


@dataclass(frozen=True)
class ManyRows:
    """Kernels that take less time from some rows an expert on."""

    fit: Callable[[Matrices, Matrices, Gating, int], bool]  # both weights, rows an expert on average
    multiply: Callable[[torch.Tensor, Matrices, Matrices, Routing, Gating], torch.Tensor]  # x, both weights -> d


@dataclass(frozen=True)
class Recipe:
    prepare: Callable[[Quantized, str | None], Quantized]  # plain weights, order of gates -> weights as the GEMMs read them
    tokens: Callable[[torch.Tensor], tuple[torch.Tensor, ...]]  # x -> operands of the first GEMM
    multiply: Callable[[tuple[torch.Tensor, ...], Matrices, Matrices, Routing, Gating], torch.Tensor]  # these, both weights -> d
    halves: int = 1  # with all gates before all ups, the intermediate size is a multiple of it
    many_rows: ManyRows | None = None

    def serve(
        self, x: torch.Tensor, first: Matrices, second: Matrices, routing: Routing, gating: Gating, rows_an_expert: int
    ) -> torch.Tensor:
        """d of tokens x (T, K). The choice depends on nothing on the GPU, so a CUDA graph can replay it."""
        exports = getattr(
            torch.compiler, "is_exporting", torch.compiler.is_compiling
        )()  # comparing the rows would fix a program to one branch
        if self.many_rows is not None and not exports and self.many_rows.fit(first, second, gating, rows_an_expert):
            return self.many_rows.multiply(x, first, second, routing, gating)
        return self.multiply(self.tokens(x), first, second, routing, gating)


def paired(rows: torch.Tensor, gates: str) -> torch.Tensor:
    """A view of 2 I gates and ups with an axis of 2, which states their order."""
    return rows.unflatten(1, (2, -1) if gates == "halves" else (-1, 2))


def laid_bias(bias: torch.Tensor | None, gates: str | None) -> torch.Tensor | None:
    """(E, N) as GEMMs read it."""
    if bias is None:
        return None
    bias = bias if bias.dtype in (torch.bfloat16, torch.float32) else bias.float()
    return bias if gates is None else paired(bias, gates)


def _as_they_are(w: Quantized, gates: str | None) -> Quantized:
    return w


def _blocked(w: Quantized, gates: str | None) -> Quantized:
    return w.laid("blocked")


def _padded(w: Quantized, gates: str | None) -> Quantized:
    elements = ops.pack_mxfp4(w.elements.flatten(0, 1)).unflatten(0, w.elements.shape[:2])
    return w.laid("blocked")._with(elements=elements, packed_shape=w.stored_shape)


def _packed(tokens: str) -> Callable[[Quantized, str | None], Quantized]:
    def pack(w: Quantized, gates: str | None) -> Quantized:
        pair = (w.elements, w.scales) if gates is None else (paired(w.elements, gates), paired(w.scales, gates))
        made = getattr(ops, f"pack_{w.format}_fragments")(*pair, gates=gates or "plain", tokens=tokens)
        elements, scales = (made, w.scales.new_empty(0)) if w.format == "nvfp4" else made
        return w._with(elements=elements, scales=scales, layout="fragments", packed_shape=w.stored_shape)

    return pack


def _by_blocks(format: str) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    return lambda x: tuple(getattr(ops, f"quantize_{format}_rows")(x, **FORMATS[format].options))


def _by_token(x: torch.Tensor, index: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
    x = x if x.dtype == torch.float16 else x.to(torch.bfloat16)  # the quantiser has no f32
    return tuple(ops.quantize_fp8token_rows(x, index=index, order="fragments"))


def _in_bf16(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (x.to(torch.bfloat16),)


def _by_tensor(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    _, of_x = ops.quantize_amax.all(x)
    return *ops.quantize_nvfp4_rows(x, of_x), of_x


def _gemms(format: str, first: str) -> tuple[Any, Any]:
    return getattr(ops, f"gemm_{format}_m_grouped_gather_{first}"), getattr(ops, f"gemm_{format}_m_grouped_contiguous")


def _fp8b128(a: tuple[torch.Tensor, ...], first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
    options, (gemm, contiguous) = FORMATS["fp8b128"].options, _gemms("fp8b128", "swiglu_fp8b128")
    h = gemm(*a, *first.operands, routing.index, routing.offsets, bias=first.bias, **gating.options, **options)
    d: torch.Tensor = contiguous(*h, *second.operands, offsets=routing.offsets)
    return d if second.bias is None else with_bias_of_groups(d, second.bias, routing.offsets)  # which the GEMM does not add


SWIGLU_APART_FROM = 64
"""Rows an expert on average. From here on layers with a plain GEMM and a quantiser took 12 % less to 1 % more time (7 % less on average) than with one
GEMM with SwiGLU, and with fewer rows 1 to 15 % more (fp8b128, H200, four sizes of layers, 16 to 512 rows)."""


def _swiglu_fits_apart(first: Matrices, second: Matrices, gating: Gating, rows_an_expert: int) -> bool:
    return rows_an_expert >= SWIGLU_APART_FROM and gating.activation == "silu" and gating.limit is None and first.bias is None


def _fp8b128_swiglu_apart(x: torch.Tensor, first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
    options, (gemm, contiguous) = FORMATS["fp8b128"].options, (ops.gemm_fp8b128_m_grouped_gather, ops.gemm_fp8b128_m_grouped_contiguous)
    elements, scales = first.operands
    gates_and_ups = gemm(*_by_blocks("fp8b128")(x), elements.flatten(1, 2), scales, routing.index, routing.offsets)
    h = ops.quantize_fp8b128_rows_swiglu(paired(gates_and_ups, gating.gates), gates=gating.gates, **options)
    d: torch.Tensor = contiguous(*h, *second.operands, offsets=routing.offsets)  # a layer has both biases or none
    return d


NEVER_PROMOTED_FROM = 8
"""Rows an expert on average. From here on layers with unpromoted sums took 12 to 23 % less time than with promoted sums, and with fewer rows 5 % less
to as much (fp8_mxfp4, H200, 2 to 256 rows, 32 and 128 experts 2880 x 2880 with biases, 128 experts 4096 x 1536)."""


def _stay_unpromoted(first: Matrices, second: Matrices, gating: Gating, rows_an_expert: int) -> bool:
    """Whether sums stay in the tensor cores. A plain GEMM has no alpha for gates and another for ups, and the quantiser applies them after the bias:
    too late."""
    alphas_and_bias = first.alpha is not None and first.bias is not None
    return rows_an_expert >= NEVER_PROMOTED_FROM and first.promotion == second.promotion == "never" and not alphas_and_bias


def _columns_of(bias: torch.Tensor | None, gates: str) -> torch.Tensor | None:
    """The bias of gates and ups in the order of a plain GEMM's columns for packed gates and ups: 8 gates, then their 8 ups."""
    if bias is None:
        return None
    units = bias.unflatten(2, (-1, 8)).transpose(1, 2) if gates == "halves" else bias.unflatten(1, (-1, 8)).transpose(2, 3)
    return units.flatten(1)


def _fp8_by_four_bits(format: str) -> Callable[..., torch.Tensor]:
    def multiply(a: tuple[torch.Tensor, ...], first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
        gemm, contiguous = _gemms(format, "swiglu_fp8b128")
        to_fragments = {"order": "fragments", "columns": gating.intermediate}
        h, h_scale = gemm(
            a[0], *first.operands, routing.index, routing.offsets, a_scale=a[1], **first.factors, **gating.options, **to_fragments
        )  # fmt: skip
        d: torch.Tensor = contiguous(h, *second.operands, routing.offsets, a_block_scale=h_scale, N=gating.hidden, **second.factors)
        return d

    return multiply


def _unpromoted(format: str) -> Callable[..., torch.Tensor]:
    def multiply(x: torch.Tensor, first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
        """The quantiser copies each token's row to its experts, for rows in order multiply faster than rows through an index. Packed gates
        and ups are the bytes of plain packed rows: only their shapes differ."""
        contiguous = getattr(ops, f"gemm_{format}_m_grouped_contiguous")
        rows, row_scale = _by_token(x, routing.index)
        elements, *scales = first.operands
        plain = elements.flatten(-2), *(one.flatten(1) for one in scales)
        offsets, never = routing.offsets, {"promotion": "never"}
        bias = _columns_of(first.bias, gating.gates)
        sums = contiguous(rows, *plain, offsets, a_scale=row_scale, bias=bias, N=2 * gating.intermediate, **never)
        activation = gating.options | {"gates": "packed"}
        h, h_scale = ops.quantize_fp8token_rows_swiglu(
            sums.unflatten(1, (-1, 2, 8)), offsets=offsets, alpha=first.alpha, order="fragments", **activation
        )
        d: torch.Tensor = contiguous(h, *second.operands, offsets, a_scale=h_scale, N=gating.hidden, **second.factors, **never)
        return d

    return multiply


def _bf16_by_four_bits(format: str) -> Callable[..., torch.Tensor]:
    def multiply(a: tuple[torch.Tensor, ...], first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
        gemm, contiguous = _gemms(format, "swiglu")
        h = gemm(*a, *first.operands, routing.index, routing.offsets, I=gating.intermediate, **first.factors, **gating.options)
        d: torch.Tensor = contiguous(h, *second.operands, routing.offsets, N=gating.hidden, **second.factors)
        return d

    return multiply


def _by_mxfp8_tokens(format: str) -> Callable[..., torch.Tensor]:
    def multiply(a: tuple[torch.Tensor, ...], first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
        options, (gemm, contiguous) = FORMATS[format].options, _gemms(format, "swiglu_mxfp8")
        h = gemm(*a, *first.operands, routing.index, routing.offsets, **first.factors, **gating.options, **options)
        d: torch.Tensor = contiguous(*h, *second.operands, routing.offsets, **second.factors)
        return d

    return multiply


def _mxfp4(a: tuple[torch.Tensor, ...], first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
    """No GEMM quantises h to MXFP4."""
    options, (gemm, contiguous) = FORMATS["mxfp4"].options, _gemms("mxfp4", "swiglu")
    h = gemm(*a, *first.operands, routing.index, routing.offsets, **first.factors, **gating.options)
    h = ops.quantize_mxfp4_rows_m_grouped_contiguous(h, routing.offsets, layout="blocked", **options)
    d: torch.Tensor = contiguous(*h, *second.operands, routing.offsets, **second.factors)
    return d


def _nvfp4(a: tuple[torch.Tensor, ...], first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
    """The tensor scale of each expert's h needs all its rows, so a quantiser follows the first GEMM."""
    (gemm, contiguous), offsets = _gemms("nvfp4", "swiglu"), routing.offsets
    assert first.alpha is not None
    *elements_and_scales, of_x = a
    h = gemm(
        *elements_and_scales, *first.operands, routing.index, offsets, alpha=of_x * first.alpha[:, 0], bias=first.bias, **gating.options
    )
    _, of_h = ops.quantize_amax_m_grouped_contiguous.all(h, offsets)
    h = ops.quantize_nvfp4_rows_m_grouped_contiguous(h, offsets, of_h, layout="blocked")
    d: torch.Tensor = contiguous(*h, *second.operands, offsets, alpha=of_h * second.alpha, bias=second.bias)
    return d


RECIPES = {
    "fp8b128": Recipe(_as_they_are, _by_blocks("fp8b128"), _fp8b128, 64, ManyRows(_swiglu_fits_apart, _fp8b128_swiglu_apart)),
    "fp8_mxfp4": Recipe(_packed("fp8"), _by_token, _fp8_by_four_bits("fp8_mxfp4"), 1, ManyRows(_stay_unpromoted, _unpromoted("fp8_mxfp4"))),
    "fp8_nvfp4": Recipe(_packed("fp8"), _by_token, _fp8_by_four_bits("fp8_nvfp4"), 1, ManyRows(_stay_unpromoted, _unpromoted("fp8_nvfp4"))),
    "bf16_mxfp4": Recipe(_packed("bf16"), _in_bf16, _bf16_by_four_bits("bf16_mxfp4")),
    "bf16_nvfp4": Recipe(_packed("bf16"), _in_bf16, _bf16_by_four_bits("bf16_nvfp4")),
    "mxfp8": Recipe(_blocked, _by_blocks("mxfp8"), _by_mxfp8_tokens("mxfp8"), halves=128),
    "mxfp8_mxfp4": Recipe(_padded, _by_blocks("mxfp8"), _by_mxfp8_tokens("mxfp8_mxfp4"), halves=128),
    "mxfp4": Recipe(_blocked, _by_blocks("mxfp4"), _mxfp4, halves=128),
    "nvfp4": Recipe(_blocked, _by_tensor, _nvfp4, halves=128),
}
