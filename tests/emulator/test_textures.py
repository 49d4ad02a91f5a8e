"""Textures and surfaces by handle: texels beside scalar code of the programming guide's formulas, and findings of wrong accesses."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from core_support import kernel, kinds, launch, only

from zoo import emulator
from zoo.emulator import UnsupportedInstruction, textures
from zoo.emulator.arguments import read as read_arguments
from zoo.emulator.check import run
from zoo.emulator.errors import LaunchError

RNG = np.random.default_rng(7)


# ---- the formulas, one coordinate at a time
def index(i, extent, mode):
    if mode == "border":
        return i if 0 <= i < extent else None
    if mode == "mirror":
        turn, i = divmod(i, extent)
        return i if turn % 2 == 0 else extent - 1 - i
    return i % extent if mode == "wrap" else min(max(i, 0), extent - 1)


def side(x, extent, mode, normalized):
    """(lower index, upper index, fraction in 256ths), None for the border"""
    if not normalized and mode in ("wrap", "mirror"):
        mode = "clamp"
    low, fraction = divmod(math.floor(x * (extent if normalized else 1) * 256 + 0.5) - 128, 256)
    both = [index(low, extent, mode), index(low + 1, extent, mode)]
    return *both, 0 if mode == "clamp" and both[0] == both[1] else fraction


def nearest(x, extent, mode, normalized):
    if not normalized and mode in ("wrap", "mirror"):
        mode = "clamp"
    return index(math.floor(x * (extent if normalized else 1)), extent, mode)


def rounded(exact, digits):
    """A fraction to so many binary digits, halves away from zero."""
    if not exact:
        return 0.0
    unit = Fraction(2) ** (math.frexp(float(exact))[1] - digits)
    return math.copysign(float(math.floor(abs(exact) / unit + Fraction(1, 2)) * unit), exact)


def weights(x, y, z):
    """{(z, y, x): 256ths}: the whole is divided along z, then x, then y."""
    found = {}
    for at_z, whole in enumerate((256 - z, z)):
        right = (whole * x + 128) >> 8
        left = whole - right
        found[at_z, 0, 0] = (left * (256 - y) + 128) >> 8
        found[at_z, 1, 0] = left - found[at_z, 0, 0]
        found[at_z, 1, 1] = (right * y + 128) >> 8
        found[at_z, 0, 1] = right - found[at_z, 1, 1]
    return found


def combined(parts, type, kept=28, digits=24):
    """The weighted sum of one channel: parts[z] = [(texel, weight)] of each z."""
    if type[0] == "f":
        total = Fraction(0)
        for part in parts:
            part = [(Fraction(float(texel)), weight) for texel, weight in part if weight]
            unit = Fraction(2) ** (max((math.frexp(float(texel))[1] for texel, _ in part if texel), default=0) - kept)
            total += sum(int(texel / unit) * unit * weight for texel, weight in part)
        return rounded(total / 256, digits)
    total = sum(int(texel) * weight for part in parts for texel, weight in part)
    if type == "s8":
        return max((total + ((total + 64 + 16 * (total >> 12)) >> 7)) / 32767, -1)
    if type == "u8":
        total *= 257
    return max(((total + 128) >> 8) / (32767 if type == "s16" else 65535), -1)


def looked_up(texels, coordinates, modes, normalized, linear, border, type="f32"):
    """texels: [z, y, x, channel], or fewer dimensions; coordinates x, y, z"""
    coordinates, dimensions = [float(x) for x in coordinates], texels.ndim - 1
    extents, channels = texels.shape[-2::-1], texels.shape[-1]
    if not linear:
        place = [nearest(x, extent, mode, normalized) for x, extent, mode in zip(coordinates, extents, modes, strict=False)]
        return np.float32(border[:channels] if None in place else texels[tuple(place[::-1])])
    if dimensions == 1:  # is as high as a texel, at y = 0
        texels, coordinates, extents, dimensions = texels[None], [*coordinates[:1], 0.0], (*extents, 1), 2
    ways = [side(x, extent, mode, normalized) for x, extent, mode in zip(coordinates, extents, modes, strict=False)]
    fractions = [way[2] for way in ways] + [0] * (3 - dimensions)
    parts = [[], []]
    for corner, weight in weights(*fractions).items():
        place = [way[which] for way, which in zip(ways, corner[::-1], strict=False)]
        parts[corner[0]].append((border[:channels] if None in place else texels[tuple(place[::-1])], weight))
    return np.float32(
        [combined([[(texel[k], weight) for texel, weight in part if weight] for part in parts], type) for k in range(channels)]
    )


# ---- kernels: thread i reads its coordinates from rows of %rd2 and writes four words to %rd0
def fetching(instruction, coordinates, layer=False, type="f32"):
    register = {"f32": "%f", "s32": "%r"}[type]
    loads = "".join(
        f"mul.wide.u32 %rd10, %r0, 4; add.s64 %rd10, %rd10, %rd2; ld.global.b32 {register}{10 + k}, [%rd10+{128 * k}];\n"
        for k in range(coordinates)
    )
    if layer:
        loads += f"mul.wide.u32 %rd10, %r0, 4; add.s64 %rd10, %rd10, %rd2; ld.global.b32 %r30, [%rd10+{128 * coordinates}];\n"
    result = "%f" if ".f32" in instruction.split("v4")[1][:4] else "%r"
    values = ", ".join(f"{result}{k}" for k in range(1, 5))
    stores = "".join(f"st.global.b32 [%rd11+{4 * k}], {result}{k + 1};\n" for k in range(4))
    return kernel(
        loads + instruction.replace("RESULT", f"{{{values}}}") + f"\nmul.wide.u32 %rd11, %r0, 16; add.s64 %rd11, %rd11, %rd0;\n{stores}",
        parameters=3,
    )


def fetched(gpu, handle, instruction, *coordinates, layer=None, dtype=np.float32, **options):
    """(32, 4) values"""
    result = gpu.alloc(32 * 16)
    rows = [np.asarray(row).astype(np.int32 if ".s32 RESULT" in instruction else np.float32) for row in coordinates]
    count, type = len(rows), "s32" if ".s32 RESULT" in instruction else "f32"
    if layer is not None:
        rows.append(np.asarray(layer, np.int32).view(rows[0].dtype) if type == "f32" else np.asarray(layer, np.int32))
    data = gpu.alloc(np.stack(rows))
    text = fetching(instruction, count, layer is not None, type)
    report = launch(text, device=gpu, params=[result, handle, data], **options)
    return gpu.read(result, (32, 4), dtype), report


def image_of(shape, dtype, channels):
    """Texels with a last dimension of channels."""
    kind = np.dtype(textures.TYPES[dtype])
    if kind.kind == "f":
        return RNG.standard_normal((*shape, channels)).astype(kind)
    whole = np.iinfo(kind)
    return RNG.integers(whole.min, whole.max, (*shape, channels), endpoint=True, dtype=kind)


TEX = {1: "tex.1d.v4.f32.f32 RESULT, [%rd1, {%f10}];", 2: "tex.2d.v4.f32.f32 RESULT, [%rd1, {%f10, %f11}];",
       3: "tex.3d.v4.f32.f32 RESULT, [%rd1, {%f10, %f11, %f12, %f12}];"}  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("mode", textures.ADDRESSES)
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_coordinates_beyond_the_edge_follow_the_addressing_mode(dimensions, normalized, linear, mode):
    gpu = emulator.Device()
    shape = (3, 5, 6)[3 - dimensions :]
    texels = image_of(shape, "f32", 2)
    border = (0.25, -3.0, 7.0, 9.0)
    handle = gpu.texture(
        gpu.alloc(texels), "f32", shape[::-1], 2, filter="linear" if linear else "point", address_mode=mode, normalized=normalized, border=border
    )  # fmt: skip
    coordinates = [RNG.uniform(-2.3, 3.3, 32) * (1 if normalized else extent) for extent in shape[::-1]]
    coordinates = [np.float32(row) for row in coordinates]
    found, report = fetched(gpu, handle, TEX[dimensions], *coordinates)
    assert report.ok, report
    expected = [looked_up(texels, point, (mode,) * 3, normalized, linear, border) for point in zip(*coordinates, strict=True)]
    np.testing.assert_array_equal(found[:, :2], expected)


# Results of an H200, and how its images were read. Keys without options: clamp, texels, elements.
RECORDED = np.load(Path(__file__).parent / "hardware" / "vectors" / "sm_90_textures.npz")
NAMES = sorted({key.partition(".")[0] for key in RECORDED})
BY_GEOMETRY = {
    "1d": TEX[1], "2d": TEX[2], "3d": TEX[3], "a2d": "tex.a2d.v4.f32.f32 RESULT, [%rd1, {%r30, %f10, %f11, %f11}];",
    "cube": "tex.cube.v4.f32.f32 RESULT, [%rd1, {%f10, %f11, %f12, %f12}];",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_filtered_read_gives_the_bits_of_an_h200(name):
    at, seen, image = (RECORDED[f"{name}.{part}"] for part in ("at", "gpu", "image"))
    dtype = next(key for key, kind in textures.TYPES.items() if image.dtype == kind)
    layers, *shape, channels = image.shape
    geometry = {"layers": "a2d", "cube_linear": "cube"}.get(name, f"{len(shape)}d")
    gpu = emulator.Device()
    handle = gpu.texture(
        gpu.alloc(image), dtype, shape[::-1], channels, geometry=geometry, layers=layers, filter="linear",
        address_mode=next((mode for mode in textures.ADDRESSES if mode in name), "clamp"),
        normalized=name == "cube_linear" or ("normalized" in name and image.dtype == np.float32), border=(3.5, 0, 0, 0),
        read="element" if dtype[0] == "f" else "normalized",
    )  # fmt: skip
    for half in (slice(0, 32), slice(32, 64)):
        *coordinates, layer = at[:, half] if geometry == "a2d" else (*at[:, half], None)
        found, report = fetched(gpu, handle, BY_GEOMETRY[geometry], *coordinates, layer=layer)
        assert report.ok
        np.testing.assert_array_equal(found[:, :channels].view(np.uint32), seen[half])


def test_an_infinite_texel_stays_infinite():
    gpu = emulator.Device()
    handle = gpu.texture(gpu.alloc(np.array([1, np.inf, 2, np.nan], np.float32)), "f32", (4,), filter="linear")
    values, report = fetched(gpu, handle, TEX[1], [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5] * 4 + [0.5] * 4)
    assert report.ok
    np.testing.assert_array_equal(values[:7, 0], np.float32([1, np.inf, np.inf, np.inf, 2, np.nan, np.nan]))


def test_each_dimension_has_its_own_addressing_mode():
    gpu = emulator.Device()
    texels = image_of((4, 4), "f32", 1)
    handle = gpu.texture(gpu.alloc(texels), "f32", (4, 4), address_mode=("wrap", "border"), normalized=True, border=(5, 0, 0, 0))
    x, y = np.float32(np.linspace(-1, 2, 32)), np.float32(np.linspace(1.5, -0.6, 32))
    found, report = fetched(gpu, handle, TEX[2], x, y)
    expected = [looked_up(texels, point, ("wrap", "border"), True, False, (5,)) for point in zip(x, y, strict=True)]
    assert report.ok
    np.testing.assert_array_equal(found[:, :1], expected)
    assert (found[:, 0] == 5).any()


@pytest.mark.parametrize("dtype", ["u8", "s8", "u16", "s16"])
@pytest.mark.parametrize("channels", [1, 2, 4])
def test_normalized_reads_are_filtered_as_whole_numbers(dtype, channels):
    gpu = emulator.Device()
    texels = image_of((3, 4), dtype, channels)
    texels[0, 0] = np.iinfo(texels.dtype).min
    handle = gpu.texture(gpu.alloc(texels), dtype, (4, 3), channels, filter="linear", read="normalized")
    x, y = np.float32(RNG.uniform(-1, 5, 32)), np.float32(RNG.uniform(-1, 4, 32))
    found, report = fetched(gpu, handle, TEX[2], x, y)
    assert report.ok
    expected = [looked_up(texels, point, ("clamp",) * 2, False, True, (), dtype) for point in zip(x, y, strict=True)]
    np.testing.assert_array_equal(found[:, :channels], expected)


@pytest.mark.parametrize("filter", ["point", "linear"])
def test_srgb_colours_become_linear_before_they_are_filtered(filter):
    gpu = emulator.Device()
    texels = image_of((3, 4), "u8", 4)
    texels[0, 0] = 0, 10, 255, 255  # on both sides of the curve's bend, 10.3
    border = (0.5, 0.25, 1.0, 0.125)
    modes = ("border", "clamp")
    handle = gpu.texture(
        gpu.alloc(texels), "u8", (4, 3), 4, filter=filter, read="normalized", srgb=True, address_mode=modes, border=border
    )  # fmt: skip
    x, y = np.float32(RNG.uniform(-1, 5, 32)), np.float32(RNG.uniform(-1, 4, 32))
    x[0] = y[0] = 0.5
    found, report = fetched(gpu, handle, TEX[2], x, y)
    assert report.ok
    linear = texels / 255
    colours = linear[..., :3]
    linear[..., :3] = np.float32(np.where(colours > 0.04045, ((colours + 0.055) / 1.055) ** 2.4, colours / 12.92))
    expected = [looked_up(linear, point, modes, False, filter == "linear", border, "f32") for point in zip(x, y, strict=True)]
    np.testing.assert_array_equal(found, np.float32(expected))
    assert found[0].tolist() == [0, np.float32(10 / 255 / 12.92), 1, 1]


@pytest.mark.parametrize("dtype", [*textures.TYPES])
@pytest.mark.parametrize("channels", [1, 4])
def test_elements_keep_their_type_and_sign(dtype, channels):
    gpu = emulator.Device()
    texels = image_of((40,), dtype, channels)
    handle = gpu.texture(gpu.alloc(texels), dtype, (40,), channels, linear=True)
    at = RNG.permutation(40)[:32]
    type = "f32" if dtype[0] == "f" else f"{dtype[0]}32"
    out = {"f32": np.float32, "s32": np.int32, "u32": np.uint32}[type]
    instruction = f"tex.1d.v4.{type}.s32 RESULT, [%rd1, {{%r10}}];"
    found, report = fetched(gpu, handle, instruction, at, dtype=out)
    assert report.ok, report
    np.testing.assert_array_equal(found[:, :channels], texels[at].astype(out))


def test_linear_memory_reads_zero_outside():
    gpu = emulator.Device()
    handle = gpu.texture(gpu.alloc(np.ones(8, np.float32)), "f32", (8,), linear=True)
    at = np.arange(-8, 24)
    found, report = fetched(gpu, handle, "tex.1d.v4.f32.s32 RESULT, [%rd1, {%r10}];", at)
    assert report.ok
    np.testing.assert_array_equal(found[:, 0], (at >= 0) & (at < 8))


def test_rows_of_pitched_memory_are_apart():
    gpu = emulator.Device()
    rows = np.full((4, 64), 99, np.uint8)
    texels = image_of((4, 12), "f32", 1)
    rows[:, :48] = texels.view(np.uint8).reshape(4, 48)
    handle = gpu.texture(gpu.alloc(rows), "f32", (12, 4), pitch=64)
    x, y = np.arange(32) % 12, np.arange(32) % 4
    found, report = fetched(gpu, handle, TEX[2], x + 0.5, y + 0.5)
    assert report.ok
    np.testing.assert_array_equal(found[:, 0], texels[y, x, 0])


@pytest.mark.parametrize(("geometry", "shape"), [("a1d", (5,)), ("a2d", (3, 5))])
def test_filtering_stays_within_the_layer(geometry, shape):
    gpu = emulator.Device()
    texels = image_of((4, *shape), "f32", 1)
    handle = gpu.texture(gpu.alloc(texels), "f32", shape[::-1], geometry=geometry, layers=4, filter="linear")
    coordinates = [np.float32(RNG.uniform(-1, 6, 32)) for _ in shape]
    layer = RNG.integers(0, 7, 32)
    more = ", %f11, %f11" if geometry == "a2d" else ""
    found, report = fetched(gpu, handle, f"tex.{geometry}.v4.f32.f32 RESULT, [%rd1, {{%r30, %f10{more}}}];", *coordinates, layer=layer)
    expected = [
        looked_up(texels[min(which, 3)], point, ("clamp",) * 2, False, True, ()) for which, *point in zip(layer, *coordinates, strict=True)
    ]
    assert report.ok
    np.testing.assert_array_equal(found[:, :1], expected)


@pytest.mark.parametrize("layered", [False, True])
def test_the_largest_component_of_a_direction_selects_the_face_of_a_cube(layered):
    gpu = emulator.Device()
    cubes = 2 if layered else 1
    texels = image_of((6 * cubes, 4, 4), "f32", 1)
    geometry = "acube" if layered else "cube"
    handle = gpu.texture(gpu.alloc(texels), "f32", (4, 4), geometry=geometry, layers=6 * cubes, normalized=True)
    s, t, r = np.float32(RNG.uniform(-1, 1, (3, 32)))
    layer = RNG.integers(0, cubes, 32)
    where = "{%r30, %f10, %f11, %f12}" if layered else "{%f10, %f11, %f12, %f12}"
    found, report = fetched(gpu, handle, f"tex.{geometry}.v4.f32.f32 RESULT, [%rd1, {where}];", s, t, r, layer=layer)
    expected = []
    for which, x, y, z in zip(layer, *(row.astype(float) for row in (s, t, r)), strict=True):
        longest = max(abs(x), abs(y), abs(z))
        face, a, b = (
            (0, -z, -y) if x == longest else (1, z, -y) if -x == longest else (2, x, z) if y == longest else (3, x, -z) if -y == longest
            else (4, x, -y) if z == longest else (5, -x, -y)
        )  # fmt: skip
        point = (a / longest + 1) / 2, (b / longest + 1) / 2
        expected.append(looked_up(texels[6 * which + face], point, ("clamp",) * 2, True, False, ()))
    assert report.ok
    np.testing.assert_array_equal(found[:, :1], expected)


@pytest.mark.parametrize("component", "rgba")
def test_a_gather_gives_the_corners_counter_clockwise(component):
    gpu = emulator.Device()
    texels = image_of((4, 5), "s16", 4)
    handle = gpu.texture(gpu.alloc(texels), "s16", (5, 4), 4)
    x, y = np.float32(RNG.uniform(-1, 6, 32)), np.float32(RNG.uniform(-1, 5, 32))
    instruction = f"tld4.{component}.2d.v4.s32.f32 RESULT, [%rd1, {{%f10, %f11}}];"
    found, report = fetched(gpu, handle, instruction, x, y, dtype=np.int32)
    assert report.ok
    for lane in range(32):
        left, right, _ = side(float(x[lane]), 5, "clamp", False)
        top, bottom, _ = side(float(y[lane]), 4, "clamp", False)
        corners = [texels[j, i, "rgba".index(component)] for i, j in ((left, bottom), (right, bottom), (right, top), (left, top))]
        assert found[lane].tolist() == corners


@pytest.mark.parametrize(
    "instruction",
    ["tex.level.2d.v4.f32.f32 RESULT, [%rd1, {%f10, %f11}], %f10;",
     "tex.grad.2d.v4.f32.f32 RESULT, [%rd1, {%f10, %f11}], {%f10, %f10}, {%f11, %f11};",
     "tex.base.2d.v4.f32.f32 RESULT, [%rd1, {%f10, %f11}];"],
)  # fmt: skip
def test_a_level_of_detail_changes_nothing_where_there_is_one_level(instruction):
    gpu = emulator.Device()
    texels = image_of((4, 5), "f32", 1)
    handle = gpu.texture(gpu.alloc(texels), "f32", (5, 4))
    x, y = RNG.integers(0, 5, 32), RNG.integers(0, 4, 32)
    found, report = fetched(gpu, handle, instruction, x + 0.5, y + 0.5)
    assert report.ok
    np.testing.assert_array_equal(found[:, 0], texels[y, x, 0])


def test_a_resident_texel_sets_the_predicate():
    gpu = emulator.Device()
    handle = gpu.texture(gpu.alloc(np.arange(8, dtype=np.float32)), "f32", (8,))
    instruction = "tex.1d.v4.f32.f32 RESULT|%p1, [%rd1, {%f10}]; @!%p1 mov.f32 %f1, 0fBF800000;"
    found, report = fetched(gpu, handle, instruction, np.arange(32) % 8)
    assert report.ok
    np.testing.assert_array_equal(found[:, 0], np.arange(32) % 8)


def test_lanes_with_different_handles_read_different_textures():
    gpu = emulator.Device()
    first, second = (gpu.texture(gpu.alloc(np.full(32, value, np.float32)), "f32", (32,)) for value in (3, 4))
    handles = np.where(np.arange(32) % 3 == 0, first, second).astype(np.uint64)
    body = "mul.wide.u32 %rd4, %r0, 8; add.s64 %rd4, %rd4, %rd3; ld.global.b64 %rd5, [%rd4]; tex.1d.v4.f32.f32 RESULT, [%rd5, {%f10}];"
    text = fetching(body, 1).replace("k_2\n)", "k_2,\n .param .u64 k_3\n)").replace("mov.u32 %r0", "ld.param.u64 %rd3, [k_3]; mov.u32 %r0")
    result, data = gpu.alloc(512), gpu.alloc(np.arange(32, dtype=np.float32))
    report = launch(text, device=gpu, params=[result, first, data, gpu.alloc(handles)])
    assert report.ok, report
    np.testing.assert_array_equal(gpu.read(result, (32, 4), np.float32)[:, 0], np.where(np.arange(32) % 3 == 0, 3, 4))


@pytest.mark.quick
def test_a_texel_that_nobody_wrote_is_reported():
    gpu = emulator.Device()
    written = np.ones(32 * 4, bool)
    written[4 * 5 : 4 * 6] = False
    handle = gpu.texture(gpu.alloc(np.ones(32, np.float32), written=written), "f32", (32,))
    at = np.arange(32) + 0.5
    assert "uninitialised-global" in kinds(fetched(gpu, handle, TEX[1], at)[1])
    assert fetched(gpu, handle, TEX[1], np.where(at == 5.5, 0, at))[1].ok


def test_the_memory_of_a_texture_may_not_be_freed_before_it_is_read():
    gpu = emulator.Device()
    address = gpu.alloc(np.ones(1 << 20, np.float32))
    handle = gpu.texture(address, "f32", (1 << 20,))
    far = (1 << 19) + np.arange(32)  # the next allocation reuses the beginning
    assert fetched(gpu, handle, TEX[1], far)[1].ok
    gpu.free(address)
    assert kinds(fetched(gpu, handle, TEX[1], far)[1]) == {"out-of-bounds"}


@pytest.mark.parametrize(
    "what",
    ["no handle", "a surface's", "another geometry", "integers as floats", "floats as integers", "float coordinates of linear memory"],
)
def test_a_handle_that_does_not_fit_the_instruction_is_reported(what):
    gpu = emulator.Device()
    floats, whole = gpu.alloc(np.ones((8, 8), np.float32)), gpu.alloc(np.ones((8, 8), np.int32))
    handle = {
        "no handle": lambda: 12,
        "a surface's": lambda: gpu.surface(floats, "f32", (8, 8)),
        "another geometry": lambda: gpu.texture(floats, "f32", (64,)),
        "integers as floats": lambda: gpu.texture(whole, "s32", (8, 8)),
        "floats as integers": lambda: gpu.texture(floats, "f32", (8, 8)),
        "float coordinates of linear memory": lambda: gpu.texture(floats, "f32", (64,), linear=True),
    }[what]()
    instruction = TEX[1] if "linear" in what else TEX[2].replace(".f32.f32", ".s32.f32") if what == "floats as integers" else TEX[2]
    assert kinds(fetched(gpu, handle, instruction, np.arange(32) % 8, np.arange(32) % 8)[1]) == {"invalid-descriptor"}


# ---- several levels of detail
def mipmap(gpu, **options):
    """(handle of a texture of 8 x 4 texels, its levels)"""
    levels = [image_of((max(1, 4 >> number), 8 >> number), "f32", 1) for number in range(4)]
    first, *others = (gpu.alloc(level) for level in levels)
    return gpu.texture(first, "f32", (8, 4), levels=others, normalized=True, **options), levels


@pytest.mark.parametrize("level_filter", ["point", "linear"])
@pytest.mark.parametrize("filter", ["point", "linear"])
@pytest.mark.parametrize(("bias", "clamp"), [(0, (0, math.inf)), (0.75, (0.5, 2.25)), (-1, (1, 1))])
def test_a_level_of_detail_selects_levels_and_their_weights(level_filter, filter, bias, clamp):
    gpu = emulator.Device()
    handle, levels = mipmap(gpu, filter=filter, level_filter=level_filter, level_bias=bias, level_clamp=clamp)
    x, y, detail = (np.float32(RNG.uniform(*ends, 32)) for ends in ((-0.2, 1.2), (-0.2, 1.2), (-2, 5)))
    found, report = fetched(gpu, handle, "tex.level.2d.v4.f32.f32 RESULT, [%rd1, {%f10, %f11}], %f12;", x, y, detail)
    assert report.ok
    for lane in range(32):
        wanted = min(max(float(detail[lane]) + bias, clamp[0]), clamp[1], 3)
        whole, fraction = (math.floor(wanted + 0.5), 0) if level_filter == "point" else divmod(math.floor(wanted * 256 + 0.5), 256)
        both = [
            looked_up(levels[min(number, 3)], (x[lane], y[lane]), ("clamp",) * 2, True, filter == "linear", ())[0]
            for number in (whole, whole + 1)
        ]
        assert found[lane, 0] == np.float32((float(both[0]) * (256 - fraction) + float(both[1]) * fraction) / 256)
    assert fetched(gpu, handle, TEX[2], x, y)[1].ok


def test_the_longer_derivative_gives_the_level_of_detail():
    gpu = emulator.Device()
    handle, levels = mipmap(gpu)
    x, y = np.float32(RNG.uniform(0, 1, 32)), np.float32(RNG.uniform(0, 1, 32))
    across = np.float32(np.resize([1.1 / 8, 2.1 / 8, 0.1 / 8, 16 / 8], 32))  # 1.1, 2.1, 0.1 and 16 texels
    down = np.float32(np.resize([0, 0, 4.1 / 4, 0], 32))  # 4.1 texels
    instruction = "tex.grad.2d.v4.f32.f32 RESULT, [%rd1, {%f10, %f11}], {%f12, %f14}, {%f14, %f13};"
    found, report = fetched(gpu, handle, instruction, x, y, across, down, np.zeros(32))
    assert report.ok
    expected = [
        looked_up(levels[number], point, ("clamp",) * 2, True, False, ())[0]
        for point, number in zip(zip(x, y, strict=True), np.resize([0, 1, 2, 3], 32), strict=True)
    ]
    np.testing.assert_array_equal(found[:, 0], expected)


@pytest.mark.parametrize(
    ("words", "of", "options"),
    [("one of u8", ("bf16", (4, 4)), {}), ("positive sizes", ("f32", (4, 0)), {}), ("number of channels", ("f32", (4, 4), 3), {}),
     ("layers do not go", ("f32", (4, 4)), {"layers": 2}), ("square faces", ("f32", (4, 4)), {"geometry": "cube", "layers": 5, "normalized": True}),
     ("cube has normalized", ("f32", (4, 4)), {"geometry": "cube", "layers": 6}), ("linear memory has", ("f32", (4, 4)), {"linear": True}),
     ("multiple of 32", ("f32", (4, 4)), {"pitch": 20}), ("filtering is for floats", ("u8", (4, 4)), {"filter": "linear"}),
     ("of 8 and 16 bits", ("u32", (4, 4)), {"read": "normalized"}), ("the address mode", ("f32", (4, 4)), {"address_mode": "repeat"}),
     ("must have 4 values", ("f32", (4, 4)), {"border": (1,)}), ("sRGB is for normalized", ("u8", (4, 4), 4), {"srgb": True}),
     ("levels need normalized", ("f32", (1, 1)), {"levels": [emulator.memory.GLOBAL_BASE]})],
)  # fmt: skip
def test_a_texture_that_no_device_supports_is_refused(words, of, options):
    gpu = emulator.Device()
    with pytest.raises(LaunchError, match=words):
        gpu.texture(gpu.alloc(4096), *of, **options)
    with pytest.raises(LaunchError, match="multiple of 512"):
        gpu.texture(gpu.alloc(4096) + 4, "f32", (4, 4))


def test_a_variable_that_is_no_reference_is_refused_with_its_line():
    text = kernel("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [image, {%f1, %f2}];").replace(
        ".visible", ".global .align 8 .b64 image;\n.visible"
    )
    with pytest.raises(UnsupportedInstruction, match=r"PTX line \d+.*neither a handle in a register nor a .texref or .surfref"):
        launch(text, params=[0, 0])


@pytest.mark.parametrize(
    ("instruction", "words"),
    [("tex.2d.v4.f32.f32 RESULT, [%rd1, %rd1, {%f10, %f11}];", "a sampler of its own"),
     ("tex.2d.v4.f32.f32 RESULT, [%rd1, {%f10, %f11}], %f10;", "compares depths"),
     ("tex.2d.v4.f32.f32 RESULT, [%rd1, {%f10, %f11}], {1, 1}, %f10;", "compares depths"),
     ("tld4.r.2d.v4.f32.f32 RESULT, [%rd1, {%f10, %f11}], %f10;", "compares depths"),
     ("tex.2dms.v4.f32.s32 RESULT, [%rd1, {%r1, %r1, %r1, %r1}];", "several samples a texel"),
     ("tex.2d.v2.f16x2.f32 {%r1, %r2}, [%rd1, {%f10, %f11}];", "gives halves"),
     ("tex.cube.v4.f32.f32 RESULT, [%rd1, {%f10, %f11, %f10, %f10}], {1, 1, 1, 1};", "4 offsets for .cube")],
)  # fmt: skip
def test_a_rare_form_is_refused_by_its_name(instruction, words):
    text = kernel(instruction.replace("RESULT", "{%f1, %f2, %f3, %f4}"))
    with pytest.raises(UnsupportedInstruction, match=words):
        launch(text, params=[0, 0])


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("linear", [False, True])
def test_offsets_count_whole_texels(dimensions, linear):
    gpu = emulator.Device()
    shape = (8, 6, 5)[:dimensions]
    texels = image_of(shape[::-1], "f32", 1)
    handle = gpu.texture(gpu.alloc(texels), "f32", shape, filter="linear" if linear else "point", address_mode="wrap", normalized=True)
    coordinates = [np.float32(RNG.integers(0, 256 * extent, 32) / (256 * extent)) for extent in shape]
    offsets = (2, -1, -3)[:dimensions]
    more = {1: "2", 2: "{2, -1}", 3: "{2, -1, -3, 0}"}[dimensions]
    found, report = fetched(gpu, handle, TEX[dimensions].replace("];", f"], {more};"), *coordinates)
    assert report.ok
    moved = np.roll(texels, [-offset for offset in offsets[::-1]], axis=tuple(range(dimensions)))
    expected, _ = fetched(
        gpu, gpu.texture(gpu.alloc(moved), "f32", shape, filter="linear" if linear else "point", address_mode="wrap", normalized=True),
        TEX[dimensions], *coordinates,
    )  # fmt: skip
    np.testing.assert_array_equal(found[:, 0], expected[:, 0])


def test_offsets_move_a_gather_and_a_read_by_whole_coordinates():
    gpu = emulator.Device()
    handle = gpu.texture(gpu.alloc(np.arange(48, dtype=np.float32)), "f32", (8, 6))
    x, y = np.arange(32) % 3 + 2, np.arange(32) % 2 + 3
    found, _ = fetched(gpu, handle, "tex.2d.v4.f32.s32 RESULT, [%rd1, {%r10, %r11}], {3, -2};", x, y)
    np.testing.assert_array_equal(found[:, 0], (y - 2) * 8 + x + 3)
    found, _ = fetched(gpu, handle, "tld4.r.2d.v4.f32.f32 RESULT, [%rd1, {%f10, %f11}], {3, -2};", x, y)
    np.testing.assert_array_equal(found, np.stack([(y - 2 + j) * 8 + x + 3 + i for i, j in ((-1, 0), (0, 0), (0, -1), (-1, -1))], axis=1))


REFERENCE = """
.version 7.5
.target sm_80
.address_size 64
.global .texref image;
.visible .entry k(.param .u64 result) {
    .reg .b32 %r<2>; .reg .f32 %f<6>; .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [result];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd1, %rd1, %rd0;
    cvt.rn.f32.u32 %f0, %r0;
    tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [image, {%f0}];
    mov.u64 %rd2, image;
    tex.1d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd2, {%f0}];
    add.f32 %f1, %f1, %f2;
    st.global.f32 [%rd1], %f1;
    ret;
}
"""


def test_a_texture_reference_stands_for_what_is_bound_to_it(tmp_path):
    module = emulator.Module(REFERENCE)
    (tmp_path / "spec.toml").write_text(
        """args = [
            { name = "result", dtype = "f32", shape = [32], fill = "empty" },
            { name = "image", dtype = "f32", shape = [32], fill = "arange", texture = {}, reference = true },
        ]"""
    )
    arguments, _ = read_arguments(tmp_path / "spec.toml")
    result = run(module, "k", 1, 32, arguments)
    assert not result.failed() and result.arrays["result"].tolist() == [2 * k for k in range(32)]
    with pytest.raises(LaunchError, match="takes 1 parameters, 0 were given"):
        run(module, "k", 1, 32, arguments[1:])


def test_a_reference_to_nothing_is_reported_by_its_name():
    gpu = emulator.Device()
    module = emulator.Module(REFERENCE)
    report = gpu.launch(module, "k", 1, 32, params=[gpu.alloc(128)])
    assert len(report.findings) == 2 and {finding.kind for finding in report.findings} == {"invalid-descriptor"}
    assert all("nothing is bound to the reference image" in finding.message for finding in report.findings)
    with pytest.raises(LaunchError, match="handle of no texture or surface"):
        gpu.bind(module, "image", 7)


@pytest.mark.parametrize("more", ["reference = true", "multicast = true, reference = true", "texture = {}, reference = 1"])
def test_a_reference_needs_a_texture(tmp_path, more):
    (tmp_path / "spec.toml").write_text(f'args = [{{ name = "image", dtype = "f32", shape = [32], {more} }}]')
    with pytest.raises(LaunchError, match="reference = "):
        read_arguments(tmp_path / "spec.toml")


@pytest.mark.parametrize(
    ("kind", "handle", "answer"), [("texref", 1, 1), ("texref", 2, 0), ("surfref", 1, 0), ("surfref", 2, 1), ("samplerref", 1, 0)]
)
def test_a_handle_is_of_one_type(kind, handle, answer):
    gpu = emulator.Device()
    image, result = gpu.alloc(np.zeros(16, np.float32)), gpu.alloc(4)
    handles = gpu.texture(image, "f32", (4, 4)), gpu.surface(image, "f32", (4, 4))
    text = kernel(f"istypep.{kind} %p1, %rd1; selp.b32 %r1, 1, 0, %p1; st.global.b32 [%rd0], %r1;")
    assert launch(text, device=gpu, block=1, params=[result, handles[handle - 1]]).ok
    assert gpu.read(result, 1, np.int32)[0] == answer


# ---- surfaces
def copying(load, store, coordinates="mul.lo.u32 %r10, %r0, 4; shr.u32 %r11, %r0, 3; and.b32 %r10, %r10, 31;"):
    """Each thread loads from the surface %rd0 and stores in %rd1."""
    return kernel(f"{coordinates}\n{load}\n{store}")


@pytest.mark.quick
@pytest.mark.parametrize(("size", "vector"), [(1, 1), (2, 1), (4, 1), (8, 1), (1, 4), (2, 2), (4, 4), (8, 2)])
@pytest.mark.parametrize(
    ("geometry", "shape"), [("1d", (1, 1, 40)), ("2d", (1, 6, 8)), ("3d", (2, 3, 8)), ("a1d", (6, 1, 8)), ("a2d", (2, 3, 8))]
)
def test_bytes_of_a_surface_are_copied_as_they_are(geometry, shape, size, vector):
    gpu, total = emulator.Device(), size * vector
    channels, dtype = {1: (1, "u8"), 2: (1, "u16"), 4: (1, "u32"), 8: (2, "u32"), 16: (4, "u32")}[total]
    layers, extent = (shape[0] if geometry[0] == "a" else 1), {"1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2}[geometry]
    texels = RNG.integers(0, 256, (math.prod(shape), total), dtype=np.uint8)
    source, target = gpu.alloc(texels), gpu.alloc(np.zeros_like(texels))
    dims = shape[::-1][:extent] if geometry != "1d" else (shape[2],)
    first, second = (gpu.surface(address, dtype, dims, channels, geometry=geometry, layers=layers) for address in (source, target))
    width = shape[2]
    body = f"rem.u32 %r10, %r0, {width}; mul.lo.u32 %r10, %r10, {total}; div.u32 %r13, %r0, {width}; rem.u32 %r11, %r13, {shape[1]}; div.u32 %r12, %r13, {shape[1]};"
    place = {
        "1d": "{%r10}",
        "2d": "{%r10, %r11}",
        "3d": "{%r10, %r11, %r12, %r12}",
        "a1d": "{%r12, %r10}",
        "a2d": "{%r12, %r10, %r11, %r11}",
    }
    register = {1: "%h", 2: "%h", 4: "%r", 8: "%rd"}[size]
    values = "{" + ", ".join(f"{register}{k + 5}" for k in range(vector)) + "}"
    kind = f"{geometry}{f'.v{vector}' if vector > 1 else ''}.b{8 * size}.trap"
    text = copying(f"suld.b.{kind} {values}, [%rd0, {place[geometry]}];", f"sust.b.{kind} [%rd1, {place[geometry]}], {values};", body)
    report = launch(text, device=gpu, params=[first, second])
    assert report.ok, report
    np.testing.assert_array_equal(gpu.read(target, texels.shape, np.uint8)[:32], texels[:32])


def of_one(gpu, how, x, y, scale=4):
    """(what lane 0 reads at byte x of row y, the report) of a surface of 4 x 4 floats that hold 0 to 15."""
    surface = gpu.surface(gpu.alloc(np.arange(16, dtype=np.float32)), "f32", (4, 4))
    result = gpu.alloc(4)
    text = kernel(f"mov.s32 %r1, {x}; mov.s32 %r2, {y}; suld.b.2d.b32.{how} {{%r3}}, [%rd1, {{%r1, %r2}}]; st.global.b32 [%rd0], %r3;")
    report = launch(text, device=gpu, block=1, params=[result, surface])
    return gpu.read(result, 1, np.float32)[0], report


@pytest.mark.quick
@pytest.mark.parametrize(("x", "y", "nearest"), [(16, 0, 3), (-4, 2, 8), (4, 4, 13), (0, -9, 0)])
def test_outside_a_surface_a_read_traps_clamps_or_gives_zero(x, y, nearest):
    gpu = emulator.Device()
    assert "traps" in only(of_one(gpu, "trap", x, y)[1], "out-of-bounds").message
    for how, value in (("clamp", nearest), ("zero", 0)):
        found, report = of_one(gpu, how, x, y)
        assert report.ok and found == value
    found, report = of_one(gpu, "trap", 8, 3)
    assert report.ok and found == 14


@pytest.mark.parametrize(("how", "changed"), [("trap", ()), ("zero", ()), ("clamp", (15,))])
def test_a_write_outside_a_surface_changes_the_nearest_texel_if_clamped_and_else_nothing(how, changed):
    gpu = emulator.Device()
    memory = gpu.alloc(np.zeros(16, np.float32))
    text = kernel(f"mov.s32 %r1, 16; mov.s32 %r2, 7; sust.b.2d.b32.{how} [%rd0, {{%r1, %r2}}], {{%r1}};", parameters=1)
    report = launch(text, device=gpu, block=1, params=[gpu.surface(memory, "f32", (4, 4))])
    assert kinds(report) == ({"out-of-bounds"} if how == "trap" else set())
    assert tuple(np.flatnonzero(gpu.read(memory, 16, np.int32))) == changed


def test_a_byte_coordinate_that_is_not_a_multiple_is_reported():
    assert kinds(of_one(emulator.Device(), "trap", 6, 0)[1]) == {"misaligned"}


@pytest.mark.parametrize(
    ("dtype", "values", "stored"), [("f16", [1.5, -2.25], [1.5, -2.25]), ("u8", [7, 255], [7, 255]), ("s16", [-3, 9], [-3, 9])]
)
def test_a_formatted_store_converts_to_the_texels_type(dtype, values, stored):
    gpu = emulator.Device()
    kind = np.dtype(textures.TYPES[dtype])
    memory = gpu.alloc(2 * 2 * kind.itemsize * 2)
    words = np.array(values, np.float32 if dtype[0] == "f" else np.int32).view(np.uint32)
    text = kernel(f"mov.s32 %r1, 1; sust.p.2d.v2.b32.trap [%rd0, {{%r1, %r1}}], {{{words[0]}, {words[1]}}};", parameters=1)
    report = launch(text, device=gpu, block=1, params=[gpu.surface(memory, dtype, (2, 2), 2)])
    assert report.ok, report
    assert gpu.read(memory, (4, 2), kind)[3].tolist() == stored
    assert gpu.written(memory, 8 * kind.itemsize).tolist() == [False] * (6 * kind.itemsize) + [True] * (2 * kind.itemsize)


def test_a_formatted_store_saturates_and_channels_that_it_leaves_out_are_unwritten():
    gpu = emulator.Device()
    memory = gpu.alloc(4)
    text = kernel("mov.s32 %r1, 0; sust.p.1d.v2.b32.trap [%rd0, {%r1}], {300, 1};", parameters=1)
    assert launch(text, device=gpu, block=1, params=[gpu.surface(memory, "u8", (1,), 4)]).ok
    assert gpu.read(memory, 4, np.uint8)[:2].tolist() == [255, 1]
    assert gpu.written(memory, 4).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("instruction", "start", "result"),
    [("sured.b.add.1d.u32.trap", 5, 5 + sum(range(32))), ("sured.b.min.1d.s32.trap", -3, -3), ("sured.b.max.1d.u32.trap", 2, 31),
     ("sured.b.or.1d.b32.trap", 32, 63), ("sured.b.and.1d.b32.trap", 7, 0), ("sured.p.max.1d.b32.trap", -5, 31)],
)  # fmt: skip
def test_a_reduction_counts_every_lane(instruction, start, result):
    gpu = emulator.Device()
    memory = gpu.alloc(np.array([0, start], np.int32))
    surface = gpu.surface(memory, "s32", (2,))
    text = kernel(f"mov.s32 %r1, {1 if '.p.' in instruction else 4}; {instruction} [%rd0, {{%r1}}], %r0;", parameters=1)
    report = launch(text, device=gpu, params=[surface])
    assert report.ok, report
    assert gpu.read(memory, 2, np.int32).tolist() == [0, result]


def test_ctas_that_reduce_into_one_surface_stay_in_one_process():
    gpu = emulator.Device(jobs=2)
    memory = gpu.alloc(np.zeros(1, np.uint32))
    text = kernel("sured.b.add.1d.u32.trap [%rd0, {0}], 1;", parameters=1)
    report = launch(text, device=gpu, grid=4, params=[gpu.surface(memory, "u32", (1,))])
    assert report.ok and "sured" in report.together
    assert gpu.read(memory, 1, np.uint32)[0] == 128


def test_queries_answer_sizes():
    gpu = emulator.Device()
    texture = gpu.texture(gpu.alloc(480), "f32", (5, 4), geometry="a2d", layers=6, normalized=True)
    surface = gpu.surface(gpu.alloc(480), "f32", (5, 4, 6))
    asked = ["txq.width", "txq.height", "txq.depth", "txq.array_size", "txq.normalized_coords", "txq.num_mipmap_levels"]
    asked += ["suq.width", "suq.height", "suq.depth", "suq.array_size"]
    body = "".join(
        f"{name}.b32 %r1, [%rd{2 if name[0] == 's' else 1}]; st.global.b32 [%rd0+{4 * k}], %r1;\n" for k, name in enumerate(asked)
    )
    result = gpu.alloc(40)
    assert launch(kernel(body, parameters=3), device=gpu, block=1, params=[result, texture, surface]).ok
    assert gpu.read(result, 10, np.int32).tolist() == [5, 4, 0, 6, 1, 1, 5, 4, 6, 0]


# ---- coherence
_READS = {
    "tex": "tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f10}]; mov.b32 %r3, %f1;",
    "suld": "suld.b.1d.b32.trap {%r3}, [%rd0, {%r1}];",
}
_WRITES = {"sust": "sust.b.1d.b32.trap [%rd0, {%r1}], {%r0};", "st.global": "st.global.b32 [%rd5], %r0;"}


@pytest.mark.quick
@pytest.mark.parametrize("read", _READS)
@pytest.mark.parametrize("write", _WRITES)
def test_a_read_after_a_write_of_the_same_launch_is_a_race(read, write):
    def launched(*order, jobs=1, grid=1):
        gpu = emulator.Device(jobs=jobs)
        memory, result = gpu.alloc(np.zeros(128, np.float32)), gpu.alloc(512)
        body = """mov.u32 %r4, %ctaid.x; shl.b32 %r4, %r4, 5; add.u32 %r0, %r0, %r4; shl.b32 %r1, %r0, 2; cvt.rn.f32.u32 %f10, %r0;
            mul.wide.u32 %rd4, %r0, 4; add.s64 %rd5, %rd2, %rd4; add.s64 %rd6, %rd3, %rd4;"""
        text = kernel(body + "".join(order) + "st.global.b32 [%rd6], %r3;", parameters=4)
        handles = gpu.surface(memory, "f32", (128,)), gpu.texture(memory, "f32", (128,))
        return launch(text, device=gpu, grid=grid, params=[*handles, memory, result])

    before, after = _READS[read], _WRITES[write]
    assert kinds(launched(after, before)) == {"race"}
    assert launched(before, after).ok  # a thread may write in place what it has read
    assert launched(before, after, jobs=2, grid=4).ok
    elsewhere = before.replace("[%rd0, {%r1}]", "[%rd0, {0}]").replace("{%f10}", "{0f00000000}")
    assert kinds(launched(elsewhere, after, jobs=2, grid=4)) == {"race"}  # CTA 0 writes what the others read


# ---- arguments of a launch as data
def test_a_file_of_arguments_gives_textures_surfaces_and_multicast_memory(tmp_path):
    texels = RNG.integers(0, 256, (3, 2, 4), dtype=np.uint8)  # rows, texels, channels
    np.save(tmp_path / "texels.npy", texels)
    (tmp_path / "spec.toml").write_text("""
[[args]]
name = "image"
dtype = "u8"
shape = [3, 2, 4]
fill = "texels.npy"
texture = { channels = 4, normalized = true, address = ["wrap", "clamp"], read = "normalized", filter = "linear" }
[[args]]
name = "out"
dtype = "f32"
shape = [2, 1, 5]
fill = "empty"
surface = { geometry = "a2d" }
[[args]]
name = "count"
dtype = "u32"
shape = [1]
multicast = true
""")
    body = """mov.f32 %f10, 0fBE800000; mov.f32 %f11, 0f3F000000;
        tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd0, {%f10, %f11}];
        mov.u32 %r1, 1; mov.u32 %r2, 16; mov.u32 %r3, 0; mov.b32 %r4, %f3;
        sust.b.a2d.b32.trap [%rd1, {%r1, %r2, %r3, %r3}], {%r4}; multimem.red.add.u32 [%rd2], 3;"""
    arguments, _ = read_arguments(tmp_path / "spec.toml")
    result = run(emulator.Module(kernel(body, parameters=3)), "k", 1, 1, arguments)
    assert not result.failed() and not result.causes
    whole = texels / 255.0
    assert result.arrays["out"][1, 0, 4] == np.float32(whole[1, 1, 2]) and result.arrays["count"][0] == 3
