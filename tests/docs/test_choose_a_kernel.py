"""docs/choose_a_kernel.md beside the manifest: what it names exists, on the chips and with the options that it says, and nothing is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

import pytest

import zoo
from tests.recorder import ROOT

PAGE = (ROOT / "docs" / "choose_a_kernel.md").read_text()
KERNELS = {kernel.name: kernel for kernel in zoo.find()}
GEMMS = {name: kernel for name, kernel in KERNELS.items() if name.startswith("gemm.")}
CODE = re.compile(r"`([^`]+)`")
NAME = re.compile(r"(?:gemm|quantize|dequantize|requantize|pack|unpack|scales|experts)\.[\w.*]+")
OPTION = re.compile(r'(\w+)="(\w+)"')
CHIPS = {"Hopper": "sm_90a", "Blackwell": "sm_100f"}


def tables(page: str) -> Iterator[list[dict[str, str]]]:
    """Each table as its rows, by the words of its head."""
    for table in re.findall(r"(?:^\|.*\|\n)+", page, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
        yield [dict(zip(head, row, strict=True)) for row in rows]


def named(text: str) -> list[str]:
    return [code for code in CODE.findall(text) if NAME.fullmatch(code)]


def meant(pattern: str) -> list[str]:
    return [name for name in KERNELS if fnmatchcase(name, pattern)]


def on_other_chips(page: str) -> list[str]:
    """Patterns below the name of a chip that mean a kernel without a cubin for it."""
    wrong = []
    for rows in tables(page):
        for row in rows:
            for head, cell in row.items():
                for chip in (arch for word, arch in CHIPS.items() if word in head):
                    wrong += [one for one in named(cell) if any(chip not in KERNELS[name].archs for name in meant(one))]
    return wrong


def unknown_options(page: str) -> list[str]:
    """In a cell, options follow the kernel that has them."""
    wrong = []
    for rows in tables(page):
        for cell in (cell for row in rows for cell in row.values()):
            kernels: list[str] = []
            for code in CODE.findall(cell):
                option = OPTION.fullmatch(code)
                kernels = meant(code) if NAME.fullmatch(code) else kernels
                if option and kernels:
                    wrong += [code for name in kernels if option[2] not in KERNELS[name].options[option[1]].values]
    return wrong


def test_every_kernel_that_is_named_exists():
    assert len(named(PAGE)) > 50
    assert [one for one in named(PAGE) if not meant(one)] == []


def test_no_kernel_is_offered_on_a_chip_that_lacks_it():
    assert on_other_chips(PAGE) == []
    wrong = "| weights | H100, H200 (Hopper) |\n|---|---|\n| MXFP8 | `gemm.mxfp8.*` |\n"
    assert on_other_chips(wrong) == ["gemm.mxfp8.*"]


def test_no_option_is_named_that_its_kernel_lacks():
    assert unknown_options(PAGE) == []
    assert unknown_options(PAGE.replace('`order="fragments"`', '`order="blocked"`'))


def formats_on(arch: str, suffix: str) -> set[str]:
    return {kernel.fields["formats"] for name, kernel in GEMMS.items() if name.endswith(suffix) and arch in kernel.archs}


@pytest.mark.parametrize("chip", CHIPS)
def test_the_table_of_epilogues_has_all_formats_of_a_chip(chip):
    arch = CHIPS[chip]
    (rows,) = [rows for rows in tables(PAGE) if "epilogue" in rows[0]]
    for row in rows:
        for epilogue in CODE.findall(row["epilogue"]) or [""]:
            said = {name.split(".")[1] for name in named(row[chip])}
            said = formats_on(arch, ".dense") if row[chip] == "all formats" else said
            for grouping in ("dense", "m_grouped_contiguous", "m_grouped_gather", "m_grouped_masked"):
                assert formats_on(arch, f".{grouping}{epilogue}") == said, (epilogue, grouping)


def test_the_table_of_epilogues_has_all_epilogues():
    (rows,) = [rows for rows in tables(PAGE) if "epilogue" in rows[0]]
    said = {epilogue for row in rows for epilogue in CODE.findall(row["epilogue"])}
    there = {"." + name.split(".", 3)[3] for name in GEMMS if name.count(".") == 3}
    assert said == {epilogue for epilogue in there if "stored" not in epilogue}


@pytest.mark.parametrize("chip", CHIPS)
def test_every_format_of_a_chip_is_in_the_first_table(chip):
    rows = next(tables(PAGE))
    (column,) = [head for head in rows[0] if chip in head]
    said = {name.split(".")[1] for row in rows for name in named(row[column]) if name.startswith("gemm.")}
    assert said == formats_on(CHIPS[chip], ".dense")
