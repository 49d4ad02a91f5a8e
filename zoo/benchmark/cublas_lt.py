"""cuBLASLt by ctypes: products of FP8 and FP4 operands with the scales that it multiplies by itself.

D (M, N) = A (M, K) B (N, K)^T of rows is, to a library that counts along columns, D^T = B A^T: its first operand is our b, transposed,
and its second our a. The numbers below are those of cublasLt.h and library_types.h, which do not change from release to release.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from zoo.contract.array import Pointer
from zoo.errors import ZooError
from zoo.runtime.device_array import DeviceArray, empty

_LIBRARIES = ("libcublasLt.so.13", "libcublasLt.so.12")
_WORKSPACE = 32 << 20
_COMPUTE_F32 = 68
_DTYPES = {"f32": 0, "f16": 2, "bf16": 14, "e4m3": 28, "e5m2": 29, "e2m1x2": 33}
_TRANSA, _A_SCALE, _B_SCALE, _A_SCALE_MODE, _B_SCALE_MODE = 3, 17, 18, 31, 32
_MOST_WORKSPACE = 1  # of a preference
_TRANSPOSED = 1


class Unavailable(ZooError):
    """There is nothing to compare with, and why."""


@dataclass(frozen=True)
class Product:
    of_weights: int  # modes of scales, of our b and of our a
    of_tokens: int


PRODUCTS = {
    "nvfp4": Product(1, 1),  # e4m3 for 16 elements
    "mxfp8": Product(2, 2),  # ue8m0 for 32
    "fp8b128": Product(5, 4),  # f32 for 128 x 128 and for 1 x 128
}


class _Result(ctypes.Structure):
    """What a heuristic finds."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class CublasLt:
    """The library, with a workspace on a device."""

    def __init__(self, device: int):
        self._library = _load()
        self._handle = ctypes.c_void_p()
        self._check(self._library.cublasLtCreate(ctypes.byref(self._handle)), "starting it")
        self._workspace: DeviceArray = empty((_WORKSPACE,), "u8", device)
        self._alive: list[object] = []

    def product(self, of: Product, arguments: Mapping[str, Pointer]) -> Callable[[int], None]:
        """A call on a stream: what it needs has been asked for before."""
        a, b, d = (arguments[name] for name in ("a", "b", "d"))
        M, N, K = a.shape[0], b.shape[0], a.shape[1] * (2 if a.dtype == "e2m1x2" else 1)
        description = ctypes.c_void_p()
        self._check(self._library.cublasLtMatmulDescCreate(ctypes.byref(description), _COMPUTE_F32, _DTYPES["f32"]), "a description")
        numbers = ((_TRANSA, _TRANSPOSED), (_A_SCALE_MODE, of.of_weights), (_B_SCALE_MODE, of.of_tokens))
        for attribute, number in numbers:
            self._set(description, attribute, ctypes.c_int32(number))
        for attribute, name in ((_A_SCALE, "b_scale"), (_B_SCALE, "a_scale")):
            self._set(description, attribute, ctypes.c_void_p(arguments[name].address))
        of_b, of_a = self._layout(b.dtype, K, N), self._layout(a.dtype, K, M)
        of_d = self._layout(d.dtype, N, M)
        algorithm = self._best(description, of_b, of_a, of_d)
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        self._alive += [one, zero, algorithm]

        def multiply(stream: int) -> None:
            status = self._library.cublasLtMatmul(
                self._handle, description, ctypes.byref(one), ctypes.c_void_p(b.address), of_b, ctypes.c_void_p(a.address), of_a,
                ctypes.byref(zero), ctypes.c_void_p(d.address), of_d, ctypes.c_void_p(d.address), of_d, ctypes.byref(algorithm.algorithm),
                ctypes.c_void_p(self._workspace.address), ctypes.c_size_t(_WORKSPACE), ctypes.c_void_p(stream),
            )  # fmt: skip
            self._check(status, "multiplying")

        return multiply

    def _best(self, description: ctypes.c_void_p, of_b: ctypes.c_void_p, of_a: ctypes.c_void_p, of_d: ctypes.c_void_p) -> _Result:
        preference, found, result = ctypes.c_void_p(), ctypes.c_int(), _Result()
        self._check(self._library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)), "a preference")
        most = ctypes.c_uint64(_WORKSPACE)
        status = self._library.cublasLtMatmulPreferenceSetAttribute(
            preference, _MOST_WORKSPACE, ctypes.byref(most), ctypes.c_size_t(ctypes.sizeof(most))
        )
        self._check(status, "a preference")
        status = self._library.cublasLtMatmulAlgoGetHeuristic(
            self._handle, description, of_b, of_a, of_d, of_d, preference, 1, ctypes.byref(result), ctypes.byref(found)
        )
        self._check(status, "asking which of its kernels to take")
        if found.value == 0 or result.state != 0:
            raise Unavailable("cuBLASLt has no kernel for such a product here")
        return result

    def _layout(self, dtype: str, rows: int, columns: int) -> ctypes.c_void_p:
        layout = ctypes.c_void_p()
        status = self._library.cublasLtMatrixLayoutCreate(
            ctypes.byref(layout), _DTYPES[dtype], ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
        )
        self._check(status, "a layout")
        return layout

    def _set(self, description: ctypes.c_void_p, attribute: int, value: ctypes.c_int32 | ctypes.c_void_p) -> None:
        status = self._library.cublasLtMatmulDescSetAttribute(
            description, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
        )
        self._check(status, "describing a product, which this release may not know")

    def _check(self, status: int, doing: str) -> None:
        if status != 0:
            raise Unavailable(f"cuBLASLt, {doing}: status {status}" + " (not supported)" * (status == 15))


def _load() -> ctypes.CDLL:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise Unavailable(
        f"cuBLASLt is not installed, or not where libraries are looked for: {' or '.join(_LIBRARIES)}; importing torch brings it"
    )
