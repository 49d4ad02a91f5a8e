"""DeepGEMM's public names on zoo's kernels, without a compiler.

    python -m zoo.compat.deep_gemm --install     # provides the module name `deep_gemm` in this environment

Names, argument orders and layouts are DeepGEMM's. A name is loaded at its first use, so importing this imports no torch. A name without a
kernel of zoo comes from an installed DeepGEMM, or is absent. Under the name `deep_gemm` this file runs a second time, so imports here are
absolute: functions and settings exist once. docs/deep_gemm.md lists the names.
"""

from __future__ import annotations

import importlib

import zoo

_PRODUCTS = (
    "fp8_gemm_nt", "fp8_gemm_nn", "fp8_gemm_tn", "fp8_gemm_tt",
    "fp8_fp4_gemm_nt", "fp8_fp4_gemm_nn", "fp8_fp4_gemm_tn", "fp8_fp4_gemm_tt",
    "m_grouped_fp8_gemm_nt_contiguous", "m_grouped_fp8_gemm_nn_contiguous", "m_grouped_fp8_gemm_nt_masked",
    "m_grouped_fp8_fp4_gemm_nt_contiguous", "m_grouped_fp8_fp4_gemm_nn_contiguous", "m_grouped_fp8_fp4_gemm_nt_masked",
    "fp8_m_grouped_gemm_nt_masked", "fp8_einsum",
)  # fmt: skip
_GRADIENTS = ("k_grouped_fp8_gemm_nt_contiguous", "k_grouped_fp8_gemm_tn_contiguous")
_CASTS = (
    "ceil_div", "align", "ceil_to_ue8m0", "pack_ue8m0_to_int", "unpack_ue8m0_from_int", "per_token_cast_to_fp8", "per_channel_cast_to_fp8",
    "per_block_cast_to_fp8", "per_custom_dims_cast_to_fp8",
)  # fmt: skip
_LAYOUTS = (
    "get_tma_aligned_size", "get_mn_major_tma_aligned_tensor", "get_mn_major_tma_aligned_packed_ue8m0_tensor",
    "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor", "transform_sf_into_required_layout",
)  # fmt: skip
_SETTINGS = (
    "get_num_sms", "set_num_sms", "get_tc_util", "set_tc_util", "get_pdl", "set_pdl", "set_ignore_compile_dims",
    "set_block_size_multiple_of", "get_compile_mode", "set_compile_mode", "get_mk_alignment_for_contiguous_layout",
    "set_mk_alignment_for_contiguous_layout", "get_theoretical_mk_alignment_for_contiguous_layout",
    "get_m_alignment_for_contiguous_layout", "get_k_alignment_for_contiguous_layout",
)  # fmt: skip
_HOME = {
    name: f"zoo.compat.deep_gemm.{module}"
    for module, names in (
        ("products", _PRODUCTS), ("weight_gradients", _GRADIENTS), ("casts", _CASTS), ("layouts", _LAYOUTS), ("settings", _SETTINGS),
    )
    for name in names
}  # fmt: skip

__all__ = [*_HOME, "utils"]
__version__ = f"2.6.1+zoo{zoo.__version__}"  # of DeepGEMM, whose names these are


def __getattr__(name: str) -> object:
    if name == "utils":
        return importlib.import_module(f"{__name__}.utils")
    if name in _HOME:
        value: object = getattr(importlib.import_module(_HOME[name]), name)
    elif name.startswith("_"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    else:
        value = importlib.import_module("zoo.compat.deep_gemm.real").attribute(__name__, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
