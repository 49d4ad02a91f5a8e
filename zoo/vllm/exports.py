"""Weights that vLLM saves as they are in memory: sharded states, and models of tensorizer.

vLLM calls the layers' methods again after it has read such files, and they would pack the weights twice. So a model with weights
that zoo has packed is not saved. `zoo.vllm.support.why_not_shared` keeps zoo from layers that are read from such files.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from vllm.model_executor.model_loader import ShardedStateLoader, TensorizerLoader

from zoo.errors import ZooError
from zoo.torch.serving import check_signatures

_PACKAGE = "vllm.model_executor.model_loader"
_SIGNATURES = {
    f"{_PACKAGE}:ShardedStateLoader.save_model": "model path pattern max_size",
    f"{_PACKAGE}:TensorizerLoader.save_model": "model tensorizer_config model_config",
}


def refuse_saves(layer: Any) -> None:
    layer.zoo_packed = True


def install() -> None:
    """Raises where vLLM is another, whose layers zoo then does not serve."""
    check_signatures(_SIGNATURES)
    for loader in (ShardedStateLoader, TensorizerLoader):
        if not hasattr(loader.save_model, "__wrapped__"):  # linear layers and experts both install this
            loader.save_model = staticmethod(_refusing(loader.save_model))


def _refusing(usual: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(usual)
    def save_model(model: Any, *more: Any, **named: Any) -> None:
        packed = next((name for name, layer in model.named_modules() if getattr(layer, "zoo_packed", False)), None)
        if packed is not None:
            raise ZooError(f"zoo has packed the weights of {packed}, and vLLM would pack them again; save the model with ZOO_VLLM=0")
        usual(model, *more, **named)

    return save_model
