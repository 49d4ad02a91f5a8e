"""Results that the checks of several variants ask for one after another: operands, and products of the same operands."""

from __future__ import annotations

import functools
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy

_Function = TypeVar("_Function", bound=Callable[..., Any])


def remembered(megabytes: int) -> Callable[[_Function], _Function]:
    """Keeps the latest results of a function, so many megabytes of arrays. Nobody may write into them.

    An array among the arguments counts by its bits, its shape and its dtype.
    """
    most = megabytes << 20

    def of(function: _Function) -> _Function:
        kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        total = 0

        @functools.wraps(function)
        def asked(*arguments: Any) -> Any:
            nonlocal total
            key = tuple(map(_key, arguments))
            if key in kept:
                kept.move_to_end(key)
                return kept[key][0]
            result, size = function(*arguments), 0
            for array in _arrays(result):
                array.flags.writeable = False
                size += array.nbytes
            kept[key], total = (result, size), total + size
            while total > most:
                _, (_, size) = kept.popitem(last=False)
                total -= size
            return result

        asked.forget = kept.clear  # type: ignore[attr-defined]
        return asked  # type: ignore[return-value]

    return of


def _key(argument: Any) -> Hashable:
    if isinstance(argument, numpy.ndarray):
        bits = numpy.ascontiguousarray(argument).view(numpy.uint8).reshape(-1).data
        return argument.shape, argument.dtype.name, hashlib.blake2b(bits, digest_size=16).digest()
    key: Hashable = argument
    return key


def _arrays(result: Any) -> Iterator[numpy.ndarray]:
    if isinstance(result, numpy.ndarray):
        yield result
    elif isinstance(result, tuple):
        for part in result:
            yield from _arrays(part)
    elif is_dataclass(result):
        for field in fields(result):
            yield from _arrays(getattr(result, field.name))
