"""SGLang's layers of experts with zoo's hooks, loaded by SGLang's loaders from tiny checkpoints, beside float32."""

import importlib

import pytest

pytest.importorskip("sglang", reason="SGLang is not installed")

from tests.clients.sglang.test_linear_layers import config_of

EXPERTS, TOP, HIDDEN, INTERMEDIATE = 4, 2, 256, 128
BOUNDS = {"fp8b128": 0.06, "fp8_nvfp4": 0.06, "bf16_mxfp4": 0.01}
RUNNERS = {"fp8b128": "triton", "mxfp8": "triton", "nvfp4": "marlin", "mxfp4": "triton_kernel"}  # SGLang's on Hopper
_PACKAGE = "sglang.srt.layers.quantization"


@pytest.fixture
def sglang(gpu, bf16, monkeypatch):
    """SGLang's settings of a process of one rank, on a GPU as far as methods of experts ask."""
    from sglang.srt.layers.moe.utils import MoeRunnerBackend
    from sglang.srt.runtime_context import get_context, get_flags

    modelopt = importlib.import_module(f"{_PACKAGE}.modelopt_quant")
    monkeypatch.setattr(modelopt, "is_cuda", lambda: True)
    monkeypatch.setattr(modelopt, "get_device_capability", lambda *_: gpu)
    with get_context().override_server_args():
        yield lambda name: monkeypatch.setattr(get_flags().moe, "runner_backend", MoeRunnerBackend(name))


def quantisation_of(weights):
    if weights != "mxfp4":
        return config_of(weights)
    from sglang.srt.layers.quantization.mxfp4 import Mxfp4Config

    return Mxfp4Config(is_checkpoint_mxfp4_serialized=True)


def layer_of(weights, sglang, runner=None, **options):
    from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE

    sglang(runner or {"nvfp4": "auto"}.get(weights, RUNNERS[weights]))
    sizes = {"num_experts": EXPERTS, "top_k": TOP, "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE}
    return FusedMoE(**{**sizes, **options}, layer_id=3, quant_config=quantisation_of(weights), prefix="model.layers.3.mlp.experts")
