"""Textures and surfaces: images in global memory, and which texels a fetch reads with which weights.

The layout of a CUDA array is opaque. Here rows follow each other as in pitched memory, so that the checks of global memory see texels.

Addressing follows the CUDA programming guide ("Texture Fetching"): a coordinate x in texels reads T[floor(x)] without a filter, and with the linear one T[i]
and T[i + 1], where i + a / 256 = x - 0.5, rounded to whole a, halves up. From here on the guide is vague, and the rules are those by which an H200 gave
all results of 50 tests but two. Two mirrored coordinates within 0.0003 of a half of a step had the next a.

weights    256 is divided along z, x and y in turn. A part W is divided by the fraction f of its axis into r = (W f + 128) >> 8 for the upper texel, and
           W - r. For the lower x, it is the lower y that gets (W (256 - f) + 128) >> 8. A clamped axis whose two texels are one has the fraction 0.
f32, f16   Each texel is truncated to 28 (15) bits below the power of two above the largest one of a z. Their weighted sum is rounded once, halves away
           from zero.
u8, u16    Texels have 16 bits, those of u8 as 257 t. Their weighted sum is rounded, halves up.
s16        likewise
s8         S = sum of w t becomes S + ((S + 64 + (S >> 12) * 16) >> 7), in 32767ths.
1-D        A second coordinate of 0 is filtered, too: with a border along y, half of each value is the border.
cubes      Faces are filtered apart. z wins ties (y over x is not known).
sRGB       Colours become linear by the curve of IEC 61966-2-1, rounded to f32, and are filtered as f32. The border is linear. A fourth channel is no colour.
           No GPU has confirmed this rule.
mipmaps    The level of detail has the bias added and is clamped. Of it the nearest level is read, halves up, or two levels, whose results have weights in
           256ths. Derivatives give log2 of the longer one in texels. No GPU has confirmed these rules.

A texel of weight 0 is not read.
"""

import math
from dataclasses import dataclass, replace
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
    srgb: bool = False
    levels: tuple = ()  # smaller images, of level 1 on
    level_filter: str = "point"
    level_bias: float = 0.0
    level_clamp: tuple = (0.0, math.inf)

    def level(self, number):
        """The texture of one level alone."""
        return replace(self, image=(self.image, *self.levels)[number], levels=())

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


def smaller(of: Image, addresses, padded) -> tuple:
    """The images of levels 1 and on. padded: rows begin at multiples of the alignment of a pitch."""
    found = []
    for number, address in enumerate(addresses, 1):
        dims = tuple(max(1, extent >> number) for extent in of.dims)
        pitch = -(-dims[0] * of.texel // PITCH_ALIGNMENT) * PITCH_ALIGNMENT if padded else None
        found.append(image(address, of.type, dims, of.channels, geometry=of.geometry, layers=of.layers, pitch=pitch))
    return tuple(found)


def texture(
    of: Image, *, filter="point", address_mode="clamp", normalized=False, read="element", border=(0, 0, 0, 0), srgb=False,
    levels=(), level_filter="point", level_bias=0.0, level_clamp=(0.0, math.inf),
) -> Texture:  # fmt: skip
    """A checked way to read an image. address_mode: one for all dimensions, or one for each."""
    modes = (address_mode,) * 3 if isinstance(address_mode, str) else tuple(address_mode) + ("clamp",) * (3 - len(address_mode))
    for what, value, known in (
        ("filter", filter, FILTERS),
        ("filter of levels", level_filter, FILTERS),
        ("read mode", read, READS),
        *(("address mode", mode, ADDRESSES) for mode in modes),
    ):
        if value not in known:
            raise LaunchError(f"texture: the {what} {value!r} is unknown; it is one of {', '.join(known)}")
    if len(border) != 4:
        raise LaunchError(f"texture: border = {border!r} must have 4 values")
    if read == "normalized" and of.type not in ("u8", "s8", "u16", "s16"):
        raise LaunchError(f"texture: normalized reads are for integers of 8 and 16 bits, not {of.type}")
    if srgb and (of.type != "u8" or read != "normalized"):
        raise LaunchError(f"texture: sRGB is for normalized reads of u8, not {read} reads of {of.type}")
    if not normalized:  # as the runtime does
        modes = tuple("clamp" if mode in ("wrap", "mirror") else mode for mode in modes)
    made = Texture(of, filter, modes, bool(normalized), read, tuple(map(float, border)), bool(srgb))
    made = replace(made, levels=levels, level_filter=level_filter, level_bias=float(level_bias), level_clamp=tuple(map(float, level_clamp)))
    if levels and not normalized:
        raise LaunchError("texture: levels need normalized coordinates")
    if "linear" in (filter, level_filter) and not made.gives_floats:
        raise LaunchError("texture: linear filtering is for floats and normalized reads")
    if of.geometry in ("cube", "acube") and not normalized:
        raise LaunchError("texture: a cube has normalized coordinates")
    return made


# ---- coordinates
def at_levels(of: Texture, detail) -> list:
    """(level, weight in 256ths) of each lane, one or two of each."""
    detail = np.clip(np.nan_to_num(np.asarray(detail, np.float64) + of.level_bias), *of.level_clamp).clip(0, len(of.levels))
    if of.level_filter == "point":
        return [(np.floor(detail + 0.5).astype(np.int64), np.full(len(detail), _STEPS))]
    fixed = np.floor(detail * _STEPS + 0.5).astype(np.int64)
    low, fraction = fixed // _STEPS, fixed % _STEPS
    return [(low, _STEPS - fraction), (np.minimum(low + 1, len(of.levels)), fraction)]


def detail_of(of: Texture, *derivatives):
    """The level of detail of the derivatives along x and y of the screen, each a list of arrays."""
    lengths = [sum((np.asarray(d, np.float64) * extent) ** 2 for d, extent in zip(one, of.image.dims)) for one in derivatives]
    with np.errstate(divide="ignore"):
        return np.log2(np.maximum(*lengths)) / 2


def _in_texels(x, extent, normalized):
    x = np.clip(np.nan_to_num(np.asarray(x, np.float64), nan=0.0), -_FAR, _FAR)
    return x * extent if normalized else x


def _resolved(index, extent, mode):
    """(index inside the texture, which lanes read a texel and not the border)"""
    if mode == "border":
        return np.clip(index, 0, extent - 1), (index >= 0) & (index < extent)
    if mode == "wrap":
        index = index % extent
    elif mode == "mirror":
        index = index % (2 * extent)
        index = np.minimum(index, 2 * extent - 1 - index)
    return np.clip(index, 0, extent - 1), np.ones(index.shape, bool)


@dataclass
class Tap:
    """One texel of each lane: its indices along x, y, z, whether it is inside, and its weight in 256ths."""

    indices: list
    inside: np.ndarray
    weight: np.ndarray


def taps(of: Texture, coordinates, offsets=()) -> list[Tap]:
    """The texels that a fetch at these float coordinates combines. offsets: whole texels to add."""
    if of.filter == "linear":
        return footprint(of, coordinates, offsets)
    resolved = [
        _resolved(np.floor(_in_texels(x, extent, of.normalized)).astype(np.int64) + offset, extent, mode)
        for x, extent, mode, offset in zip(coordinates, of.image.dims, of.address, _three(offsets))
    ]
    return [_tap(resolved, np.ones(len(coordinates[0])))]


def _three(offsets):
    return [*offsets, 0, 0, 0][:3]


def texel(of: Texture, indices, offsets=()) -> list[Tap]:
    """The texel at these integer coordinates. Linear memory has a border of zeros."""
    modes = ("border",) if of.image.linear else of.address
    where = zip(indices, of.image.dims, modes, _three(offsets))
    return [_tap([_resolved(i.astype(np.int64) + offset, n, mode) for i, n, mode, offset in where], np.ones(len(indices[0])))]


def footprint(of: Texture, coordinates, offsets=()) -> list[Tap]:
    """All texels around the coordinates, x fastest, with the weights of linear filtering."""
    dims, coordinates = of.image.dims, list(coordinates)
    if len(dims) == 1 and of.address[1] == "border":
        dims, coordinates = (*dims, 1), [*coordinates, np.zeros(len(coordinates[0]))]
    sides, fractions = [], []
    for x, extent, mode, offset in zip(coordinates, dims, of.address, _three(offsets)):
        fixed = np.floor(_in_texels(x, extent, of.normalized) * _STEPS + 0.5).astype(np.int64) - _STEPS // 2
        both = [_resolved(fixed // _STEPS + offset + side, extent, mode) for side in (0, 1)]
        sides.append(both)
        fractions.append(np.where((both[0][0] == both[1][0]) & (mode == "clamp"), 0, fixed % _STEPS))
    corners = product(*reversed(sides))
    return [_tap(list(reversed(corner)), weight) for corner, weight in zip(corners, _weights(*fractions))]


def _tap(resolved, weight):
    return Tap([index for index, _ in resolved], np.logical_and.reduce([inside for _, inside in resolved]), weight)


def _part(whole, fraction):
    return (whole * fraction + _STEPS // 2) // _STEPS


def _weights(a, b=None, c=None):
    """Of the texels around a coordinate, x fastest; they add up to 256."""
    found = []
    for whole in [_STEPS] if c is None else [_STEPS - c, c]:
        x1 = _part(whole, a)
        x0 = whole - x1
        if b is None:
            found += [x0, x1]
        else:
            x0y0, x1y1 = _part(x0, _STEPS - b), _part(x1, b)
            found += [x0y0, x1 - x1y1, x0 - x0y0, x1y1]
    return found


def cube_face(s, t, r):
    """(face, x, y from 0 to 1) where the direction (s, t, r) leaves the cube."""
    s, t, r = (np.nan_to_num(np.asarray(value, np.float64)) for value in (s, t, r))
    a, b, c = np.abs(s), np.abs(t), np.abs(r)
    along = np.where((c >= a) & (c >= b), 2, np.where(b >= a, 1, 0))
    major = np.choose(along, (s, t, r))
    negative = major < 0
    face = 2 * along + negative
    x = np.choose(face, (-r, r, s, s, s, -s))
    y = np.choose(face, (-t, -t, r, -r, -t, -t))
    size = np.where(major == 0, 1, np.abs(major))
    return face, (x / size + 1) / 2, (y / size + 1) / 2


# ---- values
_CODES = np.arange(256) / 255
_LINEAR = np.where(_CODES <= 0.04045, _CODES / 12.92, ((_CODES + 0.055) / 1.055) ** 2.4).astype(np.float32)


def as_read(of: Texture, data) -> np.ndarray:
    """What texels become that are not filtered: floats, or integers."""
    if of.srgb:
        found = _LINEAR[data].astype(np.float64)
        found[:, 3:] = data[:, 3:] / 255
        return found
    if of.read == "normalized":
        return np.maximum(data / np.float64(np.iinfo(data.dtype).max), -1.0)
    return data.astype(np.float64 if of.gives_floats else np.int64)


def as_filtered(of: Texture, data) -> np.ndarray:
    """What linear filtering combines of texels."""
    return as_read(of, data) if of.srgb else data.astype(np.float64)


def border_texel(of: Texture) -> np.ndarray:
    """The border as the texels that linear filtering combines."""
    border = np.array(of.border)
    if of.read == "normalized" and not of.srgb:
        whole = np.iinfo(of.image.dtype)
        border = np.rint(np.clip(border, -1.0 if whole.min else 0.0, 1.0) * whole.max)
    return border


def filtered(of: Texture, texels, weights) -> np.ndarray:
    """(lanes, channels) results of (taps, lanes, channels) texels, whose (taps, lanes) weights are in 256ths."""
    weights = np.asarray(weights)[:, :, None]
    texels = np.where(weights > 0, texels, 0.0)
    if of.read == "normalized" and not of.srgb:
        total = (texels.astype(np.int64) * weights).sum(axis=0)
        whole = np.iinfo(of.image.dtype)
        if of.image.type == "s8":
            return np.maximum(total + ((total + 64 + (total >> 12) * 16) >> 7), -32767) / 32767
        total = (total * (257 if whole.max == 255 else 1) + 128) >> 8
        return np.maximum(total / (whole.max if whole.min else 65535), -1.0)
    kept, digits, least = (15, 11, -13) if of.image.type == "f16" else (28, 24, -125)
    sums = []
    for slice_, parts in zip(*(np.split(array, max(1, len(texels) // 4)) for array in (texels, weights))):
        _, exponent = np.frexp(np.abs(slice_).max(axis=0))
        whole = np.trunc(np.ldexp(slice_, kept - exponent))  # infinities and NaN stay
        sums.append(np.ldexp((whole * parts).sum(axis=0), exponent - kept - 8))
    return _rounded(sums[0], sums[1] if len(sums) > 1 else 0.0, digits, least)


def _rounded(one, other, digits, least):
    """The sum of two numbers, exact and then rounded to so many binary digits, halves away from zero; of numbers below 2 ** least to fewer."""
    total = one + other
    left = (one - (total - (total - one))) + (other - (total - one))  # of the exact sum
    _, exponent = np.frexp(total)
    exponent = np.maximum(exponent, least)
    scaled = np.abs(np.ldexp(total, digits - exponent))
    tie_below = (scaled - np.floor(scaled) == 0.5) & (left * total < 0)
    found = np.copysign(np.ldexp(np.floor(scaled + 0.5) - tie_below, exponent - digits), total)
    return np.where(np.isfinite(total), found, total)
