"""torch's dtypes for zoo's, where torch is imported already."""

from __future__ import annotations

import sys
from typing import Any

from zoo.contract.dtypes import DTYPES


def torch_dtype(name: str) -> Any:
    """torch's dtype for one of zoo's; bytes where this torch has none."""
    torch: Any = sys.modules["torch"]
    return getattr(torch, DTYPES[name].torch, torch.uint8)
