"""Tensor copies in im2col mode against pixels taken one by one from a numpy array."""

import numpy as np
import pytest
from core_support import kernel, kinds, launch
from test_core_tma import COPY, SHARED, STORE, with_map

from zoo import emulator
from zoo.emulator import EmulatorError, UnsupportedInstruction
from zoo.errors import ArgumentError

RNG = np.random.default_rng(15)


def device():
    return emulator.Device(arch="sm_100a", scheduling="last")


def strides_of(array):
    return array.strides[-2::-1]


def corners(dims, lower, upper, steps, start, pixels):
    """The corners (w, h, .., n) of the filter from `start` on: W moves first."""
    ranges = [range(low, extent + high, step) for extent, low, high, step in zip(dims[1:-1], lower, upper, steps, strict=True)]
    every = [corner[::-1] for corner in np.ndindex(dims[-1] + pixels, *[len(places) for places in ranges[::-1]])]
    every = [(*(places[at] for places, at in zip(ranges, corner[:-1], strict=True)), corner[-1]) for corner in every]
    first = every.index(tuple(start))
    return every[first : first + pixels]


def pixels_by_hand(array, lower, upper, steps, start, pixels, offsets, channels, fill=0):
    dims = array.shape[::-1]
    rows = []
    for corner in corners(dims, lower, upper, steps, start[1:], pixels):
        place = [at + offset for at, offset in zip(corner, (*offsets, 0), strict=True)]
        row = np.full(channels, fill, array.dtype)
        if all(0 <= at < extent for at, extent in zip(place, dims[1:], strict=True)):
            found = array[tuple(place[::-1])][start[0] : start[0] + channels]
            row[: len(found)] = found
        rows.append(row)
    return np.stack(rows)


def load(gpu, record, coordinates, offsets, mode=".im2col", rank=None, size=None):
    size = size or record.box_bytes
    registers = "".join(f"mov.s32 %r{40 + i}, {c};" for i, c in enumerate(coordinates))
    registers += "".join(f"mov.u16 %h{8 + i}, {offset};" for i, offset in enumerate(offsets))
    text = COPY.format(
        bytes=size,
        mode=f"{rank or record.rank}d",
        tile=mode,
        size=size,
        coordinates=", ".join(f"%r{40 + i}" for i in range(len(coordinates))),
    )
    text = text.replace("}], [%r1];", "}], [%r1], {" + ", ".join(f"%h{8 + i}" for i in range(len(offsets))) + "};")
    out = gpu.alloc(size)
    report = launch(
        with_map(kernel(registers + text, parameters=1, shared=SHARED.format(size=size), target="sm_100a")),
        device=gpu,
        params=[record, out],
    )
    return gpu.read(out, size, np.uint8), report


@pytest.mark.parametrize(("dims", "lower", "upper", "steps", "start", "offsets", "pixels"), [
    ((16, 9, 3), (-1,), (-1,), (1,), (0, -1, 0), (0,), 20),  # padding of one before each row
    ((16, 9, 3), (0,), (-2,), (2,), (8, 2, 1), (2,), 12),
    ((12, 5, 4, 3), (-1, -1), (-1, -1), (1, 1), (0, 3, 2, 0), (1, 1), 64),  # 3 x 3 filter, its middle; images end after 60
    ((12, 5, 4, 3), (-1, -2), (0, 0), (2, 3), (8, 1, -2, 1), (0, 3), 32),  # channels end at 12
    ((16, 3, 2, 3, 2), (0, -1, -1), (-1, 0, -1), (1, 1, 1), (4, 1, 0, -1, 0), (1, 0, 2), 40),
])  # fmt: skip
@pytest.mark.parametrize("fill", ["zero", "nan"])
def test_pixels_follow_the_filter(dims, lower, upper, steps, start, offsets, pixels, fill):
    array = RNG.integers(1, 99, dims[::-1]).astype(np.float32)
    gpu = device()
    record = gpu.im2col_map(
        gpu.alloc(array), "f32", dims, strides_of(array), lower, upper, 8, pixels, "32B", element_strides=(1, *steps, 1), fill=fill
    )
    image, report = load(gpu, record, start, offsets)
    assert report.ok, report
    expected = pixels_by_hand(array, lower, upper, steps, start, pixels, offsets, 8, np.nan if fill == "nan" else 0)
    halves = image.view(np.float32).reshape(pixels, 2, 4)
    line = np.arange(pixels) // 4 % 2  # the 32-byte swizzle exchanges halves of rows on every second line of 128 bytes
    np.testing.assert_array_equal(np.where(line[:, None, None] == 1, halves[:, ::-1], halves).reshape(pixels, 8), expected)
    assert report.bytes["tensor copies loaded"] == record.box_bytes == pixels * 32


def pixels_of_rows(array, lower, upper, step, start, pixels, shift, channels):
    """Pixels along W, row after row of the images: H stays. The box and the start are moved by `shift`."""
    channel, w, h, n = start
    width, rows = array.shape[2], []
    w += shift
    for _ in range(pixels):
        row = np.zeros(channels, array.dtype)
        if 0 <= w < width and 0 <= h < array.shape[1] and n < len(array):
            row = array[n, h, w, channel : channel + channels]
        rows.append(row)
        w += step
        if w > width - 1 + upper + shift:
            w, n = lower + shift, n + 1
    return np.stack(rows)


@pytest.mark.parametrize(("dims", "lower", "upper", "step", "start", "pixels", "halo", "shift", "mode"), [
    ((16, 9, 7, 64), 0, 0, 1, (0, 3, 2, 7), 24, 2, 0, "im2col::w"),  # the manual's example, with fewer pixels
    ((16, 5, 6, 9), -1, 0, 2, (0, -1, 2, 3), 16, 1, 0, "im2col::w"), ((16, 5, 6, 9), -1, 0, 2, (0, -1, 2, 3), 16, 0, 1, "im2col::w"),
    ((16, 4, 2, 3), 1, -1, 1, (0, 0, 5, 0), 8, 0, 0, "im2col::w"),  # begins to the left of the box, in a row that is not there
    ((16, 9, 7, 20), 0, 0, 1, (0, 3, 2, 1), 4, 0, 0, "im2col::w::128"),
])  # fmt: skip
def test_wide_pixels_follow_one_row(dims, lower, upper, step, start, pixels, halo, shift, mode):
    array = RNG.integers(1, 99, dims[::-1]).astype(np.float32)
    gpu = device()
    record = gpu.im2col_map(
        gpu.alloc(array), "f32", dims, strides_of(array), (lower,), (upper,), 16, pixels, "64B", mode, element_strides=(1, step, 1, 1)
    )
    count = 128 if mode.endswith("128") else pixels + halo
    image, report = load(gpu, record, start, (halo, shift), f".{mode}", size=count * 64)
    assert report.ok, report
    expected = pixels_of_rows(array, lower, upper, step, start, count, shift, 16).reshape(count, 4, 4)
    line = np.arange(count)[:, None] // 2 % 4  # the 64-byte swizzle: 16-byte chunks, by the line of 128 bytes
    np.testing.assert_array_equal(
        np.take_along_axis(image.view(np.float32).reshape(count, 4, 4), (np.arange(4) ^ line)[..., None], axis=1), expected
    )
    assert report.bytes["tensor copies loaded"] == count * 64


def test_wide_copies_that_have_no_meaning_are_found():
    array = np.zeros((2, 4, 4, 64), np.uint8)
    gpu = device()
    shape = (gpu.alloc(array), "u8", array.shape[::-1], strides_of(array), (0,), (0,), 64, 8)
    record = gpu.im2col_map(*shape, "64B", "im2col::w")
    assert "outside the bounding box from 0 to 3" in str(load(gpu, record, (0, 4, 0, 0), (0, 0), ".im2col::w")[1])
    assert "is not that of the tensor map" in str(load(gpu, record, (0, 0, 0, 0), (0, 0), ".im2col::w::128")[1])
    with pytest.raises(ArgumentError, match="the swizzle none does not go with im2col::w"):
        gpu.im2col_map(*shape, "none", "im2col::w")
    with pytest.raises(EmulatorError, match="wHalo of im2col::w::128 is not covered"):
        load(gpu, gpu.im2col_map(*shape, "64B", "im2col::w::128"), (0, 0, 0, 0), (2, 0), ".im2col::w::128")


@pytest.mark.parametrize(
    ("operation", "expected"), [("cp.async.bulk.tensor", lambda old, new: new), ("cp.reduce.async.bulk.tensor", lambda old, new: old + new)]
)
def test_a_store_puts_pixels_where_a_load_takes_them(operation, expected):
    dims, pixels = (16, 4, 2), 6  # the last two pixels lie in the next image
    before = RNG.integers(0, 100, dims[::-1]).astype(np.uint8)
    gpu = device()
    address = gpu.alloc(before)
    record = gpu.im2col_map(address, "u8", dims, strides_of(before), (0,), (-1,), 16, pixels)
    text = STORE.format(
        size=16 * pixels, operation=operation, form=".add.im2col_no_offs" if "reduce" in operation else ".im2col_no_offs", x=0, y="1, 0"
    )
    text = with_map(kernel(text.replace(".2d.", ".3d."), parameters=1, shared=SHARED.format(size=16 * pixels), target="sm_100a"))
    report = launch(text, device=gpu, params=[record, 0])
    assert report.ok, report
    after = before.copy()
    for number, (w, n) in enumerate(corners(dims, (0,), (-1,), (1,), (1, 0), pixels)):
        if n < dims[2]:
            after[n, w] = expected(before[n, w], np.arange(16 * number, 16 * number + 16, dtype=np.uint8))
    np.testing.assert_array_equal(gpu.read(address, before.shape, np.uint8), after)


def test_a_copy_that_does_not_fit_its_map_is_found():
    array = np.zeros((2, 4, 4, 16), np.uint8)
    gpu = device()
    shape = (gpu.alloc(array), "u8", array.shape[::-1], strides_of(array))
    record = gpu.im2col_map(*shape, (0, 0), (-1, -1), 16, 8)
    assert load(gpu, record, (0, 2, 2, 0), (1, 1))[1].ok
    assert "outside the bounding box from 0 to 2" in str(load(gpu, record, (0, 3, 0, 0), (0, 0))[1])
    assert "is not that of the tensor map" in str(load(gpu, gpu.tensor_map(*shape, (16, 1, 1, 8)), (0, 0, 0, 0), (0, 0))[1])
    assert kinds(load(gpu, gpu.im2col_map(*shape, (0, 0), (-1, -1), 16, 8), (0, 0, 0), (0,), rank=3)[1]) >= {"tensor-map"}
    with pytest.raises(ArgumentError, match="the box of dimension 2 is empty: from 0 to -1"):
        gpu.im2col_map(*shape, (0, 0), (0, -4), 16, 8)
    with pytest.raises(ArgumentError, match="not within -128 to 127"):
        gpu.im2col_map(*shape, (-129, 0), (0, 0), 16, 8)


@pytest.mark.parametrize(("mode", "offsets", "why"), [
    (".im2col", (0,), "2 im2col offsets"), (".im2col::w", (0,), "2 im2col offsets"), (".im2col_no_offs", (0, 0), "for stores"),
])  # fmt: skip
def test_forms_that_a_load_does_not_have_are_refused(mode, offsets, why):
    array = np.zeros((2, 4, 4, 16), np.uint8)
    gpu = device()
    record = gpu.im2col_map(gpu.alloc(array), "u8", array.shape[::-1], strides_of(array), (0, 0), (-1, -1), 16, 8)
    with pytest.raises(UnsupportedInstruction, match=why):
        load(gpu, record, (0, 0, 0, 0), offsets, mode)
