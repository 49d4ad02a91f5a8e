"""What vLLM saves and reads back as it is in memory: no weight may be packed twice without a word."""

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")
import torch

from tests.clients.experts import weights_of
from tests.clients.vllm.test_experts import chosen, layer_of  # noqa: F401
from tests.clients.vllm.test_experts import load as load_experts
from tests.clients.vllm.test_linear_layers import BLACKWELL, CONFIGS, HOPPER, load
from tests.clients.weights import error, quantised
from zoo.errors import ZooError

FORMATS = ["sharded_state", "runai_streamer_sharded", "tensorizer", "modelexpress"]


def linear(config):
    from vllm.model_executor.layers.linear import ReplicatedLinear

    weights, make = CONFIGS[config]
    torch.manual_seed(0)
    layer = ReplicatedLinear(128, 128, bias=False, quant_config=make(), prefix="model.proj")
    tensors, numbers = quantised(torch.randn(128, 128, dtype=torch.float32) / 12, weights)
    load(layer, [tensors], (None,), config)
    return layer, numbers


def model_of(layer):
    model = torch.nn.Module()
    model.proj = layer
    return model


@pytest.mark.parametrize(
    ("config", "gpu"), [("mxfp8", HOPPER), ("mxfp8", BLACKWELL), ("modelopt", HOPPER), ("compressed_mxfp4", HOPPER)], indirect=["gpu"]
)
def test_a_model_with_packed_linear_layers_is_not_saved(config, gpu, bf16, tmp_path):
    from vllm.model_executor.model_loader import ShardedStateLoader, TensorizerLoader

    model = model_of(linear(config)[0])
    for save in (lambda: ShardedStateLoader.save_model(model, str(tmp_path)), lambda: TensorizerLoader.save_model(model, {}, None)):
        with pytest.raises(ZooError, match=r"packed the weights of proj, .* ZOO_VLLM=0"):
            save()
    assert not list(tmp_path.iterdir())


def test_a_model_with_packed_experts_is_not_saved(gpu, chosen, bf16, tmp_path):  # noqa: F811
    from vllm.model_executor.model_loader import ShardedStateLoader

    layer = layer_of("mxfp8")
    load_experts(layer, weights_of("mxfp8")[0], "mxfp8")
    with pytest.raises(ZooError, match=r"packed the weights of proj, .* ZOO_VLLM=0"):
        ShardedStateLoader.save_model(model_of(layer), str(tmp_path), max_size=2**30)
    assert not list(tmp_path.iterdir())


def test_fp8_weights_that_zoo_leaves_as_they_are_are_saved(gpu, bf16, tmp_path):
    from safetensors.torch import load_file
    from vllm.model_executor.model_loader import ShardedStateLoader

    layer, numbers = linear("fp8")
    ShardedStateLoader.save_model(model_of(layer), str(tmp_path), max_size=2**30)
    [path] = tmp_path.iterdir()
    saved = load_file(path)
    assert error(saved["proj.weight"].float() * saved["proj.weight_scale_inv"], numbers) < 1e-6


@pytest.mark.parametrize("format", FORMATS)
def test_weights_that_vllm_has_processed_before_are_left_to_vllm_with_one_warning(format, gpu, bf16, vllm_config, monkeypatch):
    """vLLM reads them into the layers and processes them again."""
    from vllm.model_executor.kernels.linear.mxfp8.Mxfp8LinearKernel import Mxfp8LinearLayerConfig

    from zoo.vllm import support
    from zoo.vllm.linear import ZooMxfp8Linear

    said = []
    monkeypatch.setattr(support.logger, "warning_once", lambda text, *words: said.append(text % words))
    config = Mxfp8LinearLayerConfig(weight_shape=(128, 128))
    assert ZooMxfp8Linear.can_implement(config) == (True, None) and not said
    monkeypatch.setattr(vllm_config.load_config, "load_format", format)
    fits, why = ZooMxfp8Linear.can_implement(config)
    assert not fits and f"--load-format {format}" in why and len(said) == 1 and why in said[0]


def test_experts_that_vllm_has_processed_before_keep_vllms_method(gpu, chosen, bf16, vllm_config, monkeypatch):  # noqa: F811
    monkeypatch.setattr(vllm_config.load_config, "load_format", "sharded_state")
    assert not hasattr(layer_of("mxfp8").quant_method, "zoo")


def test_every_load_format_of_processed_weights_is_one_that_vllm_has():
    from typing import get_args

    from vllm.model_executor.model_loader import LoadFormats

    from zoo.vllm.support import _PROCESSED

    assert sorted(_PROCESSED) == sorted(FORMATS) and set(FORMATS) < set(get_args(LoadFormats))
