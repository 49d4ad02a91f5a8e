"""The products of `zoo demo`: which quantisers make their operands, and which kernel multiplies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    from zoo.catalog import Zoo
    from zoo.contract.manifest import Kernel

Call = dict[str, Any]


@dataclass(frozen=True)
class Product:
    title: str
    name: str
    quantisers: tuple[str, ...]
    make: Callable[[Zoo, Any, Any, Callable[[Any], Any]], Call]  # from A, B in bf16 and what makes arrays
    bits: float  # of an element of B, its share of a scale included
    most_error: float
    drawn: bool = False  # whether its pipeline is shown

    @property
    def kernels(self) -> tuple[str, ...]:
        return self.name, *self.quantisers

    def call(self, zoo: Zoo, a: Any, b: Any, array: Callable[[Any], Any]) -> Call:
        return self.make(zoo, a, b, array)

    def sizes(self, shape: tuple[int, int, int]) -> dict[str, int]:
        return dict(zip("MNK", shape, strict=True))


def _fp8(zoo: Zoo, a: Any, b: Any, array: Callable[[Any], Any]) -> Call:
    """Scales that are powers of two, which both archs multiply."""
    left = zoo.call("quantize.fp8b128.rows", x=a, scaling="pow2")
    right = zoo.call("quantize.fp8b128.squares", x=b, scaling="pow2")
    return {"a": left.q, "a_scale": left.scales, "b": right.q, "b_scale": right.scales}


def _nvfp4_weights(zoo: Zoo, a: Any, b: Any, array: Callable[[Any], Any]) -> Call:
    left = zoo.call("quantize.fp8token.rows", x=a, order="fragments")
    right = zoo.call("quantize.nvfp4.rows", x=b, tensor_scale=_one(array))
    packed = zoo.call("pack.nvfp4.fragments", q=right.q, scales=right.scales)
    return {"a": left.q, "a_scale": left.scales, "b": packed.b}


def _nvfp4(zoo: Zoo, a: Any, b: Any, array: Callable[[Any], Any]) -> Call:
    left, right = (zoo.call("quantize.nvfp4.rows", x=x, tensor_scale=_one(array), layout="blocked") for x in (a, b))
    return {"a": left.q, "a_scale": left.scales, "b": right.q, "b_scale": right.scales}


def _one(array: Callable[[Any], Any]) -> Any:
    import numpy

    return array(numpy.ones(1, numpy.float32))


_FP8 = Product(
    "FP8 x FP8", "gemm.fp8b128.dense", ("quantize.fp8b128.rows", "quantize.fp8b128.squares"), _fp8, 8 + 32 / 128**2, 0.06, drawn=True
)
_ON_HOPPER = Product(
    "FP8 x NVFP4", "gemm.fp8_nvfp4.dense", ("quantize.fp8token.rows", "quantize.nvfp4.rows", "pack.nvfp4.fragments"),
    _nvfp4_weights, 4 + 8 / 16, 0.15,
)  # fmt: skip
_ON_BLACKWELL = Product("NVFP4 x NVFP4", "gemm.nvfp4.dense", ("quantize.nvfp4.rows",), _nvfp4, 4 + 8 / 16, 0.2)


def products_of(arch: str) -> tuple[Product, ...]:
    """Hopper has no 4-bit tensor core: its NVFP4 weights are multiplied in FP8."""
    return _FP8, _ON_HOPPER if arch == "sm_90a" else _ON_BLACKWELL


def bits_are_right(kernel: Kernel, call: Mapping[str, Any], got: numpy.ndarray[Any, Any], arch: str) -> bool:
    """Whether the result is the written rule's to the bit."""
    import numpy

    from zoo.reference.kernels import B200, H200, run

    expected = numpy.zeros_like(got)
    run(kernel, {**{name: one.numpy() for name, one in call.items()}, "d": expected}, H200 if arch == "sm_90a" else B200)
    return bool((got.view(numpy.uint32) == expected.view(numpy.uint32)).all())
