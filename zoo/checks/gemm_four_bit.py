"""Problems for products of FP8 or bf16 and packed 4-bit weights; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import ml_dtypes
import numpy

from zoo.checks.gemm import Sums
from zoo.checks.layouts import in_rows
from zoo.checks.problem import Later, NoChecks, Placed, Problem
from zoo.checks.remembered import remembered
from zoo.checks.repeated_rows import TOKENS, again, drawn_rows
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.four_bit_gemm import factors_of, finished, gemm_bf16_by_four_bit, gemm_fp8_by_four_bit
from zoo.reference.four_bit_weights import NO_LARGEST, largest_scales, mxfp4_as_bf16, mxfp4_as_e4m3, nvfp4_as_bf16, nvfp4_as_e4m3
from zoo.reference.fragment_words import ROWS
from zoo.reference.fragments import pack_mxfp4, pack_nvfp4, permuted_columns
from zoo.reference.gemm import rounded

# (M, N, K): around 8 columns, 64 and 128 rows of weights, tiles of 8 to 192 tokens, 32 and 64 of K, blocks of 256, a ring of stages. Those
# that an emulator can take come first.
_SHAPES = (
    (1, 8, 32), (7, 136, 64), (9, 8, 544), (16, 72, 96), (17, 16, 320), (33, 200, 64), (65, 8, 160), (129, 24, 64), (5, 8, 1344),
    (31, 40, 256), (200, 16, 32), (3, 16, 2880),
    (16, 520, 2080), (63, 392, 672), (64, 1032, 512), (128, 272, 416), (300, 264, 288), (517, 392, 2880), (177, 136, 4128),
)  # fmt: skip

# (M, N, K, sizes of groups): that end within a tile, at its edge, one after it; empty ones first, last and in a row; rows that belong to
# nobody; more groups than the 32 or 128 that a warp finds at once; one that owns everything; as many rows as the widths that a tile may be multiplied at, and one more.
_GROUPS = (
    (40, 72, 96, (0, 7, 0, 0, 20, 13)),
    (130, 16, 64, (1, 128, 0, 1)),
    (9, 8, 320, (3, 3)),
    (33, 24, 32, (0, 0, 0)),
    (190, 8, 32, (177,)),
    (20, 8, 64, (3, 0, 17)),
    (9, 8, 1344, (1, 5)),
    (0, 8, 32, (0, 0)),
    (3, 8, 32, ()),
    (18, 8, 32, (0,) * 31 + (3, 4, 0) + (0,) * 93 + (1, 1, 2) + (0,) * 4 + (1,)),
    (700, 264, 416, (128, 0, 129, 256, 63, 1, 64)),
    (300, 136, 1184, (1,) * 40 + (0,) * 20 + (193,)),
    (219, 16, 64, (32, 33, 72, 73, 5)),
    (40, 8, 320, (38,)),
)
# Where weights are decoded once: more rows of tiles than are multiplied at a time, more than 32 pieces of K, groups of one row beside those.
_GROUPS_OF_MANY = ((2110, 8, 64, (0, 2100, 1, 3)), (300, 264, 4288, (1, 0, 260, 39)))

# (N, K, rows of a place, rows used): none, one, all, up to the tile's edge and over it; more groups than the 32 or 128 that a warp finds at once
_PLACES = (
    (72, 96, 9, (0, 9, 1, 0, 5)),
    (8, 32, 66, (64, 65, 0)),
    (16, 32, 180, (177,)),
    (24, 64, 4, (0, 0)),
    (8, 1344, 3, (3, 0)),
    (8, 32, 0, (0, 0)),
    (8, 32, 5, ()),
    (8, 32, 2, (0,) * 31 + (2, 1, 0) + (0,) * 93 + (1, 2, 1) + (0,) * 4 + (1,)),
    (264, 416, 260, (128, 0, 260, 193, 64)),
    (136, 1184, 33, (20,) * 12),
    (16, 64, 74, (32, 33, 72, 73, 5)),
    (8, 320, 40, (38,)),
)


# Variants that add up alike share their products.
_of_bf16, _of_fp8 = remembered(megabytes=64)(gemm_bf16_by_four_bit), remembered(megabytes=64)(gemm_fp8_by_four_bit)


@dataclass(frozen=True)
class Packed:
    """Weights of one group: as the kernel takes them, and the e4m3 or bf16 and powers of two that they stand for."""

    b: numpy.ndarray
    largest: numpy.ndarray | None
    weights: numpy.ndarray
    powers: numpy.ndarray
    q: numpy.ndarray  # as they were before
    scales: numpy.ndarray


@dataclass(frozen=True)
class Way:
    """How a variant adds up K: the scales for 1 x 128 that it takes, or that it never promotes; neither of most."""

    scales: numpy.ndarray | None = None
    columns_first: bool = False  # the scales' M is contiguous
    never: bool = False

    @property
    def options(self) -> dict[str, str]:
        return {"promotion": "never"} if self.never else {}

    def placed(self, places: tuple[int, ...] = ()) -> dict[str, Placed]:
        """Scales with gaps between rows, and where there are places between those as well."""
        if self.scales is None:
            return {}
        (M, blocks), first = self.scales.shape, not self.columns_first
        strides = (blocks + 1, 1) if first else (1, M + 3)
        if not places:
            return {"a_block_scale": Placed(self.scales, strides)}
        groups, rows = places
        of_group = rows * (blocks + 1) + 2 if first else rows + 1
        strides = (of_group, *((blocks + 1, 1) if first else (1, groups * (rows + 1) + 3)))
        return {"a_block_scale": Placed(self.scales.reshape(groups, rows, blocks), strides)}

    def of(self, rows: slice) -> Way:
        return self if self.scales is None else replace(self, scales=self.scales[rows])

    def taken(self, index: numpy.ndarray) -> Way:
        """Of rows that an index names; 1 for those that are none."""
        if self.scales is None:
            return self
        there = index >= 0
        scales = numpy.where(there[:, None], self.scales[numpy.where(there, index, 0)], numpy.float32(1))
        return replace(self, scales=scales)

    def multiplied(self, a: numpy.ndarray, weights: numpy.ndarray, splits: int = 1) -> numpy.ndarray:
        if a.dtype == ml_dtypes.bfloat16:
            return _of_bf16(a, weights, splits)
        return _of_fp8(a, weights, "never" if self.never else "256", self.scales, splits)


_PROMOTED, _SCALED, _NEVER, _IF_ASKED = range(4)  # Promotion of src_cu/gemm/hopper_w4/operands.cuh


def _way(variant: Variant, M: int, K: int, seed: int, number: int = 0) -> Way:
    """Scales of all magnitudes and both orientations. Of problems in turn two of five are never promoted, where a launch may ask for that."""
    promotion = variant.constants.get("PROMOTION", _PROMOTED)
    if promotion != _SCALED:
        return Way(never=promotion == _NEVER or (promotion == _IF_ASKED and number % 5 in (1, 4)))
    scales = numpy.exp2(numpy.random.default_rng(seed + M).uniform(-12, 12, (M, -(-K // 128))))
    return Way(scales.astype(numpy.float32), columns_first=bool(seed % 2))


ODD_SCALES = {"NaN": numpy.nan, "infinity": numpy.inf, "zero": 0, "the smallest": 2.0**-149, "negative": -1.5}


def _odd_scales(variant: Variant, M: int, K: int) -> Iterator[tuple[str, Way]]:
    """What a scale for 1 x 128 may be."""
    way = _way(variant, M, K, 0)
    if way.scales is None:
        return
    for words, value in ODD_SCALES.items():
        scales = way.scales.copy()
        scales[M // 2, -1] = scales[0, 0] = value
        yield f"a scale of one row and 128 of K that is {words} stays there", replace(way, scales=scales)
    whole = numpy.full_like(way.scales, 2.0**-60)
    yield (
        "scales under which sums are of all magnitudes",
        replace(way, scales=numpy.ldexp(whole, numpy.arange(M)[:, None] % 3 * 20)),
    )


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    makers = {"dense": _dense, "m_grouped_contiguous": _contiguous, "m_grouped_masked": _masked, "m_grouped_gather": _gather}
    formats = kernel.fields["formats"]
    if formats not in ("fp8_nvfp4", "fp8_mxfp4", "bf16_nvfp4", "bf16_mxfp4"):
        raise NoChecks(kernel, f"products of {formats}", "add their weights to zoo/checks/gemm_four_bit.py")
    return makers[kernel.fields["grouping"]](kernel, variant, formats)


def _dtypes_of_d(kernel: Kernel, variant: Variant) -> Iterator[str]:
    """By turns; some tiles have no f32."""
    return itertools.cycle([dtype for dtype in kernel.arguments["d"].dtypes if dtype != "f32" or "not d.f32" not in variant.when.text])


def _dense(kernel: Kernel, variant: Variant, formats: str) -> Iterator[Problem]:
    dtypes = _dtypes_of_d(kernel, variant)
    numbers = itertools.count()
    splits, more = variant.constants.get("SPLITS", 1), _rows_besides(variant)

    def problem(
        name: str, a: numpy.ndarray, packed: Packed, gap: int = 0, given: tuple[str, ...] = (), options: dict[str, str] | None = None,
        way: Way | None = None,
    ) -> Problem:  # fmt: skip
        (M, K), N = a.shape, len(packed.weights)
        optional = {what: array for what, array in _optional(M, N, gap, formats).items() if what in given}
        way = way or _way(variant, M, K, gap + N, next(numbers))
        placed = {"a": _a_placed(a, gap), **_weights_placed(kernel, [packed], N, K, formats, one=True)}
        placed |= {what: Placed(array) for what, array in optional.items()} | way.placed()

        def sums() -> numpy.ndarray:
            found = way.multiplied(a, packed.weights, splits)
            factors = factors_of(packed.powers, optional.get("alpha"))
            return finished(found, factors, optional.get("a_scale"), optional.get("bias"), optional.get("row_scale"))

        workspaces = _workspaces(variant, 1, N, K)
        return Problem(name, placed, _d(sums, next(dtypes), (N + 8 * gap, 1)), (options or {}) | way.options, workspaces=workspaces)

    every = ("a_scale", "alpha", "bias", "row_scale")
    for index, (M, N, K) in enumerate(_SHAPES):
        M += more
        given = tuple(what for place, what in enumerate(every) if index >> place & 1 or index % 5 == 4)
        words = f"{M} x {N} x {K}, with {' '.join(given) or 'nothing'}"
        yield problem(words, _tokens(M, K, formats), _packed(N, K, formats), index % 3, given)
    for M, N, K in ((9 + more, 136, 160), (70 + more, 72, 96)):
        words = f"{M} x {N} x {K}"
        a = _tokens(M, K, formats).copy()
        a[M // 2, -1] = numpy.nan
        yield problem(f"{words}: NaN in one row of a stays there", a, _packed(N, K, formats), 0, every)
        yield problem(f"{words}: a scale of b that is NaN stays in its column", _tokens(M, K, formats), _packed(N, K, formats, "NaN"))
        yield problem(f"{words}: scales from the smallest to the largest", _tokens(M, K, formats), _packed(N, K, formats, "spread"))
        yield problem(f"{words}: weights of zero", _tokens(M, K, formats), _packed(N, K, formats, "zeros"))
    yield problem("every code under every scale", _one_hot(formats, more), _packed(128, 128, formats, "table"))
    if kernel.fields.get("extra") == "stored":
        words, kind = ("negative scales turn signs", "negative") if formats.endswith("nvfp4") else ("scales larger than is said", "capped")
        yield problem(words, _tokens(20, 192, formats), _packed(72, 192, formats, kind))
    if "batch_invariant" in kernel.options and splits == 1:
        shape = (20 + more, 72, 544)
        yield problem(
            f"{shape}, batch_invariant", _tokens(20 + more, 544, formats), _packed(72, 544, formats), options={"batch_invariant": "yes"}
        )
    for name, way_of_scales in _odd_scales(variant, 9 + more, 544):
        yield problem(name, _tokens(9 + more, 544, formats), _packed(72, 544, formats), way=way_of_scales)
    if more:  # more rows of tiles than are multiplied at a time; more than 32 of what is decoded at once along K
        for M, N, K in ((2100, 8, 64), (260, 264, 4288)):
            yield problem(f"{M} x {N} x {K}", _tokens(M, K, formats), _packed(N, K, formats))
    else:
        yield problem("no rows", _tokens(0, 32, formats), _packed(16, 32, formats))


def _workspaces(variant: Variant, G: int, N: int, K: int) -> dict[str, Placed]:
    """Of a tile that decodes once: anything at all."""
    if "DEQUANTIZES_ONCE" not in variant.constants:
        return {}
    units = G * -(-N // 128) * -(-K // 256) * 2
    return {"workspace": Placed(numpy.random.default_rng(units).integers(0, 256, units * (128 * 128 + 4) + 16, dtype=numpy.uint8))}


def _rows_besides(variant: Variant) -> int:
    """That a problem has where weights are decoded once: fewer need no workspace."""
    return 257 if "DEQUANTIZES_ONCE" in variant.constants else 0


def _contiguous(kernel: Kernel, variant: Variant, formats: str) -> Iterator[Problem]:
    dtypes, more = _dtypes_of_d(kernel, variant), _rows_besides(variant)
    for index, (M, N, K, sizes) in enumerate(_GROUPS + (_GROUPS_OF_MANY if more else ())):
        M += more
        for special in (False, True):
            a = _tokens(M, K, formats).copy()
            if special:
                a[sum(sizes) :] = numpy.nan
                if M:
                    a[0, -1] = numpy.nan
            odd = _with_nan(sizes) if special else None
            groups, optional = _of_groups(N, K, formats, len(sizes), odd), _optional_of_groups(M, N, len(sizes), index + special, formats)
            nobody = numpy.broadcast_to((numpy.arange(M) >= sum(sizes))[:, None], (M, N))
            gap, way = index % 2, _way(variant, M, K, index + special, 2 * index + special)
            inputs = {"a": _a_placed(a, gap), **_weights_placed(kernel, groups, N, K, formats)}
            inputs |= {"offsets": Placed(numpy.cumsum(sizes).astype(numpy.int32))}
            inputs |= {what: Placed(array) for what, array in optional.items()} | way.placed()
            words = f"{M} x {N} x {K}, groups {_said(sizes)}{', NaN in the first row and in those of nobody' * special}{_of_nan(odd)}"
            sums = _sums_of_groups(a, groups, sizes, optional, way)
            d, workspaces = _d(sums, next(dtypes), (N + 8 * gap, 1), nobody), _workspaces(variant, len(sizes), N, K)
            yield Problem(words, inputs, d, way.options, workspaces)


def _masked(kernel: Kernel, variant: Variant, formats: str) -> Iterator[Problem]:
    dtypes, more = _dtypes_of_d(kernel, variant), _rows_besides(variant)
    for index, (N, K, rows, used) in enumerate(_PLACES):
        rows += more
        for special in (False, True):
            G, gap, shape = len(used), index % 2, (len(used), rows, N)
            nobody = numpy.arange(rows)[None, :] >= numpy.array(used)[:, None]
            a = _tokens(G * rows, K, formats).copy()
            if special:
                a[nobody.reshape(-1)] = numpy.nan
            odd = _with_nan(used) if special else None
            groups, optional = _of_groups(N, K, formats, G, odd), _optional_of_groups(G * rows, N, G, index + special, formats)
            inputs = {
                "a": _a_placed(a, gap, (G, rows)),
                "rows": Placed(numpy.array(used, numpy.int32)),
                **_weights_placed(kernel, groups, N, K, formats),
            }
            way = _way(variant, G * rows, K, index + special, 2 * index + special)
            for what, array in optional.items():
                inputs[what] = Placed(array.reshape(G, rows) if what in ("a_scale", "row_scale") else array)
            inputs |= way.placed(places=(G, rows))
            sizes = tuple(size for count in used for size in (count, rows - count))
            doubled = [packed for packed in groups for _ in range(2)]  # every second group is nobody's
            of_doubled = {w: x.repeat(2, 0) if w in ("alpha", "bias") else x for w, x in optional.items()}
            sums = _sums_of_groups(a, doubled, sizes, of_doubled, way)
            words = f"{G} places of {rows} rows, used {_said(used)}, N {N}, K {K}{', NaN in the others' * special}{_of_nan(odd)}"
            untouched = numpy.broadcast_to(nobody[:, :, None], shape)
            strides = (rows * (N + 8 * gap), N + 8 * gap, 1)
            d = _d(sums, next(dtypes), strides, untouched, shape)
            yield Problem(words, inputs, d, way.options, _workspaces(variant, G, N, K))


def _gather(kernel: Kernel, variant: Variant, formats: str) -> Iterator[Problem]:
    dtypes = _dtypes_of_d(kernel, variant)
    for number, (M, N, K, sizes) in enumerate(_GROUPS):
        for special in (False, True):
            tokens, gap = max(1, M // 3), number % 2
            random = numpy.random.default_rng(M * 31 + len(sizes))
            index = random.integers(0, tokens, M, dtype=numpy.int32)
            a = _tokens(tokens, K, formats).copy()
            optional = _optional_of_groups(M, N, len(sizes), number + special, formats)
            if "a_scale" in optional:
                optional["a_scale"] = optional["a_scale"][:tokens] if M else numpy.ones(tokens, numpy.float32)
            if special:
                a[0], a[-1, -1] = numpy.nan, numpy.nan
                index[(index == 0) | (random.random(M) < 0.2)] = -1
            odd = _with_nan(sizes) if special else None
            groups, there = _of_groups(N, K, formats, len(sizes), odd), index >= 0
            taken = numpy.zeros((M, K), a.dtype)
            taken[there] = a[index[there]]
            of_rows = dict(optional)
            if "a_scale" in optional:
                of_rows["a_scale"] = numpy.where(there, optional["a_scale"][numpy.where(there, index, 0)], numpy.float32(1))
            way = _way(variant, tokens, K, number + special, 2 * number + special)
            sums = _sums_of_groups(taken, groups, sizes, of_rows, way.taken(index))
            index[sum(sizes) :] = 2**31 - 1  # not to be looked up
            nobody = numpy.broadcast_to((numpy.arange(M) >= sum(sizes))[:, None], (M, N))
            inputs = {"a": _a_placed(a, gap), **_weights_placed(kernel, groups, N, K, formats)}
            inputs |= {"index": Placed(index), "offsets": Placed(numpy.cumsum(sizes).astype(numpy.int32))}
            inputs |= {what: Placed(array) for what, array in optional.items()} | way.placed()
            words = (
                f"{M} rows of {tokens}, N {N}, K {K}, groups {_said(sizes)}{', NaN in some rows, none in others' * special}{_of_nan(odd)}"
            )
            yield Problem(words, inputs, _d(sums, next(dtypes), (N + 8 * gap, 1), nobody), way.options)


def _said(sizes: tuple[int, ...]) -> str:
    return " ".join(map(str, sizes[:8])) + " ..." * (len(sizes) > 8)


def _d(sums: Sums, dtype: str, strides: tuple[int, ...], untouched: numpy.ndarray | None = None, shape: tuple[int, ...] = ()) -> Later:
    def outputs() -> dict[str, Placed]:
        values = rounded(sums(), dtype)
        return {"d": Placed(values.reshape(shape or values.shape), strides, untouched=untouched)}

    return Later(outputs)


def _weights_placed(kernel: Kernel, groups: list[Packed], N: int, K: int, formats: str, one: bool = False) -> dict[str, Placed]:
    """Of one product or of groups, even of none. Rows and columns that fill tiles make a problem no larger."""
    some = groups or [_packed(N, K, formats)]

    def stacked(arrays: list[numpy.ndarray]) -> numpy.ndarray:
        found = numpy.stack(arrays)[: len(groups)]
        return found[0] if one else found

    if kernel.fields.get("extra") == "stored":
        placed = stored_weights(stacked([x.q for x in some]), stacked([x.scales for x in some]), K, formats)
    else:
        b = stacked([packed.b for packed in some])
        placed = {"b": Placed(b, padding=b.size - len(groups) * N * K // 2)}
    if some[0].largest is not None:
        placed["b_row_scale"] = Placed(stacked([packed.largest for packed in some if packed.largest is not None]))
    return placed


def stored_weights(codes: numpy.ndarray, scales: numpy.ndarray, K: int, formats: str) -> dict[str, Placed]:
    """As a checkpoint has them, with and without gaps between rows; rows of scales at odd places, too."""
    return {
        "b": Placed(codes, _apart(codes, 16, K % 96), "e2m1x2"),
        "b_scale": Placed(scales, _apart(scales, 4 if K % 128 == 0 else 1, K % 96), "e4m3" if formats.endswith("nvfp4") else "ue8m0"),
    }


def _apart(array: numpy.ndarray, unit: int, gap: int) -> tuple[int, ...]:
    """Strides of rows that begin at multiples of so many bytes, with a gap where one is asked for; matrices one after the other."""
    row = -(-array.shape[-1] // unit) * unit + (unit if gap else 0)
    return (array.shape[-2] * row, row, 1)[-array.ndim :]


def _sums_of_groups(a: numpy.ndarray, groups: list[Packed], sizes: tuple[int, ...], optional: dict[str, numpy.ndarray], way: Way) -> Sums:
    """Of every row with the weights of its group; of nobody's zeros."""

    @cache
    def sums() -> numpy.ndarray:
        found = numpy.zeros((len(a), len(groups[0].weights) if groups else 8), numpy.float32)
        for group, (size, end) in enumerate(zip(sizes, numpy.cumsum(sizes), strict=True)):
            if not size:
                continue
            rows, packed = slice(end - size, end), groups[group]
            of_rows = {what: optional[what][rows] if what in optional else None for what in ("a_scale", "row_scale")}
            factors = factors_of(packed.powers, optional["alpha"][group] if "alpha" in optional else None)
            bias = optional["bias"][group] if "bias" in optional else None
            whole = way.of(rows).multiplied(a[rows], packed.weights)
            found[rows] = finished(whole, factors, of_rows["a_scale"], bias, of_rows["row_scale"])
        return found

    return sums


def _is_bf16(formats: str) -> bool:
    return formats.startswith("bf16")


def _a_placed(a: numpy.ndarray, gap: int, places: tuple[int, ...] = ()) -> Placed:
    """bf16 as it is, FP8 in the order of fragments; (groups, rows of a place, K) where groups have places."""
    found = a if a.dtype == ml_dtypes.bfloat16 else in_rows(permuted_columns(a))
    wide = found.shape[1] + 16 * gap
    if not places:
        return Placed(found, (wide, 1))
    return Placed(found.reshape(*places, found.shape[1]), (places[1] * wide, wide, 1))


def _optional(M: int, N: int, seed: int, formats: str) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(M + N + seed)
    kind = numpy.float32 if seed % 2 else ml_dtypes.bfloat16
    found = {
        "a_scale": numpy.exp2(random.uniform(-8, 8, M)).astype(numpy.float32),
        "alpha": random.uniform(0.5, 2, 1).astype(numpy.float32),
        "bias": cast(random.standard_normal(N) * 100, kind),
        "row_scale": random.uniform(0.01, 1, M).astype(numpy.float32),
    }
    return {what: array for what, array in found.items() if what != "a_scale" or not _is_bf16(formats)}


def _optional_of_groups(M: int, N: int, G: int, seed: int, formats: str) -> dict[str, numpy.ndarray]:
    """In turn all, none, and some of them."""
    found = _optional(M, N, seed, formats)
    random = numpy.random.default_rng(G + seed)
    found["alpha"] = random.uniform(0.5, 2, G).astype(numpy.float32)
    found["bias"] = cast(random.standard_normal((G, N)) * 100, found["bias"].dtype)
    given = (tuple(found), (), ("a_scale",), ("alpha", "row_scale"), ("bias",))[seed % 5]
    return {what: found[what] for what in given if what in found}


def _with_nan(sizes: tuple[int, ...]) -> int | None:
    """The last group that has rows, if another has some that could show it: one scale of its weights is NaN."""
    of_rows = [group for group, size in enumerate(sizes) if size]
    return of_rows[-1] if len(of_rows) > 1 else None


def _of_nan(group: int | None) -> str:
    return "" if group is None else f", NaN in a scale of group {group}"


def _of_groups(N: int, K: int, formats: str, G: int, with_nan: int | None = None) -> list[Packed]:
    return [_packed(N, K, formats, "NaN" if group == with_nan else "near", seed=group % 7) for group in range(G)]


@lru_cache(maxsize=64)
def _tokens(M: int, K: int, formats: str) -> numpy.ndarray:
    """Rows of normal numbers and rows of all magnitudes; no NaN."""
    random, drawn = numpy.random.default_rng(M * 1009 + K), drawn_rows(M, K, TOKENS)
    return again(_any_tokens(random, drawn, K, formats), M)


def _any_tokens(random: numpy.random.Generator, M: int, K: int, formats: str) -> numpy.ndarray:
    if _is_bf16(formats):
        any_number = (random.integers(0x3000, 0x4C00, (M, K)) | random.integers(0, 2, (M, K)) << 15).astype(numpy.uint16)
        spread = random.random((M, 1)) < 0.5
        return numpy.where(spread, any_number.view(ml_dtypes.bfloat16), cast(random.standard_normal((M, K)), "bf16"))
    normal = cast(random.standard_normal((M, K)), "e4m3")
    codes = random.integers(0, 256, (M, K), dtype=numpy.uint8)
    any_number = numpy.where(codes & 0x7F == 0x7F, codes - 1, codes).view(normal.dtype)
    return numpy.where(random.random((M, 1)) < 0.5, any_number, normal)


def _one_hot(formats: str, more: int = 0) -> numpy.ndarray:
    """A row for each of 128 columns of K: a one there; and so many rows more, from the first on."""
    return numpy.eye(128, dtype=numpy.float32)[numpy.arange(128 + more) % 128].astype(
        ml_dtypes.bfloat16 if _is_bf16(formats) else ml_dtypes.float8_e4m3fn
    )


@lru_cache(maxsize=64)
def _packed(N: int, K: int, formats: str, kind: str = "near", seed: int = 0) -> Packed:
    """Any codes; scales near each other, of the whole range, with a NaN, some negative, codes of zero, or, "table", all codes under all scales; "capped", a row's
    largest scale said to be far below those that it has."""
    random = numpy.random.default_rng(N * 1009 + K + seed * 7919)
    q: numpy.ndarray = random.integers(0, 256, (N, K // 2), dtype=numpy.uint8)
    fp4 = formats.endswith("nvfp4")
    shape = (N, K // (16 if fp4 else 32))
    low, high = ((0x28, 0x50) if fp4 else (120, 128)) if kind in ("near", "NaN") else ((0, 0x7F) if fp4 else (0, 255))
    scales = random.integers(low, high, shape, dtype=numpy.uint8)
    if kind == "table":
        q = numpy.broadcast_to(
            (numpy.arange(K // 2) * 2 % 16 | (numpy.arange(K // 2) * 2 + 1) % 16 << 4).astype(numpy.uint8), (N, K // 2)
        ).copy()
        scales = numpy.broadcast_to(numpy.arange(N, dtype=numpy.uint8)[:, None], shape).copy()
        if not fp4:
            scales = (numpy.arange(N)[:, None] + 60 * (numpy.arange(shape[1]) == 1)).astype(numpy.uint8)
    if kind == "negative":
        scales |= random.integers(0, 2, shape, dtype=numpy.uint8) << 7
    if kind == "NaN":
        scales[N // 2, -1] = 0x7F if fp4 else 0xFF
    if kind == "zeros":
        q = q & 0x88
    tokens = "bf16" if _is_bf16(formats) else "fp8"
    if fp4:
        weights = (nvfp4_as_bf16 if _is_bf16(formats) else nvfp4_as_e4m3)(q, scales)
        return Packed(pack_nvfp4(q, scales, tokens=tokens), None, weights, numpy.full(N, 8, numpy.float32), q, scales)
    if kind == "capped":
        said = (largest_scales(q, scales) // 3).astype(numpy.uint8)
        filled = numpy.append(said, numpy.full(-N % ROWS, NO_LARGEST, numpy.uint8)).view(ml_dtypes.float8_e8m0fnu)
        rebased = (mxfp4_as_bf16 if _is_bf16(formats) else mxfp4_as_e4m3)(q, scales, said)
        return Packed(pack_mxfp4(q, scales, tokens=tokens).b, filled, rebased.weights, rebased.factors, q, scales)
    rebased, packed = (mxfp4_as_bf16 if _is_bf16(formats) else mxfp4_as_e4m3)(q, scales), pack_mxfp4(q, scales, tokens=tokens)
    return Packed(packed.b, packed.row_scale, rebased.weights, rebased.factors, q, scales)
