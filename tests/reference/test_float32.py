"""The fused multiply-add against rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from tests.reference.cases import any_bits
from tests.reference.exact import round32
from zoo.reference.float32 import fused_multiply_add


def check(a, b, c):
    a, b, c = (np.asarray(value, np.float32) for value in (a, b, c))
    for x, y, z, found in zip(a, b, c, fused_multiply_add(a, b, c), strict=True):
        assert found == round32(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))


def test_random_bits_of_all_exponents():
    check(*(any_bits((500,), np.float32, seed) for seed in (1, 2, 3)))


def test_addends_of_like_size_and_cancellation():
    random = np.random.default_rng(4)
    a, b = random.uniform(-2, 2, (2, 500)).astype(np.float32)
    check(a, b, random.uniform(-2, 2, 500))
    check(a, b, -(a * b))  # what is left is the rounding error of the product


@pytest.mark.parametrize(
    ("a", "b", "c", "fused", "twice"),
    [
        # 411849 * 20857 = 2^33 + 1: 1 + 2^-24 + 2^-57 lies above the tie 1 + 2^-24, but float64 next to 1 ends at 2^-52.
        (411849, 20857 * 2.0**-57, 1, 1 + 2.0**-23, 1),
        (-411849, 20857 * 2.0**-57, -1, -1 - 2.0**-23, -1),
        # 14329 * 599479 = 2^33 - 1: just below the tie between 1 + 2^-23 and the even 1 + 2^-22.
        (14329, 599479 * 2.0**-57, 1 + 2.0**-23, 1 + 2.0**-23, 1 + 2.0**-22),
        (14329, -599479 * 2.0**-57, -1 - 2.0**-23, -1 - 2.0**-23, -1 - 2.0**-22),
    ],
)
def test_a_sum_that_float64_rounds_to_a_tie_is_not_rounded_twice(a, b, c, fused, twice):
    assert np.float32(float(a) * b + c) == twice  # these inputs can tell
    assert fused_multiply_add(*np.float32([[a], [b], [c]]))[0] == fused
    check([a], [b], [c])


def test_infinity_and_nan_as_ieee_says():
    inf, nan, huge = np.inf, np.nan, np.finfo(np.float32).max
    a, b, c = [inf, 1, 0, nan, huge, huge], [1, 1, inf, 1, 2, -2], [-inf, inf, 1, 1, 0, 0]
    found = fused_multiply_add(*np.array([a, b, c], np.float32))
    assert np.array_equal(found, [nan, inf, nan, nan, inf, -inf], equal_nan=True)
