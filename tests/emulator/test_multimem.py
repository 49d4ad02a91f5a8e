"""multimem instructions on one emulated device: values, order, and addresses that are no multicast addresses."""

import numpy as np
import pytest
from core_support import kernel, kinds, launch, only

from zoo import emulator

LOADS = {
    "ld_reduce.weak.global.add.f32": ("f32", "%f1", 4), "ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2": ("v4.b32", "{%r1, %r2, %r3, %r4}", 16),
    "ld_reduce.acquire.gpu.global.min.u32": ("u32", "%r1", 4), "ld_reduce.weak.add.v4.f32": ("v4.f32", "{%f1, %f2, %f3, %f4}", 16),
    "ld_reduce.relaxed.cta.and.b64": ("b64", "%rd5", 8), "ld_reduce.weak.max.v2.e4m3x4": ("v2.b32", "{%r1, %r2}", 8),
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("name", LOADS)
def test_a_reduction_over_one_device_returns_its_value(name):
    stored, registers, size = LOADS[name]
    gpu = emulator.Device()
    data = np.random.default_rng(1).integers(0, 255, 32 * size, dtype=np.uint8)
    source, result = gpu.alloc(data), gpu.alloc(data.size)
    text = kernel(
        f"""mul.wide.u32 %rd3, %r0, {size}; add.s64 %rd4, %rd1, %rd3; add.s64 %rd3, %rd0, %rd3;
        multimem.{name} {registers}, [%rd4];
        st.global.{stored} [%rd3], {registers};"""
    )
    report = launch(text, device=gpu, params=[result, gpu.multicast(source)])
    assert report.ok, report
    assert (gpu.read(result, data.size, np.uint8) == data).all()


def test_a_store_reaches_the_memory_and_a_reduction_counts_every_lane():
    gpu = emulator.Device()
    memory = gpu.alloc(np.zeros(33, np.uint32))
    text = kernel(
        """mul.wide.u32 %rd3, %r0, 4; add.s64 %rd3, %rd0, %rd3; multimem.st.weak.global.u32 [%rd3+4], %r0;
        multimem.red.relaxed.sys.global.add.u32 [%rd0], %r0;""",
        parameters=1,
    )
    report = launch(text, device=gpu, params=[gpu.multicast(memory)])
    assert report.ok, report
    assert gpu.read(memory, 33, np.uint32).tolist() == [sum(range(32)), *range(32)]


def test_a_vector_reduction_adds_each_number():
    gpu = emulator.Device()
    memory = gpu.alloc(np.arange(4, dtype=np.float32))
    body = "cvt.rn.f32.u32 %f1, %r0; multimem.red.release.gpu.global.add.v4.f32 [%rd0], {%f1, %f1, 0f3F800000, 0f00000000};"
    report = launch(kernel(body, parameters=1), device=gpu, params=[gpu.multicast(memory)])
    assert report.ok, report
    assert gpu.read(memory, 4, np.float32).tolist() == [496, 497, 34, 3]


@pytest.mark.quick
@pytest.mark.parametrize(
    "instruction", ["multimem.ld_reduce.weak.add.u32 %r1, [%rd0];", "multimem.st.relaxed.gpu.u32 [%rd0], %r0;", "multimem.red.add.u32 [%rd0], %r0;"]
)  # fmt: skip
def test_an_ordinary_address_is_no_multicast_address(instruction):
    gpu = emulator.Device()
    memory = gpu.alloc(np.zeros(1, np.uint32))
    report = launch(kernel(instruction, parameters=1), device=gpu, block=1, params=[memory])
    assert "is no multicast address" in only(report, "out-of-bounds").message
    assert gpu.read(memory, 1, np.uint32)[0] == 0
    report = launch(kernel(instruction, parameters=1), device=gpu, block=1, params=[0x100])
    assert "is no multicast address" in only(report, "out-of-bounds").message
    assert launch(kernel(instruction, parameters=1), device=gpu, block=1, params=[gpu.multicast(memory)]).ok


def test_an_ordinary_access_to_a_multicast_address_is_reported():
    gpu = emulator.Device()
    address = gpu.multicast(gpu.alloc(np.zeros(1, np.uint32)))
    assert kinds(launch(kernel("ld.global.u32 %r1, [%rd0];", parameters=1), device=gpu, block=1, params=[address])) == {"out-of-bounds"}
    assert kinds(launch(kernel("ld.u32 %r1, [%rd0];", parameters=1), device=gpu, block=1, params=[address])) == {"out-of-bounds"}


def test_a_multicast_access_past_the_end_is_reported():
    gpu = emulator.Device()
    address = gpu.multicast(gpu.alloc(np.zeros(1, np.uint32)))
    text = kernel("multimem.ld_reduce.weak.add.u32 %r1, [%rd0+4];", parameters=1)
    assert "right past the end" in only(launch(text, device=gpu, block=1, params=[address]), "out-of-bounds").message


def test_a_release_to_all_devices_publishes_what_came_before():
    body = """setp.eq.u32 %p1, %r0, 0; mov.u32 %r2, row;
        @%p1 bra producer;
        setp.ne.u32 %p2, %r0, 32; @%p2 bra done;
        wait: multimem.ld_reduce.LOAD.add.u32 %r1, [%rd0];
        setp.eq.u32 %p3, %r1, 0; @%p3 bra wait;
        ld.shared.u32 %r3, [%r2]; st.global.u32 [%rd1], %r3; bra done;
        producer: st.shared.u32 [%r2], 7; multimem.st.STORE.u32 [%rd0], 1;
        done:"""

    def launched(load, store):
        gpu = emulator.Device()
        flag, result = gpu.alloc(np.zeros(1, np.uint32)), gpu.alloc(4)
        text = kernel(body.replace("LOAD", load).replace("STORE", store), shared=".shared .align 4 .b8 row[4];")
        return launch(text, device=gpu, block=64, params=[gpu.multicast(flag), result])

    assert launched("acquire.gpu", "release.gpu").ok
    assert kinds(launched("relaxed.gpu", "release.gpu")) == {"race"}
    assert kinds(launched("acquire.gpu", "relaxed.gpu")) == {"race"}
