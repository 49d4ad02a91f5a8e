"""Problems for block-scaled products of groups of rows that are taken through an index. Bits and bounds as in block_scaled.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy

from zoo.checks.block_scaled import DTYPES, placed_scales, random_operands, rows_of_weights
from zoo.checks.problem import Later, NoChecks, Placed, Problem
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.block_scaled_gemm import KINDS, error_bound, exact, finished, finished_bound, gemm_block_scaled
from zoo.reference.groups import gather

# (rows of A, N, K, sizes of groups, rows of nobody): groups that end within a tile, at its edge and one after it; empty ones first, last
# and in a row; more groups than lanes of a warp; lines and reads of scales that end anywhere; more tiles than multiprocessors.
_SHAPES = (
    (13, 24, 96, (0, 7, 0, 0, 20, 13), 4), (5, 16, 64, (1, 128, 0, 1), 0), (3, 8, 288, (3, 3), 1), (7, 24, 32, (0, 0, 0), 5),
    (40, 8, 96, (129,), 2), (4, 8, 672, (1, 5), 0), (4, 8, 32, (0, 0), 0), (30, 8, 32, (0,) * 31 + (3, 40, 0, 1) + (0,) * 28 + (1, 30), 0),
    (4, 264, 32, (2, 1), 0), (6, 8, 2880, (1, 2), 0), (100, 264, 416, (128, 0, 129, 256, 63), 8), (300, 392, 672, (500, 0, 3, 191), 0),
)  # fmt: skip


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    formats = kernel.fields["formats"]
    if formats not in KINDS or "extra" in kernel.fields:
        raise NoChecks(kernel, f"such products of {formats}", "add their problems to zoo/checks/block_scaled_gather.py")
    for number, (rows, N, K, sizes, nobody) in enumerate(_SHAPES):
        words = f"{sum(sizes) + nobody} rows of {rows}, N {N}, K {K}, groups {' '.join(map(str, sizes[:8]))}{' ...' * (len(sizes) > 8)}"
        gathered = Gathered(formats, rows, N, K, sizes, nobody)
        for finish in (False, True):
            dtype = DTYPES[(number + finish) % len(DTYPES)]
            yield gathered.problem(words + ", finished" * finish, dtype, (number + finish) % 3, finish)


class Gathered:
    """One row of A is NaN, by its last scale, and some groups' rows take it; a few rows take none."""

    def __init__(self, formats: str, rows: int, N: int, K: int, sizes: tuple[int, ...], nobody: int):
        self.formats, self.sizes, self.M, self.N, self.K = formats, sizes, sum(sizes) + nobody, N, K
        random, groups = numpy.random.default_rng([rows, N, K]), len(sizes)
        a, a_scale, b, b_scale = (array.copy() for array in random_operands(formats, rows, groups * N, K, rows).arrays)
        a_scale[rows // 2, -1] = numpy.nan
        self.a, self.a_scale = a, a_scale
        self.b, self.b_scale = b.reshape(groups, N, -1), b_scale.reshape(groups, N, -1)
        self.index = random.integers(-1, rows, self.M, dtype=numpy.int32)
        self.ends = numpy.cumsum(sizes).astype(numpy.int32)
        self.group = numpy.repeat(numpy.arange(groups), sizes)
        self.finish = {
            "alpha": random.uniform(0.1, 1, (1, groups)[rows % 2]).astype(numpy.float32),
            "bias": random.standard_normal((groups, N)).astype(numpy.float32),
            "row_scale": random.uniform(0.01, 1, self.M).astype(numpy.float32),
        }

    def problem(self, words: str, dtype: str, gap: int, finish: bool) -> Problem:
        packed, of_b = KINDS[self.formats].packed, rows_of_weights(self.formats, self.b)
        a_dtype, b_dtype = ("e2m1x2" if side else None for side in packed)
        pitches = self.a.shape[1] + 16 * gap, of_b.shape[2] + 32 * gap
        scales = self.a_scale.shape[1]
        scale_pitch = (scales, -(-scales // 16) * 16, scales + 1)[gap]  # read one by one, or 16 at a time
        blocked = [placed_scales(one) for one in self.b_scale]
        inputs = {
            "a": Placed(self.a, (pitches[0], 1), a_dtype),
            "a_scale": Placed(self.a_scale, (scale_pitch, 1)),
            "b": Placed(of_b, (self.N * pitches[1], pitches[1], 1), b_dtype, padding=of_b.size - self.b.size),
            "b_scale": Placed(numpy.stack([one.values for one in blocked]), padding=sum(one.padding for one in blocked)),
            "index": Placed(self.index),
            "offsets": Placed(self.ends),
        }
        if finish:
            inputs |= {name: Placed(array) for name, array in self.finish.items()}
        return Problem(words, inputs, Later(lambda: {"d": self._d(dtype, gap, finish)}))

    def _d(self, dtype: str, gap: int, finish: bool) -> Placed:
        sums, product, bound = self._of_rows
        own, values = slice(len(self.group)), numpy.zeros((self.M, self.N), finished(sums[:0], dtype).dtype)
        steps = self._steps() if finish else {}
        values[own] = finished(sums, dtype, **steps)
        middle, off = finished_bound(product, bound, dtype, **steps)
        with numpy.errstate(invalid="ignore"):
            within = off + numpy.abs(values[own].astype(numpy.float64) - middle)
        whole = numpy.zeros((self.M, self.N))
        whole[own] = within
        nobody = numpy.broadcast_to((numpy.arange(self.M) >= len(self.group))[:, None], (self.M, self.N))
        return Placed(values, (self.N + 8 * gap, 1), untouched=nobody, within=whole)

    def _steps(self) -> dict[str, numpy.ndarray]:
        """Of each row, its group's."""
        alpha, bias, row_scale = self.finish.values()
        return {
            "alpha": (alpha[self.group] if len(alpha) > 1 else numpy.repeat(alpha, len(self.group)))[:, None],
            "bias": bias[self.group],
            "row_scale": row_scale[: len(self.group)],
        }

    @cached_property
    def _of_rows(self) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
        """Sums of the groups' rows, what they would be exactly, and how far off they may be. A row of zeros has scales of zero."""
        a, a_scale = (gather(array.view(numpy.uint8), self.index).view(array.dtype) for array in (self.a, self.a_scale))
        sums = numpy.zeros((len(self.group), self.N), numpy.float32)
        product, magnitude = numpy.zeros(sums.shape), numpy.zeros(sums.shape)
        for group in set(self.group.tolist()):
            rows = numpy.flatnonzero(self.group == group)
            operands = a[rows], a_scale[rows], self.b[group], self.b_scale[group]
            sums[rows] = gemm_block_scaled(*operands, self.formats)
            product[rows], magnitude[rows] = exact(*operands, self.formats)
        return sums, product, error_bound(magnitude, self.K)
