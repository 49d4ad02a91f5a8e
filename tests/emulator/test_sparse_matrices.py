"""mma.sp and wgmma.mma_async.sp against a dense product in numpy. The fragments are written from the manual's formulas, lane by lane."""

import numpy as np
import pytest
from core_support import kernel, kinds, launch, only

from zoo import emulator
from zoo.emulator import UnsupportedInstruction, number_formats

RNG = np.random.default_rng(24)
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "e2m1": 8}


def codes(type, values):
    """Register codes of small integers."""
    if type in ("s8", "u8"):
        return values.astype(np.uint8)
    encoded = number_formats.encode(number_formats.FORMATS[type], values.astype(float), "rn", satfinite=True)
    return encoded.astype(f"u{BITS[type] // 8}") << (2 if type == "e2m1" else 0)  # e2m1 in bits 2-5 of a byte


def sparse(rows, depth, tf32):
    """(dense A, stored elements (rows, depth / 2), nibbles): small integers, two of four kept, or one of two."""
    width = 2 if tf32 else 4
    groups = depth // width
    kept = np.sort(np.argsort(RNG.random((rows, groups, width)), axis=2)[:, :, : width // 2], axis=2)
    stored = RNG.integers(1, 4, kept.shape)
    dense = np.zeros((rows, groups, width), int)
    np.put_along_axis(dense, kept, stored, axis=2)
    nibbles = np.where(kept[:, :, 0] == 0, 0b0100, 0b1110) if tf32 else kept[:, :, 0] | kept[:, :, 1] << 2
    return dense.reshape(rows, depth), stored.reshape(rows, depth // 2), nibbles


def metadata(nibbles, bits, selector):
    """The 32-bit words of a warp's lanes for 16 rows; lanes that hold none have any bits."""
    words16 = (nibbles.reshape(16, -1, 4) << np.array([0, 4, 8, 12])).sum(axis=2)  # [row][word]
    count = words16.shape[1]
    words = RNG.integers(0, 1 << 32, 32)
    for lane in range(32):
        row, place = divmod(lane, 4)
        if bits == 8:
            pair = place // 2 - selector
            if 0 <= pair < count // 2:
                row += 8 * (place % 2)
                words[lane] = words16[row][2 * pair] | words16[row][2 * pair + 1] << 16
        elif 0 <= place - count * selector < count:
            word = place - count * selector
            words[lane] = words16[row][word] | words16[row + 8][word] << 16
    return words.astype(np.uint32)


def fragment(matrix, bits, registers, place):
    """Registers (registers, 32) from codes; place(lane, register) -> (row, first code)."""
    count = 32 // bits
    words = np.zeros((registers, 32), np.uint32)
    for register, lane in np.ndindex(registers, 32):
        row, first = place(lane, register)
        words[register, lane] = np.ascontiguousarray(matrix[row, first : first + count]).view(np.uint32)[0]
    return words


def operands(type_a, type_b, depth, selector, b_values=None):
    bits = BITS[type_a]
    count = 32 // bits
    dense, stored, nibbles = sparse(16, depth, type_a == "tf32")
    b = RNG.integers(-3 if type_b != "u8" else 0, 4, (8, depth))
    registers = depth * bits // 128
    image_a = fragment(codes(type_a, stored), bits, registers, lambda lane, i: (lane // 4 + 8 * (i % 2), count * (lane % 4 + 4 * (i // 2))))
    image_b = fragment(codes(type_b, b), bits, registers, lambda lane, i: (lane // 4, count * (lane % 4 + 4 * i)))
    return dense, b, image_a, image_b, metadata(nibbles, bits, selector)


def mma_sp(text, image_a, image_b, words, c, result, arch="sm_90a", **options):
    """D (16, 8) of one instruction; `text` names the registers as {a}, {b}, {c}, {e}."""
    rows = [*image_a, *image_b, words]
    if result == "f16":
        halves = c.astype(np.float16).view(np.uint16).astype(np.uint32)
        c_rows = [
            np.array(
                [halves[lane // 4 + 8 * i, 2 * (lane % 4)] | halves[lane // 4 + 8 * i, 2 * (lane % 4) + 1] << 16 for lane in range(32)]
            )
            for i in range(2)
        ]
    else:
        typed = c.astype("f4" if result == "f32" else "i4").view(np.uint32)
        c_rows = [np.array([typed[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2] for lane in range(32)]) for i in range(4)]
    image = np.stack([*rows, *c_rows]).astype(np.uint32)
    names = [f"%r{10 + i}" for i in range(len(image))]
    n = len(image_a)
    parts = {"a": names[:n], "b": names[n : 2 * n], "c": names[2 * n + 1 :]}
    body = "mul.wide.u32 %rd10, %r0, 4; add.s64 %rd11, %rd1, %rd10; add.s64 %rd10, %rd0, %rd10;"
    body += "".join(f"ld.global.b32 {name}, [%rd11+{128 * i}];" for i, name in enumerate(names))
    body += text.format(e=names[2 * n], **{key: "{" + ", ".join(part) + "}" for key, part in parts.items()})
    body += "".join(f"st.global.b32 [%rd10+{128 * i}], {name};" for i, name in enumerate(parts["c"]))
    gpu = emulator.Device(arch, **options)
    y = gpu.alloc(128 * len(c_rows))
    report = launch(kernel(body, target=arch), device=gpu, params=[y, gpu.alloc(image)])
    got = gpu.read(y, (len(c_rows), 32), np.uint32)
    d = np.empty((16, 8))
    for i, lane in np.ndindex(got.shape):
        row, column = lane // 4 + 8 * (i if result == "f16" else i // 2), 2 * (lane % 4)
        if result == "f16":
            d[row, column : column + 2] = got[i, lane : lane + 1].view(np.float16)
        else:
            d[row, column + i % 2] = got[i, lane : lane + 1].view("f4" if result == "f32" else "i4")[0]
    return d, report


MMA = "mma.{variant}.sync.aligned.m16n8k{depth}.row.col{kind}.{result}.{a}.{b}.{result} {{c}}, {{a}}, {{b}}, {{c}}, {{e}}, {selector};"


@pytest.mark.parametrize("arithmetic", ["exact", "hw"])
@pytest.mark.parametrize(("a", "b", "depth", "result", "selector"), [
    ("f16", "f16", 16, "f32", 3), ("f16", "f16", 32, "f16", 1), ("bf16", "bf16", 32, "f32", 0), ("tf32", "tf32", 8, "f32", 2), ("tf32", "tf32", 16, "f32", 1),
    ("s8", "u8", 32, "s32", 1), ("u8", "s8", 64, "s32", 0), ("e4m3", "e5m2", 64, "f32", 0),
])  # fmt: skip
def test_a_sparse_product_is_the_dense_one(a, b, depth, result, selector, arithmetic):
    dense, right, *images = operands(a, b, depth, selector)
    c = RNG.integers(-9, 9, (16, 8))
    text = MMA.format(variant="sp::ordered_metadata", depth=depth, kind="", result=result, a=a, b=b, selector=selector)
    d, report = mma_sp(text, *images, c, result, arithmetic=arithmetic)
    assert report.ok, report
    np.testing.assert_array_equal(d, dense @ right.T + c)


def test_a_sparse_product_of_small_floats_in_bytes():
    dense, right, *images = operands("e2m1", "e4m3", 64, 0)
    text = MMA.format(variant="sp::ordered_metadata", depth=64, kind=".kind::f8f6f4", result="f32", a="e2m1", b="e4m3", selector=0)
    d, report = mma_sp(text, *images, np.zeros((16, 8)), "f32", arch="sm_120a")
    assert report.ok, report
    np.testing.assert_array_equal(d, dense @ right.T)


@pytest.mark.parametrize(
    ("a", "b", "depth", "selector"), [("s4", "s4", 64, 0), ("u4", "s4", 64, 1), ("s4", "u4", 128, 0), ("u4", "u4", 128, 0)]
)
def test_packed_integers_are_kept_in_pairs(a, b, depth, selector):
    """The metadata of a pair is that of one element of 8 bits at half the depth."""
    pairs, kept, nibbles = sparse(16, depth // 2, False)
    second = lambda values: -values - 1 if a == "s4" else values + 8 * (values > 0)  # noqa: E731
    dense = np.stack([pairs, np.where(pairs, second(pairs), 0)], axis=2).reshape(16, depth)
    right = RNG.integers(-8, 8, (8, depth)) if b == "s4" else RNG.integers(0, 16, (8, depth))
    packed = lambda low, high: (low & 15 | (high & 15) << 4).astype(np.uint8)  # noqa: E731
    registers = depth // 32
    image_a = fragment(packed(kept, second(kept)), 8, registers, lambda lane, i: (lane // 4 + 8 * (i % 2), 4 * (lane % 4 + 4 * (i // 2))))
    image_b = fragment(packed(right[:, 0::2], right[:, 1::2]), 8, registers, lambda lane, i: (lane // 4, 4 * (lane % 4 + 4 * i)))
    c = RNG.integers(-9, 9, (16, 8))
    text = MMA.format(variant="sp::ordered_metadata", depth=depth, kind="", result="s32", a=a, b=b, selector=selector)
    d, report = mma_sp(text, image_a, image_b, metadata(nibbles, 8, selector), c, "s32")
    assert report.ok, report
    np.testing.assert_array_equal(d, dense @ right.T + c)


@pytest.mark.parametrize("arithmetic", ["exact", "hw"])
@pytest.mark.parametrize(("kind", "scale", "vector"), [("mxf8f6f4", "ue8m0", 1), ("mxf4", "ue8m0", 2), ("mxf4nvf4", "ue4m3", 4)])
def test_block_scales_belong_to_parts_of_the_whole_depth(kind, scale, vector, arithmetic):
    """Row r of A has its scales in lane 4 (r % 8) + 2 + r / 8 (thread-id 1), column n of B in lane 4 n + 3. Packed elements are kept in pairs."""
    fp4 = kind != "mxf8f6f4"
    dense, right, image_a, image_b, words = operands("e4m3", "e4m3", 64, 0)
    if fp4:
        pairs, kept, nibbles = sparse(16, 64, False)
        dense = np.stack([pairs, -pairs], axis=2).reshape(16, 128)
        right = RNG.integers(-3, 4, (8, 128))
        nibble = lambda values: number_formats.encode(number_formats.E2M1, values.astype(float), "rn", satfinite=True).astype(np.uint8)  # noqa: E731
        codes_a, codes_b = nibble(kept) | nibble(-kept) << 4, nibble(right[:, 0::2]) | nibble(right[:, 1::2]) << 4
        image_a = fragment(codes_a, 8, 4, lambda lane, i: (lane // 4 + 8 * (i % 2), 4 * (lane % 4 + 4 * (i // 2))))
        image_b = fragment(codes_b, 8, 4, lambda lane, i: (lane // 4, 4 * (lane % 4 + 4 * i)))
        words = metadata(nibbles, 8, 0)
    one, two = (0x38, 0x40) if scale == "ue4m3" else (127, 128)  # codes of 1 and 2
    text = f"mma.sp::ordered_metadata.sync.aligned.m16n8k{128 if fp4 else 64}.row.col.kind::{kind}.block_scale.scale_vec::{vector}X"
    text += f".f32.{'e2m1.e2m1' if fp4 else 'e4m3.e4m3'}.f32.{scale} {{c}}, {{a}}, {{b}}, {{c}}, {{e}}, 0, %r50, {{{{0, 1}}}}, %r51, {{{{0, 3}}}};"
    # the scales: odd lanes have 2 in their first byte, the others 1; all other bytes are 1
    text = f"mov.u32 %r50, {one * 0x01010101}; and.b32 %r51, %r0, 1; mad.lo.u32 %r50, %r51, {two - one}, %r50; mov.u32 %r51, %r50;" + text
    d, report = mma_sp(text, image_a, image_b, words, np.zeros((16, 8)), "f32", arch="sm_120a", arithmetic=arithmetic)
    assert report.ok, report
    factors = np.ones((16, dense.shape[1]))
    factors[8:, : dense.shape[1] // vector] = 2  # lanes 4 (r % 8) + 3
    columns = np.ones(right.shape)
    columns[:, : right.shape[1] // vector] = 2
    np.testing.assert_array_equal(d, (dense * factors) @ (right * columns).T)


def test_elements_that_are_not_stored_meet_no_infinity():
    _, _, image_a, image_b, words = operands("f16", "f16", 16, 0)
    image_b[:] = 0x7C007C00  # both halves infinite
    text = MMA.format(variant="sp", depth=16, kind="", result="f32", a="f16", b="f16", selector=0)
    d, report = mma_sp(text, image_a, image_b, words, np.zeros((16, 8)), "f32")
    assert report.ok and (d == np.inf).all()


def test_metadata_without_a_meaning_is_found():
    """Index 1 twice has none; indices 3, 0 have none for ordered metadata. Among zeros every index is right: copies fill rows with them."""
    _, _, image_a, image_b, words = operands("f16", "f16", 16, 0)
    for nibble, variant, found in ((0b0101, "sp", {"arithmetic"}), (0b0011, "sp", set()), (0b0011, "sp::ordered_metadata", {"arithmetic"})):
        words[4] = words[4] & 0xFFFFFFF0 | nibble
        text = MMA.format(variant=variant, depth=16, kind="", result="f32", a="f16", b="f16", selector=0)
        _, report = mma_sp(text, image_a, image_b, words, np.zeros((16, 8)), "f32")
        assert kinds(report) == found
        if found:
            assert "metadata of row 1" in only(report, "arithmetic").message
    image_a[0, 4], words[4] = 0, words[4] & 0xFFFFFFF0
    assert mma_sp(text, image_a, image_b, words, np.zeros((16, 8)), "f32")[1].ok


WGMMA = """
    mul.wide.u32 %rd10, %r0, 32; add.s64 %rd10, %rd1, %rd10;
    ld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [%rd10]; ld.global.v4.b32 {{%r5, %r6, %r7, %r8}}, [%rd10+16];
    mov.u32 %r9, tile; shl.b32 %r10, %r0, 5; add.u32 %r10, %r9, %r10;
    st.shared.v4.b32 [%r10], {{%r1, %r2, %r3, %r4}}; st.shared.v4.b32 [%r10+16], {{%r5, %r6, %r7, %r8}};
    mul.wide.u32 %rd10, %r0, 4; add.s64 %rd10, %rd2, %rd10; ld.global.b32 %r30, [%rd10];
    {load_a}
    fence.proxy.async.shared::cta; bar.sync 0;
    shr.u32 %r9, %r9, 4; cvt.u64.u32 %rd5, %r9; or.b64 %rd5, %rd5, 0x1000080000;
    add.s64 %rd6, %rd5, {b}; setp.ne.u32 %p1, 0, 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sp.sync.aligned.m64n8k{depth}.{types} {{{d}}}, {a}, %rd6, %r30, {selector}, %p1{rest};
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    mul.wide.u32 %rd10, %r0, 16; add.s64 %rd10, %rd0, %rd10; st.global.v4.b32 [%rd10], {{{d}}};
"""


def wgmma_sp(type, depth, selector, in_registers, rest, selected=None, swizzle=0):
    """(dense A, B, D (64, 8), report). A and B are K-major and not swizzled: chunks of 16 bytes along K are 128 bytes apart."""
    result = "s32" if type == "s8" else "f32"
    dense, stored, nibbles = sparse(64, depth, type == "tf32")
    b = RNG.integers(-3, 4, (8, depth))
    codes_a, codes_b = codes(type, stored), codes(type, b)
    image = np.zeros((256, 16), np.uint8)  # A, then B at 2048
    image[:128] = codes_a.view(np.uint8).reshape(8, 8, 2, 16).transpose(0, 2, 1, 3).reshape(128, 16)
    image[128:160] = codes_b.view(np.uint8).reshape(8, 4, 16).transpose(1, 0, 2).reshape(32, 16)
    words = np.concatenate([metadata(nibbles[16 * warp : 16 * warp + 16], BITS[type], selector) for warp in range(4)])
    count = 32 // BITS[type]
    place = lambda lane, i: (lane // 4 + 8 * (i % 2), count * (lane % 4 + 4 * (i // 2)))  # noqa: E731
    fragments = np.stack([fragment(codes_a[16 * warp : 16 * warp + 16], BITS[type], 4, place) for warp in range(4)]).transpose(0, 2, 1)
    d = "%r40, %r41, %r42, %r43" if result == "s32" else "%f0, %f1, %f2, %f3"
    body = WGMMA.format(
        depth=depth, types=f"{result}.{type}.{type}", d=d, b=128 | swizzle << 62, selector=selector if selected is None else selected, rest=rest,
        a="{%r20, %r21, %r22, %r23}" if in_registers else "%rd5",
        load_a="mul.wide.u32 %rd10, %r0, 16; add.s64 %rd10, %rd3, %rd10; ld.global.v4.b32 {%r20, %r21, %r22, %r23}, [%rd10];" if in_registers else "",
    )  # fmt: skip
    gpu = emulator.Device("sm_90a", scheduling="last")
    y = gpu.alloc(64 * 8 * 4)
    text = kernel(body, parameters=4, shared=".shared .align 1024 .b8 tile[4096];")
    report = launch(text, device=gpu, block=128, params=[y, gpu.alloc(image), gpu.alloc(words), gpu.alloc(np.ascontiguousarray(fragments))])
    got = gpu.read(y, (4, 8, 4, 2, 2), "i4" if result == "s32" else "f4")  # warp, row, column / 2, row / 8, column % 2
    return dense, b, got.transpose(0, 3, 1, 2, 4).reshape(64, 8), report


@pytest.mark.parametrize(("type", "depth", "selector", "in_registers", "rest"), [
    ("f16", 32, 1, False, ", 1, 1, 0, 0"), ("bf16", 32, 0, True, ", 1, 1, 0"), ("tf32", 16, 1, True, ", 1, 1"), ("e5m2", 64, 0, False, ", 1, 1"),
    ("s8", 64, 0, False, ""),
])  # fmt: skip
def test_a_sparse_wgmma_is_the_dense_product(type, depth, selector, in_registers, rest):
    dense, b, d, report = wgmma_sp(type, depth, selector, in_registers, rest)
    assert report.ok, report
    np.testing.assert_array_equal(d, dense @ b.T)


def test_a_selector_of_lanes_that_hold_no_metadata_is_refused():
    with pytest.raises(UnsupportedInstruction, match="selector is an immediate below 1"):
        wgmma_sp("s8", 64, 0, False, "", selected=1)


def test_a_swizzle_that_the_manual_leaves_open_is_refused():
    with pytest.raises(emulator.EmulatorError, match="64 bytes along K"):
        wgmma_sp("s8", 64, 0, False, "", swizzle=3)


@pytest.mark.parametrize(("change", "why"), [
    (dict(selector=2), "selector is an immediate below 2"), (dict(depth=64), "shape m16n8k64"), (dict(b="bf16"), r"\.f16 does not go with \.bf16"),
    (dict(kind=".kind::f8f6f4", depth=64, a="e4m3", b="e4m3"), "needs .sp::ordered_metadata"),
    (dict(variant="sp::ordered_metadata", kind=".kind::mxf4", depth=128, a="e2m1", b="e2m1"), "without .block_scale"),
    (dict(result="s32"), r"\.f16 does not go with \.f16 and \.s32"),
])  # fmt: skip
def test_a_sparse_form_that_does_not_exist_is_refused(change, why):
    form = dict(variant="sp", depth=32, kind="", result="f32", a="f16", b="f16", selector=0) | change
    registers = dict.fromkeys("abc", "{%r1, %r2, %r3, %r4}")
    with pytest.raises(UnsupportedInstruction, match=why):
        launch(kernel(MMA.format(**form).format(e="%r5", **registers), parameters=0))
