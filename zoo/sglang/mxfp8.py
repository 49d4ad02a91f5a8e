"""MXFP8 checkpoints on Hopper, which SGLang refuses there. SGLang has a conversion to FP8 with scales for 128 x 128 for other GPUs.

zoo asks for that conversion, and its hooks on layers fold the scales in the conversion's place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.arg_groups.choices import add_mxfp8_moe_runner_backend_choices
from sglang.srt.layers.quantization.fp8 import Fp8Config
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from zoo.sglang import support
from zoo.torch.serving import check_signatures

_CONFIG = "sglang.srt.layers.quantization.fp8:Fp8Config"


def _folds() -> bool:
    return support.folds(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def _convert(_: None, config: Any, *arguments: Any, **others: Any) -> None:
    """After __init__. Weights that SGLang would quantise to MXFP8 itself have no conversion."""
    if config.use_mxfp8 and config.is_checkpoint_fp8_serialized and _folds():
        config.convert_mxfp8_to_block_fp8 = True


def _capability(usual: Callable[[Any], int], config: Any) -> int:
    """Around get_min_capability."""
    return 80 if config.convert_mxfp8_to_block_fp8 else usual(config)


def install() -> None:
    assert Fp8Config().convert_mxfp8_to_block_fp8 is None  # or AttributeError of another version of SGLang
    check_signatures({f"{_CONFIG}.get_min_capability": "self"})
    target = _CONFIG.replace(":", ".")
    HookRegistry.register(f"{target}.__init__", _convert, HookType.AFTER)
    HookRegistry.register(f"{target}.get_min_capability", _capability, HookType.AROUND)
    if _folds():  # elsewhere SGLang replaces this runner, which would misread the scales
        add_mxfp8_moe_runner_backend_choices(["triton"])  # whose place zoo takes
