"""What the plugins of serving engines share: the format for a checkpoint's weights, and weights as products read them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection
from functools import cache
from typing import Any

import torch

import zoo
from zoo.errors import ArgumentError
from zoo.torch.folded import in_fp8b128
from zoo.torch.nn.formats import format_of
from zoo.torch.quantized import Quantized

# weights, whether the checkpoint has a format for tokens -> formats, the first that a GPU has
_FORMATS = {
    ("fp8b128", True): ("fp8b128",),
    ("mxfp8", True): ("mxfp8", "fp8b128"),
    ("nvfp4", True): ("fp8_nvfp4", "nvfp4"),
    ("mxfp4", True): ("fp8_mxfp4", "mxfp4"),
    ("nvfp4", False): ("bf16_nvfp4",),
    ("mxfp4", False): ("bf16_mxfp4",),
}
_FORMATS_OF_FP8_TOKENS = {("nvfp4", False): ("fp8_nvfp4",), ("mxfp4", False): ("fp8_mxfp4", "mxfp8_mxfp4")}


def format_for(weights: str, quantized_tokens: bool, here: Collection[str], fp8_tokens: bool = False) -> str | None:
    """Which of the formats `here` multiplies these weights. Tokens are never coarser than the checkpoint says, unless `fp8_tokens`."""
    choices = _FORMATS[weights, quantized_tokens]
    if fp8_tokens:
        choices = _FORMATS_OF_FP8_TOKENS.get((weights, quantized_tokens), choices)
    return next((one for one in choices if one in here), None)


@cache
def load(format: str, device: int) -> None:
    """Loads the cubins of a format, as a CUDA graph's capture cannot. Raises what keeps them from running here."""
    for pattern in (f"gemm.{format}.*", "quantize.*", "experts.*"):
        zoo.load(pattern, device=device)


def squares(elements: torch.Tensor, scales: torch.Tensor) -> Quantized:
    """FP8 weights of a checkpoint, (N, K) or (E, N, K), with a scale for each 128 x 128."""
    *more, rows, columns = elements.shape
    if tuple(scales.shape) != (*more, -(-rows // 128), -(-columns // 128)):
        raise ArgumentError(f"weights {tuple(elements.shape)} have scales {tuple(scales.shape)}, not one for each 128 x 128")
    scales = scales if scales.dtype == torch.float32 else scales.float()
    if elements.is_cuda and torch.cuda.get_device_capability(elements.device)[0] >= 10:
        elements, scales = torch.ops.zoo.requantize_fp8b128_squares(elements, scales)  # Blackwell multiplies by powers of two
    return Quantized(elements, scales, "fp8b128", squares=True)


def readable(plain: Quantized, format: str) -> Quantized:
    """A checkpoint's weight in the order that the product of the format reads."""
    form = format_of(format)
    plain = in_fp8b128(plain) if (plain.format, format) == ("mxfp8", "fp8b128") else plain
    rows, columns = plain.stored_shape
    if rows % form.multiple or columns % form.multiple:
        raise ArgumentError(f"{format} needs multiples of {form.multiple}, and this weight is {rows} x {columns}")
    if form.packs:
        return form.packed(plain)
    return plain if format == "fp8b128" else plain.laid("blocked")


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Parameters of torch hold these dtypes as bytes."""
    return tensor if tensor.dtype in (torch.uint8, torch.float8_e4m3fn, torch.float32) else tensor.view(torch.uint8)


def check_signatures(expected: dict[str, str]) -> None:
    """Refuses another client than the one that a plugin was written for. expected: "module:name" -> parameters."""
    for place, parameters in expected.items():
        module, _, name = place.partition(":")
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        got = " ".join(inspect.signature(found).parameters)
        if got != parameters:
            raise ArgumentError(f"{name}: expected the parameters ({parameters}), got ({got})")
