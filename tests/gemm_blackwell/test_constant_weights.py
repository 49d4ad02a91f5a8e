"""b_constant: weights are loaded before the kernel ahead has ended, and nothing else is."""

from pathlib import Path

import numpy
import pytest

from tests.gemm_blackwell.in_flight import InFlight
from tests.gemm_blackwell.named import named
from tests.gemm_blackwell.notes import note
from tests.gemm_blackwell.test_dense import arguments_of, empty
from tests.gemm_blackwell.which import CUBINS, ZOO
from zoo.catalog import Zoo
from zoo.checks.block_scaled import random_operands
from zoo.contract.array import Pointer
from zoo.emulator import Device, Module
from zoo.shipped.ptx import Texts

KERNEL = ZOO.kernel("gemm.mxfp8.dense")
every_variant = pytest.mark.parametrize("variant", [variant.name for variant in KERNEL.variants])
M, N, K = 130, 24, 96


def product_of_a_result(variant, monkeypatch):
    """A product whose tokens are the bytes of a product that is still running. (reports, d, d of the same one by one)"""
    found = []
    for in_flight in (False, True):
        fresh = Zoo(CUBINS)  # its PTX is decoded while launches in flight are what griddepcontrol is about
        device = Device(arch="sm_100f", scheduling="random", seed=3, arithmetic="hw", multiprocessors=3)
        result, d = empty(device, M, N), empty(device, M, N)
        first, second = (named(KERNEL.name, arguments_of(device, random_operands("mxfp8", M, N, K, seed))) for seed in (1, 2))
        second["a"] = Pointer(result.address, (M, K), "e4m3", (K, 1), device)
        plans = [
            fresh.prepare(KERNEL.name, variant=variant, d=result, **first),
            fresh.prepare(KERNEL.name, variant=variant, d=d, b_constant="yes", **second),
        ]
        reports = InFlight(device, 4).run(plans, monkeypatch) if in_flight else [plan() for plan in plans]
        found.append(device.read(d.address, (M, N), numpy.uint32))
    return reports, *reversed(found)


@every_variant
def test_tokens_of_a_kernel_that_still_runs_are_waited_for(variant, monkeypatch):
    reports, found, expected = product_of_a_result(variant, monkeypatch)
    assert all(report.ok for report in reports), "\n".join(map(str, reports))
    numpy.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("variant", "tokens", "constant", "ahead"),
    [("few128", 1, "yes", 6), ("few128", 1, "no", 0), ("t128", 129, "yes", 3), ("t256_w256", 129, "yes", 3)],
)
def test_so_many_k_blocks_of_weights_are_in_flight_before_the_wait(variant, tokens, constant, ahead, monkeypatch):
    events = {}
    for name in ("cp.async.bulk.tensor", "griddepcontrol"):
        note(monkeypatch, name, lambda warp, name=name: events.setdefault(id(warp), []).append(name))
    device = Device(arch="sm_100f", multiprocessors=2, arithmetic="hw")
    operands = random_operands("mxfp8", tokens, 8, 7 * 128)
    plan = ZOO.prepare(
        KERNEL.name, variant=variant, d=empty(device, tokens, 8), b_constant=constant, batch_invariant="yes",
        **named(KERNEL.name, arguments_of(device, operands)),
    )  # fmt: skip
    shipped = next(one for one in KERNEL.variants if one.name == variant and one.dtypes.get("a", "e4m3") == "e4m3")
    plan._module = Module(Texts(Path(CUBINS)).of(shipped, ZOO.manifest))  # decoded with the functions above
    assert plan().ok
    before = {tuple(each[: each.index("griddepcontrol")]) for each in events.values()}
    assert before == {("cp.async.bulk.tensor",) * ahead}
