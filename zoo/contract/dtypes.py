"""The element types that cross zoo's boundary, under the names that tables, manifests and messages use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dtype:
    name: str
    bytes: int
    numpy: str  # the name numpy or ml_dtypes knows it by
    torch: str
    dlpack: tuple[int, int, int]  # DLDataType: code, bits, lanes


# `e2m1x2` is two 4-bit codes in a byte, the even index in the low nibble; shapes and strides of its arrays are in bytes, not in codes.
DTYPES = {
    dtype.name: dtype
    for dtype in (
        Dtype("bf16", 2, "bfloat16", "bfloat16", (4, 16, 1)),
        Dtype("f16", 2, "float16", "float16", (2, 16, 1)),
        Dtype("f32", 4, "float32", "float32", (2, 32, 1)),
        Dtype("e4m3", 1, "float8_e4m3fn", "float8_e4m3fn", (10, 8, 1)),
        Dtype("e5m2", 1, "float8_e5m2", "float8_e5m2", (12, 8, 1)),
        Dtype("ue8m0", 1, "float8_e8m0fnu", "float8_e8m0fnu", (14, 8, 1)),
        Dtype("e2m1x2", 1, "uint8", "float4_e2m1fn_x2", (17, 4, 2)),
        Dtype("u8", 1, "uint8", "uint8", (1, 8, 1)),
        Dtype("i32", 4, "int32", "int32", (0, 32, 1)),
        Dtype("i64", 8, "int64", "int64", (0, 64, 1)),
    )
}

# A framework without fp8, fp4 or ue8m0 passes these as plain bytes; the argument's declared dtype says what they are.
CARRIED_BY_BYTES = frozenset({"e4m3", "e5m2", "ue8m0", "e2m1x2"})
