"""A call as one text: all that its handler must know beside addresses, so that a compiled program carries it wherever it is run."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

from zoo.contract.array import Array


class Part(NamedTuple):
    """An array of a call; strides are in elements. `storage` is the shape of the buffer that it lies in: its rows may be further apart, and
    the buffer of what lies by columns holds the transposed matrix."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage: tuple[int, ...]

    def at(self, address: int, device: Any = 0) -> Array:
        return Array(address, self.dtype, self.shape, self.strides, device)


class Described(NamedTuple):
    """`inputs` are read, `results` written; one that is in both is changed in place."""

    kernel: str
    variant: str | None
    inputs: tuple[Part, ...]
    results: tuple[Part, ...]
    settings: tuple[tuple[str, Any], ...]  # numbers and options

    @property
    def parts(self) -> dict[str, Part]:
        return {part.name: part for part in (*self.inputs, *self.results)}

    def text(self) -> str:
        return json.dumps(self)

    @staticmethod
    def key(text: str) -> int:
        """A number that tells this call from others: a handler finds it sooner than the text."""
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True)

    @classmethod
    def read(cls, text: str | bytes) -> Described:
        kernel, variant, inputs, results, settings = json.loads(text)
        return cls(kernel, variant, _parts(inputs), _parts(results), tuple((name, value) for name, value in settings))

    def arrays(self, addresses: dict[str, int] | None = None, device: Any = 0) -> dict[str, Array]:
        """Without addresses, as if each lay somewhere of its own."""
        return {
            name: part.at(addresses[name] if addresses else number << 45, device)
            for number, (name, part) in enumerate(self.parts.items(), 1)
        }


def _parts(rows: list[Any]) -> tuple[Part, ...]:
    return tuple(Part(name, dtype, tuple(shape), tuple(strides), tuple(storage)) for name, dtype, shape, strides, storage in rows)


def storage_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the smallest row-major array in which an array of this shape lies with these strides, the last one 1."""
    found = list(shape)
    for dimension in range(1, len(shape)):
        outer, inner = strides[dimension - 1], strides[dimension]
        if inner <= 0 or outer % inner or outer // inner < shape[dimension]:
            raise ValueError(f"no row-major array holds {shape} with strides {strides}")
        found[dimension] = outer // inner
    return tuple(found)
