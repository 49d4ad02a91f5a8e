"""What each format does with one block: its scale from the largest magnitude, and its elements from the scaled values.

A format is a record in zoo/contract/formats.py: its block, its elements, and the dtype of its scales, which says by which of RULES
a scale follows. `block_format` makes of it, and of what a call chooses, what the skeleton in `zoo.reference.quantize` works with:
    block               how many elements share a scale, along the contracted dimension
    packed              whether two elements share a byte
    short_last_block    whether K need not be a multiple of the block; along M no format asks it
    layouts             the scale layouts that its consumers read
    scales(amax)        the stored scales of blocks with these largest magnitudes (float32, NaN where a block holds one)
    multiplier(scales)  what elements are multiplied by, one a block; NaN where the block is not a number
    encode(scaled)      float32 products -> elements; e2m1 as codes, one a byte
    scale_values        what the stored scales stand for, without the scale of the tensor

In a block that is not a number fp8 elements are 0x7F; e2m1 has no NaN and its elements are +0.
Every operation is one IEEE float32 operation, rounded to nearest even, subnormals kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import ml_dtypes
import numpy as np

from zoo.contract.formats import FORMATS as CONTRACT
from zoo.reference.small_floats import E2M1, E4M3, ELEMENTS, ElementFormat, decode, decode_e8m0, encode_e2m1, encode_fp8, inverse_e8m0
from zoo.reference.ue8m0 import scale_bytes

# The NaN of NVIDIA's float32 arithmetic. Whatever NaN a rule stores as float32, it is this one.
NAN = np.uint32(0x7FFFFFFF).view(np.float32)


@dataclass(frozen=True)
class Ue8m0:
    """A power of two in a byte. A block with NaN or infinity: 255."""

    rounding: str = "floor"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"rounding": ("floor", "rceil", "even", "ceil")}
    layouts: ClassVar[tuple[str, ...]] = ("plain", "blocked")
    short_last_block: ClassVar[bool] = False

    def scales(self, amax: np.ndarray, element: ElementFormat) -> np.ndarray:
        return scale_bytes(amax, element, self.rounding).view(ml_dtypes.float8_e8m0fnu)

    def multiplier(self, scales: np.ndarray) -> np.ndarray:
        return inverse_e8m0(scales)

    def values(self, scales: np.ndarray) -> np.ndarray:
        return decode_e8m0(scales)


@dataclass(frozen=True)
class RelativeE4m3:
    """An e4m3, relative to a float32 scale of the tensor.

    `tensor_scale` is one number, or one for each group (or for each matrix of a stack). A block with NaN: 0x7F. An
    infinity in a block saturates like any large number: the scale at 448, the element at its largest.
    """

    tensor_scale: np.ndarray
    smallest_scale: str = "normal"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"smallest_scale": ("normal", "subnormal")}
    layouts: ClassVar[tuple[str, ...]] = ("plain", "blocked")
    short_last_block: ClassVar[bool] = False

    def scales(self, amax: np.ndarray, element: ElementFormat) -> np.ndarray:
        with np.errstate(all="ignore"):
            relative = amax / np.float32(element.max_value) / self.tensor_scale
        # Not below the smallest normal e4m3, unless asked: a scale with fewer bits would cost more than it reaches.
        smallest = {"normal": 2.0**-6, "subnormal": 2.0**-9}[self.smallest_scale]
        return encode_fp8(np.clip(relative, np.float32(smallest), np.float32(E4M3.max_value)), E4M3)

    def multiplier(self, scales: np.ndarray) -> np.ndarray:
        # Infinite under a tensor scale below 2^-128: its product with 0 is NaN, which e2m1 stores as +0.
        with np.errstate(all="ignore"):
            return np.asarray(np.float32(1) / self.tensor_scale / decode(scales, E4M3))

    def values(self, scales: np.ndarray) -> np.ndarray:
        return decode(scales, E4M3)


@dataclass(frozen=True)
class Float32:
    """A float32, with `pow2` a power of two. A block with NaN or infinity: NaN."""

    scaling: str = "exact"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"scaling": ("exact", "pow2")}
    layouts: ClassVar[tuple[str, ...]] = ("plain", "mn_major")
    short_last_block: ClassVar[bool] = True

    def scales(self, amax: np.ndarray, element: ElementFormat) -> np.ndarray:
        if self.scaling == "pow2":
            scale = decode_e8m0(scale_bytes(amax, element, "rceil"))
        elif self.scaling == "exact":
            with np.errstate(invalid="ignore"):
                scale = amax / np.float32(element.max_value)
        else:
            raise ValueError(f"scaling is 'exact' or 'pow2', not {self.scaling!r}")
        # A normal float32, so that its inverse is one too and a power of two has no mantissa.
        scale = np.maximum(scale, np.float32(2.0**-126))
        scale = np.where(amax == 0, np.float32(1), scale)
        return np.where(np.isfinite(amax), scale, NAN)

    def multiplier(self, scales: np.ndarray) -> np.ndarray:
        return np.float32(1) / scales

    def values(self, scales: np.ndarray) -> np.ndarray:
        return scales


Rule = Ue8m0 | RelativeE4m3 | Float32
RULES: Mapping[str, type[Rule]] = {"ue8m0": Ue8m0, "e4m3": RelativeE4m3, "f32": Float32}  # by the dtype of the scales


class Format(NamedTuple):
    """A format of the contract whose elements share scales in blocks."""

    name: str
    elements: tuple[str, ...]  # the dtypes that a call may choose; the first where it does not
    scales: str
    block: int

    @property
    def rule(self) -> type[Rule]:
        return RULES[self.scales]


FORMATS = {
    one.name: Format(one.name, one.elements, one.scales, one.block)
    for one in CONTRACT.values()
    if one.scales and one.block and one.scales in RULES
}


@dataclass(frozen=True)
class BlockFormat:
    """A format of which everything is chosen."""

    name: str
    block: int
    element: ElementFormat
    rule: Rule

    @property
    def packed(self) -> bool:
        return self.element.per_byte > 1

    @property
    def short_last_block(self) -> bool:
        return self.rule.short_last_block

    @property
    def layouts(self) -> tuple[str, ...]:
        return self.rule.layouts

    @property
    def tensor_scale(self) -> np.ndarray | None:
        return self.rule.tensor_scale if isinstance(self.rule, RelativeE4m3) else None

    def of_group(self, group: np.ndarray) -> BlockFormat:
        """The format for blocks that belong to these groups; `group` broadcasts against the scales."""
        if self.tensor_scale is None or self.tensor_scale.size == 1:
            return self
        return replace(self, rule=replace(self.rule, tensor_scale=self.tensor_scale[group]))

    def scales(self, amax: np.ndarray) -> np.ndarray:
        return self.rule.scales(amax, self.element)

    def multiplier(self, scales: np.ndarray) -> np.ndarray:
        return self.rule.multiplier(scales)

    def scale_values(self, scales: np.ndarray) -> np.ndarray:
        return self.rule.values(scales)

    def encode(self, scaled: np.ndarray) -> np.ndarray:
        if self.element is E2M1:
            return encode_e2m1(np.where(np.isnan(scaled), np.float32(0), scaled))
        return encode_fp8(scaled, self.element)


def block_format(
    name: str,
    element: str | None = None,
    *,
    rounding: str | None = None,
    scaling: str | None = None,
    tensor_scale: np.ndarray | float | None = None,
    smallest_scale: str | None = None,
) -> BlockFormat:
    """The format of that name with these elements, under the rule that these options choose, as kernels take them."""
    format = FORMATS[name]
    elements, rule = [stored.removesuffix("x2") for stored in format.elements], format.rule
    if element not in (None, *elements):
        raise ValueError(f"element is {' or '.join(map(repr, elements))}, not {element!r}")
    given: dict[str, Any] = {"rounding": rounding, "scaling": scaling, "tensor_scale": tensor_scale, "smallest_scale": smallest_scale}
    chosen = {key: value for key, value in given.items() if value is not None}
    takes = ("tensor_scale",) * (rule is RelativeE4m3) + tuple(rule.choices)
    for key in chosen:
        if key not in takes:
            raise ValueError(f"{name} takes {' and '.join(takes)}, not {key}")
    if rule is RelativeE4m3:
        if tensor_scale is None:
            raise ValueError(f"{name} takes a tensor_scale: its scales are relative to it")
        chosen["tensor_scale"] = np.asarray(tensor_scale, np.float32)
    return BlockFormat(name, format.block, ELEMENTS[element or elements[0]], rule(**chosen))


def nvfp4_tensor_scale(amax: np.ndarray) -> np.ndarray:
    """The float32 scale of a tensor (or of each group) whose largest magnitude is `amax`: amax / 2688, 1 for amax 0."""
    amax = np.asarray(amax, np.float32)
    return np.where(amax == 0, np.float32(1), amax / np.float32(E4M3.max_value * E2M1.max_value))
