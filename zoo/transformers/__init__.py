"""zoo's kernels inside transformers, for serving and training. Nothing changes before `register()` is called.

    import zoo.transformers

    print(zoo.transformers.register())                                                    # what is on, and why something is off
    model = AutoModelForCausalLM.from_pretrained(path, experts_implementation="zoo")      # experts in FP8, weights as they are
    model = AutoModelForCausalLM.from_pretrained(path, quantization_config=zoo.transformers.ZooConfig("fp8b128"))

docs/clients.md tells the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from zoo.transformers.hooks import Hooks, register, unregister

if TYPE_CHECKING:
    from zoo.transformers.config import ZooConfig

__all__ = ["Hooks", "ZooConfig", "register", "unregister"]


def __getattr__(name: str) -> Any:
    if name != "ZooConfig":  # which needs transformers
        raise AttributeError(f"module 'zoo.transformers' has no attribute '{name}'")
    return importlib.import_module("zoo.transformers.config").ZooConfig


def __dir__() -> list[str]:
    return sorted(__all__)
