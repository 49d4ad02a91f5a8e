"""Problems for the rearrangement of scales; every answer is that of zoo.reference.scales, to the byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy

from zoo.checks.problem import Placed, Problem
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.layouts import blocked_shape, to_blocked
from zoo.reference.scales import (
    blocked_column_groups_shape,
    blocked_row_groups_shape,
    columns_of_groups,
    mn_major_stride,
    pack_ue8m0,
    to_blocked_column_groups,
    to_blocked_row_groups,
)  # fmt: skip

# Around a line of 16 bytes, a tile of 128 x 4, a unit of 128 x 64, a warp's 32 x 16 words, a CTA of several of them.
_SHAPES = (
    (1, 1), (2, 4), (3, 15), (4, 16), (5, 17), (31, 5), (32, 64), (33, 65), (97, 12), (127, 128), (128, 3), (129, 66), (160, 48),
    (256, 20), (300, 90), (511, 2), (1000, 224), (4099, 64),
)  # fmt: skip
# Rows, columns, sizes of the groups. What the sizes leave of the rows belongs to nobody.
_GROUPS = (
    (1, 4, (1,)), (5, 16, (0, 5)), (7, 3, (3, 0, 4)), (64, 18, (0, 0, 0)), (130, 8, (129, 1)), (129, 4, (64, 64)),
    (300, 65, (128, 0, 0, 129, 1, 42)), (40, 4, (1,) * 40), (390, 4, (1,) * 260 + (0,) * 20 + (128,)), (600, 16, (255, 257)),
    (1000, 64, (1, 127, 128, 129, 0, 384, 200)), (2048, 224, (300, 0, 17, 1500)), (5000, 90, (4000, 0, 900)),
)  # fmt: skip
# Rows, sizes of the groups in elements, elements a scale, and whether the last group ends where x does. Around a scale, a tile
# of 4 columns, a run of 64 columns, a tile of 128 rows, several turns of a CTA, a round of 256 groups.
_COLUMN_GROUPS = (
    (1, (1,), 32, True), (3, (31, 33, 32), 32, True), (33, (0, 0), 16, False), (127, (15, 16, 17, 0, 1), 16, False),
    (128, (128, 127, 129), 32, True), (130, (0, 2048, 0, 0, 5), 32, False), (129, (2047, 2049, 1, 512), 32, True),
    (300, (33,) * 20, 32, False), (40, (1,) * 270 + (0,) * 30 + (200,), 16, True), (5, (0,) * 255 + (7, 3000), 32, False),
    (700, (900, 0, 3333), 32, False), (2048, (300, 17, 0, 15000), 32, False), (1100, (100,) * 256, 16, True),
    (3, (2**31 - 1,), 2**30, True), (130, (0, 2**31 - 9, 8), 700_000_001, True),  # rounded up, more than an int32 holds
)  # fmt: skip


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    if kernel.fields.get("grouping") == "k_grouped":
        yield from _of_column_groups(kernel.fields["arrangement"])
        return
    arrangement, grouped = kernel.fields["arrangement"], "grouping" in kernel.fields
    random = numpy.random.default_rng(6)
    for rows, columns, sizes in _GROUPS if grouped else [(*shape, ()) for shape in _SHAPES]:
        for gap in (0, 1, 16):  # rows of plain scales further apart than they are long
            name = f"{rows} x {columns}, groups of {list(sizes)}" if grouped else f"{rows} x {columns}"
            yield problem(arrangement, random, rows, columns, sizes, gap, f"{name}, rows {gap} apart")
    yield problem(arrangement, random, 0, 64, (0, 0) if grouped else (), 0, "no rows")
    if arrangement == "ue8m0_words":
        yield _of_words(_every_exponent(), 0, "every exponent, zero, subnormals, and numbers that are no powers of two")


def problem(
    arrangement: str, random: numpy.random.Generator, rows: int, columns: int, sizes: Sequence[int], gap: int, name: str
) -> Problem:
    """Random scales of so many rows and columns; `sizes` of groups, none where the kernel takes none."""
    if arrangement == "mn_major":
        return _of_mn_major(random.integers(0, 2**32, (rows, columns), dtype=numpy.uint32).view(numpy.float32), gap, name)
    if arrangement == "ue8m0_words":
        exponents = random.integers(0, 256, (rows, columns), dtype=numpy.uint32) << 23
        return _of_words(exponents.view(numpy.float32), gap, name)
    plain = random.integers(0, 256, (rows, columns), dtype=numpy.uint8)
    offsets = numpy.cumsum(sizes).astype(numpy.int32) if sizes else None
    strides = (-(-columns // gap) * gap + gap, 1) if gap else None
    if offsets is None:
        blocked = to_blocked(plain).reshape(blocked_shape(rows, columns))
    else:
        blocked = to_blocked_row_groups(plain, offsets, rows).reshape(blocked_row_groups_shape(rows, columns, len(sizes)))
    given = {} if offsets is None else {"offsets": Placed(offsets)}
    dtype = str(random.choice(("u8", "ue8m0", "e4m3")))  # bytes are bytes
    if arrangement == "blocked":
        return Problem(name, {"scales": Placed(plain, strides, dtype), **given}, {"blocked": Placed(blocked, dtype=dtype)})
    untouched = numpy.zeros(plain.shape, bool)
    if offsets is not None:
        untouched[offsets[-1] :] = True
    blocked = _with_dirty_padding(blocked, random, rows, columns, offsets)
    return Problem(name, {"blocked": Placed(blocked, dtype=dtype), **given}, {"scales": Placed(plain, strides, dtype, untouched)})


def _of_column_groups(arrangement: str) -> Iterator[Problem]:
    random = numpy.random.default_rng(7)
    for rows, sizes, block, whole in _COLUMN_GROUPS:
        for gap in (0, 1, 16):
            words = f"{rows} rows, groups of {list(sizes)}, {block} elements a scale, rows {gap} apart"
            yield column_problem(arrangement, random, rows, sizes, block, 0 if whole else 77, gap, words)
    yield column_problem(arrangement, random, 0, (64, 64), 32, 0, 0, "no rows")


def column_problem(
    arrangement: str, random: numpy.random.Generator, rows: int, sizes: Sequence[int], block: int, rest: int, gap: int, name: str
) -> Problem:
    """Random scales of so many rows, for groups of so many elements each and `rest` elements of nobody."""
    counts = columns_of_groups(numpy.array(sizes), block)
    columns, used = -(-(sum(sizes) + rest) // block) + len(sizes), int(counts.sum())
    plain = random.integers(0, 256, (rows, columns), dtype=numpy.uint8)
    shape = blocked_column_groups_shape(rows, sum(sizes) + rest, len(sizes), block)
    offsets = Placed(numpy.cumsum(sizes).astype(numpy.int32))
    strides, dtype = (columns + gap, 1), str(random.choice(("u8", "ue8m0", "e4m3")))

    def blocked(scales: numpy.ndarray) -> numpy.ndarray:
        return to_blocked_column_groups(scales[:, :used], counts, int(numpy.prod(shape))).reshape(shape)

    if arrangement == "blocked":
        inputs, outputs = {"scales": Placed(plain, strides, dtype)}, {"blocked": Placed(blocked(plain), dtype=dtype)}
    else:
        dirt = random.integers(1, 256, shape, dtype=numpy.uint8)
        dirty = numpy.where(blocked(numpy.ones_like(plain)) == 0, dirt, blocked(plain))
        untouched = numpy.broadcast_to(numpy.arange(columns) >= used, plain.shape)
        inputs, outputs = {"blocked": Placed(dirty, dtype=dtype)}, {"scales": Placed(plain, strides, dtype, untouched)}
    return Problem(name, {**inputs, "offsets": offsets}, outputs, {"block": block})


def _with_dirty_padding(
    blocked: numpy.ndarray, random: numpy.random.Generator, rows: int, columns: int, offsets: numpy.ndarray | None
) -> numpy.ndarray:
    """The same scales, and random bytes where there are none: padding is nothing to rely on."""
    ones = numpy.ones((rows, columns), numpy.uint8)
    scales = to_blocked(ones) if offsets is None else to_blocked_row_groups(ones, offsets, rows)
    dirt = random.integers(1, 256, blocked.shape, dtype=numpy.uint8)
    return numpy.where(scales.reshape(blocked.shape) == 0, dirt, blocked)


def _of_mn_major(scales: numpy.ndarray, gap: int, name: str) -> Problem:
    rows, columns = scales.shape
    strides = (columns + gap, 1), (1, mn_major_stride(rows) + 4 * gap)
    return Problem(name, {"scales": Placed(scales, strides[0])}, {"transposed": Placed(scales, strides[1])})


def _of_words(scales: numpy.ndarray, gap: int, name: str) -> Problem:
    rows, columns = scales.shape
    words = pack_ue8m0(scales).view(numpy.int32)
    strides = (columns + gap, 1), (mn_major_stride(rows) + 4 * gap, 1)
    return Problem(name, {"scales": Placed(scales, strides[0])}, {"words": Placed(words, strides[1])})


def _every_exponent() -> numpy.ndarray:
    powers = numpy.arange(512, dtype=numpy.uint32) << 23
    subnormals = numpy.uint32(1) << numpy.arange(23, dtype=numpy.uint32)
    bits = numpy.concatenate([powers, powers | 1, powers | 0x400000, subnormals, subnormals | 0x80000000, subnormals | 1])
    return numpy.resize(bits, (-(-bits.size // 12), 12)).view(numpy.float32)
