"""What zoo's own arrays have in common, in a GPU's memory or an emulated one's: a place, a shape, strides, and views."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, Self

from zoo.contract.array import contiguous_strides
from zoo.contract.dtypes import DTYPES
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.contract.whole_numbers import shown, whole, whole_tuple
from zoo.errors import ArgumentError

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.typing import DTypeLike


class OwnArray:
    """An array or a view of one. `base` is the array whose memory a view shows, kept alive by it. Strides are in elements."""

    # What gives a device's stream that work on such arrays is ordered by; None where there are no streams.
    stream_source: ClassVar[Callable[[Any], Callable[[], int]] | None] = None
    __iter__ = None  # without this, Python would iterate by asking for elements until one is refused

    def __init__(
        self, address: int, shape: tuple[int, ...], dtype: str, strides: tuple[int, ...], device: Any, base: OwnArray | None = None
    ):
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.strides = strides
        self.device = device
        self.base = base

    def __repr__(self) -> str:
        strides = "" if self.is_contiguous() else f", strides={self.strides}"
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype!r}{strides}, device={self.device})"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of no dimensions has no len()")  # which Python and numpy take for an answer
        return self.shape[0]

    def __bool__(self) -> bool:
        raise ArgumentError("an array is neither true nor false; ask for `is not None`, `len(a)` or `a.nbytes`")

    @property
    def nbytes(self) -> int:
        """Of the elements; what lies between those of a view does not count."""
        return _elements(self.shape) * DTYPES[self.dtype].bytes

    def is_contiguous(self) -> bool:
        """Whether the elements lie without gaps in the order of their indices. A dimension of one element may have any stride."""
        wanted = contiguous_strides(self.shape)
        return 0 in self.shape or all(
            extent == 1 or stride == other for extent, stride, other in zip(self.shape, self.strides, wanted, strict=True)
        )

    def t(self) -> Self:
        """The transpose of a matrix, as a view."""
        if len(self.shape) != 2:
            raise ArgumentError(f"t: expected a matrix, got {len(self.shape)} dimensions {self.shape}")
        return self._view(self.address, self.shape[::-1], self.strides[::-1])

    @property
    def T(self) -> Self:
        """The transpose of a matrix, as a view."""
        return self.t()

    def reshape(self, *shape: int | tuple[int, ...]) -> Self:
        """The same elements in another shape, as a view; one extent may be -1. The array must be contiguous."""
        given = shape[0] if len(shape) == 1 and not hasattr(type(shape[0]), "__index__") else shape
        extents = whole_tuple(given, "reshape: shape", -1)
        if not self.is_contiguous():
            raise ArgumentError(
                f"reshape: shape {self.shape} with strides {self.strides} is not contiguous, and a view cannot reorder it; "
                "reshape before slicing or transposing"
            )
        count = _elements(self.shape)
        known = _elements(tuple(extent for extent in extents if extent != -1))
        if extents.count(-1) == 1 and known and count % known == 0:
            extents = tuple(count // known if extent == -1 else extent for extent in extents)
        if -1 in extents or _elements(extents) != count:
            raise ArgumentError(f"reshape: {self.shape} has {count} elements, which do not make {extents}")
        return self._view(self.address, extents, contiguous_strides(extents))

    def __getitem__(self, places: Any) -> Self:
        """A part of the array, as a view: whole numbers, slices with steps of at least 1, and one `...`."""
        places = places if isinstance(places, tuple) else (places,)
        dots = [place for place, one in enumerate(places) if one is Ellipsis]
        if len(dots) > 1 or len(places) - len(dots) > len(self.shape):
            raise ArgumentError(f"{len(places)} indices {shown(places)} for an array of {len(self.shape)} dimensions {self.shape}")
        here = dots[0] if dots else len(places)
        every = (slice(None),) * (len(self.shape) - len(places) + len(dots))
        places = places[:here] + every + places[here + 1 :]
        start, shape, strides = 0, [], []
        for place, extent, stride in zip(places, self.shape, self.strides, strict=True):
            if isinstance(place, slice):
                first, last, step = _slice(place, extent)
                start += min(first, extent) * stride
                shape.append(max(0, -(-(last - first) // step)))
                strides.append(stride * min(step, max(extent, 1)))
            else:
                number = whole(place, "an index", -extent, extent - 1)
                start += (number + extent if number < 0 else number) * stride
        # Of no elements there is no first: the place of the array itself will do, and is surely its own.
        address = self.address if 0 in shape else self.address + start * DTYPES[self.dtype].bytes
        return self._view(address, tuple(shape), tuple(strides))

    def _view(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Self:
        view = type(self).__new__(type(self))
        OwnArray.__init__(view, address, shape, self.dtype, strides, self.device, self if self.base is None else self.base)
        return view

    def numpy(self) -> ndarray[Any, Any]:
        """A copy on the host, contiguous; 4-bit codes come as bytes."""
        import numpy

        dtype = numpy_dtype(self.dtype)
        if 0 in self.shape:
            return numpy.empty(self.shape, dtype)
        span = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)) + 1
        data = self._read(span * dtype.itemsize).view(dtype)
        if self.is_contiguous():
            return data.reshape(self.shape)
        in_bytes = tuple(stride * dtype.itemsize for stride in self.strides)
        return numpy.ascontiguousarray(numpy.lib.stride_tricks.as_strided(data, self.shape, in_bytes))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> ndarray[Any, Any]:
        """`numpy()`, for numpy.asarray and all of numpy that takes arrays."""
        if copy is False:
            raise ValueError("the array lies in a device's memory: numpy can only have a copy of it")
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def _read(self, size: int) -> ndarray[Any, Any]:
        """So many bytes of the device from `address` on."""
        raise NotImplementedError


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _slice(given: slice, extent: int) -> tuple[int, int, int]:
    try:
        step = 1 if given.step is None else index(given.step)
        bounds = given.indices(extent) if step >= 1 else None
    except Exception:  # an __index__ may raise anything
        raise ArgumentError(f"a slice is made of whole numbers, got {shown(given)}") from None
    if bounds is None:
        raise ArgumentError(f"a slice's step must be at least 1, got {shown(step)}")
    return bounds
