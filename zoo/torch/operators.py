"""torch.ops.zoo: an operator for every kernel, registered when it is first asked for.

On CUDA an operator is `zoo.call`; on the CPU, the written rule of zoo.reference.kernels; on fake and meta tensors, shapes alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.autograd import forward_ad

from zoo.contract.nearest import suggestion
from zoo.contract.whole_numbers import shown
from zoo.errors import ArgumentError

if TYPE_CHECKING:
    from zoo.contract.manifest import Kernel
    from zoo.torch.schema import Form

_library = torch.library.Library("zoo", "FRAGMENT")
_lock = threading.RLock()
_registered: set[str] = set()
_begun: set[str] = set()  # by the thread that holds the lock: torch asks for an operator while it is being defined
_tags = tuple(
    getattr(torch.Tag, name)
    for name in ("pt2_compliant_tag", "needs_exact_strides", "needs_fixed_stride_order")
    if hasattr(torch.Tag, name)
)[:2]

_OTHERS = ("CompositeExplicitAutograd", "NestedTensorCPU", "NestedTensorCUDA")  # of dispatch: the first are all that nothing else is for


class _Operators(torch._ops._OpNamespace):
    """torch.ops.zoo, which registers an operator before torch looks for it."""

    __module__ = torch._ops._OpNamespace.__module__  # by which torch finds operators again that it has saved

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            _register(name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_"):
                raise
            names = _kernel_names()
            hint = suggestion(name, names, f"`dir(torch.ops.zoo)` shows all {len(names)}")
            raise AttributeError(f"torch.ops.zoo has no operator {shown(name)}; {hint}") from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_kernel_names()})


def install() -> None:
    if not isinstance(torch.ops.__dict__.get("zoo"), _Operators):
        torch.ops.zoo = _Operators("zoo")


def register(*kernels: str) -> None:
    """Registers the operators of these kernels now, or of all: for a program that finds operators by name, without `torch.ops.zoo`."""
    names = {kernel: name for name, kernel in _kernel_names().items()}
    for kernel in kernels or names:
        if not isinstance(kernel, str) or kernel not in names:
            _packaged().kernel(kernel)  # which refuses it, with the nearest that there are
        _register(names[kernel])


def _packaged() -> Any:
    from zoo.packaged import packaged

    return packaged


@cache
def _ragged() -> Any:
    """torch's class of ragged tensors, which would answer for operators that it does not know. From torch 2.15 on, torch imports it late."""
    try:
        from torch.nested._internal.nested_tensor import NestedTensor
    except ImportError:  # a private place
        return None
    return NestedTensor


@cache
def _kernel_names() -> dict[str, str]:
    """operator -> kernel"""
    from zoo.torch.schema import operator_name

    return {operator_name(name): name for name in _packaged().manifest.names}


def _register(operator: str) -> None:
    if operator in _registered or operator not in _kernel_names():
        return
    with _lock:
        if operator in _begun:
            return
        _begun.add(operator)
        from zoo.torch.schema import forms

        kernel = _packaged().kernel(_kernel_names()[operator])
        for form in forms(kernel):
            _library.define(form.schema, tags=_tags)
            name = f"{operator}.{form.overload}" if form.overload else operator
            _library.impl(name, _on_cuda(kernel, form), "CUDA")
            _library.impl(name, _on_cpu(kernel, form), "CPU")
            for others in _OTHERS:
                _library.impl(name, _refuse_others(kernel), others)
            if _ragged() is not None:
                torch.library.register_torch_dispatch(f"zoo::{name}", _ragged(), _refuse_ragged(kernel), lib=_library)
            torch.library.register_fake(f"zoo::{name}", _on_nothing(kernel, form), lib=_library)
            _library.impl(name, _without_gradients(kernel, form, operator), "Autograd")
            if form.overload == "out":
                _library.impl(name, _counting(form, operator), "ADInplaceOrView", with_keyset=True)
                _library.impl(name, _refuse_batches(kernel), "FuncTorchBatched")
        _registered.add(operator)


def _overload(operator: str, form: Form) -> Any:
    return getattr(getattr(torch.ops.zoo, operator), form.overload or "default")


def _inputs(kernel: Kernel) -> tuple[str, ...]:
    """The names of what goes by place."""
    return tuple(one.name for one in kernel.arguments.values() if one.kind == "array" and one.access == "read" and not one.optional)


def _result(form: Form, outputs: Any) -> Any:
    if form.overload == "out":
        return None
    return tuple(outputs) if len(outputs) > 1 else outputs[0]


def _wanted(kernel: Kernel, form: Form, named: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `zoo.call`: what is optional and returned is asked for."""
    if form.overload != "out":
        for name in form.outputs:
            if kernel.arguments[name].optional:
                named.setdefault(name, True)
    return named


def _on_cuda(kernel: Kernel, form: Form) -> Callable[..., Any]:
    places, call, name = _inputs(kernel), _packaged().call, kernel.name

    def on_cuda(*given: Any, **named: Any) -> Any:
        named = {one: value for one, value in named.items() if value is not None}
        return _result(form, call(name, **dict(zip(places, given, strict=False)), **_wanted(kernel, form, named)))

    return on_cuda


def _on_cpu(kernel: Kernel, form: Form) -> Callable[..., Any]:
    places = _inputs(kernel)

    def on_cpu(*given: Any, **named: Any) -> Any:
        from zoo.torch.on_cpu import run

        return _result(form, run(kernel, dict(zip(places, given, strict=False)) | _wanted(kernel, form, named), form.outputs))

    return on_cpu


def _on_nothing(kernel: Kernel, form: Form) -> Callable[..., Any]:
    places = _inputs(kernel)

    def on_nothing(*given: Any, **named: Any) -> Any:
        from zoo.contract.trial import check
        from zoo.torch.allocation import like, settled

        tensors = dict(zip(places, given, strict=False)) | _wanted(kernel, form, named)
        _refuse_what_is_not_dense(kernel, ((name, one) for name, one in tensors.items() if isinstance(one, torch.Tensor)))
        call, device = settled(kernel, tensors)
        arrays: list[Any] = [*call.arrays.values(), *call.made.values()]
        if all(type(extent) is int for one in arrays for extent in (*one.shape, *one.strides)):
            check(kernel, call)  # of extents that are still symbolic, the call itself says it when it runs
        return _result(form, [like(call.made[name], device) for name in form.outputs if name in call.made])

    return on_nothing


def _without_gradients(kernel: Kernel, form: Form, operator: str) -> Callable[..., Any]:
    places = _inputs(kernel)

    def without_gradients(*given: Any, **named: Any) -> Any:
        if torch.is_grad_enabled():
            for name, value in (*zip(places, given, strict=False), *named.items()):
                if isinstance(value, torch.Tensor) and value.requires_grad:
                    raise ArgumentError(
                        f"{kernel.name}: {name}: requires a gradient, and this kernel has no formula for one; pass x.detach(), "
                        "call it under torch.no_grad(), or write a torch.autograd.Function around it"
                    )
        if forward_ad._current_level >= 0:
            _refuse_tangents(kernel, (*zip(places, given, strict=False), *named.items()))
        with torch._C._AutoDispatchBelowAutograd():
            return _overload(operator, form)(*given, **named)

    return without_gradients


def _refuse_tangents(kernel: Kernel, given: Iterable[tuple[str, Any]]) -> None:
    """Forward derivatives, which would come out as zero."""
    for name, value in given:
        if isinstance(value, torch.Tensor) and forward_ad.unpack_dual(value).tangent is not None:
            raise ArgumentError(f"{kernel.name}: {name}: has a tangent, and this kernel has no formula for one; pass x.detach()")


def _refuse_others(kernel: Kernel) -> Callable[..., Any]:
    """In a sentence, where torch would name all the backends that there are."""
    places = _inputs(kernel)

    def refuse(*given: Any, **named: Any) -> NoReturn:
        arrays = [*zip(places, given, strict=False), *((name, one) for name, one in named.items() if isinstance(one, torch.Tensor))]
        _refuse_what_is_not_dense(kernel, arrays)
        devices = ", ".join(sorted({str(one.device) for _, one in arrays}))
        raise ArgumentError(f"{kernel.name}: takes tensors of GPUs and of the CPU, got some of {devices}")

    return refuse


def _refuse_ragged(kernel: Kernel) -> Callable[..., Any]:
    refuse = _refuse_others(kernel)
    return lambda cls, function, types, given=(), named=None: refuse(*given, **(named or {}))


def refuse_what_is_not_dense(who: str, name: str, one: torch.Tensor) -> None:
    if one.is_nested:
        remedy = ".to_padded_tensor(0) makes one; of a jagged one .values() are the rows, and .offsets()[1:] the ends of groups"
        raise ArgumentError(f"{who}: {name}: expected a dense tensor, got a nested one; {remedy}")
    if one.layout != torch.strided or one.is_quantized:
        raise ArgumentError(f"{who}: {name}: expected a dense tensor, got {one.layout} of {one.dtype}; .to_dense() makes one of most")


def _refuse_what_is_not_dense(kernel: Kernel, given: Iterable[tuple[str, Any]]) -> None:
    for name, one in given:
        if not isinstance(one, torch.Tensor):
            raise ArgumentError(f"{kernel.name}: {name}: expected a tensor, got {one}")
        refuse_what_is_not_dense(kernel.name, name, one)


def _refuse_batches(kernel: Kernel) -> Callable[..., Any]:
    """Under vmap torch starts what returns once for each, and has no way to do so with what is written."""

    def refuse(*given: Any, **named: Any) -> None:
        raise ArgumentError(
            f"{kernel.name}: torch.vmap over .out is not defined; take the form that returns, which it starts once for each"
        )

    return refuse


def _counting(form: Form, operator: str) -> Callable[..., Any]:
    """Autograd counts how often a tensor was written, so that it can refuse what was saved before."""

    def counting(keys: Any, *given: Any, **named: Any) -> Any:
        for name in form.outputs:
            if isinstance(named.get(name), torch.Tensor):
                torch.autograd.graph.increment_version(named[name])
        with torch._C._AutoDispatchBelowADInplaceOrView():
            return _overload(operator, form).redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *given, **named)

    return counting
