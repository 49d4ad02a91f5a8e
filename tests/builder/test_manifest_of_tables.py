"""The committed manifest says what the tables say, in all that needs no compiler; and the limits of the scales' tables are those of 32 bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.builder.expand import expand
from tools.builder.table import Table, read_tables
from zoo.contract.expressions import Expression

ROOT = Path(__file__).resolve().parents[2]
TILES = 2**31 - 1  # the most that are still numbered in 32 bits


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    return {table.name: table for table in read_tables(ROOT / "src_cu")}


def test_an_edit_of_a_table_does_not_stay_out_of_the_manifest(tables):
    kernels = json.loads((ROOT / "cubins" / "manifest.json").read_text())["kernels"]
    assert list(kernels) == sorted(tables)
    for name, kernel in kernels.items():
        assert {key: value for key, value in kernel.items() if key != "variants"} == tables[name].entry, name
        wanted = {(one.arch, one.name): one for one in expand(tables[name])}
        assert {(one["arch"], one["name"]) for one in kernel["variants"]} == {*wanted}, name
        for one in kernel["variants"]:
            tile = wanted[one["arch"], one["name"]].tile
            assert (one["when"], one["cost"], one["launch"]) == (tile.when, tile.cost, tile.launch), (name, one["name"])


# of each kernel: the largest sizes that it takes, and the name of the size of which one more is refused
EDGES = {
    "scales.blocked": [(dict(M=128, C=64 * TILES), "C"), (dict(M=128 * TILES, C=64), "M")],
    "scales.unblocked": [(dict(M=128, C=64 * TILES), "C"), (dict(M=128 * TILES, C=64), "M")],
    "scales.mn_major": [(dict(M=32, C=16 * TILES), "C"), (dict(M=32 * TILES, C=16), "M")],
    "scales.ue8m0_words": [(dict(M=32, C=16 * TILES), "C"), (dict(M=32 * TILES, C=16), "M")],
    "scales.blocked.m_grouped_contiguous": [(dict(M=TILES - 128, C=64, G=1), "M"), (dict(M=0, C=64 * TILES, G=1), "C")],
    "scales.unblocked.m_grouped_contiguous": [(dict(M=TILES - 128, C=64, G=1), "M"), (dict(M=0, C=64 * TILES, G=1), "C")],
    "scales.blocked.k_grouped": [
        (dict(R=33_553_919, C=4, G=1), "R"),
        (dict(R=1, C=TILES - 4, G=1), "C"),
        (dict(R=1, C=3, G=2**29 - 1), "G"),
    ],
    "scales.unblocked.k_grouped": [
        (dict(R=33_553_919, C=4, G=1), "R"),
        (dict(R=1, C=TILES - 4, G=1), "C"),
        (dict(R=1, C=3, G=2**29 - 1), "G"),
    ],
}


@pytest.mark.parametrize("name", EDGES)
def test_scales_of_more_pieces_than_32_bits_can_number_are_refused_and_no_fewer(name, tables):
    (expression,) = (Expression(one["expression"]) for one in tables[name].entry["constraints"] if "in parts" in one["words"])
    for largest, size in EDGES[name]:
        assert expression.evaluate(largest) and not expression.evaluate({**largest, size: largest[size] + 1}), (largest, size)


def test_every_limit_on_what_is_rearranged_is_tried_at_its_edge(tables):
    limited = {
        name
        for name, one in tables.items()
        if name.startswith("scales.") and any("in parts" in c["words"] for c in one.entry["constraints"])
    }
    assert limited == {*EDGES}
