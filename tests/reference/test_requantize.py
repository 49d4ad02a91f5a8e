"""The powers of two that scales become: next above, nothing stays nothing, and what is no scale is no number."""

import numpy as np
import pytest

from zoo.reference.requantize import powers_of_two_above


@pytest.mark.parametrize(
    ("scale", "wanted"),
    [
        (0.0, 0.0),
        (1.0, 1.0),
        (np.nextafter(np.float32(1), np.float32(2)), 2.0),
        (0.75, 1.0),
        (2.0**127, 2.0**127),
        (2.0**-149, 2.0**-126),
        (-0.0, np.nan),
        (-1.0, np.nan),
        (np.nextafter(np.float32(2.0**127), np.float32(np.inf)), np.nan),
        (np.inf, np.nan),
        (np.nan, np.nan),
    ],
)
def test_a_scale_becomes_the_power_of_two_above_it_or_no_number(scale, wanted):
    np.testing.assert_array_equal(powers_of_two_above(np.float32([scale])), np.float32([wanted]))
