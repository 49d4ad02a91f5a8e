"""The arguments of a launch as data: an .npz file, or a TOML file with a table [[args]] for each parameter in its order.

    [[args]]
    name = "a"                      # for messages and files; default: the number of the parameter
    dtype = "bf16"
    shape = [64, 256]
    fill = "random"                 # zeros, ones, random, arange, empty, a number, or a file .npy
    seed = 1                        # of random; default: the number of the parameter
    show = true                     # print the array afterwards
    expected = "a.npy"              # compare the array afterwards, within rtol and atol (default 0: equal)
    tensor_map = { box = [64, 64], swizzle = "128B" }   # pass a tensor map of the array; box as shape, outermost first

    [[args]]
    dtype = "u8"
    shape = [48, 64, 4]             # layers if there are any, rows, texels of a row, channels if there are several
    fill = "random"
    texture = { channels = 4, filter = "linear", address = ["wrap", "clamp"], normalized = true, read = "normalized" }   # pass a texture's handle
    # more keys of texture: geometry = "a2d" (a name that tex uses), linear = true (memory for tex1Dfetch), border = [1, 0, 0, 0],
    # srgb = true (colours become linear)
    # surface = { channels = 4 }    # in place of texture: pass a surface's handle
    # reference = true              # binds it to the .texref or .surfref of this name; then it is no parameter

    [[args]]
    dtype = "f32"
    shape = [64]
    multicast = true                # pass the array's address for multimem instructions

    [[args]]
    name = "rows"
    value = 64                      # a scalar; its type is the parameter's. A text is a constexpr of a Triton kernel: "none", "tl.float16"

    [[args]]                        # a struct: what no field covers is zero, and a scalar needs its dtype
    fields = [{ offset = 0, name = "b", dtype = "f32", shape = [64] }, { offset = 8, value = 3, dtype = "i32" }]

Files are looked up beside the TOML file.
"""

import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from zoo.contract.nearest import suggestion

from . import textures
from .errors import LaunchError

DTYPES = {
    "u8": np.uint8, "s8": np.int8, "i8": np.int8, "u16": np.uint16, "s16": np.int16, "i16": np.int16, "u32": np.uint32, "s32": np.int32,
    "i32": np.int32, "u64": np.uint64, "s64": np.int64, "i64": np.int64, "bool": np.bool_, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "f32": np.float32, "f64": np.float64, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "ue8m0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
_FILLS = ("zeros", "ones", "random", "arange", "empty")
_OF_AN_ARRAY = {
    "name",
    "dtype",
    "shape",
    "fill",
    "seed",
    "show",
    "expected",
    "rtol",
    "atol",
    "tensor_map",
    "texture",
    "surface",
    "reference",
    "multicast",
}
_OF_A_SCALAR = {"name", "value", "dtype"}
_OF_A_STRUCT = {"name", "fields"}
_OF_A_MAP = {"box", "swizzle", "fill"}
_OF_A_SURFACE = {"channels", "geometry"}
_OF_A_TEXTURE = _OF_A_SURFACE | {"linear", "filter", "address", "normalized", "read", "border", "srgb"}
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,63}", re.ASCII)
_LARGEST_STRUCT = 32764
MOST_BYTES = 1 << 30  # of all arrays together


class SpecError(LaunchError):
    """The arguments are not understood."""


@dataclass
class Argument:
    """One parameter: an array, a scalar or a struct. `written`: whether the array has contents."""

    name: str
    value: object = None
    dtype: np.dtype | None = None  # of a scalar in a struct
    fields: list | None = None  # of a struct: (offset, argument)
    array: np.ndarray | None = None
    written: bool = True
    show: bool = False
    expected: np.ndarray | None = None
    rtol: float = 0.0
    atol: float = 0.0
    tensor_map: dict | None = None
    texture_at: Callable | None = None  # makes the texture or surface of an address
    reference: bool = False  # is bound by its name, and no parameter
    multicast: bool = False

    def leaves(self):
        """Itself, or the arrays and scalars of its fields."""
        return [self] if self.fields is None else [leaf for _, field in self.fields for leaf in field.leaves()]


def read(path: str | Path, texts: bool = False) -> tuple[list[Argument], dict]:
    """(arguments, other tables) of a file. texts: a value may be a text, for Triton."""
    path = Path(path)
    if path.suffix == ".npz":
        return _of_npz(path), {}
    try:
        spec = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"{path}: {error}") from None
    tables = spec.pop("args", None)
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise SpecError(f"{path}: a table [[args]] for each parameter is missing")
    found, names, room = [], set(), [MOST_BYTES]
    for number, table in enumerate(tables):
        try:
            argument = _argument(table, str(number), number, path.parent, room)
            if isinstance(argument.value, str) and not texts:
                raise SpecError(f"value = {_quoted(argument.value)} is no number")
            for leaf in argument.leaves():
                if leaf.name in names:
                    raise SpecError(f"two arguments are named {leaf.name}")
                names.add(leaf.name)
        except SpecError as error:
            raise SpecError(f"{path}: args[{number}]: {error}") from None
        found.append(argument)
    return found, spec


def of_values(values):
    """Arguments made of numpy arrays and numbers."""
    found = []
    for number, value in enumerate(values):
        if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype.hasobject):
            what = "holds objects" if isinstance(value, np.ndarray) else f"is a {type(value).__name__}"
            raise SpecError(f"argument {number} {what}: pass a numpy array of numbers")
        plain = isinstance(value, np.ndarray) and value.ndim
        found.append(Argument(str(number), array=np.ascontiguousarray(value)) if plain else Argument(str(number), value))
    return found


def _of_npz(path):
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # zipfile and zlib have errors of their own
        raise SpecError(f"{path}: {type(error).__name__}: {error}") from None
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise SpecError(f"{path}: {_quoted(name)} has dtype {array.dtype}: name its dtype in a TOML file")
        if not _NAME.fullmatch(name):
            raise SpecError(f"{path}: the name {_quoted(name)} is not of letters, digits, '_', '.' and '-'")
    return [
        Argument(name, array=np.ascontiguousarray(array)) if array.ndim else Argument(name, array[()]) for name, array in arrays.items()
    ]


def _quoted(text):
    text = repr(text)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _argument(table, default, seed, folder, room, of_struct=()):
    """`default`: its name, where the table gives none. `room`: [bytes that arrays may still have]."""
    scalar, struct = "value" in table, "fields" in table and not of_struct
    known = (_OF_A_SCALAR if scalar else _OF_A_STRUCT if struct else _OF_AN_ARRAY) | set(of_struct)
    for key in table:
        if key not in known:
            raise SpecError(f"{_quoted(key)} is unknown; {suggestion(key, known, 'it is one of ' + ', '.join(sorted(known)))}")
    name = table.get("name", default)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SpecError(f"the name {_quoted(name)} is not of letters, digits, '_', '.' and '-'")
    if scalar:
        if not isinstance(table["value"], (int, float, str)) or (of_struct and isinstance(table["value"], str)):
            raise SpecError(f"value = {_quoted(table['value'])} is no number")
        if "dtype" in table and not of_struct:
            raise SpecError("the dtype of a scalar is the parameter's")
        return Argument(name, table["value"], dtype=_dtype(table.get("dtype")) if of_struct else None)
    if struct:
        return Argument(name, fields=_fields(table["fields"], name, seed, folder, room))
    dtype = _dtype(table.get("dtype"))
    shape = table.get("shape")
    if not isinstance(shape, list) or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise SpecError(f"shape = {_quoted(shape)} is no list of sizes")
    room[0] -= math.prod(shape) * dtype.itemsize
    if room[0] < 0:
        raise SpecError(f"shape = {_quoted(shape)}: the arrays have more than {MOST_BYTES:,} bytes together")
    try:
        with np.errstate(all="ignore"):
            array, written = _filled(table.get("fill", "zeros"), table.get("seed", seed), tuple(shape), dtype, folder)
    except (OverflowError, TypeError, ValueError) as error:
        raise SpecError(f"fill = {_quoted(table.get('fill'))} does not fit {dtype}: {error}") from None
    passed_as = [key for key in ("tensor_map", "texture", "surface", "multicast") if key in table]
    if len(passed_as) > 1:
        raise SpecError(f"{passed_as[0]} and {passed_as[1]} exclude each other")
    expected, show = table.get("expected"), table.get("show", False)
    multicast, reference = table.get("multicast", False), table.get("reference", False)
    for key, value in (("show", show), ("multicast", multicast), ("reference", reference)):
        if not isinstance(value, bool):
            raise SpecError(f"{key} = {_quoted(value)} is neither true nor false")
    if reference and (of_struct or passed_as not in (["texture"], ["surface"])):
        raise SpecError("reference = true is for an argument with a texture or a surface")
    return Argument(
        name, array=array, written=written, show=show,
        expected=None if expected is None else _file(expected, tuple(shape), dtype, folder),
        rtol=_tolerance(table, "rtol"), atol=_tolerance(table, "atol"), tensor_map=_map(table.get("tensor_map"), shape),
        texture_at=_texture_at(passed_as[0], table, shape, dtype) if passed_as in (["texture"], ["surface"]) else None, multicast=multicast,
        reference=reference,
    )  # fmt: skip


def _fields(tables, name, seed, folder, room):
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise SpecError(f"fields = {_quoted(tables)} is no list of tables")
    found = []
    for number, table in enumerate(tables):
        offset = table.get("offset")
        if type(offset) is not int or not 0 <= offset < _LARGEST_STRUCT:
            raise SpecError(f"fields[{number}]: offset = {_quoted(offset)} is no place in a struct")
        try:
            found.append((offset, _argument(table, f"{name}.{number}", seed + number, folder, room, of_struct=("offset",))))
        except SpecError as error:
            raise SpecError(f"fields[{number}]: {error}") from None
    return found


def _dtype(name):
    if not isinstance(name, str) or name not in DTYPES:
        words = f"it is one of {', '.join(DTYPES)}"
        raise SpecError(f"dtype = {_quoted(name)} is unknown; {suggestion(name, DTYPES, words) if isinstance(name, str) else words}")
    return np.dtype(DTYPES[name])


def _tolerance(table, key):
    value = table.get(key, 0)
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise SpecError(f"{key} = {_quoted(value)} is no tolerance")
    return float(value)


def _map(table, shape):
    if table is None:
        return None
    if not isinstance(table, dict) or not set(table) <= _OF_A_MAP:
        raise SpecError(f"tensor_map = {_quoted(table)} has a box, and optionally a swizzle and a fill")
    box = table.get("box")
    if not isinstance(box, list) or len(box) != len(shape) or not all(type(extent) is int for extent in box):
        raise SpecError(f"tensor_map: box = {_quoted(box)} is no list of {len(shape)} sizes, as shape is")
    return {"swizzle": "none", "fill": "zero", **table}


def _texture_at(kind, of_argument, shape, dtype):
    """The function that makes a texture or a surface of an address."""
    known, table = _OF_A_TEXTURE if kind == "texture" else _OF_A_SURFACE, of_argument[kind]
    if not isinstance(table, dict) or not set(table) <= known:
        raise SpecError(f"{kind} = {_quoted(table)}: expected a table with keys among {', '.join(sorted(known))}")
    options = dict(table)
    channels, geometry = options.pop("channels", 1), options.pop("geometry", None)
    sizes = shape[::-1]
    if channels != 1 and sizes[:1] != [channels]:
        raise SpecError(f"{kind}: the last size of shape = {shape} must be the number of channels, {_quoted(channels)}")
    sizes = sizes[channels != 1 :]
    layered = geometry is not None and geometry not in ("1d", "2d", "3d")
    type = next((name for name, known in textures.TYPES.items() if dtype == known), str(dtype))
    linear = options.pop("linear", False)
    if "address" in options:
        options["address_mode"] = options.pop("address")

    def make(address):
        image = textures.image(
            address, type, sizes[: len(sizes) - layered], channels, geometry=geometry, layers=sizes[-1] if layered else 1, linear=linear
        )
        return textures.texture(image, **options) if kind == "texture" else textures.Surface(image)

    try:
        make(0)
    except (LaunchError, TypeError, ValueError) as error:
        raise SpecError(f"{kind} = {_quoted(table)}: {error}") from None
    return make


def _filled(fill, seed, shape, dtype, folder):
    """(array, whether it has contents)."""
    if isinstance(fill, (int, float)):
        return np.full(shape, fill).astype(dtype), True
    if not isinstance(fill, str):
        raise SpecError(f"fill = {_quoted(fill)} is unknown; it is one of {', '.join(_FILLS)}, a number or a file .npy")
    if fill.endswith(".npy"):
        return _file(fill, shape, dtype, folder), True
    if fill == "random":
        if type(seed) is not int or seed < 0:
            raise SpecError(f"seed = {_quoted(seed)} is no whole number")
        rng = np.random.default_rng(seed)
        if dtype.kind in "biu":
            return rng.integers(0, 2 if dtype.kind == "b" else 128, shape).astype(dtype), True
        if dtype == np.dtype(ml_dtypes.float8_e8m0fnu):
            return np.exp2(rng.integers(-4, 5, shape)).astype(dtype), True
        return rng.standard_normal(shape).astype(dtype), True
    if fill == "arange":
        return np.arange(math.prod(shape)).reshape(shape).astype(dtype), True
    if fill not in _FILLS:
        raise SpecError(f"fill = {_quoted(fill)} is unknown; it is one of {', '.join(_FILLS)}, a number or a file .npy")
    return np.full(shape, fill == "ones").astype(dtype), fill != "empty"


def _file(name, shape, dtype, folder):
    if not isinstance(name, str):
        raise SpecError(f"{_quoted(name)} is no file .npy")
    try:
        array = np.load(folder / name, allow_pickle=False)
    except Exception as error:  # a hostile header makes numpy raise many kinds
        raise SpecError(f"{_quoted(name)}: {type(error).__name__}: {error}") from None
    if not isinstance(array, np.ndarray) or array.shape != shape:
        raise SpecError(f"{_quoted(name)} has the shape {getattr(array, 'shape', None)}, expected {shape}")
    if array.dtype.kind == "V":  # numpy writes ml_dtypes' floats as bytes without a name
        if array.dtype.itemsize != dtype.itemsize:
            raise SpecError(f"{_quoted(name)} has elements of {array.dtype.itemsize} bytes, {dtype} has {dtype.itemsize}")
        return array.view(dtype)
    if array.dtype.kind not in "biuf":
        raise SpecError(f"{_quoted(name)} has dtype {array.dtype}")
    return np.ascontiguousarray(array.astype(dtype))
