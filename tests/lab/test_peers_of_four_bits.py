"""Times of others are brought to this machine, and of which problem is which: what tools/lab/four_bit_shapes.py does without a GPU."""

from __future__ import annotations

import copy
import itertools
import json
import sys
from pathlib import Path

import pytest

from zoo.contract.expressions import Expression

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "tools" / "lab"


@pytest.fixture
def shapes(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(LAB), *sys.path])
    import four_bit_shapes

    return four_bit_shapes


def test_a_slower_machine_makes_their_times_longer_by_what_bounds_the_problem(shapes):
    theirs, own = shapes.Machine(4.0, 700.0), shapes.Machine(3.0, 1050.0)
    assert own.of_a_time(theirs, "bytes") == pytest.approx(4 / 3)
    assert own.of_a_time(theirs, "operations") == pytest.approx(1.5)
    assert theirs.of_a_time(theirs, "bytes") == theirs.of_a_time(theirs, "operations") == 1


def test_every_recorded_problem_is_read_once_and_none_is_beyond_its_limit(shapes):
    times = shapes.peers().times
    assert len(times) == 54 and all(set(one) == {"marlin", "int4"} for one in times.values())
    for problem, one in times.items():
        hit = sum(size > 0 for size in problem.sizes(0))
        assert min(one.values()) > 0.85 * max(problem.least_times(hit, 1, 1560, 4.3).values()), problem.words


def test_rows_and_weights_at_an_edge_count_once(shapes):
    rows, weights = shapes.ROWS, shapes.WEIGHTS
    assert [shapes.in_bucket(size, rows) for size in (1, 16, 17, 96, 97, 255, 256)] == [
        *["1 to 16 rows"] * 2, *["17 to 96"] * 2, *["97 to 255"] * 2, "256 and more",
    ]  # fmt: skip
    assert [shapes.in_bucket(size, weights) for size in (9e6, 30e6, 31e6, 2e9)] == list(weights)


def test_a_seed_draws_the_same_problems_and_as_many_of_each_number_of_rows(shapes):
    drawn = shapes.unseen_problems(7, 20)
    assert drawn == shapes.unseen_problems(7, 20) != shapes.unseen_problems(8, 20)
    for problem in drawn:
        sizes = problem.sizes(0)
        assert sum(sizes) == problem.rows and problem.N % 64 == problem.K % 64 == 0
    hits = [sum(size > 0 for size in problem.sizes(0)) for problem in drawn]
    found = [shapes.in_bucket(round(problem.rows / hit), shapes.ROWS) for problem, hit in zip(drawn, hits, strict=True)]
    assert all(found.count(rows) == 5 for rows in shapes.ROWS)


def test_the_tables_are_made_of_what_was_timed(shapes, capsys):
    results = []
    for problem, theirs in shapes.peers().times.items():
        common = {"part": "peers", "problem": vars(problem), "bound": "bytes", "limit": theirs["int4"] / 2}
        results += [common | {"kind": kind, "time": theirs["int4"] * over} for kind, over in (("regular", 1.05), ("never", 0.5))]
    shapes.print_all({"device": "none", "what": "made up", "machine": [[2.135, 0.0], [2.135, 0.0]], "results": results})
    said = capsys.readouterr().out
    assert "regular, experts and one matrix: this / int4 of 54 problems: 0.525" in said, "twice as slow a copy, so theirs count twice"
    assert "0 over the bar of 1.10" in said and "never, one matrix: this / int4 of 12 problems: 0.250" in said


def test_a_launch_that_is_pinned_has_as_many_blocks_as_share_or_are_alone(shapes):
    """Or a tile's times would be of neither."""
    manifest = json.loads((ROOT / "cubins" / "manifest.json").read_text())["kernels"]
    seen = clusters = 0
    for name in (
        "gemm.fp8_nvfp4.m_grouped_contiguous",
        "gemm.bf16_nvfp4.dense",
        "gemm.fp8_mxfp4.dense.stored",
        "gemm.fp8_nvfp4.m_grouped_gather.swiglu",
        "gemm.bf16_nvfp4.dense.swiglu_fp8b128",
    ):
        for variant in manifest[name]["variants"]:
            rule = manifest[name]["launches"][variant["launch"]]
            if rule["alone"] == "0" or variant["constants"].get("CTAS") != 2 or "SPLITS" in rule["grid"][0]:
                continue
            either = rule["cluster"][0].startswith("2 if ")
            for alone, in_pairs in itertools.product(("0", "1"), (False, True)):
                launch = copy.deepcopy(rule)
                shapes.pin(launch, alone, in_pairs)
                assert launch["cluster"][0] == ("21"[not in_pairs] if either else rule["cluster"][0])
                clusters += either
                values = dict.fromkeys(Expression(launch["grid"][0]).names, 1 << 20) | variant["constants"] | {"sms": 132, "G": 8}
                assert launch["alone"] == alone and Expression(launch["grid"][0]).evaluate(values) == (132 if alone == "1" else 264)
                seen += 1
    assert seen >= 16 and clusters
