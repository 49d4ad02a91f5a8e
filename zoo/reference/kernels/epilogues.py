"""What a product makes of the sums of a piece before it rounds or quantises them."""

from __future__ import annotations

import numpy as np

from zoo.reference.block_scaled_epilogues import Gates, made_of_sums
from zoo.reference.kernels.call import Call
from zoo.reference.kernels.pieces import Piece


def of_group(array: np.ndarray | None, group: int | None) -> np.ndarray | None:
    """Numbers that are one for all groups, or one for each."""
    return array if array is None or group is None else array[group % len(array)]


def made_of_piece(call: Call, piece: Piece, sums: np.ndarray) -> np.ndarray:
    """`made_of_sums` with the factors and the activation of the call."""
    alpha, bias, row_scale = (call.arrays.get(name) for name in ("alpha", "bias", "row_scale"))
    if bias is not None and "gates" in call.settings:
        bias = call.gates_and_ups("bias", -2)
    row_scale = None if row_scale is None else row_scale[piece.place]
    return made_of_sums(sums, _gates(call), of_group(alpha, piece.group), of_group(bias, piece.group), row_scale)


def _gates(call: Call) -> Gates | None:
    if "gates" not in call.settings:
        return None
    return Gates(call.settings["gates"], call.settings["activation"], np.float32(call.settings["limit"]))
