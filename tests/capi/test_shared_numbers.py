"""What zoo.c refuses launches by is in the generated header: a limit or dtype written again in C would stay behind when the contract moves."""

import re

import pytest

from zoo.capi.contract_header import HEADER, LIMITS
from zoo.contract.dtypes import DTYPES
from zoo.contract.tensor_map import TensorMap

CODE = re.sub(r"/\*.*?\*/", "", (HEADER.parent / "zoo.c").read_text(), flags=re.DOTALL)


@pytest.mark.parametrize(("function", "end"), [("check_map", "\n}\n"), ("lay_out", "plan->device")])
def test_no_limit_is_written_in_what_checks_a_launch(function, end):
    checks = CODE.partition(f"static zoo_status {function}(")[2].partition(end)[0]
    assert "ZOO_LIMIT_" in checks
    assert re.findall(r"(?<!\w)\d{2,}(?!\w)", checks) == []


def test_no_dtype_is_named_by_its_text():
    assert [name for name in DTYPES if f'"{name}"' in CODE] == []


def test_every_limit_of_the_header_is_read():
    unread = [name for name in LIMITS if f"ZOO_LIMIT_{name.replace(' ', '_').upper()}" not in CODE]
    assert unread == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dims": (2**32 + 16, 8)}, "expected 1 to 2^32"),
        ({"strides": (2**40,)}, "a multiple of 16 below 2^40"),
        ({"box": (16, 257)}, "expected 1 to 256"),
        ({"element_strides": (1, 9)}, "expected 1 to 8"),
        ({"box": (24, 8)}, "expected a multiple of 16"),
        ({"address": 8}, "must be a multiple of 16 bytes"),
        ({"dtype": "u4_align16", "address": 16}, "must be a multiple of 32 bytes"),
        ({"dtype": "u4_align16"}, "a multiple of 128 elements and a box of 128"),
    ],
)
def test_the_driver_is_not_asked_for_a_map_just_past_a_limit(change, words):
    usual = {"dtype": "u8", "address": 0, "dims": (64, 8), "strides": (64,), "box": (16, 8)}
    assert TensorMap(**usual).refusal() is None
    assert words in TensorMap(**{**usual, **change}).refusal()
