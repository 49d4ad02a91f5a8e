"""The problems of SwiGLU in a GEMM's epilogue catch what such kernels get wrong. The 'kernel' is the reference."""

from types import SimpleNamespace

import ml_dtypes
import numpy
import pytest

from tests.checks.described import has_rows, products_are_worked_out_once, remembered_product  # noqa: F401
from zoo import checks
from zoo.errors import VariantError
from zoo.reference.block_formats import block_format
from zoo.reference.block_scaled_epilogues import NO_LIMIT, Gates, made_of_sums
from zoo.reference.gemm import rounded
from zoo.reference.gemm_powers_of_two import gemm_fp8b128_of_powers
from zoo.reference.groups import gather
from zoo.reference.quantize import quantize_rows

GROUPINGS = ("dense", "m_grouped_contiguous", "m_grouped_masked", "m_grouped_gather")
EPILOGUES = ("swiglu", "swiglu_fp8b128")
ALIGNMENTS = {"a": 16, "b": 16, "bias": 16, "d": 16, "q": 16} | dict.fromkeys(
    ("a_scale", "b_scale", "offsets", "m_indices", "index", "rows", "row_scale", "scales"), 4
)
FLOATS = dict.fromkeys(("a", "b"), ml_dtypes.float8_e4m3fn)
FLOATS |= dict.fromkeys(("a_scale", "b_scale", "bias", "row_scale"), numpy.float32)
MOST_ELEMENTS = 60_000
OTHER = {"halves": "interleaved", "interleaved": "halves"}


def executor(splits=1, rows_too_many=0, other_group=0, other_bias=0, refuses_to_split=True, product=remembered_product, **changed):
    """The reference with, perhaps, one thing changed: `sums`, `gates`, `activation`, `limit`, `bias`, `scaling`, `h`, `row_scale`, `scales`,
    `index`."""

    def change(what, value):
        return changed.get(what, lambda value: value)(value)

    def execute(kernel, variant, buffers, settings):
        after = {name: buffer.image.copy() for name, buffer in buffers.items()}

        def read(name):
            elements = numpy.ascontiguousarray(buffers[name].laid.elements(after[name]))
            dtypes = {"ue8m0": numpy.uint8, "bf16": ml_dtypes.bfloat16}
            return elements.view(dtypes.get(buffers[name].laid.dtype, FLOATS.get(name, numpy.int32)))

        def target(name):
            return buffers[name].laid.elements(after[name])

        if settings.get("batch_invariant") == "yes" and splits > 1 and refuses_to_split:
            raise VariantError("splits K")
        a, a_scale, b, b_scale = (read(name) for name in ("a", "a_scale", "b", "b_scale"))
        row_scale = read("row_scale") if "row_scale" in buffers else None
        if "index" in buffers:
            index = change("index", read("index"))
            taken = numpy.where((index >= 0) & (index < len(a)), index, -1)
            a, a_scale = (gather(array, taken) for array in (a, a_scale))

        def multiply(place, weights, weight_scales, group=0):
            if a[place].size == 0:
                return
            sums = change("sums", product(a[place], a_scale[place], weights, weight_scales, splits))
            factors = None if row_scale is None else change("row_scale", row_scale[place])
            bias = None
            if "bias" in buffers:
                of_groups = read("bias").reshape(-1, len(weights))
                bias = change("bias", of_groups[(group + other_bias) % len(of_groups)])
            activation, limit = settings.get("activation", "silu"), numpy.float32(settings.get("limit", NO_LIMIT))
            gates = Gates(change("gates", settings["gates"]), change("activation", activation), change("limit", limit))
            h = change("h", made_of_sums(sums, gates, bias=bias, row_scale=factors))
            if "d" in buffers:
                d = rounded(h, "bf16")
                target("d")[place] = d.view(target("d").dtype)
            else:
                result = quantize_rows(h, block_format("fp8b128", scaling=change("scaling", settings["scaling"])))
                target("q")[place] = result.q.view(numpy.uint8)
                target("scales")[place] = change("scales", result.scales).view(numpy.uint32)

        if b.ndim == 2:
            multiply(slice(None), b, b_scale)
        elif a.ndim == 3:
            for group, used in enumerate(read("rows")):
                multiply((group, slice(0, used + rows_too_many)), b[group], b_scale[group], group)
        elif "m_indices" in buffers:
            groups = read("m_indices")
            for group in range(len(b)):
                rows = numpy.flatnonzero(groups == group)
                if rows.size:
                    weights = (group + other_group) % len(b)
                    multiply(slice(rows[0], rows[-1] + 1 + rows_too_many), b[weights], b_scale[weights], weights)
        else:
            begin = 0
            for group, end in enumerate(read("offsets")):
                weights = (group + other_group) % len(b)
                multiply(slice(begin, end + rows_too_many * (group == len(b) - 1)), b[weights], b_scale[weights], weights)
                begin = end
        return after

    return execute


def as_numbers(scales):
    """f32 or ue8m0 bytes in float64."""
    if scales.dtype != numpy.uint8:
        return scales.astype(numpy.float64)
    return numpy.where(scales == 255, numpy.nan, numpy.exp2(scales.astype(numpy.float64) - 127))


def described(grouping, epilogue, splits=1, by_index=False, arch="sm_90a", any_activation=0):
    arguments = {name: SimpleNamespace(alignment=alignment, forms=()) for name, alignment in ALIGNMENTS.items()}
    fields = {"op": "gemm", "formats": "fp8b128", "grouping": grouping, "extra": epilogue}
    kernel = SimpleNamespace(
        name=f"gemm.fp8b128.{grouping}.{epilogue}", fields=fields, arguments=arguments, options=("gates", "scaling", "batch_invariant")
    )
    constants = {"SPLITS": splits, "GROUPING": 3 * by_index, "ANY_ACTIVATION": any_activation}
    return kernel, SimpleNamespace(dtypes={}, constants=constants, symbols=constants, options={}, arch=arch)


def problems(grouping, epilogue, **chosen):
    return checks.problems(*described(grouping, epilogue, **chosen))


def check(grouping, epilogue, execute, **chosen):
    return checks.check(*described(grouping, epilogue, **chosen), execute, MOST_ELEMENTS)


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_a_right_kernel_passes(grouping, epilogue):
    outcome = check(grouping, epilogue, executor())
    assert outcome.error is None and outcome.checks >= 8


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_on_blackwell_scales_are_powers_of_two_and_sums_exact_in_any_order(grouping, epilogue):
    def product(a, a_scale, b, b_scale, splits):
        sums = gemm_fp8b128_of_powers(a, a_scale, b, b_scale)
        left, right = (as_numbers(scales) for scales in (a_scale, b_scale))
        left = a.astype(numpy.float64) * numpy.repeat(left, 128, 1)[:, : a.shape[1]]
        right = b.astype(numpy.float64) * numpy.repeat(numpy.repeat(right, 128, 1)[:, : a.shape[1]], 128, 0)[: len(b)]
        assert numpy.array_equal(sums, left @ right.T, equal_nan=True)
        return sums

    outcome = check(grouping, epilogue, executor(product=product), arch="sm_100f")
    assert outcome.error is None and outcome.checks >= 8
    stored = {problem.inputs[name].dtype for problem in problems(grouping, epilogue, arch="sm_100f") for name in ("a_scale", "b_scale")}
    assert stored == {None, "ue8m0"}


def test_a_right_kernel_of_every_activation_passes():
    outcome = check("dense", "swiglu_fp8b128", executor(), any_activation=1)
    assert outcome.error is None and outcome.checks >= 8


def infinity_for_the_limit(limit):
    return numpy.float32(numpy.inf)


@pytest.mark.parametrize(
    "changed",
    [
        {"activation": {"gpt_oss": "deepseek_v4", "deepseek_v4": "deepseek_v4", "silu": "silu"}.get},
        {"activation": {"gpt_oss": "gpt_oss", "deepseek_v4": "silu", "silu": "silu"}.get},
        {"limit": infinity_for_the_limit},
        {"bias": numpy.zeros_like},
        {"bias": lambda bias: numpy.roll(bias, len(bias) // 2)},
        {"bias": lambda bias: numpy.roll(bias, 1)},
    ],
    ids=["no slope of gpt_oss", "no limit of deepseek_v4", "no limit", "no bias", "the bias of gates for ups", "the next bias"],
)
def test_another_limit_bias_or_step_is_caught(changed):
    assert "wrong" in check("dense", "swiglu", executor(**changed), any_activation=1).error


@pytest.mark.parametrize("grouping", GROUPINGS[1:])
def test_the_bias_of_another_group_is_caught(grouping):
    assert "elements are wrong" in check(grouping, "swiglu", executor(other_bias=1), any_activation=1).error


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_a_right_kernel_that_takes_m_indices_passes(epilogue):
    outcome = check("m_grouped_contiguous", epilogue, executor(), by_index=True)
    assert outcome.error is None and outcome.checks >= 8


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_a_row_of_nobody_between_groups_written_is_caught(epilogue):
    assert "not the kernel's were written" in check("m_grouped_contiguous", epilogue, executor(rows_too_many=1), by_index=True).error


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_the_weights_of_another_group_by_m_indices_are_caught(epilogue):
    assert "elements are wrong" in check("m_grouped_contiguous", epilogue, executor(other_group=1), by_index=True).error


def test_a_split_in_spite_of_batch_invariant_is_caught():
    assert "each row as it comes out alone" in check("dense", "swiglu", executor(splits=2, refuses_to_split=False), splits=2).error


def test_a_right_kernel_that_splits_k_passes():
    assert check("dense", "swiglu_fp8b128", executor(splits=4), splits=4).error is None


def first_and_second_half_exchanged(sums):
    return numpy.hstack([sums[:, sums.shape[1] // 2 :], sums[:, : sums.shape[1] // 2]])


def rounded_to_bf16(values):
    return values.astype(ml_dtypes.bfloat16).astype(numpy.float32)


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize(
    "changed",
    [
        {"gates": OTHER.get},
        {"sums": first_and_second_half_exchanged},
        {"sums": rounded_to_bf16},
        {"row_scale": lambda factors: None},
    ],
    ids=["gates where ups are", "ups for gates", "sums rounded first", "factors of rows forgotten"],
)
def test_another_activation_is_caught(changed, epilogue):
    assert "elements are wrong" in check("dense", epilogue, executor(**changed)).error


def nan_cleared(h):
    return numpy.where(numpy.isnan(h), numpy.float32(0), h)


@pytest.mark.parametrize(("grouping", "by_index"), [*((one, False) for one in GROUPINGS), ("m_grouped_contiguous", True)])
def test_k_of_one_instruction_of_a_short_block_and_of_many_blocks_are_among_the_problems(grouping, by_index):
    found = set()
    for problem in problems(grouping, "swiglu_fp8b128", by_index=by_index):
        if has_rows(problem):
            found.add(problem.inputs["a"].values.shape[-1])
    assert found >= {16, 144, 2880}


def test_a_lost_nan_is_caught():
    assert "NaN" in check("dense", "swiglu", executor(h=nan_cleared)).error


@pytest.mark.parametrize(
    "changed",
    [
        {"scaling": {"exact": "pow2", "pow2": "exact"}.get},
        {"scales": lambda scales: scales[:, :1].repeat(scales.shape[1], 1)},
        {"scales": lambda scales: numpy.where(numpy.isnan(scales), numpy.float32(1), scales)},
        {"scales": lambda scales: numpy.where(scales == 1, numpy.float32(2.0**-126), scales)},
    ],
    ids=["the other rule", "one scale a row", "a lost NaN", "rows of zeros"],
)
def test_other_scales_are_caught(changed):
    assert "elements are wrong" in check("dense", "swiglu_fp8b128", executor(**changed)).error


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("grouping", GROUPINGS[1:])
def test_a_row_of_nobody_written_is_caught(grouping, epilogue):
    assert "not the kernel's were written" in check(grouping, epilogue, executor(rows_too_many=1)).error


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_the_weights_of_another_group_are_caught(epilogue):
    assert "elements are wrong" in check("m_grouped_contiguous", epilogue, executor(other_group=1)).error


def last_row_for_none(index):
    return numpy.where(index < 0, index.max(initial=0, where=index < 2**31 - 1), index)


def next_row(index):
    return numpy.where((index >= 0) & (index < 2**31 - 1), numpy.maximum(index - 1, 0), index)


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("changed", [last_row_for_none, next_row, numpy.zeros_like])
def test_another_row_than_the_index_says_is_caught(changed, epilogue):
    assert "elements are wrong" in check("m_grouped_gather", epilogue, executor(index=changed)).error
