"""Rearranging kernels take scales up to the limits that their table states, and none beyond."""

import pytest

import zoo

LIMITS = {  # the largest size that is taken; one more is refused
    "rows": ("scales.blocked.k_grouped", lambda more: dict(scales=((33553919 + more, 64), "u8"), offsets=((1,), "i32"))),
    "columns and four a group": (
        "scales.blocked.k_grouped",
        lambda more: dict(scales=((1, 2**31 - 9 + more), "u8"), offsets=((2,), "i32")),
    ),
    "rows and 128 a group": (
        "scales.blocked.m_grouped_contiguous",
        lambda more: dict(scales=((2**31 - 257 + more, 4), "u8"), offsets=((2,), "i32")),
    ),
    "pieces of 128 x 64": ("scales.blocked", lambda more: dict(scales=((128 * (2**31 - 1) + more, 64), "u8"))),
    "pieces of 32 x 16": ("scales.mn_major", lambda more: dict(scales=((32 * (2**31 - 1) + more, 16), "f32"))),
}


@pytest.mark.parametrize(("kernel", "inputs"), LIMITS.values(), ids=LIMITS)
def test_the_largest_scales_are_taken_and_no_larger_ones(kernel, inputs):
    assert zoo.shapes(kernel, **inputs(0))
    with pytest.raises(zoo.ConstraintError, match="rearrange them in parts"):
        zoo.shapes(kernel, **inputs(1))
