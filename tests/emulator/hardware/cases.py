"""Deterministic inputs for the raw instructions: the same bits everywhere, from a counter and a hash, not from a library's generator."""

from __future__ import annotations

import zlib

import numpy

from tests.emulator.hardware.instructions import COLUMNS, ELEMENT_BYTES, Elementwise, Matrix
from zoo.emulator import number_formats

U32 = numpy.uint32
U64 = numpy.uint64


class Bits:
    """A stream of 64-bit words: splitmix64 of a counter, seeded by a name."""

    def __init__(self, name: str):
        self.counter = zlib.crc32(name.encode()) << 32

    def words(self, *shape: int) -> numpy.ndarray:
        count = int(numpy.prod(shape))
        z = numpy.arange(self.counter, self.counter + count, dtype=U64)
        self.counter += count
        with numpy.errstate(over="ignore"):
            z = z * U64(0x9E3779B97F4A7C15)
            z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
        return (z ^ (z >> U64(31))).reshape(shape)

    def below(self, limit: int, *shape: int) -> numpy.ndarray:
        return ((self.words(*shape) >> U64(32)) * U64(limit) >> U64(32)).astype(numpy.int64)

    def chance(self, percent: int, *shape: int) -> numpy.ndarray:
        return self.below(100, *shape) < percent

    def normal(self, *shape: int) -> numpy.ndarray:
        """Roughly Gaussian float64: the sum of 12 uniform 16-bit numbers."""
        words = self.words(3, *shape)
        total = sum((words[i] >> U64(16 * j)) & U64(0xFFFF) for i in range(3) for j in range(4))
        return total.astype(numpy.float64) / 65536.0 - 6.0


# -------------------------------------------------------------------------------------------------
# matrices

MATRIX_CLASSES = (
    "bits",  # every finite code
    "normal",
    "cancelling",  # large products that cancel, small ones left over
    "extreme",  # largest, smallest and subnormal elements side by side
    "subnormal",
    "zeros",  # mostly zeros, many against huge factors; signed zeros
    "accumulator",  # C far above, near and far below the products
    "chain",  # C is what such an instruction produces: few bits, large
    "overflow",
    "specials",  # NaN and infinity
)


def _formats(m: Matrix):
    return number_formats.FORMATS[m.a], number_formats.FORMATS[m.b]


def _finite(bits: Bits, format, *shape: int) -> numpy.ndarray:
    magnitude = bits.below(format.largest + 1, *shape)
    return magnitude | (bits.below(2, *shape) * format.sign_bit)


def _encode(format, values) -> numpy.ndarray:
    return number_formats.encode(format, values, "rn", satfinite=True).astype(numpy.int64)


def _near_one(format, bits: Bits, spread: int, *shape: int) -> numpy.ndarray:
    """Full-mantissa values with exponents within +-spread."""
    values = (bits.below(1 << 24, *shape) + (1 << 24)) * 2.0**-24
    exponents = bits.below(2 * spread + 1, *shape) - spread
    signs = 1 - 2 * bits.below(2, *shape)
    return _encode(format, numpy.ldexp(values, exponents) * signs)


def matrix_inputs(m: Matrix, name: str, tiles: int) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """(A codes (tiles, M, K), B codes (tiles, N, K), C register words (tiles, M, N)) as int64, int64, uint32."""
    bits = Bits(f"{m.name} {name}")
    shape_a, shape_b, shape_c = (tiles, m.rows, m.depth), (tiles, COLUMNS, m.depth), (tiles, m.rows, COLUMNS)
    if m.result == "s32":
        a, b = bits.below(256, *shape_a), bits.below(256, *shape_b)
        c = bits.words(*shape_c).astype(U32)
        near_limit = bits.chance(50, *shape_c)
        return a, b, numpy.where(near_limit, (c & U32(0x8000FFFF)) + U32(0x7FFF0000), c).astype(U32)
    fa, fb = _formats(m)
    fc = number_formats.F16 if m.result == "f16" else number_formats.F32
    if name == "bits":
        a, b, c = _finite(bits, fa, *shape_a), _finite(bits, fb, *shape_b), _finite(bits, fc, *shape_c)
        # half of the accumulators at the scale of typical products
        c = numpy.where(bits.chance(50, *shape_c), _near_one(fc, bits, 12, *shape_c), c)
    elif name == "normal":
        a, b = _encode(fa, bits.normal(*shape_a)), _encode(fb, bits.normal(*shape_b))
        c = _encode(fc, bits.normal(*shape_c) * 5)
    elif name == "cancelling":
        a, b = _near_one(fa, bits, 3, *shape_a), _near_one(fb, bits, 3, *shape_b)
        half = m.depth // 2
        a[..., half:], b[..., half:] = a[..., :half], b[..., :half] ^ fb.sign_bit
        # one pair does not quite cancel, and one is small
        last = m.depth - 1
        a[..., last] = _near_one(fa, bits, 6, tiles, m.rows)
        a[..., 0] = _encode(fa, number_formats.decode(fa, a[..., 0]) * 2.0**-6)
        c = _encode(fc, bits.normal(*shape_c) * 2.0 ** -bits.below(20, *shape_c).astype(numpy.float64))
    elif name == "extreme":
        a, b = _extremes(bits, fa, *shape_a), _extremes(bits, fb, *shape_b)
        c = numpy.where(bits.chance(50, *shape_c), _extremes(bits, fc, *shape_c), _near_one(fc, bits, 14, *shape_c))
        # without this the huge terms of one row hide everything else
        quiet = bits.chance(60, tiles, m.rows, 1)
        a = numpy.where(quiet & (_exponent(fa, a) > 0), _near_one(fa, bits, 2, *shape_a), a)
    elif name == "subnormal":
        limit = 1 << (10 if fa is number_formats.TF32 else fa.mantissa_bits)
        shift = 13 if fa is number_formats.TF32 else 0
        a = ((bits.below(limit, *shape_a)) << shift) | (bits.below(2, *shape_a) * fa.sign_bit)
        b = numpy.where(bits.chance(50, *shape_b), _near_one(fb, bits, 6, *shape_b), bits.below(4, *shape_b) << shift)
        smallest = fc.smallest_exponent - fc.mantissa_bits
        tiny = numpy.ldexp(bits.normal(*shape_c), smallest + bits.below(fc.mantissa_bits + 2, *shape_c))
        c = _encode(fc, tiny)
    elif name == "zeros":
        a, b = _finite(bits, fa, *shape_a), _finite(bits, fb, *shape_b)
        a = numpy.where(bits.chance(85, *shape_a), a & fa.sign_bit, _near_one(fa, bits, 6, *shape_a))
        a[:, ::4] &= fa.sign_bit  # whole rows of signed zeros
        c = _near_one(fc, bits, 10, *shape_c)
        c = numpy.where(bits.chance(40, *shape_c), c & fc.sign_bit, c)
    elif name == "accumulator":
        a, b = _near_one(fa, bits, 2, *shape_a), _near_one(fb, bits, 2, *shape_b)
        c = _near_one(fc, bits, 14 if fc is number_formats.F16 else 30, *shape_c)
    elif name == "chain":
        a, b = _encode(fa, bits.normal(*shape_a)), _encode(fb, bits.normal(*shape_b))
        kept = 13 if m.family.startswith("wgmma") and ELEMENT_BYTES[m.a] == 1 else 22
        c = _encode(fc, bits.normal(*shape_c) * 64)
        if fc is number_formats.F32:
            c &= ~((1 << (23 - kept)) - 1)
    elif name == "overflow":
        if fc is number_formats.F16 or fa not in (number_formats.BF16, number_formats.TF32):
            a = _near_one(fa, bits, 5, *shape_a) & ~fa.sign_bit
            b = _near_one(fb, bits, 5, *shape_b) & ~fb.sign_bit
        else:
            a = _encode(fa, numpy.ldexp(1 + numpy.abs(bits.normal(*shape_a)), 60 + bits.below(4, *shape_a)))
            b = _encode(fb, numpy.ldexp(1 + numpy.abs(bits.normal(*shape_b)), 58 + bits.below(4, *shape_b)))
        negative = bits.chance(50, tiles, m.rows, 1)
        a = numpy.where(negative, a | fa.sign_bit, a)
        a = numpy.where(bits.chance(10, *shape_a), a ^ fa.sign_bit, a)
        c = numpy.int64(fc.largest) - (bits.below(1 << (fc.mantissa_bits + 2), *shape_c) << 0)
        c = numpy.where(bits.chance(50, *shape_c), c | fc.sign_bit, c)
    elif name == "specials":
        a, b, c = _near_one(fa, bits, 3, *shape_a), _near_one(fb, bits, 3, *shape_b), _near_one(fc, bits, 6, *shape_c)
        a, b = _with_specials(bits, fa, a, 1), _with_specials(bits, fb, b, 1)
        c = _with_specials(bits, fc, c, 8)
        a = numpy.where(bits.chance(10, *shape_a), 0, a)
    else:
        raise ValueError(f"no input class {name!r}")
    return a, b, c.astype(U32)


def _exponent(format, codes) -> numpy.ndarray:
    values = number_formats.decode(format, codes)
    return numpy.frexp(values)[1]


def _extremes(bits: Bits, format, *shape: int) -> numpy.ndarray:
    step = 1 << 13 if format is number_formats.TF32 else 1
    smallest_normal = 1 << format.mantissa_bits
    table = [format.largest, format.largest - step, smallest_normal, smallest_normal - step, step, 2 * step, 0]
    codes = numpy.array(table, dtype=numpy.int64)[bits.below(len(table), *shape)]
    return codes | (bits.below(2, *shape) * format.sign_bit)


def _with_specials(bits: Bits, format, codes: numpy.ndarray, percent: int) -> numpy.ndarray:
    nan = 0x7FFFFFFF if format is number_formats.TF32 else format.nan  # the ignored lower bits set as well
    choices = [nan, nan | format.sign_bit]
    if format.infinity is not None:
        step = 1 << 13 if format is number_formats.TF32 else 1
        choices += [format.infinity, format.infinity | format.sign_bit] * 3 + [format.infinity + step]
    special = numpy.array(choices, dtype=numpy.int64)[bits.below(len(choices), *codes.shape)]
    return numpy.where(bits.chance(percent, *codes.shape), special, codes)


def packed(m: Matrix, codes: numpy.ndarray, which: str) -> numpy.ndarray:
    """The bytes of a matrix as they lie in global memory."""
    size = ELEMENT_BYTES[m.a if which == "a" else m.b]
    dtype = {1: numpy.uint8, 2: numpy.uint16, 4: numpy.uint32}[size]
    return codes.astype(dtype).view(numpy.uint8)


# -------------------------------------------------------------------------------------------------
# separate values


def _f32_patterns() -> numpy.ndarray:
    """Every upper half of an f32 with lower halves around the ties: 2^16 * 6 patterns, by upper half."""
    upper = numpy.arange(1 << 16, dtype=U32) << U32(16)
    lower = numpy.array([0x0000, 0x0001, 0x1000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=U32)
    return (upper[:, None] | lower).reshape(-1)


def _random_f32(bits: Bits, count: int) -> numpy.ndarray:
    """Bit patterns: a quarter anything, the rest with close exponents so that sums cancel and round."""
    words = bits.words(count)
    anything = words.astype(U32)
    near = (anything & U32(0x807FFFFF)) | ((U32(100) + (words >> U64(40)).astype(U32) % U32(40)) << U32(23))
    few = near & U32(0xFFFF0000)
    tiny = anything & U32(0x81FFFFFF)
    choice = (words >> U64(56)) & U64(7)
    return numpy.select([choice < 2, choice < 5, choice < 7], [anything, near, few], tiny).astype(U32)


def elementwise_inputs(e: Elementwise) -> list[numpy.ndarray]:
    bits = Bits(e.name if e.domain not in ("all16", "pairs16", "f32") else e.domain)
    if e.domain == "all16":
        return [numpy.arange(1 << 16).astype(numpy.uint16)]
    if e.domain == "pairs16":
        low = numpy.arange(1 << 16, dtype=U32)
        return [low | (low[::-1] << U32(16))]
    if e.domain == "f32":
        patterns = _f32_patterns()
        return [patterns, patterns[::-1].copy()][: len(e.inputs)]
    count = 1 << 17
    if e.domain in ("f32x2", "f32x3"):
        inputs = [_random_f32(bits, count) for _ in e.inputs]
        if e.domain == "f32x2":  # a third of the sums cancel to a few bits
            inputs[1][::3] = inputs[0][::3] ^ U32(0x80000000) ^ (bits.words(len(inputs[0][::3])).astype(U32) & U32(7))
        else:  # and the addend nearly cancels the product
            with numpy.errstate(all="ignore"):
                product = inputs[0][::3].view(numpy.float32) * inputs[1][::3].view(numpy.float32)
            inputs[2][::3] = product.view(U32) ^ U32(0x80000000) ^ (bits.words(len(product)).astype(U32) & U32(3))
        return inputs
    if e.domain in ("half2", "half3"):
        return [(bits.words(count) >> U64(20)).astype(numpy.uint16) for _ in e.inputs]
    if e.domain == "b32":
        words = bits.words(count)
        return [(words.astype(U32) >> ((words >> U64(40)).astype(U32) & U32(31))).astype(U32)]
    words, shift = bits.words(count), bits.words(count)
    if e.domain == "b64":
        return [words >> (shift & U64(63))]
    if e.domain == "f64":  # exponents of f32 and a little beyond
        exponent = U64(1023 - 160) + (shift % U64(300))
        values = (words & U64(0x800FFFFFFFFFFFFF)) | (exponent << U64(52))
        few = values & ~U64((1 << 29) - 1)
        tie = few | U64(1 << 28)
        choice = (shift >> U64(40)) % U64(8)
        return [numpy.select([choice < 4, choice < 5, choice < 7], [values, few, tie], words)]
    raise ValueError(f"no domain {e.domain!r}")
