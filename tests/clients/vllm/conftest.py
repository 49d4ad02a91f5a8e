"""One process of vLLM without GPU, where zoo's written rules serve the layers: ZOO_VLLM=cpu."""

import types

import pytest


@pytest.fixture(scope="session")
def vllm_config(tmp_path_factory):
    """vLLM's settings of a process of one rank, after vLLM has called zoo's entry point."""
    import torch

    patch = pytest.MonkeyPatch()
    patch.setenv("ZOO_VLLM", "cpu")
    patch.setenv("VLLM_PLUGINS", "zoo")
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    patch.setattr(vllm.platforms, "_current_platform", CpuPlatform())
    import zoo.vllm

    zoo.vllm.register()
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    config = VllmConfig(device_config=DeviceConfig("cpu"))
    with set_current_vllm_config(config):
        place = tmp_path_factory.mktemp("ranks") / "store"
        init_distributed_environment(1, 0, f"file://{place}", 0, "gloo")
        initialize_model_parallel(1, 1)
        names = types.SimpleNamespace(model_type="test")
        config.model_config = types.SimpleNamespace(dtype=torch.bfloat16, quantization_config=None, hf_config=names, hf_text_config=names)
        yield config
    patch.undo()


@pytest.fixture
def gpu(vllm_config, request, monkeypatch):
    """Formats as on a GPU of the capability that a test is parametrised with, by default Hopper's."""
    from zoo.torch.nn.formats import on_gpu
    from zoo.vllm import support

    capability = getattr(request, "param", (9, 0))
    monkeypatch.setattr(support, "_formats_here", lambda: on_gpu(capability))
    support.served.clear()
    return capability
