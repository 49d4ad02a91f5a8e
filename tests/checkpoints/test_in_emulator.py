"""A small layer of published weights by the kernels themselves, in the emulator: packed, gathered and quantised, multiplied, activated, multiplied.

Its error is held against the same bound as that of the layer by the written rules.
"""

import ml_dtypes
import numpy as np
import pytest

import zoo
from tests.checkpoints.kernels import WAYS, error, other_order_of_gates
from tests.checkpoints.kernels import Layer as LayerOfOneWay
from tests.checkpoints.published import KINDS, Sizes
from tests.checkpoints.readers import READERS, Matrices
from zoo.shipped.packaged import packaged

pytestmark = pytest.mark.skipif(
    not any(kernel.fields["formats"] == "fp8_mxfp4" for kernel in packaged.find(op="gemm")),
    reason="these cubins have no products with 4-bit weights",
)
SIZES = Sizes(experts=3, hidden=96, intermediate=64)
DELTA, RHO, MARGIN = 2.0**-4 / 7**0.5, 0.021, 1.25


class Layer:
    """What docs/checkpoints.md does, on an emulated device."""

    def __init__(self, gpu):
        self.gpu = gpu

    def packed(self, matrices: Matrices, **gates):
        experts, rows, half = matrices.q.shape
        tiles, chunks, block = -(-rows // 64), -(-half // 32), 2 * half // matrices.scales.shape[2]
        b = self.gpu.empty((experts, tiles, chunks, 2048 + 4096 // block), "u8")
        made = {"b": b}
        arguments = {"q": self.gpu.array(np.array(matrices.q)), "scales": self.gpu.array(np.array(matrices.scales).view(np.uint8)), "b": b}
        if matrices.format == "mxfp4":
            arguments["row_scale"] = made["b_row_scale"] = self.gpu.empty((experts, 64 * tiles), "ue8m0")
        zoo.launch(f"pack.{matrices.format}.fragments", **arguments, **gates)
        if matrices.alpha is not None:
            made["alpha"] = self.gpu.array(matrices.alpha)
        if matrices.bias is not None:
            made["bias"] = self.gpu.array(matrices.bias)
        return f"gemm.fp8_{matrices.format}.m_grouped_contiguous", made, rows

    def product(self, name, x, weights, offsets, rows, columns, **index):
        kernel, packed, outputs = weights
        q, scales = self.gpu.empty((rows, -(-columns // 64) * 64), "e4m3"), self.gpu.empty((rows,), "f32")
        zoo.launch(name, x=x, q=q, scales=scales, order="fragments", **index)
        d = self.gpu.empty((rows, outputs), "bf16")
        zoo.launch(kernel, a=q, a_scale=scales, offsets=offsets, d=d, **packed)
        return d

    def __call__(self, x, chosen, shares, first, second):
        top_k, order = chosen.shape[1], np.argsort(chosen.reshape(-1), kind="stable")
        token, rows = self.gpu.array((order // top_k).astype(np.int32)), chosen.size
        offsets = self.gpu.array(np.cumsum(np.bincount(chosen.reshape(-1), minlength=SIZES.experts)).astype(np.int32))
        h = self.product("quantize.fp8token.rows", self.gpu.array(x), self.packed(first), offsets, rows, SIZES.hidden, index=token)
        y = self.product("quantize.fp8token.rows.swiglu", h, self.packed(second), offsets, rows, SIZES.intermediate)
        of_tokens = y.numpy().astype(np.float32)[np.argsort(order, kind="stable")].reshape(len(x), top_k, -1)
        return (of_tokens * shares.astype(np.float32)[..., None]).sum(axis=1)


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
    found = Layer(zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=3))(x, chosen, shares, gate_up, second)

    numbers, expected = kind.numbers(tensors, SIZES.experts), np.zeros(found.shape)
    for token, experts in enumerate(chosen):
        for expert, share in zip(experts, shares[token], strict=True):
            gate, up = (matrix[expert] @ x[token].astype(np.float64) for matrix in (numbers.gate, numbers.up))
            assert max(gate.max(), abs(up).max()) < 10
            expected[token] += share * (numbers.down[expert] @ (gate / (1 + np.exp(-gate)) * up))
    off = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    bound = (3 * (DELTA**2 + (RHO if first.format == "nvfp4" else 0) ** 2)) ** 0.5
    assert 0.3 * bound < off <= MARGIN * bound


@pytest.mark.parametrize(
    ("name", "way"), [*((name, WAYS[0]) for name in KINDS), *((name, way) for way in WAYS[1:] for name in ("gpt-oss", "ModelOpt"))]
)
def test_a_layer_whose_first_product_ends_in_its_activation_is_the_published_one(name, way):
    layer = LayerOfOneWay(zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=3), *way)
    assert 0.2 < error(layer, name, SIZES) <= 1.25


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_gates_in_another_order_are_out_of_the_bound_in_every_way(way):
    layer = LayerOfOneWay(zoo.emulator.Device(arch="sm_90a"), *way)
    assert not error(layer, "gpt-oss", SIZES, other_order_of_gates) <= 1.5
