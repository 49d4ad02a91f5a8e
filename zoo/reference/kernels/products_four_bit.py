"""The rule of `gemm.{fp8,bf16}_{nvfp4,mxfp4}.*`: FP8 or bf16 tokens by 4-bit weights, on Hopper; sums, or what is made of gates and ups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zoo.contract.manifest import Kernel
from zoo.reference.block_scaled_epilogues import Gates
from zoo.reference.four_bit_gated import Steps, h_of_sums, quantised_by, quantised_in_blocks
from zoo.reference.four_bit_gemm import factors_of, finished, gemm_bf16_by_four_bit, gemm_fp8_by_four_bit
from zoo.reference.four_bit_weights import mxfp4_as_bf16, mxfp4_as_e4m3, nvfp4_as_bf16, nvfp4_as_e4m3
from zoo.reference.fragment_words import COLUMNS, ROWS
from zoo.reference.fragments import column_order, unpack_mxfp4, unpack_nvfp4
from zoo.reference.gemm import rounded
from zoo.reference.kernels.call import Call
from zoo.reference.kernels.pieces import pieces, taken


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    return _of_gates if "swiglu" in kernel.fields.get("extra", "") else _of_rows


def _of_rows(call: Call) -> None:
    arrays, d, tokens = call.arrays, call.arrays["d"], _tokens(call)
    for group, place, _ in pieces(call, len(d)):
        rows = arrays["index"][place] if "index" in arrays else None
        a = tokens[place] if rows is None else taken(tokens, rows)
        a_scale, row_scale = arrays.get("a_scale"), arrays.get("row_scale")
        if a_scale is not None:
            a_scale = a_scale[place] if rows is None else _taken_scales(a_scale, rows)
        row_scale = None if row_scale is None else row_scale[place]
        block_scale = arrays.get("a_block_scale")
        if block_scale is not None:
            block_scale = block_scale[place] if rows is None else _taken_scales(block_scale, rows)
        weights, powers = _weights(call, group, d.shape[-1])
        alpha, bias = arrays.get("alpha"), arrays.get("bias")
        alpha_of_group = None if alpha is None else alpha[group or 0]
        bias_of_group = bias if bias is None or group is None else bias[group]
        if _is_bf16(call):
            sums = gemm_bf16_by_four_bit(a, weights[:, : a.shape[1]], call.splits)
        else:
            promotion = "never" if call.settings.get("promotion") == "never" else "256"
            weights = _filled_up(weights, a.shape[1])
            sums = gemm_fp8_by_four_bit(_in_order_of_k(a, weights.shape[1]), weights, promotion, block_scale, call.splits)
        sums = finished(sums, factors_of(powers, alpha_of_group), a_scale, bias_of_group, row_scale)
        call.put("d", rounded(sums, call.dtype("d")), place)


def _of_gates(call: Call) -> None:
    """Products whose rows of weights are gates and ups, which end in h."""
    arrays, settings = call.arrays, call.settings
    result, tokens, columns = arrays["d" if "d" in arrays else "q"], _tokens(call), call.launch.symbols["I"]
    all_of_bias = call.gates_and_ups("bias", -2) if "bias" in arrays else None
    in_halves = _gates_then_ups(call, columns)
    gates = Gates("halves", settings["activation"], np.float32(settings["limit"]))
    for group, place, _ in pieces(call, len(result)):
        rows = arrays["index"][place] if "index" in arrays else None
        a = tokens[place] if rows is None else taken(tokens, rows)
        weights, powers = _weights(call, group, 2 * columns)
        if _is_bf16(call):
            sums = gemm_bf16_by_four_bit(a, weights[:, : a.shape[1]])
        else:
            weights = _filled_up(weights, a.shape[1])
            block_scale = arrays.get("a_block_scale")
            if block_scale is not None:
                block_scale = block_scale[place] if rows is None else _taken_scales(block_scale, rows)
            sums = gemm_fp8_by_four_bit(_in_order_of_k(a, weights.shape[1]), weights, "256", block_scale)
        a_scale, alpha, bias = arrays.get("a_scale"), arrays.get("alpha"), all_of_bias
        if a_scale is not None:
            a_scale = a_scale[place] if rows is None else _taken_scales(a_scale, rows)
        if group is not None:
            alpha, bias = (None if array is None else array[group] for array in (alpha, bias))
        if bias is not None and settings["gates"] == "interleaved":
            bias = np.concatenate((bias[0::2], bias[1::2]))
        steps = Steps(alpha, a_scale, bias, arrays["row_scale"][place] if "row_scale" in arrays else None)
        h = h_of_sums(sums[:, in_halves], powers[in_halves], gates, steps)
        if "d" in arrays:
            call.put("d", rounded(h, call.dtype("d")), place)
        elif "q_scale" in arrays:
            known = arrays["q_scale"][(group or 0) % len(arrays["q_scale"])]
            call.put("q", quantised_by(h, known, settings["order"] == "fragments"), place)
            call.put("scales", np.full((len(h), -(-columns // 128)), known, np.float32), place)
        else:
            made = quantised_in_blocks(h, settings["scaling"], settings["order"] == "fragments")
            call.put("q", made.q, place)
            call.put("scales", made.scales, place)


def _gates_then_ups(call: Call, columns: int) -> np.ndarray:
    """Which rows of b are all gates, and then all ups."""
    rows = np.arange(2 * columns)
    if "b_scale" not in call.arrays:  # packed eight and eight
        return rows.reshape(-1, 2, 8).swapaxes(0, 1).reshape(-1)
    return rows.reshape(-1, 2).T.reshape(-1) if call.settings["gates"] == "interleaved" else rows


def _weights(call: Call, group: int | None, N: int) -> tuple[np.ndarray, np.ndarray]:
    """e4m3 or bf16 of N rows, as many columns as chunks have, and the power of two of each row."""
    own = {name: array if group is None else array[group] for name, array in call.arrays.items() if name.startswith("b_") or name == "b"}
    is_nvfp4, is_bf16, b, gated = call.kernel.fields["formats"].endswith("nvfp4"), _is_bf16(call), own["b"], "gates" in call.settings
    if "b_scale" in own:  # as a checkpoint stores them
        b, b_scale = (own[name].reshape(N, -1 if N else 0) if gated else own[name] for name in ("b", "b_scale"))
        if is_nvfp4:
            return (nvfp4_as_bf16 if is_bf16 else nvfp4_as_e4m3)(b, b_scale), np.full(N, 8, np.float32)
        rebased = (mxfp4_as_bf16 if is_bf16 else mxfp4_as_e4m3)(b, b_scale, own["b_row_scale"][:N].view(np.uint8))
        return rebased.weights, rebased.factors
    if gated:  # rows as they are packed
        b = b.reshape(*b.shape[:-2], 2 * b.shape[-1])
    rows, columns, tokens = b.shape[0] * ROWS, b.shape[1] * COLUMNS, "bf16" if is_bf16 else "fp8"
    if is_nvfp4:
        as_numbers = nvfp4_as_bf16 if is_bf16 else nvfp4_as_e4m3
        return as_numbers(*unpack_nvfp4(b, rows, columns, tokens=tokens))[:N], np.full(N, 8, np.float32)
    rebased = (mxfp4_as_bf16 if is_bf16 else mxfp4_as_e4m3)(*unpack_mxfp4(b, own["b_row_scale"].reshape(-1), rows, columns, tokens=tokens))
    return rebased.weights[:N], rebased.factors[:N]


def _tokens(call: Call) -> np.ndarray:
    """A, with columns in fragment order where it is e4m3."""
    return call.arrays["a"] if _is_bf16(call) else call.rows("a")


def _is_bf16(call: Call) -> bool:
    return call.kernel.fields["formats"].startswith("bf16")


def _in_order_of_k(a: np.ndarray, columns: int) -> np.ndarray:
    """Tokens come with their columns in the order of register fragments, in rows of whole chunks."""
    found = np.zeros((len(a), columns), a.dtype)
    found[:, column_order(columns)[: a.shape[1]]] = a
    return found


def _filled_up(weights: np.ndarray, columns: int) -> np.ndarray:
    """Weights as they are stored may end within the last chunk of tokens."""
    found = np.zeros((len(weights), max(columns, weights.shape[1])), weights.dtype)
    found[:, : weights.shape[1]] = weights
    return found


def _taken_scales(a_scale: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """1 for rows of zeros, which are no row's."""
    there = (rows >= 0) & (rows < len(a_scale))
    scales = np.ones((len(rows), *a_scale.shape[1:]), np.float32)
    scales[there] = a_scale[rows[there]]
    return scales
