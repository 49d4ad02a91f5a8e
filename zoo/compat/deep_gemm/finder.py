"""Provides the module name `deep_gemm`. `python -m zoo.compat.deep_gemm --install` copies this file to site-packages as _zoo_deep_gemm.py,
and zoo_deep_gemm.pth beside it imports it at the start of Python. `--uninstall` removes both.

A DeepGEMM in site-packages stays as it is. ZOO_DEEP_GEMM=0 switches this off for a run. Without zoo it does nothing.
"""

import importlib.util
import os
import sys


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "deep_gemm" or os.environ.get("ZOO_DEEP_GEMM") in ("0", "off"):
            return None
        zoo = importlib.util.find_spec("zoo")
        for folder in (zoo and zoo.submodule_search_locations) or ():
            package = os.path.join(folder, "compat", "deep_gemm")
            file = os.path.join(package, "__init__.py")
            if os.path.isfile(file):
                return importlib.util.spec_from_file_location(name, file, submodule_search_locations=[package])
        return None


def provide() -> None:
    """Before all other finders, once."""
    if not any(getattr(one, "__qualname__", "") == "Finder" and one.__module__ == __name__ for one in sys.meta_path):
        sys.meta_path.insert(0, Finder)


if __name__ == "_zoo_deep_gemm":
    provide()
