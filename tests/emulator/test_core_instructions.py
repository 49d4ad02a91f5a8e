"""Each integer, float and lane instruction against what the PTX manual says, on lanes chosen for their edges."""

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from core_support import lanes

from zoo.emulator import conversions, number_formats
from zoo.emulator.instructions import load_tables

load_tables()
from zoo.emulator.instructions.arithmetic import fma_f32, fma_f64  # noqa: E402
from zoo.emulator.instructions.floating import FAST  # noqa: E402

RNG = np.random.default_rng(1)
EDGES = [
    0,
    1,
    2,
    31,
    32,
    33,
    63,
    64,
    127,
    128,
    255,
    256,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    0xFFFFFFFF,
    0xFFFFFFFE,
]
A = np.array((EDGES + list(RNG.integers(0, 2**32, 64)))[:32], np.uint32)
B = RNG.permutation(A)
SMALL = RNG.integers(0, 48, 32).astype(np.uint32)
MASK = 0xFFFFFFFF


def signed(value, bits=32):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def each(function, *arrays):
    return np.array([function(*[int(a[i]) for a in arrays]) & MASK for i in range(32)], np.uint32)


def shift_right_signed(a, by):
    return signed(a) >> min(by, 31)


def truncated_quotient(a, b):
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


INTEGER = [
    ("add.s32 %r40, %r1, %r2;", lambda a, b: a + b),
    ("sub.u32 %r40, %r1, %r2;", lambda a, b: a - b),
    ("add.sat.s32 %r40, %r1, %r2;", lambda a, b: max(-(2**31), min(2**31 - 1, signed(a) + signed(b)))),
    ("mul.lo.s32 %r40, %r1, %r2;", lambda a, b: a * b),
    ("mul.hi.u32 %r40, %r1, %r2;", lambda a, b: a * b >> 32),
    ("mul.hi.s32 %r40, %r1, %r2;", lambda a, b: signed(a) * signed(b) >> 32),
    ("mad.lo.s32 %r40, %r1, %r2, -7;", lambda a, b: a * b - 7),
    ("mad.hi.u32 %r40, %r1, %r2, %r1;", lambda a, b: (a * b >> 32) + a),
    ("min.s32 %r40, %r1, %r2;", lambda a, b: min(signed(a), signed(b))),
    ("max.u32 %r40, %r1, %r2;", lambda a, b: max(a, b)),
    ("and.b32 %r40, %r1, %r2;", lambda a, b: a & b),
    ("xor.b32 %r40, %r1, %r2;", lambda a, b: a ^ b),
    ("not.b32 %r40, %r1;", lambda a, b: ~a),
    ("neg.s32 %r40, %r1;", lambda a, b: -a),
    ("abs.s32 %r40, %r1;", lambda a, b: abs(signed(a))),
    ("popc.b32 %r40, %r1;", lambda a, b: bin(a).count("1")),
    ("clz.b32 %r40, %r1;", lambda a, b: 32 - a.bit_length()),
    ("brev.b32 %r40, %r1;", lambda a, b: int(f"{a:032b}"[::-1], 2)),
    ("bfind.u32 %r40, %r1;", lambda a, b: a.bit_length() - 1),
    ("bfind.shiftamt.u32 %r40, %r1;", lambda a, b: 32 - a.bit_length() if a else -1),
    ("bfind.s32 %r40, %r1;", lambda a, b: (~signed(a) if signed(a) < 0 else a).bit_length() - 1),
    ("lop3.b32 %r40, %r1, %r2, %r1, 0x96;", lambda a, b: a ^ b ^ a),
    ("lop3.b32 %r40, %r1, %r2, %r2, 0xB8;", lambda a, b: _lop3(a, b, b, 0xB8)),
    ("prmt.b32 %r40, %r1, %r2, 0x5140;", lambda a, b: _prmt(a, b, 0x5140)),
    ("prmt.b32 %r40, %r1, %r2, 0xFB3A;", lambda a, b: _prmt(a, b, 0xFB3A)),
    ("prmt.b32 %r40, %r1, %r1, %r2;", lambda a, b: _prmt(a, a, b)),
    ("sad.u32 %r40, %r1, %r2, 5;", lambda a, b: abs(a - b) + 5),
    ("mul24.lo.u32 %r40, %r1, %r2;", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    ("dp4a.u32.s32 %r40, %r1, %r2, 3;", lambda a, b: 3 + sum((a >> s & 255) * signed(b >> s & 255, 8) for s in (0, 8, 16, 24))),
    ("cnot.b32 %r40, %r1;", lambda a, b: int(a == 0)),
    ("add.u16x2 %r40, %r1, %r2;", lambda a, b: (a + b & 0xFFFF) | ((a >> 16) + (b >> 16) & 0xFFFF) << 16),
    ("max.s16x2 %r40, %r1, %r2;", lambda a, b: sum((max(signed(a >> s, 16), signed(b >> s, 16)) & 0xFFFF) << s for s in (0, 16))),
]


def _lop3(a, b, c, table):
    return sum((table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(32))


def _prmt(a, b, selector):
    both, result = b << 32 | a, 0
    for index in range(4):
        nibble = selector >> 4 * index & 15
        byte = both >> 8 * (nibble & 7) & 255
        if nibble & 8:
            byte = 255 if byte & 128 else 0
        result |= byte << 8 * index
    return result


@pytest.mark.parametrize(("text", "expected"), INTEGER, ids=[text.split(" ")[0] + f"-{i}" for i, (text, _) in enumerate(INTEGER)])
def test_integer_instruction(text, expected):
    values, report = lanes(text, A, B)
    assert report.ok, report
    np.testing.assert_array_equal(values, each(expected, A, B))


SHIFTS = [
    ("shl.b32 %r40, %r1, %r2;", lambda a, n: a << n if n < 32 else 0),
    ("shr.u32 %r40, %r1, %r2;", lambda a, n: a >> n),
    ("shr.s32 %r40, %r1, %r2;", shift_right_signed),
    ("shf.l.wrap.b32 %r40, %r1, %r1, %r2;", lambda a, n: (a << 32 | a) << (n & 31) >> 32),
    ("shf.l.wrap.b32 %r40, %r1, %r2, 7;", lambda a, n: (n << 32 | a) << 7 >> 32 & MASK),
    ("shf.r.wrap.b32 %r40, %r1, %r2, 39;", lambda a, n: (n << 32 | a) >> 7 & MASK),
    ("shf.r.clamp.b32 %r40, %r1, %r2, 40;", lambda a, n: n),
    ("shr.s32 %r40, %r1, 35;", lambda a, n: shift_right_signed(a, 31)),
    ("shl.b32 %r40, %r1, 31;", lambda a, n: (a & 1) << 31),
    ("shr.s32 %r40, %r1, 3;", lambda a, n: shift_right_signed(a, 3)),
    ("shf.r.clamp.b32 %r40, %r1, 7, %r2;", lambda a, n: (7 << 32 | a) >> min(n, 32)),
    ("bfe.u32 %r40, %r1, %r2, 7;", lambda a, n: a >> n & 127),
    ("bfe.s32 %r40, %r1, %r2, 7;", lambda a, n: _extract(a, n, 7)),
    ("bfi.b32 %r40, %r1, 0x12345678, %r2, 9;", lambda a, n: (0x12345678 & ~(0x1FF << n)) | (a & 0x1FF) << n if n < 32 else 0x12345678),
    ("bmsk.clamp.b32 %r40, %r2, 5;", lambda a, n: 31 << n if n < 32 else 0),
    ("szext.clamp.s32 %r40, %r1, %r2;", lambda a, n: signed(a, min(n, 32)) if n else 0),
]


def _extract(a, start, length):
    wide = signed(a)  # bits above the register repeat the sign
    return signed(wide >> start, length)


@pytest.mark.parametrize(("text", "expected"), SHIFTS, ids=[text.split(" ")[0] for text, _ in SHIFTS])
def test_shifts_beyond_the_width(text, expected):
    values, report = lanes(text, A, SMALL)
    assert report.ok, report
    np.testing.assert_array_equal(values, each(expected, A, SMALL))


@pytest.mark.parametrize(
    ("operation", "expected"), [("div.s32", truncated_quotient), ("rem.s32", lambda a, b: a - truncated_quotient(a, b) * b)]
)
def test_signed_division_truncates(operation, expected):
    divisors = np.where(B == 0, 3, B).astype(np.uint32)
    values, report = lanes(f"{operation} %r40, %r1, %r2;", A, divisors)
    assert report.ok, report
    np.testing.assert_array_equal(values, each(lambda a, b: expected(signed(a), signed(b)), A, divisors))


def test_wide_and_64_bit_arithmetic():
    values, report = lanes("mul.wide.s32 %rd20, %r1, %r2;", A, B, output=np.int64)
    np.testing.assert_array_equal(values, [signed(int(a)) * signed(int(b)) for a, b in zip(A, B, strict=True)])
    wide = (A.astype(np.uint64) << np.uint64(32)) | B
    values, report = lanes("mul.hi.u64 %rd20, %rd8, %rd9;", wide, wide[::-1], output=np.uint64)
    np.testing.assert_array_equal(values, [int(a) * int(b) >> 64 for a, b in zip(wide, wide[::-1], strict=True)])
    assert report.ok


def test_carries_make_a_128_bit_sum():
    body = """
        add.cc.u32 %r10, %r1, %r2;
        addc.cc.u32 %r11, %r1, %r2;
        addc.u32 %r40, 0, 0;
    """
    values, report = lanes(body, A, B)
    assert report.ok, report
    pairs = [(int(a) << 32 | int(a)) + (int(b) << 32 | int(b)) for a, b in zip(A, B, strict=True)]
    np.testing.assert_array_equal(values, [pair >> 64 for pair in pairs])


F = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-40,
        -1e-40,
        3.4e38,
        1e-38,
        0.1,
        2 ** (-126),
        1.5,
        65504,
        65520,
        *list(RNG.standard_normal(16) * 100),
    ],
    np.float32,
)
G = RNG.permutation(F)


def bits(values):
    values = np.asarray(values, np.float32)
    return np.where(np.isnan(values), np.uint32(0x7FFFFFFF), values.view(np.uint32))


FLOAT = [
    ("add.f32 %f20, %f1, %f2;", lambda a, b: a + b),
    ("mul.rn.f32 %f20, %f1, %f2;", lambda a, b: a * b),
    ("sub.ftz.f32 %f20, %f1, %f2;", lambda a, b: _flush(_flush(a) - _flush(b))),
    ("div.rn.f32 %f20, %f1, %f2;", lambda a, b: a / b),
    ("sqrt.rn.f32 %f20, %f1;", lambda a, b: np.sqrt(a)),
    ("neg.f32 %f20, %f1;", lambda a, b: -a),
    ("add.sat.f32 %f20, %f1, %f2;", lambda a, b: np.nan_to_num(np.clip(a + b, 0, 1), nan=0.0)),
]


def _flush(values):
    return np.where(np.abs(values) < np.float32(2.0**-126), np.copysign(np.float32(0), values), values)


@pytest.mark.parametrize(("text", "expected"), FLOAT, ids=[text.split(" ")[0] for text, _ in FLOAT])
def test_float_instruction(text, expected):
    values, report = lanes(text + " mov.b32 %r40, %f20;", F, G)
    assert report.ok, report
    with np.errstate(all="ignore"):
        wanted = expected(F, G)
    if "neg" in text:  # a sign change keeps the NaN's payload
        np.testing.assert_array_equal(values, F.view(np.uint32) ^ 0x80000000)
    else:
        np.testing.assert_array_equal(values, bits(wanted))


@pytest.mark.parametrize(("name", "of_nan"), [("max.f32", "other"), ("max.NaN.f32", "nan"), ("min.f32", "other")])
def test_minimum_and_maximum_of_nan_and_zeros(name, of_nan):
    values, _ = lanes(f"{name} %f20, %f1, %f2; mov.b32 %r40, %f20;", F, G)
    for a, b, found in zip(F, G, values, strict=True):
        found = struct.unpack("<f", struct.pack("<I", int(found)))[0]
        if np.isnan(a) or np.isnan(b):
            wanted = np.nan if of_nan == "nan" or (np.isnan(a) and np.isnan(b)) else (b if np.isnan(a) else a)
        else:
            wanted = max(a, b) if name.startswith("max") else min(a, b)
            if a == b == 0:
                wanted = (
                    0.0
                    if (name.startswith("max") and not (np.signbit(a) and np.signbit(b)))
                    else (-0.0 if np.signbit(a) or np.signbit(b) else 0.0)
                )
        assert (np.array_equal(found, wanted, equal_nan=True) and np.signbit(found) == np.signbit(np.float32(wanted))) or np.isnan(wanted)


def test_fma_rounds_once_on_a_double_rounding_case():
    # a * b + c = 1 + 2^-24 + 2^-60: float64 drops the last term and would then round the tie to even, down
    a, b, c = (np.full(32, v, np.float32) for v in (1 + 2.0**-23, 2.0**-24, 1.0))
    c = c + np.float32(0)
    values, _ = lanes("fma.rn.f32 %f20, %f1, %f2, %f3; mov.b32 %r40, %f20;", a, b, c)
    assert values[0] == np.float32(1 + 2.0**-23).view(np.uint32)


def test_fast_fma_equals_the_exact_one():
    x, y, z = (RNG.integers(0, 2**32, 3200, dtype=np.uint32).view(np.float32) for _ in range(3))
    x[::7], z[::5] = np.float32(1.5), np.float32(-0.0)
    with np.errstate(all="ignore"):
        for start in range(0, x.size, 32):
            part = slice(start, start + 32)
            wanted = number_formats.fma(x[part].view(np.uint32), y[part].view(np.uint32), z[part].view(np.uint32))
            np.testing.assert_array_equal(fma_f32(x[part], y[part], z[part]).view(np.uint32), wanted)


def test_fast_fma_rounds_once_just_below_the_normal_range():
    """Found by a reader: the tie lies at another bit there."""
    a, b, c = (np.full(32, value, np.float32) for value in (2.0**-75 * (1 + 4097 / 2**23), -(2.0**-75) * (1 - 4095 / 2**23), 2.0**-126))
    assert set(fma_f32(a, b, c).view(np.uint32)) == {0x007FFFFF}


HALF_SPECIAL = np.array(
    [0, 0x8000, 1, 0x8001, 0x3C00, 0x3F80, 0x7BFF, 0x7C00, 0xFC00, 0x7F7F, 0x7F80, 0xFF80, 0x7FFF, 0xFFFF, 0x7C01, 0x0400, 0x0080],
    np.uint32,
)


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("operation", ["add", "mul", "fma"])
def test_quick_half_arithmetic_equals_the_exact_one(operation, name):
    format = number_formats.FORMATS[name]
    exact = {"add": number_formats.half_add, "mul": number_formats.half_multiply, "fma": number_formats.half_fma}[operation]
    pairs = np.stack(np.meshgrid(HALF_SPECIAL, HALF_SPECIAL)).reshape(2, -1)
    near = RNG.integers(0x3C00, 0x4400, (3, 3000)).astype(np.uint32)  # ties and cancellation are frequent here
    wide = RNG.integers(0, 1 << 16, (3, 20000)).astype(np.uint32)
    some = np.concatenate([pairs, RNG.permutation(pairs, axis=1)[:1]])
    quick = 0
    for codes in np.concatenate([wide, near, some], axis=1).T.reshape(-1, 3)[:, :, None]:
        codes = codes[: 2 if operation != "fma" else 3]
        found = number_formats.half_quickly(format, operation, *codes)
        if found is not None:
            quick += 1
            assert found.tolist() == exact(format, *codes).tolist(), [hex(int(code[0])) for code in codes]
    assert quick > 10_000


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("modifiers", ["", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_minimum_and_maximum_of_halves(name, modifiers, kind):
    """Both halves of a register, against the rule one number at a time."""
    values = np.concatenate([HALF_SPECIAL, RNG.integers(0, 1 << 16, 15).astype(np.uint32)])
    a, b = values | np.roll(values, 5) << 16, np.roll(values, 11) | np.roll(values, 3) << 16
    found, report = lanes(f"{name}{modifiers}.{kind}x2 %r40, %r1, %r2;", a, b)
    assert report.ok, report
    table = number_formats.decode_table(number_formats.FORMATS[kind])

    def one(x, y):
        sign = (x ^ y) & 0x8000 if "xorsign" in modifiers else 0
        if "abs" in modifiers:
            x, y = x & 0x7FFF, y & 0x7FFF
        bad = np.isnan(table[[x, y]])
        if bad.all() or (bad.any() and "NaN" in modifiers):
            return 0x7FFF
        order = sorted((x, y), key=lambda code: (table[code], not code & 0x8000))  # -0 before +0
        chosen = (y if bad[0] else x) if bad.any() else order[0 if name == "min" else 1]
        return chosen | sign

    wanted = [one(x & 0xFFFF, y & 0xFFFF) | one(x >> 16, y >> 16) << 16 for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    np.testing.assert_array_equal(found, np.array(wanted, np.uint32))


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("operation", ["add", "mul", "fma"])
def test_packed_f32_is_f32_twice(operation, ftz):
    """add, mul and fma of f32x2 beside the scalar instruction on each half."""
    bits_of = RNG.integers(0, 1 << 32, (6, 32), dtype=np.uint32)
    bits_of[:, :4] = [[0x00000001, 0x80000001, 0x7FC00001, 0x7F800000]] * 6
    low, high = bits_of[:3].view(np.float32), bits_of[3:].view(np.float32)
    count = 3 if operation == "fma" else 2
    rounding = ".rn" if operation == "fma" else ""
    names = [f"%rd{12 + i}" for i in range(count)]
    pack = " ".join(f"mov.b64 {name}, {{%f{i + 1}, %f{i + 4}}};" for i, name in enumerate(names))
    both, report = lanes(f"{pack} {operation}{rounding}{ftz}.f32x2 %rd20, {', '.join(names)};", *low, *high, output=np.uint64)
    assert report.ok, report
    for part, shift in ((low, 0), (high, 32)):
        sources = ", ".join(f"%f{i + 1}" for i in range(count))
        alone, _ = lanes(f"{operation}{rounding}{ftz}.f32 %f20, {sources}; mov.b32 %r40, %f20;", *part[:count])
        np.testing.assert_array_equal((both >> np.uint64(shift)).astype(np.uint32), alone)


@pytest.mark.parametrize("name", sorted(FAST))
def test_fast_conversion_equals_the_exact_one(name):
    function, _width, _ = FAST[name]
    special = np.array(
        [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFC00000, 1, 0x4F000000, 0xCF000000, 0x4F800000, 0x477FF000, 0x33000001],
        np.uint32,
    )
    halves = (RNG.integers(-4000, 4000, 2000) * 0.5).astype(np.float32).view(np.uint32)
    a = np.concatenate([RNG.integers(0, 2**32, 20000, dtype=np.uint32), special, halves])
    arguments = [a, RNG.permutation(a)] if "x2" in name else [a]
    with np.errstate(all="ignore"):
        found, wanted = function(*arguments), conversions.conversion(name)(*arguments)
    np.testing.assert_array_equal(found.astype(np.uint32), wanted.astype(np.uint32))


@pytest.mark.parametrize("text", ["cvt.u32.u8", "cvt.s32.s8", "cvt.s16.s32", "cvt.u64.u32", "cvt.s64.s32"])
def test_integer_conversions_extend_by_the_source(text):
    target, source = text.split(".")[1:]
    widths = {"u8": 1, "s8": 1, "s16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8}
    dtype = lambda name: np.dtype(("i" if name[0] == "s" else "u") + str(widths[name]))  # noqa: E731
    expected = A.astype(dtype(source)).astype(dtype(target))
    if widths[target] == 8:
        values, report = lanes(f"{text} %rd20, %r1;", A, output=np.uint64)
    elif widths[target] == 2:
        values, report = lanes(f"{text} %h1, %r1; cvt.s32.s16 %r40, %h1;", A)
        expected = expected.astype(np.int32)
    else:
        values, report = lanes(f"{text} %r40, %r1;", A)
    assert report.ok, report
    np.testing.assert_array_equal(values, expected.view(values.dtype))


@pytest.mark.parametrize("compare", ["lt", "le", "gt", "ge", "eq", "ne", "ltu", "equ", "neu", "num", "nan"])
def test_float_comparisons_with_nan(compare):
    values, report = lanes(f"setp.{compare}.f32 %p1, %f1, %f2; selp.u32 %r40, 1, 0, %p1;", F, G)
    assert report.ok, report
    ordered = ~(np.isnan(F) | np.isnan(G))
    base = {"lt": F < G, "le": F <= G, "gt": F > G, "ge": F >= G, "eq": F == G, "ne": F != G, "num": ordered, "nan": ~ordered}
    wanted = base[compare] & (ordered | (compare == "nan")) if compare in base else base[compare[:-1]] | ~ordered
    np.testing.assert_array_equal(values, wanted)


def test_setp_with_two_results_and_a_boolean():
    body = """
        setp.lt.u32 %p3, %r1, 100;
        setp.lt.and.s32 %p1|%p2, %r1, %r2, %p3;
        selp.u32 %r3, 1, 0, %p1;
        selp.u32 %r4, 2, 0, %p2;
        or.b32 %r40, %r3, %r4;
    """
    values, report = lanes(body, A, B)
    assert report.ok, report
    less, small = A.view(np.int32) < B.view(np.int32), A < 100
    np.testing.assert_array_equal(values, np.where(less & small, 1, 0) | np.where(~less & small, 2, 0))


def test_vectors_pack_low_part_first():
    values, report = lanes("mov.b64 %rd20, {%r1, %r2};", A, B, output=np.uint64)
    np.testing.assert_array_equal(values, A.astype(np.uint64) | (B.astype(np.uint64) << np.uint64(32)))
    values, report = lanes("mov.b32 {%h1, %h2}, %r1; mov.b32 %r40, {%h2, %h1};", A)
    np.testing.assert_array_equal(values, (A >> 16) | (A << 16))
    assert report.ok


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("shfl.sync.bfly.b32 %r40, %r1, 3, 31, -1;", lambda lane: lane ^ 3),
        ("shfl.sync.down.b32 %r40, %r1, 5, 31, -1;", lambda lane: lane + 5 if lane + 5 < 32 else lane),
        ("shfl.sync.up.b32 %r40, %r1, 2, 0, -1;", lambda lane: lane - 2 if lane >= 2 else lane),
        ("shfl.sync.idx.b32 %r40, %r1, 9, 31, -1;", lambda lane: 9),
        ("shfl.sync.down.b32 %r40, %r1, 4, 0x101f, -1;", lambda lane: lane + 4 if lane % 16 + 4 < 16 else lane),
        ("shfl.sync.idx.b32 %r40, %r1, 3, 0x181f, -1;", lambda lane: (lane & ~7) + 3),
    ],
)
def test_shuffles_stay_in_their_segment(text, source):
    values, report = lanes(text, A)
    assert report.ok, report
    np.testing.assert_array_equal(values, [A[source(lane)] for lane in range(32)])


def test_votes_matches_and_reductions():
    odd = "setp.ne.u32 %p1, %r2, 0;"
    flags = (A & 1).astype(np.uint32)
    values, report = lanes(odd + "vote.sync.ballot.b32 %r40, %p1, -1;", A, flags)
    assert report.ok and set(values) == {sum(1 << i for i in range(32) if flags[i])}
    groups = (np.arange(32) % 5).astype(np.uint32)
    values, _ = lanes("match.any.sync.b32 %r40, %r1, -1;", groups)
    np.testing.assert_array_equal(values, [sum(1 << i for i in range(32) if groups[i] == groups[lane]) for lane in range(32)])
    values, _ = lanes("redux.sync.add.u32 %r40, %r1, -1;", A)
    assert set(values) == {int(A.sum(dtype=np.uint64)) & MASK}
    values, _ = lanes("redux.sync.min.s32 %r40, %r1, -1;", A)
    assert set(values) == {int(A.view(np.int32).min()) & MASK}
    values, _ = lanes("elect.sync %r40|%p1, -1;", A)
    assert set(values) == {0}


@pytest.mark.parametrize("type", ["u32", "s32", "u64", "s64"])
def test_a_bit_field_may_reach_past_the_end_of_its_value(type):
    width = int(type[1:])
    rng = np.random.default_rng(width)
    values = rng.integers(0, 256, (32, width // 8), np.uint8).view(f"u{width // 8}")[:, 0]
    starts, lengths = (rng.choice([0, 1, 7, 31, 32, 33, 63, 64, 65, 255, 256], 32).astype(np.uint32) for _ in range(2))
    value, destination = ("%r1", "%r40") if width == 32 else ("%rd8", "%rd20")
    body = f"bfe.{type} {destination}, {value}, %r2, %r3;"
    found, _ = lanes(body, values, starts, lengths, output=values.dtype)

    def expected(bits, start, length):
        start, length = start & 255, length & 255
        last = min(start + length - 1, width - 1)
        sign = bits >> last & 1 if type[0] == "s" and length else 0
        return sum((bits >> start + i & 1 if i < length and start + i < width else sign) << i for i in range(width))

    assert found.tolist() == [expected(*lane) for lane in zip(values.tolist(), starts.tolist(), lengths.tolist(), strict=True)]


def test_an_fma_whose_float64_sum_is_a_tie_is_rounded_once():
    """Exact ties go to even. Where float64 rounded the sum to a tie, the exact value decides."""
    rng = np.random.default_rng(3)
    ties = 0
    for _ in range(300):
        a, b, c = (np.ldexp(rng.integers(-7, 8, 32) * 2.0 + 1, rng.integers(-30, 30, 32)).astype(np.float32) for _ in range(3))
        c[::2] = np.ldexp(a[::2].astype(np.float64) * b[::2], rng.choice([24, -24, 25], 16)).astype(np.float32)
        c[::4] += np.ldexp(c[::4], -23)
        exact = number_formats.fma(*(values.view(np.uint32) for values in (a, b, c)))
        ties += int((np.ldexp(a.astype(np.float64) * b + c, 0).view(np.uint64) & np.uint64(0x1FFFFFFF) == np.uint64(0x10000000)).sum())
        assert (fma_f32(a, b, c).view(np.uint32) == exact).all()
    assert ties > 100


def test_fma_of_doubles_rounds_once():
    """Sums near ties, cancellations and the ends of the range against rational arithmetic."""
    rng = np.random.default_rng(64)
    numbers = rng.standard_normal((3, 400)) * 2.0 ** rng.integers(-60, 60, (3, 400))
    whole = np.stack([rng.integers(1, 2**27, 400), rng.integers(1, 2**27, 400), rng.integers(-(2**53), 2**53, 400)]) * 0.5
    whole[2] *= 2.0 ** rng.integers(-40, 40, 400)
    near = np.stack([numbers[0], numbers[1], -numbers[0] * numbers[1] * (1 + rng.integers(-2, 3, 400) * 2.0**-52)])
    bits = rng.integers(0, 2**64, (3, 400), np.uint64).view(np.float64)
    bits = bits[:, np.isfinite(bits).all(axis=0)]
    for a, b, c in (numbers, whole, near, bits, bits * 2.0**-500):
        with np.errstate(all="ignore"):
            found = fma_f64(a, b, c)
        for x, y, z, result in zip(*(array.tolist() for array in (a, b, c, found)), strict=True):
            exact = Fraction(x) * Fraction(y) + Fraction(z)
            try:
                wanted = exact.numerator / exact.denominator if exact else x * y + z
            except OverflowError:
                wanted = math.inf if exact > 0 else -math.inf
            assert result == wanted and math.copysign(1, result) == math.copysign(1, wanted), (x.hex(), y.hex(), z.hex())
