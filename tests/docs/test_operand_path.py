"""The picture in docs/gemm.md of which headers 4-bit weights share with FP8: a header that moves, or is shared anew, changes it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GEMM = ROOT / "src_cu" / "gemm"
OWN = "gemm/four_bit/"
FP8, BOTH, FOUR_BITS = "FP8, fp8b128_*.cu", "both", "4-bit weights, four_bit*.cu"
ROLES = ("schedule", "load", "pipeline", "mainloop", "epilogue")
Columns = dict[str, set[str]]


def includes(path: Path) -> set[str]:
    return set(re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE))


def read_by(sources: Iterable[Path]) -> set[str]:
    """Headers, by their paths in src_cu, that are included directly or by another one."""
    found: set[str] = set()
    todo = [one for source in sources for one in includes(source)]
    while todo:
        header = todo.pop()
        if header not in found:
            found.add(header)
            todo += includes(ROOT / "src_cu" / header)
    return found


@pytest.fixture(scope="module")
def of_fp8() -> set[str]:
    return read_by(path for path in GEMM.glob("fp8b128_*.cu") if "blackwell" not in path.name)


@pytest.fixture(scope="module")
def of_four_bits() -> set[str]:
    return read_by(GEMM.glob("four_bit*.cu"))


@pytest.fixture(scope="module")
def picture() -> Columns:
    """Of each column the headers, by their paths in src_cu."""
    page = (ROOT / "docs" / "gemm.md").read_text()
    (head, *lines) = next(text for text in re.findall(r"```text\n(.*?)\n```", page, re.DOTALL) if FP8 in text).splitlines()
    begins = [head.index(name) for name in (FP8, BOTH, FOUR_BITS)]
    found: Columns = {FP8: set(), BOTH: set(), FOUR_BITS: set()}
    role = ""
    for line in lines:
        role = line[: begins[0]].strip(" |") or role
        for column, begin, end in zip((FP8, BOTH), begins, begins[1:], strict=False):
            found[column] |= {f"gemm/{role}/{name}.cuh" for name in line[begin:end].split()}
        found[FOUR_BITS] |= {where(name) for name in line[begins[2] :].split()}
    return found


def where(name: str) -> str:
    """Of a name in the last column."""
    return f"{name if name.startswith('common/') else f'gemm/{name}'}.cuh" if "/" in name else f"{OWN}{name}.cuh"


def in_roles(headers: set[str]) -> set[str]:
    return {header for header in headers if header.startswith(tuple(f"gemm/{role}/" for role in ROLES))}


def test_a_header_that_both_read_is_in_the_middle(picture, of_fp8, of_four_bits):
    assert picture[BOTH] == in_roles(of_fp8 & of_four_bits)


def test_a_header_that_one_reads_is_in_its_column(picture, of_fp8, of_four_bits):
    assert picture[FP8] == in_roles(of_fp8 - of_four_bits)
    assert picture[FOUR_BITS] == of_four_bits - of_fp8


def test_no_other_kernel_reaches_into_the_folder(of_four_bits):
    others = [
        path for path in (ROOT / "src_cu").rglob("*.cu*") if not path.relative_to(ROOT / "src_cu").as_posix().startswith("gemm/four_bit")
    ]
    assert others and not [path.name for path in others if any(one.startswith(OWN) for one in includes(path))]
    assert {path.relative_to(ROOT / "src_cu").as_posix() for path in (GEMM / "four_bit").rglob("*.cuh")} <= of_four_bits, (
        "one that nobody reads"
    )


def test_what_is_called_shared_is_there(picture):
    assert {"gemm/schedule/tile_order.cuh", "gemm/epilogue/pushed_sums.cuh"} <= picture[BOTH]
    assert not any(header.startswith("gemm/mainloop/") for header in picture[BOTH])
