"""`zoo tune` measures a chip that is not an H200: choices change as the chip asks, and what was not measured stays as it is."""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import random
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace

import click
import pytest

from tests.recorder import python
from tests.small_zoo import small_zoo
from zoo.benchmark.drawn_calls import DrawnCall, drawn_calls
from zoo.benchmark.fit import TimedCall, cost_of_numbers
from zoo.benchmark.tune import GraphTimer, Tuned, lost, shares, tune
from zoo.cli.doctor import _costs
from zoo.cli.tune import _tune
from zoo.contract import chips
from zoo.contract.costs import SCHEMA, Costs, as_measured, read_costs, text_of, tunable, with_numbers
from zoo.contract.expressions import Expression
from zoo.contract.manifest import Kernel
from zoo.errors import DriverError, IntegrityError
from zoo.packaged import packaged
from zoo.runtime import driver
from zoo.runtime.costs import kernel_on

ARCH, CAPABILITY = "sm_90a", (9, 0)
UNSEEN = 2  # a seed that nothing is fitted to
# What an H20 has, in times of an H200's: a seventh of the tensor rate, 4 of 4.8 TB/s
MATH = ("block", "turn_block", "busy_block", "alone", "shared", "narrow", "all")
KERNELS = ("gemm.fp8b128.m_grouped_masked", "gemm.fp8b128.k_grouped", "gemm.bf16_mxfp4.dense", "gemm.fp8_mxfp4.m_grouped_contiguous.stored")
FEW = "gemm.fp8b128.k_grouped"  # the fewest tiles


@dataclass(frozen=True)
class Chip:
    name: str = "NVIDIA H20"
    capability: tuple[int, int] = CAPABILITY
    multiprocessors: int = 78


class KnownCosts:
    """Times a chip whose numbers are known, to 1 %."""

    def __init__(self, kernels: dict[str, Kernel]):
        self.kernels, self.noise, self.calls = kernels, random.Random(3), 0

    def nanoseconds(self, kernel, call):
        self.calls += 1
        return {name: time * self.noise.gauss(1, 0.01) for name, time in times(self.kernels[kernel.name], call).items()}


def times(kernel: Kernel, call) -> dict[str, float]:
    variants = {one.name: one for one in tunable(kernel, ARCH)}
    return {name: float(variants[name].cost.evaluate({**call.values, **variants[name].symbols})) for name in call.costs}


def on_a_slow_chip(kernel: Kernel) -> Kernel:
    """The kernel with seven times the time for multiplications; no tile is exactly as much slower as its neighbour."""
    pick = random.Random(7)

    def slower(name: str, number: int) -> int:
        factor = 7.0 if name in MATH else 0.83 if name == "memory" else 1.2
        return number if name in ("idle", "much", "untimed") else max(1, round(number * factor * pick.uniform(0.9, 1.1)))

    numbers = {one.name: {name: slower(name, number) for name, number in one.numbers.items()} for one in tunable(kernel, ARCH)}
    return with_numbers(kernel, ARCH, numbers)


@cache
def unseen(name: str, multiprocessors: int, count: int = 60) -> list:
    return list(itertools.islice(drawn_calls(packaged.kernel(name), CAPABILITY, multiprocessors, UNSEEN), count))


def lost_on_unseen(kernel: Kernel, truth: Kernel, multiprocessors: int) -> float:
    return lost(kernel, ARCH, [TimedCall(call.values, times(truth, call)) for call in unseen(kernel.name, multiprocessors)])


def tuned(kernel: Kernel, truth: Kernel, multiprocessors: int, calls: int = 16) -> Tuned:
    """By as many calls, one a second."""
    return tune(kernel, Chip(multiprocessors=multiprocessors), KnownCosts({kernel.name: truth}), calls, now=itertools.count().__next__)


@pytest.mark.parametrize("name", KERNELS)
def test_choices_on_calls_that_were_not_timed_are_those_of_the_chip(name):
    kernel = packaged.kernel(name)
    slow = on_a_slow_chip(kernel)
    assert lost_on_unseen(tuned(kernel, slow, 78).kernel, slow, 78) <= 0.01


@pytest.mark.parametrize("name", KERNELS)
def test_the_shipped_choices_are_found_again_from_the_numbers_of_another_chip(name):
    """On an H200 what `zoo tune` writes loses no more than 1 % against what is shipped."""
    kernel = packaged.kernel(name)
    assert lost_on_unseen(tuned(on_a_slow_chip(kernel), kernel, 132).kernel, kernel, 132) <= 0.01


def test_a_chip_of_few_multiplications_takes_no_tile_that_only_a_full_rate_pays_for():
    whole = packaged.kernel("gemm.fp8b128.dense")
    kernel = replace(whole, variants=tuple(one for one in whole.variants if one.name.startswith(("few8", "few32", "t64", "t128"))))
    slow = on_a_slow_chip(kernel)
    found = tuned(kernel, slow, 78, 16).kernel
    calls = list(itertools.islice(drawn_calls(kernel, CAPABILITY, 78, UNSEEN), 40))
    seen = [TimedCall(call.values, times(slow, call)) for call in calls]
    assert lost(kernel, ARCH, seen) > 0.05, "or the made-up chip would prove nothing"
    assert lost(found, ARCH, seen) < 0.01
    assert max(lost(found, ARCH, [one]) for one in seen) < 0.1


def test_the_fastest_tile_is_chosen_where_the_cost_depends_on_a_number_by_a_condition():
    """Such a cost is computed anew for all numbers; others are computed in part once."""
    by_number = Expression("turn * M if turn < call else call * 2")
    numbers = {"turn": 3, "call": 5}
    assert cost_of_numbers(by_number, {"M": 7})(numbers) == 21
    assert cost_of_numbers(by_number, {"M": 7})({"turn": 9, "call": 5}) == 10
    for call in unseen(FEW, 132, 5):
        for one in tunable(packaged.kernel(FEW), ARCH):
            assert cost_of_numbers(one.cost, {**call.values, **one.constants})(one.numbers) == one.cost.evaluate(
                {**call.values, **one.symbols}
            )


def test_a_tile_that_no_call_timed_has_the_factors_of_the_chip():
    """Or a number that nothing measured would be compared with numbers that are seven times as large."""
    kernel = packaged.kernel(FEW)
    slow = on_a_slow_chip(kernel)
    forgotten = tunable(kernel, ARCH)[0]

    class Forgetful(KnownCosts):
        def nanoseconds(self, kernel, call):
            return {name: time for name, time in super().nanoseconds(kernel, call).items() if name != forgotten.name}

    found = tune(kernel, Chip(), Forgetful({FEW: slow}), 8, now=itertools.count().__next__).kernel
    numbers = {one.name: one.numbers for one in tunable(found, ARCH)}[forgotten.name]
    assert numbers["turn_block"] == pytest.approx(7 * forgotten.numbers["turn_block"], rel=0.15)


def test_seconds_that_a_kernel_does_not_use_go_to_the_kernels_after_it():
    first, second = itertools.islice(shares([1, 3], 100), 2)
    assert first == pytest.approx(25, abs=1) and second == pytest.approx(100, abs=1)


@pytest.fixture
def tuned_file(tmp_path, monkeypatch):
    """Tunes kernels into a file, by the fewest calls."""
    monkeypatch.setattr("zoo.cli.tune._SECONDS", 0)

    def run(*names, chip=Chip(), timer=None):
        kernels = [packaged.kernel(name) for name in names]
        timer = timer or KnownCosts({kernel.name: on_a_slow_chip(kernel) for kernel in kernels})
        _tune(kernels, chip, timer, tmp_path / "my costs.json")
        return read_costs(tmp_path / "my costs.json")

    return run


OTHER = "gemm.fp8_mxfp4.m_grouped_gather.swiglu_stored"


def test_a_file_keeps_its_other_kernels_and_says_how_to_use_it(tuned_file, tmp_path, capsys):
    tuned_file(FEW)
    shown = read_costs(tmp_path / "my costs.json")
    (tmp_path / "my costs.json").write_text(text_of(replace(shown, kernels=shown.kernels | {"gemm.of.another.zoo": shown.kernels[FEW]})))
    costs = tuned_file(OTHER)
    assert list(costs.kernels) == [FEW, "gemm.of.another.zoo", OTHER] and (costs.chip, costs.multiprocessors) == ("NVIDIA H20", 78)
    said = capsys.readouterr().out
    assert f"tuned {FEW}: 8 calls; choices" in " ".join(said.split())
    assert f"export ZOO_COSTS='{tmp_path}/my costs.json'" in said.splitlines(), "a line to copy"
    for name in (FEW, OTHER):
        assert costs.applied(packaged.kernel(name), ARCH) is not None


def test_a_kill_loses_no_kernel_that_was_measured_before(tuned_file, tmp_path):
    class Killed(KnownCosts):
        def nanoseconds(self, kernel, call):
            if kernel.name == OTHER:
                assert list(read_costs(tmp_path / "my costs.json").kernels) == [FEW]
                raise KeyboardInterrupt
            return super().nanoseconds(kernel, call)

    with pytest.raises(KeyboardInterrupt):
        tuned_file(FEW, OTHER, timer=Killed({FEW: on_a_slow_chip(packaged.kernel(FEW))}))


def test_a_file_of_another_chip_is_not_overwritten(tuned_file):
    tuned_file(FEW)
    refusal = "is of NVIDIA H20 with 78 multiprocessors, this GPU is NVIDIA H200 with 132; delete the file, or choose another --output"
    with pytest.raises(IntegrityError, match=refusal):
        tuned_file(FEW, chip=Chip("NVIDIA H200", multiprocessors=132))


def test_numbers_that_misjudge_calls_beside_those_they_were_fitted_to_are_not_written(tuned_file, tmp_path, monkeypatch):
    def learned_by_heart(kernel, arch, calls):
        """The right numbers for all calls. Numbers for fewer calls always choose the same tile."""
        right = {one.name: one.numbers for one in tunable(on_a_slow_chip(kernel), arch)}
        return right if len(calls) == 8 else {name: dict.fromkeys(right[name], 1 + place) for place, name in enumerate(right)}

    write(tmp_path / "my costs.json", FEW, "NVIDIA H20", 78)
    monkeypatch.setattr("zoo.benchmark.tune.fitted", learned_by_heart)
    assert list(tuned_file(FEW).kernels) == []


class Fails(KnownCosts):
    """Some calls are refused, for instance because memory is short."""

    def __init__(self, kernels: dict[str, Kernel], failing: set[int]):
        super().__init__(kernels)
        self.failing = failing

    def nanoseconds(self, kernel, call):
        times = super().nanoseconds(kernel, call)
        if self.calls in self.failing:
            raise DriverError("out of memory")
        return times


def test_a_call_that_the_driver_refuses_does_not_end_the_run(tuned_file, capsys):
    kernels = {name: on_a_slow_chip(packaged.kernel(name)) for name in (FEW, OTHER)}
    assert list(tuned_file(FEW, OTHER, timer=Fails(kernels, {2, *range(10, 18)})).kernels) == [FEW]
    said = " ".join(capsys.readouterr().out.split())
    assert "8 calls; choices" in said and "; 1 call failed" in said and f"failed {OTHER}: out of memory" in said


@pytest.mark.parametrize("nonsense", [0.0, math.nan, math.inf])
def test_a_time_that_no_call_can_take_ends_in_a_sentence(tuned_file, capsys, nonsense):
    class Nonsense(KnownCosts):
        def nanoseconds(self, kernel, call):
            return {name: nonsense if name == max(call.costs) else 5000.0 for name in call.costs}

    with pytest.raises(IntegrityError, match="cannot be read"):
        tuned_file(FEW, timer=Nonsense({}))
    assert f"failed {FEW}: events of the driver measured {nonsense:.0f} ns" in " ".join(capsys.readouterr().out.split())


def test_a_write_that_fails_does_not_count_as_written(tuned_file, monkeypatch, capsys):
    writes = []

    def full_at_last(path, data):
        writes.append(data)
        if len(writes) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        path.write_bytes(data)

    monkeypatch.setattr("zoo.contract.files.write_file", full_at_last)
    with pytest.raises(OSError, match="No space left"):
        tuned_file(FEW, OTHER)
    assert "my costs.json: 1 kernel." in " ".join(capsys.readouterr().out.split())


def test_no_call_begins_after_the_time_of_all_kernels_is_over(tuned_file, monkeypatch, capsys):
    clock = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr("zoo.cli.tune._MOST_SECONDS", 50)
    monkeypatch.setattr("zoo.cli.tune.time", SimpleNamespace(monotonic=lambda: clock.seconds))

    class Slow(KnownCosts):
        def nanoseconds(self, kernel, call):
            clock.seconds += 10
            return super().nanoseconds(kernel, call)

    assert list(tuned_file(FEW, OTHER, timer=Slow({FEW: on_a_slow_chip(packaged.kernel(FEW))})).kernels) == [FEW]
    assert f"for 1 kernel, whose numbers stay: {OTHER}" in " ".join(capsys.readouterr().out.split())


def test_a_kernel_has_fewer_calls_than_usual_at_the_end_of_the_time():
    kernel = packaged.kernel(FEW)
    timer = KnownCosts({FEW: kernel})
    assert tune(kernel, Chip(), timer, 0, 5, itertools.count().__next__).calls == timer.calls == 5


def test_replays_on_a_slow_chip_take_no_longer_than_on_a_fast_one(monkeypatch):
    """Costs of an H200 would make replays of an H20 seven times as long."""
    sizes = []
    replay, operands = SimpleNamespace(close=lambda: None), SimpleNamespace(plans=lambda *_: [None])
    monkeypatch.setattr("zoo.benchmark.tune.Replay", lambda calls, _: sizes.append(len(calls)) or replay)
    monkeypatch.setattr("zoo.benchmark.tune.RotatingOperands", lambda *_: operands)
    monkeypatch.setattr("zoo.benchmark.tune.stream", lambda _: SimpleNamespace(handle=0))
    monkeypatch.setattr("zoo.benchmark.tune.cache_bytes", lambda _: 0)
    monkeypatch.setattr("zoo.benchmark.tune.in_turns", lambda replays, _: dict.fromkeys(replays, 7000.0))
    timer = GraphTimer(packaged, SimpleNamespace(current=nullcontext, ordinal=0))
    for _ in range(2):
        timer.nanoseconds(packaged.kernel(FEW), DrawnCall({}, {}, {}, {"t64": 1_000_000}))
    assert sizes == [6, 1]


def test_a_kernel_without_measured_tiles_is_refused_in_words(tuned_file):
    with pytest.raises(click.ClickException, match="none of these kernels has a choice of measured tiles on NVIDIA H20"):
        tuned_file("quantize.mxfp8.rows")


def test_numbers_of_a_kernel_are_used_for_all_of_its_cubins_or_for_none():
    """A rebuilt cubin judged by old numbers, or two chips compared with each other, would be a wrong choice."""
    kernel = packaged.kernel(FEW)
    whole = as_measured(on_a_slow_chip(kernel), ARCH)
    first = next(iter(whole))

    def applied(**changed):
        return Costs(SCHEMA, "NVIDIA H20", 78, {FEW: {**whole, first: replace(whole[first], **changed)}}).applied(kernel, ARCH)

    assert applied().variants[0].numbers == whole[kernel.variants[0].name].numbers
    assert applied(cubin="0" * 64) is None and applied(cost="1") is None and applied(numbers={"call": 1}) is None
    missing = {name: one for name, one in whole.items() if name != first}
    assert Costs(SCHEMA, "NVIDIA H20", 78, {FEW: missing}).applied(kernel, ARCH) is None
    assert Costs(SCHEMA, "NVIDIA H20", 78, {}).applied(kernel, ARCH) is None


def test_no_evidence_is_written(tuned_file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tuned_file(FEW)
    assert sorted(os.listdir(tmp_path)) == ["my costs.json"]


def write(path, name, chip, multiprocessors):
    kernel = packaged.kernel(name)
    path.write_text(text_of(Costs(SCHEMA, chip, multiprocessors, {name: as_measured(on_a_slow_chip(kernel), ARCH)})))
    return path


def test_doctor_names_the_file_in_force_and_counts_what_it_is_used_for(tmp_path, monkeypatch):
    assert "those of the release" in _costs(packaged).words
    place = write(tmp_path / "costs.json", FEW, "NVIDIA H20", 78)
    monkeypatch.setenv("ZOO_COSTS", str(place))
    found = _costs(packaged)
    assert found.state == "ok" and found.words == f"1 kernel measured on NVIDIA H20, by {place}"
    assert found.facts == {"file": str(place), "chip": "NVIDIA H20", "multiprocessors": 78, "kernels": 1, "stale": 0}
    place.write_text(place.read_text().replace('"cubin": "', '"cubin": "f', 1))
    assert "1 kernel of other cubins or costs not used: run `zoo tune` again" in _costs(packaged).words
    place.write_text(place.read_text()[:99])
    assert _costs(packaged).state == "no" and "is damaged" in _costs(packaged).words


def test_a_gpu_whose_file_of_costs_is_refused_runs_no_kernel_and_doctor_says_why(with_stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_COSTS", str(write(tmp_path / "costs.json", FEW, "Recorder 9.0", 78)))
    small = small_zoo(tmp_path / "small", "quantize.mxfp8.rows", lambda variant: variant["name"] == "bf16_e4m3_plain_t256")
    run = with_stand_in("--cubins", small, "doctor", "--json", devices="9.0:132,9.0:78,8.0:108")
    found = {one["what"]: one for one in json.loads(run.stdout)["findings"]}
    assert found["device 0"]["state"] == "no" and "this GPU is Recorder 9.0 with 132" in found["device 0"]["words"]
    assert found["device 1"]["state"] == "ok"
    assert "no cubin runs on it" in found["device 2"]["words"], "which another file would not change"
    verdict = with_stand_in("--cubins", small, "doctor", devices="9.0:132").stdout.rpartition("\n\n")[2]
    assert verdict.startswith("No GEMM can run on a GPU here") and "unset ZOO_COSTS" in " ".join(verdict.split()), verdict


def test_doctor_does_not_say_that_measured_costs_are_assumed(with_stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_COSTS", str(write(tmp_path / "costs.json", FEW, "NVIDIA H20", 78)))
    run = with_stand_in("doctor", devices="9.0:78@NVIDIA H20@1980000@2619000@6144")
    assert "costs of kernels that the file lacks assume 25 % of an H200's multiplications" in " ".join(run.stdout.split())


SMALL_CALL = f"""
import zoo
from zoo.benchmark.arguments import describe_arguments
from zoo.benchmark.groups import Groups
kernel = zoo.find("{FEW}")[0]
arrays, keywords = describe_arguments(kernel, dict(M=512, N=512, K=1024), dict(d="bf16"), Groups(2))
"""
TIMED = f"""{SMALL_CALL}
from zoo.benchmark.drawn_calls import DrawnCall
from zoo.benchmark.tune import GraphTimer
from zoo.packaged import packaged
from zoo.runtime import driver
times = GraphTimer(packaged, driver.device(0)).nanoseconds(kernel, DrawnCall(arrays, keywords, dict(), dict(bf16_t192=1000, bf16_t256=1000)))
assert times.keys() == {{"bf16_t192", "bf16_t256"}} and all(time >= 0 for time in times.values()), times
"""
PREPARED = f"""{SMALL_CALL}
from zoo.benchmark.measure import RotatingOperands
from zoo.packaged import packaged
from zoo.runtime import driver
with driver.device(0).current():
    plans = RotatingOperands(arrays, keywords, 0, 0).plans(packaged, "{FEW}", None, zoo.stream(0).handle)
print(plans[0].launch.variant.name)
"""


def test_variants_are_timed_by_replayed_graphs(stand_in):
    """The stand-in driver runs no kernel: its times say nothing."""
    run = python(stand_in, TIMED, trace=True)
    started = {one.kernel.rpartition("__")[2] for one in run.launches}
    assert started == {"bf16_t192", "bf16_t256"} and run.calls("cuGraphLaunch")


def test_the_loader_chooses_by_the_file_that_the_environment_names(stand_in, tmp_path, monkeypatch):
    kernel, place = packaged.kernel(FEW), tmp_path / "costs.json"
    for cheap in ("bf16_t192", "bf16_t256"):
        numbers = {one.name: dict.fromkeys(one.numbers, 1 if one.name == cheap else 1000) for one in tunable(kernel, ARCH)}
        found = as_measured(with_numbers(kernel, ARCH, numbers), ARCH)
        place.write_text(text_of(Costs(SCHEMA, "Recorder 9.0", 132, {FEW: found})))
        monkeypatch.setenv("ZOO_COSTS", str(place))
        assert python(stand_in, PREPARED).stdout.strip() == cheap
    refused = python(stand_in, PREPARED, devices="9.0:78", check=False)
    assert "IntegrityError" in refused.stderr and "this GPU is Recorder 9.0 with 78" in refused.stderr


class Gpu(driver.Device):
    name, capability, multiprocessors, chip = "NVIDIA H20", CAPABILITY, 78, chips.Chip(78, tensor=4)

    def __init__(self):
        pass


def test_a_gpu_of_another_chip_runs_kernels_without_measured_tiles(tmp_path, monkeypatch):
    """Or one file would block the second GPU of a host for every kernel."""
    monkeypatch.setenv("ZOO_COSTS", str(write(tmp_path / "costs.json", FEW, "NVIDIA H200", 132)))
    quantize = packaged.kernel("quantize.mxfp8.rows")
    assert kernel_on(quantize, Gpu()) is quantize
    with pytest.raises(IntegrityError, match="this GPU is NVIDIA H20"):
        kernel_on(packaged.kernel(FEW), Gpu())


def test_what_was_measured_takes_the_place_of_what_is_predicted(tmp_path, monkeypatch):
    kernel, chip = packaged.kernel(FEW), Gpu()
    predicted = {one.name: one.numbers for one in tunable(chips.on_chip(kernel, ARCH, chip.chip), ARCH)}
    measured = {one.name: one.numbers for one in tunable(on_a_slow_chip(kernel), ARCH)}
    assert {one.name: one.numbers for one in tunable(kernel_on(kernel, chip), ARCH)} == predicted
    monkeypatch.setenv("ZOO_COSTS", str(write(tmp_path / "costs.json", FEW, "NVIDIA H20", 78)))
    assert {one.name: one.numbers for one in tunable(kernel_on(kernel, chip), ARCH)} == measured != predicted
    other = packaged.kernel(KERNELS[0])
    assert kernel_on(other, chip).variants[0].numbers == chips.on_chip(other, ARCH, chip.chip).variants[0].numbers, (
        "a kernel that the file lacks"
    )


def test_two_first_calls_read_a_file_once(tmp_path, monkeypatch):
    """Between two reads the file may change, and the second content would be used without a check."""
    place, reads = write(tmp_path / "costs.json", FEW, "NVIDIA H20", 78), []

    def slow(path):
        reads.append(path)
        time.sleep(0.1)
        return read_costs(path)

    monkeypatch.setenv("ZOO_COSTS", str(place))
    monkeypatch.setattr("zoo.runtime.costs._read", cache(slow))
    threads = [threading.Thread(target=kernel_on, args=(packaged.kernel(FEW), Gpu())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reads == [place]


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [((FEW,), "no CUDA driver"), ((FEW, "--output", ""), "Is a directory"), (("gemm.nothing*",), "no kernel matches 'gemm.nothing*'")],
)
def test_what_cannot_be_measured_is_refused_in_a_sentence(without_gpu, arguments, refusal):
    run = without_gpu("tune", *arguments)
    assert run.returncode == 1 and refusal in run.stderr and "Traceback" not in run.stderr
