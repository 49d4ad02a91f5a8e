"""Fine-grained FP8 linears: a product of e4m3 weights (N, K) with scales for 128 x 128, as transformers' `FP8Linear` calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from zoo.torch.nn.products import product
from zoo.torch.quantized import Quantized
from zoo.transformers.declined import declined
from zoo.transformers.experts import _SCALES, FORMAT, _no_product

ARGUMENTS = ("input", "weight", "weight_scale_inv", "block_size", "bias", "activation_scale", "allow_deepgemm")


def linear_before(default: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function with the arguments of `fp8_linear`, which leaves to it what zoo has no kernel for."""

    def fp8_linear(
        input: torch.Tensor,
        weight: torch.Tensor,
        weight_scale_inv: torch.Tensor,
        block_size: Any = None,
        bias: torch.Tensor | None = None,
        activation_scale: torch.Tensor | None = None,
        allow_deepgemm: bool = True,
    ) -> torch.Tensor:
        reason = _reason(input, weight, weight_scale_inv, block_size, activation_scale)
        if reason:
            _say(reason)
            return default(input, weight, weight_scale_inv, block_size, bias, activation_scale, allow_deepgemm)
        scales = weight_scale_inv.detach()
        scales = scales if scales.dtype == torch.float32 else scales.float()
        whole = Quantized(weight.detach(), scales, FORMAT, squares=True)
        return product(input, whole, FORMAT, bias=bias)

    return fp8_linear


@torch.compiler.assume_constant_result
def _say(reason: str) -> None:
    declined("FP8Linear", reason)


def _reason(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor, block_size: Any, activation_scale: Any) -> str:
    if activation_scale is not None:
        return "activations have static scales"
    if weight.dtype != torch.float8_e4m3fn or weight.dim() != 2:
        return f"weights in {weight.dtype}"
    if block_size is None or tuple(block_size) != (128, 128):
        return f"scales for {block_size}, and zoo reads scales for 128 x 128"
    rows, columns = weight.shape
    if rows % 16 or columns % 16:
        return f"a weight {(rows, columns)}, whose sizes are no multiples of 16"
    if scales.shape != (-(-rows // 128), -(-columns // 128)) or scales.dtype not in _SCALES:
        return f"scales {tuple(scales.shape)} in {scales.dtype} of a weight {(rows, columns)}"
    if scales.dtype == torch.float32 and scales.is_cuda and torch.cuda.get_device_capability(scales.device)[0] >= 10:
        return "scales in f32, and Blackwell multiplies by powers of two"
    if x.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return f"activations in {x.dtype}"
    return _no_product(weight.device)
