"""The logical tensor map: one plain record behind every TMA descriptor.

The driver's 128-byte CUtensorMap is opaque. The loader hands this record to cuTensorMapEncodeTiled; the emulator and
the tests put its own 128-byte form, `to_bytes`, where the opaque one would lie, and read it back with `from_bytes`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from zoo.contract import limits
from zoo.errors import ArgumentError

# name -> (the driver's CUtensorMapDataType, bits an element has in global memory)
DTYPES = {
    "u8": (0, 8), "u16": (1, 16), "u32": (2, 32), "i32": (3, 32), "u64": (4, 64), "i64": (5, 64),
    "f16": (6, 16), "f32": (7, 32), "f64": (8, 64), "bf16": (9, 16), "f32_ftz": (10, 32),
    "tf32": (11, 32), "tf32_ftz": (12, 32), "u4_align8": (13, 4), "u4_align16": (14, 4), "u6_align16": (15, 6),
}  # fmt: skip
# name -> (CUtensorMapSwizzle, the most bytes an inner box row may have)
SWIZZLES = {
    "none": (0, None), "32B": (1, 32), "64B": (2, 64), "128B": (3, 128),
    "128B_atom_32B": (4, 128), "128B_atom_32B_flip_8B": (5, 128), "128B_atom_64B": (6, 128),
}  # fmt: skip
L2_PROMOTIONS = {"none": 0, "64B": 1, "128B": 2, "256B": 3}
OUT_OF_BOUNDS_FILLS = {"zero": 0, "nan": 1}
FLOATS = ("f16", "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz")

_MAGIC = b"zooT"
_FORM = struct.Struct("<4sBBBBBBxxQ4Q5I5H")  # 4 + 8 + 8 + 32 + 20 + 10 bytes, then zeros up to 128
BYTES = 128


@dataclass(frozen=True)
class TensorMap:
    """Dimension 0 is the innermost. `strides` are in bytes, for dimensions 1 and up."""

    dtype: str
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: str = "none"
    l2_promotion: str = "none"
    fill: str = "zero"

    def __post_init__(self) -> None:
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * len(self.dims))

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def alignment(self) -> int:
        """What the address and the strides must be multiples of, in bytes."""
        return limits.MAP_PACKED_ALIGNMENT if self.dtype in ("u4_align16", "u6_align16") else limits.MAP_ALIGNMENT

    @property
    def box_bytes(self) -> int:
        """The bytes a load of one box brings, which is what it adds to its mbarrier's count. A dimension stepped over
        brings every `element_stride`-th of its box's elements; the innermost is never stepped over."""
        bits = DTYPES[self.dtype][1] * self.box[0]
        for extent, step in zip(self.box[1:], self.element_strides[1:], strict=True):
            bits *= -(-extent // step)
        return bits // 8

    def check(self) -> None:
        """Raises ArgumentError for a record that cuTensorMapEncodeTiled refuses."""
        reason = self.refusal()
        if reason:
            raise ArgumentError(f"tensor map: {reason}")

    def refusal(self) -> str | None:
        """Why the driver would refuse this record, or None."""
        # The order of the rules is part of the contract: the C library gives the same reason for the same record.
        code_bits = DTYPES[self.dtype][1]
        packed16 = self.dtype in ("u4_align16", "u6_align16")
        unit = self.alignment
        if not 1 <= self.rank <= 5:
            return f"{self.rank} dimensions, expected 1 to 5"
        if self.address % unit:
            return f"the address {self.address:#x} must be a multiple of {unit} bytes"
        for index, extent in enumerate(self.dims):
            if not 1 <= extent <= 2**limits.MAP_EXTENT_BITS:
                return f"dimension {index} has {extent} elements, expected 1 to 2^{limits.MAP_EXTENT_BITS}"
        for index, stride in enumerate(self.strides):
            if stride % unit or not 0 <= stride < 2**limits.MAP_STRIDE_BITS:
                words = f"expected a multiple of {unit} below 2^{limits.MAP_STRIDE_BITS}"
                return f"the stride of dimension {index + 1} is {stride} bytes, {words}"
        for index, extent in enumerate(self.box):
            if not 1 <= extent <= limits.MAP_BOX:
                return f"dimension {index} of the box has {extent} elements, expected 1 to {limits.MAP_BOX}"
        for index, step in enumerate(self.element_strides):
            if not 1 <= step <= limits.MAP_STEP:
                return f"element stride {index} is {step}, expected 1 to {limits.MAP_STEP}"
        inner_bytes = self.box[0] * code_bits // 8
        if packed16:
            row = limits.MAP_PACKED_ROW
            if self.dims[0] % row or self.box[0] != row:
                return f"packed 4 and 6-bit rows need a multiple of {row} elements and a box of {row}"
            if self.swizzle not in ("none", "128B", "128B_atom_32B"):
                return f"packed 4 and 6-bit elements cannot be swizzled by {self.swizzle}"
        else:
            if self.dtype == "u4_align8" and self.dims[0] % 2:
                return "packed 4-bit rows need an even number of elements"
            if self.box[0] * code_bits % (8 * limits.MAP_BOX_ROW):
                return f"a box row has {inner_bytes} bytes, expected a multiple of {limits.MAP_BOX_ROW}"
            span = SWIZZLES[self.swizzle][1]
            if span is not None and inner_bytes > span:
                return f"a box row has {inner_bytes} bytes, more than the {span} of swizzle {self.swizzle}"
        if self.fill == "nan" and self.dtype not in FLOATS:
            return f"elements of type {self.dtype} cannot be filled with NaN"
        return None

    def to_bytes(self) -> bytes:
        pad = (0,) * (5 - self.rank)
        form = _FORM.pack(
            _MAGIC, 1, DTYPES[self.dtype][0], self.rank, SWIZZLES[self.swizzle][0],
            L2_PROMOTIONS[self.l2_promotion], OUT_OF_BOUNDS_FILLS[self.fill], self.address,
            *self.strides, *pad, *(extent & 0xFFFFFFFF for extent in self.dims), *pad, *self.box, *pad,
        )  # fmt: skip
        # element strides are 1..8: four bits each, in the 8 bytes after the form
        steps = sum(step << (4 * index) for index, step in enumerate(self.element_strides))
        return (form + struct.pack("<Q", steps)).ljust(BYTES, b"\0")

    @classmethod
    def from_bytes(cls, data: bytes) -> TensorMap:
        """Reads `to_bytes`'s form back; a dimension of 2^32 elements is stored as 0."""
        magic, version, dtype, rank, swizzle, promotion, fill, address, *rest = _FORM.unpack_from(data)
        if magic != _MAGIC or version != 1:
            raise ArgumentError("these 128 bytes are not a logical tensor map")
        (steps,) = struct.unpack_from("<Q", data, _FORM.size)
        strides, dims, box = rest[0:4], rest[4:9], rest[9:14]
        return cls(
            dtype=_name_of(DTYPES, dtype),
            address=address,
            dims=tuple(extent or 2**32 for extent in dims[:rank]),
            strides=tuple(strides[: rank - 1]),
            box=tuple(box[:rank]),
            element_strides=tuple((steps >> (4 * index)) & 15 for index in range(rank)),
            swizzle=_name_of(SWIZZLES, swizzle),
            l2_promotion=next(name for name, number in L2_PROMOTIONS.items() if number == promotion),
            fill=next(name for name, number in OUT_OF_BOUNDS_FILLS.items() if number == fill),
        )


def _name_of(table: dict[str, tuple[int, int | None]] | dict[str, tuple[int, int]], number: int) -> str:
    return next(name for name, (code, _) in table.items() if code == number)
