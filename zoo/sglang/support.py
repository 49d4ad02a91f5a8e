"""Which of zoo's formats a device has, and what is said about it in SGLang's log."""

from __future__ import annotations

import logging
import os
from collections import Counter

import torch

from zoo.torch.nn.formats import FORMATS, on_gpu
from zoo.torch.serving import format_for

logger = logging.getLogger("sglang.zoo")
served: Counter[tuple[str, str]] = Counter()  # (kind of layer, format): layers of this process
_warned: set[str] = set()


def formats_on(device: torch.device) -> tuple[str, ...]:
    if device.type == "cuda":
        return on_gpu(torch.cuda.get_device_capability(device))
    return tuple(FORMATS) if os.environ.get("ZOO_SGLANG") == "cpu" else ()


def folds(device: torch.device) -> bool:
    """Whether MXFP8 weights become weights of fp8b128 on this device."""
    return format_for("mxfp8", True, formats_on(device)) == "fp8b128"


def say_served(kind: str, format: str) -> None:
    served[kind, format] += 1
    if served[kind, format] == 1:
        logger.info("zoo: format %s serves %s", format, kind)


def say_refused(kind: str, why: object) -> None:
    said = f"{kind} stay with SGLang's own kernel: {why}"
    if said not in _warned:
        _warned.add(said)
        logger.warning("zoo: %s", said)
