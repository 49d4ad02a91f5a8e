"""The picture and the paragraph of training show all seeds of both precisions, and hide neither a cut run nor a worse FP8."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tools.documentation.learning import Learning, picture, section
from tools.documentation.svg import THEMES

ROOT = Path(__file__).resolve().parents[2]
STEPS = 400


def run(precision, seed, above=0.0, steps=STEPS, equal=None):
    losses = [[step, 5 - 4 * step / STEPS + above] for step in range(20, steps + 1, 20)]
    again = None if equal is None else {"from": 200, "steps": 100, "equal": equal}
    speeds = {"bf16": 1000.0, "fp8": 1250.0}
    values = {"losses": losses, "validation": [[steps, 1 + above]], "tokens_per_second": speeds[precision], "resumed": again}
    return {"precision": precision, "seed": seed, "steps": steps, **values}


def record(*runs):
    sizes = {"layers": 6, "width": 1024, "experts": 8, "top_k": 2, "window": 512}
    plan = {"steps": STEPS, "batch": 24, "graphs": True}
    return {
        "device": "NVIDIA H200",
        "date": "2026-01-01",
        "torch": "2.11.0",
        "sizes": sizes,
        "plan": plan,
        "parameters": 176e6,
        "runs": [*runs],
    }


ALL = [run(name, seed, 0.1 * seed + (0.25 if name == "fp8" else 0)) for seed in range(3) for name in ("bf16", "fp8")]


def test_the_table_has_means_spreads_and_speeds():
    words = section(Learning(record(*ALL)))
    assert "| validation loss, mean | 1.1000 | 1.3500 |" in words and "between seeds | 0.2000 | 0.2000 |" in words
    assert "FP8 is 25 % faster than bf16" in words and "3 seeds trained for 400 steps of 12,288 tokens" in words
    assert "22.7 % higher than in bf16. Between seeds FP8 differs by 14.8 %, bf16 by 18.2 %." in words and "resumed" not in words


@pytest.mark.parametrize(("equal", "word"), [(True, "repeated"), (False, "did not repeat")])
def test_a_resumed_run_that_differs_is_not_called_equal(equal, word):
    assert f"from step 200, {word} the next 100 losses exactly." in section(Learning(record(*ALL, run("fp8", 0, equal=equal))))


def test_a_cut_run_is_left_out_with_its_partner_and_counted():
    found = Learning(record(*ALL[:-1], run("fp8", 2, steps=100)))
    assert found.seeds == [0, 1] and "2 seeds (1 more stopped early)" in section(found)


def test_runs_of_one_precision_are_no_comparison():
    with pytest.raises(SystemExit, match=r"no seed with 400 steps in bf16 and in FP8"):
        Learning(record(*[one for one in ALL if one["precision"] == "bf16"]))


@pytest.mark.parametrize("theme", THEMES)
def test_a_worse_fp8_lies_above_bf16_in_both_plots(theme):
    colours = THEMES[theme]
    drawn = list(ElementTree.fromstring(picture(Learning(record(*ALL)), theme)).iter())

    def lines(colour):
        every = [one for one in drawn if one.tag.endswith("polyline") and one.get("stroke") == colour]
        return [[tuple(map(float, place.split(","))) for place in one.get("points").split()] for one in every]

    (fp8, difference), (bf16,) = ([one for one in lines(colour) if len(one) > 2] for colour in (colours.zoo, colours.rivals[0]))
    assert all(one < other for (_, one), (_, other) in zip(fp8[2:], bf16[2:], strict=True))  # y grows downwards
    middle = (64 + 318) / 2
    assert len(difference) == 4 and difference[-1][1] < middle - 20
    assert len([one for one in drawn if one.get("opacity")]) == 4, "a band of each precision in each plot"


def test_themes_differ_in_nothing_but_colours():
    light, dark = (re.sub(r"#[0-9a-f]{6}", "", picture(Learning(record(*ALL)), theme)) for theme in THEMES)
    assert light == dark


def test_recorded_runs_are_drawn_and_without_them_nothing_is_out_of_date(tmp_path):
    for part in ("zoo", "cubins", "tools", "docs"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "*.cubin"))
    shutil.copy(ROOT / "README.md", tmp_path)
    data, command = tmp_path / "docs" / "learning.json", [sys.executable, tmp_path / "tools" / "generate_docs.py", "--check"]
    data.unlink(missing_ok=True)
    before = subprocess.run(command, capture_output=True, text=True)
    data.write_text(json.dumps(record(*ALL)))
    after = subprocess.run(command, capture_output=True, text=True)
    assert "learning" not in before.stderr and "layers.md" not in before.stderr
    for name in ("docs/layers.md", "docs/pictures/learning_light.svg", "docs/pictures/learning_dark.svg"):
        assert f"{name} is out of date" in after.stderr
