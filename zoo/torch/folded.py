"""MXFP8 weights as weights of fp8b128, which Hopper multiplies. zoo/reference/fold_scales.py has the rule."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch

from zoo.errors import ArgumentError
from zoo.torch.quantized import Quantized

_AT_A_TIME = 1 << 22  # elements that are float64 at a time
_said = False


class Folded(NamedTuple):
    weights: Quantized
    rounded: int  # elements that e4m3 does not hold under their new scale
    largest_error: float  # of an element, relative to it: 1 where an element became zero


def fold_scales(weights: Quantized) -> Folded:
    """MXFP8 weights (N, K), or (G, N, K), in fp8b128: the scales for 1 x 32 or 32 x 32 become one power of two for 128 x 128.

    Elements keep their numbers, except where e4m3 lacks the bits: these are rounded to nearest even. Such an element is off by at most
    1 / 229376 of the largest element of its 128 x 128, or 2^-136 if that is more. A weight is read in parts, so float64 numbers of the whole never exist.
    """
    if not isinstance(weights, Quantized) or weights.format != "mxfp8" or weights.elements.dtype != torch.float8_e4m3fn:
        got = f"{weights}, {weights.elements.dtype}" if isinstance(weights, Quantized) else f"a {type(weights).__name__}"
        raise ArgumentError(f"fold_scales: expected weights of mxfp8 in e4m3, got {got}")
    if weights.offsets is not None:
        raise ArgumentError(f"fold_scales: {weights}: weights have no groups of rows")
    if weights.elements.is_meta:
        raise ArgumentError(f"fold_scales: {weights} is on the device meta, which holds no numbers; fold weights that are loaded")
    plain = weights.laid("plain")
    *_, rows, columns = plain.stored_shape
    expected = (*plain.elements.shape[:-2], -(-rows // 32) if plain.squares else rows, columns // 32)
    if columns % 32 or plain.scales.shape != expected:
        got = f"K = {columns} and scales {tuple(plain.scales.shape)}"
        raise ArgumentError(f"fold_scales: expected K as a multiple of 32 and scales {expected}, got {got}")
    elements, powers = (one if one.dim() == 3 else one[None] for one in (plain.elements, plain.scales.view(torch.uint8)))
    made = elements.new_empty(elements.shape)
    scales = torch.ones((len(elements), -(-rows // 128), -(-columns // 128)), dtype=torch.float32, device=elements.device)
    rounded = torch.zeros((), dtype=torch.int64, device=elements.device)
    largest_error = torch.zeros((), dtype=torch.float64, device=elements.device)
    step = max(_AT_A_TIME // max(columns, 1) // 128, 1) * 128
    for matrix in range(len(elements) if columns else 0):
        for first in range(0, rows, step):
            part = elements[matrix, first : first + step]
            share = 32 if plain.squares else 1
            of_part = powers[matrix, first // share : (first + step) // share].repeat_interleave(share, 0)[: len(part)]
            made[matrix, first : first + step], here, errors = _folded(part, of_part)
            scales[matrix, first // 128 : (first + step) // 128] = here
            rounded += (errors > 0).sum()
            largest_error = torch.maximum(largest_error, errors.max())
    if plain.elements.dim() == 2:
        made, scales = made[0], scales[0]
    return Folded(plain._with(elements=made, scales=scales, format="fp8b128", squares=True), int(rounded), float(largest_error))


def in_fp8b128(weights: Quantized) -> Quantized:
    """`fold_scales` of a layer's weights. The first weight of a process that loses bits warns."""
    global _said
    made, rounded, _ = fold_scales(weights)
    if rounded and not _said:
        _said = True
        warnings.warn(
            f"zoo: MXFP8 weights run in fp8b128. Of one weight {rounded} of {made.elements.numel()} elements were rounded. Each is off by at most "
            "1/229376 of the largest element of its 128 x 128. zoo.torch.fold_scales counts them in each weight",
            stacklevel=2,
        )
    return made


def _folded(elements: torch.Tensor, powers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows of e4m3 and a scale for 1 x 32 of each -> elements, scales for 128 x 128, relative errors of elements in float64."""
    rows, columns = elements.shape
    factors = torch.where(powers == 255, torch.nan, _power_of_two(powers.long() - 127))
    numbers = (elements.double().reshape(rows, -1, 32) * factors[..., None]).reshape(rows, columns)
    magnitudes = torch.nn.functional.pad(numbers.nan_to_num().abs(), (0, -columns % 128, 0, -rows % 128))
    largest = magnitudes.unflatten(1, (-1, 128)).unflatten(0, (-1, 128)).amax((1, 3))
    mantissa, exponent = torch.frexp(largest)  # of 448: 0.875 and 9
    exponent = torch.where(largest == 0, 0, (exponent.long() - 9 + (mantissa > 0.875)).clamp(min=-126))
    scales = _power_of_two(exponent)
    quotients = numbers / scales.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
    made = quotients.float().to(torch.float8_e4m3fn)
    made.view(torch.uint8)[quotients.isnan()] = 0x7F
    errors = (made.double() - quotients).abs()
    return made, scales.float(), torch.where(errors > 0, errors / quotients.abs(), 0)


def _power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """2 ** exponent in float64, by its bits: exp2 need not be exact."""
    return ((exponent + 1023) << 52).view(torch.float64)
