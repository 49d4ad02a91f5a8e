"""What DeepGEMM lets a program set. Multiprocessors, alignment and compile mode have an effect; the others are kept and returned.

An installed DeepGEMM, whose kernels run beside zoo's, gets every setting as well.
"""

from __future__ import annotations

import os

from zoo.compat.deep_gemm.real import told
from zoo.contract.limits import PERSISTENT_CLUSTER
from zoo.contract.whole_numbers import whole
from zoo.errors import ArgumentError

_DEFAULT_ALIGNMENT = 128

# Read by products at each call. `sms` limits the multiprocessors, None where nothing was set. `fill` says whether rows of -1 in m_indices are computed as DeepGEMM computes them.
alignment = _DEFAULT_ALIGNMENT
compile_mode = 0
sms: int | None = None
fill = os.environ.get("ZOO_DEEP_GEMM_PADDING", "fill") != "skip"

_tc_util = 100
_pdl = True


def get_num_sms() -> int:
    """Multiprocessors of the current device, or what was set."""
    if sms is not None:
        return sms
    present = _present()
    if present is None:
        raise ArgumentError("get_num_sms: torch sees no GPU here; set_num_sms(n) gives a number to programs that only ask for it")
    return present


def set_num_sms(new_num_sms: int) -> None:
    """Persistent kernels fill so many multiprocessors at most, in all threads. `zoo.multiprocessors` limits compiled functions."""
    global sms
    present = _present()
    sms = whole(new_num_sms, "set_num_sms", PERSISTENT_CLUSTER, 2**31 - 1 if present is None else present)
    told("set_num_sms", sms)


def _present() -> int | None:
    """Multiprocessors of the current device; None without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return None
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)


def get_tc_util() -> int:
    return _tc_util


def set_tc_util(new_tc_util: int) -> None:
    global _tc_util
    _tc_util = new_tc_util
    told("set_tc_util", new_tc_util)


def get_pdl() -> bool:
    return _pdl


def set_pdl(new_enable_pdl: bool) -> None:
    """Kept. zoo's kernels let the next kernel begin early wherever their manifest says so."""
    global _pdl
    _pdl = new_enable_pdl
    told("set_pdl", new_enable_pdl)


def set_ignore_compile_dims(new_value: bool) -> None:
    """Nothing to ignore: no kernel of zoo is compiled for sizes."""
    told("set_ignore_compile_dims", new_value)


def set_block_size_multiple_of(new_value: int | tuple[int, int]) -> None:
    """zoo chooses tiles by its own cost rule."""
    told("set_block_size_multiple_of", new_value)


def get_compile_mode() -> int:
    return compile_mode


def set_compile_mode(new_mode: int) -> None:
    """1: products return at once, as in SGLang's warm-up, which only compiles. zoo has nothing to compile. 0: products compute."""
    global compile_mode
    compile_mode = whole(new_mode, "set_compile_mode", 0, 1)
    told("set_compile_mode", compile_mode)


def get_mk_alignment_for_contiguous_layout() -> int:
    """The rows at whose multiples groups begin. zoo's kernels need no alignment; clients of DeepGEMM pad by this number."""
    return alignment


def set_mk_alignment_for_contiguous_layout(new_value: int) -> None:
    global alignment
    if isinstance(new_value, bool) or not isinstance(new_value, int) or new_value < 1:
        raise ArgumentError(f"set_mk_alignment_for_contiguous_layout: expected a number of rows from 1 on, got {new_value!r}")
    alignment = new_value
    told("set_mk_alignment_for_contiguous_layout", new_value)


def get_theoretical_mk_alignment_for_contiguous_layout(expected_m: int | None = None, num_groups: int | None = None) -> int:
    return _DEFAULT_ALIGNMENT


get_m_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout
get_k_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout
