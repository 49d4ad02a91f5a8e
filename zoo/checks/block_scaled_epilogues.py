"""Problems for block-scaled products that end in a gated unit, in MXFP8 or in NVFP4; every answer is that of zoo.reference, to the bit.

A quantised element may jump where a sum moves by its last bit. So sums here are exact in any order of addition, and alpha, bias and
row_scale make any numbers of them: a GPU has no room either.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import ml_dtypes
import numpy

from zoo.checks.block_scaled import DTYPES, Operands, argument_has_nan, placed_finish, whole_numbers
from zoo.checks.problem import Later, Placed, Problem
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.block_formats import BlockFormat, block_format
from zoo.reference.block_scaled_epilogues import Gates, made_of_sums, quantised
from zoo.reference.gemm import rounded
from zoo.reference.layouts import blocked_shape
from zoo.reference.swiglu import ACTIVATIONS

# (M, columns of the result, K), around tiles of 64, 128 and 256 columns and of 128 and 256 rows, blocks and segments of 16 and 32, four
# blocks that share a word, and several CTAs that share K. Those that an emulator can take come first.
_SHAPES = (
    (1, 32, 32), (9, 96, 64), (130, 32, 32), (5, 160, 96), (1, 64, 1056), (2, 32, 2112), (257, 32, 32), (33, 128, 64), (16, 288, 32), (128, 64, 32),
    (129, 128, 160), (300, 416, 288), (64, 1056, 544), (517, 384, 160), (16, 512, 4096), (260, 640, 1056), (1, 2880, 2880),
)  # fmt: skip
_NARROW = ((7, 8, 96), (130, 24, 32), (5, 136, 64), (2, 8, 1056), (300, 264, 160))  # of D alone
_SPECIAL = ((9, 96, 96), (3, 32, 1056), (130, 64, 64))


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    return iter(_Problems(kernel))


@dataclass
class _Problems:
    kernel: Kernel
    turns: Iterator[int] = field(default_factory=itertools.count)

    @property
    def formats(self) -> str:
        return self.kernel.fields["formats"]

    @property
    def gated(self) -> bool:
        return self.kernel.fields["extra"].startswith("swiglu")

    @property
    def result(self) -> str | None:
        """The format that the result is quantised to."""
        word = self.kernel.fields["extra"].split("_")[-1]
        return None if word == "swiglu" else word

    def __iter__(self) -> Iterator[Problem]:
        for M, columns, K in _SHAPES if self.result else (*_NARROW, *_SHAPES):
            for activation in ACTIVATIONS if self.gated else ("",):
                yield self._usual(M, columns, K, activation)
        for shape in _SPECIAL:
            for argument in ("a", "b", "a_scale", "b_scale"):
                if argument_has_nan(self.formats, argument):
                    yield self._made(f"NaN in one row of {argument} stays there", *shape, changed=(argument, numpy.nan))
            yield self._made("rows of zeros", *shape, changed=("a", 0))
            for value in (numpy.inf, -numpy.inf, numpy.nan, 0.0, -0.0, 2.0**-149, 3.0e38, -3.0e38):
                yield self._made(f"sums of {value}", *shape, bias_value=value)
            yield self._made("rows scaled by zero, -1, infinity, NaN, tiny and huge", *shape, factors="odd")
            if self.result == "nvfp4":
                for scale in (1.0, 2.0**-140, 2.0**120, numpy.nan, 0.0):
                    yield self._made(f"a tensor scale of {scale}", *shape, tensor_scale=scale)
            yield self._made("batch_invariant", *shape, batch_invariant=True)
        yield self._made("no rows", 0, 32, 32)

    def _usual(self, M: int, columns: int, K: int, activation: str) -> Problem:
        return self._made("usual numbers", M, columns, K, activation)

    def _made(
        self,
        words: str,
        M: int,
        columns: int,
        K: int,
        activation: str = "silu",
        changed: tuple[str, float] | None = None,
        bias_value: float | None = None,
        factors: str = "",
        tensor_scale: float = 0.013,
        batch_invariant: bool = False,
    ) -> Problem:
        turn = next(self.turns)
        N, gap = 2 * columns if self.gated else columns, turn % 2
        order = "halves" if columns % 128 == 0 and turn % 2 else "interleaved"
        gates = Gates(order, activation, numpy.float32((0.5, 7.0)[turn % 2])) if self.gated else None
        operands = _changed(whole_numbers(self.formats, M, N, K), changed)
        random = numpy.random.default_rng([M, N, K, turn])
        finish = {"alpha": numpy.array([0.2 / K**0.5], numpy.float32)}
        if turn % 3 or bias_value is not None:
            bias = random.standard_normal(N).astype(numpy.float32)
            if bias_value is not None:
                bias[N // 3 :: 7] = bias_value
            finish["bias"] = bias.astype(ml_dtypes.bfloat16) if turn % 3 == 2 else bias
        if turn % 4 > 1 or factors:
            finish["row_scale"] = random.uniform(0.01, 1, M).astype(numpy.float32)
        if factors:
            odd = numpy.array([0, -1, numpy.inf, numpy.nan, 2.0**-140, 2.0**120], numpy.float32)[:M]
            finish["row_scale"][: len(odd)] = odd
        settings: dict[str, str | int | float] = {} if gates is None else {"gates": order, "activation": activation, "limit": float(gates.limit)}
        settings |= {"batch_invariant": "yes"} if batch_invariant else {}
        inputs = operands.placed(gap) | {name: placed_finish(name, array, gap) for name, array in finish.items()}

        def h() -> numpy.ndarray:
            return made_of_sums(operands.sums(), gates, **finish)

        name = f"{M} x {columns} x {K}, {words}, {order} {activation}" if gates else f"{M} x {columns} x {K}, {words}"
        name += "".join(f", {step} of {array.dtype}" for step, array in finish.items())
        if self.result is None:
            dtype = DTYPES[turn % len(DTYPES)]
            outputs = Later(lambda: {"d": Placed(rounded(h(), dtype), (columns + 8 * gap, 1))})
            return Problem(f"{name}, D of {dtype}", inputs, outputs, settings)
        if self.result == "nvfp4":
            scale = numpy.array([tensor_scale], numpy.float32)
            inputs["tensor_scale"] = Placed(scale)
            with numpy.errstate(all="ignore"):
                return Problem(name, inputs, _quantised(h, block_format("nvfp4", tensor_scale=scale), M, columns, gap), settings)
        rounding, element = ("floor", "rceil")[turn // 2 % 2], ("e4m3", "e5m2")[turn // 3 % 2]
        settings |= {"rounding": rounding}
        outputs = _quantised(h, block_format("mxfp8", element=element, rounding=rounding), M, columns, gap)
        return Problem(f"{name}, {element}, {rounding}", inputs, outputs, settings)


def _changed(operands: Operands, changed: tuple[str, float] | None) -> Operands:
    """NaN in the last element or scale of one row; or zeros in every second row."""
    if changed is None:
        return operands
    names = "a", "a_scale", "b", "b_scale"
    arrays = {name: array.copy() for name, array in zip(names, operands.arrays, strict=True)}
    argument, value = changed
    if value == 0:
        arrays[argument][::2] = 0
    else:
        arrays[argument][len(arrays[argument]) // 2, -1] = value
    a, a_scale, b, b_scale = arrays.values()
    return Operands(operands.formats, (a, a_scale, b, b_scale), exact_in_any_order=True)


def _quantised(h: Callable[[], numpy.ndarray], format: BlockFormat, M: int, columns: int, gap: int) -> Later:
    """Elements with rows 16 bytes apart, times `gap`, and tiles of scales."""

    def outputs() -> dict[str, Placed]:
        result = quantised(h(), format)
        scales = result.scales.reshape(blocked_shape(M, columns // format.block))
        q_dtype = "e2m1x2" if format.packed else None
        return {"q": Placed(result.q, (result.q.shape[1] + 16 * gap, 1), q_dtype), "scales": Placed(scales)}

    return Later(outputs)
