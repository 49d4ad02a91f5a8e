"""Small PTX kernels written in the tests: a body in a kernel's frame, run on the emulator."""

import textwrap

import numpy as np

from zoo import emulator

REGISTERS = """
    .reg .pred %p<16>;
    .reg .b16 %h<16>;
    .reg .b32 %r<64>;
    .reg .f32 %f<32>;
    .reg .b64 %rd<32>;
    .reg .f64 %fd<16>;
"""


def kernel(body, parameters=2, shared="", target="sm_90a", directives=""):
    """A module with the entry `k`, whose u64 parameters are in %rd0, %rd1, ... and whose thread number is %r0."""
    declared = ",\n".join(f"    .param .u64 k_{i}" for i in range(parameters))
    loads = "\n".join(f"    ld.param.u64 %rd{i}, [k_{i}];" for i in range(parameters))
    return f"""
.version 9.0
.target {target}
.address_size 64
.visible .entry k(
{declared}
)
{directives}
{{
{REGISTERS}
{textwrap.indent(shared, "    ")}
{loads}
    mov.u32 %r0, %tid.x;
{textwrap.dedent(body)}
    ret;
}}
"""


def launch(text, *, grid=1, block=32, cluster=None, shared_bytes=0, params=(), scheduling="issue", seed=0, device=None, **options):
    gpu = device or emulator.Device(arch=options.pop("arch", "sm_90a"), scheduling=scheduling, seed=seed, **options)
    return gpu.launch(emulator.Module(text), "k", grid, block, cluster=cluster, shared_bytes=shared_bytes, params=list(params))


def lanes(body, *inputs, output=np.uint32, **options):
    """Runs `body` in one warp: input i of lane l is in %r1+i, %f1+i or %rd8+i (by its type); the result is what the body leaves in
    %r40 (4 bytes) or %rd20 (8 bytes). Returns (values of 32 lanes, report)."""
    gpu = emulator.Device(scheduling="issue")
    loads, pointers = [], []
    for number, values in enumerate(inputs):
        values = np.ascontiguousarray(values)
        assert values.shape == (32,)
        size = values.itemsize
        register = {np.dtype(np.float32): f"%f{number + 1}"}.get(values.dtype, f"%r{number + 1}" if size == 4 else f"%rd{number + 8}")
        kind = {np.dtype(np.float32): "f32"}.get(values.dtype, f"b{size * 8}")
        loads.append(f"mul.wide.u32 %rd30, %r0, {size}; add.s64 %rd30, %rd30, %rd{number + 1}; ld.global.{kind} {register}, [%rd30];")
        pointers.append(gpu.alloc(values))
    size = np.dtype(output).itemsize
    store = (
        f"mul.wide.u32 %rd30, %r0, {size}; add.s64 %rd30, %rd30, %rd0; st.global.b{size * 8} [%rd30], {'%r40' if size == 4 else '%rd20'};"
    )
    result = gpu.alloc(32 * size)
    text = kernel("\n".join(loads) + "\n" + textwrap.dedent(body) + "\n" + store, parameters=1 + len(inputs))
    report = launch(text, device=gpu, params=[result, *pointers], **options)
    return gpu.read(result, 32, output), report


def kinds(report):
    """The kinds of a report's findings."""
    return {finding.kind for finding in report.findings}


def only(report, kind):
    """The single finding, which must be of this kind."""
    found = list(report.findings)
    assert [finding.kind for finding in found] == [kind], "\n".join(map(str, found)) or "no finding"
    return found[0]
