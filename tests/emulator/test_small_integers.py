"""mma of integers of 8, 4 and 1 bits against numpy. The fragments are written from the manual's formulas, element by element."""

import numpy as np
import pytest
from core_support import kernel, launch

from zoo import emulator
from zoo.emulator import UnsupportedInstruction

RNG = np.random.default_rng(56)
BITS = {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
FORMS = [
    (m, k, a, b, end)
    for shapes, types in (
        (((8, 16), (16, 16), (16, 32)), ("s8", "u8")),
        (((8, 32), (16, 32), (16, 64)), ("s4", "u4")),
        (((8, 128), (16, 128), (16, 256)), ("b1",)),
    )
    for m, k in shapes
    for a in types
    for b in types
    for end in (("", "satfinite") if types != ("b1",) else ("and.popc", "xor.popc"))
]


def instruction(m, k, a, b, end):
    """The instruction with D and C in %r10 and above, A in %r20 and above, B in %r30 and above."""
    registers = lambda first, count: "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"  # noqa: E731
    words = k * BITS[a] // 32
    d, left, right = registers(10, m // 4), registers(20, m * words // 32), registers(30, words // 4)
    types = f"s32.{a}.{b}.s32"
    form = f"row.col.satfinite.{types}" if end == "satfinite" else f"row.col.{types}.{end}".rstrip(".")
    return f"mma.sync.aligned.m{m}n8k{k}.{form} {d}, {left}, {right}, {d};"


def values(type, shape):
    low = -(1 << (BITS[type] - 1)) if type[0] == "s" else 0
    return RNG.integers(low, low + (1 << BITS[type]), shape)


def fragment(matrix, bits, place):
    """32-bit registers (registers, 32) of (rows along K): element i of lane l is at place(l, i)."""
    count = 32 // bits
    words = np.zeros((matrix.size * bits // 1024, 32), np.uint64)
    for register, lane, position in np.ndindex(*words.shape, count):
        element = int(matrix[place(lane, count * register + position)]) & ((1 << bits) - 1)
        words[register, lane] |= np.uint64(element << bits * position)
    return words.astype(np.uint32)


def run(m, k, a, b, end, left, right, c):
    count = 32 // BITS[a]

    def place_of_a(lane, i):
        register, position = divmod(i, count)
        return lane // 4 + 8 * (register % (m // 8)), count * (lane % 4) + position + 4 * count * (register // (m // 8))

    def place_of_b(lane, i):
        register, position = divmod(i, count)
        return lane // 4, count * (lane % 4) + position + 4 * count * register

    places = [(lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2) for i in range(m // 4) for lane in range(32)]
    of_c = np.array([c[place] for place in places], np.int32).reshape(-1, 32).view(np.uint32)
    of_a, of_b = fragment(left, BITS[a], place_of_a), fragment(right, BITS[b], place_of_b)
    image = np.concatenate([of_c, of_a, of_b])
    names = [f"%r{first + i}" for first, part in ((10, of_c), (20, of_a), (30, of_b)) for i in range(len(part))]
    body = "mul.wide.u32 %rd10, %r0, 4; add.s64 %rd11, %rd1, %rd10; add.s64 %rd10, %rd0, %rd10;"
    body += "".join(f"ld.global.b32 {name}, [%rd11+{128 * i}];" for i, name in enumerate(names))
    body += instruction(m, k, a, b, end)
    body += "".join(f"st.global.b32 [%rd10+{128 * i}], %r{10 + i};" for i in range(m // 4))
    gpu = emulator.Device()
    y = gpu.alloc(32 * m)
    report = launch(kernel(body), device=gpu, params=[y, gpu.alloc(image)])
    assert report.ok, report
    d = np.empty((m, 8), np.int64)
    for place, value in zip(places, gpu.read(y, 8 * m, np.int32), strict=True):
        d[place] = value
    return d


@pytest.mark.parametrize(("m", "k", "a", "b", "end"), FORMS)
def test_a_product_of_small_integers_counts_every_element_once(m, k, a, b, end):
    left, right = values(a, (m, k)), values(b, (8, k))
    c = RNG.integers(-99, 99, (m, 8))
    c[0, :2] = (1 << 31) - 1, -(1 << 31)  # the sums of this row pass both ends
    left[0] = 1
    right[:2] = [[1], [-1 if b[0] == "s" else 1]]
    products = left @ right.T if end != "xor.popc" else (left[:, None] != right[None]).sum(axis=2)
    total = products + c
    expected = np.clip(total, -(1 << 31), (1 << 31) - 1) if end == "satfinite" else total.astype(np.int32)
    np.testing.assert_array_equal(run(m, k, a, b, end, left, right, c), expected)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_ptxas_takes_every_form_that_the_emulator_takes(compiler, tmp_path, arch):
    source = tmp_path / "forms.ptx"
    source.write_text(kernel("\n".join(instruction(*form) for form in FORMS), target=arch))
    assert compiler.cubin(source, arch)[:4] == b"\x7fELF"


REFUSED = [
    (16, 32, "s8", "s4", ""), (16, 64, "s8", "s8", ""), (8, 32, "s8", "s8", ""), (8, 64, "s4", "s4", ""), (16, 128, "b1", "s8", "and.popc"),
    (16, 256, "b1", "b1", ""), (16, 256, "b1", "b1", "or.popc"), (16, 256, "b1", "b1", "satfinite"), (16, 32, "s8", "s8", "and.popc"),
]  # fmt: skip


@pytest.mark.parametrize("form", REFUSED)
def test_a_form_that_does_not_exist_is_refused(form):
    with pytest.raises(UnsupportedInstruction, match=r"PTX line \d+"):
        emulator.Device().launch(emulator.Module(kernel(instruction(*form))), "k", 1, 32, params=[0, 0])


@pytest.mark.parametrize("form", REFUSED)
def test_ptxas_refuses_what_the_emulator_refuses(compiler, tmp_path, form):
    source = tmp_path / "refused.ptx"
    source.write_text(kernel(instruction(*form)))
    with pytest.raises(RuntimeError, match="ptxas"):
        compiler.cubin(source, "sm_90a")


def test_factors_of_integers_and_floats_do_not_mix():
    registers = "{%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r1, %r2, %r3, %r4};"
    for types in ("s32.s8.e4m3.s32", "f32.e4m3.s8.f32", "f32.f16.bf16.f32"):
        depth = 16 if "f16" in types else 32
        with pytest.raises(UnsupportedInstruction, match=r"PTX line \d+"):
            launch(kernel(f"mma.sync.aligned.m16n8k{depth}.row.col.{types} {registers}"), params=[0, 0])
