"""Tensor copies in im2col mode: pixels of a feature map (N, D, H, W, C), one after the other, under one place of a convolution's filter.

The filter's corner moves through a box in W, H and D, from `lower` to the tensor's last place plus `upper`, in steps of the element strides.
W moves first. Behind the end of the box it begins again, and the next axis moves, at last the image (N):

    corner of the filter -->  lower . . . extent - 1 + upper | lower . . .
    pixel that is read   =    corner + offset                 (outside the tensor: filled)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from zoo.contract.tensor_map import BYTES, TensorMap

from .tma import Box

_MAGIC, _MAGIC_OF_TILES = b"zooC", TensorMap("u8", 0, (1,), (), (1,)).to_bytes()[:4]
_FORM = struct.Struct("<H3h3h")  # pixels and corners, the last bytes of the 128
_CORNER_BITS = {3: 16, 4: 8, 5: 5}  # by rank
_PIXELS = 1024


@dataclass(frozen=True)
class Im2colMap(TensorMap):
    """A tensor map of cuTensorMapEncodeIm2col. Its box has the channels of one pixel; corners are given for W, H and D."""

    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    pixels: int = 1

    @property
    def box_bytes(self) -> int:
        return super().box_bytes * self.pixels

    def refusal(self) -> str | None:
        if self.rank not in _CORNER_BITS:
            return f"{self.rank} dimensions, expected 3 to 5 in im2col mode"
        if not len(self.lower) == len(self.upper) == self.rank - 2:
            return f"{len(self.lower)} and {len(self.upper)} corners, expected {self.rank - 2}"
        limit = 1 << _CORNER_BITS[self.rank] - 1
        for axis, (low, high) in enumerate(zip(self.lower, self.upper)):
            if not (-limit <= low < limit and -limit <= high < limit):
                return f"the corners {low} and {high} of dimension {axis + 1} are not within -{limit} to {limit - 1}"
            if low > self.dims[axis + 1] - 1 + high:
                return f"the box of dimension {axis + 1} is empty: from {low} to {self.dims[axis + 1] - 1 + high}"
        if not 1 <= self.pixels <= _PIXELS:
            return f"{self.pixels} pixels, expected 1 to {_PIXELS}"
        return super().refusal()

    def to_bytes(self) -> bytes:
        pad = (0,) * (5 - self.rank)
        return _MAGIC + super().to_bytes()[4 : BYTES - _FORM.size] + _FORM.pack(self.pixels, *self.lower, *pad, *self.upper, *pad)

    @classmethod
    def of(cls, tile: TensorMap, lower, upper, pixels) -> Im2colMap:
        return cls(
            **{name: getattr(tile, name) for name in tile.__dataclass_fields__}, lower=tuple(lower), upper=tuple(upper), pixels=pixels
        )


def read(raw: bytes) -> TensorMap:
    """The tensor map, of either mode, that these 128 bytes are."""
    if not raw.startswith(_MAGIC):
        return TensorMap.from_bytes(raw)
    tile = TensorMap.from_bytes(_MAGIC_OF_TILES + raw[4:])
    pixels, *corners = _FORM.unpack(raw[-_FORM.size :])
    return Im2colMap.of(tile, corners[: tile.rank - 2], corners[3 : 1 + tile.rank], pixels)


class Pixels(Box):
    """The pixels from given coordinates on; one row of the image is one pixel's channels."""

    def __init__(self, tensor, coordinates, offsets):
        super().__init__(tensor, coordinates)
        self.offsets = offsets
        self.shape = (tensor.box[0], tensor.pixels)
        self.outer = tensor.pixels
        self.bytes, self.image_bytes = self.inner * self.outer, self.pitch * self.outer

    def problem(self):
        """Why the copy has no meaning, or None."""
        tensor = self.tensor
        for axis, (place, low, high) in enumerate(zip(self.coordinates[1:], tensor.lower, tensor.upper)):
            if not low <= place <= tensor.dims[axis + 1] - 1 + high:
                return f"coordinate {axis + 1} is {place}, outside the bounding box from {low} to {tensor.dims[axis + 1] - 1 + high}"
        return None

    def _rows(self):
        """(number, address of its first channel, if it were 0) of the pixels inside the tensor."""
        tensor = self.tensor
        corner = list(self.coordinates[1:])
        for number in range(tensor.pixels):
            place = [at + offset for at, offset in zip(corner, (*self.offsets, 0))]
            if all(0 <= at < extent for at, extent in zip(place, tensor.dims[1:])):
                yield number, tensor.address + sum(at * stride for at, stride in zip(place, tensor.strides))
            for axis, (low, high) in enumerate(zip(tensor.lower, tensor.upper)):
                corner[axis] += tensor.element_strides[axis + 1]
                if corner[axis] <= tensor.dims[axis + 1] - 1 + high:
                    break
                corner[axis] = low
            else:
                corner[-1] += 1
