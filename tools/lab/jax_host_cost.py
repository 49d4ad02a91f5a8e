"""What a kernel costs a JAX program on the host, on a machine with a GPU: python tools/lab/jax_host_cost.py

A program of many small kernels is as slow as its host is. It is timed as XLA runs it by default, and with XLA's graphs switched off;
beside it a program that does the same work by XLA's own operations, and the same kernels started by `zoo.launch` on DLPack views.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
KERNELS, TURNS = 100, 30


def measure() -> None:
    import jax
    import jax.numpy as jnp
    import numpy

    import zoo
    import zoo.jax
    from zoo.jax import call_frame
    from zoo.runtime.plan import Plan

    began: list[float] = []
    taken: list[float] = []
    first, last = call_frame.answer_metadata, Plan.run

    def entered(*arguments: int) -> bool:
        began.append(time.perf_counter())
        return first(*arguments)

    def left(plan: Plan, stream: object = None) -> None:
        last(plan, stream)
        taken.append(time.perf_counter() - began[-1])

    call_frame.answer_metadata, Plan.run = entered, left
    x = jnp.asarray(numpy.random.default_rng(0).standard_normal((16, 128)), jnp.float32)

    @jax.jit
    def kernels(x: jax.Array) -> jax.Array:
        for _ in range(KERNELS):
            q, scales = zoo.jax.call("quantize.fp8b128.rows", x=x)
            x = zoo.jax.call("dequantize.fp8b128.rows", q=q, scales=scales, out="f32").out
        return x

    @jax.jit
    def operations(x: jax.Array) -> jax.Array:
        for _ in range(2 * KERNELS):
            x = jax.lax.optimization_barrier(jnp.sin(x))
        return x

    def seconds(program: object, *arguments: object) -> float:
        for _ in range(5):
            jax.block_until_ready(program(*arguments))  # type: ignore[operator]
        found = []
        for _ in range(TURNS):
            start = time.perf_counter()
            jax.block_until_ready(program(*arguments))  # type: ignore[operator]
            found.append(time.perf_counter() - start)
        return sorted(found)[TURNS // 2]

    flags = os.environ.get("XLA_FLAGS", "")
    of_kernels = seconds(kernels, x) / (2 * KERNELS)
    during = len(taken)
    for _ in range(10):
        jax.block_until_ready(kernels(x))
    of_operations = seconds(operations, x) / (2 * KERNELS)
    middle = sorted(taken)[len(taken) // 2] * 1e6 if taken else float("nan")
    print(f"{flags or 'default flags'}: {of_kernels * 1e6:.2f} us a zoo kernel, {of_operations * 1e6:.2f} us an XLA operation")
    print(f"  handler: {(len(taken) - during) / 10:.0f} calls a run of {2 * KERNELS} kernels, {middle:.2f} us each in Python (median)")

    handle = zoo.empty((16, 128), "f32"), zoo.empty((16, 128), "e4m3"), zoo.empty((16, 1), "f32")
    own = zoo.stream()
    for turns in (100, 2000):
        start = time.perf_counter()
        for _ in range(turns):
            zoo.launch("quantize.fp8b128.rows", x=handle[0], q=handle[1], scales=handle[2], stream=own)
        launched = (time.perf_counter() - start) / turns
        own.synchronize()
    print(f"  zoo.launch on DeviceArrays: {launched * 1e6:.2f} us a kernel")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure()
    else:
        for flags in ("", "--xla_gpu_enable_command_buffer="):
            subprocess.run([sys.executable, __file__, "measure"], env={**os.environ, "XLA_FLAGS": flags}, check=False)
