"""deep_gemm.utils: casts and layouts, as in DeepGEMM."""

from zoo.compat.deep_gemm import real
from zoo.compat.deep_gemm.casts import *  # noqa: F403
from zoo.compat.deep_gemm.layouts import *  # noqa: F403

from . import layout, math  # noqa: F401


def __getattr__(name: str) -> object:
    if name.startswith("_"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return real.attribute(__name__, name)
