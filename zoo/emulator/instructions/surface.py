"""Surface instructions: suld, sust, sured and suq with handles in registers. x counts bytes, in formatted instructions (.p) texels."""

import numpy as np

from .. import memory, textures
from ..lanes import mask_of
from ..parser import TensorAddress, Vector
from . import instruction
from .memory import combine
from .texture import check_written, coordinates_of, handle_of, objects, part_of, query

_BYTES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8}
_REDUCTIONS = {
    "add": ("u32", "s32", "u64"), "min": ("u32", "s32", "u64", "s64"), "max": ("u32", "s32", "u64", "s64"), "and": ("b32",), "or": ("b32",),
}  # fmt: skip


class _Place:
    """The bytes that a surface instruction accesses, from its operand [handle, coordinates] and its modifiers."""

    def __init__(self, ins, k, geometries=("1d", "2d", "3d", "a1d", "a2d")):
        self.ins = ins
        self.geometry = ins.choice(*geometries)
        self.outside = ins.choice("trap", "clamp", "zero", default="trap")
        operand = ins.operands[k]
        if not isinstance(operand, TensorAddress):
            ins.unsupported("it has no surface with coordinates")
        self.handle = handle_of(ins, operand)
        self.layer, self.coordinates = coordinates_of(ins, self.geometry, "s32", k)
        ins.program.reads_textures = True

    def parts(self, warp, lanes):
        """(image of the surface or None, lanes) for each handle."""
        for surface, part in objects(self.ins, warp, lanes, self.handle, textures.Surface):
            if surface is None:
                yield None, part
                continue
            image = surface.image
            plain = "a2d" if "cube" in image.geometry else image.geometry
            if plain != self.geometry:
                words = f"it accesses a .{self.geometry} surface, and the handle is of a .{image.geometry} surface"
                self.ins.report(warp, part, "invalid-descriptor", words)
                image = None
            yield image, part

    def addresses(self, warp, lanes, image, size, scale=1):
        """(addresses of `size` bytes, whether each lane accesses them)"""
        x, *others = (memory.select(warp.values[slot], lanes).astype(np.int64) for slot in self.coordinates)
        layer = np.zeros_like(x) if self.layer is None else memory.select(warp.values[self.layer], lanes).astype(np.int64)
        x = x * scale
        aligned = x % size == 0
        if not aligned.all():
            words = f"an access of {size} bytes at byte {int(x[~aligned][0])} of a row needs {size}-byte alignment"
            self.ins.report(warp, part_of(lanes, ~aligned), "misaligned", words)
        row = image.dims[0] * image.texel
        limits = [(row - size) // size * size, *(extent - 1 for extent in image.dims[1:]), image.layers - 1]
        indices = [x, *others, layer]
        inside = np.logical_and.reduce([(index >= 0) & (index <= limit) for index, limit in zip(indices, limits)])
        if self.outside == "trap" and not inside.all():
            at = ", ".join(str(int(index[~inside][0])) for index in indices[: None if self.layer is not None else -1])
            words = f"it accesses ({at}) of a surface with rows of {row} bytes, dims {image.dims} and {image.layers} layers, and traps"
            self.ins.report(warp, part_of(lanes, ~inside), "out-of-bounds", words)
        x, *others, layer = (np.clip(index, 0, max(limit, 0)) for index, limit in zip(indices, limits))
        does = aligned & (np.full(len(inside), limits[0] >= 0) if self.outside == "clamp" else inside)
        return image.addresses(x, others, layer), does


def _vector(ins):
    return int(ins.choice("v2", "v4", default="v1")[1:])


@instruction("suld.b")
def load(ins):
    """Load bytes of a surface"""
    ins.choice("ca", "cg", "cs", "cv", default=None)
    count = _vector(ins)
    size = _BYTES[ins.choice(*_BYTES)]
    ins.expect_operands(2)
    destinations = [(ins.write(item, f"b{ins.register_bits(item) or 16}"), item) for item in ins.items(0)]
    if len(destinations) != count or any((ins.register_bits(item) or 64) < 8 * size for _, item in destinations):
        ins.unsupported("the destinations do not fit the modifiers")
    place, total = _Place(ins, 1), size * count

    def run(warp, lanes):
        for image, part in place.parts(warp, lanes):
            data = np.zeros((part.bit_count(), count), f"u{size}")
            if image is not None:
                addresses, does = place.addresses(warp, part, image, total)
                if does.any():
                    reading = part_of(part, does)
                    check_written(ins, warp, reading, addresses[does], total)
                    found = memory.read_global(ins, warp, reading, addresses[does], total)
                    data[does] = np.ascontiguousarray(found).view(f"u{size}").reshape(-1, count)
            for (slot, _), column in zip(destinations, data.T):
                if slot is not None:
                    warp.values[slot][mask_of(part)] = column

    return run


def _source(ins, k, kind, count):
    items = ins.items(k) if isinstance(ins.operands[k], Vector) else [ins.operands[k]]
    if len(items) != count:
        ins.unsupported("the vector's length and the modifier disagree")
    return [ins.read(item, kind, wide=True) for item in items]


def _write(ins, warp, lanes, addresses, does, rows):
    """rows: (lanes, bytes)"""
    if does.any():
        size = rows.shape[1]
        data = np.ascontiguousarray(rows[does]).view(f"u{min(size, 8)}")
        memory.write_global(ins, warp, part_of(lanes, does), addresses[does], size, data if size > 8 else data[:, 0])


@instruction("sust.b")
def store(ins):
    """Store bytes of a surface"""
    ins.choice("wb", "cg", "cs", "wt", default=None)
    count = _vector(ins)
    kind = ins.choice(*_BYTES)
    size = _BYTES[kind]
    ins.expect_operands(2)
    place, sources = _Place(ins, 0), _source(ins, 1, kind, count)

    def run(warp, lanes):
        for image, part in place.parts(warp, lanes):
            if image is not None:
                addresses, does = place.addresses(warp, part, image, size * count)
                columns = [memory.select(warp.values[slot], part).astype(f"u{size}") for slot in sources]
                _write(ins, warp, part, addresses, does, np.stack(columns, axis=1).view(np.uint8))

    return run


@instruction("sust.p")
def store_formatted(ins):
    """Store texels, each 32-bit value converted to the surface's type; integers saturate"""
    count = _vector(ins)
    ins.choice("b32")
    ins.expect_operands(2)
    place, sources = _Place(ins, 0, ("1d", "2d", "3d")), _source(ins, 1, "b32", count)

    def run(warp, lanes):
        for image, part in place.parts(warp, lanes):
            if image is None:
                continue
            addresses, does = place.addresses(warp, part, image, image.texel, image.texel)
            words = np.stack([memory.select(warp.values[slot], part) for slot in sources], axis=1)
            given = words.view({"f": np.float32, "u": np.uint32, "s": np.int32}[image.type[0]])[:, : image.channels]
            texels = np.zeros((len(given), image.channels), image.dtype)
            if image.type[0] != "f":
                given = given.clip(np.iinfo(image.dtype).min, np.iinfo(image.dtype).max)
            texels[:, : given.shape[1]] = given.astype(image.dtype)
            _write(ins, warp, part, addresses, does, texels.view(np.uint8))
            if given.shape[1] < image.channels and does.any():  # the other channels become undefined
                first = addresses[does][:, None] - memory.GLOBAL_BASE
                rest = np.arange(given.shape[1] * image.dtype.itemsize, image.texel)
                warp.machine.memory.states[1][first + rest] &= ~np.uint8(memory.WRITTEN)

    return run


@instruction("sured.b", "sured.p")
def reduce(ins):
    """Combine a value with one in a surface, lanes one after the other in order of lane"""
    formatted = ".p." in f"{ins.opcode}."
    name = ins.choice(*_REDUCTIONS)
    given = ins.type()
    if given not in (("b32", "b64") if formatted else _REDUCTIONS[name]) or (given == "b64" and name not in ("min", "max")):
        ins.unsupported(f".{name} on .{given}")
    ins.expect_operands(2)
    place = _Place(ins, 0, ("1d", "2d", "3d"))
    (source,) = _source(ins, 1, f"b{given[1:]}", 1)
    size = int(given[1:]) // 8

    def run(warp, lanes):
        for image, part in place.parts(warp, lanes):
            if image is None:
                continue
            type = f"{image.type[0]}{8 * size}" if formatted else given
            if type[0] == "f" or (formatted and image.texel != size):
                ins.report(warp, part, "invalid-descriptor", f"it reduces {size} bytes, and the surface has texels of {image.type}")
                continue
            addresses, does = place.addresses(warp, part, image, size, size if formatted else 1)
            if not does.any():
                continue
            dtype, chosen = np.dtype(f"i{size}" if type[0] == "s" else f"u{size}"), part_of(part, does)
            addresses, operands = addresses[does], memory.select(warp.values[source], part).view(dtype)[does]
            before = memory.read_global(ins, warp, chosen, addresses, size).view(dtype)
            function, current = combine(name, type), dict(zip(addresses.tolist(), before))
            for address, operand in zip(addresses.tolist(), operands):
                current[address] = dtype.type(function(current[address], operand))
            final = np.array([current[address] for address in addresses.tolist()], dtype)
            memory.write_global(ins, warp, chosen, addresses, size, final.view(f"u{size}"))

    return run


@instruction("suq")
def query_surface(ins):
    """A property of a surface"""
    name = ins.choice("width", "height", "depth", "array_size")
    ins.choice("b32")
    ins.expect_operands(2)
    return query(ins, textures.Surface, lambda surface: surface.image.size(name))
