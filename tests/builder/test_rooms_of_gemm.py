"""A kernel that nobody can read through: a dense product is ten files below gemm, whose parts lie by their roles and know no way of using them."""

import re
from pathlib import Path

import pytest

GEMM = Path(__file__).resolve().parents[2] / "src_cu/gemm"
INCLUDED = re.compile(r'^#include "gemm/([^"]+)"', re.MULTILINE)


def read_for(source: str) -> set[str]:
    """The files below gemm that belong to a source."""
    found, left = set(), [source]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += INCLUDED.findall((GEMM / name).read_text())
    return found


def test_one_dense_kernel_is_at_most_ten_files():
    files = read_for("fp8b128_dense_many.cu")
    assert len(files) <= 10, sorted(files)
    assert {name.partition("/")[0] for name in files if "/" in name} == {"schedule", "load", "pipeline", "mainloop", "epilogue"}


@pytest.mark.parametrize("way", ["rest", "few"])
def test_other_ways_are_two_files_more(way):
    assert len(read_for(f"fp8b128_dense_{way}.cu")) <= 12


def test_who_computes_which_tile_knows_no_other_room():
    for path in (GEMM / "schedule").glob("*.cuh"):
        assert all(one.startswith("schedule/") for one in INCLUDED.findall(path.read_text())), path
