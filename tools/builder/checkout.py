"""What a checkout of zoo is built with, from where and to where."""

from __future__ import annotations

from pathlib import Path

# The pinned compiler, from PyPI. The `build` extra of pyproject.toml installs the same.
PACKAGES = {
    "nvidia-cuda-nvcc": "13.5.37",
    "nvidia-nvvm": "13.5.37",
    "nvidia-cuda-crt": "13.5.37",
    "nvidia-cuda-runtime": "13.5.37",
    "nvidia-cuda-cccl": "13.3.5.0.6",
}
_ROOT = Path(__file__).resolve().parents[2]
SOURCE, OUTPUT, PINS = _ROOT / "src_cu", _ROOT / "cubins", _ROOT / "zoo" / "shipped" / "pins.py"
