"""vLLM's layers of experts, loaded by vLLM's loaders from tiny checkpoints, beside float32."""

import importlib

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")
import torch

from tests.clients.experts import EXPERTS, HIDDEN, INTERMEDIATE, TOP, clamped, gpt_oss, in_float32, interleaved, routed, silu, weights_of
from tests.clients.vllm.test_linear_layers import (
    BLACKWELL,
    FP8_BLOCKS,
    FP8_TOKENS,
    HOPPER,
    MX,
    MXFP8,
    NV,
    compressed_tensors_config,
    fp8_config,
    modelopt_config,
    mxfp8_config,
)
from tests.clients.weights import error, in_compressed_tensors

BOUNDS = {
    "fp8b128": 0.06,
    "mxfp8": 0.06,
    "fp8_nvfp4": 0.06,
    "bf16_nvfp4": 0.01,
    "nvfp4": 0.2,
    "bf16_mxfp4": 0.01,
    "fp8_mxfp4": 0.06,
    "mxfp8_mxfp4": 0.06,
    "mxfp4": 0.25,
}
_LAYERS = "vllm.model_executor.layers"
_numbers = iter(range(1000))  # vLLM wants each layer's name once


@pytest.fixture
def chosen(monkeypatch):
    """What vLLM chooses on a GPU; on a CPU most of its choices raise, before zoo is asked."""
    from vllm.model_executor.layers.fused_moe.experts.marlin_moe import MarlinExperts
    from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
    from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import Mxfp4MoeBackend
    from vllm.model_executor.layers.fused_moe.oracle.nvfp4 import NvFp4MoeBackend

    compressed = "quantization.compressed_tensors.compressed_tensors_moe.compressed_tensors_moe_w4a4_nvfp4"
    for module, name, backend in (
        ("quantization.fp8", "select_fp8_moe_backend", Fp8MoeBackend.MARLIN),
        ("quantization.modelopt", "select_mxfp8_moe_backend", Fp8MoeBackend.MARLIN),
        ("quantization.modelopt", "select_nvfp4_moe_backend", NvFp4MoeBackend.MARLIN),
        (compressed, "select_nvfp4_moe_backend", NvFp4MoeBackend.MARLIN),
        ("quantization.mxfp4", "select_mxfp4_moe_backend", Mxfp4MoeBackend.MARLIN),
        ("quantization.quark.quark_moe", "select_mxfp4_moe_backend", Mxfp4MoeBackend.MARLIN),
        ("quantization.mxfp4", "select_deepseek_v4_mxfp4_moe_backend", Mxfp4MoeBackend.MARLIN),
    ):
        monkeypatch.setattr(importlib.import_module(f"{_LAYERS}.{module}"), name, lambda *_, found=backend, **__: (found, MarlinExperts))


def gpt_oss_config():
    from vllm.model_executor.layers.quantization.mxfp4 import GptOssMxfp4Config

    return GptOssMxfp4Config()


def gpt_oss_experts():
    """The class that vLLM's model of gpt-oss asks for."""
    from vllm.model_executor.models.gpt_oss import GptOssRoutedExperts

    return GptOssRoutedExperts


def mxfp4_config():
    from vllm.model_executor.layers.quantization.mxfp4 import Mxfp4Config

    return Mxfp4Config()


def deepseek_v4_config():
    from vllm.models.deepseek_v4.quant_config import DeepseekV4FP8Config

    return DeepseekV4FP8Config(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=[128, 128])


def auto_round_config():
    from vllm.model_executor.layers.quantization.inc import INCConfig

    return INCConfig(4, 32, data_type="mx_fp", packing_format="auto_round:llm_compressor")


def quark_config(tokens):
    from vllm.model_executor.layers.quantization.quark.quark import QuarkConfig

    weights = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0", "ch_axis": -1, "symmetric": None}
    given = {"weight": {**weights, "is_dynamic": False}, "input_tensors": {**weights, "is_dynamic": True} if tokens else None}
    return QuarkConfig({"global_quant_config": given, "layer_quant_config": {}, "layer_type_quant_config": {}, "exclude": []})


def compressed_mxfp4_config(**tokens):
    return compressed_tensors_config(
        "mxfp4-pack-quantized", MX, {**MXFP8, "scale_dtype": None, "dynamic": True, **tokens} if tokens else None
    )


CONFIGS = {
    "fp8": ("fp8b128", fp8_config),
    "mxfp8": ("mxfp8", mxfp8_config),
    "compressed_fp8": ("fp8b128", lambda: compressed_tensors_config("float-quantized", FP8_BLOCKS, FP8_TOKENS)),
    "compressed_mxfp8": ("mxfp8", lambda: compressed_tensors_config("mxfp8-quantized", MXFP8, {**MXFP8, "dynamic": True})),
    "modelopt": ("nvfp4", modelopt_config),
    "compressed_nvfp4": ("nvfp4", lambda: compressed_tensors_config("nvfp4-pack-quantized", NV, {**NV, "dynamic": "local"})),
    "compressed_nvfp4_weights_alone": ("nvfp4", lambda: compressed_tensors_config("nvfp4-pack-quantized", NV, None)),
    "mxfp4": ("mxfp4", mxfp4_config),
    "gpt_oss": ("mxfp4", gpt_oss_config),
    "deepseek_v4": ("mxfp4", deepseek_v4_config),
    "compressed_mxfp4": ("mxfp4", compressed_mxfp4_config),
    "compressed_mxfp4_tokens": ("mxfp4", lambda: compressed_mxfp4_config(strategy="token", group_size=None)),
    "compressed_mxfp4_groups": ("mxfp4", lambda: compressed_mxfp4_config(group_size=32)),
    "compressed_mxfp4_small_groups": ("mxfp4", lambda: compressed_mxfp4_config(group_size=16)),
    "auto_round": ("mxfp4", auto_round_config),
    "quark": ("mxfp4", lambda: quark_config(tokens=True)),
    "quark_weights_alone": ("mxfp4", lambda: quark_config(tokens=False)),
}
EXACT = "compressed_nvfp4_weights_alone"  # tokens are not rounded, so errors are small


def layer_of(config, **options):
    from vllm.model_executor.layers.fused_moe.layer import FusedMoEFactory

    sizes = {"num_experts": EXPERTS, "top_k": TOP, "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE}
    prefix = f"model.layers.{next(_numbers)}.mlp.experts"
    made = {"params_dtype": torch.bfloat16, "quant_config": CONFIGS[config][1](), "prefix": prefix}
    return FusedMoEFactory(**{**sizes, **made, **options}).routed_experts


def read_weights(layer, made, config):
    for expert, matrices in enumerate(made):
        for matrix, (tensors, _) in matrices.items():
            tensors = in_compressed_tensors(tensors) if config.startswith(("compressed", "auto_round")) else tensors
            there = {name: one for name, one in tensors.items() if hasattr(layer, f"w13_{name}")}
            list(layer.load_weights((f"{expert}.{matrix}.{name}", one) for name, one in there.items()))


def load(layer, made, config):
    read_weights(layer, made, config)
    layer.quant_method.process_weights_after_loading(layer)


def load_gpt_oss(layer, made, biases):
    """gpt-oss stores experts together, each gate before its up."""
    tensors = {f"w13_{name}": interleaved(made, name) for name in ("weight", "weight_scale")}
    tensors |= {f"w2_{name}": torch.stack([one["down_proj"][0][name] for one in made]) for name in ("weight", "weight_scale")}
    tensors |= {"w13_bias": torch.stack([biases["gate_proj"], biases["up_proj"]], dim=2).flatten(1), "w2_bias": biases["down_proj"]}
    for name, one in tensors.items():
        layer.weight_loader(getattr(layer, name), one, weight_name=name, shard_id=None, expert_id=None)
    layer.quant_method.process_weights_after_loading(layer)


@pytest.mark.parametrize(
    ("config", "gpu", "format"),
    [
        ("fp8", HOPPER, "fp8b128"),
        ("fp8", BLACKWELL, "fp8b128"),
        ("compressed_fp8", HOPPER, "fp8b128"),
        ("compressed_mxfp8", HOPPER, "fp8b128"),
        ("mxfp8", HOPPER, "fp8b128"),
        ("mxfp8", BLACKWELL, "mxfp8"),
        ("modelopt", HOPPER, "fp8_nvfp4"),
        ("modelopt", BLACKWELL, "nvfp4"),
        ("compressed_nvfp4", HOPPER, "fp8_nvfp4"),
        ("compressed_nvfp4_weights_alone", HOPPER, "bf16_nvfp4"),
        ("mxfp4", HOPPER, "bf16_mxfp4"),
        ("deepseek_v4", HOPPER, "bf16_mxfp4"),
        ("deepseek_v4", BLACKWELL, "mxfp8_mxfp4"),
        ("compressed_mxfp4", HOPPER, "bf16_mxfp4"),
        ("compressed_mxfp4_tokens", HOPPER, "fp8_mxfp4"),
        ("compressed_mxfp4_groups", HOPPER, "bf16_mxfp4"),
        ("compressed_mxfp4_groups", BLACKWELL, "mxfp8_mxfp4"),
        ("quark", HOPPER, "fp8_mxfp4"),
        ("quark_weights_alone", HOPPER, "bf16_mxfp4"),
        ("auto_round", HOPPER, "fp8_mxfp4"),
        ("auto_round", BLACKWELL, "mxfp4"),
    ],
    indirect=["gpu"],
)
def test_experts_are_served_by_zoo_and_near_float32(config, gpu, format, chosen, bf16):
    from zoo.vllm.support import served

    weights = CONFIGS[config][0]
    layer = layer_of(config)
    made, numbers = weights_of(weights)
    load(layer, made, config)
    assert served == {(f"experts in {weights}", format): 1} and not layer.quant_method.is_monolithic
    assert sum(one.numel() for name, one in layer.named_parameters() if name.endswith(("weight", "weight_packed"))) == 0
    x, shares, ids = routed()
    y = layer.forward_modular(x, shares, ids)
    assert y.shape == x.shape and y.dtype == torch.bfloat16
    assert error(y, in_float32(numbers, x, shares, ids, silu)) < BOUNDS[format]


@pytest.mark.parametrize(
    ("tokens", "gpu", "format"),
    [("", HOPPER, "bf16_mxfp4"), ("fp8", HOPPER, "fp8_mxfp4"), ("fp8", BLACKWELL, "mxfp8_mxfp4")],
    indirect=["gpu"],
)
def test_gpt_oss_has_biases_interleaved_gates_and_its_own_activation(tokens, gpu, format, chosen, bf16, monkeypatch):
    from zoo.vllm.support import served

    monkeypatch.setenv("ZOO_VLLM_TOKENS", tokens)
    layer = layer_of("gpt_oss", has_bias=True, activation="swigluoai", routed_experts_cls=gpt_oss_experts())
    made, numbers = weights_of("mxfp4")
    biases = {name: torch.randn(one.shape[:2], dtype=torch.bfloat16) for name, one in numbers.items()}
    load_gpt_oss(layer, made, biases)
    assert served == {("experts in mxfp4", format): 1}
    x, shares, ids = routed()
    y = layer.forward_modular(x, shares, ids)[:, :HIDDEN]
    assert error(y, in_float32(numbers, x, shares, ids, gpt_oss, biases)) < BOUNDS[format]


@pytest.mark.parametrize("config", [EXACT, "deepseek_v4"])
def test_a_limit_on_silu_is_kept(config, gpu, chosen, bf16):
    layer = layer_of(config, swiglu_limit=0.5)
    made, numbers = weights_of(CONFIGS[config][0])
    load(layer, made, config)
    x, shares, ids = routed()
    y, exact = layer.forward_modular(x, shares, ids), in_float32(numbers, x, shares, ids, clamped(0.5))
    assert error(y, exact) < 0.01 < error(in_float32(numbers, x, shares, ids, silu), exact)


def test_experts_in_fp8_have_their_limit_and_biases(gpu, chosen, bf16):
    layer = layer_of("fp8", has_bias=True, swiglu_limit=0.5)
    made, numbers = weights_of("fp8b128")
    biases = {name: torch.randn(one.shape[:2], dtype=torch.bfloat16) for name, one in numbers.items()}
    layer.w13_bias.data.copy_(torch.cat((biases["gate_proj"], biases["up_proj"]), dim=1))
    layer.w2_bias.data.copy_(biases["down_proj"])
    load(layer, made, "fp8")
    x, shares, ids = routed()
    y, exact = layer.forward_modular(x, shares, ids), in_float32(numbers, x, shares, ids, clamped(0.5), biases)
    assert error(y, exact) < BOUNDS["fp8b128"] < error(in_float32(numbers, x, shares, ids, silu, biases), exact)


@pytest.mark.parametrize("placement", ["linear", "round_robin"])
@pytest.mark.parametrize("expert_parallel", [False, True])
def test_two_ranks_sum_up_to_the_whole(placement, expert_parallel, gpu, chosen, bf16, vllm_config, monkeypatch):
    """Where experts are spread, ids of the other rank and ids of no expert add nothing."""
    from vllm.model_executor.layers.fused_moe import config as moe_config

    monkeypatch.setattr(vllm_config.parallel_config, "enable_expert_parallel", expert_parallel)
    monkeypatch.setattr(vllm_config.parallel_config, "expert_placement_strategy", placement)
    made, numbers = weights_of("nvfp4")
    x, shares, ids = routed()
    ids[3, 1] = ids[5, 0] = -1
    total = 0
    for rank in (0, 1):
        monkeypatch.setattr(moe_config, "get_tensor_model_parallel_rank", lambda rank=rank: rank)
        layer = layer_of(EXACT, tp_size=2, num_expert_group=2)
        assert (layer.expert_map is not None) == expert_parallel
        load(layer, made, EXACT)
        assert (layer.quant_method.zoo_ids is not None) == (expert_parallel and placement == "round_robin")
        total = total + layer.forward_modular(x, shares, ids).float()
    assert error(total, in_float32(numbers, x, shares, ids, silu)) < 0.01


REFUSED = {
    "another activation": ("modelopt", {"activation": "gelu"}, "gelu"),
    "a limit of another slope": (
        "modelopt",
        {"activation": "swigluoai_uninterleave", "swiglu_limit": 7.0, "swiglu_alpha": 1.5},
        "swigluoai",
    ),
    "weights on the input": ("modelopt", {"apply_router_weight_on_input": True}, "router weights"),
    "tokens with more scales": ("compressed_mxfp4_small_groups", {}, "another scheme"),
    "ranks without a whole scale": ("mxfp4", {"intermediate_size": 64, "tp_size": 4}, "MXFP4 scale"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_layers_that_zoo_cannot_compute_keep_vllms_method(case, gpu, chosen, bf16, monkeypatch):
    from zoo.vllm import support

    config, options, word = REFUSED[case]
    said = []
    monkeypatch.setattr(support.logger, "warning_once", lambda text, *words: said.append(text % words))
    layer = layer_of(config, **options)
    assert type(layer.quant_method).__module__.startswith("vllm.") and not hasattr(layer.quant_method, "zoo")
    assert len(said) == 1 and word in said[0]


def test_experts_that_processes_share_keep_vllms_method(gpu, chosen, bf16, vllm_config, monkeypatch):
    monkeypatch.setattr(vllm_config.load_config, "load_format", "ipc_cache")
    layer = layer_of("modelopt")
    assert type(layer.quant_method).__module__.startswith("vllm.") and not hasattr(layer.quant_method, "zoo")


def test_compiled_code_is_kept_apart_from_that_of_vllm_without_zoo(gpu, chosen, bf16, vllm_config):
    """gpt-oss has no linear layer of zoo's, and vLLM compiles the padding of some methods' tokens."""
    vllm_config.additional_config.clear()
    layer = layer_of("mxfp4")
    assert not vllm_config.additional_config
    load(layer, weights_of("mxfp4")[0], "mxfp4")
    assert vllm_config.additional_config["zoo"]["experts in mxfp4"] == "bf16_mxfp4"


@pytest.mark.parametrize(("kind", "name", "number"), [("uva", "cpu_offload_gb", 1.0), ("prefetch", "offload_group_size", 2)])
def test_experts_that_vllm_offloads_keep_vllms_method_with_one_warning(kind, name, number, gpu, chosen, bf16, vllm_config, monkeypatch):
    """vLLM offloads parameters of the layer, and zoo's packed weights would stay on the GPU."""
    from zoo.vllm import support

    said = []
    monkeypatch.setattr(support.logger, "warning_once", lambda text, *words: said.append(text % words))
    monkeypatch.setattr(getattr(vllm_config.offload_config, kind), name, number)
    layer = layer_of("modelopt")
    assert not hasattr(layer.quant_method, "zoo") and len(said) == 1 and "offloaded" in said[0]


def test_weights_that_zoo_refuses_go_through_vllms_method_untouched(gpu, chosen, bf16, monkeypatch):
    from vllm.model_executor.layers.quantization.fp8 import Fp8MoEMethod

    from zoo.vllm import experts, support

    seen, said = [], []
    monkeypatch.setattr(experts, "is_weights_pre_processed", lambda: True)
    monkeypatch.setattr(Fp8MoEMethod, "process_weights_after_loading", lambda self, layer: seen.append(layer.w13_weight.clone()))
    monkeypatch.setattr(support.logger, "warning_once", lambda text, *words: said.append(text % words))
    layer = layer_of("fp8")
    made, _ = weights_of("fp8b128")
    load(layer, made, "fp8")
    assert len(seen) == 1 and torch.equal(seen[0].view(torch.uint8)[0, :INTERMEDIATE], made[0]["gate_proj"][0]["weight"].view(torch.uint8))
    assert not support.served and len(said) == 1 and "packed for another kernel" in said[0]
    assert layer.quant_method.is_monolithic == layer.quant_method.experts_cls.is_monolithic()


@pytest.mark.parametrize("when", ["made", "loaded"])
def test_a_name_that_another_vllm_has_not_leaves_experts_to_vllm_with_one_warning(when, gpu, chosen, bf16, monkeypatch):
    from vllm.model_executor.layers.quantization.fp8 import Fp8MoEMethod

    from zoo.vllm import experts, support

    seen, said = [], []
    monkeypatch.setattr(Fp8MoEMethod, "process_weights_after_loading", lambda self, layer: seen.append(layer))
    monkeypatch.setattr(support.logger, "warning_once", lambda text, *words: said.append(text % words))
    if when == "made":
        monkeypatch.setattr(experts, "_NUMBERS", (*experts._NUMBERS, "swiglu_of_another_vllm"))
    layer = layer_of("fp8")
    if when == "loaded":
        monkeypatch.setattr(experts, "_placed", lambda layer: vars(layer)["map_of_another_vllm"])
    load(layer, weights_of("fp8b128")[0], "fp8")
    assert seen == [layer] and not support.served and len(said) == 1 and "of_another_vllm" in said[0]


@pytest.mark.parametrize("config", ["fp8", "mxfp8", "modelopt", "compressed_mxfp4_tokens"])
def test_weights_that_are_loaded_again_stay_where_captured_graphs_read_them(config, gpu, chosen, bf16):
    from vllm.model_executor.model_loader.reload import layerwise

    layer = layer_of(config)
    layerwise.record_metadata_for_reloading(layer)
    made, numbers = weights_of(CONFIGS[config][0])
    load(layer, [made[0]] * EXPERTS, config)
    method = layer.quant_method
    tensors = [*method.zoo.parameters(), *method.zoo.buffers()]
    places = [one.data_ptr() for one in tensors]
    layerwise.initialize_layerwise_reload(layer)
    read_weights(layer, made, config)
    layerwise.finalize_layerwise_reload(layer, None)
    assert places == [one.data_ptr() for one in (*method.zoo.parameters(), *method.zoo.buffers())]
    x, weights, ids = routed()
    assert error(method.apply(layer, x, weights, ids, None, None), in_float32(numbers, x, weights, ids, silu)) < 0.07
