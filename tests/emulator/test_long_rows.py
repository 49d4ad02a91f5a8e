"""Rows longer than what a CTA takes at once, which the checks leave to a GPU."""

import contextlib

import numpy
import pytest

from zoo.checks import fragments, quantize_tokens
from zoo.checks.block_inputs import cast
from zoo.checks.emulated import executor
from zoo.checks.problem import POISONS, difference
from zoo.errors import VariantError
from zoo.packaged import packaged


def wrong(name, problem):
    """Of each variant that takes it."""
    kernel, found = packaged.kernel(name), []
    for variant in kernel.variants:
        if variant.arch == "sm_90a" and variant.dtypes.get("x") != "f16":
            with contextlib.suppress(VariantError):
                found.append(difference(problem, kernel, variant, executor(packaged), POISONS[:1]))
    assert found
    return next((one for one in found if one), None)


@pytest.mark.parametrize(("name", "gates"), [("quantize.fp8token.rows", {}), ("quantize.fp8token.rows.swiglu", {"gates": "halves"})])
@pytest.mark.parametrize("order", ["plain", "fragments"])
def test_a_row_of_two_turns_has_the_largest_magnitude_of_both(name, gates, order):
    random = numpy.random.default_rng(1)
    for place in (5, 16_400, 16_399, 0):
        x = cast(random.standard_normal((2, 16_416 * (2 if gates else 1))), "bf16")
        x[1, place] = 30 if place else numpy.nan
        assert wrong(name, quantize_tokens.problem(f"{place}", x, {"order": order, **gates})) is None


@pytest.mark.parametrize("tokens", ["fp8", "bf16"])
def test_scales_of_weights_are_relative_to_the_largest_of_all_turns_and_warps_of_their_row_that_has_a_code(tokens):
    random = numpy.random.default_rng(2)
    for columns in (4128, 7168, 16_448):  # of 9 warps, of 14, of 16 in two turns and 2 more
        blocks = columns // 32
        for place, zeros in ((0, blocks - 1), (blocks - 1, 0)):
            q = random.integers(0, 256, (1, 8, columns // 2), numpy.uint8)
            scales = random.integers(90, 120, (1, 8, blocks), numpy.uint8)
            scales[..., place], scales[..., zeros] = 121, 122
            q[..., 16 * zeros : 16 * zeros + 16] &= 0x88
            assert wrong("pack.mxfp4.fragments", fragments.packs_mxfp4("long rows", q, scales, fragments.Order("plain", tokens))) is None
