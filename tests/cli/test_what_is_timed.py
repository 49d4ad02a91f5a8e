"""What is timed looks neither faster nor slower than it is: numbers that are drawn, fair turns, and words that say who is faster."""

import re
import sys

import numpy
import pytest

import zoo
from zoo.benchmark import measure
from zoo.benchmark.graphs import in_turns, repeated
from zoo.benchmark.measure import Measurement
from zoo.benchmark.rivals import Unavailable, torch_with_gpu
from zoo.cli.bench import _as_text
from zoo.packaged import packaged
from zoo.runtime.hardware import Hardware

READ = sorted(
    {
        dtype
        for kernel in zoo.find()
        for argument in kernel.arguments.values()
        if argument.kind == "array" and not argument.written
        for dtype in argument.dtypes
    }
)


@pytest.mark.parametrize("dtype", READ)
def test_whatever_a_kernel_reads_is_drawn_or_places_in_memory(dtype):
    if dtype in ("i32", "i64"):
        return  # places and counts, which the sizes of a problem say
    numbers = measure._RANDOM[dtype](numpy.random.default_rng(0), 1000)
    assert len(numpy.unique(numbers)) > 6


def test_every_set_of_buffers_is_used_equally_often_and_long_calls_are_not_repeated():
    assert repeated("abc") == list("abc") * 7 and len(repeated("a" * 50)) == 50
    assert repeated("ab", 3000) == list("ab") and len(repeated("ab", 400)) == 14 and len(repeated("ab", 2)) == 20


def test_nobody_always_follows_the_same_library_and_the_median_counts():
    order = []

    class Clock:
        def __init__(self, name, times):
            self.name, self.times = name, iter(times)

        def microseconds(self):
            order.append(self.name)
            return next(self.times)

    slow_start = [1000.0] * 3  # turns that warm up
    found = in_turns({"a": Clock("a", [*slow_start, 1.0, 9.0, 2.0, 3.0, 2.0]), "b": Clock("b", [7.0] * 8)}, rounds=5)
    assert found == {"a": 2.0, "b": 7.0}
    pairs = {tuple(order[turn : turn + 2]) for turn in range(0, 16, 2)}
    assert pairs == {("a", "b"), ("b", "a")}


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        ("OSError('libcudart.so.13: cannot open shared object file')", "torch cannot be imported: libcudart.so.13"),
        ("ModuleNotFoundError('No module named sympy', name='sympy')", "torch cannot be imported: No module named sympy"),
        ("ModuleNotFoundError('No module named torch', name='torch')", "torch is not installed"),
        ("RuntimeError()", "torch cannot be imported"),
    ],
)
def test_a_broken_torch_is_a_reason_and_not_the_end_of_zoos_own_timing(monkeypatch, tmp_path, raised, words):
    (tmp_path / "torch.py").write_text(f"raise {raised}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(Unavailable, match=re.escape(words)):
        torch_with_gpu()
    assert measure._torch_or_none() is None


def shown(name, settings, seen):
    return " ".join(_as_text(packaged.kernel(name), settings, Hardware("GPU", "9.0", "1"), [({"M": 1, "N": 2, "K": 3}, seen)]).split())


@pytest.mark.parametrize(
    ("formats", "settings", "humming", "triton"),
    [("fp8_mxfp4", {}, True, True), ("fp8_mxfp4", {"promotion": "never"}, False, True), ("bf16_mxfp4", {}, False, False)],
)
def test_a_library_does_less_only_beside_a_call_that_does_more(formats, settings, humming, triton):
    """zoo that never promotes sums does humming's job, and triton_kernels has no rows of FP8."""
    seen = Measurement("t128", 10.0, 10**6, 1.0, None, True, 10**9, {"humming": 9.0, "triton_kernels": 12.0})
    text = shown(f"gemm.{formats}.m_grouped_contiguous", settings, seen)
    assert ("humming does less work" in text, "triton_kernels multiplies rows of bf16" in text) == (humming, triton)


def test_the_table_says_who_is_faster_by_how_much_who_does_less_and_why_a_time_is_missing():
    rivals = {"torch block-wise": 18.2, "torch tensor-wise": 8.0, "DeepGEMM": "not installed", "triton_kernels": "has no such product"}
    seen = Measurement("few8_w64", 10.0, 10**6, 1.0, None, True, 10**9, rivals)
    text = shown("gemm.fp8b128.dense", {}, seen)
    assert "1 2 3 zoo few8_w64 10.00 100 torch block-wise 18.20 55 82% faster torch tensor-wise 8.00 125 25% slower" in text
    assert "torch tensor-wise does less work: one scale for each matrix" in text and "torch block-wise does less" not in text
    assert "DeepGEMM: not installed" in text and "triton_kernels: has no such product" in text
