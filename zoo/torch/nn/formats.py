"""The formats of layers: how each quantises activations and weights, and which product multiplies them. One record a format.

    forward   y  = x  w^T     rows of x,     weights
    dgrad     dx = dy w       rows of dy,    weights transposed
    wgrad     dw = dy^T x     columns of dy, columns of x

Weights that train are quantised by squares: both products then read the same numbers. Frozen weights have the direction of checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import torch

from zoo.errors import ArchitectureError, ArgumentError
from zoo.torch.folded import in_fp8b128
from zoo.torch.quantized import Quantized, matmul, quantize

_WITH_MEMORY = (torch.Tensor, torch.nn.Parameter)  # others are traced
_TILE = 128  # columns of a group are filled up to it


class Columns(NamedTuple):
    """A matrix quantised along its columns, for a weight gradient: groups of rows are padded with zeros."""

    elements: torch.Tensor
    scales: torch.Tensor
    ends: torch.Tensor
    tensor_scale: torch.Tensor | None = None


@dataclass(frozen=True)
class Format:
    """`tokens` and `weights` are formats of zoo.torch.quantize; tokens in "bf16" are not quantised."""

    name: str
    tokens: str
    weights: str
    trains: bool = False
    multiple: int = 32  # both extents of a weight are filled up to it with zeros
    options: Mapping[str, str] = field(default_factory=dict)  # of the quantisers

    @property
    def packs(self) -> bool:
        """Whether weights are packed for Hopper."""
        return self.tokens in ("fp8token", "bf16")

    def filled(self, x: torch.Tensor, axes: int = 1) -> torch.Tensor:
        """With zeros up to a multiple along the last one or two axes, as kernels can read it: rows contiguous, at multiples of 16 bytes."""
        gaps = [-size % self.multiple for size in reversed(x.shape[-axes:])]
        if any(gaps):
            return torch.nn.functional.pad(x, [one for gap in gaps for one in (0, gap)])
        x = x.contiguous()
        return x if type(x) not in _WITH_MEMORY or torch.compiler.is_compiling() or x.data_ptr() % 16 == 0 else x.clone()

    def rows(self, x: torch.Tensor, groups: torch.Tensor | None = None) -> Quantized | torch.Tensor:
        """Activations or gradients as the product of rows reads them."""
        if self.packs:
            x = x if x.dtype == torch.bfloat16 or (x.dtype == torch.float16 and self.tokens == "fp8token") else x.to(torch.bfloat16)
            return x if self.tokens == "bf16" else quantize(x, self.tokens)
        if self.tokens == "fp8b128":
            return quantize(x, self.tokens, **self.options)
        scale = tensor_scale_of(x, groups) if self.tokens == "nvfp4" else None
        return quantize(x, self.tokens, groups=groups, tensor_scale=scale, **self.options)

    def columns(self, x: torch.Tensor, groups: torch.Tensor) -> Columns:
        """What the weight gradient reads of x."""
        scale = tensor_scale_of(x, groups) if self.tokens == "nvfp4" else None
        by_place = (x, groups) if scale is None else (x, groups, scale)
        operator = getattr(torch.ops.zoo, f"quantize_{self.tokens}_cols_m_grouped_padded")
        elements, scales, _, ends = operator(*by_place, layout="mn_major" if self.tokens == "fp8b128" else "blocked", **self.options)
        if self.tokens == "fp8b128":
            scales = one_more_block_each(scales, groups.shape[0])
        return Columns(elements, scales, ends, scale)

    def rows_and_columns(self, x: torch.Tensor, groups: torch.Tensor | None = None) -> tuple[Quantized | torch.Tensor, Columns]:
        """Both, from one read of x if it has no groups, or if it is bf16 in MXFP8 or NVFP4."""
        if groups is not None and (x.dtype != torch.bfloat16 or self.tokens == "fp8b128"):
            return self.rows(x, groups), self.columns(x, groups)
        if groups is not None:
            scale = tensor_scale_of(x, groups) if self.tokens == "nvfp4" else None
            operator = getattr(torch.ops.zoo, f"quantize_{self.tokens}_both_m_grouped_padded")
            given = (x, groups) if scale is None else (x, groups, scale)
            q, scales, q_cols, scales_cols, _, ends = operator(*given, layout="blocked", **self.options)
            rows = Quantized(q, scales, self.tokens, layout="blocked", tensor_scale=scale, offsets=groups)
            return rows, Columns(q_cols, scales_cols, ends, scale)
        count = x.shape[0]
        ends = torch.full((1,), count, dtype=torch.int32, device=x.device)
        if self.tokens == "fp8b128":
            q, scales, q_cols, scales_cols = torch.ops.zoo.quantize_fp8b128_both(x, layout="mn_major", **self.options)
            return Quantized(q, scales, "fp8b128"), Columns(q_cols, one_more_block_each(scales_cols, 1), ends)
        x = torch.nn.functional.pad(x, (0, 0, 0, -count % _TILE)) if count % _TILE else x
        scale = tensor_scale_of(x) if self.tokens == "nvfp4" else None
        by_place = (x,) if scale is None else (x, scale)
        both = getattr(torch.ops.zoo, f"quantize_{self.tokens}_both")
        q, scales, q_cols, scales_cols = both(*by_place, layout="blocked", **self.options)
        rows = Quantized(q[:count], scales, self.tokens, layout="blocked", tensor_scale=scale)
        return rows, Columns(q_cols, scales_cols.flatten(0, 1), ends, scale)

    def weight_gradient(self, dy: Columns, x: Columns, dtype: torch.dtype) -> torch.Tensor:
        """dy^T x of each group, (G, N, K), in bf16 or f32. Groups without rows give zeros."""
        operator, by_place, more = self._along_rows(dy, x)
        word = "bf16" if dtype == torch.bfloat16 else "f32"
        found: torch.Tensor = operator(*by_place, d=word, **more)
        return found if found.dtype == dtype else found.to(dtype)

    def add_weight_gradient(self, dy: Columns, x: Columns, to: torch.Tensor) -> None:
        """Adds dy^T x of each group to (G, N, K) in bf16 or f32."""
        operator, by_place, more = self._along_rows(dy, x)
        operator.out(*by_place, d=to, accumulate="yes", **more)

    def _along_rows(self, dy: Columns, x: Columns) -> tuple[Any, tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
        more = {} if dy.tensor_scale is None or x.tensor_scale is None else {"alpha": dy.tensor_scale * x.tensor_scale}
        operator = getattr(torch.ops.zoo, f"gemm_{self.tokens}_k_grouped")
        scales = _mn_major if self.tokens == "fp8b128" else lambda one: one
        return operator, (_apart(dy.elements), scales(dy.scales), _apart(x.elements), scales(x.scales), x.ends), more

    def both_ways(self, weight: torch.Tensor) -> tuple[Quantized, Quantized]:
        """A master weight (N, K), or (G, N, K), by squares, and its transpose."""
        q, scales, q_cols, scales_cols, tensor_scale = self._squares(weight, "all")
        return self._by_squares(q, scales, tensor_scale), self._by_squares(q_cols, scales_cols, tensor_scale)

    def squares(self, weight: torch.Tensor) -> Quantized:
        """A master weight for the forward product alone."""
        return self._by_squares(*self._squares(weight, "default"))

    def cast_again(self, weight: torch.Tensor, forms: tuple[Quantized, Quantized]) -> None:
        """Writes a changed weight into what `both_ways` has returned."""
        along, back = forms
        results = {"q": along.elements, "scales": along.scales, "q_cols": back.elements, "scales_cols": back.scales}
        *_, scale = self._squares(weight, "out", **results)
        if along.tensor_scale is not None:
            along.tensor_scale.copy_(scale)

    def held(self, *parts: torch.Tensor | None) -> tuple[Quantized, Quantized]:
        """`both_ways` of its `held_parts`."""
        q, scales, q_cols, scales_cols, tensor_scale = parts
        assert q is not None and scales is not None and q_cols is not None and scales_cols is not None
        return self._by_squares(q, scales, tensor_scale), self._by_squares(q_cols, scales_cols, tensor_scale)

    def _squares(self, weight: torch.Tensor, form: str, **results: torch.Tensor) -> tuple[Any, ...]:
        weight = self.filled(weight, 2)
        scale = tensor_scale_of(weight.flatten(0, -2)) if self.weights == "nvfp4" else None
        by_place = (weight,) if scale is None else (weight, scale)
        options = dict(self.options) if self.weights == "fp8b128" else {**self.options, "layout": "blocked"}
        found = getattr(getattr(torch.ops.zoo, f"quantize_{self.weights}_squares"), form)(*by_place, **results, **options)
        return (*(found or ()), scale)

    def _by_squares(self, elements: torch.Tensor, scales: torch.Tensor, tensor_scale: torch.Tensor | None) -> Quantized:
        layout = "plain" if self.weights == "fp8b128" else "blocked"
        return Quantized(elements, scales, self.weights, squares=True, layout=layout, tensor_scale=tensor_scale)

    def transposed(self, weight: Quantized) -> Quantized:
        """A frozen weight for the gradient of the input: quantised once more, unless it has the numbers of both directions."""
        if self.weights != "fp8b128":
            return self.both_ways(self.numbers(weight, torch.float32))[1]
        elements = weight.elements.view(torch.uint8).mT.contiguous().view(weight.elements.dtype)
        return weight._with(elements=elements, scales=weight.scales.mT)

    def frozen(self, weight: torch.Tensor, tensor_scale: torch.Tensor | None = None) -> Quantized:
        """A weight (N, K), or (G, N, K), as the forward product reads it. tensor_scale: of nvfp4, where the weight is part of a larger one."""
        weight = self.filled(weight, 2)
        if self.weights == "fp8b128":
            return quantize(weight, "fp8b128", direction="squares", **self.options)
        options: dict[str, Any] = {"tensor_scale": tensor_scale} if self.weights == "nvfp4" else {"rounding": "rceil"}
        made = quantize(weight, self.weights, layout="plain" if self.packs else None, **options)
        return self.packed(made) if self.packs else made

    def constant(self, weight: torch.Tensor) -> Quantized:
        """`frozen`, of a weight that stays."""
        return _written(self.frozen(weight))

    def multiplied(self, plain: Quantized) -> Quantized:
        """A checkpoint's weights in numbers that the product multiplies: MXFP8 folded to fp8b128, and on Blackwell powers of two as scales."""
        if (plain.format, self.weights) == ("mxfp8", "fp8b128"):
            return in_fp8b128(plain)
        if plain.format != self.weights:
            raise ArgumentError(f"format '{self.name}' multiplies weights in {self.weights}, and these are in {plain.format}")
        if plain.scales.dtype == torch.float32 and plain.elements.is_cuda and torch.cuda.get_device_capability(plain.device)[0] >= 10:
            elements, scales = torch.ops.zoo.requantize_fp8b128_squares(plain.elements, plain.scales)
            return plain._with(elements=elements, scales=scales)
        return plain

    def readable(self, plain: Quantized) -> Quantized:
        """A checkpoint's weight, which stays, in the order that the product reads."""
        plain = self.multiplied(plain)
        rows, columns = plain.stored_shape[-2:]
        if rows % self.multiple or columns % self.multiple:
            raise ArgumentError(f"{self.name} needs multiples of {self.multiple}, and this weight is {rows} x {columns}")
        if self.packs:
            return self.packed(plain)
        return _written(plain if self.weights == "fp8b128" else plain.laid("blocked"))

    def packed(self, plain: Quantized) -> Quantized:
        """Plain 4-bit weights, such as a checkpoint's, in the order that the product reads."""
        if self.tokens != "bf16":
            return plain.laid("fragments")
        made = getattr(torch.ops.zoo, f"pack_{self.weights}_fragments")(plain.elements, plain.scales, tokens="bf16")
        elements, scales = (made, plain.scales.new_empty(0)) if self.weights == "nvfp4" else made
        return plain._with(elements=elements, scales=scales, layout="fragments", packed_shape=plain.stored_shape)

    def numbers(self, weight: Quantized, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """What a frozen weight stands for."""
        if self.tokens == "bf16":
            *_, rows, columns = weight.stored_shape
            by_place = (weight.elements,) if self.weights == "nvfp4" else (weight.elements, weight.scales)
            unpack = getattr(torch.ops.zoo, f"unpack_{self.weights}_fragments")
            elements, scales = unpack(*by_place, tokens="bf16", R=rows, KB=columns // 2)
            weight = weight._with(elements=elements, scales=scales, layout="plain", packed_shape=None)
        return weight.dequantize(dtype)

    def multiply(
        self,
        a: Quantized | torch.Tensor,
        weight: Quantized,
        dtype: torch.dtype,
        groups: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        constant: bool = False,
        promotion: str = "never",
    ) -> torch.Tensor:
        """a weight^T (+ bias), of groups of rows each by its own weight. `out`, if given, is written and returned.

        constant: no kernel of zoo that may still run writes the weight. promotion: of FP8 tokens and 4-bit weights.
        """
        # each product by weights in another format than its tokens first packs them
        more: dict[str, Any] = {"b_constant": "yes"} if constant and self.tokens == self.weights and groups is None else {}
        if self.tokens == "fp8token":
            more["promotion"] = promotion
        if bias is not None:
            bias = bias.detach() if bias.dtype in (torch.bfloat16, torch.float32) else bias.detach().float()
            if self.tokens == "fp8b128":  # whose kernel adds a matrix, of which each row may be this one
                more["c"] = bias.expand(a.shape[0], -1)
            else:
                more["bias"] = bias
        if isinstance(a, Quantized):
            return matmul(a, weight.t(), groups=groups, dtype=dtype, out=out, **more)
        name = f"gemm_bf16_{self.weights}_{'dense' if groups is None else 'm_grouped_contiguous'}"
        by_place = [a, weight.elements, *([weight.scales] if self.weights == "mxfp4" else []), *([] if groups is None else [groups])]
        if weight.tensor_scale is not None:
            many = 1 if groups is None else groups.shape[0]
            more["alpha"] = weight.tensor_scale if weight.tensor_scale.numel() == many else weight.tensor_scale.repeat(many)
        if out is None:
            found: torch.Tensor = getattr(torch.ops.zoo, name)(*by_place, N=weight.shape[-2], d=_WORDS[dtype], **more)
            return found
        getattr(torch.ops.zoo, name).out(*by_place, d=out, **more)
        return out


_WORDS = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
_ALL = (
    Format("fp8b128", "fp8b128", "fp8b128", trains=True, multiple=16, options={"scaling": "pow2"}),  # as Blackwell needs scales
    Format("mxfp8", "mxfp8", "mxfp8", trains=True, options={"rounding": "rceil"}),
    Format("nvfp4", "nvfp4", "nvfp4", trains=True),
    Format("mxfp4", "mxfp4", "mxfp4", options={"rounding": "rceil"}),
    Format("mxfp8_mxfp4", "mxfp8", "mxfp4", options={"rounding": "rceil"}),
    Format("fp8_nvfp4", "fp8token", "nvfp4"),
    Format("fp8_mxfp4", "fp8token", "mxfp4"),
    Format("bf16_nvfp4", "bf16", "nvfp4"),
    Format("bf16_mxfp4", "bf16", "mxfp4"),
)
FORMATS = {one.name: one for one in _ALL}
TRAINING = tuple(one.name for one in _ALL if one.trains)


def held_parts(forms: tuple[Quantized, Quantized] | None) -> tuple[torch.Tensor | None, ...]:
    """The tensors of both forms of a weight, or nothing."""
    if forms is None:
        return ()
    along, back = forms
    return along.elements, along.scales, back.elements, back.scales, along.tensor_scale


def one_more_block_each(scales: torch.Tensor, groups: int) -> torch.Tensor:
    """mn_major scales (K, blocks) with a block more for each group, as the product of weight gradients asks."""
    return torch.nn.functional.pad(scales.t(), (0, 0, 0, groups)).t()


def tensor_scale_of(x: torch.Tensor, groups: torch.Tensor | None = None) -> torch.Tensor:
    """Of nvfp4: one, or one for each group. Rows of no group count nothing."""
    _, scale = torch.ops.zoo.quantize_amax.all(x) if groups is None else torch.ops.zoo.quantize_amax_m_grouped_contiguous.all(x, groups)
    return scale


def _written(made: Quantized) -> Quantized:
    """The host waits until a constant weight is written, since products load it before the kernel ahead has ended."""
    if made.elements.is_cuda:
        torch.cuda.current_stream(made.elements.device).synchronize()
    return made


def _mn_major(scales: torch.Tensor) -> torch.Tensor:
    """Saved scales come back with contiguous rows where hooks copy them, such as to the CPU and back."""
    return scales if scales.stride(0) == 1 else scales.t().contiguous().t()


def _apart(elements: torch.Tensor) -> torch.Tensor:
    """Rows at multiples of 16 bytes. Saved elements that hooks copy come back without the gaps between rows."""
    if elements.stride(0) % 16 == 0:
        return elements
    width, codes = elements.shape[1], elements.view(torch.uint8)
    return torch.nn.functional.pad(codes, (0, -width % 16)).view(elements.dtype)[:, :width]


def format_of(name: str) -> Format:
    found = FORMATS.get(name) if isinstance(name, str) else None
    if found is None:
        raise ArgumentError(f"format: no format {name!r} of layers; there are {', '.join(FORMATS)}")
    return found


def check_device(name: str, device: torch.device) -> None:
    """Refuses a format that no product of this GPU computes. A CPU computes all."""
    if device.type == "cuda" and name not in (found := on_gpu(torch.cuda.get_device_capability(device))):
        raise ArchitectureError(
            f"format '{name}': {torch.cuda.get_device_name(device)} has no product for it; it has {', '.join(found) or 'none'}"
        )


@cache
def on_gpu(capability: tuple[int, int]) -> tuple[str, ...]:
    """The formats whose products run on GPUs of this compute capability, by the contract."""
    from zoo.contract.resolve import pick_arch
    from zoo.packaged import packaged

    return tuple(name for name in FORMATS if pick_arch(packaged.kernel(f"gemm.{name}.dense").archs, capability))
