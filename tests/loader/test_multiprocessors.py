"""A limit of multiprocessors: which grids follow it, that results do not, and that no plan of one limit starts under another."""

import shutil
import threading

import ml_dtypes
import numpy as np
import pytest

import zoo
from tests import recorder
from zoo.benchmark.arguments import describe_arguments, size_symbols
from zoo.contract.array import Array, contiguous_strides
from zoo.contract.resolve import resolve
from zoo.emulator import Device
from zoo.errors import ArgumentError, ZooError
from zoo.packaged import packaged
from zoo.reference.kernels import run

DENSE = "gemm.fp8b128.dense"
SIZES = {"M": 300, "N": 4096, "K": 1024, "R": 128, "G": 8, "I": 2048, "S": 64, "KB": 1024}
CHIPS = {"sm_90a": 132, "sm_100f": 148}
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for libcuda needs a C compiler")


def placed(kernel, **sizes):
    arrays, keywords = describe_arguments(kernel, {symbol: (SIZES | sizes).get(symbol, 256) for symbol in size_symbols(kernel)}, {}, None)
    return keywords | {
        name: Array((1 + place) << 40, one.dtype, one.shape, contiguous_strides(one.shape))
        for place, (name, one) in enumerate(arrays.items())
    }


def launches(arch, *limits):
    """(rule, limit, launch without a limit, launch under it) of each variant of each kernel that takes such a call."""
    capability, present = (int(arch[3:-2]), int(arch[-2])), CHIPS[arch]
    for kernel in packaged.find(arch=arch):
        given = placed(kernel)
        for variant in {variant.launch: variant for variant in kernel.variants if variant.arch == arch}.values():
            try:
                whole = resolve(kernel, given, capability, present, variant.name)
            except ZooError:  # the variant is for other dtypes or options
                continue
            for limit in limits:
                yield variant.launch, limit, whole, resolve(kernel, given, capability, present, variant.name, limit)


@pytest.mark.parametrize("arch", CHIPS)
def test_no_grid_that_depends_on_multiprocessors_has_more_CTAs_than_the_limit_none_or_half_a_cluster(arch):
    less = 0
    for rule, limit, whole, limited in launches(arch, 4, 7, 66):
        where = f"{limited.kernel} {limited.variant.name} under {limit}"
        assert limited.empty == whole.empty and limited.grid[0] % limited.cluster[0] == 0, where
        if "sms" in rule.grid[0].names:
            assert limited.grid[0] <= limit, where
            less += limited.grid[0] < whole.grid[0]
    assert less > 100 or arch != "sm_90a"


def test_a_limit_changes_which_variant_is_cheapest():
    kernel = packaged.kernel(DENSE)
    chosen = {limit: resolve(kernel, placed(kernel), (9, 0), 132, None, limit).variant.name for limit in (None, 16, 64)}
    assert len(set(chosen.values())) > 1, chosen


def operands(rows, columns, k):
    random = np.random.default_rng(3)
    return {
        "a": random.standard_normal((rows, k), np.float32).astype(ml_dtypes.float8_e4m3fn),
        "a_scale": random.random((rows, k // 128), np.float32) + 0.5,
        "b": random.standard_normal((columns, k), np.float32).astype(ml_dtypes.float8_e4m3fn),
        "b_scale": random.random((-(-columns // 128), k // 128), np.float32) + 0.5,
    }


def test_four_CTAs_compute_every_tile_that_more_would():
    given = operands(300, 520, 256)
    found = []
    for limit in (None, 4):
        gpu = Device("sm_90a", scheduling="random", seed=2)
        d = gpu.array(np.full((300, 520), np.nan, np.float32))
        arrays = {name: gpu.array(array) for name, array in given.items()} | {"d": d}
        plan = zoo.prepare(DENSE, variant="f32_t128", batch_invariant="yes", multiprocessors=limit, **arrays)
        assert plan.launch.grid[0] == (limit or 15)
        plan.run()
        found.append(d.numpy())
    assert np.array_equal(*found) and not np.isnan(found[0]).any()


@needs_compiler
def test_a_remembered_plan_of_one_limit_is_not_started_under_another(tmp_path):
    log = recorder.python(
        recorder.build(tmp_path),
        """
import zoo
def array(place, shape, dtype): return zoo.ptr((1 + place) << 33, shape, dtype, device=0)
call = dict(a=array(0, (4096, 512), "e4m3"), a_scale=array(1, (4096, 4), "f32"), b=array(2, (4096, 512), "e4m3"),
            b_scale=array(3, (32, 4), "f32"), d=array(4, (4096, 4096), "f32"), stream=0, variant="f32_t128")
for _ in range(2):
    zoo.launch("gemm.fp8b128.dense", **call)
    zoo.launch("gemm.fp8b128.dense", multiprocessors=100, **call)
    with zoo.multiprocessors(64):
        zoo.launch("gemm.fp8b128.dense", **call)
        zoo.launch("gemm.fp8b128.dense", multiprocessors=100, **call)
        with zoo.multiprocessors(None):
            zoo.launch("gemm.fp8b128.dense", **call)
    zoo.launch("gemm.fp8b128.dense", multiprocessors=132, **call)
""",
    )
    assert [launch.grid[0] for launch in log.launches] == [132, 100, 64, 100, 132, 132] * 2


@needs_compiler
def test_what_returns_its_outputs_observes_the_limit_of_the_context_at_each_call(tmp_path):
    log = recorder.python(
        recorder.build(tmp_path),
        """
import zoo
given = dict(a=zoo.empty((4096, 512), "e4m3"), a_scale=zoo.empty((4096, 4), "f32"), b=zoo.empty((4096, 512), "e4m3"),
             b_scale=zoo.empty((32, 4), "f32"), d="f32", variant="f32_t128")
for _ in range(2):
    zoo.call("gemm.fp8b128.dense", **given)
    with zoo.multiprocessors(40):
        zoo.call("gemm.fp8b128.dense", **given)
""",
    )
    assert [launch.grid[0] for launch in log.launches] == [132, 40] * 2


@pytest.mark.parametrize("limit", [0, -1, 3, 9, 2**70, True, 4.0, "4", np.float32(4), np.int64(9)])
def test_a_limit_that_is_no_number_of_multiprocessors_of_the_device_is_refused(limit):
    gpu = Device("sm_90a", multiprocessors=8)
    arrays = {name: gpu.array(array) for name, array in operands(8, 128, 128).items()} | {"d": gpu.empty((8, 128), "bf16")}
    for start in (zoo.launch, zoo.prepare):
        with pytest.raises(ArgumentError, match="multiprocessors: expected a whole number of"):
            start(DENSE, multiprocessors=limit, **arrays)
    zoo.launch(DENSE, multiprocessors=np.int64(8), **arrays)


@pytest.mark.parametrize("limit", [0, -1, True, 4.0, "4"])
def test_a_context_refuses_what_is_no_limit_when_it_is_entered(limit):
    with pytest.raises(ArgumentError, match="multiprocessors: expected a whole number of 1"), zoo.multiprocessors(limit):
        pass


def grid_here():
    gpu = Device("sm_90a", multiprocessors=8)
    arrays = {name: gpu.array(array) for name, array in operands(300, 520, 128).items()} | {"d": gpu.empty((300, 520), "f32")}
    return zoo.prepare(DENSE, variant="f32_t128", **arrays).launch.grid[0]


def test_a_context_ends_with_an_error_and_does_not_reach_other_threads():
    within = []

    def fail():
        with zoo.multiprocessors(4):
            within.append(grid_here())
            thread = threading.Thread(target=lambda: within.append(grid_here()))
            thread.start()
            thread.join()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert within == [4, 8] and grid_here() == 8


def test_a_device_of_less_than_four_multiprocessors_takes_them_all():
    """As the emulator is given to find races: a limit of all is none."""
    gpu = Device("sm_90a", multiprocessors=3)
    given = operands(8, 128, 128)
    arrays = {name: gpu.array(array) for name, array in given.items()} | {"d": gpu.empty((8, 128), "f32")}
    zoo.launch(DENSE, multiprocessors=3, **arrays)
    expected = np.zeros((8, 128), np.float32)
    run(DENSE, given | {"d": expected})
    assert np.allclose(arrays["d"].numpy(), expected, rtol=1e-5)
