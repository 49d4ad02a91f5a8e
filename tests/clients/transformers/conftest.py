import pytest


@pytest.fixture(autouse=True)
def registered(request):
    """zoo is on during a test of this folder, and off after it."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'cubin-zoo[transformers]'")
    import zoo.transformers

    zoo.transformers.unregister()
    yield zoo.transformers.register()
    zoo.transformers.unregister()
