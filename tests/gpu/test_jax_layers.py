"""Layers of zoo.jax on a GPU beside the same layers on the CPU, which computes by the written rule."""

import numpy
import pytest

jax = pytest.importorskip("jax")

from zoo.jax import experts, grouped_linear, linear  # noqa: E402

pytestmark = pytest.mark.gpu
NEAR = 2.0**-8  # sums in another order move a rounding now and then
RANDOM = numpy.random.default_rng(7)


def drawn(*shape, dtype="float32"):
    return jax.numpy.asarray(RANDOM.standard_normal(shape).astype("float32") / shape[-1] ** 0.5, dtype)


def on(platform, layer, floats, rest):
    """The output and the gradients of all floats."""
    device = jax.devices(platform)[0]

    def step(floats, rest, dy):
        y, back = jax.vjp(lambda given: layer(*given, *rest), floats)
        return y, back(dy)[0]

    moved = jax.device_put((floats, rest), device)
    like = jax.eval_shape(lambda given, rest: layer(*given, *rest), *moved)
    dy = jax.device_put(jax.numpy.asarray(numpy.random.default_rng(8).standard_normal(like.shape), like.dtype), device)
    return jax.device_get(jax.jit(step)(*moved, dy))


IDS = jax.numpy.asarray(RANDOM.permuted(numpy.tile(numpy.arange(8), (130, 1)), axis=1)[:, :2], "int32")
LAYERS = {
    "linear": (linear, (drawn(130, 384, dtype="bfloat16"), drawn(256, 384)), ()),
    "grouped": (grouped_linear, (drawn(130, 384, dtype="bfloat16"), drawn(3, 256, 384)), (jax.numpy.asarray([40, 40, 130], "int32"),)),
    "experts": (
        lambda x, weights, gate_up, down, ids: experts(x, ids, weights, gate_up, down),
        (drawn(130, 384, dtype="bfloat16"), drawn(130, 2), drawn(8, 512, 384), drawn(8, 384, 256)),
        (IDS,),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_jax_layers_differ_from_the_cpu(name):
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    for found, wanted in zip(*(jax.tree.leaves(on(platform, *LAYERS[name])) for platform in ("gpu", "cpu")), strict=True):
        found, wanted = (numpy.asarray(one, "f8") for one in (found, wanted))
        assert numpy.isfinite(found).all()
        assert numpy.linalg.norm(found - wanted) <= NEAR * numpy.linalg.norm(wanted)
