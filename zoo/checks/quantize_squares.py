"""Problems for weights quantised in squares, with and without the transpose; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy

from zoo.checks.block_inputs import as_largest, every_pattern, random_bits, some_as_largest, specials, ties
from zoo.checks.checked_format import format_of
from zoo.checks.placing import every_settings, given_matrices, placed_matrices
from zoo.checks.problem import Later, Placed, Problem, dtype_of
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference.quantize import quantize_squares_both

# (E, N, K / unit) around 8 rows of a lane, 16 of a warp, a square, 16 bytes of a column of x, a tile of 128 x 128.
_SHAPES = (
    (1, 1, 1), (1, 7, 2), (2, 9, 3), (5, 15, 1), (1, 16, 4), (3, 17, 2), (2, 31, 3), (1, 32, 5), (2, 33, 4), (1, 47, 1),
    (1, 127, 4), (1, 128, 4), (1, 129, 3), (2, 65, 9), (1, 144, 5), (1, 200, 8), (2, 257, 33), (1, 1025, 13), (3, 300, 66),
    (1, 5, 224), (1, 4099, 1), (70, 33, 2), (300, 3, 1), (2, 384, 24),
)  # fmt: skip
_STRIDED = ((1, 33, 3), (2, 129, 5), (3, 16, 1), (2, 250, 20))

# Scales of tensors: these are wrong for the data, or no scale at all.
_TENSOR_SCALES = (1.0, 1e-3, 3.1e-39, 1e-45, 2.0**-128, 1.2e35, 3.4e38, numpy.inf, numpy.nan, 0.0)


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    dtype, own = dtype_of(kernel, variant, "x"), format_of(kernel, variant)
    block, unit = own.block, own.unit
    random = numpy.random.default_rng(22)
    choices = list(every_settings(kernel, variant))

    def problem(
        what: str,
        x: numpy.ndarray,
        settings: dict[str, str],
        transposed: bool = True,
        gap: int = 0,
        tensor_scales: Sequence[float] | None = None,
    ) -> Problem:
        inputs, given = given_matrices(x, own, gap, tensor_scales)

        def outputs() -> dict[str, Placed]:
            format = own.made(settings, given)
            along_k, along_n = quantize_squares_both(x, format, settings.get("layout", "plain"))
            found = placed_matrices(along_k, ("q", "scales"), x.shape[1], format, settings, gap)
            if transposed:
                found |= placed_matrices(along_n, ("q_cols", "scales_cols"), x.shape[2], format, settings, gap)
            return found

        words = ", ".join(settings.values())
        return Problem(f"{what}, {words}{', transposed too' if transposed else ''}", inputs, Later(outputs), settings)

    turns = itertools.cycle(itertools.product(choices, (True, False)))
    for E, N, units in _SHAPES:
        shape = (E, N, units * unit)
        words = "shape " + " x ".join(map(str, shape))
        for settings, transposed in itertools.islice(turns, 3):  # odd, so that every combination meets every kind of shape
            yield problem(words, spread_squares(shape, dtype, block, random), settings, transposed)
    for E, N, units in _STRIDED:
        shape = (E, N, units * unit)
        for gap in (1, 3):
            words = f"strided, shape {' x '.join(map(str, shape))}, gap {gap}"
            yield problem(words, spread_squares(shape, dtype, block, random), choices[-1], gap=gap)
    for shape in ((0, 32, 128), (2, 0, 128), (1, 0, 256)):
        yield problem(f"nothing: {shape}", numpy.zeros(shape, numpy_dtype(dtype)), choices[0])
    layouts = itertools.cycle(dict.fromkeys(settings.get("layout") for settings in choices))
    for (what, x), layout in zip(_hazards(dtype, block, own.element.dtype, random), layouts, strict=False):
        for settings in choices:
            if settings.get("layout") == layout:
                yield problem(what, x, settings)
    if own.relative:
        for tensor_scale in _TENSOR_SCALES:
            x = spread_squares((1, 65, 48), dtype, block, random)
            yield problem(f"tensor scale {tensor_scale:g}", x, choices[0], tensor_scales=[tensor_scale])
        x = spread_squares((len(_TENSOR_SCALES), 33, 32), dtype, block, random)
        yield problem("a tensor scale for each matrix", x, choices[0], tensor_scales=_TENSOR_SCALES)


def spread_squares(shape: tuple[int, int, int], dtype: str, block: int, random: numpy.random.Generator) -> numpy.ndarray:
    """Normal numbers, each square at a scale of its own over the whole range of exponents of the dtype."""
    E, N, K = shape
    low, high = (-22, 14) if dtype == "f16" else (-140, 126)
    exponents = random.integers(low, high, (E, -(-N // block), -(-K // block))).repeat(block, axis=1).repeat(block, axis=2)
    return cast(numpy.ldexp(random.standard_normal(shape), exponents[:, :N, :K]), dtype)


def _hazards(dtype: str, block: int, element: numpy.dtype, random: numpy.random.Generator) -> Iterator[tuple[str, numpy.ndarray]]:
    every, area, kind = every_pattern(dtype), block * block, numpy_dtype(dtype)
    yield "random bits", random_bits((1, 257, 6 * block), dtype, random)
    yield "every bit pattern among its neighbours", _pave(every.reshape(-1, block, block))
    count = max(2**20 // area, 64)  # squares; a pattern in each
    chosen = random.permutation(every)[:count]
    chosen[:8] = numpy.array([0, -0.0, 1, numpy.inf, -numpy.inf, numpy.nan, -numpy.nan, -1]).astype(kind)
    for background in (0.0, 1.0):
        rows = as_largest(chosen, block, background).reshape(-1, block)
        yield f"bit patterns as the largest of a square, {background:g} of the rest", _pave(_rotated(rows))
    yield "ties and their neighbours", _pave(_rotated(ties(dtype, block, element)))

    squares = numpy.zeros((min(area, 2**20 // area) if block > 32 else area, area), kind)
    squares[1::2] = 1
    smallest = numpy.array(1, f"u{kind.itemsize}").view(kind)[()]
    values = numpy.array([0, -0.0, numpy.inf, -numpy.inf, numpy.nan, smallest, -smallest, 3], kind)
    index = numpy.arange(len(squares))
    places = index * (area // len(squares) + (len(squares) < area)) % area  # every place, or places in every row and column
    squares[index, places] = values[index // 2 % len(values)]
    yield "zeros, infinities, NaNs and subnormals at the places of a square", _pave(squares.reshape(-1, block, block))

    # Squares of one row: so few elements that the emulator runs them, too.
    step = 16 if block > 32 else 1
    yield "zeros, infinities, NaNs and subnormals, squares of one row", _one_row(specials(dtype, block), block, step)
    yield "ties and their neighbours, squares of one row", _one_row(ties(dtype, block, element), block)
    yield "some bit patterns as the largest, squares of one row", _one_row(some_as_largest(every, block, 1.0), block)


def _one_row(blocks: numpy.ndarray, block: int, step: int = 1) -> numpy.ndarray:
    """Matrices of one row of 128, so that every block along it is a square."""
    chosen = blocks.reshape(-1, block)[::step]
    return numpy.resize(chosen, (-(-chosen.size // 128), 1, 128))


def _rotated(rows: numpy.ndarray) -> numpy.ndarray:
    """A square of each row: its rows are that row, rotated by one more place each."""
    index = numpy.arange(rows.shape[1])
    return rows[:, (index[None, :] - index[:, None]) % len(index)]


def _pave(squares: numpy.ndarray) -> numpy.ndarray:
    """Squares beside and below each other in one matrix; the first ones again where it has more room."""
    block, across = squares.shape[1], 5 if squares.shape[1] <= 32 else 3
    squares = squares[numpy.arange(-(-len(squares) // across) * across) % len(squares)]
    matrix = squares.reshape(-1, across, block, block).swapaxes(1, 2)
    return numpy.ascontiguousarray(matrix).reshape(1, -1, across * block)
