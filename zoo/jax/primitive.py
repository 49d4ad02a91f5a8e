"""One JAX primitive for all kernels: how it is typed, lowered for GPUs and for the host, and what it refuses."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NoReturn

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.contract.resolve import resolve
from zoo.errors import ArgumentError, DriverError, ZooError
from zoo.jax import handlers
from zoo.jax.described import Described
from zoo.packaged import packaged
from zoo.reference.kernels import usual_machine

_primitive = Primitive("zoo")
_primitive.multiple_results = True


def bind(operands: Sequence[Any], call: Described) -> list[Any]:
    """The buffers of what the call writes."""
    found: list[Any] = _primitive.bind(*operands, text=call.text())
    return found


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Any:
    return jax.jit(partial(_primitive.bind, text=text))


def _outside_of_a_trace(*operands: Any, text: str) -> list[Any]:
    found: list[Any] = _compiled(text)(*operands)
    return found


def _typed(*operands: Any, text: str) -> list[Any]:
    call = Described.read(text)
    varying = frozenset().union(*(getattr(operand, "vma", frozenset()) for operand in operands))
    more = {"vma": varying} if varying else {}  # over which axes of a mesh each device has its own, under jax.shard_map
    return [jax.core.ShapedArray(part.storage, numpy_dtype(part.dtype), **more) for part in call.results]


def _lowered(context: Any, *operands: Any, text: str) -> Any:
    call = Described.read(text)
    names = [part.name for part in call.inputs]
    aliases = {names.index(part.name): number for number, part in enumerate(call.results) if part.name in names}
    rule = jax.ffi.ffi_lowering(handlers.TARGET, operand_output_aliases=aliases)
    return rule(context, *operands, call=text, key=np.int64(Described.key(text)))


def _lowered_for_gpus(context: Any, *operands: Any, text: str) -> Any:
    """Refuses what no GPU of this process can run; where there is none, the program is for another machine."""
    with contextlib.suppress(DriverError):
        handlers.launches(Described.read(text))
    return _lowered(context, *operands, text=text)


def _lowered_for_the_host(context: Any, *operands: Any, text: str) -> Any:
    call = Described.read(text)
    kernel = packaged.kernel(call.kernel)
    resolve(kernel, {**call.arrays(), **dict(call.settings)}, *usual_machine(kernel), call.variant)
    return _lowered(context, *operands, text=text)


def _refuse_to_lower(context: Any, *operands: Any, text: str) -> NoReturn:
    platforms = ", ".join(context.module_context.platforms)
    raise ZooError(
        f"{Described.read(text).kernel}: zoo has kernels for NVIDIA GPUs, and a rule for the CPU; it has nothing for {platforms}"
    )


def _refuse_to_differentiate(operands: Any, tangents: Any, *, text: str) -> NoReturn:
    raise ArgumentError(
        f"{Described.read(text).kernel}: has no derivative, and an input depends on what is differentiated; "
        "zoo.jax.linear, grouped_linear and experts have a first one and no second, jax.custom_vjp gives it one, "
        "jax.lax.stop_gradient leaves the input out"
    )


def _refuse_to_batch(operands: Any, dimensions: Any, *, text: str) -> NoReturn:
    raise ArgumentError(
        f"{Described.read(text).kernel}: jax.vmap over a kernel is not defined; reshape the batch into the rows, take a kernel with groups "
        "(zoo list grouped), or let jax.lax.map start it once for each"
    )


_primitive.def_impl(_outside_of_a_trace)
_primitive.def_abstract_eval(_typed)
mlir.register_lowering(_primitive, _refuse_to_lower)
mlir.register_lowering(_primitive, _lowered_for_gpus, platform="cuda")
mlir.register_lowering(_primitive, _lowered_for_the_host, platform="cpu")
ad.primitive_jvps[_primitive] = _refuse_to_differentiate
batching.primitive_batchers[_primitive] = _refuse_to_batch
