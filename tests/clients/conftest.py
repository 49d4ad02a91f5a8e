"""Fixtures of all clients' tests."""

import pytest


@pytest.fixture
def bf16():
    """Layers of serving engines have the dtype that is torch's default when they are made."""
    import torch

    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(torch.float32)
