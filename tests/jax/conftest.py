"""The tests of zoo.jax need JAX; without it each of their files is skipped, with that reason."""

from __future__ import annotations

import contextlib
import os

import pytest

try:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # a GPU's memory is others' as well
    import jax
except ImportError:
    jax = None


def devices() -> list[object]:
    """The host and, where there is one, a GPU."""
    found: list[object] = []
    if jax is not None:
        found += jax.devices("cpu")[:1]
        with contextlib.suppress(RuntimeError):
            found += jax.devices("cuda")[:1]
    return found


@pytest.fixture(params=devices(), ids=lambda device: device.platform)
def device(request: pytest.FixtureRequest) -> object:
    """Where whatever a test puts nowhere else lies."""
    with jax.default_device(request.param):
        yield request.param
