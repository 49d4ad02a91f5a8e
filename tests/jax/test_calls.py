"""zoo.jax.call under JAX's transformations, and what it refuses. Each test runs on the host and, where there is one, on a GPU."""

from __future__ import annotations

import threading
from typing import Any

import numpy
import pytest

import zoo
from zoo.reference import block_format, dequantize, quantize_cols, quantize_rows

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
jnp = jax.numpy

import zoo.jax  # noqa: E402


def normal(*shape: int, dtype: Any = jnp.bfloat16, seed: int = 0) -> Any:
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), dtype)


def bits(array: Any) -> numpy.ndarray:
    array = numpy.asarray(array)
    return numpy.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def rows_of(x: Any) -> tuple[numpy.ndarray, numpy.ndarray]:
    result = quantize_rows(numpy.asarray(x), block_format("fp8b128"))
    return result.q, result.scales


def product(a: Any, b: Any, **more: Any) -> Any:
    """a (M, K) times b (N, K) transposed, through two quantisers and a GEMM."""
    qa, qb = zoo.jax.call("quantize.fp8b128.rows", x=a), zoo.jax.call("quantize.fp8b128.squares", x=b)
    return zoo.jax.call("gemm.fp8b128.dense", a=qa.q, a_scale=qa.scales, b=qb.q, b_scale=qb.scales, **more).d


def test_outputs_come_by_name_in_the_dtypes_that_were_asked_for(device: Any) -> None:
    x = normal(5, 256)
    found = zoo.jax.call("quantize.mxfp8.rows", x=x, q="e5m2", rounding="rceil")
    assert found._fields == ("q", "scales")
    assert found.q.dtype == jnp.float8_e5m2
    assert found.scales.dtype == jnp.float8_e8m0fnu
    assert product(x, x[:8].repeat(8, 0)[:16], d=jnp.float32).dtype == jnp.float32
    assert product(x, normal(16, 256)).dtype == jnp.bfloat16


def test_a_program_of_kernels_and_other_operations_sees_them_in_order(device: Any) -> None:
    """What XLA computes before and after must be done, or wait, when the kernel runs: a stream of its own would race."""

    @jax.jit
    def chain(x: Any, w: Any) -> Any:
        for _ in range(6):
            x = jnp.tanh(product(jnp.sin(x * 3) + x, w)) * 2
        return x

    size, times = (1024, 20) if device.platform == "gpu" else (128, 2)  # the rules of products are slow
    x, w = normal(size // 2, size), normal(size, size, seed=1)
    first = bits(chain(x, w))
    for _ in range(times):
        assert numpy.array_equal(bits(chain(x, w)), first)
    step = x
    for _ in range(6):  # the same, each operation awaited before the next
        before = jax.block_until_ready(jax.jit(lambda x: jnp.sin(x * 3) + x)(step))
        step = jax.block_until_ready(jax.jit(lambda y: jnp.tanh(y) * 2)(jax.block_until_ready(product(before, w))))
    assert numpy.array_equal(bits(step), first)


def test_one_program_runs_on_new_arrays_each_time(device: Any) -> None:
    quantise = jax.jit(lambda x: zoo.jax.call("quantize.fp8b128.rows", x=x))
    kept = [normal(33, 384, seed=seed) for seed in range(12)]
    found = [quantise(x) for x in kept]
    for x, result in zip(kept, found, strict=True):
        q, scales = rows_of(x)
        assert numpy.array_equal(bits(result.q), bits(q))
        assert numpy.array_equal(bits(result.scales), bits(scales))


def test_calls_from_several_threads_do_not_share_a_launch(device: Any) -> None:
    quantise = jax.jit(lambda x: zoo.jax.call("quantize.fp8b128.rows", x=x).q)
    wrong: list[int] = []

    def work(seed: int) -> None:
        with jax.default_device(device):
            for turn in range(10):
                x = normal(64, 256, seed=100 * seed + turn)
                if not numpy.array_equal(bits(quantise(x)), bits(rows_of(x)[0])):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_kernels_inside_loops_conditions_and_checkpoints(device: Any) -> None:
    w = normal(128, 128, seed=1)

    @jax.jit
    def looped(x: Any) -> Any:
        x, _ = jax.lax.scan(lambda x, _: (product(x, w), None), x, None, length=3)
        x = jax.lax.fori_loop(0, 2, lambda _, x: product(x, w), x)
        return jax.lax.cond(x[0, 0] > 0, lambda x: product(x, w), lambda x: product(-x, w), x)

    def plain(x: Any) -> Any:
        for _ in range(5):
            x = product(x, w)
        return product(x, w) if x[0, 0] > 0 else product(-x, w)

    x = normal(16, 128) / 16
    assert numpy.array_equal(bits(looped(x)), bits(plain(x)))


def test_lax_map_starts_the_kernel_for_each(device: Any) -> None:
    x = normal(3, 16, 256)
    found = jax.lax.map(lambda one: zoo.jax.call("quantize.fp8b128.rows", x=one).q, x)
    assert numpy.array_equal(bits(found), numpy.stack([bits(rows_of(one)[0]) for one in x]))


def test_shard_map_gives_each_device_its_own_call(device: Any) -> None:
    mesh = jax.sharding.Mesh(numpy.array([device]), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    sharded = jax.jit(jax.shard_map(lambda x: zoo.jax.call("quantize.fp8b128.rows", x=x).q, mesh=mesh, in_specs=spec, out_specs=spec))
    x = normal(16, 256)
    assert numpy.array_equal(bits(sharded(x)), bits(rows_of(x)[0]))


def test_gradients_are_added_to_an_array_that_stays_as_it_was(device: Any) -> None:
    """XLA gives the kernel a copy where the caller still has the array, and the array itself where it was donated."""
    x, y = normal(256, 16), normal(256, 24, seed=1)
    a, b = zoo.jax.call("quantize.fp8b128.cols", x=x), zoo.jax.call("quantize.fp8b128.cols", x=y)
    operands = {
        "a": a.q, "a_scale": jnp.pad(a.scales, ((0, 0), (0, 1))), "b": b.q, "b_scale": jnp.pad(b.scales, ((0, 0), (0, 1))),
        "offsets": jnp.array([256], jnp.int32),
    }  # fmt: skip
    once = zoo.jax.call("gemm.fp8b128.k_grouped", **operands, d="f32").d
    before = jnp.ones_like(once)
    add = jax.jit(lambda d: zoo.jax.call("gemm.fp8b128.k_grouped", **operands, d=d, accumulate="yes").d)
    found = add(before)
    assert numpy.array_equal(numpy.asarray(found), numpy.asarray(once) + 1)
    assert (numpy.asarray(before) == 1).all()
    assert numpy.array_equal(numpy.asarray(jax.jit(add, donate_argnums=0)(before)), numpy.asarray(once) + 1)


def test_rows_of_nobody_keep_what_an_output_that_is_given_holds(device: Any) -> None:
    x, given = normal(7, 128), jnp.full((7, 128), 3, jnp.float8_e4m3fn)
    name = "quantize.fp8b128.rows.m_grouped_contiguous"
    found = zoo.jax.call(name, x=x, offsets=jnp.array([2, 5], jnp.int32), q=given)
    assert (numpy.asarray(found.q[5:], numpy.float32) == 3).all()
    assert numpy.array_equal(bits(found.q[:5]), bits(rows_of(x)[0][:5]))


def test_rows_that_start_at_odd_places_are_moved_apart(device: Any) -> None:
    """37 rows of x make rows of 37 bytes, where the kernels that write and read them want multiples of 16."""
    x = normal(37, 40)
    expected = quantize_cols(numpy.asarray(x), block_format("fp8b128"))
    found = zoo.jax.call("quantize.fp8b128.cols", x=x)
    assert numpy.array_equal(bits(found.q), bits(expected.q))
    scales = jnp.pad(found.scales, ((0, 0), (0, 1)))
    operands = {"a": found.q, "a_scale": scales, "b": found.q, "b_scale": scales, "offsets": jnp.array([37], jnp.int32)}
    d = zoo.jax.call("gemm.fp8b128.k_grouped", **operands, d="f32").d[0]
    values = dequantize(expected.q, expected.scales, block_format("fp8b128"), 37)
    assert numpy.allclose(d, values @ values.T, atol=2e-2)


def test_mn_major_scales_have_rows_first_wherever_they_are_passed(device: Any) -> None:
    x = normal(128, 128 * 128)  # as many rows as blocks: nothing but the convention says which is which
    plain, turned = (zoo.jax.call("quantize.fp8b128.rows", x=x, layout=layout) for layout in ("plain", "mn_major"))
    assert numpy.array_equal(bits(plain.scales), bits(turned.scales))
    out = zoo.jax.call("dequantize.fp8b128.rows", q=turned.q, scales=turned.scales, layout="mn_major").out
    assert numpy.array_equal(bits(out), bits(zoo.jax.call("dequantize.fp8b128.rows", q=plain.q, scales=plain.scales).out))


def test_a_size_that_no_input_tells_is_given_by_its_symbol(device: Any) -> None:
    scales = jnp.arange(300, dtype=jnp.uint8).reshape(60, 5)
    blocked = zoo.jax.call("scales.blocked", scales=scales).blocked
    assert numpy.array_equal(zoo.jax.call("scales.unblocked", blocked=blocked, M=60, C=5).scales, scales)
    with pytest.raises(zoo.ArgumentError, match="no input tells M"):
        zoo.jax.call("scales.unblocked", blocked=blocked)


def test_arrays_without_elements_start_nothing(device: Any) -> None:
    found = jax.jit(lambda x: zoo.jax.call("quantize.fp8b128.rows", x=x))(jnp.zeros((0, 256), jnp.bfloat16))
    assert found.q.shape == (0, 256)
    assert found.scales.shape == (0, 2)


def test_a_call_on_numpy_arrays_gives_jax_arrays(device: Any) -> None:
    x = numpy.asarray(normal(4, 128))
    found = zoo.jax.call("quantize.fp8b128.rows", x=x)
    assert isinstance(found.q, jax.Array)
    assert numpy.array_equal(bits(found.q), bits(rows_of(x)[0]))


def _traced(block: int) -> Any:
    scales, offsets = jnp.zeros((2, 2), jnp.uint8), jnp.array([3], jnp.int32)
    return jax.jit(lambda block: zoo.jax.call("scales.blocked.k_grouped", scales=scales, offsets=offsets, block=block))(block)


REFUSED = {
    "a shape that the kernel has not": (lambda: zoo.jax.call("quantize.mxfp8.rows", x=normal(4, 100)), "K must be a multiple of 32"),
    "two shapes that do not fit": (
        lambda: zoo.jax.call(
            "gemm.fp8b128.dense", a=normal(4, 128, dtype=jnp.float8_e4m3fn), a_scale=jnp.ones((4, 1)),
            b=normal(8, 256, dtype=jnp.float8_e4m3fn), b_scale=jnp.ones((1, 1)),
        ),
        r"b: expected \(8, 128\) = \(N, K\), got \(8, 256\)",
    ),
    "a dtype": (lambda: zoo.jax.call("quantize.mxfp8.rows", x=jnp.ones((4, 32), jnp.int32)), "x: expected bf16, f16 or f32, got i32"),
    "numpy's float64": (lambda: zoo.jax.call("quantize.mxfp8.rows", x=numpy.ones((4, 32))), "x: expected bf16 or f16 or f32, got float64"),
    "four bits a dtype of their own": (
        lambda: zoo.jax.call("dequantize.mxfp4.rows", q=jnp.zeros((1, 16), jnp.float4_e2m1fn), scales=jnp.zeros((1, 1), jnp.uint8)),
        "q: expected e2m1x2, got float4_e2m1fn",
    ),
    "an unknown kernel": (lambda: zoo.jax.call("quantise.mxfp8.rows", x=normal(4, 32)), "no kernel is named .* did you mean"),
    "an unknown argument": (lambda: zoo.jax.call("quantize.mxfp8.rows", y=normal(4, 32)), "no argument is named 'y'"),
    "an argument that is missing": (lambda: zoo.jax.call("quantize.mxfp8.rows"), "x: missing"),
    "an unknown option": (lambda: zoo.jax.call("quantize.mxfp8.rows", x=normal(4, 32), rounding="up"), "rounding: expected floor, rceil, even or ceil"),
    "a number for an array": (lambda: zoo.jax.call("quantize.mxfp8.rows", x=3.0), "x: expected an array, got 3.0"),
    "another library's array": (lambda: zoo.jax.call("quantize.mxfp8.rows", x=memory_of_torch()), "expected a JAX array, got a Tensor of torch"),
    "a tracer for a number": (lambda: _traced(32), "block: expected a value that is known while JAX traces"),
    "a derivative": (
        lambda: jax.grad(lambda x: zoo.jax.call("quantize.fp8b128.rows", x=x).scales.sum())(normal(4, 128, dtype=jnp.float32)),
        "has no derivative",
    ),
    "vmap": (lambda: jax.vmap(lambda x: zoo.jax.call("quantize.fp8b128.rows", x=x).q)(normal(2, 4, 128)), "vmap over a kernel is not defined"),
    "a shape that is a symbol": (
        lambda: jax.export.export(jax.jit(lambda x: zoo.jax.call("quantize.fp8b128.rows", x=x)))(
            jax.ShapeDtypeStruct(jax.export.symbolic_shape("M, 128"), jnp.bfloat16)
        ),
        "is not known while JAX traces",
    ),
    "a variant that is none": (lambda: zoo.jax.call("quantize.fp8b128.rows", x=normal(4, 128), variant="fastest"), "variant 'fastest'"),
}  # fmt: skip


def memory_of_torch() -> Any:
    """What looks as a tensor of torch does, where torch may be missing."""

    class Tensor:
        shape, dtype = (4, 32), "torch.bfloat16"

    Tensor.__module__ = "torch"
    return Tensor()


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence_before_anything_runs(what: str, device: Any) -> None:
    refused, words = REFUSED[what]
    with pytest.raises(zoo.ZooError, match=words):
        refused()


def test_a_program_is_compiled_once_for_a_shape(device: Any) -> None:
    traced = []

    @jax.jit
    def quantise(x: Any) -> Any:
        traced.append(x.shape)
        return zoo.jax.call("quantize.fp8b128.rows", x=x)

    for rows in (4, 4, 8, 4):
        quantise(normal(rows, 128))
    assert traced == [(4, 128), (8, 128)]


def test_an_exported_program_needs_nothing_of_the_process_that_made_it(device: Any) -> None:
    """The call is described in the program itself. Loaded again, it finds the kernel by name."""
    pytest.importorskip("flatbuffers", reason="jax.export writes programs with flatbuffers: pip install flatbuffers")
    platform = "cuda" if device.platform == "gpu" else "cpu"
    exported = jax.export.export(
        jax.jit(lambda x: zoo.jax.call("quantize.fp8b128.rows", x=x).q),
        platforms=[platform],
        disabled_checks=[jax.export.DisabledSafetyCheck.custom_call("zoo_launch")],
    )(jax.ShapeDtypeStruct((4, 128), jnp.bfloat16))
    again = jax.export.deserialize(exported.serialize())
    x = normal(4, 128)
    assert numpy.array_equal(bits(again.call(x)), bits(rows_of(x)[0]))


def test_an_array_that_was_deleted_or_is_none_of_jaxs_is_refused_in_a_sentence(device: Any) -> None:
    x = normal(4, 64)
    x.delete()
    with pytest.raises(zoo.ArgumentError, match="x: was deleted"):
        zoo.jax.call("quantize.mxfp8.rows", x=x)
    for x in (numpy.ones((4, 64), ">f4"), numpy.array([[object()]])):
        with pytest.raises(zoo.ArgumentError, match="x: expected bf16 or f16 or f32, got"):
            zoo.jax.call("quantize.mxfp8.rows", x=x)


def test_an_argument_without_a_name_is_refused_by_naming_all():
    with pytest.raises(zoo.ArgumentError, match=r"arguments go by name, and 1 came without one; it takes x="):
        zoo.jax.call("quantize.mxfp8.rows", jnp.ones((16, 256), jnp.bfloat16))


def test_dir_shows_what_is_public():
    assert dir(zoo.jax) == ["call", "experts", "grouped_linear", "linear"]
