"""Frozen experts in every format: as near to float64 as their roundings, whatever the routing, the casts and the state_dict."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from tests.torch.nn.expert_layers import BF16, FP4_AS_FP8, MARGIN, deviation, in_float64, mutants, problem  # noqa: E402
from zoo.errors import ArgumentError  # noqa: E402
from zoo.torch import quantize  # noqa: E402
from zoo.torch.nn import Experts  # noqa: E402
from zoo.torch.nn.experts_serving import RECIPES, SWIGLU_APART_FROM  # noqa: E402
from zoo.torch.nn.formats import FORMATS  # noqa: E402


def layer_of(p, format, gates="halves", **options):
    options = {"activation": p.activation, "limit": p.limit, **options}
    return Experts.from_float(p.gate_up(gates), p.down, format, frozen=True, gates=gates, **p.biases(gates), **options)


def rounding(format, x):
    """The relative error that tokens of a format have, on such numbers as these."""
    tokens = FORMATS[format].tokens
    if tokens == "bf16":
        return BF16
    return float((quantize(x, tokens, **FORMATS[format].options).dequantize("f32") - x.float()).norm() / x.float().norm())


def h_rounding(format, x):
    """h is quantised as tokens are; beside 4-bit weights on Hopper with a scale for 1 x 128."""
    return rounding("fp8b128" if FORMATS[format].tokens == "fp8token" else format, x)


def check(layer, p, format, gates="halves"):
    numbers = p.with_numbers(layer.gate_up.dequantize(torch.float64), layer.down.dequantize(torch.float64), gates)
    found = layer(p.x, p.ids, p.weights).double()
    allowed = MARGIN * deviation(numbers, rounding(format, p.x), h_rounding(format, p.x), FP4_AS_FP8 if format == "fp8_nvfp4" else 0.0)
    off = (found - in_float64(numbers)).norm()
    assert off <= allowed, (float(off), allowed)
    for name, mutant in mutants(numbers).items():
        assert (found - in_float64(mutant)).norm() > allowed, name


@pytest.mark.parametrize("gates", ["halves", "interleaved"])
@pytest.mark.parametrize("format", RECIPES)
def test_a_layer_is_off_by_its_roundings_and_by_no_mistake(format, gates):
    p = problem()
    check(layer_of(p, format, gates), p, format, gates)


@pytest.mark.parametrize("model", [{}, {"activation": "gpt_oss", "limit": 1.0}, {"activation": "deepseek_v4", "limit": 1.0}])
@pytest.mark.parametrize("format", ["fp8_mxfp4", "fp8_nvfp4"])
def test_many_rows_an_expert_whose_sums_are_not_promoted_are_off_by_their_roundings(format, model):
    p = problem(tokens=140, **model)
    check(layer_of(p, format), p, format)


@pytest.mark.parametrize("gates", ["halves", "interleaved"])
def test_many_rows_an_expert_in_fp8_have_the_bits_of_a_layer_that_trains(gates):
    p = problem(tokens=2 * SWIGLU_APART_FROM)
    layer = layer_of(p, "fp8b128", gates)
    check(layer, p, "fp8b128", gates)
    trains = Experts.from_float(p.gate_up(gates), p.down, "fp8b128", gates=gates)
    assert torch.equal(layer(p.x, p.ids, p.weights), trains(p.x, p.ids, p.weights))
    fewer = p.x[1:], p.ids[1:], p.weights[1:]
    assert not torch.equal(layer(*fewer), trains(*fewer))


@pytest.mark.parametrize("model", [{"activation": "silu", "limit": None}, {"activation": "deepseek_v4"}, {}])
def test_many_rows_an_expert_keep_limits_and_biases_that_the_quantiser_lacks(model):
    p = replace(problem(tokens=2 * SWIGLU_APART_FROM, activation="gpt_oss", limit=1.0), **model)
    check(layer_of(p, "fp8b128"), p, "fp8b128")


@pytest.mark.parametrize(
    ("format", "gates"), [*((name, "interleaved") for name in RECIPES), ("fp8b128", "halves"), ("fp8_nvfp4", "halves"), ("mxfp8", "halves")]
)
def test_biases_and_limits_are_those_of_their_gates_and_ups(format, gates):
    p = problem(activation="gpt_oss", limit=1.0)
    check(layer_of(p, format, gates), p, format, gates)


@pytest.mark.parametrize("format", RECIPES)
def test_frozen_weights_are_what_the_quantiser_makes_of_them(format):
    p, form = problem(), FORMATS[format]
    direction = {"direction": "squares"} if form.weights == "fp8b128" else {"layout": "plain"}
    options = {"scaling": "pow2"} if form.weights == "fp8b128" else {} if form.weights == "nvfp4" else {"rounding": "rceil"}
    layer = layer_of(p, format)
    for weights, given in ((layer.gate_up, p.gate_up("halves")), (layer.down, p.down)):
        assert torch.equal(weights.dequantize(torch.float32), quantize(given, form.weights, **direction, **options).dequantize("f32"))


@pytest.mark.parametrize("format", RECIPES)
def test_transposed_weights_as_gpt_oss_has_them_are_frozen_as_their_copies(format):
    p = problem()
    weights = p.gate_up("halves"), p.down
    views = [one.mT.contiguous().mT for one in weights]
    copied, made = (Experts.from_float(*some, format, frozen=True) for some in (weights, views))
    assert torch.equal(made(p.x, p.ids, p.weights), copied(p.x, p.ids, p.weights))


@pytest.mark.parametrize("format", RECIPES)
def test_a_cast_of_the_module_leaves_quantised_numbers_alone(format):
    p = problem()
    layer = layer_of(p, format)
    wanted = layer(p.x, p.ids, p.weights)
    for cast in (lambda one: one.half(), lambda one: one.to(torch.bfloat16), lambda one: one.double()):
        assert torch.equal(cast(layer)(p.x, p.ids, p.weights), wanted)


@pytest.mark.parametrize("format", RECIPES)
def test_a_state_dict_makes_the_same_layer_and_no_layer_of_another_format(format):
    p = problem()
    layer = layer_of(p, format)
    wanted, state = layer(p.x, p.ids, p.weights), layer.state_dict()
    same = Experts(4, 128, 128, format=format).freeze()
    same.load_state_dict(state)
    assert torch.equal(same(p.x, p.ids, p.weights), wanted)
    unmade = Experts(4, 128, 128, format=format, device="meta").freeze()
    unmade.load_state_dict(state, assign=True)
    assert torch.equal(unmade(p.x, p.ids, p.weights), wanted)
    for other in RECIPES:
        equal_bytes = {format, other} == {"mxfp4", "mxfp8_mxfp4"}  # which differ where K is no multiple of 128
        if other != format and not equal_bytes:
            with pytest.raises(ArgumentError, match=r"another format|expected"):
                Experts(4, 128, 128, format=other).freeze().load_state_dict(state)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_state_of_other_settings_is_refused_by_both_names(frozen):
    """Shapes are equal, of weights that train and of packed ones."""
    pairs = [{"gates": one} for one in ("halves", "interleaved")], [{"activation": one} for one in ("silu", "gpt_oss")]
    limits = [{"activation": "gpt_oss", "limit": one} for one in (None, 7.0)]
    ranks = [{"total": 4, "first": one} for one in (2, 0)]  # where one rank saves a file for all
    for here, there in (*pairs, limits, ranks):
        format, name = "fp8_mxfp4" if frozen else "fp8b128", [*here][-1]
        state, file = torch.nn.Sequential(Experts(2, 64, 64, format=format, **there)).state_dict(), io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        layer = torch.nn.Sequential(Experts(2, 64, 64, format=format, **here))
        sentence = f"0: the layer has {name}={here[name]!r}, and the state is of a layer with {name}={there[name]!r}; "
        for one in (state, torch.load(file, weights_only=True)):
            with pytest.raises(ArgumentError, match=re.escape(sentence)):
                layer.load_state_dict(one)
        layer.load_state_dict(layer.state_dict())
        layer.load_state_dict(dict(state))  # as a file of tensors alone has it


def test_a_state_of_all_experts_cut_by_hand_loads_where_the_part_is():
    whole, part = Experts(4, 64, 64), Experts(2, 64, 64, first=2, total=4)
    state = whole.state_dict()  # which tells first=0 after the cut
    for name, one in state.items():
        state[name] = one[2:]
    part.load_state_dict(state)
    assert torch.equal(part.down.weight, whole.down.weight[2:])


def test_a_limit_of_another_type_is_a_float_in_a_file():
    class Number(float):
        """As numpy.float64, of which torch.load(weights_only=True) knows nothing."""

    file = io.BytesIO()
    torch.save(Experts(2, 64, 64, activation="gpt_oss", limit=Number(7)).state_dict(), file)
    file.seek(0)
    Experts(2, 64, 64, activation="gpt_oss", limit=7).load_state_dict(torch.load(file, weights_only=True))


def test_the_shapes_of_a_frozen_state_tell_the_order_of_gates():
    state = Experts(4, 128, 64, gates="interleaved").freeze().state_dict()
    with pytest.raises(ArgumentError, match="gate_up: elements"):
        Experts(4, 128, 64).freeze().load_state_dict(dict(state))


def test_float_weights_do_not_load_into_frozen_ones_nor_the_other_way_round():
    trains, frozen = Experts(4, 128, 64), Experts(4, 128, 64).freeze()
    with pytest.raises(ArgumentError, match="frozen"):
        frozen.load_state_dict(trains.state_dict())
    with pytest.raises(ArgumentError, match="frozen"):
        Experts(4, 128, 64).load_state_dict(frozen.state_dict())


@pytest.mark.parametrize("format", RECIPES)
def test_nan_of_a_routing_weight_stays_in_its_token(format):
    p = problem()
    weights = p.weights.clone()
    weights[5, 1] = float("nan")
    layer = layer_of(p, format)
    found, wanted = layer(p.x, p.ids, weights), layer(p.x, p.ids, p.weights)
    assert found[5].isnan().all()
    found[5] = wanted[5]
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("format", [name for name in RECIPES if name != "nvfp4"])  # whose tensor scale is of all tokens
def test_nan_of_a_token_stays_in_it(format):
    p = problem()
    x = p.x.clone()
    x[5, 3] = float("nan")
    layer = layer_of(p, format)
    found, wanted = layer(x, p.ids, p.weights), layer(p.x, p.ids, p.weights)
    assert found[5].isnan().all()
    found[5] = wanted[5]
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("format", RECIPES)
def test_no_token_no_row_and_one_expert_for_all_are_right(format):
    p = problem()
    layer = layer_of(p, format)
    assert layer(p.x[:0], p.ids[:0], p.weights[:0]).shape == (0, 128)
    assert not layer(p.x, torch.full_like(p.ids, -1), p.weights).any()
    one = replace(p, ids=torch.full_like(p.ids[:, :1], 3), weights=p.weights[:, :1])
    numbers = one.with_numbers(layer.gate_up.dequantize(torch.float64), layer.down.dequantize(torch.float64), "halves")
    allowed = MARGIN * deviation(numbers, rounding(format, p.x), h_rounding(format, p.x), FP4_AS_FP8 if format == "fp8_nvfp4" else 0.0)
    assert (layer(one.x, one.ids, one.weights) - in_float64(numbers)).norm() <= allowed


@pytest.mark.parametrize("format", RECIPES)
def test_a_token_has_the_same_bits_in_another_order_of_tokens(format):
    p = problem()
    layer, order = layer_of(p, format), torch.randperm(20, generator=torch.Generator().manual_seed(1))
    assert torch.equal(layer(p.x, p.ids, p.weights)[order], layer(p.x[order], p.ids[order], p.weights[order]))


def test_ids_out_of_range_are_dropped_or_refused_as_asked():
    p = problem()
    layer = layer_of(p, "bf16_mxfp4")
    wrong = p.ids.clone()
    wrong[3, 0] = 4
    dropped = torch.where(wrong > 3, -1, wrong)
    assert torch.equal(layer(p.x, wrong, p.weights), layer(p.x, dropped, p.weights))
    layer.check_ids = True
    layer(p.x, dropped, p.weights)
    for id in (4, -2, 2**31):
        wrong[3, 0] = id
        with pytest.raises(RuntimeError, match=r"outside -1 \.\. 3"):
            layer(p.x, wrong, p.weights)


def test_the_ranks_of_an_expert_parallel_layer_add_up_to_the_layer():
    p = problem()
    wanted = layer_of(p, "bf16_mxfp4")(p.x, p.ids, p.weights)
    halves = []
    for first in (0, 2):
        here = replace(p, gate=p.gate[first : first + 2], up=p.up[first : first + 2], down=p.down[first : first + 2])
        halves.append(layer_of(here, "bf16_mxfp4", first=first, total=4, check_ids=True)(p.x, p.ids, p.weights))
    assert (halves[0] + halves[1] - wanted).norm() <= 4 * BF16 * wanted.norm()
    assert all(half.any() for half in halves)


def test_every_form_of_ids_and_of_tokens_gives_the_same_bits():
    p = problem()
    layer = layer_of(p, "fp8b128")
    wanted = layer(p.x, p.ids, p.weights)
    assert torch.equal(layer(p.x, p.ids.int(), p.weights), wanted)
    assert torch.equal(layer(p.x.view(2, 10, 128), p.ids, p.weights), wanted.view(2, 10, 128))
    assert torch.equal(layer(p.x.view(2, 10, 128), p.ids.view(2, 10, 2), p.weights.view(2, 10, 2)), wanted.view(2, 10, 128))
    assert torch.equal(layer(p.x.t().contiguous().t(), p.ids.t().contiguous().t(), p.weights), wanted)
    for dtype in (torch.float32, torch.float16):
        found = layer(p.x.to(dtype), p.ids, p.weights)
        assert found.dtype == dtype and torch.equal(found.bfloat16(), wanted)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(p.x.float(), p.ids, p.weights), wanted)


def test_a_shared_expert_is_added_once():
    p = problem()
    shared = torch.nn.Linear(128, 128, bias=False, dtype=torch.bfloat16)
    with torch.no_grad():
        alone, found = (layer_of(p, "fp8b128", shared=one)(p.x, p.ids, p.weights) for one in (None, shared))
        exact = alone.double() + shared(p.x).double()
    assert (found - exact).norm() <= 3 * BF16 * (alone.double().norm() + exact.norm())
    flat = layer_of(p, "fp8b128", shared=torch.nn.Sequential(torch.nn.Flatten(0, 1), shared))
    assert torch.equal(flat(p.x[None], p.ids, p.weights)[0], found)
    assert {"shared.weight", "down.scales"} <= layer_of(p, "fp8b128", shared=shared).state_dict().keys()


@pytest.mark.parametrize("format", ["fp8b128", "fp8_nvfp4", "mxfp8"])
def test_a_compiled_layer_has_the_same_bits(format):
    p = problem()
    layer = layer_of(p, format)
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(layer, fullgraph=True, backend="aot_eager")(p.x, p.ids, p.weights)
    assert torch.equal(found, layer(p.x, p.ids, p.weights))


@pytest.mark.parametrize("trains", [False, True])
def test_a_layer_without_memory_has_results_without_memory(trains):
    layer = Experts(4, 128, 128, check_ids=True, device="meta")
    given = [one.to("meta") for one in (torch.zeros(2, 3, 128), torch.zeros(6, 2).int(), torch.zeros(6, 2))]
    y = (layer if trains else layer.freeze())(*given)
    assert y.is_meta and y.shape == (2, 3, 128) and y.dtype == torch.float32


@pytest.mark.parametrize("format", RECIPES)
def test_no_size_depends_on_the_routing(format):
    """Fake tensors have no numbers, so what reads one fails: a CUDA graph can replay the layer."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), torch.no_grad():
        layer = Experts(4, 128, 128, format=format, check_ids=True, device="meta").freeze().to_empty(device="cpu")
        ids = torch.zeros(24, 2, dtype=torch.int64)
        assert layer(torch.empty(24, 128, dtype=torch.bfloat16), ids, torch.empty(24, 2)).shape == (24, 128)


def test_frozen_experts_refuse_to_drop_the_gradient_of_x_and_pass_that_of_the_router():
    p = problem()
    layer, weights = layer_of(p, "fp8b128"), p.weights.clone().requires_grad_()
    with pytest.raises(ArgumentError, match=r"give x no gradient; call the layer under torch\.no_grad"):
        layer(p.x.clone().requires_grad_(), p.ids, weights)
    found = layer(p.x, p.ids, weights)
    (gradient,) = torch.autograd.grad(found.float().square().sum(), weights)
    one = torch.zeros_like(weights)
    one[4, 1] = 0.5  # y is linear in it, so the difference is exact but for rounding y
    with torch.no_grad():
        more, less = (layer(p.x, p.ids, weights + change).double().square().sum() for change in (one, -one))
    assert gradient[4, 1] == pytest.approx(float(more - less), rel=0.02) and gradient[0, 0] == 0


def frozen(format, **options):
    return Experts.from_float(torch.zeros(2, 128, 128), torch.zeros(2, 128, 64), format, frozen=True, **options)


def half_frozen(name):
    layer = Experts(2, 128, 64)
    getattr(layer, name).freeze()
    return layer


def three(**others):
    return {"x": torch.zeros(3, 128), "ids": torch.zeros(3, 2).int(), "weights": torch.zeros(3, 2), **others}.values()


def with_biases(of_gates, of_down):
    return Experts.from_float(torch.zeros(4, 128, 128), torch.zeros(4, 128, 64), gate_up_bias=of_gates, down_bias=of_down)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Experts(4, 128, 64, format="fp7"), "no format 'fp7'"),
        (lambda: Experts(4, 128, 64, activation="relu"), "no activation 'relu'; there are silu, gpt_oss"),
        (lambda: Experts(4, 128, 64, gates="both"), "gates: expected 'halves' or 'interleaved'"),
        (lambda: Experts(4, 128, 64, limit=7.0), "silu has no limit"),
        (lambda: Experts(4, 128, 64, activation="gpt_oss", limit=-1.0), "limit: expected a number above 0"),
        (lambda: Experts(4, 120, 64), "hidden: fp8b128 needs a multiple of 16, got 120"),
        (lambda: frozen("mxfp8"), r"gates='halves' needs a multiple of 128, got 64; .* pass gates='interleaved'"),
        (lambda: half_frozen("gate_up")(*three()), "one of gate_up and down is frozen and the other is not"),
        (lambda: half_frozen("down")(*three()), "one of gate_up and down is frozen and the other is not"),
        (lambda: Experts(0, 128, 64), "experts: expected 1 or more, got 0"),
        (lambda: Experts(4, 128, 64, first=-1), r"first: expected a whole number of 0 to \d+, got -1"),
        (lambda: Experts(4.0, 128, 64), r"experts: expected a whole number of 0 to \d+, got 4\.0"),
        (lambda: Experts(4, 128, 64, total=8.5), r"total: expected a whole number of 0 to \d+, got 8\.5"),
        (lambda: Experts(4, 128, 64, activation="gpt_oss", limit="7"), "limit: expected a number above 0, got '7'"),
        (lambda: Experts(4, 128, 64, first=2, total=5), r"ids 2 \.\. 5 are not inside 0 \.\. 4"),
        (lambda: Experts(2, 128, 64)(*three(x=torch.zeros(3, 120))), r"x: expected \(\.\.\., 128\) in bf16, f16 or f32, got \(3, 120\)"),
        (lambda: Experts(2, 128, 64)(*three(x=torch.zeros(3, 128).double())), "in bf16, f16 or f32, got .* in torch.float64"),
        (lambda: Experts(2, 128, 64)(*three(x=torch.zeros(3, 128, device="meta"))), "x: is on meta, the layer on cpu; move one of them"),
        (lambda: frozen("fp8b128")(*three(ids=torch.zeros(3, 2, device="meta").int())), "ids: is on meta, the layer on cpu; move one"),
        (lambda: Experts(2, 128, 64, device="meta")(*three()), "x: is on cpu, the layer on meta; move one of them"),
        (
            lambda: Experts(2, 128, 64)(*three(weights=torch.zeros(3, 2).to_sparse())),
            "weights: expected a dense tensor, got torch.sparse_coo",
        ),
        (lambda: Experts(2, 128, 64)(*three(ids=[[0, 1]] * 3)), "ids: expected a tensor of rows, got a list"),
        (lambda: Experts(2, 128, 64)(*three(weights=torch.tensor(1.0))), "weights: expected a tensor of rows, got a number"),
        (lambda: Experts(2, 128, 64)(*three(ids=torch.zeros(3, 0).int())), r"ids: expected \(3, top_k\) in int32 or int64, got \(3, 0\)"),
        (
            lambda: Experts(2, 128, 64, shared=torch.nn.Linear(128, 64))(*three()),
            r"shared: expected a result \(3, 128\), as x, got \(3, 64\)",
        ),
        (lambda: Experts.from_float([1.0], [2.0]), "gate_up: expected a tensor in bf16, f16 or f32, got a list"),
        (lambda: Experts.from_float(torch.ones(4, 128, 128).int(), torch.ones(4, 128, 64)), "gate_up: .* f32, got torch.int32"),
        (lambda: Experts.from_float(torch.zeros(4, 128, 128), torch.zeros(4, 128, 64).double()), "down: .* f32, got torch.float64"),
        (lambda: Experts.from_quantized(torch.zeros(4, 128, 128), torch.zeros(4, 128, 64), "mxfp8"), "gate_up: .* by rows, got a Tensor"),
        (lambda: Experts.from_quantized(*[quantize(torch.zeros(128, 128), "mxfp8")] * 2, "mxfp8"), "gate_up: expected quantised weights"),
        (lambda: Experts.from_float(torch.zeros(4, 128, 128), torch.zeros(4, 64, 128)), r"expected gate_up \(E, 2 I, K\)"),
        (lambda: Experts.from_float(torch.zeros(4, 128, 128), torch.zeros(4, 128, 64), down_bias=torch.zeros(4, 128)), "both biases"),
        (lambda: with_biases(torch.zeros(5, 128), torch.zeros(4, 128)), r"gate_up_bias: expected numbers \(4, 128\), got \(5, 128\) in "),
        (lambda: with_biases(torch.zeros(4, 128), torch.zeros(4, 1)), r"down_bias: expected numbers \(4, 128\), got \(4, 1\) in "),
        (lambda: Experts(2, 128, 64)(torch.zeros(3, 64), torch.zeros(3, 2).int(), torch.zeros(3, 2)), r"x: expected \(\.\.\., 128\)"),
        (lambda: Experts(2, 128, 64)(torch.zeros(3, 128), torch.zeros(2, 2).int(), torch.zeros(2, 2)), r"ids: expected \(3, top_k\)"),
        (lambda: Experts(2, 128, 64)(torch.zeros(3, 128), torch.zeros(3, 2), torch.zeros(3, 2)), "int32 or int64"),
        (
            lambda: Experts(2, 128, 64)(torch.zeros(3, 128), torch.zeros(3, 2).int(), torch.zeros(3, 1)),
            r"weights: expected numbers \(3, 2\)",
        ),
    ],
)
def test_what_does_not_fit_is_a_sentence(made, words):
    with pytest.raises(ArgumentError, match=words):
        made()


@pytest.mark.parametrize("experts", [1, 3, 5])
def test_a_bias_of_another_number_of_experts_is_refused_rather_than_read_past_its_end(experts):
    p = problem()
    layer = layer_of(p, "fp8b128", gate_up_bias=torch.zeros(4, 256), down_bias=torch.zeros(4, 128))
    layer.down.bias = torch.nn.Parameter(torch.ones(experts, 128), requires_grad=False)
    with pytest.raises(ArgumentError, match=rf"bias: expected \(4, 128\), got \({experts}, 128\)"):
        layer(p.x, p.ids, p.weights)
