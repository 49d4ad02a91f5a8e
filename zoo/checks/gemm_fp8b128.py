"""Problems for FP8 GEMMs with block scales; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import ml_dtypes
import numpy

from zoo.checks.problem import Placed, Problem
from zoo.manifest import Kernel, Variant
from zoo.reference.gemm import gemm_fp8b128, rounded

BLOCK = 128

# (M, N, K) around the units of the kernels: 8 columns, 64 rows of a wgmma, tiles of 64 to 256, 16 and 128 of K, a ring of stages.
# Those that an emulator can take come first.
_SHAPES = (
    (1, 8, 16), (7, 136, 128), (9, 8, 1040), (16, 72, 144), (17, 16, 272), (1, 264, 16), (33, 200, 48), (65, 8, 144),
    (129, 24, 64), (257, 136, 16), (120, 8, 32), (5, 8, 1936), (31, 40, 256),
    (1, 576, 1152), (16, 520, 2064), (63, 392, 656), (64, 1032, 528), (128, 272, 400), (130, 648, 1168), (300, 264, 272),
    (517, 392, 144),
)  # fmt: skip


# (M, N, K, sizes of groups): groups that end within a tile, at its edge, one after it; empty ones first, last and in a row;
# rows that belong to nobody; more groups than tiles; one that owns everything.
_GROUPS = (
    (40, 72, 144, (0, 7, 0, 0, 20, 13)),
    (130, 16, 48, (1, 128, 0, 1)),
    (9, 8, 272, (3, 3)),
    (33, 24, 16, (0, 0, 0)),
    (260, 8, 32, (257,)),
    (700, 264, 400, (128, 0, 129, 256, 63, 1, 64)),
    (1100, 392, 656, (500, 0, 3, 191, 193, 200)),
    (300, 136, 1168, (1,) * 40 + (0,) * 20 + (193,)),
)  # fmt: skip


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    makers = {"dense": _dense, "m_grouped_contiguous": _m_grouped_contiguous, "m_grouped_masked": _m_grouped_masked}
    if kernel.fields["grouping"] not in makers:
        raise NotImplementedError(f"{kernel.name}: zoo/checks/gemm_fp8b128.py knows {', '.join(makers)} only")
    return makers[kernel.fields["grouping"]](variant)


def _dense(variant: Variant) -> Iterator[Problem]:
    dtype = variant.dtypes["d"]
    splits = variant.constants["SPLITS"]

    def problem(name: str, operands: Operands, gap: int = 0, transposed: bool = False) -> Problem:
        a, a_scale, b, b_scale = operands.arrays
        d = rounded(operands.product(splits), dtype)
        strides = {"a": (a.shape[1] + 16 * gap, 1), "b": (b.shape[1] + 32 * gap, 1), "d": (d.shape[1] + 8 * gap, 1)}
        for scale, array in (("a_scale", a_scale), ("b_scale", b_scale)):
            rows, blocks = array.shape
            strides[scale] = (1, -(-rows // 4) * 4 + 4 * gap) if transposed else (blocks + gap, 1)
        inputs = {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale}
        placed = {argument: Placed(array, strides[argument]) for argument, array in inputs.items()}
        return Problem(name, placed, {"d": Placed(d, strides["d"])})

    for index, shape in enumerate(_SHAPES):
        words = " x ".join(map(str, shape))
        yield problem(f"{words}, random", _random(*shape), gap=index % 3, transposed=index % 2 == 1)
    for shape in ((9, 136, 272), (70, 72, 144)):
        yield problem(f"{shape}: small whole numbers, exact in any order", _whole_numbers(*shape))
        yield problem(f"{shape}: NaN in one row of a stays there", _nan_in("a", *shape))
        yield problem(f"{shape}: NaN in one row of b stays in its column", _nan_in("b", *shape))
        yield problem(f"{shape}: a NaN scale of a stays in its row", _nan_in("a_scale", *shape), transposed=True)
    yield problem("no rows", _random(0, 16, 32))


def _m_grouped_contiguous(variant: Variant) -> Iterator[Problem]:
    dtype = variant.dtypes["d"]
    for index, (M, N, K, sizes) in enumerate(_GROUPS):
        for what in ("random", "NaN in the rows of nobody and in the first of every second group"):
            arrays, sums = _groups(M, N, K, sizes, what != "random")
            ends = numpy.cumsum(sizes).astype(numpy.int32)
            nobody = numpy.broadcast_to((numpy.arange(M) >= ends[-1])[:, None], (M, N))
            gap = index % 2
            strides = {"a": (K + 16 * gap, 1), "b": (N * (K + 16 * gap), K + 16 * gap, 1)}
            if gap:
                strides["a_scale"] = (1, -(-M // 4) * 4)
            inputs = {name: Placed(array, strides.get(name)) for name, array in arrays.items()}
            inputs["offsets"] = Placed(ends)
            d = Placed(rounded(sums, dtype), (N + 8 * gap, 1), untouched=nobody)
            words = f"{M} x {N} x {K}, groups {' '.join(map(str, sizes[:8]))}{' ...' if len(sizes) > 8 else ''}, {what}"
            yield Problem(words, inputs, {"d": d})


# (N, K, rows of a place, rows used): none, one, all, up to the tile's edge and over it
_PLACES = (
    (72, 144, 9, (0, 9, 1, 0, 5)),
    (8, 32, 66, (64, 65, 0)),
    (16, 16, 130, (129,)),
    (24, 48, 4, (0, 0)),
    (264, 400, 260, (128, 0, 260, 193, 64)),
    (136, 1168, 33, (20,) * 12),
)  # fmt: skip


def _m_grouped_masked(variant: Variant) -> Iterator[Problem]:
    dtype = variant.dtypes["d"]
    for index, (N, K, rows, used) in enumerate(_PLACES):
        for special in (False, True):
            G, gap = len(used), index % 2
            sizes = tuple(size for count in used for size in (count, rows - count))  # every second group is nobody's
            arrays, sums = _groups(G * rows, N, K, sizes, False)
            nobody = numpy.arange(rows)[None, :] >= numpy.array(used)[:, None]
            a = arrays["a"].reshape(G, rows, K).copy()
            if special:
                a[nobody] = numpy.nan
            a_scale = arrays["a_scale"].reshape(G, rows, -1)
            blocks, pitch = a_scale.shape[2], -(-rows // 4) * 4
            inputs = {
                "a": Placed(a, (rows * (K + 16 * gap), K + 16 * gap, 1)),
                "a_scale": Placed(a_scale, (blocks * pitch, 1, pitch) if gap else None),
                "b": Placed(arrays["b"][::2]),
                "b_scale": Placed(numpy.ascontiguousarray(arrays["b_scale"][::2])),
                "rows": Placed(numpy.array(used, numpy.int32)),
            }
            untouched = numpy.broadcast_to(nobody[:, :, None], (G, rows, N))
            strides = (rows * (N + 8 * gap), N + 8 * gap, 1)
            d = Placed(rounded(sums, dtype).reshape(G, rows, N), strides, untouched=untouched)
            words = f"{G} places of {rows} rows, used {' '.join(map(str, used))}, N {N}, K {K}"
            yield Problem(words + ", NaN in the others" * special, inputs, {"d": d})


@lru_cache(maxsize=64)
def _groups(M: int, N: int, K: int, sizes: tuple[int, ...], special: bool) -> tuple[dict[str, numpy.ndarray], numpy.ndarray]:
    """(a, a_scale, b of each group, b_scale of each group; the sums of every row, of nobody's zeros)."""
    a, a_scale, _, _ = (array.copy() for array in _random(M, 8, K).arrays)
    parts = [_random(1, N, K + 16 * group).arrays[2:] for group in range(len(sizes))]  # different for every group
    b = numpy.stack([part[0][:, :K] for part in parts])
    b_scale = numpy.stack([part[1][:, : a_scale.shape[1]] for part in parts])
    ends = numpy.cumsum(sizes)
    if special:
        a[ends[-1] :, 0] = numpy.nan
        for size, end in list(zip(sizes, ends, strict=True))[::2]:
            if size:
                a[end - size, -1] = numpy.nan
    sums = numpy.zeros((M, N), numpy.float32)
    for group, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        rows = slice(end - size, end)
        if size:
            sums[rows] = gemm_fp8b128(a[rows], a_scale[rows], b[group], b_scale[group])
    return {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale}, sums


@dataclass(frozen=True)
class Operands:
    """a, a_scale, b, b_scale; and their product, which all variants that split K alike share."""

    arrays: tuple[numpy.ndarray, ...]
    products: dict[int, numpy.ndarray] = field(default_factory=dict)

    def product(self, splits: int) -> numpy.ndarray:
        if splits not in self.products:
            self.products[splits] = gemm_fp8b128(*self.arrays, splits)
        return self.products[splits]


@lru_cache(maxsize=64)
def _random(M: int, N: int, K: int) -> Operands:
    """Elements of all magnitudes, none NaN; scales over 2^16."""
    random = numpy.random.default_rng(M * 1000003 + N * 1009 + K)
    blocks = -(-K // BLOCK)

    def elements(rows: int) -> numpy.ndarray:
        normal = random.standard_normal((rows, K)).astype(ml_dtypes.float8_e4m3fn)
        codes = random.integers(0, 256, (rows, K), dtype=numpy.uint8)
        any_number = numpy.where(codes & 0x7F == 0x7F, codes - 1, codes).view(normal.dtype)
        return numpy.where(random.random((rows, 1)) < 0.5, any_number, normal)

    def scales(rows: int) -> numpy.ndarray:
        return numpy.exp2(random.uniform(-8, 8, (rows, blocks))).astype(numpy.float32)

    return Operands((elements(M), scales(M), elements(N), scales(-(-N // BLOCK))))


@lru_cache(maxsize=64)
def _whole_numbers(M: int, N: int, K: int) -> Operands:
    """Sums below 2^13 in the tensor core and 2^24 after it."""
    random = numpy.random.default_rng(M)
    blocks = -(-K // BLOCK)

    def elements(rows: int) -> numpy.ndarray:
        return random.integers(-4, 5, (rows, K)).astype(ml_dtypes.float8_e4m3fn)

    def scales(rows: int) -> numpy.ndarray:
        return numpy.exp2(random.integers(0, 3, (rows, blocks))).astype(numpy.float32)

    return Operands((elements(M), scales(M), elements(N), scales(-(-N // BLOCK))))


@lru_cache(maxsize=64)
def _nan_in(argument: str, M: int, N: int, K: int) -> Operands:
    arrays = {name: array.copy() for name, array in zip(("a", "a_scale", "b", "b_scale"), _random(M, N, K).arrays, strict=True)}
    arrays[argument][len(arrays[argument]) // 2, -1] = numpy.nan
    return Operands(tuple(arrays.values()))
