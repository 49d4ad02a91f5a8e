"""From the logical tensor map to the driver's opaque 128 bytes, in place.

Called by ctypes and not through cuda-bindings, whose CUtensorMap objects do not lie at the multiple of 64 bytes that the driver asks for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from zoo.contract.tensor_map import DTYPES, L2_PROMOTIONS, OUT_OF_BOUNDS_FILLS, SWIZZLES, TensorMap
from zoo.runtime import driver

_NO_INTERLEAVE = 0


@cache
def _function(name: bytes, *types: Any) -> Callable[..., int]:
    address, _found = driver.check(driver.bindings().cuGetProcAddress(name, 12000, 0), f"finding {name.decode()}")
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(int(address))


def _encode_tiled() -> Callable[..., int]:
    word, half, array = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p
    return _function(b"cuTensorMapEncodeTiled", array, half, half, word, array, array, array, array, half, half, half, half)


def encode(tensor_map: TensorMap, where: int) -> None:
    """Writes the driver's form of a tensor map at an address of the host that is a multiple of 64."""
    rank = tensor_map.rank
    status = _encode_tiled()(
        where,
        DTYPES[tensor_map.dtype][0],
        rank,
        tensor_map.address,
        (ctypes.c_uint64 * rank)(*tensor_map.dims),
        (ctypes.c_uint64 * rank)(*tensor_map.strides),
        (ctypes.c_uint32 * rank)(*tensor_map.box),
        (ctypes.c_uint32 * rank)(*tensor_map.element_strides),
        _NO_INTERLEAVE,
        SWIZZLES[tensor_map.swizzle][0],
        L2_PROMOTIONS[tensor_map.l2_promotion],
        OUT_OF_BOUNDS_FILLS[tensor_map.fill],
    )
    driver.check((status,), f"encoding {tensor_map}")


def replace_address(where: int, address: int) -> None:
    """Points the encoded tensor map at `where` at other memory."""
    status = _function(b"cuTensorMapReplaceAddress", ctypes.c_void_p, ctypes.c_uint64)(where, address)
    driver.check((status,), "moving a tensor map")
