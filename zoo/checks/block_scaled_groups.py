"""Problems for products of groups of block-scaled operands: rows back to back, gathered, or in places, and groups along K.

Answers and how far a GPU may be off: as in zoo.checks.block_scaled. All padding of scales is 0xFF.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy

from zoo.checks.block_scaled import DTYPES, Operands, argument_has_nan, nan_in, placed_scales, random_operands, whole_numbers
from zoo.checks.problem import Later, NoChecks, Placed, Problem
from zoo.checks.products import exact_block_scaled, gemm_block_scaled
from zoo.contract.manifest import Kernel, Variant
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference.block_scaled_gemm import KINDS, Kind, error_bound, finished, finished_bound
from zoo.reference.groups import ALIGNMENT, gather

# (M, N, K, sizes of groups): groups that end within a tile, at its edge, one after it; empty ones first, last and in a row; rows that
# belong to nobody; lines and reads of scales that end anywhere; more groups than lanes of a warp, and more than there are
# multiprocessors; one that owns everything.
_GROUPS = (
    (40, 72, 96, (0, 7, 0, 0, 20, 13)),
    (130, 16, 32, (1, 128, 0, 1)),
    (9, 8, 288, (3, 3)),
    (33, 24, 32, (0, 0, 0)),
    (260, 8, 32, (257,)),
    (20, 8, 64, (3, 0, 17)),
    (2, 8, 1056, (1, 1)),
    (0, 8, 32, (0, 0)),
    (3, 8, 32, ()),
    (90, 8, 32, (0,) * 31 + (3, 40, 0, 1) + (0,) * 28 + (1, 30) + (0,) * 5),
    (60, 136, 32, (1, 2, 0, 5) * 6),
    (280, 8, 32, (8, 260)),
    (9, 16, 2880, (1, 5)),
    (6, 8, 672, (1, 5)),
    (3, 264, 32, (2, 1)),
    (700, 264, 416, (128, 0, 129, 256, 63, 1, 64)),
    (1100, 392, 672, (500, 0, 3, 257, 129, 200)),
    (300, 136, 1184, (1,) * 40 + (0,) * 20 + (193,)),
)  # fmt: skip

# (N, K, rows of a place, rows used): none, one, all, up to the tile's edge and over it; more groups than lanes of a warp
_PLACES = (
    (72, 96, 9, (0, 9, 1, 0, 5)),
    (8, 32, 66, (64, 65, 0)),
    (16, 32, 130, (129,)),
    (24, 64, 4, (0, 0)),
    (8, 1056, 3, (3, 0)),
    (8, 32, 0, (0, 0)),
    (8, 32, 5, ()),
    (8, 32, 2, (0,) * 31 + (2, 1, 0, 0, 1) + (0,) * 27 + (2, 1) + (0,) * 5),
    (264, 32, 5, (1, 0, 5)),
    (8, 2880, 3, (3, 0, 1)),
    (264, 416, 260, (128, 0, 260, 193, 64)),
    (136, 1184, 33, (20,) * 12),
)  # fmt: skip

# (M, N, sizes of groups along K, what belongs to nobody): groups that end within a scale's block, within a step, a line, and at the
# edges of all three; empty ones first, last and in a row; nothing at all
_ALONG_K = (
    (9, 8, (0, 16, 128, 0, 0, 144, 5, 0), 0),
    (33, 16, (48,), 96),
    (1, 24, (96, 160, 49, 256), 32),
    (70, 8, (0, 0), 128),
    (5, 136, (64, 67), 32),
    (3, 8, (640, 1024, 4), 0),
    (129, 8, (33, 1), 0),
    (2, 8, (1, 2, 0) * 12, 32),
    (200, 264, (128, 0, 272, 300), 0),
    (520, 392, (16,) * 10 + (0,) * 20 + (656, 1), 128),
)  # fmt: skip


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    makers: dict[str, Callable[[Kernel], Iterator[Problem]]] = {
        "m_grouped_contiguous": _contiguous,
        "m_grouped_gather": _gather,
        "m_grouped_masked": _masked,
        "k_grouped": _along_k,
    }
    formats, grouping = kernel.fields["formats"], kernel.fields["grouping"]
    if formats not in KINDS or grouping not in makers or "extra" in kernel.fields:
        raise NoChecks(kernel, f"products of {formats}, {grouping}", "add their problems to zoo/checks/block_scaled_groups.py")
    return makers[grouping](kernel)


@dataclass(frozen=True)
class GroupsOfRows:
    """a and b of all groups, one below the other, and which rows of a are whose."""

    operands: Operands
    N: int
    pieces: tuple[slice, ...]

    @property
    def groups(self) -> int:
        return len(self.pieces)

    @cached_property
    def group_of_row(self) -> numpy.ndarray:
        """-1: nobody's."""
        found = numpy.full(len(self.operands.arrays[0]), -1)
        for group, rows in enumerate(self.pieces):
            found[rows] = group
        return found

    def of_each(self, what: Callable[..., tuple[numpy.ndarray, ...]]) -> tuple[numpy.ndarray, ...]:
        """What each group's operands give, as rows of a; those of nobody zeros."""
        a, a_scale, b, b_scale = self.operands.arrays
        whole: tuple[numpy.ndarray, ...] = ()
        for group, rows in enumerate(self.pieces):
            of_group = slice(group * self.N, (group + 1) * self.N)
            results = what(a[rows], a_scale[rows], b[of_group], b_scale[of_group], self.operands.formats)
            whole = whole or tuple(numpy.zeros((len(a), self.N), result.dtype) for result in results)
            for target, result in zip(whole, results, strict=True):
                target[rows] = result
        return whole or tuple(numpy.zeros((len(a), self.N), numpy.float32) for _ in range(2))

    @cached_property
    def sums(self) -> numpy.ndarray:
        return self.of_each(lambda *arrays: (gemm_block_scaled(*arrays),))[0]

    @cached_property
    def bounded(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        product, magnitude = self.of_each(exact_block_scaled)
        return product, error_bound(magnitude, self.operands.sizes[2])

    def d(
        self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], finish: Mapping[str, numpy.ndarray] = MappingProxyType({})
    ) -> Later:
        def outputs() -> dict[str, Placed]:
            nobody = numpy.broadcast_to((self.group_of_row < 0)[:, None], self.sums.shape)
            of_rows = self._of_rows(finish)
            values, within = finished(self.sums, dtype, **of_rows), None
            if not self.operands.exact_in_any_order:
                within = allowed(values, *finished_bound(*self.bounded, dtype, **of_rows)).reshape(shape)
            return {"d": Placed(values.reshape(shape), strides, untouched=nobody.reshape(shape), within=within)}

        return Later(outputs)

    def _of_rows(self, finish: Mapping[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
        """Numbers of groups as numbers of rows."""
        found = {}
        for name, array in finish.items():
            if name == "row_scale":
                array = array.reshape(-1)
            elif self.groups:
                array = array[self.group_of_row % len(array)]
            else:
                continue  # there are no rows that are anybody's
            found[name] = array[:, None] if name == "alpha" else array
        return found

    def placed_b(self, gap: int) -> dict[str, Placed]:
        _, _, b, b_scale = self.operands.arrays
        kind = KINDS[self.operands.formats]
        if kind.packed == (False, True):  # rows padded to whole lines of 128 elements, with anything
            whole = numpy.full((len(b), -(-b.shape[1] // 64) * 64), 0xFF, numpy.uint8)
            whole[:, : b.shape[1]] = b
            b = whole
        length, pitch = b.shape[1], b.shape[1] + 32 * gap
        scales = [b_scale[group * self.N : (group + 1) * self.N] for group in range(self.groups)]
        shape = self.groups, -(-self.N // 128) * 128, -(-b_scale.shape[1] // 4) * 4
        dtype = "e2m1x2" if kind.packed[1] else None
        return {
            "b": Placed(b[: self.groups * self.N].reshape(self.groups, self.N, length), (self.N * pitch, pitch, 1), dtype),
            "b_scale": placed_one_after_the_other(scales, shape, b_scale.dtype),
        }

    @property
    def a_dtype(self) -> str | None:
        return "e2m1x2" if KINDS[self.operands.formats].packed[0] else None


def allowed(values: numpy.ndarray, middle: numpy.ndarray, bound: numpy.ndarray) -> numpy.ndarray:
    """How far D may be from these values, so that it is as near to the exact one as `bound` says."""
    with numpy.errstate(invalid="ignore"):
        return numpy.asarray(bound + numpy.abs(values.astype(numpy.float64) - middle))


def placed_one_after_the_other(scales: Sequence[numpy.ndarray], shape: tuple[int, ...], dtype: numpy.dtype) -> Placed:
    """Each matrix of scales blocked by itself, in an array of this shape."""
    parts = [placed_scales(matrix) for matrix in scales]
    whole = numpy.full(int(numpy.prod(shape)), 0xFF, numpy.uint8)
    tiles = numpy.concatenate([whole[:0], *(part.values.reshape(-1).view(numpy.uint8) for part in parts)])
    whole[: len(tiles)] = tiles
    return Placed(whole.view(dtype).reshape(shape), padding=whole.size - sum(matrix.size for matrix in scales))


def finishing_steps(groups: int, N: int, rows: tuple[int, ...]) -> Iterator[dict[str, numpy.ndarray]]:
    random = numpy.random.default_rng([groups, N, *rows])
    alpha = random.uniform(0.001, 0.1, groups).astype(numpy.float32)
    bias = (random.standard_normal((groups, N)) * 100).astype(numpy.float32)
    row_scale = random.uniform(0.01, 1, rows).astype(numpy.float32)
    row_scale.reshape(-1)[:2] = (numpy.nan, 0)[: min(row_scale.size, 2)]
    yield {"alpha": alpha[:1] if groups else numpy.ones(1, numpy.float32)}
    yield {"alpha": alpha, "bias": bias.astype(numpy_dtype("bf16")), "row_scale": row_scale}
    yield {"row_scale": row_scale, "bias": bias}


Case = tuple[str, Operands, Mapping[str, numpy.ndarray]]  # in words; what is multiplied, and what the sums go through


def _cases(formats: str, M: int, N: int, K: int, groups: int, rows: tuple[int, ...]) -> Iterator[Case]:
    yield "random", random_operands(formats, M, groups * N, K), {}
    for finish in finishing_steps(groups, N, rows):
        yield f"random, {', '.join(finish)}", random_operands(formats, M, groups * N, K), finish
    if M and groups:
        yield "small whole numbers, exact in any order", whole_numbers(formats, M, groups * N, K), {}
        for argument in ("a", "a_scale", "b", "b_scale"):
            if argument_has_nan(formats, argument):
                yield f"NaN in one row of {argument}", nan_in(formats, argument, M, groups * N, K), {}


def _contiguous(kernel: Kernel) -> Iterator[Problem]:
    formats, numbers = kernel.fields["formats"], itertools.count()
    for index, (M, N, K, sizes) in enumerate(_GROUPS):
        G, gap, ends = len(sizes), index % 2, numpy.cumsum(sizes).astype(numpy.int32)
        pieces = tuple(slice(end - size, end) for size, end in zip(sizes, ends.tolist(), strict=True))
        named = f"{M} x {N} x {K}, groups {_few(sizes)}"
        for words, operands, finish in _cases(formats, M, N, K, G, (M,)):
            groups, dtype = GroupsOfRows(operands, N, pieces), DTYPES[next(numbers) % len(DTYPES)]
            a, a_scale, _, _ = operands.arrays
            shape = -(-M // 128) * 128 + 128 * G, -(-a_scale.shape[1] // 4) * 4
            inputs = {
                "a": Placed(a, (a.shape[1] + 16 * gap, 1), groups.a_dtype),
                "a_scale": placed_one_after_the_other([a_scale[rows] for rows in pieces], shape, a_scale.dtype),
                "offsets": Placed(ends),
            }
            inputs |= groups.placed_b(gap) | {name: Placed(array) for name, array in finish.items()}
            yield Problem(f"{named}, {words}, D of {dtype}", inputs, groups.d(dtype, (M, N), (N + 8 * gap, 1), finish))


def _gather(kernel: Kernel) -> Iterator[Problem]:
    formats, numbers = kernel.fields["formats"], itertools.count()
    for index, (M, N, K, sizes) in enumerate(_GROUPS):
        tokens, G, gap, ends = max(1, M // 3), len(sizes), index % 2, numpy.cumsum(sizes).astype(numpy.int32)
        pieces = tuple(slice(end - size, end) for size, end in zip(sizes, ends.tolist(), strict=True))
        random = numpy.random.default_rng(index)
        rows = random.integers(0, tokens, M, dtype=numpy.int32)
        chance = random.random(M)
        rows[chance < 0.2] = -1
        named = f"{M} rows of {tokens}, N {N}, K {K}, groups {_few(sizes)}"
        for words, operands, finish in _cases(formats, tokens, N, K, G, (M,)):
            a, a_scale, b, b_scale = operands.arrays
            taken = gather(a.view(numpy.uint8), rows).view(a.dtype), gather(a_scale.view(numpy.uint8), rows).view(a_scale.dtype)
            gathered = Operands(formats, (*taken, b, b_scale), operands.exact_in_any_order)
            groups, dtype = GroupsOfRows(gathered, N, pieces), DTYPES[next(numbers) % len(DTYPES)]
            blocks = a_scale.shape[1]
            pitch_of_scales = (blocks, -(-blocks // 16) * 16, blocks + 3)[index % 3]  # read one by one, or 16 at a time
            looked_up = numpy.where(chance < 0.1, tokens, rows).astype(numpy.int32)  # one past the last is nobody's row, too
            looked_up[sum(sizes) :] = 2**31 - 1
            inputs = {
                "a": Placed(a, (a.shape[1] + 16 * gap, 1), groups.a_dtype),
                "a_scale": Placed(a_scale, (pitch_of_scales, 1)),
                "index": Placed(looked_up),
                "offsets": Placed(ends),
            }
            inputs |= groups.placed_b(gap) | {name: Placed(array) for name, array in finish.items()}
            yield Problem(f"{named}, {words}, D of {dtype}", inputs, groups.d(dtype, (M, N), (N + 8 * gap, 1), finish))


def _masked(kernel: Kernel) -> Iterator[Problem]:
    formats, numbers = kernel.fields["formats"], itertools.count()
    for index, (N, K, R, used) in enumerate(_PLACES):
        G, gap = len(used), index % 2
        pieces = tuple(slice(group * R, group * R + count) for group, count in enumerate(used))
        named = f"{G} places of {R} rows, used {_few(used)}, N {N}, K {K}"
        for words, operands, finish in _cases(formats, G * R, N, K, G, (G, R)):
            groups, dtype = GroupsOfRows(operands, N, pieces), DTYPES[next(numbers) % len(DTYPES)]
            a, a_scale, _, _ = operands.arrays
            length, pitch = a.shape[1], a.shape[1] + 16 * gap
            places = [a_scale[group * R : (group + 1) * R] for group in range(G)]
            inputs = {
                "a": Placed(a.reshape(G, R, length), (R * pitch, pitch, 1), groups.a_dtype),
                "a_scale": placed_one_after_the_other(places, (G, -(-R // 128) * 128, -(-a_scale.shape[1] // 4) * 4), a_scale.dtype),
                "rows": Placed(numpy.array(used, numpy.int32)),
            }
            inputs |= groups.placed_b(gap) | {name: Placed(array) for name, array in finish.items()}
            strides = (R * (N + 8 * gap), N + 8 * gap, 1)
            yield Problem(f"{named}, {words}, D of {dtype}", inputs, groups.d(dtype, (G, R, N), strides, finish))


def _few(sizes: Sequence[int]) -> str:
    return " ".join(map(str, sizes[:8])) + " ..." * (len(sizes) > 8)


@dataclass(frozen=True)
class GroupsAlongK:
    """Operands whose K has room for every group's padding, and where a group's elements are."""

    operands: Operands
    pieces: tuple[slice, ...]

    @property
    def kind(self) -> Kind:
        return KINDS[self.operands.formats]

    @cached_property
    def padded(self) -> Operands:
        """With zeros for what follows each group's last element, and for the scales of nothing but such."""
        a, a_scale, b, b_scale = (array.copy() for array in self.operands.arrays)
        for elements, scales, packed in ((a, a_scale, self.kind.packed[0]), (b, b_scale, self.kind.packed[1])):
            bits = elements.view(numpy.uint8)
            for piece in self.pieces:
                end = -(-piece.stop // ALIGNMENT) * ALIGNMENT
                if packed:
                    if piece.stop % 2:
                        bits[:, piece.stop // 2] &= 0x0F
                    bits[:, -(-piece.stop // 2) : end // 2] = 0
                else:
                    bits[:, piece.stop : end] = 0
                scales.view(numpy.uint8)[:, -(-piece.stop // self.kind.block) : end // self.kind.block] = 0
        return Operands(self.operands.formats, (a, a_scale, b, b_scale), self.operands.exact_in_any_order)

    def of_each(self, what: Callable[..., tuple[numpy.ndarray, ...]]) -> list[tuple[numpy.ndarray, ...]]:
        """What each group's operands give, up to the last step of K that has an element."""
        found, steps = [], self.kind.step
        for piece in self.pieces:
            end = piece.start + -(-(piece.stop - piece.start) // steps) * steps
            parts = []
            for array, each in zip(self.padded.arrays, self._elements_of_each(), strict=True):
                parts.append(array[:, piece.start // each : end // each])
            found.append(what(*parts, self.operands.formats))
        return found

    def _elements_of_each(self) -> tuple[int, int, int, int]:
        """Of an entry of the four arrays."""
        of_a, of_b = (1 + packed for packed in self.kind.packed)
        return of_a, self.kind.block, of_b, self.kind.block

    def placed(self, gap: int) -> dict[str, Placed]:
        """The padding's scales are 0xFF."""
        a, a_scale, b, b_scale = self.padded.arrays
        found = {"offsets": Placed(numpy.cumsum([piece.stop - piece.start for piece in self.pieces]).astype(numpy.int32))}
        for name, elements, scales, packed in (("a", a, a_scale, self.kind.packed[0]), ("b", b, b_scale, self.kind.packed[1])):
            pitch = -(-elements.shape[1] // 16) * 16 + 16 * gap
            found[name] = Placed(elements, (pitch, 1), "e2m1x2" if packed else None)
            matrices = []
            for piece in self.pieces:
                blocks = -(-(piece.stop - piece.start) // self.kind.block)
                whole = numpy.full(
                    (len(scales), -(-blocks // (ALIGNMENT // self.kind.block)) * (ALIGNMENT // self.kind.block)), 0xFF, numpy.uint8
                )
                first = piece.start // self.kind.block
                whole[:, :blocks] = scales.view(numpy.uint8)[:, first : first + blocks]
                matrices.append(whole.view(scales.dtype))
            shape = -(-len(scales) // 128) * 128, -(-scales.shape[1] // 4) * 4
            found[name + "_scale"] = placed_one_after_the_other(matrices, shape, scales.dtype)
        return found

    def d(self, dtype: str, strides: tuple[int, ...], alpha: numpy.ndarray | None, before: numpy.ndarray | None) -> Later:
        def outputs() -> dict[str, Placed]:
            M, N = (len(array) for array in self.operands.arrays[::2])
            values = numpy.zeros((len(self.pieces), M, N), numpy_dtype(dtype)) if before is None else before.copy()
            within = numpy.zeros(values.shape)
            sums, products = self.of_each(lambda *arrays: (gemm_block_scaled(*arrays),)), self.of_each(exact_block_scaled)
            for group, piece in enumerate(self.pieces):
                if piece.stop == piece.start:
                    continue
                of_group = None if alpha is None else alpha[group % len(alpha)]
                c = None if before is None else before[group]
                values[group] = finished(sums[group][0], dtype, alpha=of_group, c=c)
                product, magnitude = products[group]
                bound = error_bound(magnitude, piece.stop - piece.start)
                within[group] = allowed(values[group], *finished_bound(product, bound, dtype, alpha=of_group, c=c))
            return {"d": Placed(values, strides, before=before, within=None if self.operands.exact_in_any_order else within)}

        return Later(outputs)


def _along_k(kernel: Kernel) -> Iterator[Problem]:
    formats, numbers = kernel.fields["formats"], itertools.count()
    dtypes = kernel.arguments["d"].dtypes
    for index, (M, N, sizes, nobody) in enumerate(_ALONG_K):
        G, gap = len(sizes), index % 3
        starts = numpy.cumsum([0, *(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]).tolist()
        pieces = tuple(slice(start, start + size) for start, size in zip(starts[:-1], sizes, strict=True))
        K = starts[-1] + nobody
        if K == 0:
            continue
        for words, operands, _ in _cases(formats, M, N, K, 1, (M,)):
            number = next(numbers)
            dtype, accumulate = dtypes[number % len(dtypes)], number // 2 % 2 == 1
            random, shape = numpy.random.default_rng(number), (G, M, N)
            alpha = None if words.startswith("small") else (None, 1, G)[number % 3]
            factors = None if alpha is None else random.uniform(0.01, 2, alpha).astype(numpy.float32)
            before = (random.standard_normal(shape) * 100).round().astype(numpy_dtype(dtype)) if accumulate else None
            groups = GroupsAlongK(operands, pieces)
            inputs = groups.placed(gap) | ({} if factors is None else {"alpha": Placed(factors)})
            strides = ((M + gap) * (N + 8 * gap), N + 8 * gap, 1)
            named = (
                f"{M} x {N}, groups {_few(sizes)} of K {K}, {words.split(',')[0]}, D of {dtype}" + ", added to what was there" * accumulate
            )
            yield Problem(named, inputs, groups.d(dtype, strides, factors, before), {"accumulate": "yes" if accumulate else "no"})
