"""What DeepGEMM lets a program set. Alignment and compile mode have an effect; the others are kept and returned."""

from __future__ import annotations

import logging
import os

from zoo.errors import ArgumentError

_log = logging.getLogger("zoo.compat.deep_gemm")
_DEFAULT_ALIGNMENT = 128

# Read by products at each call. `fill` says whether rows of -1 in m_indices are computed as DeepGEMM computes them.
alignment = _DEFAULT_ALIGNMENT
compile_mode = 0
fill = os.environ.get("ZOO_DEEP_GEMM_PADDING", "fill") != "skip"

_sms: int | None = None
_tc_util = 100
_pdl = True


def get_num_sms() -> int:
    """Multiprocessors of the current device, or what was set."""
    if _sms is not None:
        return _sms
    import torch

    if not torch.cuda.is_available():
        raise ArgumentError("get_num_sms: torch sees no GPU here; set_num_sms(n) gives a number to programs that only ask for it")
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)


def set_num_sms(new_num_sms: int) -> None:
    global _sms
    if _sms is None:
        _log.warning("set_num_sms(%s) is kept, and zoo's kernels use all multiprocessors all the same", new_num_sms)
    _sms = new_num_sms


def get_tc_util() -> int:
    return _tc_util


def set_tc_util(new_tc_util: int) -> None:
    global _tc_util
    _tc_util = new_tc_util


def get_pdl() -> bool:
    return _pdl


def set_pdl(new_enable_pdl: bool) -> None:
    """Kept. zoo's kernels let the next kernel begin early wherever their manifest says so."""
    global _pdl
    _pdl = new_enable_pdl


def set_ignore_compile_dims(new_value: bool) -> None:
    """Nothing to ignore: no kernel of zoo is compiled for sizes."""


def set_block_size_multiple_of(new_value: int | tuple[int, int]) -> None:
    """zoo chooses tiles by its own cost rule."""


def get_compile_mode() -> int:
    return compile_mode


def set_compile_mode(new_mode: int) -> None:
    """1: products return at once, as in SGLang's warm-up, which only compiles. zoo has nothing to compile."""
    global compile_mode
    compile_mode = new_mode


def get_mk_alignment_for_contiguous_layout() -> int:
    """The rows at whose multiples groups begin. zoo's kernels need no alignment; clients of DeepGEMM pad by this number."""
    return alignment


def set_mk_alignment_for_contiguous_layout(new_value: int) -> None:
    global alignment
    if isinstance(new_value, bool) or not isinstance(new_value, int) or new_value < 1:
        raise ArgumentError(f"set_mk_alignment_for_contiguous_layout: expected a number of rows from 1 on, got {new_value!r}")
    alignment = new_value


def get_theoretical_mk_alignment_for_contiguous_layout(expected_m: int | None = None, num_groups: int | None = None) -> int:
    return _DEFAULT_ALIGNMENT


get_m_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout
get_k_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout
