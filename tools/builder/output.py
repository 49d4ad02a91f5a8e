"""The manifest as text: stable, one line a variant, argument and parameter, so that a diff shows what changed."""

from __future__ import annotations

import json
from typing import Any

_WIDTH = 140
_ON_ONE_LINE = ("sha256", "access", "offset")  # marks of a variant, an argument, a parameter


def manifest_text(manifest: dict[str, Any]) -> str:
    return _text(manifest, 0) + "\n"


def pins_text(sha256: str) -> str:
    return f'"""Written by build_cubins.py: the manifest that this zoo belongs to."""\n\nMANIFEST_SHA256 = "{sha256}"\n'


def _text(value: Any, depth: int) -> str:
    line = json.dumps(value, ensure_ascii=False)
    is_record = isinstance(value, dict) and any(mark in value for mark in _ON_ONE_LINE)
    if is_record or not isinstance(value, (dict, list)) or not value or len(line) + depth <= _WIDTH:
        return line
    inner = " " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(key, ensure_ascii=False)}: {_text(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(parts) + "\n" + " " * depth + "}"
    return "[\n" + ",\n".join(inner + _text(item, depth + 1) for item in value) + "\n" + " " * depth + "]"
