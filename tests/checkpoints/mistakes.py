"""What loaders with one mistake each make of a layer's (first, second) matrices. All are numbers still, so that nothing but the bound tells them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tests.checkpoints.readers import Matrices

Both = tuple[Matrices, Matrices]
Mistake = Callable[[Matrices, Matrices], Both]
LARGEST_SCALE = {"nvfp4": 0x7E, "mxfp4": 0xFE}  # the code behind it is NaN


def none(first: Matrices, second: Matrices) -> Both:
    return first, second


def nibbles_swapped(first: Matrices, second: Matrices) -> Both:
    return replace(first, q=first.q << 4 | first.q >> 4), second


def gates_as_ups(first: Matrices, second: Matrices) -> Both:
    half = first.q.shape[1] // 2
    order = np.arange(2 * half) ^ 1 if first.gates == "interleaved" else np.roll(np.arange(2 * half), half)
    bias = None if first.bias is None else first.bias[:, order]
    return replace(first, q=first.q[:, order], scales=first.scales[:, order], bias=bias), second


def other_order_of_gates(first: Matrices, second: Matrices) -> Both:
    return replace(first, gates="halves" if first.gates == "interleaved" else "interleaved"), second


def scales_one_late(first: Matrices, second: Matrices) -> Both:
    return first, replace(second, scales=np.roll(second.scales, 1, axis=2))


def scales_of_the_next_row(first: Matrices, second: Matrices) -> Both:
    return replace(first, scales=np.roll(first.scales, 1, axis=1)), second


def scales_one_larger(first: Matrices, second: Matrices) -> Both:
    scales = first.scales.view(np.uint8)
    return replace(first, scales=scales + (scales < LARGEST_SCALE[first.format])), second


def experts_one_late(first: Matrices, second: Matrices) -> Both:
    return first, replace(second, q=np.roll(second.q, 1, axis=0), scales=np.roll(second.scales, 1, axis=0))


def first_divisor_as_multiplier(first: Matrices, second: Matrices) -> Both:
    """Or the other way round; this and the next are of NVFP4, as MXFP4 has no scale of the tensor."""
    return _reciprocal_alpha(first), second


def second_divisor_as_multiplier(first: Matrices, second: Matrices) -> Both:
    return first, _reciprocal_alpha(second)


def _reciprocal_alpha(matrices: Matrices) -> Matrices:
    assert matrices.alpha is not None
    return replace(matrices, alpha=np.float32(1) / matrices.alpha)


def first_bias_left_out(first: Matrices, second: Matrices) -> Both:
    """This and the next are of gpt-oss."""
    return replace(first, bias=None), second


def second_bias_left_out(first: Matrices, second: Matrices) -> Both:
    return first, replace(second, bias=None)


OF_ALL: tuple[Mistake, ...] = (
    nibbles_swapped,
    gates_as_ups,
    other_order_of_gates,
    scales_one_late,
    scales_of_the_next_row,
    scales_one_larger,
    experts_one_late,
)
OF_NVFP4: tuple[Mistake, ...] = (first_divisor_as_multiplier, second_divisor_as_multiplier)
OF_BIASES: tuple[Mistake, ...] = (first_bias_left_out, second_bias_left_out)
MISTAKES = {
    "gpt-oss": OF_ALL + OF_BIASES,
    "ModelOpt": OF_ALL + OF_NVFP4,
    "compressed-tensors": OF_ALL + OF_NVFP4,
    "DeepSeek-V4": OF_ALL,
}


def through_kernels(kind: str) -> list[Mistake]:
    """Fewer, for an emulator takes its time: one each of codes, gates, scales and alpha."""
    chosen = (nibbles_swapped, other_order_of_gates, scales_one_late, first_divisor_as_multiplier)
    return [mistake for mistake in MISTAKES[kind] if mistake in chosen]
