"""Textures and surfaces: images in global memory, and which texels a fetch reads with which weights.

The layout of a CUDA array is opaque. Here rows follow each other as in pitched memory, so that the checks of global memory see texels.

Addressing and filtering follow the formulas of the CUDA programming guide ("Texture Fetching"). A coordinate x in texels reads
    point     T[i], with i = floor(x)
    linear    (1 - a) T[i] + a T[i + 1], with i + a = x - 0.5, and a rounded to 8 fraction bits; likewise along y and z
The sum is computed in double precision and rounded once. Point reads and gathers have the bits of an H200. Filtered values differ from an H200's.
A texel of weight 0 is not read.
"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from .errors import LaunchError

TYPES = {
    "u8": np.uint8, "s8": np.int8, "u16": np.uint16, "s16": np.int16, "u32": np.uint32, "s32": np.int32, "f16": np.float16, "f32": np.float32,
}  # fmt: skip
GEOMETRIES = {"1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2, "cube": 2, "acube": 2}  # name -> dimensions of a layer
CHANNELS = (1, 2, 4)
FILTERS = ("point", "linear")
ADDRESSES = ("wrap", "clamp", "mirror", "border")
READS = ("element", "normalized")
ALIGNMENT, PITCH_ALIGNMENT = 512, 32  # of a texture's address and rows in bytes, as devices report them
_FACES = 6
_STEPS = 256  # positions between two texels
_FAR = float(1 << 40)  # beyond every texture, and exact in double precision


@dataclass(frozen=True)
class Image:
    """Texels in memory. dims: texels along x, y, z of a layer. pitch: bytes from row to row. linear: only tex.1d with integer coordinates may
    read it."""

    address: int
    type: str
    dims: tuple
    channels: int = 1
    geometry: str = "2d"
    layers: int = 1
    pitch: int = 0
    linear: bool = False

    @property
    def dtype(self):
        return np.dtype(TYPES[self.type])

    @property
    def texel(self):
        """Bytes of a texel."""
        return self.dtype.itemsize * self.channels

    @property
    def layer_bytes(self):
        return self.pitch * math.prod(self.dims[1:])

    @property
    def bytes(self):
        """Bytes from the first texel to the last."""
        return self.layers * self.layer_bytes - self.pitch + self.dims[0] * self.texel

    @property
    def layered(self):
        return self.geometry not in ("1d", "2d", "3d")

    def addresses(self, x, indices, layer):
        """Addresses of byte x of rows. indices: y and z of each row."""
        rows = np.zeros_like(x)
        for index, extent in zip(reversed(indices), reversed(self.dims[1:])):
            rows = rows * extent + index
        return self.address + layer * self.layer_bytes + rows * self.pitch + x

    def size(self, name):
        """A size, as txq and suq return it."""
        if name == "array_size":
            return self.layers if self.layered else 0
        place = ("width", "height", "depth").index(name)
        return self.dims[place] if place < len(self.dims) else 0


@dataclass(frozen=True)
class Surface:
    image: Image


@dataclass(frozen=True)
class Texture:
    image: Image
    filter: str = "point"
    address: tuple = ("clamp",) * 3  # along x, y, z
    normalized: bool = False  # coordinates run from 0 to 1
    read: str = "element"
    border: tuple = (0.0,) * 4

    @property
    def gives_floats(self):
        return self.read == "normalized" or self.image.type[0] == "f"


def image(address, dtype, dims, channels=1, *, geometry=None, layers=1, pitch=None, linear=False) -> Image:
    """A checked image; dimension 0 is the innermost."""
    dims = tuple(map(int, dims))
    geometry = f"{len(dims)}d" if geometry is None else geometry
    for what, value, known in (("dtype", dtype, TYPES), ("geometry", geometry, GEOMETRIES), ("number of channels", channels, CHANNELS)):
        if value not in known:
            raise LaunchError(f"texture: the {what} {value!r} is unknown; it is one of {', '.join(map(str, known))}")
    if len(dims) != GEOMETRIES[geometry] or min(dims) < 1:
        raise LaunchError(f"texture: dims = {dims} are no {GEOMETRIES[geometry]} positive sizes, which {geometry!r} needs")
    if layers < 1 or (layers > 1 and geometry in ("1d", "2d", "3d")):
        raise LaunchError(f"texture: {layers} layers do not go with the geometry {geometry!r}")
    if geometry in ("cube", "acube") and (dims[0] != dims[1] or layers % _FACES or (geometry == "cube" and layers != _FACES)):
        raise LaunchError(f"texture: a cube has square faces and {_FACES} layers, an array of cubes a multiple; not {dims} and {layers}")
    if linear and geometry != "1d":
        raise LaunchError(f"texture: linear memory has the geometry '1d', not {geometry!r}")
    made = Image(int(address), dtype, dims, channels, geometry, layers, 0, linear)
    least = dims[0] * made.texel
    made = Image(int(address), dtype, dims, channels, geometry, layers, least if pitch is None else int(pitch), linear)
    if made.address % ALIGNMENT:
        raise LaunchError(f"texture: the address {made.address:#x} is not a multiple of {ALIGNMENT}")
    if made.pitch < least or (pitch is not None and made.pitch % PITCH_ALIGNMENT):
        raise LaunchError(f"texture: the pitch {made.pitch} is not a multiple of {PITCH_ALIGNMENT} of at least {least} bytes")
    return made


def texture(of: Image, *, filter="point", address_mode="clamp", normalized=False, read="element", border=(0, 0, 0, 0)) -> Texture:
    """A checked way to read an image. address_mode: one for all dimensions, or one for each."""
    modes = (address_mode,) * 3 if isinstance(address_mode, str) else tuple(address_mode) + ("clamp",) * (3 - len(address_mode))
    for what, value, known in (
        ("filter", filter, FILTERS),
        ("read mode", read, READS),
        *(("address mode", mode, ADDRESSES) for mode in modes),
    ):
        if value not in known:
            raise LaunchError(f"texture: the {what} {value!r} is unknown; it is one of {', '.join(known)}")
    if len(border) != 4:
        raise LaunchError(f"texture: border = {border!r} must have 4 values")
    if read == "normalized" and of.type not in ("u8", "s8", "u16", "s16"):
        raise LaunchError(f"texture: normalized reads are for integers of 8 and 16 bits, not {of.type}")
    if not normalized:  # as the runtime does
        modes = tuple("clamp" if mode in ("wrap", "mirror") else mode for mode in modes)
    made = Texture(of, filter, modes, bool(normalized), read, tuple(map(float, border)))
    if filter == "linear" and not made.gives_floats:
        raise LaunchError("texture: linear filtering is for floats and normalized reads")
    if of.geometry in ("cube", "acube") and not normalized:
        raise LaunchError("texture: a cube has normalized coordinates")
    return made


# ---- coordinates
def _in_texels(x, extent, mode, normalized):
    x = np.clip(np.nan_to_num(np.asarray(x, np.float64), nan=0.0), -_FAR, _FAR)
    if not normalized:
        return x
    if mode in ("wrap", "mirror"):
        whole = np.floor(x)
        x = x - whole
        if mode == "mirror":
            x = np.where(whole % 2 == 0, x, 1 - x)
    return x * extent


def _resolved(index, extent, mode):
    """(index inside the texture, which lanes read a texel and not the border)"""
    if mode == "border":
        return np.clip(index, 0, extent - 1), (index >= 0) & (index < extent)
    return (index % extent if mode == "wrap" else np.clip(index, 0, extent - 1)), np.ones(index.shape, bool)


def _neighbours(x):
    """(lower index, weight of the upper one) of coordinates in texels."""
    fixed = np.floor(x * _STEPS + 0.5).astype(np.int64) - _STEPS // 2
    return fixed // _STEPS, (fixed % _STEPS) / _STEPS


@dataclass
class Tap:
    """One texel of each lane: its indices along x, y, z, whether it is inside, and its weight."""

    indices: list
    inside: np.ndarray
    weight: np.ndarray


def taps(of: Texture, coordinates) -> list[Tap]:
    """The texels that a fetch at these float coordinates combines."""
    if of.filter == "linear":
        return footprint(of, coordinates)
    resolved = [
        _resolved(np.floor(_in_texels(x, extent, mode, of.normalized)).astype(np.int64), extent, mode)
        for x, extent, mode in zip(coordinates, of.image.dims, of.address)
    ]
    return [_tap(resolved, np.ones(len(coordinates[0])))]


def texel(of: Texture, indices) -> list[Tap]:
    """The texel at these integer coordinates. Linear memory has a border of zeros."""
    modes = ("border",) if of.image.linear else of.address
    return [_tap([_resolved(i.astype(np.int64), n, mode) for i, n, mode in zip(indices, of.image.dims, modes)], np.ones(len(indices[0])))]


def footprint(of: Texture, coordinates) -> list[Tap]:
    """All texels around the coordinates, x fastest, with the weights of linear filtering."""
    sides = []
    for x, extent, mode in zip(coordinates, of.image.dims, of.address):
        lower, upper = _neighbours(_in_texels(x, extent, mode, of.normalized))
        sides.append([(_resolved(lower + side, extent, mode), upper if side else 1 - upper) for side in (0, 1)])
    return [
        _tap([place for place, _ in reversed(corner)], math.prod(weight for _, weight in corner)) for corner in product(*reversed(sides))
    ]


def _tap(resolved, weight):
    return Tap([index for index, _ in resolved], np.logical_and.reduce([inside for _, inside in resolved]), weight)


def cube_face(s, t, r):
    """(face, x, y from 0 to 1) where the direction (s, t, r) leaves the cube."""
    s, t, r = (np.nan_to_num(np.asarray(value, np.float64)) for value in (s, t, r))
    a, b, c = np.abs(s), np.abs(t), np.abs(r)
    along = np.where((a >= b) & (a >= c), 0, np.where(b >= c, 1, 2))
    major = np.choose(along, (s, t, r))
    negative = major < 0
    face = 2 * along + negative
    x = np.choose(face, (-r, r, s, s, s, -s))
    y = np.choose(face, (-t, -t, r, -r, -t, -t))
    size = np.where(major == 0, 1, np.abs(major))
    return face, (x / size + 1) / 2, (y / size + 1) / 2


# ---- values
def as_read(of: Texture, data) -> np.ndarray:
    """What texels become before they are filtered: floats, or integers."""
    if of.read == "normalized":
        return np.maximum(data / np.float64(np.iinfo(data.dtype).max), -1.0)
    return data.astype(np.float64 if of.gives_floats else np.int64)
