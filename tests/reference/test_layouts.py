"""The blocked layout against offsets worked out by hand and against a reshape-and-transpose of whole tiles."""

import ml_dtypes
import numpy as np
import pytest

from zoo.reference.layouts import blocked_offset, blocked_shape, from_blocked, to_blocked


@pytest.mark.parametrize(
    ("row", "column", "offset"),
    [
        (0, 0, 0), (0, 3, 3), (32, 0, 4), (96, 0, 12), (1, 0, 16), (31, 0, 496), (127, 3, 511), (0, 4, 512),
        (128, 0, 1536), (129, 9, 2577),
    ],
)  # fmt: skip
def test_offsets_worked_out_by_hand(row, column, offset):
    assert blocked_offset(row, column, padded_columns=12) == offset


@pytest.mark.parametrize(("shape", "padded"), [((0, 4), (0, 4)), ((1, 1), (128, 4)), ((128, 4), (128, 4)), ((129, 5), (256, 8))])
def test_padded_shape(shape, padded):
    assert blocked_shape(*shape) == padded


@pytest.mark.parametrize("shape", [(1, 1), (33, 3), (128, 4), (129, 5), (300, 90), (0, 7)])
def test_blocked_is_tiles_transposed_and_padding_is_zero(shape):
    scales = np.random.default_rng(0).integers(1, 256, shape, dtype=np.uint8)
    rows, columns = blocked_shape(*shape)
    padded = np.zeros((rows, columns), np.uint8)
    padded[: shape[0], : shape[1]] = scales
    tiles = padded.reshape(rows // 128, 4, 32, columns // 4, 4).transpose(0, 3, 2, 1, 4)
    blocked = to_blocked(scales)
    assert np.array_equal(blocked, tiles.reshape(-1))
    assert np.array_equal(from_blocked(blocked, *shape), scales)


def test_dtype_is_kept():
    scales = np.arange(8, dtype=np.uint8).reshape(2, 4).view(ml_dtypes.float8_e8m0fnu)
    assert to_blocked(scales).dtype == scales.dtype


def test_from_blocked_refuses_the_wrong_size():
    with pytest.raises(ValueError, match=r"128 \* 8 bytes, got 512"):
        from_blocked(np.zeros(512, np.uint8), 128, 5)
