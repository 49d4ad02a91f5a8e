"""zoo's kernels inside SGLang. SGLang itself calls `register`, by the entry point `sglang.srt.plugins`: docs/clients.md.

    ZOO_SGLANG=0      nothing is registered
    ZOO_SGLANG=cpu    zoo's written rules serve layers on a CPU, slowly: for tests

Importing this changes nothing, and imports no sglang.
"""

from __future__ import annotations

import logging
import os

_SETTINGS = ("0", "1", "cpu")
_registered: list[str] = []


def register() -> None:
    """Hooks zoo into SGLang's linear layers. Where SGLang is another, one warning says why, and it is left alone."""
    setting = os.environ.get("ZOO_SGLANG", "1")
    if setting == "0" or _registered:
        return
    try:
        if setting not in _SETTINGS:
            raise ValueError(f"ZOO_SGLANG: expected {', '.join(_SETTINGS)}, got {setting!r}")
        from zoo.sglang import linear

        linear.install()
        _registered.append("linear")
    except Exception as error:  # another version of SGLang may raise anything, and must start all the same
        logging.getLogger("sglang.zoo").warning("zoo: %s: %s; SGLang's own kernels are used", type(error).__name__, error)
