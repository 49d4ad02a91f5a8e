"""An emulated device frees what is dropped: loops of any length run in the memory of one pass."""

import gc
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from core_support import kernel, kinds, launch

import zoo
from zoo import emulator
from zoo.emulator.memory import GLOBAL_BASE, GUARD, GlobalMemory

MOST_BYTES = 200_000_000


def arena_bytes(memory):
    return memory.data.nbytes + memory.state.nbytes


def test_a_hundred_thousand_dropped_arrays_take_the_memory_of_a_few():
    gpu = emulator.Device()
    kept = gpu.empty((16,), "f32")
    for number in range(100_000):
        gpu.empty((number % 5000,), "f32")
    assert arena_bytes(gpu.memory) < MOST_BYTES and len(gpu.memory.sizes) <= 2 and kept.nbytes == 64


def test_calls_whose_results_are_dropped_hold_no_memory():
    gpu = emulator.Device("b200", scheduling="issue")
    x = gpu.array(np.ones((1, 64), ml_dtypes.bfloat16))
    zoo.call("quantize.mxfp8.rows", x=x)
    gc.collect()
    tracemalloc.start()
    for _ in range(200):
        zoo.call("quantize.mxfp8.rows", x=x)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2_000_000 and arena_bytes(gpu.memory) < MOST_BYTES


def test_a_view_keeps_the_memory_of_its_array():
    gpu = emulator.Device()
    view = gpu.array(np.arange(64, dtype=np.float32))[32:]
    others = [gpu.array(np.zeros(64, np.float32)) for _ in range(4)]
    assert view.numpy().tolist() == list(range(32, 64)) and len({other.address for other in others}) == 4
    del view
    gpu.alloc(4)
    assert len(gpu.memory.sizes) == 5


def test_memory_is_unwritten_when_it_is_used_again():
    gpu = emulator.Device()
    first = gpu.alloc(np.ones(8, np.uint32))
    gpu.free(first)
    assert gpu.alloc(32) == first and not gpu.written(first, 32).any()
    report = launch(kernel("ld.global.u32 %r1, [%rd0]; st.global.u32 [%rd0], %r1;", parameters=1), device=gpu, params=[first])
    assert "uninitialised-global" in kinds(report)


def test_a_kernel_that_uses_freed_memory_is_reported():
    gpu = emulator.Device()
    place = gpu.alloc(np.ones(8, np.uint32))
    gpu.free(place)
    report = launch(kernel("ld.global.u32 %r1, [%rd0];", parameters=1), device=gpu, params=[place])
    assert kinds(report) == {"out-of-bounds"}


def test_the_memory_of_an_array_is_not_freed_twice():
    gpu = emulator.Device()
    x = gpu.array(np.ones(8, np.float32))
    with pytest.raises(emulator.EmulatorError, match="is the memory of an array"):
        gpu.free(x.address)
    place = gpu.alloc(4)
    gpu.free(place)
    with pytest.raises(emulator.EmulatorError, match="is not an allocation"):
        gpu.free(place)


def test_random_allocations_never_touch_each_other_and_leave_one_hole():
    rng = np.random.default_rng(5)
    memory, live = GlobalMemory(), {}
    for step in range(3000):
        if live and rng.random() < 0.5:
            address = list(live)[int(rng.integers(len(live)))]
            assert (memory.data[address - GLOBAL_BASE :][: live[address][0]] == live[address][1]).all()
            del live[address]
            memory.free(address)
        else:
            size, align = int(rng.choice([0, 1, 100, 5000, 3 << 20])), int(rng.choice([16, 512, 4096]))
            address = memory.allocate(size, align)
            assert address % align == 0
            for other, (length, _) in live.items():
                assert address + size + GUARD <= other or other + length + GUARD <= address
            live[address] = size, step & 255
            memory.write(address, bytes([step & 255]) * size)
    for address in live:
        memory.free(address)
    assert memory.holes == [(0, memory.size)] and not memory.state.any()


WAIT_FOR_ALL = """
    mov.u32 %r1, %nctaid.x;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 atom.global.add.u32 %r2, [%rd0], 1;
L:  ld.relaxed.gpu.global.u32 %r3, [%rd0];
    setp.lt.u32 %p2, %r3, %r1;
    @%p2 bra L;
"""


@pytest.mark.parametrize(("threads", "shared"), [(128, 200_000), (384, 0)])
def test_a_resident_cta_takes_four_megabytes_at_most(threads, shared):
    module, peaks = emulator.Module(kernel(WAIT_FOR_ALL, parameters=1)), []
    for grid in (2, 18):
        gpu = emulator.Device(scheduling="last")
        counter = gpu.alloc(np.zeros(1, np.uint32))
        tracemalloc.start()
        report = gpu.launch(module, "k", grid, threads, shared_bytes=shared, params=[counter], cooperative=True)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert report.ok, report
        peaks.append(peak)
    assert (peaks[1] - peaks[0]) / 16 < 4_000_000


def test_of_a_file_of_22_megabytes_only_the_launched_entry_is_parsed():
    body = "add.u32 %a1, %a2, 3;\n" * 2500
    others = "".join(f".visible .entry other{i}()\n{{\n.reg .b32 %a<9>;\n{body}ret;\n}}\n" for i in range(420))
    text = kernel("st.global.u32 [%rd0], %r0;", parameters=1) + others
    assert len(text) > 22_000_000
    gpu, module = emulator.Device(), emulator.Module(text, whole=False)
    report = gpu.launch(module, "k", 1, 1, params=[gpu.alloc(4)])
    assert report.ok and len(module.entries) == 421 and module.functions["other7"].statements is None
