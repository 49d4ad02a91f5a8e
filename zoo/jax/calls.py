"""`zoo.jax.call`: a kernel as a function of JAX arrays, its outputs' shapes from the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Never, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from zoo.calls import result_type, settled
from zoo.contract.array import Array, contiguous_strides
from zoo.contract.manifest import Kernel
from zoo.contract.numpy_dtypes import called
from zoo.contract.shapes import Settled
from zoo.contract.trial import fitting, without_workspaces_idle_everywhere
from zoo.errors import ArgumentError, VariantError
from zoo.jax.described import Described, Part, storage_of
from zoo.jax.primitive import bind
from zoo.packaged import packaged


def call(name: str, /, *unnamed: Never, variant: str | None = None, **arguments: Any) -> Any:
    """The outputs of a kernel, by name: a named tuple, as `zoo.call` gives it.

    Arguments are those of the kernel: JAX arrays, traced or not, numbers and options. Under an output's name: a dtype, if it may have
    several; True, for one that may be left out; or an array, whose elements stay where the kernel writes none. A size that no input
    tells is given by its symbol (`M=300`).
    """
    if unnamed:
        packaged.refuse_unnamed(name, len(unnamed))
    kernel = packaged.kernel(name)
    operands: dict[str, Any] = {}
    given: dict[str, Any] = {}
    for argument, value in arguments.items():
        if value is None:
            continue
        array = _array(kernel, argument, value)
        if array is None:
            given[argument] = _plain(kernel, argument, value)
        else:
            operands[argument] = array
    _one_device(kernel, operands)
    given |= {argument: _record(array) for argument, array in operands.items()}
    found = _fitting(kernel, _in_memory(settled(kernel, given)), variant)
    return _bound(kernel, found, operands, variant)


def _array(kernel: Kernel, name: str, value: Any) -> Any:
    """The array that a value is; None for what is none."""
    argument = kernel.arguments.get(name)
    if argument is None or argument.kind == "scalar":
        return None
    if isinstance(value, jax.Array):
        array = value
    elif type(value) is np.ndarray:
        try:
            array = jnp.asarray(value)
        except TypeError:  # objects, records, bytes in another order
            array = None
        if array is None or array.dtype != value.dtype:
            _refuse(kernel, f"{name}: expected {' or '.join(argument.dtypes)}, got {value.dtype}")
    elif hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, (np.generic, type)):
        _refuse(
            kernel,
            f"{name}: expected a JAX array, got a {type(value).__name__} of {type(value).__module__.split('.')[0]}; "
            "jax.dlpack.from_dlpack takes over what lies on a device that JAX has",
        )
    else:
        return None
    if not isinstance(array, jax.core.Tracer) and array.is_deleted():
        _refuse(kernel, f"{name}: was deleted, as an array is that was donated; pass what came back in its place")
    if any(not isinstance(extent, int) for extent in array.shape):
        _refuse(kernel, f"{name}: its shape {array.shape} is not known while JAX traces; zoo.jax needs numbers, one program for each shape")
    return array


def _plain(kernel: Kernel, name: str, value: Any) -> Any:
    """A number, an option or a dtype as Python has it."""
    if isinstance(value, jax.core.Tracer):
        _refuse(
            kernel,
            f"{name}: expected a value that is known while JAX traces, got a traced one; "
            "pass a number or a text of Python's, through jax.jit as a static argument (static_argnames)",
        )
    if isinstance(value, (np.generic, jax.Array)) and getattr(value, "ndim", 1) == 0:
        return value.item()
    return value


def _one_device(kernel: Kernel, operands: Mapping[str, Any]) -> None:
    """Arrays outside of a trace may lie anywhere; JAX's own refusal would not name them."""
    first = None
    for name, array in operands.items():
        if isinstance(array, jax.core.Tracer) or not array.committed:
            continue
        devices = array.devices()
        if first is not None and devices != first[1]:
            _refuse(kernel, f"{name}: lies on {_listed(devices)}, {first[0]} on {_listed(first[1])}; jax.device_put moves one to the other")
        first = first or (name, devices)


def _listed(devices: Any) -> str:
    return ", ".join(sorted(map(str, devices)))


def _refuse(kernel: Kernel, reason: str) -> NoReturn:
    raise ArgumentError(f"{kernel.name}: {reason}")


def _record(array: Any) -> Array:
    """An array of JAX is row-major; where it lies is XLA's business."""
    return Array(0, called(array.dtype.name), tuple(array.shape), contiguous_strides(tuple(array.shape)))


def _in_memory(call: Settled) -> Settled:
    """The call with the strides that its arrays will have: what the kernel takes by columns is transposed first, for JAX has no strides."""
    return call._replace(
        arrays={
            name: replace(array, strides=contiguous_strides(array.shape, name in call.by_columns)) for name, array in call.arrays.items()
        }
    )


def _fitting(kernel: Kernel, call: Settled, variant: str | None) -> Settled:
    """The call as the kernel takes it. What no machine seems to have a variant for, what compiles the program asks again."""
    try:
        return without_workspaces_idle_everywhere(kernel, fitting(kernel, call, call.arrays, variant), variant)
    except VariantError:
        return call


def _bound(kernel: Kernel, call: Settled, operands: Mapping[str, Any], variant: str | None) -> Any:
    written = [name for name, argument in kernel.arguments.items() if argument.access != "read"]
    inputs = tuple(_part(name, array, call) for name, array in call.arrays.items())
    by_name = {part.name: part for part in inputs}
    results = tuple(
        by_name[name] if name in by_name else _part(name, call.made[name], call) for name in written if name in by_name or name in call.made
    )
    described = Described(kernel.name, variant, inputs, results, tuple(call.others.items()))
    found = bind([_stored(operands[part.name], part, call) for part in inputs], described)
    outputs: dict[str, Any] = {}
    for part, array in zip(results, found, strict=True):
        if kernel.arguments[part.name].access == "workspace":
            continue
        turned = part.name in call.by_columns
        shape = _turned(part.shape) if turned else part.shape
        if part.storage != shape:
            array = array[tuple(map(slice, shape))]
        if turned:
            array = jnp.swapaxes(array, -1, -2)
        made = call.made.get(part.name)
        if made is None:
            array = array.reshape(operands[part.name].shape)
        elif made.squeezed:
            array = array[0]
        outputs[part.name] = array
    return result_type(tuple(outputs))._make(outputs.values())


def _part(name: str, array: Any, call: Settled) -> Part:
    """`array`: a record of one that is there, or of one that is to be made."""
    shape, strides = tuple(array.shape), tuple(array.strides)
    storage = storage_of(_turned(shape), _turned(strides)) if name in call.by_columns else storage_of(shape, strides)
    return Part(name, array.dtype, shape, strides, storage)


def _turned(extents: tuple[int, ...]) -> tuple[int, ...]:
    return (*extents[:-2], extents[-1], extents[-2])


def _stored(array: Any, part: Part, call: Settled) -> Any:
    """The buffer that a part lies in."""
    array = array.reshape(part.shape)
    if part.name in call.by_columns:
        array = jnp.swapaxes(array, -1, -2)
    if part.storage == array.shape:
        return array
    return jnp.pad(array, [(0, more - extent) for extent, more in zip(array.shape, part.storage, strict=True)])
