"""Operands of groups whose sums are exact in f32 in any order: small whole numbers, scales that are small powers of two (of nvfp4 1.5
times one, too). What they must give is worked out in float64, without zoo.reference."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy

from zoo.checks.problem import Placed, Problem

E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
D_DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": numpy.float16, "f32": numpy.float32}
BLOCKS = {"mxfp8": 32, "mxfp4": 32, "nvfp4": 16, "mxfp8_mxfp4": 32}
SIDES = {"mxfp8_mxfp4": ("mxfp8", "mxfp4")}  # A's format and B's, where they differ
ANY_BYTE = 0xFF  # no number, as ue8m0 and as e4m3: what padding of scales holds


@dataclass(frozen=True)
class Operand:
    """Elements as they are stored, plain scale bytes, and what both stand for."""

    elements: numpy.ndarray
    scales: numpy.ndarray
    values: numpy.ndarray


def operand(format: str, rows: int, K: int, random: numpy.random.Generator, dtype: str = "e4m3") -> Operand:
    block = BLOCKS[format]
    blocks = -(-K // block)
    if format == "mxfp8":
        small = ml_dtypes.float8_e4m3fn if dtype == "e4m3" else ml_dtypes.float8_e5m2
        elements = random.integers(-4, 5, (rows, K)).astype(small)
        values = elements.astype(numpy.float64)
    else:
        codes = random.integers(0, 16, (rows, K), dtype=numpy.uint8)
        values = E2M1[codes]
        elements = pack(codes)
    if format == "nvfp4":
        numbers = random.choice([0.5, 1, 1.5, 2], (rows, blocks))
        scales = numbers.astype(ml_dtypes.float8_e4m3fn).view(numpy.uint8)
    else:
        exponents = random.integers(-2, 3, (rows, blocks))
        numbers, scales = 2.0**exponents, (exponents + 127).astype(numpy.uint8)
    return Operand(elements, scales, values * numpy.repeat(numbers, block, axis=1)[:, :K])


def values_of(format: str, elements: numpy.ndarray, scales: numpy.ndarray) -> numpy.ndarray:
    """What elements and plain scales stand for, float64; scales beyond the elements are nobody's."""
    codes = elements.view(numpy.uint8)
    values = (
        elements.astype(numpy.float64)
        if format == "mxfp8"
        else E2M1[numpy.stack((codes & 15, codes >> 4), -1).reshape(*codes.shape[:-1], -1)]
    )
    numbers = scales.astype(numpy.float64) if format == "nvfp4" else numpy.exp2(scales.view(numpy.uint8).astype(numpy.float64) - 127)
    return values * numpy.repeat(numbers, BLOCKS[format], axis=-1)[..., : values.shape[-1]]


def pack(codes: numpy.ndarray) -> numpy.ndarray:
    """Two e2m1 a byte, the even one low."""
    return codes[:, ::2] | codes[:, 1::2] << 4


def blocked(scales: numpy.ndarray, padding: int = ANY_BYTE) -> numpy.ndarray:
    """Plain scale bytes (R, C) in tiles of 128 x 4, 512 bytes each."""
    rows, columns = scales.shape
    whole = numpy.full((-(-rows // 128) * 128, -(-columns // 4) * 4), padding, numpy.uint8)
    whole[:rows, :columns] = scales
    tiles = whole.reshape(len(whole) // 128, 4, 32, whole.shape[1] // 4, 4)  # rows r + 32 * q: a line of 16 bytes holds the four q
    return tiles.transpose(0, 3, 2, 1, 4).reshape(-1)


def placed_elements(format: str, elements: numpy.ndarray, strides: tuple[int, ...] | None = None) -> Placed:
    return Placed(elements, strides, dtype=None if format == "mxfp8" else "e2m1x2")


def placed_scales(format: str, scales: numpy.ndarray, shape: tuple[int, ...]) -> Placed:
    """Tiles one after the other in an array of this shape; what they do not fill is ANY_BYTE."""
    whole = numpy.full(int(numpy.prod(shape)), ANY_BYTE, numpy.uint8)
    whole[: len(scales)] = scales
    return Placed(whole.reshape(shape), dtype="e4m3" if format == "nvfp4" else "ue8m0")


def placed_d(values: numpy.ndarray, dtype: str, strides: tuple[int, ...] | None, untouched: numpy.ndarray | None = None) -> Placed:
    return Placed(values.astype(D_DTYPES[dtype]), strides, untouched=untouched)


def sides(format: str) -> tuple[str, str]:
    return SIDES.get(format, (format, format))


def weights(format: str, groups: int, N: int, K: int, random: numpy.random.Generator, dtype: str = "e4m3") -> list[Operand]:
    return [operand(format, N, K, random, dtype) for _ in range(groups)]


def placed_weights(format: str, matrices: list[Operand], N: int, K: int, gap: int) -> dict[str, Placed]:
    """b and b_scale of (G, N, K)."""
    format_of_b = sides(format)[1]
    one = operand(format_of_b, 0, K, numpy.random.default_rng(0)).elements
    elements = numpy.stack([matrix.elements for matrix in matrices]) if matrices else numpy.zeros((0, N, one.shape[1]), one.dtype)
    scales = numpy.concatenate([numpy.zeros(0, numpy.uint8), *(blocked(matrix.scales) for matrix in matrices)])
    pitch = -(-elements.shape[2] // 16) * 16 + 16 * gap
    if format in SIDES:  # rows of 128 elements, of which those beyond K may be anything
        elements = numpy.pad(elements, ((0, 0), (0, 0), (0, -elements.shape[2] % 64)), constant_values=ANY_BYTE)
        pitch = elements.shape[2] + 32 * gap
    return {
        "b": placed_elements(format_of_b, elements, (N * pitch, pitch, 1)),
        "b_scale": placed_scales(format_of_b, scales, (len(matrices), -(-N // 128) * 128, -(-K // BLOCKS[format] // 4) * 4)),
    }


def extras(random: numpy.random.Generator, G: int, N: int, rows: tuple[int, ...]) -> dict[str, numpy.ndarray]:
    """alpha, bias and row_scale that keep sums exact: powers of two, small whole numbers."""
    return {
        "alpha": 2.0 ** random.integers(-1, 3, G),
        "bias": random.integers(-8, 9, (G, N)).astype(numpy.float64),
        "row_scale": random.choice([0.25, 0.5, 1, 2], rows),
    }


def contiguous(
    format: str,
    N: int,
    K: int,
    sizes: tuple[int, ...],
    nobody: int = 0,
    d: str = "f32",
    gap: int = 0,
    more: bool = False,
    dtype: str = "e4m3",
) -> Problem:
    """Groups of rows back to back, then `nobody` rows of no group, which are NaN where the format has one."""
    random = numpy.random.default_rng(N * 31 + K + sum(sizes))
    G, M = len(sizes), sum(sizes) + nobody
    format_of_a, format_of_b = sides(format)
    a, bs = operand(format_of_a, M, K, random, dtype), weights(format_of_b, G, N, K, random, dtype)
    ends = numpy.cumsum(sizes).astype(numpy.int32)
    pieces = [a.scales[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    scales = numpy.concatenate([numpy.zeros(0, numpy.uint8), *(blocked(piece) for piece in pieces)])
    expected = numpy.zeros((M, N))
    factors = extras(random, G, N, (M,))
    for group, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        rows = slice(end - size, end)
        expected[rows] = a.values[rows] @ bs[group].values.T
        if more:
            expected[rows] = (expected[rows] * factors["alpha"][group] + factors["bias"][group]) * factors["row_scale"][rows, None]
    if format_of_a == "mxfp8":
        a.elements[sum(sizes) :] = numpy.nan
    pitch = -(-a.elements.shape[1] // 16) * 16 + 16 * gap
    inputs = {
        "a": placed_elements(format_of_a, a.elements, (pitch, 1)),
        "a_scale": placed_scales(format_of_a, scales, (-(-M // 128) * 128 + 128 * G, -(-K // BLOCKS[format] // 4) * 4)),
        "offsets": Placed(ends),
    } | placed_weights(format, bs, N, K, gap)
    if more:
        inputs |= {name: Placed(values.astype(numpy.float32)) for name, values in factors.items()}
    untouched = numpy.broadcast_to((numpy.arange(M) >= sum(sizes))[:, None], (M, N))
    return Problem(f"{N} {K} {sizes}", inputs, {"d": placed_d(expected, d, (N + 8 * gap, 1), untouched)})


def masked(format: str, N: int, K: int, R: int, used: tuple[int, ...], d: str = "f32", gap: int = 0, more: bool = False) -> Problem:
    """Places of R rows, of which groups use the first; the others are NaN where the format has one."""
    random = numpy.random.default_rng(N * 31 + K + sum(used))
    G = len(used)
    format_of_a, format_of_b = sides(format)
    places, bs = [operand(format_of_a, R, K, random) for _ in used], weights(format_of_b, G, N, K, random)
    factors = extras(random, G, N, (G, R))
    expected = numpy.zeros((G, R, N))
    for group, count in enumerate(used):
        expected[group] = places[group].values @ bs[group].values.T
        if more:
            expected[group] = (expected[group] * factors["alpha"][group] + factors["bias"][group]) * factors["row_scale"][group, :, None]
        if format_of_a == "mxfp8":
            places[group].elements[count:] = numpy.nan
        places[group].scales[count:] = ANY_BYTE
    elements = numpy.stack([place.elements for place in places])
    scales = numpy.concatenate([blocked(place.scales) for place in places])
    pitch = -(-elements.shape[2] // 16) * 16 + 16 * gap
    inputs = {
        "a": placed_elements(format_of_a, elements, (R * pitch, pitch, 1)),
        "a_scale": placed_scales(format_of_a, scales, (G, -(-R // 128) * 128, -(-K // BLOCKS[format] // 4) * 4)),
        "rows": Placed(numpy.array(used, numpy.int32)),
    } | placed_weights(format, bs, N, K, gap)
    if more:
        inputs |= {name: Placed(values.astype(numpy.float32)) for name, values in factors.items()}
    nobody = numpy.arange(R)[None, :] >= numpy.array(used)[:, None]
    untouched = numpy.broadcast_to(nobody[:, :, None], expected.shape)
    return Problem(f"{N} {K} {R} {used}", inputs, {"d": placed_d(expected, d, (R * (N + 8 * gap), N + 8 * gap, 1), untouched)})


def along_k(
    format: str,
    M: int,
    N: int,
    sizes: tuple[int, ...],
    d: str = "f32",
    gap: int = 0,
    accumulate: bool = False,
    alpha: int = 0,
    nobody: int = 0,
    padding: int = ANY_BYTE,
    ends_of_padding: bool = False,
) -> Problem:
    """Groups of so many elements of K, each from a multiple of 128 on; `alpha` numbers of it, 0: none."""
    random = numpy.random.default_rng(M * 31 + N + sum(sizes))
    block, per_byte = BLOCKS[format], 1 if format == "mxfp8" else 2
    padded = [-(-size // 128) * 128 for size in sizes]
    K = sum(padded) + nobody
    inputs, values = {}, {}
    for name, rows in (("a", M), ("b", N)):
        groups = [operand(format, rows, whole, random) for whole in padded]
        rest = operand(format, rows, nobody, random)
        for size, group in zip(sizes, groups, strict=True):
            group.scales[:, -(-size // block) :] = padding
            kept = numpy.arange(group.values.shape[1]) < size
            group.values[:, ~kept] = 0
            of_bytes = kept if per_byte == 1 else kept[::2] * 0x0F + kept[1::2] * 0xF0
            bits = group.elements.view(numpy.uint8)
            bits &= (of_bytes * (0xFF if per_byte == 1 else 1)).astype(numpy.uint8)
        if format == "mxfp8":
            rest.elements[:] = numpy.nan
        values[name] = [group.values for group in groups]
        elements = numpy.concatenate([*(group.elements for group in groups), rest.elements], axis=1)
        scales = numpy.concatenate([numpy.zeros(0, numpy.uint8), *(blocked(group.scales) for group in groups)])
        pitch = -(-elements.shape[1] // 16) * 16 + 16 * gap
        inputs[name] = placed_elements(format, elements, (pitch, 1))
        inputs[name + "_scale"] = placed_scales(format, scales, (-(-rows // 128) * 128, -(-K // (4 * block)) * 4))
    expected = numpy.stack([left @ right.T for left, right in zip(values["a"], values["b"], strict=True)])
    if alpha:
        factors = 2.0 ** random.integers(-2, 3, alpha)
        expected *= factors[:, None, None]
        inputs["alpha"] = Placed(factors.astype(numpy.float32))
    inputs["offsets"] = Placed(numpy.cumsum(padded if ends_of_padding else sizes).astype(numpy.int32))
    before = None
    if accumulate:
        before = random.integers(-99, 100, expected.shape).astype(D_DTYPES[d])
        expected += before.astype(numpy.float64)
    pitch = N + 8 * gap
    output = Placed(expected.astype(D_DTYPES[d]), (M * pitch + 16 * gap, pitch, 1), before=before)
    return Problem(f"{M} {N} {sizes}", inputs, {"d": output}, {"accumulate": "yes" if accumulate else "no"})
