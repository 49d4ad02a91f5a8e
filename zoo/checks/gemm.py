"""Problems for FP8 GEMMs with block scales; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from types import MappingProxyType
from typing import NamedTuple

import ml_dtypes
import numpy

from zoo.checks.gemm_bounds import with_bounds
from zoo.checks.problem import FEW_MULTIPROCESSORS, Later, NoChecks, Placed, Problem, dtype_of, numbers_of_multiprocessors
from zoo.checks.products import gemm_fp8b128, gemm_fp8b128_k_grouped, gemm_fp8b128_k_grouped_of_powers, gemm_fp8b128_of_powers
from zoo.checks.rounding import cast
from zoo.checks.shared_rest import shared, shares_rest, with_a_rest
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.gemm import accumulated, rounded, scaled
from zoo.reference.gemm_powers_of_two import ue8m0_of_powers
from zoo.reference.groups import gather
from zoo.reference.small_floats import decode_e8m0

BLOCK = 128

# (M, N, K) around the units of the kernels: 8 columns, 64 rows of a wgmma, tiles of 64 to 256, 16 and 128 of K, a ring of stages.
# Those that an emulator can take come first. The last are as wide as it takes for tiles of 144 columns to begin at every place
# in a scale of B where they ever do.
_SHAPES = (
    (1, 8, 272), (7, 136, 128), (9, 8, 1040), (16, 72, 144), (17, 16, 272), (1, 264, 16), (33, 200, 48), (65, 8, 144),
    (129, 24, 64), (257, 136, 16), (120, 8, 32), (5, 8, 1936), (31, 40, 256), (1, 8, 2880),
    (1, 576, 1152), (16, 520, 2064), (63, 392, 656), (64, 1032, 528), (128, 272, 400), (130, 648, 1168), (300, 264, 272),
    (517, 392, 144), (70, 136, 2880), (1, 1160, 16), (65, 1928, 144),
)  # fmt: skip


_SUMS = ((9, 136, 144), (65, 8, 144), (300, 264, 272))

# (M, N, K, sizes of groups): groups that end within a tile, at its edge, one after it; empty ones first, last and in a row;
# rows that belong to nobody; more groups than tiles, than lanes of a warp, and that end at its edges; one that owns everything.
_GROUPS = (
    (40, 72, 144, (0, 7, 0, 0, 20, 13)),
    (130, 16, 48, (1, 128, 0, 1)),
    (9, 8, 272, (3, 3)),
    (33, 24, 16, (0, 0, 0)),
    (260, 8, 32, (257,)),
    (20, 8, 16, (3, 0, 17)),
    (9, 8, 2880, (1, 5)),
    (0, 8, 16, (0, 0)),
    (3, 8, 16, ()),
    (90, 8, 16, (0,) * 31 + (3, 40, 0, 1) + (0,) * 28 + (1, 30) + (0,) * 5),
    (300, 16, 16, ((0,) * 99 + (1,)) * 5 + (0,) * 530 + (257,)),
    (280, 8, 32, (8, 260)),
    (700, 264, 400, (128, 0, 129, 256, 63, 1, 64)),
    (1100, 392, 656, (500, 0, 3, 191, 193, 200)),
    (300, 136, 1168, (1,) * 40 + (0,) * 20 + (193,)),
)  # fmt: skip


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    makers = {
        "dense": _dense,
        "m_grouped_contiguous": _m_grouped_contiguous,
        "m_grouped_masked": _m_grouped_masked,
        "m_grouped_gather": _m_grouped_gather,
        "k_grouped": _k_grouped,
    }
    refuse_other_formats(kernel)
    make = makers[kernel.fields["grouping"]]
    if arithmetic_of(variant) is BLACKWELL:
        return map(with_bounds, make(kernel, variant, BLACKWELL))
    return itertools.chain(make(kernel, variant, HOPPER), some_of_bytes(make(kernel, variant, HOPPER_OF_BYTES)))


def some_of_bytes(problems: Iterator[Problem]) -> Iterator[Problem]:
    """Every fifth, for layouts repeat after two and three: scales of both, of a, of b as ue8m0, in turn."""
    ways = itertools.cycle((("a_scale", "b_scale"), ("a_scale",), ("b_scale",)))
    return map(with_bytes, itertools.islice(problems, 0, None, 5), ways)


def with_bytes(problem: Problem, names: tuple[str, ...]) -> Problem:
    words = " and ".join(names) or "none"
    return replace(problem, inputs=as_ue8m0(dict(problem.inputs), names), name=f"{problem.name}, {words} as bytes")


def refuse_other_formats(kernel: Kernel) -> None:
    if kernel.fields["formats"] != "fp8b128":
        raise NoChecks(
            kernel, f"products of {kernel.fields['formats']}", "add their problems to zoo/checks, beside those of zoo/checks/gemm.py"
        )


Sums = Callable[[], numpy.ndarray]  # worked out once, when somebody asks


class Arithmetic(NamedTuple):
    """What scales of these problems are, and what operands with such scales give: (a, a_scale, b, b_scale, splits) -> f32 sums."""

    scales: Callable[[numpy.ndarray], numpy.ndarray]
    product: Callable[..., numpy.ndarray]
    along_k: Callable[..., numpy.ndarray]  # the same for groups along K: (a, a_scale, b, b_scale, ends)


def _powers_of_two(scales: numpy.ndarray) -> numpy.ndarray:
    return numpy.asarray(numpy.exp2(numpy.floor(numpy.log2(scales))), numpy.float32)


def _ends_of_the_range(scales: numpy.ndarray) -> numpy.ndarray:
    """Powers of two that are bytes; of several rows the last has the least one."""
    found = _powers_of_two(scales)
    if len(found) > 1:
        found[-1] = 2.0**-127
    return decode_e8m0(ue8m0_of_powers(found))


HOPPER = Arithmetic(lambda scales: scales, lambda *operands: gemm_fp8b128(*operands), lambda *operands: gemm_fp8b128_k_grouped(*operands))
HOPPER_OF_BYTES = HOPPER._replace(scales=_ends_of_the_range)
BLACKWELL = Arithmetic(_powers_of_two, gemm_fp8b128_of_powers, gemm_fp8b128_k_grouped_of_powers)


def arithmetic_of(variant: Variant) -> Arithmetic:
    return BLACKWELL if variant.arch.startswith("sm_10") else HOPPER


def as_ue8m0(placed: dict[str, Placed], names: tuple[str, ...] = ("a_scale", "b_scale")) -> dict[str, Placed]:
    """The same scales as bytes."""
    made = {name: replace(placed[name], values=ue8m0_of_powers(placed[name].values), dtype="ue8m0") for name in names}
    return {**placed, **made}


def _d(
    sums: Sums,
    dtype: str,
    strides: tuple[int, ...] | None = None,
    untouched: numpy.ndarray | None = None,
    row_scale: numpy.ndarray | None = None,
    shape: tuple[int, ...] = (),
) -> Later:
    """D of the sums, each row times its factor; of this shape, where it is not theirs."""

    def outputs() -> dict[str, Placed]:
        values = rounded(sums() if row_scale is None else scaled(sums(), row_scale), dtype)
        return {"d": Placed(values.reshape(shape or values.shape), strides, untouched=untouched)}

    return Later(outputs)


def _dtypes_of_d(kernel: Kernel, variant: Variant) -> Iterator[str]:
    """For ever: the one that a variant has, or in turn all that it takes."""
    if "d" in variant.dtypes:
        return itertools.repeat(variant.dtypes["d"])
    dtype_of(kernel, variant, "d")
    dtypes = kernel.arguments["d"].dtypes
    return itertools.cycle([dtype for dtype in dtypes if dtype != "f32" or arithmetic_of(variant) is BLACKWELL])


def _dense(kernel: Kernel, variant: Variant, on: Arithmetic) -> Iterator[Problem]:
    dtypes = _dtypes_of_d(kernel, variant)
    rests = shares_rest(variant)
    numbers = itertools.cycle((132, 4)) if rests else numbers_of_multiprocessors() if on is BLACKWELL else itertools.repeat(None)

    def problem(
        name: str,
        operands: Operands,
        gap: int = 0,
        transposed: bool = False,
        c: numpy.ndarray | None = None,
        row_scale: numpy.ndarray | None = None,
        aligned: int = 0,
        options: Mapping[str, str] = MappingProxyType({}),
        multiprocessors: int | None = None,
    ) -> Problem:
        a, a_scale, b, b_scale = operands.arrays
        number, sizes = multiprocessors or next(numbers), (len(a), len(b), a.shape[1])
        splits = 1 if options.get("batch_invariant") == "yes" else splits_of(kernel, variant, *sizes, number)

        def sums() -> numpy.ndarray:
            found = operands.row_by_row if options.get("batch_invariant") == "yes" else operands.product(splits)
            if rests and number:
                cut, where = shared(kernel, variant, sizes, number, options.get("batch_invariant") == "yes")
                found = numpy.where(where, operands.product(cut), found) if where.any() else found
            found = found if row_scale is None else scaled(found, row_scale)
            with numpy.errstate(all="ignore"):
                return found if c is None else c.astype(numpy.float32) + found

        strides: dict[str, tuple[int, ...]] = {"a": (a.shape[1] + 16 * gap, 1), "b": (b.shape[1] + 32 * gap, 1)}
        for scale, array in (("a_scale", a_scale), ("b_scale", b_scale)):
            rows, blocks = array.shape
            strides[scale] = (1, -(-rows // 4) * 4 + 4 * gap) if transposed else (blocks + gap, 1)
        inputs = {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale}
        placed = {argument: Placed(array, strides[argument]) for argument, array in inputs.items()}
        placed["a_scale"] = Placed(a_scale, strides["a_scale"], aligned=aligned)
        if c is not None:
            placed["c"] = Placed(c, (c.shape[1] + 2 * gap, 1))
        if row_scale is not None:
            placed["row_scale"] = Placed(row_scale)
        if on is BLACKWELL and gap == 1:
            placed, name = as_ue8m0(placed), name + ", scales as bytes"
        return Problem(name, placed, _d(sums, next(dtypes), (len(b) + 8 * gap, 1)), options, multiprocessors=number)

    if rests:
        for count, shape in with_a_rest(variant):
            words = f"{' x '.join(map(str, shape))} on {count} multiprocessors, what fills no wave is shared along K"
            yield problem(words, _random(*shape, on=on), multiprocessors=count)
    if "SHARERS" in variant.constants:
        # CTAs that write into each other's stages: more blocks than stages, several tiles with weights in a cluster, rows in every part
        yield problem("64 x 136 x 2064, stages that other CTAs write into", _random(64, 136, 2064, on=on))
    for index, shape in enumerate(_SHAPES):
        words = " x ".join(map(str, shape))
        options = {"b_constant": "yes"} if index % 4 == 0 else {}
        aligned = 16 * (index % 4 == 3)
        words += ", random" + ", b constant" * len(options) + ", scales of a at multiples of 16 bytes" * bool(aligned)
        yield problem(words, _random(*shape, on=on), gap=index % 3, transposed=index % 2 == 1, aligned=aligned, options=options)
    for shape in ((260, 24, 32), (128, 8, 144), (517, 392, 1040)):
        words = " x ".join(map(str, shape))
        yield problem(f"{words}, the scales of a tile's rows of a copied at once", _random(*shape, on=on), transposed=True, aligned=16)
    for index, (shape, kind) in enumerate(itertools.product(_SUMS, (numpy.float32, ml_dtypes.bfloat16))):  # t256 refuses them
        c = cast(numpy.random.default_rng(index).standard_normal(shape[:2]) * 100, kind)
        c[0, 0] = numpy.nan
        words, factors, operands = " x ".join(map(str, shape)), _factors(shape[0]), _random(*shape, on=on)
        yield problem(f"{words}, added to c of {c.dtype}", operands, gap=index % 3, c=c)
        if kind is numpy.float32:
            yield problem(f"{words}, rows scaled", operands, gap=index % 3, row_scale=factors)
        yield problem(f"{words}, rows scaled, added to c of {c.dtype}", operands, c=c, row_scale=factors)
    for shape in ((9, 136, 272), (70, 72, 144)):
        yield problem(f"{shape}: small whole numbers, exact in any order", _whole_numbers(*shape, on=on))
        yield problem(f"{shape}: NaN in one row of a stays there", _nan_in("a", *shape, on=on))
        yield problem(f"{shape}: NaN in one row of b stays in its column", _nan_in("b", *shape, on=on))
        yield problem(f"{shape}: a NaN scale of a stays in its row", _nan_in("a_scale", *shape, on=on), transposed=True)
        yield problem(f"{shape}: sums too small for a number, half of them -0", _underflowing(*shape, on=on))
    # three tiles of 128 begin at rows 0, 88 and 172: the second's box of 88 rows ends in four of the third's
    yield problem("257 x 24 x 32: NaN in a row that the boxes of two tiles bring stays there", _nan_in("a", 257, 24, 32, on=on, row=174))
    for shape in ((5, 136, 272), (33, 72, 400)):  # variants that split K refuse
        words = " x ".join(map(str, shape))
        yield problem(
            f"{words}, batch_invariant: each row as it comes out alone", _random(*shape, on=on), options={"batch_invariant": "yes"}
        )
    yield problem("no rows", _random(0, 16, 32, on=on))


def splits_of(kernel: Kernel, variant: Variant, M: int, N: int, K: int, multiprocessors: int | None = None) -> int:
    """Over how many CTAs K is split."""
    if "SPLITS" in variant.constants or arithmetic_of(variant) is HOPPER:
        return variant.constants.get("SPLITS", 1)
    sms = multiprocessors or FEW_MULTIPROCESSORS
    values = {"M": M, "N": N, "K": K, "sms": sms, "batch_invariant.yes": 0, "batch_invariant.no": 1}
    for name, expression in kernel.derived:
        values[name] = expression.evaluate(values)
    return variant.launch.cluster[0].evaluate(values | variant.symbols) // variant.constants["CTAS"]


# (N, K, rows in a row and their group, -1: nobody's): padding between groups as DeepGEMM has it, groups in any order, nobody's rows
# first, last and over whole tiles, groups of one row, more groups than there are rows of some
_RUNS = (
    (24, 48, ((0, 128), (1, 5), (-1, 123), (2, 100), (-1, 28))),
    (72, 144, ((-1, 3), (2, 40), (0, 1), (1, 1), (-1, 9))),
    (8, 32, ((-1, 300), (1, 64), (-1, 1), (0, 70), (-1, 265))),
    (16, 16, ((-1, 40),)),
    (8, 16, ((0, 3), (-1, 2), (1, 4))),
    (8, 2880, ((1, 2), (-1, 1), (0, 1))),
    (136, 272, ((3, 1), (0, 64), (-1, 63), (4, 129), (-1, 127), (1, 384))),
    (264, 656, ((0, 500), (-1, 12), (2, 512), (-1, 130), (3, 17))),
)  # fmt: skip


def _m_indices(kernel: Kernel, variant: Variant, on: Arithmetic) -> Iterator[Problem]:
    dtypes = _dtypes_of_d(kernel, variant)
    for number, (N, K, runs) in enumerate(_RUNS):
        m_indices = numpy.repeat(*numpy.array(runs, numpy.int32).T).astype(numpy.int32)
        M, groups, gap = len(m_indices), 5, number % 2
        a, a_scale = (array.copy() for array in _random(M, 8, K, on).arrays[:2])
        a[m_indices < 0], a_scale[m_indices < 0] = numpy.nan, numpy.nan
        b, b_scale = _weights(N, K, groups, on)
        sums = sums_of_indexed(a, a_scale, b, b_scale, m_indices, on)
        inputs = {
            "a": Placed(a, (K + 16 * gap, 1)),
            "a_scale": Placed(a_scale, (1, -(-M // 4) * 4) if gap else None),
            "b": Placed(b),
            "b_scale": Placed(b_scale),
            "m_indices": Placed(m_indices),
        }
        inputs = as_ue8m0(inputs) if gap and on is BLACKWELL else inputs
        nobody = numpy.broadcast_to((m_indices < 0)[:, None], (M, N))
        words = f"N {N}, K {K}, rows {', '.join(f'{count} of {group}' for group, count in runs)}, NaN in those of -1"
        yield Problem(words, inputs, _d(sums, next(dtypes), (N + 8 * gap, 1), nobody))


def sums_of_indexed(
    a: numpy.ndarray, a_scale: numpy.ndarray, b: numpy.ndarray, b_scale: numpy.ndarray, m_indices: numpy.ndarray, on: Arithmetic = HOPPER
) -> Sums:
    @cache
    def sums() -> numpy.ndarray:
        found = numpy.zeros((len(a), b.shape[1]), numpy.float32)
        for group in range(len(b)):
            rows = m_indices == group
            if rows.any():
                found[rows] = on.product(a[rows], a_scale[rows], b[group], b_scale[group])
        return found

    return sums


def _m_grouped_contiguous(kernel: Kernel, variant: Variant, on: Arithmetic) -> Iterator[Problem]:
    dtypes = _dtypes_of_d(kernel, variant)
    if variant.constants.get("INDEXED"):
        yield from _m_indices(kernel, variant, on)
    for index, (M, N, K, sizes) in enumerate(_GROUPS):
        for what in ("random", "NaN in the rows of nobody and in the first of every second group"):
            arrays, sums = _groups(M, N, K, sizes, what != "random", on)
            ends = numpy.cumsum(sizes).astype(numpy.int32)
            nobody = numpy.broadcast_to((numpy.arange(M) >= sum(sizes))[:, None], (M, N))
            gap = index % 2
            strides = {"a": (K + 16 * gap, 1), "b": (N * (K + 16 * gap), K + 16 * gap, 1)}
            if gap:
                strides["a_scale"] = (1, -(-M // 4) * 4)
            inputs = {name: Placed(array, strides.get(name)) for name, array in arrays.items()}
            if variant.constants.get("INDEXED"):
                inputs["m_indices"] = Placed(group_of_rows(M, sizes))
            else:
                inputs["offsets"] = Placed(ends)
            if gap and what == "random":
                inputs["a_scale"] = Placed(arrays["a_scale"], strides["a_scale"], aligned=16)
            inputs = as_ue8m0(inputs) if gap and on is BLACKWELL else inputs
            d_strides = N + 8 * gap, 1
            words = f"{M} x {N} x {K}, groups {' '.join(map(str, sizes[:8]))}{' ...' if len(sizes) > 8 else ''}, {what}"
            yield Problem(words, inputs, _d(sums, next(dtypes), d_strides, nobody))
            if what == "random":
                factors = _factors(M)
                scaled_inputs = inputs | {"row_scale": Placed(factors)}
                yield Problem(words + ", rows scaled", scaled_inputs, _d(sums, next(dtypes), d_strides, nobody, factors))
    owner = (
        {"m_indices": Placed(numpy.zeros(9, numpy.int32))}
        if variant.constants.get("INDEXED")
        else {"offsets": Placed(numpy.array([9], numpy.int32))}
    )
    inputs, sums = _underflowing_group(9, 136, 144, on)
    yield Problem("one group: sums too small for a number, half of them -0", inputs | owner, _d(sums, next(dtypes)))


def group_of_rows(M: int, sizes: tuple[int, ...]) -> numpy.ndarray:
    """m_indices, where offsets would have been those of `sizes`."""
    groups = [group for group, size in enumerate(sizes) for _ in range(size)]
    return numpy.array(groups + [-1] * (M - len(groups)), numpy.int32)


def _m_grouped_gather(kernel: Kernel, variant: Variant, on: Arithmetic) -> Iterator[Problem]:
    dtypes = _dtypes_of_d(kernel, variant)
    for number, (M, N, K, sizes) in enumerate(_GROUPS):
        for special in (False, True):
            tokens, gap = max(1, M // 3), number % 2
            arrays, sums = _gathered(M, N, K, sizes, special, on)
            nobody = numpy.broadcast_to((numpy.arange(M) >= sum(sizes))[:, None], (M, N))
            strides = {"a": (K + 16 * gap, 1), "b": (N * (K + 16 * gap), K + 16 * gap, 1)}
            if gap:
                strides["a_scale"] = (1, -(-tokens // 4) * 4)
            inputs = {name: Placed(array, strides.get(name)) for name, array in arrays.items()}
            inputs = as_ue8m0(inputs) if gap and on is BLACKWELL else inputs
            d_strides = N + 8 * gap, 1
            words = f"{M} rows of {tokens}, N {N}, K {K}, groups {' '.join(map(str, sizes[:8]))}{' ...' if len(sizes) > 8 else ''}"
            workspaces = {"workspace": Placed(gather_workspace(M, K))} if variant.constants.get("USES_WORKSPACE") else {}
            named = words + ", NaN in some rows, none in others" * special
            yield Problem(named, inputs, _d(sums, next(dtypes), d_strides, nobody), workspaces=workspaces)
            if not special:
                factors = _factors(M)
                inputs = inputs | {"row_scale": Placed(factors)}  # those of the problem before stay as they are
                yield Problem(words + ", rows scaled", inputs, _d(sums, next(dtypes), d_strides, nobody, factors), workspaces=workspaces)


def gather_workspace(M: int, K: int) -> numpy.ndarray:
    """Any bytes: rows at multiples of 128 bytes, their scales for 16 rows at a time, a word for each 16 rows and four more."""
    rows, blocks, units = -(-(M * K) // 128) * 128, -(-K // 128), -(-M // 16)
    return numpy.random.default_rng(M * K).integers(0, 256, rows + 4 * (16 * units * blocks + units + 4), dtype=numpy.uint8)


def _factors(M: int) -> numpy.ndarray:
    """Routing weights; the first two a NaN and a zero."""
    factors = numpy.random.default_rng(M).uniform(0.01, 1, M).astype(numpy.float32)
    factors[:2] = (numpy.nan, 0)[: len(factors[:2])]
    return factors


@lru_cache(maxsize=64)
def _gathered(M: int, N: int, K: int, sizes: tuple[int, ...], special: bool, on: Arithmetic) -> tuple[dict[str, numpy.ndarray], Sums]:
    """The inputs, and the sums of every row. `special`: a row of NaN that nobody takes, one that some take, and rows of none."""
    tokens, ends = max(1, M // 3), numpy.cumsum(sizes).astype(numpy.int32)
    random = numpy.random.default_rng(M * 31 + len(sizes))
    index = random.integers(0, tokens, M, dtype=numpy.int32)
    a, a_scale = (array.copy() for array in _random(tokens, 8, K, on).arrays[:2])
    if special:
        a[0], a_scale[0], a[-1, -1] = numpy.nan, numpy.nan, numpy.nan
        index[(index == 0) | (random.random(M) < 0.2)] = -1
    b, b_scale = _weights(N, K, len(sizes), on)
    sums = sums_of_groups(gather(a, index), gather(a_scale, index), b, b_scale, sizes, on)
    index[sum(sizes) :] = 2**31 - 1  # not to be looked up
    return {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale, "index": index, "offsets": ends}, sums


# (N, K, rows of a place, rows used): none, one, all, up to the tile's edge and over it; more groups than lanes of a warp
_PLACES = (
    (72, 144, 9, (0, 9, 1, 0, 5)),
    (8, 32, 66, (64, 65, 0)),
    (16, 16, 130, (129,)),
    (24, 48, 4, (0, 0)),
    (8, 2880, 3, (3, 0)),
    (8, 16, 0, (0, 0)),
    (8, 16, 5, ()),
    (8, 16, 2, (0,) * 31 + (2, 1, 0, 0, 1) + (0,) * 27 + (2, 1) + (0,) * 5),
    (264, 400, 260, (128, 0, 260, 193, 64)),
    (136, 1168, 33, (20,) * 12),
)  # fmt: skip


def _m_grouped_masked(kernel: Kernel, variant: Variant, on: Arithmetic) -> Iterator[Problem]:
    dtypes = _dtypes_of_d(kernel, variant)
    if on is HOPPER:
        yield from _strided_groups(dtypes)
    for index, (N, K, rows, used) in enumerate(_PLACES):
        for special in (False, True):
            G, gap = len(used), index % 2
            sizes = tuple(size for count in used for size in (count, rows - count))  # every second group is nobody's
            arrays, sums = _groups(G * rows, N, K, sizes, False, on)
            nobody = numpy.arange(rows)[None, :] >= numpy.array(used)[:, None]
            a = arrays["a"].reshape(G, rows, K).copy()
            if special:
                a[nobody] = numpy.nan
            a_scale = arrays["a_scale"].reshape(G, rows, -(-K // BLOCK))
            blocks, pitch = a_scale.shape[2], -(-rows // 4) * 4
            inputs = {
                "a": Placed(a, (rows * (K + 16 * gap), K + 16 * gap, 1)),
                "a_scale": Placed(a_scale, (blocks * pitch, 1, pitch) if gap else None, aligned=16 * (gap and not special)),
                "b": Placed(arrays["b"][::2]),
                "b_scale": Placed(numpy.ascontiguousarray(arrays["b_scale"][::2])),
                "rows": Placed(numpy.array(used, numpy.int32)),
            }
            inputs = as_ue8m0(inputs) if gap and on is BLACKWELL else inputs
            shape = (G, rows, N)
            untouched = numpy.broadcast_to(nobody[:, :, None], shape)
            strides = (rows * (N + 8 * gap), N + 8 * gap, 1)
            words = f"{G} places of {rows} rows, used {' '.join(map(str, used))}, N {N}, K {K}"
            yield Problem(words + ", NaN in the others" * special, inputs, _d(sums, next(dtypes), strides, untouched, shape=shape))
            if not special:  # t256 refuses factors
                factors = _factors(G * rows)
                inputs = inputs | {"row_scale": Placed(factors.reshape(G, rows))}
                yield Problem(words + ", rows scaled", inputs, _d(sums, next(dtypes), strides, untouched, factors, shape))
    inputs, sums = _underflowing_group(9, 136, 144, on)
    inputs |= {name: Placed(inputs[name].values[None]) for name in ("a", "a_scale")} | {"rows": Placed(numpy.array([9], numpy.int32))}
    yield Problem("one place: sums too small for a number, half of them -0", inputs, _d(sums, next(dtypes), shape=(1, 9, 136)))


def _strided_groups(dtypes: Iterator[str]) -> Iterator[Problem]:
    """Places as heads are, (R, G, K) and (R, G, N) in memory, or further apart than their rows need; all rows used, or some."""
    several = [place for place in _PLACES if len(place[3]) > 1]
    for index, ((N, K, rows, used), as_heads) in enumerate(itertools.product(several, (True, False))):
        G = len(used)
        used = (rows,) * G if index % 3 == 0 else used
        arrays, sums = _groups(G * rows, N, K, tuple(size for count in used for size in (count, rows - count)), False, HOPPER)
        nobody = numpy.arange(rows)[None, :] >= numpy.array(used, int)[:, None]
        a = arrays["a"].reshape(G, rows, K).copy()
        a[nobody] = numpy.nan
        strides_of_a, strides_of_d = (
            (length, G * length + 16, 1) if as_heads else (rows * length + 16, length, 1) for length in (K + 16, N + 8)
        )
        factors = _factors(G * rows)
        inputs = {
            "a": Placed(a, strides_of_a),
            "a_scale": Placed(arrays["a_scale"].reshape(G, rows, -(-K // BLOCK))),
            "b": Placed(arrays["b"][::2]),
            "b_scale": Placed(numpy.ascontiguousarray(arrays["b_scale"][::2])),
            "row_scale": Placed(factors.reshape(G, rows)),
            "rows": Placed(numpy.array(used, numpy.int32)),
        }
        shape = (G, rows, N)
        untouched = numpy.broadcast_to(nobody[:, :, None], shape)
        words = f"{G} {'heads' if as_heads else 'places apart'} of {rows} rows, used {' '.join(map(str, used))}, N {N}, K {K}, rows scaled"
        yield Problem(words, inputs, _d(sums, next(dtypes), strides_of_d, untouched, factors, shape))


# (M, N, K, sizes of groups along K): that end within a block of 128, within 16, at the edge, one after it; empty ones first, last
# and in a row; rows of K that belong to nobody; one block, more blocks than stages; nothing at all
_ALONG_K = (
    (9, 8, 336, (0, 16, 128, 0, 0, 144, 16, 0)),
    (33, 16, 48, (48,)),
    (1, 24, 272, (16, 32, 48, 128)),
    (70, 8, 130, (0, 0)),
    (5, 136, 100, (16, 67)),
    (3, 8, 1700, (640, 1024, 4)),
    (2, 8, 2912, (2880, 16)),
    (200, 264, 700, (128, 0, 272, 300)),
    (193, 129 * 8, 1136, (16, 992, 32, 64)),
    (520, 392, 1400, (16,) * 10 + (0,) * 20 + (656, 1)),
    (7, 8, 0, (0, 0)),
)


def _k_grouped(kernel: Kernel, variant: Variant, on: Arithmetic) -> Iterator[Problem]:
    dtypes = _dtypes_of_d(kernel, variant)
    for index, shape in enumerate(_ALONG_K):
        M, N, K, sizes = shape
        for accumulate in ("no", "yes"):
            dtype = next(dtypes)
            arrays, sums = _along_k(M, N, K, sizes, index % 2 == 0, on)
            gap = index % 3
            pitch = -(-K // 16) * 16 + 16 * gap
            strides = {"a": (pitch, 1), "b": (pitch + 16, 1)}
            strides |= {"a_scale": (1, -(-M // 4) * 4 + 4 * gap), "b_scale": (1, N + 8 * gap)}
            inputs = {name: Placed(array, strides[name]) for name, array in arrays.items()}
            inputs["offsets"] = Placed(numpy.cumsum(sizes).astype(numpy.int32))
            inputs = as_ue8m0(inputs) if index % 3 == 1 and on is BLACKWELL else inputs
            before = None
            if accumulate == "yes":
                random, whole = numpy.random.default_rng(index), (len(sizes), M, N)
                before = cast(random.standard_normal(whole) * 100, dtype)
                before[random.random(whole) < 0.1] = -0.0
            outputs = _gradients(sums, dtype, ((M + gap) * (N + 8 * gap), N + 8 * gap, 1), before, numpy.array(sizes) == 0)
            words = f"{M} x {N}, groups {' '.join(map(str, sizes[:8]))}{' ...' if len(sizes) > 8 else ''} of K {K}"
            special = ", NaN in what is nobody's and in some rows" * (index % 2 == 0)
            words += special + ", added to what was there" * (accumulate == "yes")
            yield Problem(words, inputs, outputs, {"accumulate": accumulate})


def _gradients(sums: Sums, dtype: str, strides: tuple[int, ...], before: numpy.ndarray | None, empty: numpy.ndarray) -> Later:
    """The sums, added to what was there where something was: not for the empty groups."""
    if before is None:
        return _d(sums, dtype, strides)

    def outputs() -> dict[str, Placed]:
        expected = accumulated(before, sums(), dtype)
        expected[empty] = before[empty]
        return {"d": Placed(expected, strides, before=before)}

    return Later(outputs)


@lru_cache(maxsize=64)
def _along_k(M: int, N: int, K: int, sizes: tuple[int, ...], special: bool, on: Arithmetic) -> tuple[dict[str, numpy.ndarray], Sums]:
    """(a, a_scale, b, b_scale; the sums of every group). Special: NaN where no group is, and in one element and one scale."""
    random = numpy.random.default_rng(M * 1000003 + N * 1009 + K)
    blocks = -(-K // BLOCK) + len(sizes)
    used = sum(-(-size // BLOCK) for size in sizes)
    a, b = _elements(random, M, K), _elements(random, N, K)
    a_scale, b_scale = (on.scales(numpy.exp2(random.uniform(-8, 8, (blocks, rows))).astype(numpy.float32).T) for rows in (M, N))
    arrays = {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale}
    if special:
        for name in ("a", "b"):
            arrays[name][:, sum(sizes) :] = numpy.nan
            arrays[name + "_scale"][:, used:] = numpy.nan
        if sum(sizes):
            arrays["a"][M // 2, sum(sizes) - 1] = numpy.nan
            arrays["b_scale"][N // 2, 0] = numpy.nan
    return arrays, cache(lambda: on.along_k(a, a_scale, b, b_scale, numpy.cumsum(sizes)))


@lru_cache(maxsize=64)
def _groups(M: int, N: int, K: int, sizes: tuple[int, ...], special: bool, on: Arithmetic) -> tuple[dict[str, numpy.ndarray], Sums]:
    """(a, a_scale, b of each group, b_scale of each group; the sums of every row, of nobody's zeros)."""
    a, a_scale, _, _ = (array.copy() for array in _random(M, 8, K, on).arrays)
    b, b_scale = _weights(N, K, len(sizes), on)
    ends = numpy.cumsum(sizes)
    if special:
        a[sum(sizes) :, 0] = numpy.nan
        for size, end in list(zip(sizes, ends, strict=True))[::2]:
            if size:
                a[end - size, -1] = numpy.nan
    return {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale}, sums_of_groups(a, a_scale, b, b_scale, sizes, on)


def sums_of_groups(
    a: numpy.ndarray, a_scale: numpy.ndarray, b: numpy.ndarray, b_scale: numpy.ndarray, sizes: tuple[int, ...], on: Arithmetic = HOPPER
) -> Sums:
    """Of every row with the weights of its group; of nobody's zeros."""

    @cache
    def sums() -> numpy.ndarray:
        found = numpy.zeros((len(a), b.shape[1]), numpy.float32)
        for group, (size, end) in enumerate(zip(sizes, numpy.cumsum(sizes), strict=True)):
            rows = slice(end - size, end)
            if size:
                found[rows] = on.product(a[rows], a_scale[rows], b[group], b_scale[group])
        return found

    return sums


@lru_cache(maxsize=64)
def _weights(N: int, K: int, groups: int, on: Arithmetic) -> tuple[numpy.ndarray, numpy.ndarray]:
    """(b, b_scale), different for every group."""
    parts = [_random(1, N, K + 16 * group, on).arrays[2:] for group in range(max(groups, 1))]
    b, b_scale = numpy.stack([part[0][:, :K] for part in parts]), numpy.stack([part[1][:, : -(-K // BLOCK)] for part in parts])
    return b[:groups], b_scale[:groups]


@dataclass(frozen=True)
class Operands:
    """a, a_scale, b, b_scale; and their product, which all variants that split K alike share."""

    arrays: tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray, numpy.ndarray]
    on: Arithmetic
    products: dict[int, numpy.ndarray] = field(default_factory=dict)

    def product(self, splits: int) -> numpy.ndarray:
        if splits not in self.products:
            self.products[splits] = self.on.product(*self.arrays, splits)
        return self.products[splits]

    @cached_property
    def row_by_row(self) -> numpy.ndarray:
        a, a_scale, b, b_scale = self.arrays
        return numpy.vstack([self.on.product(a[row : row + 1], a_scale[row : row + 1], b, b_scale) for row in range(len(a))])


@lru_cache(maxsize=64)
def _random(M: int, N: int, K: int, on: Arithmetic) -> Operands:
    """Elements of all magnitudes, none NaN; scales over 2^16."""
    random = numpy.random.default_rng(M * 1000003 + N * 1009 + K)
    blocks = -(-K // BLOCK)

    def scales(rows: int) -> numpy.ndarray:
        return on.scales(numpy.exp2(random.uniform(-8, 8, (rows, blocks))).astype(numpy.float32))

    return Operands((_elements(random, M, K), scales(M), _elements(random, N, K), scales(-(-N // BLOCK))), on)


def _elements(random: numpy.random.Generator, rows: int, K: int) -> numpy.ndarray:
    """Rows of normal numbers and rows of all magnitudes; no NaN."""
    normal = cast(random.standard_normal((rows, K)), "e4m3")
    codes = random.integers(0, 256, (rows, K), dtype=numpy.uint8)
    any_number = numpy.where(codes & 0x7F == 0x7F, codes - 1, codes).view(normal.dtype)
    return numpy.where(random.random((rows, 1)) < 0.5, any_number, normal)


@lru_cache(maxsize=64)
def _whole_numbers(M: int, N: int, K: int, on: Arithmetic) -> Operands:
    """Sums below 2^13 in the tensor core and 2^24 after it."""
    random = numpy.random.default_rng(M)
    blocks = -(-K // BLOCK)

    def elements(rows: int) -> numpy.ndarray:
        return random.integers(-4, 5, (rows, K)).astype(ml_dtypes.float8_e4m3fn)

    def scales(rows: int) -> numpy.ndarray:
        return numpy.exp2(random.integers(0, 3, (rows, blocks))).astype(numpy.float32)

    return Operands((elements(M), scales(M), elements(N), scales(-(-N // BLOCK))), on)


@lru_cache(maxsize=64)
def _underflowing(M: int, N: int, K: int, on: Arithmetic) -> Operands:
    """Every product is below the smallest number there is, so that sums become 0 or -0."""
    random = numpy.random.default_rng(K)
    blocks = -(-K // BLOCK)
    a = numpy.zeros((M, K), ml_dtypes.float8_e4m3fn)
    a[:, ::BLOCK] = 2.0**-4
    b = cast(random.uniform(-4, 4, (N, K)), "e4m3")
    a_scale = numpy.full((M, blocks), 2.0**-75, numpy.float32)
    return Operands((a, a_scale, b, numpy.full((-(-N // BLOCK), blocks), 2.0**-74, numpy.float32)), on)


def _underflowing_group(M: int, N: int, K: int, on: Arithmetic) -> tuple[dict[str, Placed], Sums]:
    operands = _underflowing(M, N, K, on)
    a, a_scale, b, b_scale = operands.arrays
    return {"a": Placed(a), "a_scale": Placed(a_scale), "b": Placed(b[None]), "b_scale": Placed(b_scale[None])}, lambda: operands.product(1)


def _nan_in(argument: str, M: int, N: int, K: int, on: Arithmetic, row: int | None = None) -> Operands:
    a, a_scale, b, b_scale = (array.copy() for array in _random(M, N, K, on).arrays)
    changed = {"a": a, "b": b, "a_scale": a_scale}[argument]
    changed[len(changed) // 2 if row is None else row, -1] = numpy.nan
    return Operands((a, a_scale, b, b_scale), on)
