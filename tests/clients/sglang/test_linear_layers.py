"""SGLang's linear layers with zoo's hooks, loaded by SGLang's loaders from tiny checkpoints, beside float32."""

import contextlib
import subprocess
import sys
import types
from pathlib import Path
from unittest.mock import MagicMock

import pytest

pytest.importorskip("sglang", reason="SGLang is not installed")
import torch
from sglang.srt.runtime_context import get_exec, get_model

from tests.clients.sglang.conftest import BLACKWELL, HOPPER
from tests.clients.weights import error, quantised
from zoo.errors import ArgumentError

BOUNDS = {"fp8b128": 0.04, "fp8_nvfp4": 0.04, "nvfp4": 0.13}


def config_of(weights):
    if weights in ("fp8b128", "mxfp8"):
        from sglang.srt.layers.quantization.fp8 import Fp8Config

        block = [128, 128] if weights == "fp8b128" else [1, 32]
        return Fp8Config.from_config(
            {"quant_method": "fp8" if weights == "fp8b128" else "mxfp8", "activation_scheme": "dynamic", "weight_block_size": block}
        )
    from sglang.srt.layers.quantization.modelopt_quant import ModelOptFp4Config

    named = {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": []}
    made = ModelOptFp4Config.from_config({"quantization": named})
    made.packed_modules_mapping = {}
    return made


def why_no_update(model):
    """What SGLang answers to new weights for a running model."""
    from sglang.srt.model_executor.model_runner_components.weight_updater import _unsupported_derived_weight_cache_error

    return _unsupported_derived_weight_cache_error(model)


def load(layer, tensors, finish=True):
    for name, tensor in tensors.items():
        name = name if hasattr(layer, name) else f"{name}_inv"  # of scales in MXFP8
        getattr(layer, name).weight_loader(getattr(layer, name), tensor)
    if finish:
        layer.quant_method.process_weights_after_loading(layer)


@pytest.mark.parametrize(
    ("weights", "gpu", "format"),
    [
        ("fp8b128", HOPPER, "fp8b128"),
        ("fp8b128", BLACKWELL, "fp8b128"),
        ("mxfp8", HOPPER, "fp8b128"),
        ("nvfp4", HOPPER, "fp8_nvfp4"),
        ("nvfp4", BLACKWELL, "nvfp4"),
    ],
    indirect=["gpu"],
)
@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_is_served_by_zoo_and_near_float32(weights, gpu, format, bias, bf16):
    from sglang.srt.layers.linear import ReplicatedLinear

    from zoo.sglang.support import served

    torch.manual_seed(0)
    layer = ReplicatedLinear(256, 384, bias=bias, quant_config=config_of(weights), prefix="model.layers.0.proj")
    tensors, numbers = quantised(torch.randn(384, 256, dtype=torch.float32) / 16, weights)
    load(layer, tensors)
    assert served == {(f"{'nvfp4' if weights == 'nvfp4' else 'fp8b128'} linear layers", format): 1}
    assert (why_no_update(layer) is None) == (weights == "fp8b128")
    assert weights == "nvfp4" or layer.weight_scale_inv.format_ue8m0 is False  # which DeepSeek's models read
    if bias:
        layer.bias.data = torch.randn(384, dtype=torch.bfloat16)
    x = torch.randn(6, 256, dtype=torch.bfloat16)
    y, _ = layer(x)
    assert y.dtype == torch.bfloat16 and error(y, x.float() @ numbers.t() + (layer.bias.float() if bias else 0)) < BOUNDS[format]


@pytest.mark.parametrize("weights", ["fp8b128", "nvfp4"])
def test_two_ranks_of_a_layer_sum_up_to_the_whole(weights, gpu, bf16):
    from sglang.srt.layers.linear import RowParallelLinear
    from sglang.srt.runtime_context import get_parallel

    torch.manual_seed(1)
    tensors, numbers = quantised(torch.randn(128, 256, dtype=torch.float32) / 16, weights)
    x, total = torch.randn(5, 256, dtype=torch.bfloat16), 0
    for rank in (0, 1):
        group = types.SimpleNamespace(world_size=2, rank_in_group=rank)
        with get_parallel().override(tp_size=2, tp_rank=rank, tp_group=group, moe_tp_size=2, attn_tp_size=2):
            layer = RowParallelLinear(256, 128, bias=False, reduce_results=False, quant_config=config_of(weights), prefix="o_proj")
            load(layer, tensors)
            total = total + layer(x[:, 128 * rank : 128 * (rank + 1)])[0].float()
    assert error(total, x.float() @ numbers.t()) < 0.04


def test_projections_that_a_model_joins_are_served(gpu, bf16):
    """MiniMax-M3 calls SGLang's conversion for them, in the place of the method's own function."""
    from sglang.srt.layers.linear import ReplicatedLinear

    torch.manual_seed(2)
    layer = ReplicatedLinear(256, 384, bias=False, quant_config=config_of("mxfp8"), prefix="fused_qkv_index_proj")
    tensors, numbers = quantised(torch.randn(384, 256, dtype=torch.float32) / 16, "mxfp8")
    load(layer, tensors, finish=False)
    layer.quant_method.process_weights_after_loading_block_quant(layer)
    x = torch.randn(6, 256, dtype=torch.bfloat16)
    assert layer.zoo_format == "fp8b128" and error(layer(x)[0], x.float() @ numbers.t()) < 0.04


def test_packed_weights_are_not_packed_again(gpu, bf16):
    from sglang.srt.layers.linear import ReplicatedLinear

    layer = ReplicatedLinear(128, 128, bias=False, quant_config=config_of("nvfp4"), prefix="proj")
    load(layer, quantised(torch.randn(128, 128, dtype=torch.float32), "nvfp4")[0])
    x = torch.randn(3, 128, dtype=torch.bfloat16)
    before = layer(x)[0]
    with pytest.raises(ArgumentError, match="restart SGLang"):
        layer.quant_method.process_weights_after_loading(layer)
    assert torch.equal(layer(x)[0], before)


def test_a_layer_compiles_as_one_graph(gpu, bf16):
    from sglang.srt.layers.linear import ReplicatedLinear

    layer = ReplicatedLinear(128, 128, bias=False, quant_config=config_of("nvfp4"), prefix="proj")
    load(layer, quantised(torch.randn(128, 128, dtype=torch.float32), "nvfp4")[0])
    compiled = torch.compile(lambda x: layer.quant_method.apply(layer, x), fullgraph=True, dynamic=True, backend="aot_eager")
    for tokens in (7, 33):
        x = torch.randn(tokens, 128, dtype=torch.bfloat16)
        assert torch.equal(compiled(x), layer(x)[0])


def unpublished():
    """What SGLang answers where a process has published no settings, as in its own tests of methods."""
    raise ValueError("config namespace not published")


@pytest.mark.parametrize("why", ["no cubins", "a shape that zoo has not", "not published"])
def test_layers_that_zoo_refuses_go_through_sglangs_method_with_one_warning(why, gpu, bf16, monkeypatch, caplog):
    from sglang.srt.layers.linear import ReplicatedLinear

    from zoo.sglang import support

    columns = 48 if why == "a shape that zoo has not" else 64
    if why == "no cubins":
        monkeypatch.setattr(support, "formats_on", lambda device: ())
    if why == "not published":
        monkeypatch.setattr(support, "get_exec", unpublished)
    for number in (0, 1):
        layer = ReplicatedLinear(columns, 64, bias=False, quant_config=config_of("nvfp4"), prefix=f"layers.{number}")
        for one in layer.parameters():
            one.data.zero_()
        with pytest.raises(Exception, match=r"native dense GEMM backends require SM100\+|Not supported"):  # SGLang's own answer to a CPU
            layer.quant_method.process_weights_after_loading(layer)
        assert not hasattr(layer, "zoo_about") and not support.served
    said = [one.getMessage() for one in caplog.records if one.name == "sglang.zoo"]
    assert len(said) == 1 and "stay with SGLang's own kernel" in said[0]
    assert ("ValueError: config namespace not published" in said[0]) == (why == "not published")


@pytest.mark.parametrize(
    ("block", "gpu", "why"),
    [([64, 64], HOPPER, "scales for [64, 64] of weights, and zoo reads scales for [128, 128]"), ([1, 32], BLACKWELL, "Hopper alone")],
    indirect=["gpu"],
)
def test_fp8_in_other_blocks_stays_with_sglang_with_one_warning(block, gpu, why, bf16, caplog):
    from sglang.srt.layers.linear import ReplicatedLinear
    from sglang.srt.layers.quantization.fp8 import Fp8Config

    named = {"quant_method": "fp8" if block == [64, 64] else "mxfp8", "activation_scheme": "dynamic", "weight_block_size": block}
    for number in (0, 1):
        layer = ReplicatedLinear(128, 128, bias=False, quant_config=Fp8Config.from_config(named), prefix=f"layers.{number}.proj")
        with contextlib.suppress(Exception):  # of SGLang on a CPU
            layer.quant_method.process_weights_after_loading(layer)
        assert not hasattr(layer, "zoo_about")
    said = [one.getMessage() for one in caplog.records if one.name == "sglang.zoo"]
    assert len(said) == 1 and why in said[0] and "stay with SGLang's own kernel" in said[0]


def test_fp8_with_one_scale_of_a_tensor_stays_with_sglang_without_a_word(gpu, bf16, caplog):
    from sglang.srt.layers.linear import ReplicatedLinear
    from sglang.srt.layers.quantization.fp8 import Fp8Config

    config = Fp8Config.from_config({"quant_method": "fp8", "activation_scheme": "dynamic"})
    layer = ReplicatedLinear(128, 128, bias=False, quant_config=config, prefix="proj")
    with contextlib.suppress(Exception):  # of SGLang on a CPU
        layer.quant_method.process_weights_after_loading(layer)
    assert not hasattr(layer, "zoo_about") and not [one for one in caplog.records if one.name == "sglang.zoo"]


def test_a_layer_that_answers_any_name_is_not_taken_for_a_packed_layer():
    """SGLang's own tests call methods on mocks."""
    from zoo.sglang import experts, linear

    layer, method, usual = MagicMock(), MagicMock(), MagicMock(return_value="SGLang's")
    assert linear._apply("fp8b128", usual, method, layer, None) == experts._apply(usual, method, layer, None) == "SGLang's"
    assert linear._pack("fp8b128", usual, method, layer) == experts._pack("fp8b128", usual, method, layer) == "SGLang's"


def test_an_error_of_sglangs_own_method_is_not_taken_for_zoos(caplog):
    from zoo.sglang import linear

    method = types.SimpleNamespace(use_mxfp8=False, convert_mxfp8_to_block=False, block_quant=False, weight_block_size=None)
    usual = MagicMock(side_effect=RuntimeError("SGLang's"))
    with pytest.raises(RuntimeError, match="SGLang's"):
        linear._pack("fp8b128", usual, method, types.SimpleNamespace())
    assert usual.call_count == 1 and not caplog.records


SETTINGS = {
    "--fp8-gemm-backend is triton": ("fp8b128", lambda: get_exec().kernel.override(fp8_gemm_runner_backend="triton")),
    "--fp4-gemm-backend is marlin": ("nvfp4", lambda: get_exec().kernel.override(fp4_gemm_runner_backend="marlin")),
    "--enable-deterministic-inference": ("fp8b128", lambda: get_exec().deterministic.override(enable_deterministic_inference=True)),
    "--load-format sharded_state": ("nvfp4", lambda: get_model().override(load_format="sharded_state")),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_that_zoo_cannot_serve_keep_sglangs_method(setting, gpu, bf16, caplog):
    from sglang.srt.layers.linear import ReplicatedLinear

    weights, scope = SETTINGS[setting]
    with scope():
        layer = ReplicatedLinear(128, 128, bias=False, quant_config=config_of(weights), prefix="proj")
        tensors, _ = quantised(torch.randn(128, 128, dtype=torch.float32), weights)
        with contextlib.suppress(ValueError):  # SGLang's own answer to a CPU, in NVFP4
            load(layer, tensors)
    assert not hasattr(layer, "zoo_about") and setting in caplog.text


@pytest.mark.parametrize("name", ["_accepts_prequantized_fp4", "_interleave_for_swiglu_fusion"])
def test_layers_whose_tokens_a_model_quantises_keep_sglangs_method(name, gpu, bf16, caplog):
    """DeepSeek's shared experts and Qwen 3.5's dense layers read what SGLang's method makes."""
    from sglang.srt.layers.linear import ReplicatedLinear

    layer = ReplicatedLinear(128, 128, bias=False, quant_config=config_of("nvfp4"), prefix="proj")
    setattr(layer, name, True)
    with pytest.raises(ValueError, match=r"SM100\+"):  # SGLang's own answer to a CPU
        load(layer, quantised(torch.randn(128, 128, dtype=torch.float32), "nvfp4")[0])
    assert not hasattr(layer, "zoo_about") and "SGLang fuses" in caplog.text


def test_an_output_layer_whose_packed_weight_sglang_would_not_find_is_left_alone(gpu, bf16, caplog):
    from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead
    from sglang.srt.runtime_context import get_parallel

    with get_parallel().override(tp_size=1, tp_rank=0, attn_tp_rank=0, tp_group=types.SimpleNamespace(world_size=1, rank_in_group=0)):
        head = ParallelLMHead(128, 64, quant_config=config_of("nvfp4"), prefix="lm_head")
    with pytest.raises(ValueError, match=r"SM100\+"):  # SGLang's own answer to a CPU
        head.quant_method.process_weights_after_loading(head)
    assert head.weight.shape == (128, 32) and "output layer" in caplog.text


def test_tokens_that_sglang_has_quantised_go_to_sglangs_product_with_one_warning(gpu, bf16, caplog):
    """SGLANG_OPT_MOE_QUANT_ONCE."""
    from sglang.srt.layers.linear import ReplicatedLinear

    layer = ReplicatedLinear(128, 128, bias=False, quant_config=config_of("fp8b128"), prefix="shared_experts.gate_up_proj")
    load(layer, quantised(torch.randn(128, 128, dtype=torch.float32), "fp8b128")[0])
    layer.quant_method.w8a8_block_fp8_linear = lambda **given: given
    tokens = torch.zeros(4, 128, dtype=torch.float8_e4m3fn), torch.ones(4, 1)
    for _ in range(2):
        given, _ = layer(tokens)
    assert given["input"] is tokens[0] and given["input_scale"] is tokens[1] and given["weight_scale"].dtype == torch.float32
    assert sum(one.name == "sglang.zoo" and "quantised their tokens" in one.getMessage() for one in caplog.records) == 1


@pytest.fixture
def fresh(monkeypatch):
    """SGLang's registry before any plugin."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    import zoo.sglang

    monkeypatch.setattr(HookRegistry, "_hooks", type(HookRegistry._hooks)(list))
    monkeypatch.setattr(zoo.sglang, "_registered", [])
    return HookRegistry._hooks


def test_the_switch_leaves_sglang_alone_without_a_word(fresh, monkeypatch, caplog):
    import zoo.sglang

    monkeypatch.setenv("ZOO_SGLANG", "0")
    zoo.sglang.register()
    assert not fresh and not caplog.records


def test_no_function_of_sglang_is_wrapped_twice_which_sglang_would_warn_of(gpu, fresh):
    import zoo.sglang

    zoo.sglang.register()
    zoo.sglang.register()
    assert len(fresh) > 8 and {len(hooks) for hooks in fresh.values()} == {1}


def test_a_setting_that_zoo_does_not_know_leaves_sglang_alone_with_one_warning(fresh, monkeypatch, caplog):
    import zoo.sglang

    monkeypatch.setenv("ZOO_SGLANG", "of")
    zoo.sglang.register()
    zoo.sglang.register()
    assert not fresh and len(caplog.records) == 1 and "'of'" in caplog.text


@pytest.mark.parametrize("method", ["Fp8LinearMethod", "Fp8MoEMethod"])
def test_a_method_that_zoo_does_not_know_leaves_its_kind_of_layers_alone_with_one_warning(method, fresh, monkeypatch, caplog):
    from sglang.srt.layers.quantization import fp8

    import zoo.sglang

    monkeypatch.setattr(getattr(fp8, method), "apply", lambda self, something_new: None)
    zoo.sglang.register()
    assert fresh and not any(method in target for target in fresh)
    assert len(caplog.records) == 1 and "something_new" in caplog.text


@pytest.mark.parametrize("gpu", [HOPPER, BLACKWELL], indirect=True)
def test_a_runner_that_misreads_mxfp8_stays_forbidden_where_zoo_folds_no_scales(gpu, fresh):
    from sglang.srt.arg_groups.choices import MXFP8_MOE_RUNNER_BACKEND_CHOICES as choices

    import zoo.sglang

    before = list(choices)
    zoo.sglang.register()
    added, choices[:] = choices[len(before) :], before
    assert added == (["triton"] if gpu == HOPPER else [])


def test_importing_the_plugin_imports_no_sglang():
    program = "import sys, zoo, zoo.sglang; sys.exit(any(name.split('.')[0] == 'sglang' for name in sys.modules))"
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[3], check=True)
