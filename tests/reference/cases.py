"""Inputs and formats that several tests of the reference share."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from zoo.reference.block_formats import block_format

DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
FORMATS = {
    "mxfp8 e4m3 floor": block_format("mxfp8", "e4m3", rounding="floor"),
    "mxfp8 e5m2 rceil": block_format("mxfp8", "e5m2", rounding="rceil"),
    "mxfp4 floor": block_format("mxfp4", rounding="floor"),
    "mxfp4 rceil": block_format("mxfp4", rounding="rceil"),
    "nvfp4": block_format("nvfp4", tensor_scale=0.002),
    "fp8b128": block_format("fp8b128"),
    "fp8b128 pow2": block_format("fp8b128", scaling="pow2"),
}
RULES = {  # of rows alone
    "mxfp8 e4m3 even": block_format("mxfp8", "e4m3", rounding="even"),
    "mxfp8 e5m2 even": block_format("mxfp8", "e5m2", rounding="even"),
    "mxfp8 e4m3 ceil": block_format("mxfp8", "e4m3", rounding="ceil"),
    "mxfp4 even": block_format("mxfp4", rounding="even"),
    "mxfp4 ceil": block_format("mxfp4", rounding="ceil"),
    "nvfp4 subnormal": block_format("nvfp4", tensor_scale=0.002, smallest_scale="subnormal"),
}
every_rule = pytest.mark.parametrize("format", (FORMATS | RULES).values(), ids=FORMATS | RULES)
every_format = pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
every_packed_format, every_blocked_format = (
    pytest.mark.parametrize("format", chosen.values(), ids=chosen)
    for chosen in (
        {name: format for name, format in FORMATS.items() if format.packed},
        {name: format for name, format in FORMATS.items() if "blocked" in format.layouts},
    )
)
every_layout = pytest.mark.parametrize(
    ("format", "layout"),
    [(format, layout) for format in FORMATS.values() for layout in format.layouts],
    ids=[f"{name} {layout}" for name, format in FORMATS.items() for layout in format.layouts],
)


def any_bits(shape: tuple[int, ...], dtype, seed: int, finite: bool = True) -> np.ndarray:
    """Numbers of every exponent the dtype has, subnormals included; with `finite` no NaN and no infinity."""
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    bits = np.random.default_rng(seed).integers(0, 1 << unsigned.itemsize * 8, shape, dtype=np.uint64)
    x = bits.astype(unsigned).view(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaN
        return np.where(np.isfinite(x.astype(np.float32)), x, dtype(1)) if finite else x


def every_bf16() -> np.ndarray:
    """All 65,536 patterns, one row."""
    return np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16)[None]


def bytes_of(array: np.ndarray) -> np.ndarray:
    """Its elements as unsigned integers, for comparison to the bit."""
    return np.ascontiguousarray(array).view(np.dtype(f"u{array.dtype.itemsize}"))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(bytes_of(a), bytes_of(b))
