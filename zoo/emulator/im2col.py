"""Tensor copies in im2col mode: pixels of a feature map (N, D, H, W, C), one after the other, under one place of a convolution's filter.

The filter's corner moves through a box in W, H and D, from `lower` to the tensor's last place plus `upper`, in steps of the element strides.
W moves first. Behind the end of the box it begins again, and the next axis moves, at last the image (N):

    corner of the filter -->  lower . . . extent - 1 + upper | lower . . .
    pixel that is read   =    corner + offset                 (outside the tensor: filled)

In the modes im2col::w and im2col::w::128 the box has one row: W moves alone, then the image. Box and start are moved by wOffset, the first pixel
may lie to the left of the box, and wHalo pixels more follow the pixels of the map (or the 128 of im2col::w::128).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from zoo.contract.tensor_map import BYTES, TensorMap

from .errors import EmulatorError
from .tma import Box

_MAGIC, _MAGIC_OF_TILES = b"zooC", TensorMap("u8", 0, (1,), (), (1,)).to_bytes()[:4]
_FORM = struct.Struct("<H3h3h")  # pixels and corners, the last bytes of the 128
_MODE_BIT = 12  # of the pixels
_CORNER_BITS = {3: 16, 4: 8, 5: 5}  # by rank
_PIXELS = 1024
MODES = ("im2col", "im2col::w", "im2col::w::128")
_WIDE_SWIZZLES = ("64B", "128B", "128B_atom_32B")


@dataclass(frozen=True)
class Im2colMap(TensorMap):
    """A tensor map of cuTensorMapEncodeIm2col, or ...Im2colWide. Its box has the channels of one pixel; corners are of W, H and D, or of W alone."""

    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    pixels: int = 1
    mode: str = MODES[0]

    @property
    def box_bytes(self) -> int:
        return super().box_bytes * self.pixels

    @property
    def wide(self) -> bool:
        return self.mode != MODES[0]

    def refusal(self) -> str | None:
        if self.rank not in _CORNER_BITS:
            return f"{self.rank} dimensions, expected 3 to 5 in im2col mode"
        if self.mode not in MODES:
            return f"the mode {self.mode} is none of {', '.join(MODES)}"
        corners, bits = (1, 16) if self.wide else (self.rank - 2, _CORNER_BITS[self.rank])
        if not len(self.lower) == len(self.upper) == corners:
            return f"{len(self.lower)} and {len(self.upper)} corners, expected {corners}"
        if self.wide and self.swizzle not in _WIDE_SWIZZLES:
            return f"the swizzle {self.swizzle} does not go with {self.mode}: it is one of {', '.join(_WIDE_SWIZZLES)}"
        limit = 1 << bits - 1
        for axis, (low, high) in enumerate(zip(self.lower, self.upper)):
            if not (-limit <= low < limit and -limit <= high < limit):
                return f"the corners {low} and {high} of dimension {axis + 1} are not within -{limit} to {limit - 1}"
            if low > self.dims[axis + 1] - 1 + high:
                return f"the box of dimension {axis + 1} is empty: from {low} to {self.dims[axis + 1] - 1 + high}"
        if not 1 <= self.pixels <= _PIXELS:
            return f"{self.pixels} pixels, expected 1 to {_PIXELS}"
        return super().refusal()

    def to_bytes(self) -> bytes:
        pad = (0,) * (3 - len(self.lower))
        pixels = self.pixels | MODES.index(self.mode) << _MODE_BIT
        return _MAGIC + super().to_bytes()[4 : BYTES - _FORM.size] + _FORM.pack(pixels, *self.lower, *pad, *self.upper, *pad)

    @classmethod
    def of(cls, tile: TensorMap, lower, upper, pixels, mode=MODES[0]) -> Im2colMap:
        fields = {name: getattr(tile, name) for name in tile.__dataclass_fields__}
        return cls(**fields, lower=tuple(lower), upper=tuple(upper), pixels=pixels, mode=mode)


def read(raw: bytes) -> TensorMap:
    """The tensor map, of either mode, that these 128 bytes are."""
    if not raw.startswith(_MAGIC):
        return TensorMap.from_bytes(raw)
    tile = TensorMap.from_bytes(_MAGIC_OF_TILES + raw[4:])
    pixels, *corners = _FORM.unpack(raw[-_FORM.size :])
    mode = MODES[min(pixels >> _MODE_BIT, 2)]
    count = tile.rank - 2 if mode == MODES[0] else 1
    return Im2colMap.of(tile, corners[:count], corners[3 : 3 + count], pixels & (1 << _MODE_BIT) - 1, mode)


class Pixels(Box):
    """The pixels from given coordinates on; one row of the image is one pixel's channels."""

    def __init__(self, tensor, coordinates, info):
        """info: offsets of W, H and D, or wHalo and wOffset."""
        super().__init__(tensor, coordinates)
        halo, shift = info if tensor.wide else (0, 0)
        self.offsets = [0] * (tensor.rank - 1) if tensor.wide else [*info, 0]
        self.corner = [coordinates[1] + shift, *coordinates[2:]]
        self.low = [low + shift for low in tensor.lower]
        self.high = [extent - 1 + high + shift for extent, high in zip(tensor.dims[1:], tensor.upper)]
        pixels = tensor.pixels
        if tensor.mode == "im2col::w::128":
            pixels = 128
            if halo:
                raise EmulatorError("wHalo of im2col::w::128 is not covered: the manual shows only in pictures where the halo lies")
        self.outer = pixels + halo
        self.shape = (tensor.box[0], self.outer)
        self.bytes, self.image_bytes = self.inner * self.outer, self.pitch * self.outer

    def problem(self):
        """Why the copy has no meaning, or None."""
        for axis, (place, low, high) in enumerate(zip(self.corner, self.low, self.high)):
            if place > high or (place < low and not self.tensor.wide):
                return f"coordinate {axis + 1} is {place}, outside the bounding box from {low} to {high}"
        return None

    def _rows(self):
        """(number, address of its first channel, if it were 0) of the pixels inside the tensor."""
        tensor = self.tensor
        corner = list(self.corner)
        for number in range(self.outer):
            place = [at + offset for at, offset in zip(corner, self.offsets)]
            if all(0 <= at < extent for at, extent in zip(place, tensor.dims[1:])):
                yield number, tensor.address + sum(at * stride for at, stride in zip(place, tensor.strides))
            for axis, (low, high) in enumerate(zip(self.low, self.high)):
                corner[axis] += tensor.element_strides[axis + 1]
                if corner[axis] <= high:
                    break
                corner[axis] = low
            else:
                corner[-1] += 1
