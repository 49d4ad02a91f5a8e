"""zoo's dtypes and numpy's, with ml_dtypes for the small floats: each by the other's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo.contract.dtypes import DTYPES
from zoo.contract.nearest import suggestion
from zoo.contract.whole_numbers import shown
from zoo.errors import ArgumentError

if TYPE_CHECKING:
    import numpy
    from numpy.typing import DTypeLike

# numpy's name -> zoo's. Bytes are u8: numpy cannot say that they hold two 4-bit codes each.
BY_NUMPY_NAME = {dtype.numpy: dtype.name for dtype in DTYPES.values() if dtype.name != "e2m1x2"}


def called(numpy_name: str) -> str:
    """What zoo calls a dtype of numpy's, or numpy's own name of one that zoo does not know."""
    return BY_NUMPY_NAME.get(numpy_name, numpy_name)


def plain_numpy(given: object, what: str) -> None:
    """That a caller gave an array or a number of numpy's; `what` it was for is in the refusal."""
    import numpy

    if not issubclass(type(given), (numpy.ndarray, numpy.generic)):
        raise ArgumentError(f"{what}: a {type(given).__name__} is no numpy array")
    if issubclass(type(given), numpy.ma.MaskedArray):
        raise ArgumentError(f"{what}: a device has no masks; fill the masked array (x.filled(0)) or pass its data (x.data)")


def numpy_dtype(name: str) -> numpy.dtype[Any]:
    """numpy's dtype for one of zoo's."""
    import ml_dtypes
    import numpy

    spelled = DTYPES[name].numpy
    return numpy.dtype(getattr(ml_dtypes, spelled, None) or spelled)


def dtype_name(given: str | DTypeLike, what: str) -> str:
    """zoo's name of a dtype that a caller gave by that name, by numpy's name or as numpy's; `what` it was for is in the refusal."""
    text: Any = given
    if issubclass(type(text), str):
        if text in DTYPES:
            return DTYPES[text].name
        if text in BY_NUMPY_NAME:
            return BY_NUMPY_NAME[text]
        hint = suggestion(text, [*DTYPES, *BY_NUMPY_NAME], f"zoo knows {', '.join(DTYPES)}, and numpy's names of them")
        raise ArgumentError(f"{what}: unknown dtype {shown(text)}; {hint}")
    import numpy

    try:
        spelled = "" if given is None else numpy.dtype(given).name  # numpy takes None for float64
    except Exception:  # numpy reads texts, tuples, lists, mappings, and what any object says its dtype is
        spelled = ""
    name = BY_NUMPY_NAME.get(spelled)
    if name is None:
        raise ArgumentError(f"{what}: zoo has no dtype for numpy's {spelled or shown(given)}; it knows {', '.join(BY_NUMPY_NAME)}")
    return name
