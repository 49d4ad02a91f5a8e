"""vLLM's linear layers, loaded by vLLM's loaders from tiny checkpoints, beside float32."""

import contextlib
import importlib.util
import sys
import types

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")
import torch

from tests.clients.weights import error, in_compressed_tensors, quantised

HOPPER, BLACKWELL = (9, 0), (10, 0)
MX = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True, "dynamic": False}
NV = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True, "dynamic": False}
FP8 = {"num_bits": 8, "type": "float", "symmetric": True}
FP8_BLOCKS = {**FP8, "strategy": "block", "block_structure": [128, 128], "dynamic": False}
FP8_TOKENS = {**FP8, "strategy": "group", "group_size": 128, "dynamic": True}
MXFP8 = {**FP8, "strategy": "group", "group_size": 32, "dynamic": False, "scale_dtype": "torch.uint8"}
BOUNDS = {
    "fp8b128": 0.04,
    "mxfp8": 0.05,
    "fp8_nvfp4": 0.04,
    "fp8_mxfp4": 0.04,
    "bf16_mxfp4": 0.005,
    "nvfp4": 0.13,
    "mxfp4": 0.17,
}  # of tokens' rounding


def fp8_config():
    from vllm.model_executor.layers.quantization.fp8 import Fp8Config

    return Fp8Config(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=[128, 128])


def modelopt_config():
    from vllm.model_executor.layers.quantization.modelopt import ModelOptNvFp4Config

    named = {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": []}
    return ModelOptNvFp4Config.from_config({"quantization": named})


def modelopt_weights_alone_config():
    from vllm.model_executor.layers.quantization.modelopt import ModelOptNvFp4Config

    named = {"quant_algo": "W4A16_NVFP4", "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": []}
    return ModelOptNvFp4Config.from_config({"quantization": named})


def mxfp8_config():
    from vllm.model_executor.layers.quantization.modelopt import ModelOptMxFp8Config

    return ModelOptMxFp8Config.from_config({"quant_method": "mxfp8", "ignored_layers": []})  # as MiniMax-M3 names it


def compressed_tensors_config(format, weights, tokens):
    from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import CompressedTensorsConfig

    group = {"targets": ["Linear"], "weights": weights, "input_activations": tokens}
    named = {"quant_method": "compressed-tensors", "format": format, "ignore": [], "config_groups": {"group_0": group}}
    return CompressedTensorsConfig.from_config(named)


def mxfp4_weights_alone_config():
    """As layers of Quark ask for it: compressed-tensors declares MXFP4 tokens for every MXFP4 weight."""
    from vllm.model_executor.layers.quantization.compressed_tensors.schemes import CompressedTensorsW4A4Mxfp4

    config = compressed_tensors_config("mxfp4-pack-quantized", MX, None)
    config._get_scheme_from_parts = lambda *_, **__: CompressedTensorsW4A4Mxfp4(activation_quant_key=None)
    return config


CONFIGS = {
    "fp8": ("fp8b128", fp8_config),
    "compressed_fp8": ("fp8b128", lambda: compressed_tensors_config("float-quantized", FP8_BLOCKS, FP8_TOKENS)),
    "mxfp8": ("mxfp8", mxfp8_config),
    "compressed_mxfp8": ("mxfp8", lambda: compressed_tensors_config("mxfp8-quantized", MXFP8, {**MXFP8, "dynamic": True})),
    "modelopt": ("nvfp4", modelopt_config),
    "compressed_nvfp4": ("nvfp4", lambda: compressed_tensors_config("nvfp4-pack-quantized", NV, {**NV, "dynamic": "local"})),
    "compressed_mxfp4": ("mxfp4", lambda: compressed_tensors_config("mxfp4-pack-quantized", MX, {**MX, "dynamic": True})),
    "compressed_mxfp4_weights_alone": ("mxfp4", mxfp4_weights_alone_config),
}


def kernel_of(layer):
    of = getattr(layer, "scheme", layer.quant_method)
    return getattr(of, "fp8_linear", None) or of.kernel


def load(layer, shards, which, config):
    """Fills the parameters by their loaders, and finishes as vLLM does."""
    for shard, weight in zip(which, shards, strict=True):
        tensors = in_compressed_tensors(weight) if config.startswith("compressed") else weight
        for name, tensor in tensors.items():
            if hasattr(layer, name):
                getattr(layer, name).weight_loader(getattr(layer, name), tensor, *(() if shard is None else (shard,)))
    layer.quant_method.process_weights_after_loading(layer)


@pytest.mark.parametrize(
    ("config", "gpu", "format"),
    [
        ("fp8", HOPPER, "fp8b128"),
        ("fp8", BLACKWELL, "fp8b128"),
        ("compressed_fp8", HOPPER, "fp8b128"),
        ("mxfp8", HOPPER, "fp8b128"),
        ("compressed_mxfp8", HOPPER, "fp8b128"),
        ("mxfp8", BLACKWELL, "mxfp8"),
        ("modelopt", HOPPER, "fp8_nvfp4"),
        ("modelopt", BLACKWELL, "nvfp4"),
        ("compressed_nvfp4", HOPPER, "fp8_nvfp4"),
        ("compressed_mxfp4", HOPPER, "fp8_mxfp4"),
        ("compressed_mxfp4", BLACKWELL, "mxfp4"),
        ("compressed_mxfp4_weights_alone", HOPPER, "bf16_mxfp4"),
    ],
    indirect=["gpu"],
)
@pytest.mark.parametrize("bias", [False, True])
def test_a_merged_layer_is_served_by_zoo_and_near_float32(config, gpu, format, bias, bf16):
    from vllm.model_executor.layers.linear import MergedColumnParallelLinear

    from zoo.vllm.support import served

    weights, make = CONFIGS[config]
    torch.manual_seed(0)
    layer = MergedColumnParallelLinear(256, [128, 256], bias=bias, quant_config=make(), prefix="model.layers.0.mlp.gate_up_proj")
    assert type(kernel_of(layer)).__name__.startswith("Zoo")
    parts = [quantised(torch.randn(rows, 256, dtype=torch.float32) / 16, weights) for rows in (128, 256)]
    load(layer, [tensors for tensors, _ in parts], (0, 1), config)
    assert served == {(f"{weights} linear layers", format): 1}
    if bias:
        layer.bias.data = torch.randn(384, dtype=torch.bfloat16)
    x = torch.randn(2, 3, 256, dtype=torch.bfloat16)
    y, _ = layer(x)
    exact = x.float() @ torch.cat([numbers for _, numbers in parts]).t() + (layer.bias.float() if bias else 0)
    assert y.shape == (2, 3, 384) and y.dtype == torch.bfloat16
    assert error(y, exact) < BOUNDS[format]


@pytest.mark.parametrize("config", ["fp8", "mxfp8", "modelopt", "compressed_mxfp4_weights_alone"])
def test_two_ranks_of_a_layer_sum_up_to_the_whole(config, gpu, bf16, monkeypatch):
    from vllm.model_executor import parameter
    from vllm.model_executor.layers import linear

    weights, make = CONFIGS[config]
    torch.manual_seed(1)
    tensors, numbers = quantised(torch.randn(128, 256, dtype=torch.float32) / 16, weights)
    x, total = torch.randn(5, 256, dtype=torch.bfloat16), 0
    for rank in (0, 1):
        for module in (linear, parameter):
            monkeypatch.setattr(module, "get_tensor_model_parallel_world_size", lambda: 2)
            monkeypatch.setattr(module, "get_tensor_model_parallel_rank", lambda rank=rank: rank)
        layer = linear.RowParallelLinear(256, 128, bias=False, reduce_results=False, quant_config=make(), prefix="model.layers.0.o_proj")
        load(layer, [tensors], (None,), config)
        total = total + layer(x[:, 128 * rank : 128 * (rank + 1)])[0].float()
    assert error(total, x.float() @ numbers.t()) < 0.04


def test_vllm_compiles_a_layer_as_one_graph(gpu, bf16):
    from vllm.model_executor.layers.linear import ColumnParallelLinear

    for config, (weights, make) in CONFIGS.items():
        torch.manual_seed(2)
        layer = ColumnParallelLinear(128, 128, bias=False, quant_config=make(), prefix="model.layers.0.proj")
        load(layer, [quantised(torch.randn(128, 128, dtype=torch.float32), weights)[0]], (None,), config)
        compiled = torch.compile(lambda x, layer=layer: layer(x)[0], fullgraph=True, dynamic=True, backend="aot_eager")
        for tokens in (7, 33):
            x = torch.randn(tokens, 128, dtype=torch.bfloat16)
            assert torch.equal(compiled(x), layer(x)[0]), config


@pytest.mark.parametrize("config", ["fp8", "mxfp8"])
def test_tokens_that_mla_casts_to_fp8_for_its_prefill_are_multiplied(config, gpu, bf16):
    from vllm.model_executor.layers.linear import ColumnParallelLinear

    weights, make = CONFIGS[config]
    layer = ColumnParallelLinear(128, 128, bias=False, quant_config=make(), prefix="model.layers.0.self_attn.kv_b_proj")
    load(layer, [quantised(torch.randn(128, 128, dtype=torch.float32), weights)[0]], (None,), config)
    x = torch.randn(5, 128, dtype=torch.bfloat16).to(torch.float8_e4m3fn)
    y, _ = layer(x)
    assert y.dtype == torch.bfloat16 and torch.equal(y, layer(x.bfloat16())[0])


def test_compiled_code_is_kept_apart_from_that_of_vllm_without_zoo(gpu, bf16, vllm_config):
    from vllm.model_executor.layers.linear import ColumnParallelLinear

    vllm_config.additional_config.clear()
    ColumnParallelLinear(128, 128, bias=False, quant_config=modelopt_config(), prefix="model.layers.0.proj")
    assert vllm_config.additional_config["zoo"]["nvfp4"] == "fp8_nvfp4" and vllm_config.additional_config["zoo"]["version"]


@pytest.mark.parametrize("why", ["48", "scale_of_another_vllm"])
def test_a_weight_that_zoo_refuses_is_served_by_the_kernel_that_vllm_takes_without_zoo(why, gpu, bf16, monkeypatch):
    from vllm.model_executor.kernels import linear as kernels
    from vllm.model_executor.kernels.linear import EmulationNvFp4LinearKernel
    from vllm.model_executor.layers.linear import ColumnParallelLinear
    from vllm.platforms import current_platform

    from zoo.vllm import support
    from zoo.vllm.linear import ZooNvFp4Linear

    said = []
    monkeypatch.setattr(support.logger, "warning_once", lambda text, *words: said.append(text % words))
    columns = 48 if why == "48" else 64  # 48: no multiple of 32
    if why != "48":
        monkeypatch.setattr(ZooNvFp4Linear, "_tensor_scale", lambda self, layer: vars(layer)["scale_of_another_vllm"])
    here = {current_platform._enum: [*kernels._POSSIBLE_NVFP4_KERNELS[current_platform._enum], EmulationNvFp4LinearKernel]}
    monkeypatch.setattr(kernels, "_POSSIBLE_NVFP4_KERNELS", here)
    layer = ColumnParallelLinear(columns, 128, bias=False, quant_config=modelopt_config(), prefix="model.layers.7.proj")
    assert type(kernel_of(layer)).__name__ == "ZooNvFp4Linear"
    tensors, numbers = quantised(torch.randn(128, 64, dtype=torch.float32), "nvfp4")
    parts = {"weight": columns // 2, "weight_scale": columns // 16}
    tensors |= {name: tensors[name][:, :wide].contiguous() for name, wide in parts.items()}
    load(layer, [tensors], (None,), "modelopt")
    assert isinstance(layer.zoo_usual, EmulationNvFp4LinearKernel) and not support.served
    assert len(said) == 1 and why in said[0] and "model.layers.*.proj" in said[0]
    x = torch.randn(4, columns, dtype=torch.bfloat16)
    assert error(layer(x)[0], x.float() @ numbers[:, :columns].t()) < 0.2


@pytest.mark.parametrize("side", ["daemon", "engine"])
def test_weights_that_processes_share_are_not_packed(side, gpu, bf16, vllm_config, monkeypatch):
    """An engine without zoo would read the daemon's packed weights as its own."""
    from zoo.vllm import support
    from zoo.vllm.linear import ZooFp8BlockLinear, ZooNvFp4Linear

    said = []
    monkeypatch.setattr(support.logger, "warning_once", lambda text, *words: said.append(text % words))
    assert ZooNvFp4Linear.can_implement(None) == (True, None) and not said and importlib.util.find_spec(support._DAEMON)
    if side == "daemon":
        monkeypatch.setitem(sys.modules, support._DAEMON, types.ModuleType("daemon"))
    else:
        monkeypatch.setattr(vllm_config.load_config, "load_format", "ipc_cache")
    for kernel in (ZooNvFp4Linear, ZooFp8BlockLinear):
        fits, why = kernel.can_implement(None)
        assert not fits and "weight cache" in why
    assert len(said) == 2


def fp8_blocks_of_64():
    from vllm.model_executor.layers.quantization.fp8 import Fp8Config

    return Fp8Config(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=[64, 64])


@pytest.mark.parametrize(
    ("make", "gpu", "why"),
    [
        (fp8_blocks_of_64, HOPPER, ["(1, 64) of tokens and (64, 64) of weights"]),
        (mxfp4_weights_alone_config, BLACKWELL, ["no product of mxfp4 weights with bf16 tokens", "ZOO_VLLM_TOKENS=fp8", "mxfp8_mxfp4"]),
    ],
    indirect=["gpu"],
)
def test_a_kind_that_zoo_has_not_is_left_to_vllm_with_one_warning(make, gpu, why, bf16, monkeypatch):
    from vllm.model_executor.layers.linear import ColumnParallelLinear

    from zoo.vllm import support

    said = []
    monkeypatch.setattr(support.logger, "warning_once", lambda text, *words: said.append(text % words))
    for number in (0, 1):
        with contextlib.suppress(ValueError):  # vLLM has no other kernel for a CPU
            layer = ColumnParallelLinear(128, 128, bias=False, quant_config=make(), prefix=f"model.layers.{number}.proj")
            assert not type(kernel_of(layer)).__name__.startswith("Zoo")
    assert len(set(said)) == 1 and all(word in said[0] for word in [*why, "stay with vLLM's own kernel"])


@pytest.mark.parametrize("humming", [True, False])
def test_nvfp4_weights_alone_are_offered_to_no_kernel_but_vllms(humming, gpu, bf16, monkeypatch):
    """docs/clients.md says so. A vLLM that offers them needs a kernel of zoo that leaves tokens in bf16: ZooNvFp4Linear rounds them."""
    from vllm.model_executor.kernels import linear as kernels

    from zoo.vllm.linear import ZooNvFp4Linear

    asked = []
    monkeypatch.setattr(ZooNvFp4Linear, "is_supported", classmethod(lambda cls, *_: (asked.append(cls), (True, None))[1]))
    monkeypatch.setattr(kernels, "prefers_humming", lambda *_: humming)  # as on Hopper
    assert isinstance(kernels.init_nvfp4_linear_kernel(), ZooNvFp4Linear) and asked
    asked.clear()
    with pytest.raises(ValueError, match=r"NVFP4"):  # vLLM has no kernel of its own for a CPU
        kernels.init_nvfp4_linear_kernel(use_a16=True)
    assert not asked


@pytest.mark.parametrize("make", [modelopt_weights_alone_config, lambda: compressed_tensors_config("nvfp4-pack-quantized", NV, None)])
@pytest.mark.parametrize("backend", ["auto", "marlin"])
def test_nvfp4_weights_alone_stay_with_vllm_with_one_warning_unless_a_setting_chose(make, backend, gpu, bf16, vllm_config, monkeypatch):
    from vllm.model_executor.layers.linear import ColumnParallelLinear

    from zoo.vllm import support

    said = []
    monkeypatch.setattr(support.logger, "warning_once", lambda text, *words: said.append(text % words))
    monkeypatch.setattr(vllm_config.kernel_config, "linear_backend", backend)
    for number in (0, 1):
        with pytest.raises(ValueError, match=r"NVFP4"):  # vLLM has no kernel of its own for a CPU
            ColumnParallelLinear(128, 128, bias=False, quant_config=make(), prefix=f"model.layers.{number}.proj")
    assert set(said) == (
        {"zoo: nvfp4 linear layers stay with vLLM's own kernel: bf16 tokens, for which vLLM asks no plugin"} if backend == "auto" else set()
    )


@pytest.mark.parametrize("name", ["ZooFp8BlockLinear", "ZooMxfp8Linear", "ZooMxFp4Linear"])
def test_a_config_of_another_vllm_is_refused_with_one_warning(name, gpu, monkeypatch):
    """vLLM asks the kernels of a list in turn, and an error would keep the model from loading."""
    from zoo.vllm import linear, support

    said = []
    monkeypatch.setattr(support.logger, "warning_once", lambda text, *words: said.append(text % words))
    fits, why = getattr(linear, name).can_implement(object())
    assert not fits and why.startswith("AttributeError") and len(said) == 1 and why in said[0]


@pytest.mark.parametrize("config", ["fp8", "mxfp8", "modelopt"])
def test_a_weight_that_is_loaded_again_is_packed_to_the_same_place(config, gpu, bf16):
    from vllm.model_executor.layers.linear import ReplicatedLinear
    from vllm.model_executor.model_loader.reload import layerwise

    weights, make = CONFIGS[config]
    layer = ReplicatedLinear(256, 384, bias=False, quant_config=make(), prefix="model.layers.0.mlp.proj")
    layerwise.record_metadata_for_reloading(layer)
    first, second = (quantised(torch.randn(384, 256, dtype=torch.float32) / 16, weights) for _ in range(2))
    load(layer, [first[0]], [None], config)
    place = layer.weight.data_ptr()
    layerwise.initialize_layerwise_reload(layer)
    for name, tensor in second[0].items():
        if hasattr(layer, name):
            getattr(layer, name).weight_loader(getattr(layer, name), tensor)
    layerwise.finalize_layerwise_reload(layer, None)
    x = torch.randn(5, 256, dtype=torch.bfloat16)
    assert layer.weight.data_ptr() == place and error(layer(x)[0], x.float() @ second[1].t()) < 0.05
