"""Matrices that a quantiser along K gets wrong first. Each comes with the hazard it is about, a multiple of the block wide."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy

from zoo.checks.rounding import cast
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference.small_floats import ELEMENTS


def hazards(dtype: str, block: int, element: numpy.dtype) -> Iterator[tuple[str, numpy.ndarray]]:
    """Everything but shapes: random bits, every pattern, ties, specials. `some` of what is large is for the emulator."""
    random = numpy.random.default_rng(block)
    yield "random bits", random_bits((257, 33 * block), dtype, random)
    patterns = every_pattern(dtype)
    yield "every bit pattern among its neighbours", patterns.reshape(-1, block)
    yield "every bit pattern, shuffled", random.permutation(patterns).reshape(-1, 4 * block)
    for background in (0.0, 1.0):
        yield f"every bit pattern as the largest of a block, {background:g} of the rest", as_largest(patterns, block, background)
    yield "some bit patterns, shuffled", random.permutation(patterns)[: 64 * block].reshape(-1, 4 * block)
    for background in (0.0, 1.0):
        yield (
            f"some bit patterns as the largest of a block, {background:g} of the rest",
            some_as_largest(patterns, block, background),
        )
    yield "ties and their neighbours", ties(dtype, block, element)
    if block > 32:
        every = specials(dtype, block).reshape(-1, block)
        yield "zeros, infinities, NaNs and subnormals at some places of a block", every[:: len(every) // 128]
    yield "zeros, infinities, NaNs and subnormals at each place of a block", specials(dtype, block)


def spread(shape: tuple[int, int], dtype: str, block: int, random: numpy.random.Generator) -> numpy.ndarray:
    """Normal numbers, each block at a scale of its own over the whole range of exponents of the dtype."""
    rows, columns = shape
    low, high = (-22, 14) if dtype == "f16" else (-140, 126)
    exponents = numpy.repeat(random.integers(low, high, (rows, -(-columns // block))), block, axis=1)[:, :columns]
    return cast(numpy.ldexp(random.standard_normal(shape), exponents), dtype)


def random_bits(shape: tuple[int, ...], dtype: str, random: numpy.random.Generator) -> numpy.ndarray:
    size = numpy_dtype(dtype).itemsize
    return random.integers(0, 2 ** (8 * size), shape, dtype=f"u{size}").view(numpy_dtype(dtype))


@lru_cache(maxsize=3)
def every_pattern(dtype: str) -> numpy.ndarray:
    """All 65536 patterns of a 16-bit dtype; of f32 every exponent with mantissas near every rounding boundary."""
    if dtype != "f32":
        return numpy.arange(65536, dtype=numpy.uint16).view(numpy_dtype(dtype))
    steps = numpy.arange(32, dtype=numpy.uint32) << 18  # five bits of mantissa: e4m3's three, the half, and one more
    mantissas = numpy.unique(numpy.concatenate([steps, steps + 1, (steps - 1) & 0x7FFFFF, steps | 0x20000]))
    exponents = numpy.arange(512, dtype=numpy.uint32) << 23
    return numpy.asarray((exponents[:, None] | mantissas[None, :]).reshape(-1).view(numpy.float32))  # 512 * 128 of them


def as_largest(patterns: numpy.ndarray, block: int, background: float) -> numpy.ndarray:
    """A block for each pattern: the pattern at a changing place, `background` times smaller multiples of it around."""
    share = numpy.arange(1, block + 1, dtype=numpy.float32) / block * numpy.float32(background)
    share = numpy.where(numpy.arange(block) % 3 == 0, -share, share)
    with numpy.errstate(invalid="ignore", over="ignore", under="ignore"):
        wide = numpy.nan_to_num(patterns.astype(numpy.float32), nan=0, posinf=0, neginf=0)[:, None] * share
        blocks = wide.astype(patterns.dtype)
    rows = numpy.arange(len(patterns))
    blocks[rows, rows % block] = patterns
    return blocks.reshape(-1, 4 * block)


def some_as_largest(patterns: numpy.ndarray, block: int, background: float) -> numpy.ndarray:
    """8192 elements, for evenly spaced patterns: exponents of the whole range with changing mantissas."""
    count = (1 << 13) // block
    return as_largest(patterns[:: len(patterns) // count - 1][:count], block, background)  # an odd step


def ties(dtype: str, block: int, element: numpy.dtype) -> numpy.ndarray:
    """Halfway between neighbouring elements, and one step of the input to either side, under a known scale.

    Blocks begin with a power of two or the largest element, so that the scale is a power of two under most rules.
    """
    codes = 8 if element == ELEMENTS["e2m1"].dtype else 127  # the positive ones, without NaN
    grid = numpy.arange(codes, dtype=numpy.uint8).view(element).astype(numpy.float32)
    grid = numpy.unique(grid[numpy.isfinite(grid)])
    largest = grid[-1]
    halves = numpy.resize((grid[1:] + grid[:-1]) / 2, max(block - 1, len(grid) - 1))
    blocks = []
    for exponent in (0, -1, -3) if dtype == "f16" else (0, -7, -60, 60):
        middle = cast(numpy.ldexp(halves, exponent), dtype)
        below, above = numpy.nextafter(middle, middle.dtype.type(0)), numpy.nextafter(middle, middle.dtype.type(numpy.inf))
        for values in (middle, below, above):
            for sign in (1, -1):
                body = numpy.resize(values * values.dtype.type(sign), (-(-len(values) // (block - 1)), block - 1))
                for leader in (2.0 ** numpy.floor(numpy.log2(largest)), largest):
                    lead = numpy.full((len(body), 1), numpy.ldexp(leader, exponent), values.dtype)
                    blocks.append(numpy.concatenate([lead, body], axis=1))
    return numpy.concatenate(blocks)


def specials(dtype: str, block: int) -> numpy.ndarray:
    """Each special alone in a block of zeros and in one of ones, at every place; and whole blocks of it. Four blocks to a row."""
    kind = numpy_dtype(dtype)
    smallest = numpy.array(1, f"u{kind.itemsize}").view(kind)[()]
    infinity, nan = kind.type(numpy.inf), kind.type(numpy.nan)
    blocks = [numpy.zeros((1, block), kind), -numpy.zeros((1, block), kind)]
    for special in (kind.type(0), -kind.type(0), smallest, -smallest, infinity, -infinity, nan, -nan):
        for background in (0, 1):
            one = numpy.full((block, block), background, kind)
            numpy.fill_diagonal(one, special)
            blocks.append(one)
        blocks.append(numpy.full((1, block), special, kind))
    count = sum(map(len, blocks))
    return numpy.resize(numpy.concatenate(blocks), (-(-count // 4), 4 * block))
