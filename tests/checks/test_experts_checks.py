"""Kernels that route tokens and sum their rows, in the emulator: hazards that the checks leave to a GPU, and mistakes that the checks see."""

from dataclasses import replace

import numpy
import pytest

import zoo
from zoo import checks
from zoo.checks.emulated import executor
from zoo.checks.experts_route import Call, _Maker
from zoo.checks.problem import POISONS, Placed, difference
from zoo.packaged import packaged

KERNEL = zoo.kernel("experts.route")
VARIANT = next(one for one in KERNEL.variants if one.arch == "sm_90a" and one.name == "e256")


def test_ranks_of_shares_that_exceed_the_registers_wait_in_rows():
    """A warp has 258 choices, of which it keeps 256; the problems of `zoo verify` that have as many need a GPU."""
    make = _Maker(numpy.random.default_rng(1))
    problem = make.problem("many", make.distinct(66_000, 1, 20), Call(20, padding=128, weighted=True, i64=True))
    assert difference(checks.shaped(problem, KERNEL), KERNEL, VARIANT, executor(packaged), POISONS[:1]) is None


@pytest.mark.parametrize("name", ["offsets", "index", "rows", "counts", "row_weights"])
def test_an_element_that_is_wrong_is_seen(name):
    make = _Maker(numpy.random.default_rng(2))
    problem = make.problem("few", make.distinct(50, 4, 9), Call(9, padding=128, weighted=True, counted=True))
    wrong = problem.outputs[name].values.copy()
    wrong.reshape(-1)[-1] += 1
    other = checks.shaped(replace(problem, outputs={**problem.outputs, name: Placed(wrong)}), KERNEL)
    assert f"{name}: 1 of {wrong.size} elements are wrong" in difference(other, KERNEL, VARIANT, executor(packaged), POISONS[:1])


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100f"])
@pytest.mark.parametrize("name", ["experts.route", "experts.combine", "experts.combine.backward"])
def test_small_problems_pass_under_other_schedules(name, arch):
    kernel = zoo.kernel(name)
    for variant in kernel.variants:
        if variant.arch == arch and variant.name in ("e1024", "f16_r8", "bf16_dots"):
            assert checks.check(kernel, variant, executor(packaged, 2), 300, POISONS[:1]).error is None


def test_a_layer_goes_from_ids_to_sums():
    """The rows that route gives are those that combine takes: experts that multiply by their number."""
    random, gpu = numpy.random.default_rng(4), zoo.emulator.Device("hopper")
    ids = numpy.argsort(random.random((30, 6)), axis=1)[:, :2].astype(numpy.int64)
    weights = random.integers(1, 4, ids.shape).astype(numpy.float32)
    x = random.integers(-3, 4, (30, 16)).astype(numpy.float16)
    routed = zoo.call("experts.route", ids=gpu.array(ids), E=6, R=2 * 30 + 6 * 127, padding=128)
    index, offsets = routed.index.numpy(), routed.offsets.numpy()
    expert = numpy.searchsorted(offsets, numpy.arange(len(index)), side="right")
    d = numpy.where(index[:, None] < 0, numpy.nan, expert[:, None] * x[index]).astype(numpy.float16)
    y = zoo.call("experts.combine", d=gpu.array(d), rows=routed.rows, weights=gpu.array(weights), residual=gpu.array(x), y="f16").y
    assert (y.numpy() == x * (1 + (weights * ids).sum(axis=1, keepdims=True))).all()
