"""A mixture-of-experts layer with packed 4-bit weights, as kernels compute it: every step by zoo.reference, to the bit.

docs/four_bit_weights.md has the same steps as a program. Weights are read from what was packed, so a mistake in packing is one in the result.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.checkpoints.readers import Matrices
from zoo.reference.four_bit_gemm import gemm_fp8_by_four_bit
from zoo.reference.four_bit_weights import mxfp4_as_e4m3, nvfp4_as_e4m3
from zoo.reference.fragments import pack_mxfp4, pack_nvfp4, permuted_columns, row_order, unpack_mxfp4, unpack_nvfp4
from zoo.reference.groups import gather
from zoo.reference.swiglu import gated_unit
from zoo.reference.token_rows import quantize_token_rows

F32 = np.float32


class Packed:
    """The weights of all experts as a product reads them: e4m3 in the order of packed rows, and a factor for each of these."""

    def __init__(self, matrices: Matrices):
        rows, self.columns = matrices.q.shape[1], 2 * matrices.q.shape[2]
        if matrices.format == "nvfp4":
            b = pack_nvfp4(matrices.q, matrices.scales, matrices.gates)
            whole = unpack_nvfp4(_in_packed_order(b, matrices.gates), 64 * b.shape[1], 64 * b.shape[2])
            weights, factors = nvfp4_as_e4m3(*whole), np.full((len(b), 64 * b.shape[1]), 8, F32)
        else:
            packed = pack_mxfp4(matrices.q, matrices.scales, matrices.gates)
            b = packed.b
            row_scale = packed.row_scale.reshape(len(b), -1)
            rebased = mxfp4_as_e4m3(*unpack_mxfp4(_in_packed_order(b, matrices.gates), row_scale, 64 * b.shape[1], 64 * b.shape[2]))
            weights, factors = rebased.weights, rebased.factors
        self.weights, self.factors = weights[:, :rows], factors[:, :rows]
        if matrices.alpha is not None:
            self.factors = self.factors * matrices.alpha[:, None]
        order = row_order(rows, matrices.gates)[:rows]
        self.bias = None if matrices.bias is None else matrices.bias[:, order]
        self.rows = rows


def _in_packed_order(b: np.ndarray, gates: str) -> np.ndarray:
    """Packed gates and ups as if their rows were plain, so that they are unpacked as they lie."""
    return b if gates == "plain" else b.reshape(*b.shape[:-2], 2 * b.shape[-1])


def grouped_product(x: np.ndarray, packed: Packed, ends: np.ndarray) -> np.ndarray:
    """f32 (M, N) of bf16 rows, those of each expert by its matrix: quantised to e4m3 with a scale for each row."""
    a = quantize_token_rows(x, "fragments")
    whole = a.q.reshape(len(x), -1)
    q = permuted_columns(whole).reshape(whole.shape)[:, : packed.columns]  # the columns as they were
    found, begin = np.zeros((len(x), packed.rows), F32), 0
    for expert, end in enumerate(ends.tolist()):
        if begin < end:
            sums = gemm_fp8_by_four_bit(q[begin:end], packed.weights[expert][:, : packed.columns]) * a.scales[begin:end, None]
            sums = sums * packed.factors[expert]
            found[begin:end] = sums if packed.bias is None else sums + packed.bias[expert]
        begin = end
    return found


def gates_and_ups(sums: np.ndarray) -> np.ndarray:
    """From the order of packed rows, 8 gates before their 8 ups, to all gates before all ups."""
    pairs = sums.reshape(len(sums), -1, 2, 8)
    return np.concatenate((pairs[:, :, 0].reshape(len(sums), -1), pairs[:, :, 1].reshape(len(sums), -1)), axis=1)


def routed(logits: np.ndarray, top_k: int, routing: str) -> tuple[np.ndarray, np.ndarray]:
    """(the experts of each token, their shares)."""
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :top_k]
    of_chosen = np.take_along_axis(logits, chosen, axis=1).astype(np.float64)
    if routing == "softmax of the chosen":
        shares = np.exp(of_chosen - of_chosen.max(axis=1, keepdims=True))
    else:
        shares = 1 / (1 + np.exp(-of_chosen))
    return chosen, shares / shares.sum(axis=1, keepdims=True)


def layer(
    x: np.ndarray,
    chosen: np.ndarray,
    shares: np.ndarray,
    first: Matrices,
    second: Matrices,
    activation: str,
    limit: float,
) -> np.ndarray:
    """(T, K) float32 of bf16 tokens x (T, K)."""
    top_k, experts = chosen.shape[1], len(first.q)
    order = np.argsort(chosen.reshape(-1), kind="stable")
    token = (order // top_k).astype(np.int32)
    ends = np.cumsum(np.bincount(chosen.reshape(-1), minlength=experts))
    sums = grouped_product(gather(x, token), Packed(first), ends)
    h = gated_unit(gates_and_ups(sums), "halves", activation, F32(limit)).astype(ml_dtypes.bfloat16)
    y = grouped_product(h, Packed(second), ends).astype(ml_dtypes.bfloat16)
    of_tokens = y.astype(F32)[np.argsort(order, kind="stable")].reshape(len(x), top_k, -1)
    return np.asarray((of_tokens * shares.astype(F32)[..., None]).sum(axis=1))
