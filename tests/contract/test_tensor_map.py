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
    data = TensorMap(**GOOD).to_bytes()
    for foreign in (bytes(BYTES), b"zooS" + data[4:], data[:4] + b"\2" + data[5:]):
        with pytest.raises(ArgumentError, match="these 128 bytes are not a logical tensor map"):
            TensorMap.from_bytes(foreign)


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


def test_every_part_of_a_record_has_its_place_in_the_bytes():
    """The emulator and the C library's tests read these, too."""
    record = TensorMap(
        "i32", 0x1122334455667788, (2**32, 3, 4, 5, 6), (16, 32, 48, 64), (7, 8, 9, 10, 256), (1, 2, 3, 4, 8), "64B", "256B", "nan"
    )
    wanted = b"zooT" + bytes((1, 3, 5, 2, 3, 1, 0, 0)) + (0x1122334455667788).to_bytes(8, "little")
    wanted += b"".join(n.to_bytes(8, "little") for n in (16, 32, 48, 64)) + b"".join(n.to_bytes(4, "little") for n in (0, 3, 4, 5, 6))
    wanted += b"".join(n.to_bytes(2, "little") for n in (7, 8, 9, 10, 256)) + (0x84321).to_bytes(8, "little")
    assert record.to_bytes() == wanted.ljust(128, b"\0") and TensorMap.from_bytes(wanted.ljust(128, b"\0")) == record
    assert TensorMap("u8", 0, (16,), (), (16,)).element_strides == (1,) and record.rank == 5


def test_the_names_have_the_drivers_numbers():
    types = "u8 u16 u32 i32 u64 i64 f16 f32 f64 bf16 f32_ftz tf32 tf32_ftz u4_align8 u4_align16 u6_align16"
    bits = (8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6)
    assert {name: (number, bits[number]) for number, name in enumerate(types.split())} == DTYPES
    swizzles = {"none": None, "32B": 32, "64B": 64, "128B": 128, "128B_atom_32B": 128, "128B_atom_32B_flip_8B": 128, "128B_atom_64B": 128}
    assert {name: (number, most) for number, (name, most) in enumerate(swizzles.items())} == SWIZZLES
    assert L2_PROMOTIONS == {"none": 0, "64B": 1, "128B": 2, "256B": 3} and OUT_OF_BOUNDS_FILLS == {"zero": 0, "nan": 1}


PACKED = {**GOOD, "dtype": "u4_align16", "dims": (256, 64), "strides": (512,), "box": (128, 16)}
EDGES = [
    ({}, dict(address=16), dict(address=8), "the address 0x8 must be a multiple of 16 bytes"),
    ({}, dict(dims=(1, 2**32)), dict(dims=(1, 0)), "dimension 1 has 0 elements, expected 1 to 2^32"),
    ({}, dict(dims=(2**32, 1)), dict(dims=(2**32 + 1, 1)), "dimension 0 has 4294967297 elements, expected 1 to 2^32"),
    ({}, dict(strides=(2**40 - 16,)), dict(strides=(2**40,)), "the stride of dimension 1 is 1099511627776 bytes, expected a multiple of 16 below 2^40"),
    ({}, dict(strides=(0,)), dict(strides=(-16,)), "the stride of dimension 1 is -16 bytes, expected a multiple of 16 below 2^40"),
    ({}, dict(strides=(16,)), dict(strides=(24,)), "the stride of dimension 1 is 24 bytes, expected a multiple of 16 below 2^40"),
    ({}, dict(box=(64, 256)), dict(box=(64, 257)), "dimension 1 of the box has 257 elements, expected 1 to 256"),
    ({}, dict(box=(64, 1)), dict(box=(64, 0)), "dimension 1 of the box has 0 elements, expected 1 to 256"),
    ({}, dict(element_strides=(1, 8)), dict(element_strides=(1, 9)), "element stride 1 is 9, expected 1 to 8"),
    ({}, dict(element_strides=(1, 1)), dict(element_strides=(0, 1)), "element stride 0 is 0, expected 1 to 8"),
    ({}, dict(box=(8, 1)), dict(box=(12, 1)), "a box row has 24 bytes, expected a multiple of 16"),
    ({}, dict(box=(64, 1)), dict(box=(72, 1)), "a box row has 144 bytes, more than the 128 of swizzle 128B"),
    (dict(swizzle="none"), dict(box=(256, 1)), dict(box=(4, 1)), "a box row has 8 bytes, expected a multiple of 16"),
    (dict(swizzle="32B"), dict(box=(16, 1)), dict(box=(24, 1)), "a box row has 48 bytes, more than the 32 of swizzle 32B"),
    (dict(dtype="u4_align8"), dict(dims=(254, 64)), dict(dims=(255, 64)), "packed 4-bit rows need an even number of elements"),
    (dict(dtype="u4_align8"), dict(box=(32, 1)), dict(box=(33, 1)), "a box row has 16 bytes, expected a multiple of 16"),
    (dict(swizzle="none"), dict(fill="nan"), dict(fill="nan", dtype="u16"), "elements of type u16 cannot be filled with NaN"),
    (PACKED, dict(address=32), dict(address=16), "the address 0x10 must be a multiple of 32 bytes"),
    (PACKED, dict(strides=(32,)), dict(strides=(48,)), "the stride of dimension 1 is 48 bytes, expected a multiple of 32 below 2^40"),
    (PACKED, dict(dims=(128, 1)), dict(dims=(64, 1)), "packed 4 and 6-bit rows need a multiple of 128 elements and a box of 128"),
    (PACKED, dict(dtype="u6_align16"), dict(dtype="u6_align16", box=(64, 1)), "packed 4 and 6-bit rows need a multiple of 128 elements and a box of 128"),
    (PACKED, dict(swizzle="128B_atom_32B"), dict(swizzle="128B_atom_64B"), "packed 4 and 6-bit elements cannot be swizzled by 128B_atom_64B"),
    (PACKED, dict(swizzle="none"), dict(swizzle="32B"), "packed 4 and 6-bit elements cannot be swizzled by 32B"),
    (dict(swizzle="none"), dict(dims=(64,) * 5, strides=(512,) * 4, box=(64,) * 5), dict(dims=(), strides=(), box=()), "0 dimensions, expected 1 to 5"),
]  # fmt: skip


@pytest.mark.parametrize(("of", "good", "bad", "words"), EDGES)
def test_each_rule_of_the_driver_is_held_to_its_edge(of, good, bad, words):
    assert TensorMap(**{**GOOD, **of, **good}).refusal() is None
    assert TensorMap(**{**GOOD, **of, **bad}).refusal() == words


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_floats_alone_are_filled_with_nan(dtype):
    of = PACKED if dtype.endswith("align16") else {**GOOD, "swizzle": "none"}
    assert (TensorMap(**{**of, "dtype": dtype, "fill": "nan"}).refusal() is None) == ("f" in dtype)
