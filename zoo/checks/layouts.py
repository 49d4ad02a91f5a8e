"""The shape that a kernel takes an array in.

Problems are written with matrices. Of an operand whose layout is a shape of its own a kernel names more dimensions: 64 columns in fragment order,
gates and ups, a tile of scales. The bytes are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy

from zoo.contract.manifest import Kernel

_LINES = ["32", "16"]  # of a tile of 128 x 4 scales


class View(NamedTuple):
    """Of a matrix: the shape, and the strides where it has any, in which a kernel names it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None

    def of(self, array: numpy.ndarray | None) -> numpy.ndarray | None:
        return None if array is None else numpy.ascontiguousarray(array).reshape(self.shape)


def in_rows(array: numpy.ndarray) -> numpy.ndarray:
    """Columns in fragment order, (M, ceil(K / 64), 64), as the matrix that a problem names."""
    return array.reshape(len(array), array.shape[1] * array.shape[2])


def view_of(
    kernel: Kernel, name: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, settings: Mapping[str, str | int | float]
) -> View:
    whole = View(shape, strides)
    if not kernel.arguments[name].forms:
        return whole
    texts = _texts(kernel, name, settings)
    if len(shape) >= len(texts):
        return whole
    if texts[-2:] == _LINES:
        return _in_tiles(shape, len(texts))
    last = len(shape) - 1
    if texts[-1] == "64":
        return _split(whole, last, lambda extent: (extent // 64, 64))
    if texts[-2:] == ["2", "8"]:  # scales of packed rows
        return _split(_split(whole, last, lambda extent: (extent // 16, 16)), last + 1, lambda extent: (2, 8))
    place = texts.index("2")
    packed = place == len(texts) - 2 and texts[-1].isdigit()
    if settings.get("gates") == "interleaved" and not packed:
        return _split(whole, place - 1, lambda extent: (extent // 2, 2))
    return _split(whole, place, lambda extent: (2, extent // 2))


def _texts(kernel: Kernel, name: str, settings: Mapping[str, str | int | float]) -> Sequence[str]:
    """Of the form for these options. Other conditions decide about no number of dimensions."""
    options = {
        f"{option}.{value}": int(settings.get(option, one.default) == value)
        for option, one in kernel.options.items()
        for value in one.values
    }
    forms = kernel.arguments[name].forms
    chosen = next((form for form in forms if set(form.when.names) <= set(options) and form.when.evaluate(options)), forms[0])
    return [extent.text for extent in chosen.shape]


def _split(whole: View, axis: int, parts: Callable[[int], tuple[int, int]]) -> View:
    extents = parts(whole.shape[axis])
    strides = whole.strides
    if strides is not None:
        strides = (*strides[:axis], strides[axis] * extents[1], *strides[axis:])
    return View((*whole.shape[:axis], *extents, *whole.shape[axis + 1 :]), strides)


def _in_tiles(shape: tuple[int, ...], dimensions: int) -> View:
    """Blocked scales, contiguous: (..., rows, columns) filled up to whole tiles."""
    *lead, rows, columns = shape
    tiles = (rows // 128, columns // 4) if dimensions == len(shape) + 2 else (rows // 128 * (columns // 4),)
    return View((*lead, *tiles, 32, 16), None)
