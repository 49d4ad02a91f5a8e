"""Which of zoo's formats a device has, and what is said about it in SGLang's log."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import Any

import torch
from sglang.srt.runtime_context import get_exec, get_model

from zoo.torch.nn.formats import FORMATS, on_gpu
from zoo.torch.serving import format_for

logger = logging.getLogger("sglang.zoo")
served: Counter[tuple[str, str]] = Counter()  # (kind of layer, format): layers of this process
_warned: set[str] = set()
PACKED = "zoo has packed these weights, which cannot be loaded again; restart SGLang, or set ZOO_SGLANG=0"
_PROCESSED = ("sharded_state", "presharded", "remote", "remote_instance", "rdma", "local_cached", "ipc_cache")


def formats_on(device: torch.device) -> tuple[str, ...]:
    if device.type == "cuda":
        return on_gpu(torch.cuda.get_device_capability(device))
    return tuple(FORMATS) if os.environ.get("ZOO_SGLANG") == "cpu" else ()


def folds(device: torch.device) -> bool:
    """Whether MXFP8 weights become weights of fp8b128 on this device."""
    return format_for("mxfp8", "mxfp8", formats_on(device)) == "fp8b128"


def why_not_here(backend: str = "") -> str | None:
    """Which of SGLang's settings keeps layers from zoo. backend: fp8_gemm_runner_backend or fp4_gemm_runner_backend, of linear layers."""
    chosen = getattr(get_exec().kernel, backend) if backend else "auto"
    if chosen != "auto":
        return f"--{backend.replace('_runner', '').replace('_', '-')} is {chosen}"
    if get_exec().deterministic.enable_deterministic_inference:
        return "--enable-deterministic-inference asks for kernels that zoo has no promise for"
    format = getattr(get_model().load_format, "value", get_model().load_format)
    return f"--load-format {format} copies weights that were packed for other kernels" if format in _PROCESSED else None


def refuse_updates(layer: Any) -> None:
    """SGLang reads the reason before it writes new weights into a running model."""
    layer._derived_weight_cache_error = PACKED


def say_served(kind: str, format: str) -> None:
    served[kind, format] += 1
    if served[kind, format] == 1:
        logger.info("zoo: format %s serves %s", format, kind)


def say_refused(kind: str, why: object) -> None:
    said = f"{kind} stay with SGLang's own kernel: {why}"
    if said not in _warned:
        _warned.add(said)
        logger.warning("zoo: %s", said)
