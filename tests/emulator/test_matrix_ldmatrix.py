"""ldmatrix, stmatrix, movmatrix: element by element, with rows scattered over shared memory."""

import numpy
import pytest

from zoo.emulator import Device, Module

U32 = numpy.uint32

TEXT = """
.version 9.1
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 memory[];
.visible .entry kernel(.param .u64 image, .param .u64 addresses, .param .u64 words, .param .u64 out, .param .u64 image_out)
{{
    .reg .pred p;
    .reg .b32 %r<8>, base, tid, t, w, a;
    .reg .b64 g, s, o;
    mov.u32 tid, %tid.x;
    mov.b32 base, memory;
    ld.param.u64 g, [image];
    mov.u32 w, tid;
COPY:
    shl.b32 t, w, 2;
    cvt.u64.u32 s, t;
    add.u64 s, s, g;
    ld.global.u32 %r7, [s];
    add.u32 t, t, base;
    st.shared.u32 [t], %r7;
    add.u32 w, w, 32;
    setp.lt.u32 p, w, 512;
    @p bra COPY;
    bar.warp.sync 0xffffffff;
    ld.param.u64 g, [addresses];
    mul.wide.u32 s, tid, 4;
    add.u64 s, s, g;
    ld.global.u32 a, [s];
    add.u32 a, a, base;
    ld.param.u64 g, [words];
    mul.wide.u32 s, tid, 16;
    add.u64 g, g, s;
    ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [g];
    {body}
    ld.param.u64 o, [out];
    add.u64 o, o, s;
    st.global.v4.u32 [o], {{%r0, %r1, %r2, %r3}};
    bar.warp.sync 0xffffffff;
    ld.param.u64 g, [image_out];
    mov.u32 w, tid;
BACK:
    shl.b32 t, w, 2;
    cvt.u64.u32 s, t;
    add.u64 s, s, g;
    add.u32 t, t, base;
    ld.shared.u32 %r7, [t];
    st.global.u32 [s], %r7;
    add.u32 w, w, 32;
    setp.lt.u32 p, w, 512;
    @p bra BACK;
    ret;
}}
"""


def run(body, image, addresses, words=None, arch="sm_90a"):
    """(registers (32 lanes, 4), the 2048 bytes of shared memory afterwards)."""
    gpu = Device(arch=arch)
    words = numpy.zeros((32, 4), U32) if words is None else words
    out, image_out = gpu.alloc(512), gpu.alloc(2048)
    report = gpu.launch(
        Module(TEXT.format(target=arch, body=body)), "kernel", 1, 32, shared_bytes=2048,
        params=[gpu.alloc(image), gpu.alloc(addresses.astype(U32)), gpu.alloc(words), out, image_out],
    )  # fmt: skip
    assert report.ok, report
    return gpu.read(out, (32, 4), U32), gpu.read(image_out, 2048, numpy.uint8)


@pytest.fixture
def image():
    return numpy.random.default_rng(1).integers(0, 256, 2048).astype(numpy.uint8)


@pytest.fixture
def addresses():
    """32 different rows of 16 bytes in no order."""
    return numpy.random.default_rng(2).permutation(128)[:32] * 16


REGISTERS = {1: "{%r0}", 2: "{%r0, %r1}", 4: "{%r0, %r1, %r2, %r3}"}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("space", [".shared", ".shared::cta"])
def test_a_load_gives_lane_l_two_neighbours_of_row_l_over_4(image, addresses, count, transposed, space):
    trans = ".trans" if transposed else ""
    seen, _ = run(f"ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {REGISTERS[count]}, [a];", image, addresses)
    for k in range(count):
        matrix = numpy.stack([image[at : at + 16].view(numpy.uint16) for at in addresses[8 * k : 8 * k + 8]])
        if transposed:
            matrix = matrix.T
        for lane in range(32):
            row, column = lane // 4, 2 * (lane % 4)
            assert seen[lane, k] == int(matrix[row, column]) | int(matrix[row, column + 1]) << 16


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_store_writes_the_rows_it_is_given_and_nothing_else(image, addresses, count, transposed):
    words = numpy.random.default_rng(3).integers(0, 1 << 32, (32, 4), dtype=numpy.uint64).astype(U32)
    trans = ".trans" if transposed else ""
    _, after = run(f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [a], {REGISTERS[count]};", image, addresses, words)
    expected = image.copy()
    for k in range(count):
        matrix = numpy.zeros((8, 8), numpy.uint16)
        for lane in range(32):
            matrix[lane // 4, 2 * (lane % 4)] = words[lane, k] & 0xFFFF
            matrix[lane // 4, 2 * (lane % 4) + 1] = words[lane, k] >> 16
        if transposed:
            matrix = numpy.ascontiguousarray(matrix.T)
        for row in range(8):
            at = addresses[8 * k + row]
            expected[at : at + 16] = matrix[row].view(numpy.uint8)
    numpy.testing.assert_array_equal(after, expected)


@pytest.mark.parametrize("count", [1, 2])
def test_a_transposed_load_of_bytes_gives_four_of_a_column(image, addresses, count):
    registers = REGISTERS[2 * count]
    seen, _ = run(f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.b8 {registers}, [a];", image, addresses, arch="sm_100a")
    for k in range(count):
        matrix = numpy.stack([image[at : at + 16] for at in addresses[16 * k : 16 * k + 16]])
        for lane in range(32):
            for j in range(2):
                expected = numpy.ascontiguousarray(matrix[4 * (lane % 4) : 4 * (lane % 4) + 4, lane // 4 + 8 * j])
                assert seen[lane, 2 * k + j] == expected.view(U32)[0]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_transposed_store_of_bytes_pairs_neighbouring_rows(image, addresses, count):
    words = numpy.random.default_rng(3).integers(0, 1 << 32, (32, 4), dtype=numpy.uint64).astype(U32)
    _, after = run(
        f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [a], {REGISTERS[count]};", image, addresses, words, arch="sm_100a"
    )
    expected = image.copy()
    for k in range(count):
        for lane in range(32):
            row_pair, column = lane % 4, lane // 4
            for byte in range(4):
                # the nested layout ((4,8),(8,2,2)):((256,8),(1,128,64)) in bits: rows are 128 bits
                bit = row_pair * 256 + column * 8 + byte % 2 * 128 + byte // 2 * 64
                expected[addresses[8 * k + bit // 128] + bit % 128 // 8] = words[lane, k] >> 8 * byte & 0xFF
    numpy.testing.assert_array_equal(after, expected)


def test_a_load_of_packed_nibbles_puts_them_into_the_middle_of_bytes(image, addresses):
    seen, _ = run("ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64 {%r0}, [a];", image, addresses, arch="sm_100a")
    for lane in range(32):
        row = image[addresses[lane // 4] : addresses[lane // 4] + 8]
        codes = [(int(row[i // 2]) >> 4 * (i % 2)) & 15 for i in range(4 * (lane % 4), 4 * (lane % 4) + 4)]
        assert seen[lane, 0] == sum(code << 2 << 8 * i for i, code in enumerate(codes))


def test_movmatrix_transposes_between_lanes(image, addresses):
    words = numpy.random.default_rng(4).integers(0, 1 << 32, (32, 4), dtype=numpy.uint64).astype(U32)
    seen, _ = run("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;", image, addresses, words)
    before = numpy.ascontiguousarray(words[:, 0]).view(numpy.uint16).reshape(8, 8)
    after = numpy.ascontiguousarray(seen[:, 1]).view(numpy.uint16).reshape(8, 8)
    numpy.testing.assert_array_equal(after, before.T)


def findings(body, addresses):
    gpu = Device(arch="sm_90a")
    image = numpy.zeros(2048, numpy.uint8)
    report = gpu.launch(
        Module(TEXT.format(target="sm_90a", body=body)), "kernel", 1, 32, shared_bytes=2048,
        params=[gpu.alloc(image), gpu.alloc(addresses.astype(U32)), gpu.alloc(numpy.zeros((32, 4), U32)), gpu.alloc(512), gpu.alloc(2048)],
    )  # fmt: skip
    return {finding.kind for finding in report.findings}


def test_a_row_off_its_16_bytes_is_reported(addresses):
    addresses[3] += 8
    assert "misaligned" in findings("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [a];", addresses)


def test_only_the_lanes_that_give_rows_need_valid_addresses(addresses):
    addresses[8:] = 0x00FF_0008
    assert findings("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [a];", addresses) == set()
    assert findings("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [a];", addresses) & {"out-of-bounds", "misaligned"}
