"""Padding of packed rows: what is q's stays, what is padding is zero, and nothing is guessed."""

import numpy as np
import pytest

from zoo.reference.pack import pack_mxfp4


@pytest.mark.parametrize(("columns", "padded"), [(16, 64), (64, 64), (80, 128), (1440, 1472)])
def test_rows_end_in_zeros_at_a_multiple_of_128_elements(columns: int, padded: int) -> None:
    q = np.random.default_rng(columns).integers(1, 256, (2, 3, columns), dtype=np.uint8)
    packed = pack_mxfp4(q)
    assert packed.shape == (2, 3, padded)
    assert np.array_equal(packed[..., :columns], q)
    assert not packed[..., columns:].any()


@pytest.mark.parametrize("q", [np.zeros((2, 24), np.uint8), np.zeros((2, 32), np.float32)])
def test_rows_that_no_quantiser_makes_are_refused(q: np.ndarray) -> None:
    with pytest.raises(ValueError, match="16 bytes a row"):
        pack_mxfp4(q)
