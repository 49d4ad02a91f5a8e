"""Products of mma.sync that are computed together give the bits that each alone gives."""

import numpy as np
import pytest
from core_support import kernel, launch

from zoo import emulator
from zoo.emulator import products

# Registers: A %r1 to %r4, B %r5 and %r6; sums of product i begin at %r(10 + 4 i).
LOADS = "\n".join(f"ld.global.u32 %r{n}, [%rd3+{128 * n}];" for n in range(1, 42))
STORES = "\n".join(f"st.global.u32 [%rd4+{128 * n}], %r{n};" for n in range(1, 42))
PLACES = "mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd0, %rd2; add.s64 %rd4, %rd1, %rd2;"


def product(sums, a=(1, 2, 3, 4), b=(5, 6), c=None):
    names = (", ".join(f"%r{n}" for n in part) for part in (range(sums, sums + 4), a, b, range(c or sums, (c or sums) + 4)))
    return "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{}}}, {{{}}}, {{{}}}, {{{}}};".format(*names)


BODIES = {
    "no more than eight in a row": "\n".join(product(10 + 4 * n, b=(5 + n % 2, 6)) for n in range(8)),
    "a chain of sums": "\n".join([product(10), product(14), product(10), product(18, c=14), product(10, c=18)]),
    "operands change in between": "\n".join([product(10), "mov.b32 %r5, %r7;", "xor.b32 %r1, %r1, 1;", product(14), product(18)]),
    "a sum is read in between": "\n".join([product(10), product(14), "add.u32 %r40, %r10, %r15;", product(18)]),
    "a sum is written in between": "\n".join([product(10), product(14), "mov.b32 %r11, 7;", product(18)]),
    "a sum is another's operand": "\n".join([product(10), product(14), product(18, a=(10, 11, 14, 15))]),
    "a guard": "\n".join([product(10), "setp.lt.u32 %p1, %r0, 40;", "@%p1 " + product(14), product(18)]),
    "a loop": "\n".join(["mov.u32 %r41, 0;", "LOOP:", product(10), product(14), "add.u32 %r41, %r41, 1;", "setp.lt.u32 %p1, %r41, 3;",
                         "@%p1 bra LOOP;", product(18)]),
    "a call": "\n".join([product(10), product(14), "call other;", product(18), product(22)]),
    "barriers and memory": "\n".join([product(10), "bar.sync 0;", "st.global.u32 [%rd4], %r0;", product(14), "bar.warp.sync -1;", product(18)]),
}  # fmt: skip


# Products of another kind, in a function.
CALLED = """
.func other()
{
    .reg .b32 %q<5>;
    mov.b32 %q0, 0; mov.b32 %q1, 0; mov.b32 %q2, 0;
    mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%q1, %q2}, {%q0, %q0}, {%q0}, {%q1, %q2};
    mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%q3, %q4}, {%q0, %q0}, {%q0}, {%q0, %q0};
    ret;
}
.visible .entry"""


def run(body, arithmetic, scheduling):
    halves = np.random.default_rng(5).standard_normal((42, 64)).astype(np.float16)
    halves[6, 3] = np.inf
    gpu = emulator.Device(scheduling=scheduling, arithmetic=arithmetic, seed=3)
    source, found = gpu.alloc(halves.view(np.uint32)), gpu.alloc(np.zeros((42, 32), np.uint32))
    report = launch(kernel("\n".join([PLACES, LOADS, body, STORES])).replace(".visible .entry", CALLED), device=gpu, params=[source, found])
    assert report.ok, report
    return gpu.read(found, (42, 32), np.uint32)


@pytest.mark.parametrize("name", BODIES)
def test_they_give_the_bits_of_each_alone(name, monkeypatch):
    together = [run(BODIES[name], "hw", scheduling) for scheduling in ("last", "random")]
    monkeypatch.setattr(products, "grouped", lambda program, code: code)
    alone = run(BODIES[name], "hw", "last")
    assert all((one == alone).all() for one in together)


def test_a_group_computes_once(monkeypatch):
    """Otherwise nothing above is together."""
    sizes = []
    stack = np.stack
    monkeypatch.setattr(products.np, "stack", lambda arrays: (sizes.append(len(arrays)), stack(arrays))[1])
    run(BODIES["no more than eight in a row"], "hw", "last")
    assert set(sizes) == {8}


def test_lanes_that_do_not_take_part_are_found_in_a_group():
    body = "setp.lt.u32 %p1, %r0, 16;\n@%p1 bra HALF;\nret;\nHALF:\n" + product(10) + "\n" + product(14)
    gpu = emulator.Device(scheduling="last")
    source = gpu.alloc(np.zeros((42, 32), np.uint32))
    report = launch(kernel("\n".join([PLACES, LOADS, body])), device=gpu, params=[source, source])
    assert [finding.kind for finding in report.findings] == ["divergent-aligned"] * 2
