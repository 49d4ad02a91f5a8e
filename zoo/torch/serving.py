"""What the plugins of serving engines share: the format for a checkpoint's weights, and the client that a plugin was written for."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection
from functools import cache
from typing import Any

import torch

import zoo
from zoo.errors import ArgumentError, ZooError
from zoo.runtime import driver
from zoo.torch.quantized import Quantized

# weights, what the checkpoint makes of tokens (fp8: e4m3, a scale for each token) -> formats, the first that a GPU has
_FORMATS = {
    ("fp8b128", "fp8b128"): ("fp8b128",),
    ("mxfp8", "mxfp8"): ("mxfp8", "fp8b128"),
    ("nvfp4", "nvfp4"): ("fp8_nvfp4", "nvfp4"),
    ("nvfp4", "fp8"): ("fp8_nvfp4",),
    ("nvfp4", "bf16"): ("bf16_nvfp4",),
    ("mxfp4", "mxfp4"): ("fp8_mxfp4", "mxfp4"),
    ("mxfp4", "fp8"): ("fp8_mxfp4", "mxfp8_mxfp4"),
    ("mxfp4", "mxfp8"): ("bf16_mxfp4", "mxfp8_mxfp4"),
    ("mxfp4", "bf16"): ("bf16_mxfp4",),
}


def format_for(weights: str, tokens: str, here: Collection[str], fp8_tokens: bool = False) -> str | None:
    """Which of the formats `here` multiplies these weights. Tokens are never coarser than the checkpoint says, unless `fp8_tokens`."""
    choices = _FORMATS[weights, "fp8" if fp8_tokens and fp8_is_coarser(weights, tokens) else tokens]
    return next((one for one in choices if one in here), None)


def fp8_is_coarser(weights: str, tokens: str) -> bool:
    """Whether FP8 tokens, a scale each, multiply these weights, and lose more than tokens as the checkpoint has them."""
    return (weights, "fp8") in _FORMATS and tokens in ("bf16", "mxfp8")


@cache
def no_driver() -> str:
    """Why the driver of this machine runs no kernel of zoo, such as its age, or nothing. torch runs with older drivers."""
    try:
        driver.bindings()
    except Exception as error:
        return because(error)
    return ""


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
    if not scales.is_floating_point():  # bytes of powers of two would become other numbers
        raise ArgumentError(f"weights {tuple(elements.shape)} have scales in {scales.dtype}")
    return Quantized(elements, scales if scales.dtype == torch.float32 else scales.float(), "fp8b128", squares=True)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Parameters of torch hold these dtypes as bytes."""
    return tensor if tensor.dtype in (torch.uint8, torch.float8_e4m3fn, torch.float32) else tensor.view(torch.uint8)


def because(error: Exception) -> str:
    """Why a layer stays with its client. Another version of the client may raise anything, so errors that are not zoo's are named."""
    return str(error) if isinstance(error, ZooError) else f"{type(error).__name__}: {error}"


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
