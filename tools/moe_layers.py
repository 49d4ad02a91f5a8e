"""A whole gpt-oss mixture-of-experts layer, as zoo, triton_kernels and torch compute it: the routing is given, tokens go in, their sums come out.

Weights are MXFP4 with biases, gates and ups interleaved. Each layer is a rival in the sense of zoo.benchmark.rivals: a call that is ready to
be timed, and the rows that it must give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo.benchmark.operands import MXFP4, Matrix
from zoo.benchmark.rivals import Case, imported, triton_mxfp4

LIMIT, SLOPE = 7.0, 1.702
# Of the result's root mean square. e4m3 is off by 2^-4 / sqrt(7) = .024 of itself, three times in a layer: .041, and a quarter more.
FP8_TOLERANCE, BF16_TOLERANCE = 0.052, 0.015


@dataclass(frozen=True)
class Model:
    experts: int
    top_k: int = 4
    hidden: int = 2880
    inner: int = 2880


MODELS = {"gpt-oss-20b": Model(32), "gpt-oss-120b": Model(128)}


class Layer:
    """The weights."""

    def __init__(self, torch: Any, model: Model, device: str):
        self.torch, self.model = torch, model
        E, F, K = model.experts, model.inner, model.hidden
        self.first, self.second = _weights(torch, (E, 2 * F, K), device), _weights(torch, (E, K, F), device)
        self.first_bias, self.second_bias = ((0.1 * torch.randn(E, rows, device=device)).to(torch.bfloat16) for rows in (2 * F, K))

    @property
    def bytes(self) -> int:
        return self.first.bytes + self.second.bytes


class Tokens:
    """Random tokens of a layer, the experts of each and their shares."""

    def __init__(self, layer: Layer, count: int):
        torch, model, device = layer.torch, layer.model, layer.first_bias.device
        self._layer = layer
        self.x = torch.randn(count, model.hidden, device=device).to(torch.bfloat16)
        self.logits = torch.randn(count, model.experts, device=device)
        chosen = self.logits.topk(model.top_k)
        self.shares, self.experts = torch.softmax(chosen.values, dim=1), chosen.indices
        order = self.experts.flatten().argsort(stable=True)
        self.token, self.place = (order // model.top_k).int(), order.argsort()  # whose each row is; where a token's rows are
        self.ends = torch.bincount(self.experts.flatten(), minlength=model.experts).cumsum(0).int()
        self.share_of_row = self.shares.flatten()[order].contiguous()

    def expected(self, rows: Any) -> Any:
        """The layer's output for these tokens in f32, without any rounding on the way."""
        layer, torch = self._layer, self._layer.torch
        found = torch.zeros(len(rows), layer.model.hidden, device=rows.device)
        for expert in self.experts[rows].unique().tolist():
            mine, choice = (self.experts[rows] == expert).nonzero(as_tuple=True)
            sums = self.x[rows[mine]].float() @ layer.first.numbers(expert).t() + layer.first_bias[expert].float()
            y = _activated(torch, sums) @ layer.second.numbers(expert).t() + layer.second_bias[expert].float()
            found.index_add_(0, mine, y * self.shares[rows[mine], choice][:, None])
        return found


def _weights(torch: Any, shape: tuple[int, int, int], device: str) -> Matrix:
    one = Matrix(torch, shape, MXFP4, device)
    codes = one.scales.view(torch.uint8)
    codes -= 6  # so that sums over thousands of columns are about 1
    return one


def _activated(torch: Any, sums: Any) -> Any:
    gate, up = sums[..., 0::2].clamp(max=LIMIT), sums[..., 1::2].clamp(-LIMIT, LIMIT)
    return (up + 1) * gate * torch.sigmoid(SLOPE * gate)


class ZooLayer:
    """FP8 activations by MXFP4 weights in three launches; torch gathers and adds a token's rows."""

    tolerance = FP8_TOLERANCE

    def __init__(self, layer: Layer):
        import zoo.torch  # noqa: F401  registers the operators

        self.layer, torch, self.ops = layer, layer.torch, layer.torch.ops.zoo
        codes = [one.elements.view(torch.uint8) for one in (layer.first, layer.second)]
        scales = [one.scales.view(torch.uint8).view(torch.float8_e8m0fnu) for one in (layer.first, layer.second)]
        self.first = self.ops.pack_mxfp4_fragments(*(one.unflatten(1, (-1, 2)) for one in (codes[0], scales[0])), gates="interleaved")
        self.second = self.ops.pack_mxfp4_fragments(codes[1], scales[1])

    def case(self, tokens: Tokens) -> Case:
        ops, layer, x, token, ends = self.ops, self.layer, tokens.x, tokens.token, tokens.ends
        place, share = tokens.place, tokens.share_of_row
        T, top_k, K = len(x), layer.model.top_k, layer.model.hidden
        gated = {"limit": LIMIT, "gates": "interleaved", "activation": "gpt_oss", "order": "fragments"}
        multiply = ops.gemm_fp8_mxfp4_m_grouped_gather_swiglu_fp8b128

        def call() -> Any:
            q, scales = ops.quantize_fp8token_rows(x, order="fragments")
            h, h_scales = multiply(q, *self.first, token, ends, a_scale=scales, bias=layer.first_bias.unflatten(1, (-1, 2)), **gated)
            y = ops.gemm_fp8_mxfp4_m_grouped_contiguous(
                h, *self.second, ends, a_block_scale=h_scales, bias=layer.second_bias, row_scale=share
            )
            return y[place].view(T, top_k, K).sum(1)

        return Case(call, tokens.expected, self.layer.bytes, self.tolerance)


class TritonLayer:
    """bf16 activations by MXFP4 weights: two launches with the gather, the activation, the scatter and the sum in them."""

    tolerance = BF16_TOLERANCE

    def __init__(self, layer: Layer):
        self.layer, torch, self.multiply = layer, layer.torch, imported("triton_kernels.matmul_ogs")
        self.routing = imported("triton_kernels.routing").routing
        specs = self.multiply.FnSpecs("swiglu", imported("triton_kernels.swiglu").swiglu_fn, ("alpha", "limit"))
        self.activation = self.multiply.FusedActivation(specs, (SLOPE, LIMIT), 2)
        self.weights = [
            triton_mxfp4(*(part.view(torch.uint8) for part in (one.elements, one.scales))) for one in (layer.first, layer.second)
        ]

    def case(self, tokens: Tokens) -> Case:
        multiply, (first, of_first), (second, of_second) = self.multiply.matmul_ogs, *self.weights
        plan, gather, scatter = self.routing(tokens.logits, self.layer.model.top_k)[:3]
        biases = [one.float() for one in (self.layer.first_bias, self.layer.second_bias)]
        activation, x = self.activation, tokens.x

        def call() -> Any:
            h = multiply(x, first, biases[0], plan, gather_indx=gather, precision_config=of_first, fused_activation=activation)
            return multiply(h, second, biases[1], plan, scatter_indx=scatter, precision_config=of_second, gammas=plan.gate_scal)

        return Case(call, tokens.expected, self.layer.bytes, self.tolerance)


class TorchLayer:
    """bf16 activations by bf16 weights, torch's grouped products, everything else in torch."""

    tolerance = BF16_TOLERANCE

    def __init__(self, layer: Layer):
        self.layer, torch, E = layer, layer.torch, layer.model.experts
        self.weights = [torch.stack([one.numbers(expert).to(torch.bfloat16) for expert in range(E)]) for one in (layer.first, layer.second)]

    def case(self, tokens: Tokens) -> Case:
        layer, torch, x, token, ends, place = self.layer, self.layer.torch, tokens.x, tokens.token, tokens.ends, tokens.place
        T, top_k, K = len(x), layer.model.top_k, layer.model.hidden
        first, second = (one.transpose(-2, -1) for one in self.weights)
        sizes = torch.diff(ends, prepend=ends.new_zeros(1))
        expert = torch.arange(len(sizes), device=ends.device).repeat_interleave(sizes)
        first_bias, second_bias, share = layer.first_bias, layer.second_bias, tokens.share_of_row[:, None].to(torch.bfloat16)

        def call() -> Any:
            sums = torch._grouped_mm(x[token], first, offs=ends) + first_bias[expert]
            y = torch._grouped_mm(_activated(torch, sums), second, offs=ends) + second_bias[expert]
            return (y * share)[place].view(T, top_k, K).sum(1)

        return Case(call, tokens.expected, self.layer.bytes, self.tolerance)


LAYERS = {"zoo": ZooLayer, "triton_kernels": TritonLayer, "torch bf16": TorchLayer}
LESS = {"torch bf16": "bf16 weights, with 3.8 times the bytes"}
