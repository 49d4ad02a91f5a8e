"""One process of SGLang without GPU, where zoo's written rules serve the layers as on a GPU of a capability."""

import pytest

HOPPER, BLACKWELL = (9, 0), (10, 0)


@pytest.fixture(scope="session")
def hooks():
    """SGLang after it has called zoo's entry point. Its hooks cannot be taken back."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    import zoo.sglang

    zoo.sglang.register()
    HookRegistry.apply_hooks()
    assert zoo.sglang._registered == ["linear", "experts", "mxfp8"]


@pytest.fixture
def gpu(hooks, request, monkeypatch):
    """Formats as on a GPU of the capability that a test is parametrised with, by default Hopper's, under SGLang's default settings."""
    from sglang.srt.runtime_context import get_context

    from zoo.sglang import support
    from zoo.torch.nn.formats import on_gpu

    capability = getattr(request, "param", HOPPER)
    monkeypatch.setattr(support, "formats_on", lambda device: on_gpu(capability))
    monkeypatch.setattr(support, "_warned", set())
    support.served.clear()
    with get_context().override_server_args():
        yield capability
