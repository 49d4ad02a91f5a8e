"""The rules of `pack.*.fragments` and `unpack.*.fragments`: 4-bit weights in the order of a warpgroup's registers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from zoo.contract.manifest import Kernel
from zoo.reference.fragments import pack_mxfp4, pack_nvfp4, unpack_mxfp4, unpack_nvfp4
from zoo.reference.kernels.call import Call


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    return {
        ("pack", "nvfp4"): _pack_nvfp4,
        ("pack", "mxfp4"): _pack_mxfp4,
        ("unpack", "nvfp4"): _unpack_nvfp4,
        ("unpack", "mxfp4"): _unpack_mxfp4,
    }[kernel.fields["op"], kernel.fields["formats"]]


def _pack_nvfp4(call: Call) -> None:
    call.put("b", pack_nvfp4(*_matrices(call), *_order(call)))


def _pack_mxfp4(call: Call) -> None:
    made = pack_mxfp4(*_matrices(call), *_order(call))
    call.put("b", made.b)
    call.put("row_scale", made.row_scale)
    call.put("rounded", made.rounded)


def _unpack_nvfp4(call: Call) -> None:
    _put(call, *unpack_nvfp4(call.arrays["b"], *_sizes(call), *_order(call)))


def _unpack_mxfp4(call: Call) -> None:
    _put(call, *unpack_mxfp4(call.arrays["b"], call.arrays["row_scale"], *_sizes(call), *_order(call)))


def _matrices(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """Codes and their scales, (G, N, ...)."""
    if call.settings["gates"] == "plain":
        return call.arrays["q"], call.arrays["scales"]
    return call.gates_and_ups("q", 1), call.gates_and_ups("scales", 1)


def _order(call: Call) -> tuple[str, str]:
    return call.settings["gates"], call.settings["tokens"]


def _sizes(call: Call) -> tuple[int, int]:
    _, *rows, half = call.arrays["q"].shape
    return math.prod(rows), 2 * half


def _put(call: Call, q: np.ndarray, scales: np.ndarray) -> None:
    call.put("q", q)
    call.put("scales", scales)
