"""Which of zoo's formats serves weights of vLLM on this device, and what is said about it in vLLM's log."""

from __future__ import annotations

import os
import sys
from collections import Counter

import torch
import vllm.envs
from vllm.config import get_current_vllm_config_or_none
from vllm.logger import init_logger
from vllm.platforms import current_platform

import zoo
from zoo.torch import serving
from zoo.torch.nn.formats import FORMATS, on_gpu

logger = init_logger("vllm.zoo")
_DAEMON = "vllm.model_executor.model_loader.weight_cache.daemon"  # which no engine imports
_PROCESSED = ("sharded_state", "runai_streamer_sharded", "tensorizer", "modelexpress")
served: Counter[tuple[str, str]] = Counter()  # (kind of layer, format): layers of this process


def on_cpu() -> bool:
    return os.environ.get("ZOO_VLLM") == "cpu"


def _formats_here() -> tuple[str, ...]:
    if on_cpu():
        return tuple(FORMATS)
    capability = current_platform.get_device_capability() if current_platform.is_cuda() else None
    return () if capability is None else on_gpu((capability.major, capability.minor))


def why_not_here() -> str | None:
    """Why zoo serves no layer of this process, whatever its format."""
    if vllm.envs.VLLM_BATCH_INVARIANT:
        return "VLLM_BATCH_INVARIANT asks for kernels that zoo has no promise for"
    if _formats_here():
        return None
    capability = current_platform.get_device_capability()
    return "no NVIDIA GPU" if capability is None else f"no cubins for compute capability {capability.major}.{capability.minor}"


def format_for(weights: str, tokens: str) -> str | None:
    """The format that multiplies these weights here. Tokens are never coarser than the checkpoint says, unless ZOO_VLLM_TOKENS=fp8."""
    return serving.format_for(weights, tokens, _formats_here(), os.environ.get("ZOO_VLLM_TOKENS") == "fp8")


def why_not_shared() -> str | None:
    """Why zoo packs no weights that another process of vLLM maps or has saved, whose zoo may be off or on.

    vLLM's weight cache has a daemon, and engines.
    """
    config = get_current_vllm_config_or_none()
    format = None if config is None else config.load_config.load_format
    if format == "ipc_cache" or _DAEMON in sys.modules:
        return "the weight cache shares them between processes"
    return f"--load-format {format} reads weights that were packed for other kernels" if format in _PROCESSED else None


def offloads() -> bool:
    """Whether vLLM keeps parameters in the host's memory."""
    config = get_current_vllm_config_or_none()
    offload = None if config is None else config.offload_config
    return offload is not None and (offload.uva.cpu_offload_gb > 0 or offload.prefetch.offload_group_size > 0)


def no_format(weights: str, tokens: str) -> str:
    why = f"zoo has no product of {weights} weights with {tokens} tokens on this GPU"
    other = serving.format_for(weights, tokens, _formats_here(), fp8_tokens=True) if serving.fp8_is_coarser(weights, tokens) else None
    return why if other is None else f"{why}; ZOO_VLLM_TOKENS=fp8 quantises tokens, for {other}"


def load(format: str) -> None:
    if not on_cpu():
        serving.load(format, torch.cuda.current_device())


def mark_compiled_code(kind: str, format: str | None) -> None:
    """Adds zoo to what vLLM keeps compiled code by, which would otherwise come back where zoo is off, or is another."""
    config = get_current_vllm_config_or_none()
    if config is not None and isinstance(config.additional_config, dict):
        config.additional_config.setdefault("zoo", {"version": zoo.__version__})[kind] = format


def say_served(kind: str, format: str, layer: str) -> None:
    served[kind, format] += 1
    if served[kind, format] == 1:
        logger.info("zoo: format %s serves %s, first %s", format, kind, layer)


def say_refused(kind: str, layer: str, why: object) -> None:
    said = f"{kind} stay with vLLM's own kernel: {why}"
    logger.warning_once("zoo: %s", f"{said} (for example {_pattern(layer)})" if layer else said)


def _pattern(layer: str) -> str:
    """A name without its numbers, so that one warning is enough for all layers of a model."""
    return ".".join("*" if part.isdecimal() else part for part in layer.split("."))
