"""An installed DeepGEMM, for names and operands that zoo has no kernel for: one of the environment, or the copy inside vLLM.

It is found behind zoo's finder and imported under a name of its own, so that `deep_gemm` stays zoo's. ZOO_DEEP_GEMM_REAL=0 ignores it.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from zoo.errors import ArgumentError

_log = logging.getLogger("zoo.compat.deep_gemm")
_NAME = "zoo_real_deep_gemm"
_OF_VLLM = "vllm.third_party.deep_gemm"
_settings: dict[str, Any] = {}  # what the program has set, by the setters' names


def found() -> ModuleSpec | None:
    """Where a DeepGEMM lies, which zoo's is not. Nothing is imported."""
    spec = PathFinder.find_spec("deep_gemm")
    return spec if spec is not None and spec.origin else None


@cache
def module() -> ModuleType | None:
    """The real DeepGEMM, imported once. One that cannot be imported is none, and a warning says why."""
    if os.environ.get("ZOO_DEEP_GEMM_REAL", "1") == "0":
        return None
    spec = found()
    try:
        if spec is not None:
            made = _imported(spec)
        elif "vllm" in sys.modules and importlib.util.find_spec(_OF_VLLM) is not None:
            made = importlib.import_module(_OF_VLLM)
        else:
            return None
        for name, value in _settings.items():
            _tell(made, name, value)
        return made
    except Exception as error:  # whatever its import does: it looks for a compiler and loads an extension
        _log.warning("names that zoo lacks stay absent: the DeepGEMM in this environment cannot be imported: %s", error)
    return None


def told(setter: str, value: Any) -> None:
    """A setting of the program, which the real DeepGEMM gets at once, or when it is imported."""
    _settings[setter] = value
    made = module() if module.cache_info().currsize else None
    if made is not None:
        _tell(made, setter, value)


def _tell(made: ModuleType, setter: str, value: Any) -> None:
    if hasattr(made, setter):  # versions have different ones
        getattr(made, setter)(value)


def _imported(spec: ModuleSpec) -> ModuleType:
    places = spec.submodule_search_locations
    renamed = importlib.util.spec_from_file_location(_NAME, spec.origin, submodule_search_locations=list(places) if places else None)
    assert renamed is not None and renamed.loader is not None
    made = importlib.util.module_from_spec(renamed)
    sys.modules[_NAME] = made
    try:
        renamed.loader.exec_module(made)
    except BaseException:
        del sys.modules[_NAME]
        raise
    return made


def attribute(asked: str, name: str) -> Any:
    """A name that zoo lacks."""
    made = module()
    if made is not None and hasattr(made, name):
        _log.info("%s.%s comes from the DeepGEMM in %s", asked, name, made.__file__)
        return getattr(made, name)
    where = "and neither has the DeepGEMM that is installed here" if made is not None else "and no other DeepGEMM is installed here"
    raise AttributeError(
        f"module '{asked}' has no attribute '{name}': zoo has no kernel for it, {where}; docs/deep_gemm.md lists the names", name=name
    )


def instead(name: str, lacks: str) -> Callable[..., Any]:
    """The real function for operands that zoo has no kernel for, or a refusal."""
    made = module()
    if made is not None and hasattr(made, name):
        return getattr(made, name)  # type: ignore[no-any-return]
    raise ArgumentError(f"{name}: {lacks}; zoo has no kernel for other operands under this name, and no other DeepGEMM is installed here")
