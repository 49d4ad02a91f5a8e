"""Problems for products of block-scaled operands on Blackwell.

Every answer is that of zoo.reference, to the bit: the order of addition is the one that is published. No GPU has shown it yet, so on a
GPU elements may be as far off as f32 numbers added in any other order can be; where all sums are exact, they may not be off at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy

from zoo.checks.problem import FEW_MULTIPROCESSORS, Later, NoChecks, Placed, Problem, numbers_of_multiprocessors
from zoo.checks.products import exact_block_scaled, gemm_block_scaled
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.block_scaled_gemm import KINDS, Kind, error_bound, finished, finished_bound
from zoo.reference.layouts import blocked_shape, to_blocked
from zoo.reference.pack import pack_mxfp4
from zoo.reference.small_floats import E4M3, E5M2

DTYPES = ("f32", "bf16", "f16")  # of D

# (M, N, K) around the units of the kernels: 8 and 16 columns, chunks of 32, tiles of 128 and 256, steps of 32 and 64 of K, lines of 128
# and 256, rings of stages, and more tiles than multiprocessors. Those that an emulator can take come first; in some of them CTAs share K.
_SHAPES = (
    (1, 8, 32), (7, 136, 96), (129, 8, 64), (5, 72, 160), (33, 24, 224), (16, 264, 32), (1, 8, 1824), (257, 16, 32), (9, 8, 928),
    (65, 40, 128), (120, 8, 96), (257, 264, 32), (4, 8, 1568), (513, 8, 32), (31, 48, 192), (130, 136, 32), (1, 8, 2016), (12, 120, 128),
    (1, 8, 2880), (70, 136, 2880), (130, 648, 1184), (300, 264, 288), (517, 392, 160), (64, 1032, 544), (1, 576, 1152), (16, 520, 4096),
    (65, 1928, 160), (770, 776, 160), (1, 1160, 32), (260, 520, 1056),
)  # fmt: skip

# Small ones, and one of each format where CTAs share K.
_FINISHED = ((9, 136, 64), (130, 24, 32), (3, 8, 1056), (3, 8, 1824), (300, 264, 160))


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    formats, grouping = kernel.fields["formats"], kernel.fields["grouping"]
    if formats not in KINDS or grouping != "dense" or "extra" in kernel.fields:
        raise NoChecks(kernel, f"products of {formats}, {grouping}", "add their problems to zoo/checks/block_scaled.py")
    return _dense(kernel, variant)


def dense_problem(
    kernel: Kernel,
    variant: Variant,
    words: str,
    operands: Operands,
    dtype: str,
    gap: int = 0,
    finish: Mapping[str, numpy.ndarray] = MappingProxyType({}),
    options: Mapping[str, str] = MappingProxyType({}),
    multiprocessors: int = FEW_MULTIPROCESSORS,
) -> Problem:
    """D of one matrix in this dtype; rows of all arrays so many times 16 bytes, or more, further apart than they must be."""
    splits = splits_of(kernel, variant, operands.sizes, options, multiprocessors)
    words = f"{words}, D of {dtype}" + f", K shared by {splits}" * (splits > 1)
    inputs = operands.placed(gap) | {name: placed_finish(name, array, gap) for name, array in finish.items()}
    outputs = operands.d(dtype, splits, (operands.sizes[1] + 8 * gap, 1), finish)
    return Problem(words, inputs, outputs, options, multiprocessors=multiprocessors)


def _dense(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    formats, dtypes, numbers = kernel.fields["formats"], itertools.cycle(DTYPES), numbers_of_multiprocessors()

    def problem(words: str, operands: Operands, **how: Any) -> Problem:
        return dense_problem(kernel, variant, words, operands, next(dtypes), multiprocessors=next(numbers), **how)

    for index, shape in enumerate(_SHAPES):
        options = {"b_constant": "yes"} if index % 4 == 0 else {}
        words = f"{' x '.join(map(str, shape))}, random" + ", b constant" * len(options)
        yield problem(words, random_operands(formats, *shape, index), gap=index % 3, options=options)
    for index, shape in enumerate(_FINISHED):
        operands = random_operands(formats, *shape, index)
        for count, finish in enumerate(finishing_steps(*shape[:2], index)):
            words = " x ".join(map(str, shape)) + f", {', '.join(f'{name} of {array.dtype}' for name, array in finish.items())}"
            yield problem(words, operands, gap=count % 2, finish=finish)
    for shape in ((9, 136, 96), (70, 72, 32), (2, 8, 1824), (300, 264, 1056), (17, 136, 2880)):
        for _ in DTYPES:
            yield problem(f"{' x '.join(map(str, shape))}, small whole numbers, exact in any order", whole_numbers(formats, *shape))
    for shape in ((9, 136, 96), (70, 72, 32), (2, 8, 1824)):
        words = " x ".join(map(str, shape))
        for argument in ("a", "b", "a_scale", "b_scale"):
            if not argument_has_nan(formats, argument):
                continue
            where = "row" if argument.startswith("a") else "column"
            yield problem(f"{words}, NaN in one row of {argument} stays in its {where}", nan_in(formats, argument, *shape))
        yield problem(f"{words}, scales of all exponents that leave D a number", far_apart(formats, *shape))
        yield problem(f"{words}, sums below the smallest number become 0", underflowing(formats, *shape))
    for shape in ((3, 8, 1056), (2, 8, 1824), (33, 72, 416), (300, 264, 160)):
        words = f"{' x '.join(map(str, shape))}, batch_invariant: each row as it comes out alone"
        yield problem(words, random_operands(formats, *shape), options={"batch_invariant": "yes"})
    yield problem("no rows", random_operands(formats, 0, 16, 32))


def splits_of(
    kernel: Kernel,
    variant: Variant,
    sizes: tuple[int, int, int],
    options: Mapping[str, str],
    multiprocessors: int = FEW_MULTIPROCESSORS,
) -> int:
    """Over how many CTAs the launch shares K."""
    if not any("SPLITS" in extent.names for extent in variant.launch.cluster):
        return 1
    M, N, K = sizes
    values: dict[str, Any] = {"M": M, "N": N, "K": K, "KB": K // (1 + all(KINDS[kernel.fields["formats"]].packed))}
    values |= variant.symbols | {"sms": multiprocessors}
    for name, option in kernel.options.items():
        values |= {f"{name}.{value}": int(options.get(name, option.default) == value) for value in option.values}
    for name, expression in kernel.derived:
        if set(expression.names) <= set(values):
            values[name] = expression.evaluate(values)
    return int(values["SPLITS"])


Arrays = tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray, numpy.ndarray]


@dataclass(frozen=True)
class Operands:
    """a, its plain scales, b and its; and the products of them that are asked for, which the variants that split K alike share."""

    formats: str
    arrays: Arrays
    exact_in_any_order: bool = False
    products: dict[int, numpy.ndarray] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N, K"""
        a, _, b, _ = self.arrays
        return len(a), len(b), a.shape[1] * (1 + KINDS[self.formats].packed[0])

    def sums(self, splits: int = 1) -> numpy.ndarray:
        if splits not in self.products:
            self.products[splits] = gemm_block_scaled(*self.arrays, self.formats, splits)
        return self.products[splits]

    @cached_property
    def bounded(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        """(the exact product, how far sums may be off)"""
        product, magnitude = exact_block_scaled(*self.arrays, self.formats)
        return product, error_bound(magnitude, self.sizes[2])

    def placed(self, gap: int = 0) -> dict[str, Placed]:
        """Rows of a `gap` times 16 bytes apart and those of b twice that; scales blocked."""
        a, a_scale, b, b_scale = self.arrays
        a_dtype, b_dtype = ("e2m1x2" if packed else None for packed in KINDS[self.formats].packed)
        rows = rows_of_weights(self.formats, b)
        return {
            "a": Placed(a, (a.shape[1] + 16 * gap, 1), a_dtype),
            "a_scale": placed_scales(a_scale),
            "b": Placed(rows, (rows.shape[1] + 32 * gap, 1), b_dtype, padding=rows.size - b.size),
            "b_scale": placed_scales(b_scale),
        }

    def d(self, dtype: str, splits: int, strides: tuple[int, ...], finish: Mapping[str, numpy.ndarray]) -> Later:
        def outputs() -> dict[str, Placed]:
            values = finished(self.sums(splits), dtype, **finish)
            within = None
            if not self.exact_in_any_order:
                middle, bound = finished_bound(*self.bounded, dtype, **finish)
                with numpy.errstate(invalid="ignore"):
                    within = bound + numpy.abs(values.astype(numpy.float64) - middle)
            return {"d": Placed(values, strides, within=within)}

        return Later(outputs)


def rows_of_weights(formats: str, b: numpy.ndarray) -> numpy.ndarray:
    """B's rows (..., K / 2) as the kernel takes them: 4 bits that come a byte each, in rows of 128 elements, of which those beyond K
    may be anything."""
    if KINDS[formats].packed != (False, True):
        return b
    rows = pack_mxfp4(b)
    rows[..., b.shape[-1] :] = 0xFF
    return rows


def placed_scales(scales: numpy.ndarray) -> Placed:
    """Blocked. The padding is 0xFF, which is NaN and nobody's: to a kernel it may be any byte."""
    shape = blocked_shape(*scales.shape)
    whole = numpy.full(shape, 0xFF, numpy.uint8)
    whole[: scales.shape[0], : scales.shape[1]] = scales.view(numpy.uint8)
    return Placed(to_blocked(whole).reshape(shape).view(scales.dtype), padding=whole.size - scales.size)


def placed_finish(name: str, array: numpy.ndarray, gap: int) -> Placed:
    return Placed(array, (array.shape[1] + 2 * gap, 1) if name == "c" else None)


# ---- what is multiplied ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def random_operands(formats: str, M: int, N: int, K: int, seed: int = 0) -> Operands:
    """Elements of all magnitudes and of usual ones, none NaN; scales over 2^16 or, of e4m3, all that there are."""
    random, kind = numpy.random.default_rng([seed, M, N, K]), KINDS[formats]
    a, b = (_elements(random, kind, side, rows, K) for side, rows in enumerate((M, N)))
    a_scale, b_scale = (_scales(random, kind, rows, K, 119, 136) for rows in (M, N))
    return Operands(formats, (a, a_scale, b, b_scale))


def _elements(random: numpy.random.Generator, kind: Kind, side: int, rows: int, K: int) -> numpy.ndarray:
    if kind.packed[side]:
        return random.integers(0, 256, (rows, K // 2), dtype=numpy.uint8)
    dtype = (E4M3, E5M2)[int(random.integers(2))].dtype
    normal = cast(random.standard_normal((rows, K)), dtype)
    any_number = random.integers(0, 256, (rows, K), dtype=numpy.uint8).view(dtype)
    any_number = numpy.where(numpy.isfinite(any_number.astype(numpy.float32)), any_number, dtype.type(1))
    return numpy.where(random.random((rows, 1)) < 0.5, any_number, normal)


def _scales(random: numpy.random.Generator, kind: Kind, rows: int, K: int, low: int, high: int) -> numpy.ndarray:
    shape = rows, K // kind.block
    if kind.e4m3_scales:
        return random.integers(0, 0x7F, shape, dtype=numpy.uint8).view(E4M3.dtype)
    return random.integers(low, high, shape, dtype=numpy.uint8).view(ml_dtypes.float8_e8m0fnu)


@lru_cache(maxsize=64)
def far_apart(formats: str, M: int, N: int, K: int) -> Operands:
    """Scales of a over 2^120, and some rows of small ones only: alignment cuts away most of some sums, and all of some products."""
    a, _, b, b_scale = random_operands(formats, M, N, K, 1).arrays
    return Operands(formats, (a, _scales(numpy.random.default_rng(K), KINDS[formats], M, K, 30, 150), b, b_scale))


@lru_cache(maxsize=64)
def whole_numbers(formats: str, M: int, N: int, K: int) -> Operands:
    """Sums are multiples of a power of two below 2^24 of it, whatever the order they are added in. Rows of a differ, and rows of b."""
    random, kind = numpy.random.default_rng([M, N, K]), KINDS[formats]

    def elements(side: int, rows: int) -> numpy.ndarray:
        if kind.packed[side]:
            return random.integers(0, 256, (rows, K // 2), dtype=numpy.uint8)
        return random.integers(-4, 5, (rows, K)).astype((E4M3, E5M2)[(M + side) % 2].dtype)

    def scales(rows: int) -> numpy.ndarray:
        codes = (0x30, 0x38, 0x3C) if kind.e4m3_scales else (126, 127, 128)  # 0.5, 1 and 1.5, or 2
        chosen = random.choice(numpy.array(codes, numpy.uint8), (rows, K // kind.block))
        return chosen.view(E4M3.dtype if kind.e4m3_scales else ml_dtypes.float8_e8m0fnu)

    return Operands(formats, (elements(0, M), scales(M), elements(1, N), scales(N)), exact_in_any_order=True)


def argument_has_nan(formats: str, argument: str) -> bool:
    """Packed elements have no NaN; all scales have one."""
    return argument.endswith("_scale") or not KINDS[formats].packed[argument == "b"]


@lru_cache(maxsize=64)
def nan_in(formats: str, argument: str, M: int, N: int, K: int) -> Operands:
    """One, in the last element or scale of a row."""
    a, a_scale, b, b_scale = (array.copy() for array in random_operands(formats, M, N, K, 2).arrays)
    changed = {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale}[argument]
    changed[len(changed) // 2, -1] = numpy.nan
    return Operands(formats, (a, a_scale, b, b_scale))


@lru_cache(maxsize=64)
def underflowing(formats: str, M: int, N: int, K: int) -> Operands:
    """Products of power-of-two scales are below 2^-149, and so are their sums; of e4m3 scales, all are zero but the elements are not."""
    a, a_scale, b, b_scale = random_operands(formats, M, N, K, 3).arrays
    smallest, small = (numpy.full(scales.shape, code, numpy.uint8).view(scales.dtype) for code, scales in ((0, a_scale), (10, b_scale)))
    return Operands(formats, (a, smallest, b, small))


# ---- from sums to D ----------------------------------------------------------------------------------------------------------------


def finishing_steps(M: int, N: int, seed: int = 0) -> Iterator[dict[str, numpy.ndarray]]:
    """Each step alone and all of them, numbers of f32 and of bf16; with NaN in a row's factor and in an element of c."""
    random = numpy.random.default_rng([M, N, seed])
    alpha = numpy.array([2.0**-9 / 3], numpy.float32)
    row_scale = random.uniform(0.01, 1, M).astype(numpy.float32)
    row_scale[:2] = (numpy.nan, 0)[: len(row_scale[:2])]
    bias = (random.standard_normal(N) * 100).astype(numpy.float32)
    c = (random.standard_normal((M, N)) * 100).astype(numpy.float32)
    c[M // 2, N // 2] = numpy.nan
    narrow = {"bias": bias.astype(ml_dtypes.bfloat16), "c": c.astype(ml_dtypes.bfloat16)}
    yield {"alpha": alpha}
    yield {"alpha": alpha, "bias": bias, "row_scale": row_scale, "c": narrow["c"]}
    yield {"row_scale": row_scale}
    yield {"bias": narrow["bias"], "c": c}
    yield {"alpha": alpha, "bias": narrow["bias"], "row_scale": row_scale, "c": c}
    yield {"bias": bias}
    yield narrow
