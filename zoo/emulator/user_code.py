"""What `module:function` or `file.py:function` names in a user's own code."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from .errors import LaunchError


def attribute_of(name: str) -> Any:
    where, _, attribute = name.rpartition(":")
    if not where:
        raise LaunchError(f"{name!r} is not of the form module:function")
    try:
        if where.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(where).stem, where)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, os.getcwd())
            module = importlib.import_module(where)
        return getattr(module, attribute)
    except Exception as error:  # the module is a program of the user's
        raise LaunchError(f"{name}: {type(error).__name__}: {error}") from None
