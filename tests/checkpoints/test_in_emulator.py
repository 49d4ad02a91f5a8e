"""A small layer of published weights by the kernels themselves, in the emulator: packed, gathered and quantised, multiplied, activated, multiplied.

Its error is held against the same bound as that of the layer by the written rules.
"""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import zoo
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


class FusedLayer(Layer):
    """The first product takes its rows through an index and ends in the activation."""

    def __init__(self, gpu, activation: str, limit: float):
        super().__init__(gpu)
        self.model = {"activation": activation} | ({"limit": limit} if limit else {})

    def __call__(self, x, chosen, shares, first, second):
        top_k, order = chosen.shape[1], np.argsort(chosen.reshape(-1), kind="stable")
        token, rows = self.gpu.array((order // top_k).astype(np.int32)), chosen.size
        offsets = self.gpu.array(np.cumsum(np.bincount(chosen.reshape(-1), minlength=SIZES.experts)).astype(np.int32))
        a, a_scale = self.gpu.empty((len(x), 64 * -(-SIZES.hidden // 64)), "e4m3"), self.gpu.empty((len(x),), "f32")
        zoo.launch("quantize.fp8token.rows", x=self.gpu.array(x), q=a, scales=a_scale, order="fragments")
        _, packed, _ = self.packed(first, gates=first.gates)
        h = self.gpu.empty((rows, SIZES.intermediate), "bf16")
        name = f"gemm.fp8_{first.format}.m_grouped_gather.swiglu"
        zoo.launch(name, a=a, a_scale=a_scale, index=token, offsets=offsets, d=h, gates=first.gates, **packed, **self.model)
        y = self.product("quantize.fp8token.rows", h, self.packed(second), offsets, rows, SIZES.intermediate)
        of_tokens = y.numpy().astype(np.float32)[np.argsort(order, kind="stable")].reshape(len(x), top_k, -1)
        return (of_tokens * shares.astype(np.float32)[..., None]).sum(axis=1)


@pytest.mark.parametrize("name", KINDS)
def test_a_layer_whose_first_product_ends_in_its_activation_is_the_published_one(name):
    """With biases in the checkpoint's order and, of ModelOpt, gates and ups that are scaled apart; limits cut."""
    if not packaged.find("gemm.fp8_mxfp4.m_grouped_gather.swiglu"):
        pytest.skip("these cubins have no gates and ups with 4-bit weights")
    kind, random = KINDS[name], np.random.default_rng(9)
    tensors = {key: array for key, (_, array) in kind.make(random, SIZES).items()}
    first, second = READERS[name](tensors, kind.prefix, SIZES.experts)
    if name == "ModelOpt":
        for expert in range(SIZES.experts):
            tensors[f"{kind.prefix}{expert}.up_proj.weight_scale_2"] *= np.float32(2.5)
        first = replace(first, alpha=np.stack((first.alpha, first.alpha * np.float32(2.5)), axis=1))
    elif first.alpha is not None:
        first = replace(first, alpha=first.alpha[:, None])
    x = (0.5 * random.standard_normal((11, SIZES.hidden))).astype(ml_dtypes.bfloat16)
    chosen = np.argsort(random.random((11, SIZES.experts)), axis=1)[:, :2]
    chosen[chosen == 1] = 2  # an expert without a token; some tokens go to one expert twice
    shares, limit = random.random((11, 2)), min(kind.limit, 1.5)
    found = FusedLayer(zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=3), kind.activation, limit)(
        x, chosen, shares, first, second
    )

    numbers, expected, cut = kind.numbers(tensors, SIZES.experts), np.zeros(found.shape), 0
    for token, experts in enumerate(chosen):
        for expert, share in zip(experts, shares[token], strict=True):
            sums = [matrix[expert] @ x[token].astype(np.float64) for matrix in (numbers.gate, numbers.up)]
            gate, up = sums[0] + numbers.gate_bias[expert], sums[1] + numbers.up_bias[expert]
            if limit:
                cut += int((gate > limit).sum() + (abs(up) > limit).sum())
                gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
            slope, added = (1.702, 1) if kind.activation == "gpt_oss" else (1, 0)
            expected[token] += share * (
                numbers.down[expert] @ (gate / (1 + np.exp(-slope * gate)) * (up + added)) + numbers.down_bias[expert]
            )
    assert not limit or cut > 20
    off = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    bound = (3 * (DELTA**2 + (RHO if first.format == "nvfp4" else 0) ** 2)) ** 0.5
    assert 0.2 * bound < off <= MARGIN * bound
