"""zoo's kernels inside vLLM. vLLM itself calls `register`, by the entry point `vllm.general_plugins`: docs/clients.md.

    ZOO_VLLM=0             nothing is registered
    ZOO_VLLM=cpu           zoo's written rules serve layers on a CPU, slowly: for tests
    ZOO_VLLM_TOKENS=fp8    4-bit weights without a format of tokens multiply FP8 tokens; by default such tokens stay bf16

Importing this changes nothing, and imports no vllm.
"""

from __future__ import annotations

import importlib
import logging
import os
from functools import cache

_SETTINGS = {"ZOO_VLLM": ("1", "0", "cpu"), "ZOO_VLLM_TOKENS": ("", "fp8")}  # the default first
_PARTS = {"linear": "linear layers", "experts": "experts"}
_registered: set[str] = set()


def register() -> None:
    """Puts zoo's kernels first where zoo has some for this GPU. Otherwise vLLM is left alone, and one warning says why."""
    if os.environ.get("ZOO_VLLM") == "0":
        return
    for name, choices in _SETTINGS.items():
        setting = os.environ.get(name, choices[0])
        if setting not in choices:
            _warn(f"{name}: expected {', '.join(filter(None, choices))}, got {setting!r}; vLLM's own kernels are used")
            return
    for name, layers in _PARTS.items():
        if name in _registered:  # vLLM calls its plugins again in some processes
            continue
        try:
            from zoo.vllm.support import why_not_here

            reason = why_not_here()
            if reason is not None:
                _warn(f"{reason}; vLLM's own kernels are used")
                return
            importlib.import_module(f"zoo.vllm.{name}").install()
            _registered.add(name)
        except Exception as error:  # another version of vLLM may raise anything, and must start all the same
            _warn(f"{layers}: {type(error).__name__}: {error}; vLLM's own kernels are used")


@cache  # engines may call their plugins again in a process
def _warn(what: str) -> None:
    logging.getLogger("vllm.zoo").warning("zoo: %s", what)
