"""Bulk tensor copies as data: the strided view of a box in global memory, its image in shared memory, and the swizzles."""

import numpy as np

from zoo.contract.tensor_map import DTYPES

from .errors import EmulatorError
from .memory import ALLOCATED, GLOBAL_BASE, READ, WRITTEN
from .number_formats import OUT_OF_BOUNDS_NAN

# name -> function on absolute shared byte offsets
_SWIZZLES = {
    "none": lambda a: a,
    "32B": lambda a: a ^ (((a >> 7) & 1) << 4),
    "64B": lambda a: a ^ (((a >> 7) & 3) << 4),
    "128B": lambda a: a ^ (((a >> 7) & 7) << 4),
    "128B_atom_32B": lambda a: a ^ (((a >> 7) & 3) << 5),
    "128B_atom_64B": lambda a: a ^ (((a >> 7) & 1) << 6),
    # the two 8-byte halves of every 16 bytes are exchanged on alternate 128-byte lines
    "128B_atom_32B_flip_8B": lambda a: (a ^ (((a >> 7) & 3) << 5)) ^ (((a >> 7) & 1) << 3),
}
_places = {}

# A store cuts rows off at whole units of so many bytes (seen on an H200); a load, and every other dimension, to the element.
STORE_GRANULE = 16


def swizzled(swizzle, start, size):
    """Shared offsets of the 8-byte pieces of an image of `size` bytes that starts at `start`, divided by 8."""
    key = (swizzle, start % 1024, size)
    places = _places.get(key)
    if places is None:
        base = start % 1024
        places = _SWIZZLES[swizzle](np.arange(base, base + size, 8, dtype=np.int64)) >> 3
        _places[key] = places
    return places + (start - start % 1024) // 8


class Box:
    """One box of a tensor map at given coordinates."""

    def __init__(self, tensor, coordinates, gather_rows=None):
        """gather_rows: the row numbers of a gather4 or scatter4, whose box has one row."""
        self.tensor = tensor
        self.bits = DTYPES[tensor.dtype][1]
        self.coordinates = coordinates
        self.rows = gather_rows
        # With a step along a dimension, ceil(box / step) elements are taken; dimension 0 has no step.
        box = [tensor.box[0]] + [-(-extent // step) for extent, step in zip(tensor.box[1:], tensor.element_strides[1:])]
        if gather_rows is not None:
            box[1] = len(gather_rows)
        self.shape = tuple(box)
        self.inner = box[0] * self.bits // 8  # bytes of one row of the box in global memory
        outer = 1
        for extent in box[1:]:
            outer *= extent
        self.bytes = self.inner * outer  # global bytes of the full box: what an mbarrier is told
        self.outer = outer
        # the image's row pitch in shared memory: packed types are spread over 16-byte units
        self.pitch = {"u4_align16": box[0], "u6_align16": box[0]}.get(tensor.dtype, self.inner)
        self.image_bytes = self.pitch * outer

    def _parts(self, granule=1):
        """[(index into the image (outer dims.., bytes), strided view arguments)] of the box's part inside the tensor.

        granule: a row of the tensor ends at a multiple of so many bytes.
        """
        tensor, bits = self.tensor, self.bits
        row_bytes = -(-(tensor.dims[0] * bits // 8) // granule) * granule
        first = self.coordinates[0] * bits // 8
        low, high = max(0, -first), min(self.inner, row_bytes - first)
        if high <= low:
            return
        rows = self._rows()
        if rows is not None:
            for number, address in rows:
                yield (number, slice(low, high)), address + first + low, (high - low,), (1,)
            return
        index, shape, strides = [slice(low, high)], [high - low], [1]
        address = tensor.address + first + low
        for axis in range(1, tensor.rank):
            step = tensor.element_strides[axis]
            start, count, extent = self.coordinates[axis], self.shape[axis], tensor.dims[axis]
            # positions start + i * step inside [0, extent)
            begin = max(0, -(start // step)) if start < 0 else 0
            end = min(count, -(-(extent - start) // step)) if extent > start else 0
            if end <= begin:
                return
            index.insert(0, slice(begin, end))
            shape.insert(0, end - begin)
            strides.insert(0, tensor.strides[axis - 1] * step)
            address += (start + begin * step) * tensor.strides[axis - 1]
        yield tuple(index), address, tuple(shape), tuple(strides)

    def _rows(self):
        """(number, global address) of the rows that are named one by one and inside the tensor, or None."""
        if self.rows is None:
            return None
        tensor = self.tensor
        return [(number, tensor.address + row * tensor.strides[0]) for number, row in enumerate(self.rows) if 0 <= row < tensor.dims[1]]

    def inside(self):
        """Which bytes of a stored box's image lie in the tensor, or None for all."""
        mask = np.zeros((*self.shape[:0:-1], self.inner), bool)
        for index, *_ in self._parts():
            mask[index] = True
        return None if mask.all() else mask.reshape(-1)

    def _window(self, memory, array, address, shape, strides):
        start = address - GLOBAL_BASE
        last = start + sum((extent - 1) * stride for extent, stride in zip(shape, strides))
        if start < 0 or last >= memory.size:
            raise EmulatorError(f"a tensor map leads to global address {address:#x}, outside all memory")
        return np.lib.stride_tricks.as_strided(array[start:], shape, strides)

    def load(self, memory, by=None):
        """(global bytes of the box with out-of-bounds elements filled, shape (rows, inner); message of what is wrong or None). by: (instruction, warp, lanes)"""
        tensor = self.tensor
        outer = self.shape[:0:-1]
        image = np.zeros((*outer, self.inner), np.uint8)
        if tensor.fill == "nan":
            image.reshape(-1, self.inner).view(np.uint16)[...] = OUT_OF_BOUNDS_NAN
        problem = None
        for index, address, shape, strides in self._parts():
            state = self._window(memory, memory.state, address, shape, strides)
            if not (state & ALLOCATED).all():
                problem = ("out-of-bounds", f"the box reaches global memory outside every allocation (from {address:#x})", address)
            elif not (state & WRITTEN).all():
                problem = ("uninitialised-global", f"the box holds global bytes that nobody wrote (from {address:#x})", address)
            image[index] = self._window(memory, memory.data, address, shape, strides)
            if memory.marks is not None:
                self._window(memory, memory.marks[1], address, shape, strides)[...] |= READ
            if memory.owners is not None and by is not None:
                memory.owners.reads_box(*by, address - GLOBAL_BASE, shape, strides)
        return image.reshape(-1, self.inner), problem

    def store(self, memory, image, function=None, by=None):
        """Writes (or combines) the box's part inside the tensor; returns a problem or None."""
        image = image.reshape((*self.shape[:0:-1], self.inner))
        problem = None
        granule = 1 if function is not None else STORE_GRANULE
        row_end = self.tensor.dims[0] * self.bits // 8 - self.coordinates[0] * self.bits // 8  # where the tensor ends, from the box's start
        for index, address, shape, strides in self._parts(granule):
            behind = index[-1].stop - row_end
            if behind > 0:
                problem = (
                    "out-of-bounds",
                    f"the store writes {behind} bytes behind the end of the tensor's rows: hardware cuts rows off at whole {granule} bytes; "
                    f"let rows of {self.tensor.dims[0] * self.bits // 8} bytes end at a multiple of {granule}, or store the last ones otherwise",
                    address + row_end - index[-1].start,
                )
            state = self._window(memory, memory.state, address, shape, strides)
            if not (state & ALLOCATED).all():
                problem = ("out-of-bounds", f"the box reaches global memory outside every allocation (from {address:#x})", address)
                continue
            data = self._window(memory, memory.data, address, shape, strides)
            part = image[index]
            if function is not None:
                if not (state & WRITTEN).all():
                    problem = ("uninitialised-global", f"the reduction reads global bytes that nobody wrote (from {address:#x})", address)
                part = function(np.ascontiguousarray(data), np.ascontiguousarray(part))
            if memory.owners is not None and by is not None:
                changed = (data != part) | (state != (ALLOCATED | WRITTEN))
                memory.owners.writes_box(*by, address - GLOBAL_BASE, shape, strides, changed)
            data[...] = part
            state[...] = ALLOCATED | WRITTEN
            if memory.marks is not None:
                self._window(memory, memory.marks[1], address, shape, strides)[...] |= WRITTEN
        return problem

    def spread(self, rows):
        """Global row bytes -> (image bytes, which of them carry data) of shape (rows, pitch)."""
        if self.pitch == self.inner:
            return rows, None
        unit = 8 if self.bits == 4 else 12  # data bytes in each 16-byte unit
        image = np.zeros((rows.shape[0], self.pitch // 16, 16), np.uint8)
        valid = np.zeros(image.shape, np.uint8)
        image[:, :, :unit] = rows.reshape(rows.shape[0], -1, unit)
        valid[:, :, :unit] = 1
        return image.reshape(rows.shape[0], -1), valid.reshape(rows.shape[0], -1)
