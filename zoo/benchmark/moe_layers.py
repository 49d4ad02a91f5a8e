"""Whole mixture-of-experts layers for serving, as zoo and other libraries compute them: tokens go in, the sums of their experts come out.

gpt-oss has MXFP4 weights with biases, gates and ups interleaved. Other models have FP8 weights with a scale for 128 x 128. Each layer is a
rival in the sense of zoo.benchmark.rivals: a call that is ready to be timed, from the router's logits, and the rows that it must give.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.benchmark.layer_models import LIMIT, SLOPE, Model
from zoo.benchmark.operands import MXFP4, SQUARES, Matrix
from zoo.benchmark.rivals import Case, Unavailable, imported, triton_mxfp4

# Of the result's root mean square. e4m3 is off by 2^-4 / sqrt(7) = .024 of itself, three times in a layer: .041, and a quarter more.
FP8_TOLERANCE, BF16_TOLERANCE = 0.052, 0.015
BLOCKS_TOLERANCE = 0.057  # with scales of powers of two an element is off by .026


class Layer:
    """The weights."""

    def __init__(self, torch: Any, model: Model, device: str):
        self.torch, self.model = torch, model
        E, F, K = model.experts, model.inner, model.hidden
        self.first, self.second = (_weights(torch, model, shape, device) for shape in ((E, 2 * F, K), (E, K, F)))
        self.first_bias, self.second_bias = ((0.1 * torch.randn(E, rows, device=device)).to(torch.bfloat16) for rows in (2 * F, K))

    @property
    def bytes(self) -> int:
        return self.first.bytes + self.second.bytes

    @property
    def biases(self) -> tuple[Any, Any] | None:
        return (self.first_bias, self.second_bias) if self.model.gpt_oss else None

    def activated(self, sums: Any) -> Any:
        from zoo.benchmark.torch_experts import gpt_oss, silu

        return (gpt_oss if self.model.gpt_oss else silu)(sums)


class Tokens:
    """Random tokens of a layer, the experts of each and their shares."""

    def __init__(self, layer: Layer, count: int):
        torch, model, device = layer.torch, layer.model, layer.first_bias.device
        self._layer = layer
        self.x = torch.randn(count, model.hidden, device=device).to(torch.bfloat16)
        self.logits = torch.randn(count, model.experts, device=device)
        self.experts, self.shares = self.chosen()
        self._expected: dict[tuple[int, ...], Any] = {}  # of libraries that are checked at the same rows

    def chosen(self) -> tuple[Any, Any]:
        """Ids and weights from the router's logits."""
        found = self.logits.topk(self._layer.model.top_k)
        return found.indices, found.values.softmax(dim=1)

    def expected(self, rows: Any) -> Any:
        """The layer's output for these tokens in f32, without any rounding on the way."""
        key = tuple(rows.tolist())
        if key not in self._expected:
            self._expected[key] = self._summed(rows)
        return self._expected[key]

    def _summed(self, rows: Any) -> Any:
        layer, torch = self._layer, self._layer.torch
        found = torch.zeros(len(rows), layer.model.hidden, device=rows.device)
        for expert in self.experts[rows].unique().tolist():
            mine, choice = (self.experts[rows] == expert).nonzero(as_tuple=True)
            sums = self.x[rows[mine]].float() @ layer.first.numbers(expert).t()
            first, second = (0, 0) if layer.biases is None else (one[expert].float() for one in layer.biases)
            y = layer.activated(sums + first) @ layer.second.numbers(expert).t() + second
            found.index_add_(0, mine, y * self.shares[rows[mine], choice][:, None])
        return found


def _weights(torch: Any, model: Model, shape: tuple[int, int, int], device: str) -> Matrix:
    """Numbers whose sums over all columns are about 1."""
    one = Matrix(torch, shape, MXFP4 if model.gpt_oss else SQUARES, device)
    if model.gpt_oss:
        codes = one.scales.view(torch.uint8)
        codes -= 6
    else:
        one.scales *= shape[-1] ** -0.5
    return one


class TritonLayer:
    """bf16 activations by MXFP4 weights: two launches with the gather, the activation, the scatter and the sum in them."""

    tolerance = BF16_TOLERANCE

    def __init__(self, layer: Layer):
        self.layer, torch, self.multiply = layer, layer.torch, imported("triton_kernels.matmul_ogs")
        if not layer.model.gpt_oss:
            raise Unavailable("has no FP8 weights with a scale for 128 x 128")
        self.routing = imported("triton_kernels.routing").routing
        specs = self.multiply.FnSpecs("swiglu", imported("triton_kernels.swiglu").swiglu_fn, ("alpha", "limit"))
        self.activation = self.multiply.FusedActivation(specs, (SLOPE, LIMIT), 2)
        self.weights = [
            triton_mxfp4(*(part.view(torch.uint8) for part in (one.elements, one.scales))) for one in (layer.first, layer.second)
        ]

    def case(self, tokens: Tokens) -> Case:
        biases = [one.float() for one in (self.layer.first_bias, self.layer.second_bias)]
        x, logits, top_k, routing = tokens.x, tokens.logits, self.layer.model.top_k, self.routing

        multiply, (first, of_first), (second, of_second) = self.multiply.matmul_ogs, *self.weights

        def call() -> Any:
            plan, gather, scatter = routing(logits, top_k)[:3]
            h = multiply(x, first, biases[0], plan, gather_indx=gather, precision_config=of_first, fused_activation=self.activation)
            return multiply(h, second, biases[1], plan, scatter_indx=scatter, precision_config=of_second, gammas=plan.gate_scal)

        return Case(call, tokens.expected, self.layer.bytes, self.tolerance)


class TorchLayer:
    """bf16 activations by bf16 weights, torch's grouped products, everything else in torch."""

    tolerance = BF16_TOLERANCE

    def __init__(self, layer: Layer):
        self.layer, torch, E = layer, layer.torch, layer.model.experts
        self.weights = [torch.stack([one.numbers(expert).to(torch.bfloat16) for expert in range(E)]) for one in (layer.first, layer.second)]

    def case(self, tokens: Tokens) -> Case:
        from zoo.benchmark.torch_experts import experts, gpt_oss, silu

        activation, biases, chosen = gpt_oss if self.layer.model.gpt_oss else silu, self.layer.biases, tokens.chosen

        def call() -> Any:
            return experts(tokens.x, *chosen(), self.weights[0], self.weights[1], activation, biases)

        return Case(call, tokens.expected, self.layer.bytes, self.tolerance)


class ExpertsLayer:
    """zoo.torch.nn.Experts. Without `ids_given`, torch takes the experts from the router's logits."""

    def __init__(self, layer: Layer, ids_given: bool = False):
        from zoo.torch.nn import Experts
        from zoo.torch.quantized import Quantized

        self.layer, self._ids_given, model = layer, ids_given, layer.model
        self.tolerance = FP8_TOLERANCE if model.gpt_oss else BLOCKS_TOLERANCE
        options: dict[str, Any] = {}
        if layer.biases is not None:
            options = dict(zip(("gate_up_bias", "down_bias"), layer.biases, strict=True))
            options |= {"activation": "gpt_oss", "limit": LIMIT, "gates": "interleaved"}
        word, squares = ("mxfp4", False) if model.gpt_oss else ("fp8b128", True)
        first, second = (Quantized(one.elements, one.scales, word, squares=squares) for one in (layer.first, layer.second))
        self.module = Experts.from_quantized(first, second, model.format, **options)

    def case(self, tokens: Tokens) -> Case:
        x, module, chosen, torch = tokens.x, self.module, tokens.chosen, self.layer.torch
        given = tokens.experts.int(), tokens.shares

        def call() -> Any:
            with torch.no_grad():
                return module(x, *(given if self._ids_given else chosen()))

        return Case(call, tokens.expected, self.layer.bytes, self.tolerance)


class VllmLayer:
    """vLLM's Triton kernels for FP8 experts with blocks of scales: quantise, align, multiply, activate, quantise, multiply, add."""

    tolerance = BLOCKS_TOLERANCE

    def __init__(self, layer: Layer):
        if layer.model.gpt_oss:
            raise Unavailable("runs gpt-oss by triton_kernels")
        package = "vllm.model_executor.layers.fused_moe"
        self.layer, self.multiply = layer, imported(f"{package}.fused_moe").fused_experts
        described = imported(f"{package}.config").fp8_w8a8_moe_quant_config
        self.config = described(w1_scale=layer.first.scales, w2_scale=layer.second.scales, block_shape=[128, 128])

    def case(self, tokens: Tokens) -> Case:
        layer, chosen = self.layer, tokens.chosen

        def call() -> Any:
            ids, shares = chosen()
            return self.multiply(tokens.x, layer.first.elements, layer.second.elements, shares, ids.int(), quant_config=self.config)

        return Case(call, tokens.expected, self.layer.bytes, self.tolerance)


def _ids_given(layer: Layer) -> ExpertsLayer:
    return ExpertsLayer(layer, ids_given=True)


ROUTED: Mapping[str, Any] = {
    "zoo": ExpertsLayer,
    "zoo, ids given": _ids_given,
    "triton_kernels": TritonLayer,
    "vLLM": VllmLayer,
    "torch bf16": TorchLayer,
}
