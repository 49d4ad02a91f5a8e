"""A small layer of published weights by the kernels themselves, in the emulator: packed, gathered and quantised, multiplied, activated, multiplied.

Its error is held against the same bound as that of the layer by the written rules.
"""

import math

import ml_dtypes
import numpy as np
import pytest

import zoo
from tests.checkpoints.kernels import UNDER_SCALES_OF_BLOCKS, WAYS, BlockLate, Layer, error
from tests.checkpoints.mistakes import through_kernels
from tests.checkpoints.published import DELTA, KINDS, MARGIN, RHO, Sizes
from tests.checkpoints.readers import READERS, Matrices
from zoo.packaged import packaged

pytestmark = pytest.mark.skipif(
    not any(kernel.fields["formats"] == "fp8_mxfp4" for kernel in packaged.find(op="gemm")),
    reason="these cubins have no products with 4-bit weights",
)
SIZES = Sizes(experts=3, hidden=160, intermediate=160)  # neither is whole blocks of 64, both are more than one of 128
CASES = [*((name, WAYS[0]) for name in KINDS), *((name, way) for way in WAYS[1:] for name in ("gpt-oss", "ModelOpt"))]
MISTAKEN = [  # the mistakes in turn, a case each
    pytest.param(*case, made, id="-".join((case[0], *case[1], made.__name__)))
    for turn, case in enumerate(CASES)
    for made in [through_kernels(case[0])[turn % len(through_kernels(case[0]))]]
]


class InSteps(Layer):
    """Separate kernels gather and activate."""

    def multiplied(self, quantiser, x, matrices, offsets, rows, **index):
        columns = 2 * matrices.q.shape[2]
        a, a_scale = self.gpu.empty((rows, -(-columns // 64), 64), "e4m3"), self.gpu.empty((rows,), "f32")
        zoo.launch(quantiser, x=x, q=a, scales=a_scale, order="fragments", **index)
        d = self.gpu.empty((rows, matrices.q.shape[1]), "bf16")
        name = self.product("m_grouped_contiguous", "", matrices)
        zoo.launch(name, a=a, a_scale=a_scale, offsets=offsets, d=d, **self.weights(matrices))
        return d

    def __call__(self, x, chosen, shares, first, second):
        routed = self.routed(chosen, len(first.q))
        h = self.multiplied("quantize.fp8token.rows", self.gpu.array(x), first, routed.offsets, chosen.size, index=routed.index)
        y = self.multiplied("quantize.fp8token.rows.swiglu", h.reshape(chosen.size, 2, -1), second, routed.offsets, chosen.size)
        return routed.combined(y, shares)


@pytest.mark.parametrize("name", ["ModelOpt", "compressed-tensors", "DeepSeek-V4"])
def test_the_kernels_layer_is_the_published_one(name):
    """Numbers of DeepSeek-V4 stay within its clamps here, so that its activation is silu."""
    kind, random = KINDS[name], np.random.default_rng(7)
    tensors = {key: array for key, (_, array) in kind.make(random, SIZES).items()}
    first, second = READERS[name](tensors, kind.prefix, SIZES.experts)
    x = (0.5 * random.standard_normal((11, SIZES.hidden))).astype(ml_dtypes.bfloat16)
    chosen = np.argsort(random.random((11, SIZES.experts)), axis=1)[:, :2]
    chosen[chosen == 1] = 2  # an expert without a token; some tokens go to one expert twice
    shares = random.random((11, 2))
    gate_up = Matrices(first.format, first.q, first.scales, "plain", first.alpha)
    found = InSteps(zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=3), *WAYS[0])(x, chosen, shares, gate_up, second)

    numbers, expected = kind.numbers(tensors, SIZES.experts), np.zeros(found.shape)
    for token, experts in enumerate(chosen):
        for expert, share in zip(experts, shares[token], strict=True):
            gate, up = (matrix[expert] @ x[token].astype(np.float64) for matrix in (numbers.gate, numbers.up))
            assert max(gate.max(), abs(up).max()) < 10
            expected[token] += share * (numbers.down[expert] @ (gate / (1 + np.exp(-gate)) * up))
    off = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    bound = (3 * (DELTA**2 + (RHO if first.format == "nvfp4" else 0) ** 2)) ** 0.5
    assert 0.3 * bound < off <= MARGIN * bound


@pytest.mark.parametrize(("name", "way"), CASES)
def test_a_layer_whose_first_product_ends_in_its_activation_is_the_published_one(name, way):
    layer = Layer(zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=3), *way)
    assert 0.2 < error(layer, name, SIZES) <= MARGIN


@pytest.mark.parametrize(("name", "way", "mistake"), MISTAKEN)
def test_a_loader_with_a_mistake_is_out_of_the_bound(name, way, mistake):
    """Without it the layer is within, as the test above says of the same cases."""
    layer = Layer(zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=3), *way)
    assert 1.5 < error(layer, name, SIZES, mistake) < math.inf


@pytest.mark.parametrize("way", UNDER_SCALES_OF_BLOCKS, ids="-".join)
def test_scales_of_tokens_that_come_a_block_late_are_out_of_the_bound(way):
    layer = BlockLate(zoo.emulator.Device(arch="sm_90a"), *way)
    assert 1.5 < error(layer, "ModelOpt", SIZES) < math.inf
