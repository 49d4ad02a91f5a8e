"""The rule of `gemm.fp8b128.*`. On Blackwell scales are powers of two, and the tensor core multiplies by them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zoo.contract.manifest import Kernel
from zoo.reference.block_formats import block_format
from zoo.reference.gemm import accumulated, gemm_fp8b128, gemm_fp8b128_k_grouped, rounded
from zoo.reference.gemm_powers_of_two import gemm_fp8b128_k_grouped_of_powers, gemm_fp8b128_of_powers
from zoo.reference.kernels.call import Call
from zoo.reference.kernels.epilogues import made_of_piece
from zoo.reference.kernels.pieces import pieces, taken
from zoo.reference.kernels.shared_rest import shares_of_rest
from zoo.reference.quantize import quantize_rows


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    return _along_k if kernel.fields["grouping"] == "k_grouped" else _of_rows


def _of_rows(call: Call) -> None:
    arrays, extra = call.arrays, call.kernel.fields.get("extra")
    product = gemm_fp8b128_of_powers if call.on_blackwell else gemm_fp8b128
    weights = arrays["b"] if extra is None else call.gates_and_ups("b", -3)
    for piece in pieces(call, len(arrays["q" if extra == "swiglu_fp8b128" else "d"])):
        group, place, _ = piece
        if "index" in arrays:
            a, a_scale = (taken(arrays[name], arrays["index"][place]) for name in ("a", "a_scale"))
        else:
            a, a_scale = arrays["a"][place], arrays["a_scale"][place]
        b, b_scale = (array if group is None else array[group] for array in (weights, arrays["b_scale"]))
        sums = product(a, a_scale, b, b_scale, _splits(call))
        shares, where = shares_of_rest(call.launch, *sums.shape)
        if where.any():
            sums = np.where(where, product(a, a_scale, b, b_scale, shares), sums)
        h = made_of_piece(call, piece, sums)
        if extra == "swiglu_fp8b128":
            result = quantize_rows(h, block_format("fp8b128", scaling=call.settings["scaling"]))
            call.put("q", result.q, place)
            call.put("scales", result.scales, place)
            continue
        with np.errstate(all="ignore"):
            h = arrays["c"].astype(np.float32) + h if "c" in arrays else h
        call.put("d", rounded(h, call.dtype("d")), place)


def _splits(call: Call) -> int:
    """Of Blackwell's variants those that share K say it by their clusters."""
    launch = call.launch
    if not call.on_blackwell or "SPLITS" in launch.variant.constants or call.kernel.fields["grouping"] != "dense":
        return call.splits
    return launch.cluster[0] // launch.variant.constants.get("CTAS", 1)


def _along_k(call: Call) -> None:
    arrays = call.arrays
    product = gemm_fp8b128_k_grouped_of_powers if call.on_blackwell else gemm_fp8b128_k_grouped
    offsets, d, dtype = arrays["offsets"], arrays["d"], call.dtype("d")
    sums = product(arrays["a"], arrays["a_scale"], arrays["b"], arrays["b_scale"], offsets)
    for group, size in enumerate(np.diff(offsets, prepend=0).tolist()):
        if call.settings["accumulate"] == "no":
            call.put("d", rounded(sums[group], dtype), group)
        elif size:
            call.put("d", accumulated(d[group], sums[group], dtype), group)
