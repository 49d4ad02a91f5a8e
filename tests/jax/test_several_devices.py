"""Programs over several devices: two of the host's, which a process has if it asks for them before it starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.recorder import ROOT

pytest.importorskip("jax", reason="JAX is not installed: pip install jax")

_BEGINNING = """
import jax, jax.numpy as jnp, numpy as np, zoo, zoo.jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = jax.devices("cpu")
assert len(devices) == 2
mesh = Mesh(np.array(devices), ("i",))
x = jnp.asarray(np.random.default_rng(0).standard_normal((64, 256)), jnp.bfloat16)
quantise = lambda x: zoo.jax.call("quantize.fp8b128.rows", x=x)
alone = quantise(x)
same = lambda a, b: bool((np.asarray(a).view(np.uint8) == np.asarray(b).view(np.uint8)).all())
"""


def printed(program: str) -> list[str]:
    settings = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", _BEGINNING + program], env=settings, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_each_device_starts_the_kernel_on_its_part_and_a_sharded_call_is_gathered():
    program = """
there = jax.device_put(x, NamedSharding(mesh, P("i")))
parts = jax.jit(jax.shard_map(quantise, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(there)
print(same(parts.q, alone.q), same(parts.scales, alone.scales), len(parts.q.sharding.device_set))
print("all-gather" in jax.jit(lambda x: quantise(x).q).lower(there).compile().as_text())
whole = jax.jit(quantise)(there)
print(same(whole.q, alone.q), same(whole.scales, alone.scales))
"""
    assert printed(program) == ["True True 2", "True", "True True"]


def test_arrays_on_two_devices_are_refused_with_their_names():
    program = """
first, second = (jax.device_put(alone.q, device) for device in devices)
scales = jax.device_put(alone.scales, devices[0])
try:
    zoo.jax.call("dequantize.fp8b128.rows", q=second, scales=scales)
except zoo.ArgumentError as error:
    print(error)
print(zoo.jax.call("dequantize.fp8b128.rows", q=second, scales=jax.device_put(scales, devices[1])).out.devices() == {devices[1]})
"""
    refusal, there = printed(program)
    assert refusal.startswith("dequantize.fp8b128.rows: scales: lies on cpu:0, q on cpu:1; jax.device_put moves")
    assert there == "True"


@pytest.mark.parametrize("last", ["left = start()", "start()"])  # a result that is there when Python ends, or nothing to wait for
@pytest.mark.parametrize("places", ["devices[:1]", "devices"])
def test_a_program_ends_that_waits_for_none_of_its_kernels(places, last):
    """Python shuts down while XLA computes what a kernel reads: the kernel's handler then asks for an interpreter that is gone."""
    program = f"""
@jax.jit
def slow(x):
    return quantise(jax.lax.fori_loop(0, 3000, lambda i, x: jnp.tanh(x @ x), x).astype(jnp.bfloat16))
square = jax.device_put(jnp.ones((256, 256)), NamedSharding(Mesh(np.array({places}), ("i",)), P()))
compiled = slow.lower(square).compile()
def start():
    found = compiled(square)
    print(found.q.is_ready())
    return found
{last}
"""
    assert printed(program) == ["False"]
