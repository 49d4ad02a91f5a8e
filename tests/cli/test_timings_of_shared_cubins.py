"""Timings of a cubin that several names share: each name keeps its own and is shown its own."""

from dataclasses import replace

import pytest

from zoo.benchmark.measure import Measurement
from zoo.benchmark.record import line_of, record, timings
from zoo.packaged import packaged
from zoo.runtime.hardware import Hardware
from zoo.shipped.evidence import Evidence

OWNER, OTHER = packaged.kernel("gemm.fp8b128.m_grouped_contiguous.swiglu"), packaged.kernel("gemm.fp8b128.dense.swiglu_fp8b128")
SIZES = {"M": 64, "N": 512, "K": 256}


def variants():
    found = {variant.sha256: variant for variant in OWNER.variants if variant.arch == "sm_100f"}
    return next((found[other.sha256], other) for other in OTHER.variants if other.sha256 in found)


def measured(variant, microseconds):
    fields = dict.fromkeys(Measurement.__dataclass_fields__, 1.0)
    made = Measurement(**(fields | {"variant": variant.name, "bytes": 8, "rivals": {}}))
    return [(SIZES, replace(made, microseconds=microseconds))]


@pytest.fixture
def machine():
    words = dict.fromkeys(Hardware.__dataclass_fields__, "x")
    return Hardware(**(words | {"device": "NVIDIA B200", "capability": "10.0"}))


@pytest.mark.parametrize("first", [0, 1])
def test_the_same_sizes_under_two_names_do_not_replace_each_other(tmp_path, machine, first):
    evidence, (owned, shared) = Evidence(tmp_path), variants()
    both = [(OWNER, owned, 10.0), (OTHER, shared, 20.0)]
    for kernel, variant, took in (both[first], both[1 - first]):
        record(evidence, kernel, machine, measured(variant, took))
    evidence.write()
    for kernel, variant, took in both:
        found = timings(Evidence(tmp_path), kernel, variant)
        assert {line: figures["microseconds"] for line, figures in found.items()} == {"M=64 K=256 N=512": took}


def test_lines_of_the_name_that_a_cubin_was_built_for_are_sizes_alone():
    owned, shared = variants()
    assert line_of(OWNER, owned, SIZES) == "M=64 K=256 N=512"
    assert line_of(OTHER, shared, SIZES) == f"kernel={OTHER.name} M=64 K=256 N=512"


def test_a_third_name_of_the_same_cubin_is_shown_nothing_of_the_others(tmp_path, machine):
    evidence, (owned, shared) = Evidence(tmp_path), variants()
    record(evidence, OTHER, machine, measured(shared, 20.0))
    assert timings(evidence, OWNER, owned) == {}
