"""The tensors of one layer, from a safetensors file or the folder of a model. Only what begins with the layer's prefix is read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch

from zoo.contract.whole_numbers import shown
from zoo.errors import ArgumentError

_INDEX = "model.safetensors.index.json"


def tensors_of(path_or_tensors: str | os.PathLike[str] | Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Tensors by their names, which begin with `prefix`."""
    if isinstance(path_or_tensors, Mapping):
        found = {name: one for name, one in path_or_tensors.items() if name.startswith(prefix)}
    else:
        found = {}
        for file in _files(Path(path_or_tensors), prefix):
            found |= _read(file, prefix)
    if not found:
        raise ArgumentError(f"from_checkpoint: no tensor's name begins with {shown(prefix)}")
    return found


def _files(path: Path, prefix: str) -> list[Path]:
    """The files that have tensors of the layer: a folder's index names them."""
    if not path.is_dir():
        return [path]
    index = path / _INDEX
    if not index.exists():
        return sorted(path.glob("*.safetensors"))
    try:
        names: dict[str, str] = json.loads(index.read_text())["weight_map"]
        files = {path / Path(file).name for name, file in names.items() if name.startswith(prefix)}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ArgumentError(f"from_checkpoint: {index} is no index of safetensors files") from None
    return sorted(files)


def _read(file: Path, prefix: str) -> dict[str, torch.Tensor]:
    try:
        import safetensors
    except ImportError:
        raise ArgumentError("from_checkpoint: files need safetensors, which is not installed: pip install safetensors") from None
    try:
        with safetensors.safe_open(str(file), framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys() if name.startswith(prefix)}  # noqa: SIM118
    except Exception as error:  # of safetensors, which has a type of its own
        raise ArgumentError(f"from_checkpoint: cannot read {shown(str(file))}: {' '.join(str(error).split())}") from None
