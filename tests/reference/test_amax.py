"""The largest magnitude: exact, of the right rows, with NaN and infinity seen."""

import ml_dtypes
import numpy as np
import pytest

from tests.reference.cases import DTYPES, any_bits, bytes_of, every_bf16
from zoo.reference.amax import group_amax, tensor_amax


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_largest_magnitude_is_exact(dtype):
    x = any_bits((37, 53), dtype, seed=1)
    found = tensor_amax(x)
    assert found.shape == (1,) and found.dtype == np.float32
    assert float(found[0]) == max(abs(float(value)) for value in x.reshape(-1))


def test_infinity_wins_over_numbers_and_nan_over_everything():
    x = np.zeros((4, 8), np.float32)
    x[1, 3] = -np.inf
    assert tensor_amax(x)[0] == np.inf
    x.view(np.uint32)[3, 7] = 0xFF800001  # negative, signalling
    assert bytes_of(tensor_amax(x)).tolist() == [0x7FFFFFFF]
    assert bytes_of(tensor_amax(every_bf16())).tolist() == [0x7FFFFFFF]


def test_subnormals_count_and_negative_zero_is_zero():
    x = np.full((2, 8), -0.0, ml_dtypes.bfloat16)
    assert bytes_of(tensor_amax(x)).tolist() == [0]
    x.view(np.uint16)[1, 2] = 0x8001
    assert tensor_amax(x)[0] == 2.0**-133


def test_each_group_has_its_own_and_rows_of_nobody_none():
    x = np.arange(60, dtype=np.float32).reshape(6, 10) * np.where(np.arange(10) % 2, -1, 1)
    x[5] = np.nan
    found = group_amax(x, np.array([0, 2, 2, 5, 5], np.int32))
    assert found.tolist() == [0, 19, 0, 49, 0] and found.dtype == np.float32


def test_nan_stays_in_its_group():
    x = np.ones((6, 4), np.float16)
    x[3, 1] = np.nan
    found = group_amax(x, np.array([2, 4, 6], np.int32))
    assert found[0] == found[2] == 1 and bytes_of(found)[1] == 0x7FFFFFFF


@pytest.mark.parametrize("shape", [(0, 8), (8, 0)])
def test_nothing_has_amax_zero(shape):
    assert tensor_amax(np.zeros(shape, np.float32)).tolist() == [0]
    assert group_amax(np.zeros(shape, np.float32), np.zeros(2, np.int32)).tolist() == [0, 0]


def test_the_first_row_of_the_first_group_and_the_last_of_the_last_count():
    x = np.array([[9], [1], [2], [8], [50]], np.float32)
    assert group_amax(x, np.array([2, 4], np.int32)).tolist() == [9, 8]
