"""Texture instructions: tex, tld4 and txq with handles in registers, as nvcc compiles texture objects."""

import numpy as np

from .. import memory, textures
from ..errors import EmulatorError
from ..lanes import mask_of
from ..parser import Address, PredicatePair, Register, TensorAddress, Vector
from . import bits_of, instruction

_COMPONENTS = ("r", "g", "b", "a")
_INTEGERS = {"u32": np.uint32, "s32": np.int32}


def handle_of(ins, operand):
    """The slot of a handle in brackets: in a register, or the address of a reference."""
    if isinstance(operand, TensorAddress):
        operand = operand.map
    base = operand.base if isinstance(operand, Address) and not operand.offset else operand
    if not isinstance(base, Register) and getattr(base, "type", None) not in ("texref", "surfref"):
        ins.unsupported("the texture or surface is neither a handle in a register nor a .texref or .surfref")
    return ins.read(base, "u64")


def part_of(lanes, chosen):
    """The lanes whose flag is set. `chosen` has a flag for each lane of `lanes`."""
    full = np.zeros(32, bool)
    full[mask_of(lanes)] = chosen
    return bits_of(full)


def objects(ins, warp, lanes, slot, kind):
    """(object, its lanes) for each handle. Reports a handle of no object of this kind, and yields None for it."""
    handles = memory.select(warp.values[slot], lanes)
    known = warp.machine.device.textures
    for handle in dict.fromkeys(handles.tolist()):
        part = part_of(lanes, handles == handle)
        found = known.get(handle)
        if not isinstance(found, kind):
            name = next((name for (_, name), address in warp.machine.device.variables.items() if address == handle), None)
            words = f"{handle:#x} is the handle of no {kind.__name__.lower()}"
            if name is not None:
                words = f"nothing is bound to the reference {name} (Device.bind, or `reference = true` of an argument)"
            ins.report(warp, part, "invalid-descriptor", words + (f": it is a {type(found).__name__.lower()}'s" if found else ""))
            found = None
        yield found, part


def coordinates_of(ins, geometry, type, k=1):
    """(slot of the layer or None, slots of the coordinates)"""
    address = ins.operands[k]
    items = ins.items(address.coordinates)
    if address.rest:
        ins.unsupported("it has a sampler of its own (.texmode_independent)")
    layered = geometry in ("a1d", "a2d", "acube")
    count = 3 if "cube" in geometry else textures.GEOMETRIES[geometry]
    if len(items) < layered + count:
        ins.unsupported(f"{len(items)} coordinates for .{geometry}")
    layer = ins.read(items[0], "u32") if layered else None
    return layer, [ins.read(item, type) for item in items[layered : layered + count]]


def check_written(ins, warp, lanes, addresses, size):
    """Reports reads of bytes that this launch has written: caches of textures and surfaces may hold old values."""
    marks = warp.machine.memory.marks
    if marks is None:
        return
    index = addresses - memory.GLOBAL_BASE
    good = (index >= 0) & (index + size <= marks[1].size)
    written = good.copy()
    written[good] = (marks[1][index[good][:, None] + np.arange(size)] & memory.WRITTEN).any(axis=1)
    if written.any():
        address = int(addresses[written][0])
        words = (
            f"it reads {address:#x}, which this launch has written: textures and surfaces are not coherent with writes of the same launch"
        )
        ins.report(warp, part_of(lanes, written), "race", words, address)


def _read(ins, warp, lanes, image, tap, layer, chosen):
    """(lanes, channels) texels; zeros in lanes that are not chosen."""
    data = np.zeros((len(chosen), image.channels), image.dtype)
    if chosen.any():
        part = part_of(lanes, chosen)
        x, *others = (index[chosen] for index in tap.indices)
        addresses = image.addresses(x * image.texel, others, layer[chosen])
        check_written(ins, warp, part, addresses, image.texel)
        found = memory.read_global(ins, warp, part, addresses, image.texel)
        data[chosen] = np.ascontiguousarray(found).view(image.dtype).reshape(-1, image.channels)
    return data


def _texels(ins, warp, lanes, texture, tap, layer, converted, border):
    """(lanes, 4) texels of a tap, each `converted`: with the border's, and with what absent channels give."""
    image = texture.image
    data = converted(_read(ins, warp, lanes, image, tap, layer, tap.inside & (tap.weight > 0)))
    values = np.zeros((len(data), 4), data.dtype)
    values[:, : image.channels] = data
    values[~tap.inside] = border
    return values


def _values(ins, warp, lanes, texture, tap, layer):
    """(lanes, 4) values of one texel of each lane."""
    border = np.zeros(4) if texture.image.linear else np.array(texture.border)
    border = border if texture.gives_floats else border.astype(np.int64)
    return _texels(ins, warp, lanes, texture, tap, layer, lambda data: textures.as_read(texture, data), border)


def _filtered(ins, warp, lanes, texture, taps, layer):
    """(lanes, 4) values of all texels around a coordinate."""
    border = textures.border_texel(texture)
    texels = [_texels(ins, warp, lanes, texture, tap, layer, lambda data: textures.as_filtered(texture, data), border) for tap in taps]
    found = textures.filtered(texture, np.stack(texels), [tap.weight for tap in taps])
    outside = np.logical_and.reduce([~tap.inside | (tap.weight == 0) for tap in taps])
    found[outside] = texture.border
    return found


class _Fetch:
    """What tex and tld4 have in common: the destinations, the handle and the coordinates."""

    def __init__(self, ins, geometry, type, coordinate_type, more=0):
        """more: operands between the coordinates and offsets"""
        destination = ins.operands[0]
        resident = None
        if isinstance(destination, PredicatePair):
            destination, resident = destination.first, ins.write(destination.second, "pred")
        self.ins, self.geometry, self.type = ins, geometry, type
        self.resident = resident
        self.destinations = ins.write_list(destination, type)
        if not isinstance(ins.operands[1], TensorAddress) or len(self.destinations) != 4:
            ins.unsupported("it needs four destinations and a texture with coordinates")
        self.handle = handle_of(ins, ins.operands[1])
        self.layer, self.coordinates = coordinates_of(ins, geometry, coordinate_type)
        self.offsets = self._offsets(2 + more)
        ins.program.reads_textures = True

    def _offsets(self, k):
        """Slots of whole texels that are added to the coordinates."""
        ins = self.ins
        if len(ins.operands) == k:
            return []
        items = ins.items(k)
        dimensions = textures.GEOMETRIES[self.geometry]
        compares = len(items) == 1 and isinstance(items[0], Register) and items[0].type == "f32"
        if len(ins.operands) > k + 1 or compares:
            ins.unsupported("it compares depths")
        if "cube" in self.geometry or len(items) < dimensions:
            ins.unsupported(f"{len(items)} offsets for .{self.geometry}")
        return [ins.read(item, "s32") for item in items[:dimensions]]

    def run(self, warp, lanes, fetch):
        """fetch(texture, lanes, coordinates, layer, offsets) -> (lanes, 4) values"""
        ins, values = self.ins, warp.values
        for texture, part in objects(ins, warp, lanes, self.handle, textures.Texture):
            mask = mask_of(part)
            result = np.zeros((part.bit_count(), 4))
            if texture is not None and self._fits(warp, part, texture):
                offsets = [memory.select(values[slot], part).astype(np.int64) for slot in self.offsets]
                coordinates = [memory.select(values[slot], part) for slot in self.coordinates]
                layer = np.zeros(len(result), np.int64)
                if self.layer is not None:
                    layer = memory.select(values[self.layer], part).astype(np.int64)
                result = fetch(texture, part, coordinates, layer, offsets)
            result = result.astype(np.float32) if self.type == "f32" else result.astype(np.int64).astype(_INTEGERS[self.type])
            for slot, column in zip(self.destinations, result.T):
                if slot is not None:
                    values[slot][mask] = column
            if self.resident is not None:
                values[self.resident][mask] = True

    def _fits(self, warp, lanes, texture):
        image = texture.image
        if image.geometry != self.geometry:
            words = f"it reads a .{self.geometry} texture, and the handle is of a .{image.geometry} texture"
            self.ins.report(warp, lanes, "invalid-descriptor", words)
            return False
        if texture.gives_floats != (self.type == "f32"):
            words = f"it reads .{self.type}, and a texture of {image.type} with {texture.read} reads gives {'floats' if texture.gives_floats else 'integers'}"
            self.ins.report(warp, lanes, "invalid-descriptor", words)
            return False
        return True

    def on_face(self, texture, coordinates, layer):
        """Coordinates and layer; of a cube, those on the face that the direction meets."""
        layers = texture.image.layers
        if "cube" not in self.geometry:
            return coordinates, np.minimum(layer, layers - 1)
        face, x, y = textures.cube_face(*coordinates)
        return [x, y], np.minimum(layer, layers // 6 - 1) * 6 + face


def _refuse_rare(ins):
    words = ins.opcode.split(".")
    if "2dms" in words or "a2dms" in words:
        ins.unsupported("the texture has several samples a texel")
    if "f16x2" in words:
        ins.unsupported("it gives halves")


@instruction("tex")
def fetch(ins):
    """Read a texture at coordinates, filtered"""
    level = ins.choice("base", "level", "grad", default="base")
    _refuse_rare(ins)
    geometry = ins.choice(*textures.GEOMETRIES)
    ins.choice("v4")
    types = ins.types()
    if len(types) != 2 or types[0] not in ("f32", *_INTEGERS) or types[1] not in ("f32", "s32"):
        ins.unsupported("it needs the types of a texel, .f32, .u32 or .s32, and of coordinates, .f32 or .s32")
    more = {"base": 0, "level": 1, "grad": 2}[level]
    common = _Fetch(ins, geometry, *types, more)
    operands = [ins.operands[k] for k in range(2, 2 + more)]
    details = [[ins.read(one, types[1]) for one in (of.items if isinstance(of, Vector) else [of])] for of in operands]
    floats = types[1] == "f32"

    def detail_of(warp, texture, lanes):
        given = [[memory.select(warp.values[slot], lanes) for slot in slots] for slots in details]
        if level == "grad" and "cube" in geometry:
            raise EmulatorError("derivatives of a cube with several levels are not covered")
        return textures.detail_of(texture, *given) if level == "grad" else given[0][0] if given else np.zeros(lanes.bit_count())

    def look_up(warp, texture, lanes, coordinates, layer, offsets):
        if not texture.levels:
            return look_up_level(warp, texture, lanes, coordinates, layer, offsets)
        found = np.zeros((len(layer), 4))
        for numbers, weights in textures.at_levels(texture, detail_of(warp, texture, lanes)):
            for number in np.unique(numbers[weights > 0]):
                chosen = (numbers == number) & (weights > 0)
                arrays = [[array[chosen] for array in arrays] for arrays in (coordinates, [layer], offsets)]
                read = look_up_level(warp, texture.level(number), part_of(lanes, chosen), arrays[0], arrays[1][0], arrays[2])
                found[chosen] += read * (weights[chosen] / 256)[:, None]
        return found

    def look_up_level(warp, texture, lanes, coordinates, layer, offsets):
        if texture.image.linear and floats:
            ins.report(warp, lanes, "invalid-descriptor", "linear memory is read by integer coordinates (tex1Dfetch), not by float ones")
            return np.zeros((len(layer), 4))
        coordinates, layer = common.on_face(texture, coordinates, layer)
        found = (textures.taps if floats else textures.texel)(texture, coordinates, offsets)
        return (
            _values(ins, warp, lanes, texture, found[0], layer) if len(found) == 1 else _filtered(ins, warp, lanes, texture, found, layer)
        )

    def run(warp, lanes):
        common.run(warp, lanes, lambda *arguments: look_up(warp, *arguments))

    return run


@instruction("tld4")
def gather(ins):
    """One component of the four texels that linear filtering would combine, counter-clockwise from the lower left"""
    component = _COMPONENTS.index(ins.choice(*_COMPONENTS))
    _refuse_rare(ins)
    geometry = ins.choice("2d", "a2d", "cube", "acube")
    ins.choice("v4")
    types = ins.types()
    if len(types) != 2 or types[0] not in ("f32", *_INTEGERS) or types[1] != "f32":
        ins.unsupported("it needs the types of a texel, .f32, .u32 or .s32, and of coordinates, .f32")
    common = _Fetch(ins, geometry, *types)

    def look_up(warp, texture, lanes, coordinates, layer, offsets):
        coordinates, layer = common.on_face(texture, coordinates, layer)
        found = textures.footprint(texture, coordinates, offsets)
        for tap in found:
            tap.weight = np.ones(len(layer))
        corners = [_values(ins, warp, lanes, texture, tap, layer)[:, component] for tap in found]
        return np.stack([corners[2], corners[3], corners[1], corners[0]], axis=1)

    def run(warp, lanes):
        common.run(warp, lanes, lambda *arguments: look_up(warp, *arguments))

    return run


@instruction("istypep")
def is_of_type(ins):
    """Whether a handle is a texture's, a sampler's or a surface's"""
    kind = {"texref": textures.Texture, "surfref": textures.Surface, "samplerref": ()}[ins.choice("texref", "samplerref", "surfref")]
    ins.expect_operands(2)
    handle, destination = ins.read(1, "u64"), ins.write(0, "pred")

    def run(warp, lanes):
        known, mask = warp.machine.device.textures, mask_of(lanes)
        if destination is not None:
            warp.values[destination][mask] = [isinstance(known.get(one), kind) for one in warp.values[handle][mask].tolist()]

    return run


@instruction("txq")
def query_texture(ins):
    """A property of a texture"""
    level = ins.flag("level")
    name = ins.choice("width", "height", "depth", "array_size", "normalized_coords", "num_mipmap_levels", "num_samples")
    ins.choice("b32")
    ins.expect_operands(2 + level)
    if level:
        ins.read(2, "b32")

    def answer(texture):
        if name == "normalized_coords":
            return int(texture.normalized)
        if name == "num_mipmap_levels":
            return 1 + len(texture.levels)
        if level and texture.levels:
            raise EmulatorError("txq.level of a texture with several levels is not covered")
        return 1 if name == "num_samples" else texture.image.size(name)

    return query(ins, textures.Texture, answer)


def query(ins, kind, answer):
    """The closure for d = answer(object)."""
    handle, destination = handle_of(ins, ins.operands[1]), ins.write(0, "b32")

    def run(warp, lanes):
        for found, part in objects(ins, warp, lanes, handle, kind):
            if destination is not None:
                warp.values[destination][mask_of(part)] = 0 if found is None else answer(found)

    return run
