"""zoo's kernels inside SGLang. SGLang itself calls `register`, by the entry point `sglang.srt.plugins`: docs/clients.md.

    ZOO_SGLANG=0      nothing is registered
    ZOO_SGLANG=cpu    zoo's written rules serve layers on a CPU, slowly: for tests

Importing this changes nothing, and imports no sglang.
"""

from __future__ import annotations

import importlib
import logging
import os
from functools import cache

_SETTINGS = ("0", "1", "cpu")
_PARTS = {"linear": "linear layers", "experts": "experts", "mxfp8": "MXFP8 checkpoints"}
_NEEDS = {"mxfp8": {"linear", "experts"}}  # which serve what it lets SGLang load
_registered: list[str] = []


def register() -> None:
    """Hooks zoo into SGLang's layers. Where SGLang is another, one warning says why, and it is left alone."""
    setting = os.environ.get("ZOO_SGLANG", "1")
    if setting == "0":
        return
    if setting not in _SETTINGS:
        _warn(f"ZOO_SGLANG: expected {', '.join(_SETTINGS)}, got {setting!r}")
        return
    for name, layers in _PARTS.items():
        if name in _registered or not _NEEDS.get(name, set()) <= set(_registered):
            continue
        try:
            importlib.import_module(f"zoo.sglang.{name}").install()
            _registered.append(name)
        except Exception as error:  # another version of SGLang may raise anything, and must start all the same
            _warn(f"{layers}: {type(error).__name__}: {error}")


@cache  # engines may call their plugins again in a process
def _warn(what: str) -> None:
    logging.getLogger("sglang.zoo").warning("zoo: %s; SGLang's own kernels are used", what)
