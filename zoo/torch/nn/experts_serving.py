"""The two grouped GEMMs of an MoE layer, in every format: which operators prepare the weights, and which multiply.

    x (T, K) -> quantise -> gather, gates and ups, activation, quantise -> h (R, I) -> second GEMM -> d (R, K)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from zoo.torch.nn.routing import Routing
from zoo.torch.quantized import Quantized

ops: Any = torch.ops.zoo


@dataclass(frozen=True, eq=False)
class Matrices:
    """One matrix of each expert, as the GEMMs of a format read it."""

    elements: torch.Tensor
    scales: torch.Tensor | None = None  # none for packed NVFP4
    alpha: torch.Tensor | None = None  # factor of each expert (E,); of gates and ups (E, 1), or (E, 2) where they differ
    bias: torch.Tensor | None = None  # (E, N), gates and ups (E, 2, I) or (E, I, 2)

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
class Recipe:
    weights: str  # format of the weights, as `zoo.torch.quantize` makes them by rows, fp8b128 by squares
    prepare: Callable[[Quantized, str | None], tuple[torch.Tensor, torch.Tensor | None]]  # plain weights, order of gates -> elements, scales
    multiply: Callable[[torch.Tensor, Matrices, Matrices, Routing, Gating], torch.Tensor]
    epilogue: bool = True  # bias, limits, every activation


def scaling_of(x: torch.Tensor) -> str:
    """Blackwell multiplies by power-of-two scales."""
    blackwell = x.device.type == "cuda" and torch.cuda.get_device_capability(x.device)[0] >= 10
    return "pow2" if blackwell else "exact"


def paired(rows: torch.Tensor, gates: str | None) -> torch.Tensor:
    """A view of the (E, 2 I, ...) rows of gates and ups with an axis of 2, which states their order."""
    return rows if gates is None else rows.unflatten(1, (2, -1) if gates == "halves" else (-1, 2))


def _plain(w: Quantized, gates: str | None) -> tuple[torch.Tensor, torch.Tensor]:
    return paired(w.elements, gates), w.scales


def _blocked(w: Quantized, gates: str | None) -> tuple[torch.Tensor, torch.Tensor]:
    return paired(w.elements, gates), w.laid("blocked").scales


def _padded(w: Quantized, gates: str | None) -> tuple[torch.Tensor, torch.Tensor]:
    rows = ops.pack_mxfp4(w.elements.flatten(0, 1)).unflatten(0, w.elements.shape[:2])
    return paired(rows, gates), w.laid("blocked").scales


def _packed(tokens: str) -> Callable[[Quantized, str | None], tuple[torch.Tensor, torch.Tensor | None]]:
    def pack(w: Quantized, gates: str | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        operator = getattr(ops, f"pack_{w.format}_fragments")
        made = operator(paired(w.elements, gates), paired(w.scales, gates), gates=gates or "plain", tokens=tokens)
        return (made, None) if w.format == "nvfp4" else made

    return pack


def _fp8b128(x: torch.Tensor, first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
    scaling, offsets = scaling_of(x), routing.offsets
    a = ops.quantize_fp8b128_rows(x, scaling=scaling)
    h = ops.gemm_fp8b128_m_grouped_gather_swiglu_fp8b128(
        *a, *first.operands, routing.index, offsets, gates=gating.gates, scaling=scaling
    )
    d: torch.Tensor = ops.gemm_fp8b128_m_grouped_contiguous(*h, *second.operands, offsets=offsets)
    return d


def _fp8_by_four_bits(weights: str) -> Callable[..., torch.Tensor]:
    def multiply(x: torch.Tensor, first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
        gemm, contiguous = (
            getattr(ops, f"gemm_fp8_{weights}_{name}") for name in ("m_grouped_gather_swiglu_fp8b128", "m_grouped_contiguous")
        )
        a, a_scale = ops.quantize_fp8token_rows(x, order="fragments")
        h, h_scale = gemm(
            a, *first.operands, routing.index, routing.offsets, a_scale=a_scale, columns=gating.intermediate, order="fragments",
            **first.factors, **gating.options,
        )  # fmt: skip
        d: torch.Tensor = contiguous(h, *second.operands, routing.offsets, a_block_scale=h_scale, N=gating.hidden, **second.factors)
        return d

    return multiply


def _bf16_by_four_bits(weights: str) -> Callable[..., torch.Tensor]:
    def multiply(x: torch.Tensor, first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
        gemm, contiguous = (getattr(ops, f"gemm_bf16_{weights}_{name}") for name in ("m_grouped_gather_swiglu", "m_grouped_contiguous"))
        h = gemm(
            x.bfloat16(), *first.operands, routing.index, routing.offsets, I=gating.intermediate, **first.factors, **gating.options
        )  # fmt: skip
        d: torch.Tensor = contiguous(h, *second.operands, routing.offsets, N=gating.hidden, **second.factors)
        return d

    return multiply


def _mxfp8_by(formats: str) -> Callable[..., torch.Tensor]:
    def multiply(x: torch.Tensor, first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
        gemm, contiguous = (getattr(ops, f"gemm_{formats}_{name}") for name in ("m_grouped_gather_swiglu_mxfp8", "m_grouped_contiguous"))
        a = ops.quantize_mxfp8_rows(x)
        h = gemm(*a, *first.operands, routing.index, routing.offsets, **first.factors, **gating.options)
        d: torch.Tensor = contiguous(*h, *second.operands, routing.offsets, **second.factors)
        return d

    return multiply


def _mxfp4(x: torch.Tensor, first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
    a = ops.quantize_mxfp4_rows(x)
    h = ops.gemm_mxfp4_m_grouped_gather_swiglu(
        *a, *first.operands, routing.index, routing.offsets, **first.factors, **gating.options
    )  # fmt: skip
    a = ops.quantize_mxfp4_rows_m_grouped_contiguous(h, routing.offsets, layout="blocked")
    d: torch.Tensor = ops.gemm_mxfp4_m_grouped_contiguous(*a, *second.operands, routing.offsets, **second.factors)
    return d


def _nvfp4(x: torch.Tensor, first: Matrices, second: Matrices, routing: Routing, gating: Gating) -> torch.Tensor:
    """h has a tensor scale for each expert, which needs the whole of h."""
    offsets = routing.offsets
    _, of_x = ops.quantize_amax.all(x)
    h = ops.gemm_nvfp4_m_grouped_gather_swiglu(
        *ops.quantize_nvfp4_rows(x, of_x), *first.operands, routing.index, offsets,
        alpha=of_x * first.alpha[:, 0], bias=first.bias, **gating.options,
    )  # fmt: skip
    _, of_h = ops.quantize_amax_m_grouped_contiguous.all(h, offsets)
    a = ops.quantize_nvfp4_rows_m_grouped_contiguous(h, offsets, of_h, layout="blocked")
    d: torch.Tensor = ops.gemm_nvfp4_m_grouped_contiguous(*a, *second.operands, offsets, alpha=of_h * second.alpha, bias=second.bias)
    return d


RECIPES = {
    "fp8b128": Recipe("fp8b128", _plain, _fp8b128, epilogue=False),
    "fp8_mxfp4": Recipe("mxfp4", _packed("fp8"), _fp8_by_four_bits("mxfp4")),
    "fp8_nvfp4": Recipe("nvfp4", _packed("fp8"), _fp8_by_four_bits("nvfp4")),
    "bf16_mxfp4": Recipe("mxfp4", _packed("bf16"), _bf16_by_four_bits("mxfp4")),
    "bf16_nvfp4": Recipe("nvfp4", _packed("bf16"), _bf16_by_four_bits("nvfp4")),
    "mxfp8": Recipe("mxfp8", _blocked, _mxfp8_by("mxfp8")),
    "mxfp8_mxfp4": Recipe("mxfp4", _padded, _mxfp8_by("mxfp8_mxfp4")),
    "mxfp4": Recipe("mxfp4", _blocked, _mxfp4),
    "nvfp4": Recipe("nvfp4", _blocked, _nvfp4),
}
