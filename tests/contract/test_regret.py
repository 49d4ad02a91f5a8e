"""What choices lose is judged by the expressions that callers get, not by what a table once said."""

import json

import pytest

from tools import regret
from zoo.contract.manifest import Manifest

DENSE = {
    "d.f32": 0, "M": 4096, "N": 4096, "K": 7168, "row_scale.present": 0, "c.present": 0,
    "batch_invariant.no": 1, "batch_invariant.yes": 0, "b_constant.no": 1, "b_constant.yes": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def dense():
    return Manifest(regret.ROOT / "cubins" / "manifest.json").kernel("gemm.fp8b128.dense")


def case(kernel, times, **symbols):
    (found,) = regret.cases_of(kernel, [{"kernel": kernel.name, "shape": [1], "times": times, "symbols": DENSE | symbols}])
    return found


def test_the_chosen_variant_does_not_follow_the_times(dense):
    regrets = [case(dense, {"t128": 100, "t192": 100} | {slower: 150}).regret() for slower in ("t128", "t192")]
    assert sorted(regrets) == [1, 1.5]


def test_a_variant_that_does_not_take_the_call_is_no_rival(dense):
    assert set(case(dense, {"t128": 100, "few8_w64": 1}).costs) == {"t128"}


def test_a_call_that_no_timed_variant_takes_is_no_case(dense):
    assert not regret.cases_of(dense, [{"kernel": dense.name, "shape": [1], "times": {"few8_w64": 1}, "symbols": DENSE}])


def test_what_no_choice_by_sizes_can_avoid_is_told(dense):
    cases = [case(dense, times) for times in ({"t128": 100, "t192": 121}, {"t128": 121, "t192": 100})]
    assert regret.unavoidable(cases) == pytest.approx((1.1, 1.21))


def test_a_variant_that_one_call_needs_stays(dense):
    cases = [case(dense, {"t128": 100, "t192": 100.8, "t256_ahead": 130}), case(dense, {"few8_w64": 5}, M=8)]
    costs = {"t128": 1, "t192": 2, "t256_ahead": 3, "few8_w64": 4}
    for one in cases:
        one.costs = {name: costs[name] for name in one.costs}
    assert [name for name, _ in regret.dispensable(cases, 1.01)] == ["t192", "t256_ahead"]


def test_a_sweep_of_a_smaller_chip_is_judged_by_its_multiprocessors(dense):
    """132 tiles are one wave of an H200 and two of an H20."""
    costs = [case(dense, {"t128": 100}, N=16896, M=128, **more).costs["t128"] for more in ({}, {"sms": 132}, {"sms": 78})]
    assert costs[0] == costs[1] < costs[2]


@pytest.mark.parametrize("symbols", [{"M": 4096}, [], 7])
def test_a_sweep_of_another_commits_kernel_is_refused_in_a_sentence(dense, tmp_path, monkeypatch, capsys, symbols):
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps([{"kernel": dense.name, "shape": [4096], "times": {"t128": 100}, "symbols": symbols}]))
    monkeypatch.setattr("sys.argv", ["regret.py", str(file)])
    with pytest.raises(SystemExit):
        regret.main()
    assert "the sweep must be of the kernel that the manifest has" in capsys.readouterr().err


def test_the_report_of_a_sweep_file_names_the_kernel(dense, tmp_path, monkeypatch, capsys):
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps([{"kernel": dense.name, "shape": [4096], "times": {"t128": 100, "t192": 101}, "symbols": DENSE}]))
    monkeypatch.setattr("sys.argv", ["regret.py", str(file)])
    regret.main()
    assert "gemm.fp8b128.dense: chosen / best" in capsys.readouterr().out
