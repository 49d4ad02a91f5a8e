"""Every kernel through zoo.jax, on each platform there is, against its rule on numpy arrays: to the bit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import pytest

import zoo
from zoo import checks
from zoo.calls import settled
from zoo.checks.problem import Problem
from zoo.contract.array import Array, contiguous_strides
from zoo.contract.manifest import Kernel
from zoo.contract.numpy_dtypes import called, numpy_dtype
from zoo.contract.shapes import Made, sizes
from zoo.reference.kernels import run

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")

KERNELS = {kernel.name: kernel for kernel in zoo.find()}
_ENOUGH = 3  # problems of each kernel
_FIRST = 40  # of which they are chosen
_MOST_ELEMENTS = 12_000


def _runs_on(kernel: Kernel, device: Any) -> bool:
    if device.platform == "cpu":
        return True
    from zoo.contract.resolve import pick_arch
    from zoo.runtime import driver

    return pick_arch(kernel.archs, driver.device(device.local_hardware_id).capability) is not None


def _problems(kernel: Kernel) -> list[Problem]:
    """Small ones in which something is computed, of options as different as may be; or else the smallest."""
    first = itertools.islice(
        checks.problems(kernel, kernel.variants[0]), _FIRST
    )  # those that come later are larger, and take longer to make
    found = [one for one in first if all(placed.values.size for placed in one.inputs.values())]
    small = [one for one in found if one.elements <= _MOST_ELEMENTS]
    return small[:: max(1, len(small) // _ENOUGH)][:_ENOUGH] or [min(found, key=lambda one: one.elements)]


def _arguments(kernel: Kernel, problem: Problem) -> dict[str, numpy.ndarray]:
    """What the caller brings: a sum that is added to is brought, too."""
    found = {name: numpy.ascontiguousarray(placed.values) for name, placed in problem.inputs.items()}
    return found | {name: placed.before for name, placed in problem.outputs.items() if placed.before is not None}


def _outputs(kernel: Kernel, problem: Problem, given: dict[str, numpy.ndarray]) -> dict[str, Any]:
    """Dtypes of outputs and wanted optional ones, in `zoo.call`'s words; and sizes that no input tells."""
    words: dict[str, Any] = {}
    for name, placed in problem.outputs.items():
        if name in given:
            continue
        argument = kernel.arguments[name]
        dtype = placed.dtype or called(placed.values.dtype.name)
        words[name] = dtype if len(argument.dtypes) > 1 and dtype in argument.dtypes else True if argument.optional else None
    said = {name: word for name, word in words.items() if word is not None}
    for name, placed in problem.outputs.items():
        for form in kernel.arguments[name].forms:
            if len(form.shape) != placed.values.ndim:  # of another layout
                continue
            for expression, extent in zip(form.shape, placed.values.shape, strict=True):
                if expression.text in sizes(kernel):
                    said[expression.text] = extent
    return said


def by_the_rule(kernel: Kernel, given: dict[str, numpy.ndarray], words: dict[str, Any]) -> dict[str, numpy.ndarray]:
    records = {name: Array(0, called(array.dtype.name), array.shape, contiguous_strides(array.shape)) for name, array in given.items()}
    call = settled(kernel, records | words)
    made, given = call.made, {name: _by_columns(array) if name in call.by_columns else array for name, array in given.items()}
    results = {name: array.copy() for name, array in given.items() if kernel.arguments[name].written}
    results |= {name: _strided(one) for name, one in made.items()}
    settings = {name: word for name, word in words.items() if name in kernel.options or (name in kernel.arguments and name not in results)}
    typed = {name: array if array.dtype == numpy.uint8 else zoo.view(array, called(array.dtype.name)) for name, array in results.items()}
    try:
        run(kernel, {**given, **typed, **settings})
    except zoo.ConstraintError:  # rows must start at multiples of 16 bytes, and JAX's arrays do not: zoo.jax moves them apart
        run(
            kernel,
            {**{name: _by_columns(one, 4) if name in call.by_columns else _apart(one) for name, one in given.items()}, **typed, **settings},
        )
    return {name: array for name, array in results.items() if kernel.arguments[name].access != "workspace"}


def _strided(made: Made) -> numpy.ndarray:
    dtype = numpy_dtype(made.dtype)
    strides = tuple(stride * dtype.itemsize for stride in made.strides)
    size = sum((extent - 1) * stride for extent, stride in zip(made.shape, strides, strict=True)) + dtype.itemsize
    if not numpy.prod(made.shape):
        return numpy.zeros(made.shape, dtype)
    return numpy.ndarray(made.shape, dtype, numpy.zeros(size, numpy.uint8), strides=strides)


def _apart(array: numpy.ndarray) -> numpy.ndarray:
    if array.ndim < 2:
        return array
    unit = 16 // array.dtype.itemsize
    whole = numpy.zeros((*array.shape[:-1], -(-array.shape[-1] // unit) * unit), array.dtype)
    whole[..., : array.shape[-1]] = array
    return whole[..., : array.shape[-1]]


def _by_columns(array: numpy.ndarray, unit: int = 1) -> numpy.ndarray:
    """The same matrices with contiguous columns, which begin at multiples of so many elements."""
    rows = array.shape[-2]
    whole = numpy.zeros((*array.shape[:-2], array.shape[-1], -(-rows // unit) * unit), array.dtype)
    whole[..., :rows] = numpy.swapaxes(array, -1, -2)
    return numpy.swapaxes(whole[..., :rows], -1, -2)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_gives_the_bits_of_its_rule(name: str, device: Any) -> None:
    import zoo.jax

    kernel = KERNELS[name]
    if not _runs_on(kernel, device):
        pytest.skip(f"{name} has no cubin for this GPU")
    for problem in _problems(kernel):
        given = _arguments(kernel, problem)
        words = {**problem.settings, **_outputs(kernel, problem, given)}
        expected = by_the_rule(kernel, given, words)
        arrays = {name: jax.device_put(array, device) for name, array in given.items()}
        found = zoo.jax.call(name, **arrays, **words)
        assert found._fields == tuple(name for name in kernel.arguments if name in expected)
        for output in problem.outputs:
            got, wanted = numpy.asarray(getattr(found, output)), expected[output]
            untouched = problem.outputs[output].untouched
            owned = numpy.ones(wanted.shape, bool)
            if untouched is not None and untouched.shape == wanted.shape:
                owned = ~untouched
            bits = f"u{wanted.dtype.itemsize}"
            assert got.dtype == wanted.dtype and got.shape == wanted.shape, f"{problem.name}: {output}"
            same = numpy.ascontiguousarray(got).view(bits) == numpy.ascontiguousarray(wanted).view(bits)
            assert (same | ~owned).all(), f"{problem.name}: {output}"
