"""Matrices in the dimensions by which a kernel names them: blocked scales are tiles, gates and ups have an axis of their own."""

from tests.gemm_blackwell.which import ZOO
from zoo.checks.layouts import view_of
from zoo.contract.array import Pointer, contiguous_strides


def named(name: str, arguments: dict[str, Pointer], **settings) -> dict[str, Pointer]:
    return {key: _named(name, key, one, settings) for key, one in arguments.items()}


def _named(name: str, key: str, one: Pointer, settings: dict) -> Pointer:
    view = view_of(ZOO.kernel(name), key, tuple(one.shape), None, settings)
    if view.shape == tuple(one.shape):
        return one
    return Pointer(one.address, view.shape, one.dtype, contiguous_strides(view.shape), one.device)
