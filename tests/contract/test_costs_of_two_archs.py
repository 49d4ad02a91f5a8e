"""A tile of one arch has not the cost of another's of the same name: such a rule chooses, and nothing fails."""

import json
import re
from pathlib import Path

import pytest

KERNELS = json.loads((Path(__file__).resolve().parents[2] / "cubins/manifest.json").read_text())["kernels"]
BOTH = sorted(name for name, kernel in KERNELS.items() if len({variant["arch"] for variant in kernel["variants"]}) > 1)
OWN = {  # derived values that say how work is cut on one of them
    "sm_90a": re.compile(r"\b(QUARTERS_\w+|MOVING|WAVE_OF_\w+)\b"),
    "sm_100f": re.compile(r"\b(WIDTH|SHARES|SQUARES|LIKELY\w*|ALONG)\b"),
}


def strangers(kernel: dict) -> list[str]:
    """Costs that read what is another arch's own."""
    return [
        f"{variant['name']} on {variant['arch']}: {found[0]}"
        for variant in kernel["variants"]
        for arch, names in OWN.items()
        if arch != variant["arch"] and (found := names.search(variant["cost"]))
    ]


@pytest.mark.parametrize("name", BOTH)
def test_a_cost_reads_nothing_that_is_another_archs_own(name):
    assert strangers(KERNELS[name]) == []


def test_costs_of_two_archs_that_changed_places_are_seen():
    kernel = json.loads(json.dumps(KERNELS["gemm.fp8b128.dense"]))
    hopper = next(variant for variant in kernel["variants"] if variant["arch"] == "sm_90a" and variant["name"] == "t128")
    blackwell = next(variant for variant in kernel["variants"] if variant["arch"] == "sm_100f" and variant["name"] == "t128")
    hopper["cost"], blackwell["cost"] = blackwell["cost"], hopper["cost"]
    assert strangers(kernel) == ["t128 on sm_90a: WIDTH"]
