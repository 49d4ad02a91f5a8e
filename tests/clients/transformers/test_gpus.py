"""GPUs and drivers that zoo's kernels do not run on: transformers' own default, and one warning. No GPU is needed to see it."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'cubin-zoo[transformers]'")

from tests.clients.transformers.test_mxfp4 import checkpoint, loaded  # noqa: E402
from zoo.errors import DriverError, ZooError  # noqa: E402
from zoo.runtime import driver  # noqa: E402
from zoo.torch import serving  # noqa: E402
from zoo.torch.nn import Experts  # noqa: E402
from zoo.transformers import ZooConfig, experts  # noqa: E402
from zoo.transformers import quantizer as of_zoo  # noqa: E402


@pytest.fixture(params=["no cubins", "too old"])
def machine(request, monkeypatch):
    """A GPU without cubins, or Hopper with an old driver."""

    def bindings():
        raise DriverError("the CUDA driver is too old: it is for CUDA 12.4; install release 580 or later")

    serving.no_driver.cache_clear()
    monkeypatch.setattr(driver, "bindings", bindings)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0) if request.param == "too old" else (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "GPU with no cubins")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    yield request.param
    serving.no_driver.cache_clear()


def test_layers_of_checkpoints_stay_with_transformers(machine):
    assert machine in experts._no_product(torch.device("cuda", 0)) and not experts._no_product(torch.device("cpu"))


def test_a_gpt_oss_checkpoint_stays_with_transformers(machine):
    stored, _ = checkpoint()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        one = loaded(stored)
    mine = [str(each.message) for each in said if "zoo.transformers" in str(each.message)]
    assert len(mine) == 1 and machine in mine[0] and "transformers' own default is used" in mine[0]
    assert not [layer for layer in one.modules() if isinstance(layer, Experts)]


def test_a_config_that_asks_for_zoo_is_refused_before_weights_are_read(machine):
    with pytest.raises(ZooError, match=machine if machine == "too old" else "has no product"):
        of_zoo.ZooQuantizer(ZooConfig()).validate_environment(device_map={"": 0})
