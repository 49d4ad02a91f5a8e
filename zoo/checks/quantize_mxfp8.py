"""Problems for MXFP8 quantisation; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy

from zoo.checks.block_inputs import some
from zoo.checks.problem import Placed, Problem
from zoo.checks.stacks import every_settings
from zoo.device_array import numpy_dtype
from zoo.manifest import Kernel, Variant
from zoo.reference.formats import ELEMENTS
from zoo.reference.layouts import blocked_shape
from zoo.reference.mxfp8 import BLOCK, quantize_mxfp8_rows

# Around the units of the kernels: a block of 32, a line of 512 bytes, a tile of 128 rows x 4 blocks.
_SHAPES = (
    (1, 32), (1, 64), (3, 96), (31, 160), (33, 128), (127, 288), (128, 128), (129, 128), (129, 992), (257, 1056),
    (3, 1056), (5, 7168), (2, 32 * 1025), (4099, 32), (1000, 2112),
)  # fmt: skip


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    for options in every_settings(kernel, variant):
        yield from _problems(variant.dtypes["x"], variant.dtypes["q"], options)


def _problems(x_dtype: str, element: str, options: Mapping[str, str]) -> Iterator[Problem]:
    def problem(name: str, x: numpy.ndarray, padded: bool = False) -> Problem:
        q, scales = _answer(x, element, **options)
        columns = x.shape[1]
        strides = {}
        if padded:  # rows further apart than they are long; x and q by 16 bytes, plain scales by one
            strides["x"] = (columns + 16 // x.dtype.itemsize, 1)
            strides["q"] = (columns + 48, 1)
            if options["layout"] == "plain":
                strides["scales"] = (columns // BLOCK + 1, 1)
        outputs = {"q": Placed(q, strides.get("q")), "scales": Placed(scales, strides.get("scales"))}
        return Problem(f"{name}, {options['rounding']}", {"x": Placed(x, strides.get("x"))}, outputs, options)

    random = numpy.random.default_rng(20)
    for shape in _SHAPES:
        yield problem(f"shape {shape[0]} x {shape[1]}", _spread(shape, x_dtype, random))
    for shape in ((129, 992), (3, 32), (37, 352), (200, 4128)):
        yield problem(f"strided rows, {shape[0]} x {shape[1]}", _spread(shape, x_dtype, random), padded=True)
    yield problem("no rows", _spread((0, 256), x_dtype, random))
    yield problem("random bits", _random_bits((257, 1056), x_dtype, random))
    for name, blocks in _blocks(x_dtype, element, random):
        yield problem(name, blocks)


def _blocks(x_dtype: str, element: str, random: numpy.random.Generator) -> Iterator[tuple[str, numpy.ndarray]]:
    """Rows of blocks in which some rule of the format is at its edge."""
    patterns = _patterns(x_dtype)
    yield "every bit pattern among its neighbours", patterns.reshape(-1, BLOCK)
    yield "every bit pattern, shuffled", random.permutation(patterns).reshape(-1, 8 * BLOCK)
    yield "every bit pattern as the largest of a block", _as_largest(patterns)
    yield "some bit patterns, shuffled", random.permutation(patterns)[: 256 * BLOCK].reshape(-1, 8 * BLOCK)
    yield "some bit patterns as the largest of a block", _as_largest(some(patterns, BLOCK))
    yield "ties and their neighbours", _ties(x_dtype, element)
    yield "zeros, infinities, NaNs and subnormals at each place of a block", _specials(x_dtype)


def _answer(x: numpy.ndarray, element: str, rounding: str, layout: str) -> tuple[numpy.ndarray, numpy.ndarray]:
    q, scales = quantize_mxfp8_rows(x, element=element, rounding=rounding, layout=layout)
    if layout == "blocked":
        scales = scales.reshape(blocked_shape(x.shape[0], x.shape[1] // BLOCK))
    return q, scales


def _cast(values: numpy.ndarray, dtype: str) -> numpy.ndarray:
    with numpy.errstate(over="ignore", under="ignore", invalid="ignore"):
        return values.astype(numpy_dtype(dtype))


def _spread(shape: tuple[int, int], dtype: str, random: numpy.random.Generator) -> numpy.ndarray:
    """Normal numbers, each block at a scale of its own over the whole range of exponents of the dtype."""
    rows, columns = shape
    low, high = (-22, 14) if dtype == "f16" else (-140, 126)
    exponents = numpy.repeat(random.integers(low, high, (rows, -(-columns // BLOCK))), BLOCK, axis=1)[:, :columns]
    return _cast(numpy.ldexp(random.standard_normal(shape), exponents), dtype)


def _random_bits(shape: tuple[int, int], dtype: str, random: numpy.random.Generator) -> numpy.ndarray:
    size = numpy_dtype(dtype).itemsize
    return random.integers(0, 2 ** (8 * size), shape, dtype=f"u{size}").view(numpy_dtype(dtype))


@lru_cache(maxsize=4)
def _patterns(dtype: str) -> numpy.ndarray:
    """All 65536 patterns of a 16-bit dtype; of f32 those of 16 bits and of 128 mantissas near every rounding boundary."""
    if dtype != "f32":
        return numpy.arange(65536, dtype=numpy.uint16).view(numpy_dtype(dtype))
    steps = numpy.arange(32, dtype=numpy.uint32) << 18  # five bits of mantissa: e4m3's three, the half, and one more
    mantissas = numpy.unique(numpy.concatenate([steps, steps + 1, (steps - 1) & 0x7FFFFF, steps | 0x20000]))
    exponents = numpy.arange(512, dtype=numpy.uint32) << 23
    bits = (exponents[:, None] | mantissas[None, :]).reshape(-1)
    return bits[: bits.size // (8 * BLOCK) * (8 * BLOCK)].view(numpy.float32)


def _as_largest(patterns: numpy.ndarray) -> numpy.ndarray:
    """A block for each pattern: the pattern at a changing place, smaller multiples of it around."""
    share = numpy.arange(1, BLOCK + 1, dtype=numpy.float32) / BLOCK
    share = numpy.where(numpy.arange(BLOCK) % 3 == 0, -share, share)
    with numpy.errstate(invalid="ignore"):
        wide = patterns.astype(numpy.float32)[:, None] * share
    blocks = _cast(wide, _name_of(patterns.dtype))
    rows = numpy.arange(len(patterns))
    blocks[rows, rows % BLOCK] = patterns
    return blocks.reshape(-1, 4 * BLOCK)


def _name_of(dtype: numpy.dtype) -> str:
    return {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}[dtype.name]


def _ties(dtype: str, element: str) -> numpy.ndarray:
    """Halfway between neighbouring elements, and one step of the input to either side, under a known scale."""
    form = ELEMENTS[element]
    grid = numpy.arange(127, dtype=numpy.uint8).view(form.dtype).astype(numpy.float32)
    grid = grid[numpy.isfinite(grid)]
    halves = (grid[1:] + grid[:-1]) / 2
    blocks = []
    for exponent in (0, -1, -3) if dtype == "f16" else (0, -7, -60, 60):
        middle = _cast(numpy.ldexp(halves, exponent), dtype)
        for values in (middle, numpy.nextafter(middle, middle.dtype.type(0)), numpy.nextafter(middle, middle.dtype.type(numpy.inf))):
            for sign in (1, -1):
                body = numpy.resize(values * values.dtype.type(sign), (-(-len(values) // (BLOCK - 1)), BLOCK - 1))
                # the largest power of two and the largest value of the format give the scale 2^exponent under either rounding
                for leader in (2.0**form.exponent_of_max, form.max_value):
                    lead = numpy.full((len(body), 1), numpy.ldexp(leader, exponent), values.dtype)
                    blocks.append(numpy.concatenate([lead, body], axis=1))
    return numpy.concatenate(blocks)


def _specials(dtype: str) -> numpy.ndarray:
    """Each special alone in a block of zeros and in one of ones, at every place; and whole blocks of it."""
    kind = numpy_dtype(dtype)
    smallest = numpy.array([1], f"u{kind.itemsize}").view(kind)[0]
    infinity, nan = kind.type(numpy.inf), kind.type(numpy.nan)
    blocks = [numpy.zeros((1, BLOCK), kind), -numpy.zeros((1, BLOCK), kind)]
    for special in (kind.type(0), -kind.type(0), smallest, -smallest, infinity, -infinity, nan, -nan):
        for background in (0, 1):
            block = numpy.full((BLOCK, BLOCK), background, kind)
            numpy.fill_diagonal(block, special)
            blocks.append(block)
        blocks.append(numpy.full((1, BLOCK), special, kind))
    return numpy.concatenate(blocks)
