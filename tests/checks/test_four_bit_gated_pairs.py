"""A product of 4-bit gates and ups may be wrong in one way of a call only, or where two ways meet: every two of them meet in a problem.

What a problem has is read from what a kernel is given. Large weights are made smaller here, where strides stay of the same kind, and results
are zeros: neither decides what is drawn.
"""

import itertools

import numpy
import pytest

from tests.checks.described import has_rows
from zoo import checks
from zoo.checks import gemm_four_bit_gated as gated
from zoo.checks.pairs import Pairs
from zoo.packaged import packaged

KERNELS = {kernel.name: kernel for kernel in packaged.find("gemm.*.swiglu*") if kernel.fields["formats"].startswith(("fp8_", "bf16_"))}
VALUES = {
    "gates": ("halves", "interleaved"),
    "activation": ("silu", "deepseek_v4", "gpt_oss"),
    "limit": tuple(float(numpy.float32(limit)) for limit in (0.5, 7, 3e38)),  # of silu: none
    "alpha": (0, 1, 2),
    "bias": (None, "bfloat16", "float32"),
    "a_scale": (False, True),
    "scales of a for 1 x 128": ("none", "rows first", "columns first"),
    "row_scale": (False, True),
    "gap": (0, 16, 32),
    "d": ("bfloat16", "float16"),
    "scaling": ("exact", "pow2"),  # of known scales: none
    "known scales": ("none", "one", "one of each group"),
    "order of q": ("plain", "fragments"),
    "scales with M contiguous": (False, True),
    "NaN in a": (False, True),
    "between groups of stored scales": (False, True),
}
NEVER = {  # what has no effect beside what
    *((("activation", "silu"), ("limit", limit)) for limit in VALUES["limit"]),
    *((("scaling", one), ("known scales", known)) for one in VALUES["scaling"] for known in VALUES["known scales"][1:]),
}


@pytest.fixture(autouse=True, scope="module")
def problems_are_made_quickly():
    def small(columns, K):
        return min(columns, 80), K % 384 or 384

    def sums(way, a, weights):
        return numpy.zeros((len(a), len(weights)), numpy.float32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gated, "_SHAPES", [(M, *small(columns, K)) for M, columns, K in gated._SHAPES])
        patch.setattr(gated, "_GROUPS", [(*small(columns, K), sizes, more) for columns, K, sizes, more in gated._GROUPS])
        patch.setattr(gated.Way, "multiplied", sums)
        patch.setattr(gated, "h_of_sums", lambda sums, *_: sums[:, ::2])
        yield


def problems(name):
    return [problem for problem in checks.problems(KERNELS[name], KERNELS[name].variants[0]) if has_rows(problem)]


STORED = [name for name in KERNELS if name.endswith("_stored")]


def read(problem):
    """What a problem has of VALUES."""
    inputs, settings, outputs = problem.inputs, problem.settings, problem.outputs
    a, alpha, bias, known, scales, of_blocks = (inputs.get(name) for name in ("a", "alpha", "bias", "q_scale", "b_scale", "a_block_scale"))
    found = {name: settings[name] for name in ("gates", "activation", "limit", "scaling") if name in settings}
    if settings["activation"] == "silu":
        del found["limit"]
    if known is not None:
        del found["scaling"]
    found["alpha"] = 0 if alpha is None else alpha.values.shape[-1]
    found["bias"] = None if bias is None else bias.values.dtype.name
    found |= {name: name in inputs for name in ("a_scale", "row_scale")}
    found["scales of a for 1 x 128"] = "none" if of_blocks is None else "rows first" if of_blocks.strides[-1] == 1 else "columns first"
    in_fragments = a.values.dtype.itemsize == 1  # (..., K / 64, 64)
    found["gap"] = a.strides[-3] - a.values.shape[-2] * 64 if in_fragments else a.strides[-2] - a.values.shape[-1]
    found["NaN in a"] = bool(numpy.isnan(a.values.astype(numpy.float32)).any())
    if "d" in outputs:
        found["d"] = outputs["d"].values.dtype.name
    else:
        found["known scales"] = "none" if known is None else VALUES["known scales"][1 + (len(known.values) > 1)]
        found["order of q"] = settings["order"]
        found["scales with M contiguous"] = outputs["scales"].strides[-1] != 1
    if scales is not None and scales.values.ndim == 4:  # of groups, each with gates and ups
        found["between groups of stored scales"] = scales.strides[0] > scales.values.shape[1] * scales.strides[1]
    return found


def pairs(found):
    """Of (property, value); properties in the order of their names."""
    return set(itertools.combinations(sorted(found, key=lambda one: one[0]), 2))


def expected(name):
    """Every two values of two properties that a call of this kernel may have."""
    fields = KERNELS[name].fields
    dense, quantised = fields["grouping"] == "dense", "fp8b128" in fields["extra"]
    without = {"d"} if quantised else {"scaling", "known scales", "order of q", "scales with M contiguous"}
    without |= {"a_scale", "scales of a for 1 x 128"} if fields["formats"].startswith("bf16") else set()
    without |= {"NaN in a"} if dense else set()
    without |= set() if fields["extra"].endswith("_stored") and not dense else {"between groups of stored scales"}
    values = {what: some for what, some in VALUES.items() if what not in without}
    if dense and quantised:
        values["known scales"] = values["known scales"][:2]
    every = {(what, value) for what, some in values.items() for value in some}
    never = NEVER | {(one, other) for other, one in NEVER}
    return {pair for pair in pairs(every) if pair[0][0] != pair[1][0] and pair not in never}


def test_there_are_kernels_of_every_kind():
    assert len(KERNELS) == 4 * 4 * 2 * 2


@pytest.mark.parametrize("name", KERNELS)
def test_every_two_ways_of_a_call_meet(name):
    usual = [problem for problem in problems(name) if "m_grouped" in name or "usual numbers" in problem.name]  # others hide much
    met = set().union(*(pairs(read(problem).items()) for problem in usual))
    missing = expected(name) - met
    assert not missing, f"{len(missing)} of {len(expected(name))} pairs, such as {sorted(missing, key=str)[:3]}"


@pytest.mark.parametrize("name", STORED)
def test_stored_scales_are_read_whole_and_byte_by_byte_with_and_without_gaps(name):
    nvfp4, grouped, found = "nvfp4" in name, "m_grouped" in name, set()
    for problem in problems(name):
        scales = problem.inputs["b_scale"]
        strides, row = scales.strides[:-1], scales.values.shape[-1]
        whole = not any(places % (4 if nvfp4 else 2) for places in (*strides, row))
        between = strides[0] > strides[1] * scales.values.shape[1] if grouped else min(strides) > row
        found.add((whole, between))
    assert found == set(itertools.product((False, True), repeat=2))


@pytest.mark.parametrize("name", STORED)
def test_stored_scales_may_be_negative_the_smallest_no_number_and_larger_than_is_said(name):
    nvfp4, found = "nvfp4" in name, set()
    for problem in problems(name):
        scales = problem.inputs["b_scale"].values
        scales = scales.reshape(-1, scales.shape[-3] * scales.shape[-2], scales.shape[-1])  # of gates and ups
        found |= {"NaN"} if (scales & 0x7F == 0x7F if nvfp4 else scales == 0xFF).any() else set()
        if nvfp4:
            found |= {"negative"} if (scales >> 7).any() and not (scales >> 7).all() else set()
            continue
        of_rows = problem.inputs["b_row_scale"].values.view(numpy.uint8).reshape(len(scales), -1)[:, : scales.shape[1], None]
        found |= {"smallest of a row"} if (of_rows == 0).any() else set()
        found |= {"smallest of a block"} if ((scales == 0) & (of_rows > 0)).any() else set()
        found |= {"larger"} if ((scales > of_rows) & (scales != 0xFF)).any() else set()
    assert found == ({"NaN", "negative"} if nvfp4 else {"NaN", "smallest of a row", "smallest of a block", "larger"})


@pytest.mark.parametrize("name", [name for name in KERNELS if "mxfp4" in name and name not in STORED])
def test_the_largest_scale_of_a_packed_row_may_be_the_smallest(name):
    assert any((problem.inputs["b_row_scale"].values.view(numpy.uint8) == 0).any() for problem in problems(name))


def test_a_property_is_drawn_for_itself_though_others_have_as_many_values():
    drawn = Pairs({"first": (0, 1), "second": (0, 1), "third": (0, 1, 2)}, 0, lambda _: ())
    some = [drawn.draw({}) for _ in range(6)]
    assert {(one["first"], one["second"]) for one in some} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert len({(one["first"], one["third"]) for one in some}) == len({(one["second"], one["third"]) for one in some}) == 6


def test_what_has_no_effect_does_not_count_as_met():
    drawn = Pairs({"switch": (0, 1), "of it": (0, 1), "other": (0, 1)}, 0, lambda one: {"of it"} if one["switch"] == 0 else ())
    some = [drawn.draw({}) for _ in range(8)]
    assert len({(one["of it"], one["other"]) for one in some if one["switch"]}) == 4
    unseen = Pairs({"first": (0, 1)}, 0, lambda _: ())
    unseen.draw({"second": (0, 1)}, seen=False)
    assert not unseen._seen
