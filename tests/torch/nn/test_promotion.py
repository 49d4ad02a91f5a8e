"""When the sums of FP8 tokens and 4-bit weights leave the tensor core: the switch `promotion` of a layer."""

from __future__ import annotations

import copy
import pickle

import numpy
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import zoo.torch as zt
from zoo.errors import ArgumentError
from zoo.reference.swiglu import gated_unit
from zoo.reference.token_rows import quantize_token_rows
from zoo.torch.nn import Experts, GroupedLinear, Linear
from zoo.torch.nn.experts_serving import NEVER_PROMOTED_FROM
from zoo.torch.nn.routing import combine, route


@pytest.mark.parametrize("grouped", [False, True])
def test_sums_are_promoted_only_where_a_layer_is_asked_to(grouped):
    torch.manual_seed(0)
    layer = GroupedLinear(1, 4096, 32, False, "fp8_mxfp4") if grouped else Linear(4096, 32, False, "fp8_mxfp4")
    layer.weight.detach().abs_()  # sums of one sign lose most
    layer.freeze()
    x = torch.rand(4, 4096, dtype=torch.bfloat16)
    offsets = torch.tensor([4], dtype=torch.int32) if grouped else None
    by_place = (x,) if offsets is None else (x, offsets)
    a, weight = zt.quantize(x, "fp8token"), layer.quantized().t()
    expected = {one: zt.matmul(a, weight, groups=offsets, promotion=one) for one in ("never", "regular")}
    assert (expected["never"] != expected["regular"]).any()
    with torch.no_grad():
        assert torch.equal(layer(*by_place), expected["never"])
        layer.promotion = "regular"
        assert torch.equal(layer(*by_place), expected["regular"])


def test_a_word_that_no_product_knows_is_refused_where_it_is_set():
    for layer in (Linear(64, 32, format="fp8_mxfp4"), GroupedLinear(2, 64, 32, format="fp8_nvfp4")):
        with pytest.raises(ArgumentError, match=r"promotion: .* expects 'never' or 'regular', got 'nonsense'"):
            layer.promotion = "nonsense"
        assert "promotion=never" in repr(layer)
        layer.promotion = "regular"
        assert "promotion=regular" in repr(layer)
    assert "promotion" not in repr(Linear(64, 32))


def many_rows(format, rows=NEVER_PROMOTED_FROM, bias=False, gates="halves", activation="gpt_oss", first=0):
    """Experts with weights of both signs, tokens, ids and routing weights: `rows` rows an expert on average. The last expert has no rows."""
    random = torch.Generator().manual_seed(rows)
    experts, hidden, intermediate = 4, 96, 160

    def normal(*shape):
        return torch.randn(shape, generator=random)

    biases = {"gate_up_bias": normal(experts, 2 * intermediate), "down_bias": normal(experts, hidden)} if bias else {}
    weights = normal(experts, 2 * intermediate, hidden) / 8, normal(experts, hidden, intermediate) / 8
    limit = {} if activation == "silu" else {"limit": 1.0}
    layer = Experts.from_float(*weights, format, gates=gates, activation=activation, first=first, total=first + experts, **biases, **limit)
    tokens = rows * experts // 2
    ids = torch.randint(0, experts - 1, (tokens, 2), generator=random)
    ids[: tokens // 8, 0] = -1
    return layer, normal(tokens, hidden).bfloat16(), ids + first * (ids >= 0), torch.rand((tokens, 2), generator=random)


def by_rule(layer, x, ids, weights):
    """What an unpromoted layer computes, one operator after the other, from plain packed weights whose rows keep the order of gates and ups."""
    experts, hidden, width, gates = layer.experts, layer.hidden, layer.intermediate, layer.gates
    routing = route(ids, weights, experts, layer.first)
    products = []
    a = torch.ops.zoo.quantize_fp8token_rows(x, order="fragments")
    for one, size in ((layer.gate_up, 2 * width), (layer.down, hidden)):
        plain, packing = one.plain(), {"gates": "plain", "tokens": "fp8"}
        made = getattr(torch.ops.zoo, f"pack_{plain.format}_fragments")(plain.elements, plain.scales, **packing)
        operands = (made,) if plain.format == "nvfp4" else made
        name, index = f"gemm_{layer.format}_m_grouped", (routing.index,) if one is layer.gate_up else ()
        gemm = getattr(torch.ops.zoo, f"{name}_{'gather' if index else 'contiguous'}")
        bias = {} if one.bias is None else {"bias": one.bias.float()}
        alpha = {"alpha": one.tensor_scale} if one is layer.down and one.tensor_scale is not None else {}
        products.append(gemm(a[0], *operands, *index, routing.offsets, a_scale=a[1], N=size, promotion="never", **bias, **alpha))
        if one is layer.gate_up:
            rows = products[0].float()
            gate, up = (rows[:, :width], rows[:, width:]) if gates == "halves" else (rows[:, ::2], rows[:, 1::2])
            if one.tensor_scale is not None:
                of_row = torch.searchsorted(routing.offsets, torch.arange(len(rows), dtype=torch.int32), right=True).clamp(max=experts - 1)
                gate, up = gate * one.tensor_scale[of_row, :1], up * one.tensor_scale[of_row, 1:]
            limit = numpy.float32(numpy.finfo(numpy.float32).max if layer.limit is None else layer.limit)
            h = gated_unit(torch.cat((gate, up), 1).numpy(), "halves", layer.activation, limit)
            q = quantize_token_rows(h, "fragments")
            a = torch.from_numpy(q.q.view(numpy.uint8)).view(torch.float8_e4m3fn), torch.from_numpy(q.scales)
    return combine(products[1], routing.rows, weights)


@pytest.mark.parametrize("gates", ["halves", "interleaved"])
@pytest.mark.parametrize("activation", ["silu", "gpt_oss", "deepseek_v4"])
@pytest.mark.parametrize(("format", "bias"), [("fp8_mxfp4", False), ("fp8_mxfp4", True), ("fp8_nvfp4", False)])
def test_experts_with_many_rows_have_the_bits_of_three_kernels_that_never_promote(format, bias, activation, gates):
    layer, *given = many_rows(format, bias=bias, activation=activation, gates=gates)
    found = layer(*given)
    assert torch.equal(found, by_rule(layer, *given))
    layer.promotion = "regular"
    assert not torch.equal(found, layer(*given))


def test_gates_and_ups_of_nvfp4_keep_tensor_scales_of_their_own():
    layer, *given = many_rows("fp8_nvfp4")
    wanted = layer(*given)
    layer.gate_up.tensor_scale = layer.gate_up.tensor_scale * torch.tensor([[1.0, 3.0], [0.5, 1.0], [2.0, 0.25], [1.0, 1.0]])
    found = layer(*given)
    assert torch.equal(found, by_rule(layer, *given)) and not torch.equal(found, wanted)
    layer.promotion = "regular"
    assert (layer(*given) - found).norm() <= 0.05 * found.norm()


def kernels_of(layer, *given):
    """Names of the operators that a call runs."""
    found = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            found.append(str(function))
            return function(*arguments, **(keywords or {}))

    with Seen(), torch.no_grad():
        layer(*given)
    return [name for name in found if "gemm" in name]


@pytest.mark.parametrize("format", ["fp8_mxfp4", "fp8_nvfp4"])
def test_the_number_of_rows_an_expert_decides_and_the_routing_does_not(format):
    layer, x, ids, weights = many_rows(format)
    assert not any("swiglu" in name for name in kernels_of(layer, x, ids, weights))
    assert not any("swiglu" in name for name in kernels_of(layer, x, torch.full_like(ids, -1), weights))
    assert any("swiglu_fp8b128" in name for name in kernels_of(layer, x[:-1], ids[:-1], weights[:-1]))
    layer.promotion = "regular"
    assert any("swiglu_fp8b128" in name for name in kernels_of(layer, x, ids, weights))


def test_rows_of_other_ranks_experts_do_not_count():
    layer, x, ids, weights = many_rows("fp8_mxfp4", first=4)  # of 8 experts: half as many rows each on average
    assert any("swiglu_fp8b128" in name for name in kernels_of(layer, x, ids, weights))
    twice = (torch.cat((one, one)) for one in (x, ids, weights))
    assert not any("swiglu" in name for name in kernels_of(layer, *twice))


def test_promoting_one_matrix_or_a_bias_of_nvfp4_promotes_both_matrices():
    layer, *given = many_rows("fp8_mxfp4")
    layer.down.promotion = "regular"
    assert any("swiglu_fp8b128" in name for name in kernels_of(layer, *given))
    layer, *given = many_rows("fp8_nvfp4", bias=True)
    assert any("swiglu_fp8b128" in name for name in kernels_of(layer, *given))


def test_promoted_and_unpromoted_calls_read_one_copy_of_the_weights():
    layer, *given = many_rows("fp8_mxfp4")
    before = {name: (one.data_ptr(), one.shape) for name, one in layer.state_dict().items()}
    layer(*given)
    layer.promotion = "regular"
    layer(*given)
    assert {name: (one.data_ptr(), one.shape) for name, one in layer.state_dict().items()} == before


def test_nan_stays_in_its_token_and_tokens_without_experts_are_zero_with_many_rows():
    layer, x, ids, weights = many_rows("fp8_mxfp4", rows=64, bias=True)
    wanted, spoilt = layer(x, ids, weights), x.clone()
    spoilt[70, 3] = float("nan")
    found = layer(spoilt, ids, weights)
    assert found[70].isnan().all() and torch.equal(found[71:], wanted[71:]) and torch.equal(found[:70], wanted[:70])
    assert not layer(x, torch.full_like(ids, -1), weights).any()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    assert torch.equal(layer(x[order], ids[order], weights[order]), wanted[order])


def test_experts_keep_their_promotion_in_pickles_and_copies():
    layer, *given = many_rows("fp8_mxfp4")
    assert layer.promotion == "never"
    wanted = layer(*given)
    with pytest.raises(ArgumentError, match=r"promotion: .* expects 'never' or 'regular', got 'nonsense'"):
        layer.promotion = "nonsense"
    layer.promotion = "regular"
    regular = layer(*given)
    for made in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert made.promotion == made.gate_up.promotion == "regular" and torch.equal(made(*given), regular)
    same = Experts(4, 96, 160, format="fp8_mxfp4", activation="gpt_oss", limit=1.0)
    same.load_state_dict(layer.state_dict())  # which holds weights, and no switch
    assert same.promotion == "never" and torch.equal(same(*given), wanted)


def test_compiled_experts_decide_for_each_number_of_rows():
    layer, x, ids, weights = many_rows("fp8_mxfp4")
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
        found = [compiled(x[:count], ids[:count], weights[:count]) for count in (len(x), len(x) // 2, len(x))]
        if not hasattr(torch.compiler, "is_exporting"):  # torch before 2.7 takes a compiled layer for an exported one
            layer.promotion = "regular"
        for y in found:
            count = len(y)
            assert torch.equal(y, layer(x[:count], ids[:count], weights[:count]))


@pytest.mark.parametrize("kind", ["linear", "grouped", "experts"])
def test_a_compiled_layer_follows_its_switch(kind):
    if kind == "experts":
        layer, *given = many_rows("fp8_mxfp4")
    else:
        layer = Linear(4096, 32, False, "fp8_mxfp4") if kind == "linear" else GroupedLinear(1, 4096, 32, False, "fp8_mxfp4")
        layer.weight.detach().abs_()  # sums of one sign lose most
        layer.freeze()
        given = [torch.rand(4, 4096, dtype=torch.bfloat16), torch.tensor([4], dtype=torch.int32)][: 1 if kind == "linear" else 2]
    torch._dynamo.reset()
    compiled, found = torch.compile(layer, fullgraph=True, backend="aot_eager"), []
    with torch.no_grad():
        for promotion in (None, "regular", "never"):
            if promotion is not None:
                layer.promotion = promotion
            found.append(compiled(*given))
    if hasattr(torch.compiler, "is_exporting") or kind != "experts":  # torch before 2.7 takes compiled experts for exported ones
        assert torch.equal(found[0], found[2]) and not torch.equal(found[0], found[1])
