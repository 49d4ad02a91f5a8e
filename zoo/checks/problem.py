"""A problem: arrays as they lie in memory, and what every byte around and inside them must be afterwards.

Each array lies in a buffer of its own between guard bytes, shifted so that its address has the promised alignment and
no more. Inputs lie amid 0xFF, which is NaN in every float format here; outputs amid and on poison. Afterwards the whole
image must be the expected one, so a byte that the kernel does not own, an element it forgot and a wrong element are all
found by the same comparison. Each problem runs on two poisons: what was never written cannot look right on both. An
executor that sees which bytes were written needs only one.

Elements are compared to the bit. Where the order in which a GPU adds is a rule that no GPU has confirmed yet, an output says how far
its elements may be off; a run on a GPU allows that, an emulator, whose rule it is, does not.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy

from zoo.checks.layouts import view_of
from zoo.contract.array import contiguous_strides
from zoo.contract.manifest import Kernel, Variant
from zoo.contract.numpy_dtypes import BY_NUMPY_NAME
from zoo.errors import ZooError

GUARD = 512
_AROUND_INPUTS = 0xFF
POISONS = (0xA5, 0x5A)
FEW_MULTIPROCESSORS = 3  # so that kernels with a grid of the device's size take several turns
# Where they decide how a sum is split, problems are as if there were so many, in turn: few, and those of chips that there are. On a chip,
# those that it has, and few.
_USUAL = (FEW_MULTIPROCESSORS, 148, FEW_MULTIPROCESSORS, 132, FEW_MULTIPROCESSORS, 160)
_NUMBERS: ContextVar[tuple[int, ...]] = ContextVar("numbers of multiprocessors", default=_USUAL)
_NUMBER: ContextVar[int | None] = ContextVar("the number of a problem", default=None)


def numbers_of_multiprocessors() -> Iterator[int]:
    """For ever: as if on how many a problem is."""
    return itertools.cycle(_NUMBERS.get())


def number_of_multiprocessors(usual: int = FEW_MULTIPROCESSORS) -> int:
    """On how many the problem that is run now is started, if it does not matter on so many."""
    return _NUMBER.get() or usual


@contextlib.contextmanager
def on_multiprocessors(*numbers: int) -> Iterator[None]:
    """Problems are as if there were one of these."""
    before = _NUMBERS.set(numbers)
    try:
        yield
    finally:
        _NUMBERS.reset(before)


class NoChecks(ZooError):
    """Nothing here knows what a kernel must compute."""

    def __init__(self, kernel: Kernel, what: str, advice: str):
        super().__init__(f"{kernel.name}: nobody has written checks for {what}; {advice}")


_OTHERS = "zoo/checks knows those that take other arguments"


def dtype_of(kernel: Kernel, variant: Variant, name: str) -> str:
    """The dtype that an argument has, whether or not there are variants for several."""
    if name not in kernel.arguments:
        raise NoChecks(kernel, f"one without {name}", _OTHERS)
    return variant.dtypes.get(name) or kernel.arguments[name].dtypes[0]


def values_of(kernel: Kernel, name: str) -> tuple[str, ...]:
    """What an option may be."""
    if name not in kernel.options:
        raise NoChecks(kernel, f"one without {name}", _OTHERS)
    return kernel.options[name].values


@dataclass(frozen=True)
class Placed:
    """An array and its strides in elements. Of an output, `values` is what must be there at the end."""

    values: numpy.ndarray
    strides: tuple[int, ...] | None = None  # None: contiguous
    dtype: str | None = None  # None: what numpy calls it
    untouched: numpy.ndarray | None = None  # True for elements of an output that the kernel leaves as they are
    before: numpy.ndarray | None = None  # what an output that is read holds beforehand
    aligned: int = 0  # bytes that its address is a multiple of, where that is more than promised
    within: numpy.ndarray | None = None  # how far finite elements of an output may be off where bits are not known; None: known
    padding: int = 0  # elements of an input that a layout has and nobody reads: they make a problem no larger


def shaped(problem: Problem, kernel: Kernel) -> Problem:
    """A problem whose arrays have the shapes that the kernel takes them in."""

    def all_of(arrays: Mapping[str, Placed]) -> dict[str, Placed]:
        return {
            name: viewed(placed, kernel, name, problem.settings) if name in kernel.arguments else placed for name, placed in arrays.items()
        }

    outputs = problem.outputs
    return replace(problem, inputs=all_of(problem.inputs), outputs=Later(lambda: all_of(outputs)))


def viewed(placed: Placed, kernel: Kernel, name: str, settings: Mapping[str, str | int | float]) -> Placed:
    """An array in the shape that the kernel takes it in."""
    view = view_of(kernel, name, placed.values.shape, placed.strides, settings)
    if view.shape == placed.values.shape:
        return placed
    return replace(
        placed,
        values=numpy.ascontiguousarray(placed.values).reshape(view.shape),
        strides=view.strides,
        untouched=view.of(placed.untouched),
        before=view.of(placed.before),
        within=view.of(placed.within),
    )


class Later(Mapping[str, Placed]):
    """Outputs that are worked out when somebody looks: leaving a large problem out costs no wait for its answer."""

    def __init__(self, make: Callable[[], Mapping[str, Placed]]):
        self._make = make

    @cached_property
    def _made(self) -> Mapping[str, Placed]:
        return self._make()

    def __getitem__(self, name: str) -> Placed:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


@dataclass(frozen=True)
class Problem:
    name: str  # the hazard it is about
    inputs: Mapping[str, Placed]
    outputs: Mapping[str, Placed]
    settings: Mapping[str, str | int | float] = field(default_factory=dict)  # options and scalars
    workspaces: Mapping[str, Placed] = field(default_factory=dict)  # as they are found; how they are left is nobody's business
    multiprocessors: int | None = None  # as if there were so many, where the result depends on it

    @property
    def elements(self) -> int:
        """Of the inputs: how large it is."""
        return sum(placed.values.size - placed.padding for placed in self.inputs.values())


class Laid:
    """An array laid out in a buffer: `image` makes the buffer's bytes."""

    def __init__(self, placed: Placed, alignment: int):
        values = placed.values
        self.shape = values.shape
        self.dtype = placed.dtype or BY_NUMPY_NAME[values.dtype.name]
        self.strides = placed.strides or contiguous_strides(values.shape)
        self._itemsize = values.dtype.itemsize
        self._bits = numpy.ascontiguousarray(values).view(f"u{self._itemsize}")
        self._before = None if placed.before is None else numpy.ascontiguousarray(placed.before).view(self._bits.dtype)
        self._ours = True if placed.untouched is None else ~placed.untouched
        self._values, self._within = values, placed.within
        self.offset = GUARD + max(alignment, placed.aligned)  # a buffer starts at a multiple of 256
        reach = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        span = 0 if values.size == 0 else (reach + 1) * self._itemsize
        self.bytes = self.offset + span + GUARD

    def image(self, fill: int, placed: bool) -> numpy.ndarray:
        image = numpy.full(self.bytes, fill, numpy.uint8)
        if placed and self._bits.size:
            numpy.copyto(self.elements(image), self._bits, where=self._ours)
        return image

    def allowing(self, expected: numpy.ndarray, found: numpy.ndarray) -> numpy.ndarray:
        """The expected image, with the elements of the one that was found where they are as near as they must be."""
        if self._within is None or not self._bits.size:
            return expected
        wanted, got = (self.elements(image).view(self._values.dtype).astype(numpy.float64) for image in (expected, found))
        with numpy.errstate(invalid="ignore"):
            near = numpy.isfinite(wanted) & numpy.isfinite(got) & (abs(got - wanted) <= self._within) & self._ours
        image = expected.copy()
        numpy.copyto(self.elements(image), self.elements(found), where=near)
        return image

    def output(self, poison: int) -> Buffer:
        """What a kernel that writes here is given: poison, or what there is to read."""
        image = self.image(poison, False)
        if self._before is not None and self._bits.size:
            self.elements(image)[...] = self._before
        return Buffer(image, self, given=self._before is not None)

    def elements(self, image: numpy.ndarray) -> numpy.ndarray:
        """The array's elements, as unsigned integers, inside a buffer."""
        flat = numpy.ndarray((self.bytes - self.offset) // self._itemsize, self._bits.dtype, image, self.offset)
        steps = tuple(stride * self._itemsize for stride in self.strides)
        return numpy.asarray(numpy.lib.stride_tricks.as_strided(flat, self.shape, steps))

    @cached_property
    def owned(self) -> numpy.ndarray:
        """True for the bytes that are elements, but for the untouched ones."""
        image = numpy.zeros(self.bytes, numpy.uint8)
        if self._bits.size:
            numpy.copyto(self.elements(image), self._bits.dtype.type(numpy.iinfo(self._bits.dtype).max), where=self._ours)
        return numpy.asarray(image != 0)


@dataclass(frozen=True)
class Buffer:
    """What an executor gets of an array: bytes that start at a multiple of 256, and the array inside them."""

    image: numpy.ndarray
    laid: Laid
    given: bool  # the elements are there for the kernel to read; all else in the image is guard, gap or poison


# (kernel, variant, buffers by argument, options and scalars) -> the buffers' bytes afterwards
Executor = Callable[[Kernel, Variant, Mapping[str, Buffer], Mapping[str, str | int | float]], Mapping[str, numpy.ndarray]]


def difference(
    problem: Problem, kernel: Kernel, variant: Variant, execute: Executor, poisons: Sequence[int] = POISONS, exactly: bool = True
) -> str | None:
    """Runs a problem; what is wrong in words, or None. Unless `exactly`, elements may be as far off as the problem says."""
    unknown = {*problem.inputs, *problem.outputs, *problem.workspaces} - {*kernel.arguments}
    if unknown:
        raise NoChecks(kernel, f"one without {', '.join(sorted(unknown))}", _OTHERS)
    alignment = {name: kernel.arguments[name].alignment for name in (*problem.inputs, *problem.outputs, *problem.workspaces)}
    inputs, outputs, workspaces = (
        {name: Laid(viewed(placed, kernel, name, problem.settings), alignment[name]) for name, placed in arrays.items()}
        for arrays in (problem.inputs, problem.outputs, problem.workspaces)
    )
    for poison in poisons:
        before = {name: Buffer(laid.image(_AROUND_INPUTS, True), laid, True) for name, laid in (inputs | workspaces).items()}
        before |= {name: laid.output(poison) for name, laid in outputs.items()}
        number = _NUMBER.set(problem.multiprocessors)
        try:
            after = execute(kernel, variant, before, problem.settings)
        finally:
            _NUMBER.reset(number)
        for name, laid in inputs.items():
            if not numpy.array_equal(after[name], before[name].image):
                return f"{name}: the kernel changed an input, first at {_place(laid, before[name].image, after[name])}"
        for name, laid in outputs.items():
            expected = laid.image(poison, True)
            if not exactly:
                expected = laid.allowing(expected, after[name])
            if not numpy.array_equal(after[name], expected):
                return f"{name}: {_words(laid, expected, after[name], poison)}"
        for name, laid in workspaces.items():
            if not numpy.array_equal(after[name][~laid.owned], before[name].image[~laid.owned]):
                return f"{name}: {_words(laid, before[name].image, after[name], _AROUND_INPUTS)}"
    return None


def _place(laid: Laid, expected: numpy.ndarray, found: numpy.ndarray) -> str:
    at = int(numpy.flatnonzero(expected != found)[0])
    return f"byte {at - laid.offset} of the array (0x{expected[at]:02x} became 0x{found[at]:02x})"


def _words(laid: Laid, expected: numpy.ndarray, found: numpy.ndarray, poison: int) -> str:
    outside = numpy.flatnonzero((expected != found) & ~laid.owned)
    if outside.size:
        at = int(outside[0])
        return (
            f"{outside.size} bytes that are not the kernel's were written, first the one {at - laid.offset} bytes from the "
            f"array's start (0x{found[at]:02x}); shape {laid.shape}, strides {laid.strides}"
        )
    wanted, got = laid.elements(expected), laid.elements(found)
    wrong = numpy.argwhere(wanted != got)
    index = tuple(int(axis) for axis in wrong[0])
    digits = 2 * wanted.dtype.itemsize
    unwritten = int.from_bytes(bytes([poison]) * wanted.dtype.itemsize, "little")
    left = " (never written)" if got[index] == unwritten else ""
    return (
        f"{len(wrong)} of {wanted.size} elements are wrong, first {index}: "
        f"expected 0x{wanted[index]:0{digits}x}, got 0x{got[index]:0{digits}x}{left}"
    )
