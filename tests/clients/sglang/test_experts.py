"""SGLang's layers of experts with zoo's hooks, loaded by SGLang's loaders from tiny checkpoints, beside float32."""

import contextlib
import importlib
import types

import pytest

pytest.importorskip("sglang", reason="SGLang is not installed")
import torch

from tests.clients.experts import EXPERTS, HIDDEN, INTERMEDIATE, TOP, clamped, gpt_oss, in_float32, interleaved, routed, silu, weights_of
from tests.clients.sglang.conftest import BLACKWELL, HOPPER
from tests.clients.sglang.test_linear_layers import config_of, unpublished, why_no_update
from tests.clients.weights import error
from zoo.errors import ArgumentError

BOUNDS = {"fp8b128": 0.06, "fp8_nvfp4": 0.06, "bf16_mxfp4": 0.01}
RUNNERS = {"fp8b128": "auto", "mxfp8": "triton", "nvfp4": "auto", "mxfp4": "triton_kernel"}
GPT_OSS = {"gemm1_alpha": 1.702, "gemm1_clamp_limit": 7.0}
_PACKAGE = "sglang.srt.layers.quantization"


@pytest.fixture
def runner(gpu, bf16, monkeypatch):
    """Sets SGLang's runner in a process of one rank, on a GPU as far as methods of experts ask."""
    from sglang.srt.layers.moe.utils import MoeRunnerBackend
    from sglang.srt.runtime_context import get_flags

    modelopt = importlib.import_module(f"{_PACKAGE}.modelopt_quant")
    monkeypatch.setattr(modelopt, "is_cuda", lambda: True)
    monkeypatch.setattr(modelopt, "get_device_capability", lambda *_: gpu)
    with of_rank(0):
        yield lambda name: monkeypatch.setattr(get_flags().moe, "runner_backend", MoeRunnerBackend(name))


def of_rank(rank, cut=1, spread=1):
    """The place of a process among ranks over which experts are cut, or spread."""
    from sglang.srt.runtime_context import get_parallel

    ranks, group = cut * spread, types.SimpleNamespace(world_size=cut * spread)
    experts = {"moe_tp_size": cut, "moe_tp_rank": rank % cut, "moe_ep_size": spread, "moe_ep_rank": rank // cut}
    return get_parallel().override(tp_size=ranks, attn_tp_size=ranks, tp_group=group, **experts)


def layer_of(weights, runner, name=None, **options):
    from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
    from sglang.srt.layers.quantization.mxfp4 import Mxfp4Config

    runner(name or RUNNERS[weights])
    config = Mxfp4Config(is_checkpoint_mxfp4_serialized=True) if weights == "mxfp4" else config_of(weights)
    sizes = {"num_experts": EXPERTS, "top_k": TOP, "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "layer_id": 3}
    return FusedMoE(**{**sizes, **options}, quant_config=config, prefix="model.layers.3.mlp.experts")


def load(layer, made, finish=True):
    for expert, matrices in enumerate(made):
        for matrix, (tensors, _) in zip(("w1", "w3", "w2"), matrices.values(), strict=True):
            for name, tensor in tensors.items():
                there = next(one for end in (name, f"{name}_inv") if hasattr(layer, one := f"{'w2' if matrix == 'w2' else 'w13'}_{end}"))
                parameter = getattr(layer, there)
                parameter.weight_loader(parameter, tensor, f"{expert}.{matrix}.{there}", shard_id=matrix, expert_id=expert)
    if finish:
        layer.quant_method.process_weights_after_loading(layer)


def load_gpt_oss(layer, made, biases):
    """gpt-oss stores experts together, each gate before its up."""
    tensors = {f"w13_{name}": interleaved(made, name) for name in ("weight", "weight_scale")}
    tensors |= {f"w2_{name}": torch.stack([one["down_proj"][0][name] for one in made]) for name in ("weight", "weight_scale")}
    tensors |= {
        "w13_weight_bias": torch.stack([biases["gate_proj"], biases["up_proj"]], dim=2).flatten(1),
        "w2_weight_bias": biases["down_proj"],
    }
    for name, one in tensors.items():
        parameter = getattr(layer, name)
        parameter.weight_loader(parameter, one, weight_name=name, shard_id=None, expert_id=None)
    layer.quant_method.process_weights_after_loading(layer)


def run(layer, x, weights, ids):
    from sglang.srt.layers.moe.topk import StandardTopKOutput

    return layer(x, StandardTopKOutput(weights, ids, torch.zeros(len(x), EXPERTS)))


@pytest.mark.parametrize(
    ("weights", "gpu", "format"),
    [
        ("fp8b128", HOPPER, "fp8b128"),
        ("fp8b128", BLACKWELL, "fp8b128"),
        ("mxfp8", HOPPER, "fp8b128"),
        ("nvfp4", HOPPER, "fp8_nvfp4"),
    ],
    indirect=["gpu"],
)
def test_experts_are_served_by_zoo_and_near_float32(weights, gpu, format, runner):
    from zoo.sglang.support import served

    layer = layer_of(weights, runner)
    made, numbers = weights_of(weights)
    load(layer, made)
    assert served == {(f"{'nvfp4' if weights == 'nvfp4' else 'fp8b128'} experts", format): 1}
    x, *chosen = routed()
    chosen[1][3, 1] = chosen[1][5, 0] = -1
    y = run(layer, x, *chosen)
    assert y.shape == x.shape and y.dtype == torch.bfloat16
    assert error(y, in_float32(numbers, x, *chosen, silu)) < BOUNDS[format]
    assert run(layer, *(one[:0] for one in (x, *chosen))).shape == (0, HIDDEN)


@pytest.mark.parametrize("name", ["triton_kernel", "marlin"])
def test_gpt_oss_has_biases_interleaved_gates_its_own_activation_and_ids(name, runner):
    """SGLang gives triton_kernels no ids, and fills the sizes of the weights up to multiples that these sizes are not."""
    from sglang.srt.layers.moe.topk import TopK, TopKOutputFormat

    hidden, intermediate = 288, 160
    layer = layer_of("mxfp4", runner, name, with_bias=True, hidden_size=hidden, intermediate_size=intermediate, **GPT_OSS)
    topk = TopK(top_k=TOP, renormalize=True, layer_id=3)
    topk.bind_runner_backend(layer.runner_backend)
    assert topk.topk_config.output_format == TopKOutputFormat.STANDARD
    made, numbers = weights_of("mxfp4", hidden, intermediate)
    biases = {name: torch.randn(one.shape[:2], dtype=torch.bfloat16) for name, one in numbers.items()}
    load_gpt_oss(layer, made, biases)
    x, *chosen = routed(hidden=hidden)
    assert error(run(layer, x, *chosen), in_float32(numbers, x, *chosen, gpt_oss, biases)) < BOUNDS["bf16_mxfp4"]


@pytest.mark.parametrize(("options", "act"), [({"swiglu_limit": 1.0}, clamped(1.0)), ({**GPT_OSS, "gate_up_interleaved": False}, gpt_oss)])
def test_an_activation_of_another_model_is_kept(options, act, runner):
    layer = layer_of("fp8b128", runner, **options)
    made, numbers = weights_of("fp8b128")
    load(layer, made)
    x, *chosen = routed()
    exact = in_float32(numbers, x, *chosen, act)
    assert error(run(layer, x, *chosen), exact) < BOUNDS["fp8b128"] < error(in_float32(numbers, x, *chosen, silu), exact)


@pytest.mark.parametrize("weights", ["fp8b128", "nvfp4"])
def test_the_factor_of_routed_experts_is_multiplied_once(weights, runner):
    layer = layer_of(weights, runner, routed_scaling_factor=2.5)
    made, numbers = weights_of(weights)
    load(layer, made)
    x, *chosen = routed()
    assert not layer.should_fuse_routed_scaling_factor_in_topk
    assert error(run(layer, x, *chosen), 2.5 * in_float32(numbers, x, *chosen, silu)) < 0.06


@pytest.mark.parametrize("ranks", [{"cut": 2}, {"spread": 2}])
def test_two_ranks_sum_up_to_the_whole(ranks, runner, monkeypatch):
    """Where experts are spread, ids of the other rank add nothing."""
    from sglang.srt.layers.moe.token_dispatcher import standard

    monkeypatch.setattr(standard, "get_device", lambda: "cpu")
    made, numbers = weights_of("mxfp4")
    x, *chosen = routed()
    total = 0
    for rank in (0, 1):
        with of_rank(rank, **ranks):
            layer = layer_of("mxfp4", runner)
            load(layer, made)
            total = total + run(layer, x, *chosen).float()
        assert layer.quant_method.zoo.experts == (2 if "spread" in ranks else 4)
    assert error(total, in_float32(numbers, x, *chosen, silu)) < BOUNDS["bf16_mxfp4"]


REFUSED = {
    "another runner": ("fp8b128", "deep_gemm", {}, "MoE runner is deep_gemm"),
    "SGLang's runner for MXFP8": ("mxfp8", "flashinfer_trtllm", {}, "needs --moe-runner-backend triton"),
    "another activation": ("fp8b128", None, {"activation": "gelu"}, "activation gelu"),
    "a limit after silu": ("fp8b128", None, {"gemm1_clamp_limit": 7.0}, "activation silu"),
    "a limit of another slope": ("fp8b128", None, {"gemm1_alpha": 1.5, "gemm1_clamp_limit": 7.0}, "activation silu"),
    "no gates": ("fp8b128", None, {"is_gated": False}, "activation silu"),
    "weights on the input": ("fp8b128", None, {"apply_router_weight_on_input": True}, "router weights"),
    "rows that are not added": ("fp8b128", None, {"no_combine": True}, "not added"),
    "a size": ("nvfp4", None, {"hidden_size": 272}, "multiple of 32"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_layers_that_zoo_cannot_compute_keep_sglangs_method_with_one_warning(case, runner, caplog):
    weights, name, options, word = REFUSED[case]
    layers = [layer_of(weights, runner, name, **options) for _ in range(2)]
    assert not any(one.quant_method.zoo_serves for one in layers)
    said = [one.getMessage() for one in caplog.records if one.name == "sglang.zoo"]
    assert len(said) == 1 and word in said[0] and "stay with SGLang's own kernel" in said[0]


SETTINGS = [
    "LoRA",
    "experts move between ranks",
    "tokens are sent",
    "--enable-deterministic-inference",
    "--load-format presharded",
    "not published",
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_that_zoo_cannot_serve_keep_sglangs_method(setting, runner, monkeypatch, caplog):
    from sglang.srt.layers.moe.utils import MoeA2ABackend
    from sglang.srt.runtime_context import get_exec, get_lora, get_model

    from zoo.sglang import experts

    monkeypatch.setattr(
        experts, "get_moe_a2a_backend", lambda: MoeA2ABackend.DEEPEP if setting == "tokens are sent" else MoeA2ABackend.NONE
    )
    if setting == "not published":
        monkeypatch.setattr(experts, "get_lora", unpublished)
    scopes = {
        "LoRA": lambda: get_lora().override(enable_lora=True),
        "experts move between ranks": lambda: get_exec().moe.override(enable_eplb=True),
        "--enable-deterministic-inference": lambda: get_exec().deterministic.override(enable_deterministic_inference=True),
        "--load-format presharded": lambda: get_model().override(load_format="presharded"),
    }
    with scopes.get(setting, contextlib.nullcontext)():
        layer = layer_of("fp8b128", runner)
    assert not layer.quant_method.zoo_serves and setting in caplog.text


def test_a_method_that_derives_from_a_known_one_is_left_alone_with_one_warning(runner, caplog):
    """Muse Spark's has the same functions and parameters of other names."""
    from sglang.srt.layers.quantization.modelopt_quant import ModelOptNvFp4FusedMoEMethod

    class Derived(ModelOptNvFp4FusedMoEMethod):
        pass

    runner("auto")
    layer = layer_of("nvfp4", runner, quant_method=Derived(config_of("nvfp4")))
    assert not layer.quant_method.zoo_serves and "another method" in caplog.text


@pytest.mark.parametrize("weights", ["fp8b128", "mxfp4"])
def test_kernels_that_do_not_run_keep_sglangs_method_while_it_can_choose_its_router(weights, runner, monkeypatch, caplog):
    from sglang.srt.layers.moe.topk import TopK, TopKOutputFormat

    from zoo.sglang import experts

    monkeypatch.setattr(experts, "_read", lambda method, *_: method.weights_of_another_sglang)
    layer = layer_of(weights, runner)
    assert not layer.quant_method.zoo_serves and "weights_of_another_sglang" in caplog.text
    topk = TopK(top_k=TOP, renormalize=True, layer_id=3)
    topk.bind_runner_backend(layer.runner_backend)
    assert (topk.topk_config.output_format == TopKOutputFormat.STANDARD) == (weights == "fp8b128")


@pytest.mark.parametrize("weights", ["fp8b128", "mxfp4"])
def test_weights_that_zoo_refuses_go_through_sglangs_method_if_that_reads_ids(weights, runner, monkeypatch, caplog):
    from sglang.srt.layers.quantization.fp8 import Fp8MoEMethod

    from zoo.sglang import experts

    seen = []
    monkeypatch.setattr(Fp8MoEMethod, "process_weights_after_loading_block_quant", lambda self, layer: seen.append(layer))
    layer = layer_of(weights, runner)
    monkeypatch.setattr(experts, "_read", lambda method, *_: vars(method)["weights_of_another_sglang"])
    if weights == "mxfp4":
        with pytest.raises(ArgumentError, match=r"weights_of_another_sglang.*set ZOO_SGLANG=0"):
            layer.quant_method.process_weights_after_loading(layer)
        return
    layer.quant_method.process_weights_after_loading(layer)
    assert seen == [layer] and "weights_of_another_sglang" in caplog.text and not layer.quant_method.zoo_serves


def test_packed_weights_are_not_packed_again_and_others_stay_where_captured_graphs_read_them(runner):
    made, numbers = weights_of("fp8b128")
    layer = layer_of("fp8b128", runner)
    load(layer, [made[0]] * EXPERTS)
    place = layer.quant_method.zoo.down.elements.data_ptr()
    load(layer, made)
    x, *chosen = routed()
    assert layer.quant_method.zoo.down.elements.data_ptr() == place
    assert error(run(layer, x, *chosen), in_float32(numbers, x, *chosen, silu)) < BOUNDS["fp8b128"]
    packed = layer_of("nvfp4", runner)
    load(packed, weights_of("nvfp4")[0])
    assert why_no_update(layer) is None and "restart SGLang" in why_no_update(packed)
    with pytest.raises(ArgumentError, match="restart SGLang"):
        packed.quant_method.process_weights_after_loading(packed)


def test_sglang_lets_hopper_load_mxfp8(gpu):
    config = config_of("mxfp8")
    assert config.convert_mxfp8_to_block_fp8 and config.get_min_capability() == 80
    assert config_of("fp8b128").convert_mxfp8_to_block_fp8 is None


def test_sglang_still_refuses_to_quantise_to_mxfp8_on_hopper(gpu):
    """Which its conversion cannot read."""
    from sglang.srt.layers.quantization.fp8 import Fp8Config

    assert Fp8Config(use_mxfp8=True).get_min_capability() == 100
