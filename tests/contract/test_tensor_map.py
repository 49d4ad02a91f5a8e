"""The logical tensor map: a faithful 128-byte form, and the driver's rules before the driver sees it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.contract.tensor_map import BYTES, DTYPES, L2_PROMOTIONS, OUT_OF_BOUNDS_FILLS, SWIZZLES, TensorMap
from zoo.errors import ArgumentError

GOOD = dict(dtype="bf16", address=0x7F0000001000, dims=(256, 64), strides=(512,), box=(64, 16), swizzle="128B")


def _maps():
    def build(rank):
        return st.builds(
            TensorMap,
            dtype=st.sampled_from(sorted(DTYPES)),
            address=st.integers(0, 2**63),
            dims=st.tuples(*[st.integers(1, 2**32)] * rank),
            strides=st.tuples(*[st.integers(0, 2**40 - 1)] * (rank - 1)),
            box=st.tuples(*[st.integers(1, 256)] * rank),
            element_strides=st.tuples(*[st.integers(1, 8)] * rank),
            swizzle=st.sampled_from(sorted(SWIZZLES)),
            l2_promotion=st.sampled_from(sorted(L2_PROMOTIONS)),
            fill=st.sampled_from(sorted(OUT_OF_BOUNDS_FILLS)),
        )

    return st.integers(1, 5).flatmap(build)


@given(_maps())
def test_every_record_survives_its_128_bytes(record):
    data = record.to_bytes()
    assert len(data) == BYTES
    assert TensorMap.from_bytes(data) == record


def test_foreign_bytes_are_no_tensor_map():
    with pytest.raises(ArgumentError, match="not a logical tensor map"):
        TensorMap.from_bytes(bytes(BYTES))


def test_a_good_record_passes():
    TensorMap(**GOOD).check()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (dict(address=0x1008), "multiple of 16 bytes"),
        (dict(dims=(256, 0)), "dimension 1 has 0 elements"),
        (dict(dims=(2**32 + 1, 64)), "expected 1 to 2\\^32"),
        (dict(strides=(520,)), "stride of dimension 1 is 520 bytes"),
        (dict(strides=(2**40,)), "below 2\\^40"),
        (dict(box=(64, 257)), "dimension 1 of the box has 257"),
        (dict(box=(4, 16)), "a box row has 8 bytes, expected a multiple of 16"),
        (dict(box=(128, 16)), "256 bytes, more than the 128 of swizzle 128B"),
        (dict(box=(64, 16), swizzle="64B"), "128 bytes, more than the 64"),
        (dict(element_strides=(1, 9)), "element stride 1 is 9"),
        (dict(dtype="u8", box=(128, 16), fill="nan"), "cannot be filled with NaN"),
        (dict(dtype="u4_align8", dims=(255, 64)), "even number of elements"),
        (dict(dtype="u4_align16", dims=(250, 64), box=(128, 16)), "multiple of 128 elements"),
        (dict(dtype="u4_align16", box=(128, 16), swizzle="64B"), "cannot be swizzled by 64B"),
        (dict(dtype="u4_align16", box=(128, 16), strides=(528,)), "multiple of 32"),
        (dict(dims=(256,) * 6, strides=(512,) * 5, box=(64,) * 6), "6 dimensions"),
    ],
)
def test_what_the_driver_would_refuse_is_refused_with_the_reason(change, reason):
    with pytest.raises(ArgumentError, match=reason):
        TensorMap(**{**GOOD, **change}).check()


def test_box_bytes_count_what_a_load_completes():
    assert TensorMap(**GOOD).box_bytes == 64 * 16 * 2
    assert TensorMap(**{**GOOD, "dtype": "u4_align8", "box": (64, 16), "swizzle": "32B"}).box_bytes == 64 * 16 // 2
    assert TensorMap(**{**GOOD, "element_strides": (2, 3)}).box_bytes == 64 * 6 * 2
