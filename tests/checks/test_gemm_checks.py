"""The problems of the FP8 GEMMs catch what such kernels get wrong. The 'kernel' is the reference, group by group."""

from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy
import pytest

from tests.checks.described import has_rows, products_are_worked_out_once, remembered_product  # noqa: F401
from tools.builder.table import read_tables
from zoo import checks
from zoo.contract.expressions import Expression
from zoo.errors import VariantError
from zoo.reference.gemm import accumulated, exact, gemm_fp8b128, gemm_fp8b128_k_grouped, rounded
from zoo.reference.gemm_powers_of_two import gemm_fp8b128_of_powers
from zoo.reference.small_floats import decode_e8m0

SOURCES = Path(__file__).resolve().parents[2] / "src_cu"
GROUPINGS = ("dense", "m_grouped_contiguous", "m_grouped_masked", "m_grouped_gather")
ALIGNMENTS = {
    "a": 16,
    "a_scale": 4,
    "b": 16,
    "b_scale": 4,
    "c": 8,
    "d": 16,
    "offsets": 4,
    "rows": 4,
    "m_indices": 4,
    "index": 4,
    "row_scale": 4,
    "workspace": 128,
}
FLOATS = dict.fromkeys(("a", "b"), ml_dtypes.float8_e4m3fn) | dict.fromkeys(("a_scale", "b_scale", "c", "row_scale"), numpy.float32)
MOST_ELEMENTS = 60_000


def kernel(grouping):
    arguments = {name: SimpleNamespace(alignment=alignment, forms=()) for name, alignment in ALIGNMENTS.items()}
    options = ("b_constant", "batch_invariant", "accumulate")
    return SimpleNamespace(
        name=f"gemm.fp8b128.{grouping}",
        fields={"op": "gemm", "formats": "fp8b128", "grouping": grouping},
        arguments=arguments,
        options=options,
    )


def variant(splits=1, dtype="bf16", indexed=0, moved=0):
    constants = {"SPLITS": splits, "INDEXED": indexed, "USES_WORKSPACE": moved}
    return SimpleNamespace(arch="sm_90a", dtypes={"d": dtype}, constants=constants, symbols=constants, options={})


def executor(product=remembered_product, rows_too_many=0, other_group=0, forget=None, none_is_the_last=False, refuses_to_split=True):
    """The reference with, perhaps, one thing changed."""

    def execute(kernel, variant, buffers, settings):
        after = {name: buffer.image.copy() for name, buffer in buffers.items()}

        def read(name):
            elements = numpy.ascontiguousarray(buffers[name].laid.elements(after[name]))
            if name == "c" and elements.itemsize == 2:
                return elements.view(ml_dtypes.bfloat16).astype(numpy.float32)
            if name.endswith("_scale") and elements.itemsize == 1:
                return decode_e8m0(elements)
            return elements.view(FLOATS.get(name, numpy.int32))

        a, a_scale, b, b_scale = (read(name) for name in ("a", "a_scale", "b", "b_scale"))
        d = buffers["d"].laid.elements(after["d"])
        splits = variant.constants["SPLITS"]
        if settings.get("batch_invariant") == "yes" and splits > 1 and refuses_to_split:
            raise VariantError("splits K")

        def multiply(target, a, a_scale, b, b_scale, rows=slice(None)):
            if target.size:
                sums = product(a, a_scale, b, b_scale, splits)
                with numpy.errstate(all="ignore"):
                    sums = sums * read("row_scale")[rows][:, None] if "row_scale" in buffers else sums
                    sums = sums + read("c") if "c" in buffers else sums
                target[...] = rounded(sums, variant.dtypes["d"]).view(target.dtype)

        if b.ndim == 2:
            multiply(d, a, a_scale, b, b_scale)
        elif a.ndim == 3:
            for group, used in enumerate(read("rows")):
                rows = slice(0, used + rows_too_many)
                multiply(d[group, rows], a[group, rows], a_scale[group, rows], b[group], b_scale[group], (group, rows))
        elif "m_indices" in buffers:
            groups = read("m_indices")
            for group in range(len(b)):
                rows = numpy.flatnonzero(groups == group)
                rows = numpy.append(rows, rows[-1:] + 1)[: len(rows) + rows_too_many]
                if rows.size and rows[-1] < len(d):
                    target = d[rows]
                    weights = (group + other_group) % len(b)
                    multiply(target, a[rows], a_scale[rows], b[weights], b_scale[weights], rows)
                    d[rows] = target
        else:
            if "index" in buffers:
                index = read("index").copy()
                index[sum(read("offsets")[-1:]) :] = -1
                there = (index >= 0)[:, None] | none_is_the_last
                a = numpy.where(there, a[index].view(numpy.uint8), numpy.uint8(0)).view(a.dtype)
                a_scale = numpy.where(there, a_scale[index], numpy.float32(0))
            begin = 0
            for group, end in enumerate(read("offsets")):
                rows = slice(begin, end + rows_too_many * (group == len(b) - 1))
                weights = (group + other_group) % len(b)
                multiply(d[rows], a[rows], a_scale[rows], b[weights], b_scale[weights], rows)
                begin = end
        if forget and d.size:
            d[forget(d.shape)] = buffers["d"].laid.elements(buffers["d"].image)[forget(d.shape)]
        return after

    return execute


def check(grouping, execute, **chosen):
    return checks.check(kernel(grouping), variant(**chosen), execute, MOST_ELEMENTS)


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_a_right_kernel_passes(grouping, dtype):
    outcome = check(grouping, executor(), dtype=dtype)
    assert outcome.error is None and outcome.checks >= 8


def test_a_right_kernel_that_takes_m_indices_passes():
    outcome = check("m_grouped_contiguous", executor(), indexed=1)
    assert outcome.error is None and outcome.checks >= 8


def test_a_row_of_nobody_between_groups_written_is_caught():
    assert "not the kernel's were written" in check("m_grouped_contiguous", executor(rows_too_many=1), indexed=1).error


def test_the_weights_of_another_group_by_m_indices_are_caught():
    assert "elements are wrong" in check("m_grouped_contiguous", executor(other_group=1), indexed=1).error


def test_an_index_of_minus_one_taken_for_the_last_row_is_caught():
    assert "elements are wrong" in check("m_grouped_gather", executor(none_is_the_last=True)).error


def test_a_workspace_is_as_large_as_the_table_says_and_holds_anything():
    (table,) = [table for table in read_tables(SOURCES) if table.name == "gemm.fp8b128.m_grouped_gather"]
    (workspace,) = [argument for argument in table.entry["arguments"] if argument["name"] == "workspace"]
    size, seen = Expression(workspace["forms"][0]["shape"][0]), set()
    for problem in checks.problems(kernel("m_grouped_gather"), variant(moved=1)):
        (M,), (_, K) = problem.inputs["index"].values.shape, problem.inputs["a"].values.shape
        workspace = problem.workspaces["workspace"].values
        assert workspace.shape == (size.evaluate({"M": M, "K": K, "BLOCKS": -(-K // 128)}),)
        seen |= set(workspace[-16:].tolist())
    assert len(seen) > 100


def test_a_right_kernel_that_splits_k_passes():
    assert check("dense", executor(), splits=4).error is None


def unsplit(a, a_scale, b, b_scale, splits):
    return gemm_fp8b128(a, a_scale, b, b_scale, 1)


def exactly(a, a_scale, b, b_scale, splits):
    return exact(a, a_scale, b, b_scale)[0].astype(numpy.float32)


def first_scale_for_all(a, a_scale, b, b_scale, splits):
    return gemm_fp8b128(a, a_scale[:, :1].repeat(a_scale.shape[1], 1), b, b_scale, splits)


def first_scale_of_b_for_all_rows(a, a_scale, b, b_scale, splits):
    return gemm_fp8b128(a, a_scale, b, b_scale[:1].repeat(len(b_scale), 0), splits)


def without_the_last_block(a, a_scale, b, b_scale, splits):
    kept = (a.shape[1] - 1) // 128 * 128
    return gemm_fp8b128(a[:, :kept], a_scale[:, : kept // 128], b[:, :kept], b_scale[:, : kept // 128], splits)


def nan_in_the_row_below(a, a_scale, b, b_scale, splits):
    sums = gemm_fp8b128(a, a_scale, b, b_scale, splits)
    lost = numpy.isnan(sums)
    lost[1:] |= numpy.isnan(sums[:-1]) & ~numpy.isnan(sums).all(axis=0)
    return numpy.where(lost, numpy.float32(numpy.nan), sums)


@pytest.mark.parametrize(
    "product", [exactly, first_scale_for_all, first_scale_of_b_for_all_rows, without_the_last_block, nan_in_the_row_below]
)
def test_another_product_is_caught(product):
    assert "elements are wrong" in check("dense", executor(product)).error


def test_a_forgotten_c_is_caught():
    right = executor()

    def execute(kernel, variant, buffers, settings):
        after = right(kernel, variant, {name: buffer for name, buffer in buffers.items() if name != "c"}, settings)
        return after | {name: buffers[name].image for name in ("c",) if name in buffers}

    assert "added to c of float32: d: " in check("dense", execute).error


@pytest.mark.parametrize("grouping", ["dense", "m_grouped_contiguous", "m_grouped_masked"])
def test_forgotten_factors_of_rows_are_caught(grouping):
    right = executor()

    def execute(kernel, variant, buffers, settings):
        after = right(kernel, variant, {name: buffer for name, buffer in buffers.items() if name != "row_scale"}, settings)
        return after | {name: buffers[name].image for name in ("row_scale",) if name in buffers}

    assert "rows scaled: d: " in check(grouping, execute).error


def test_a_split_in_spite_of_batch_invariant_is_caught():
    assert "each row as it comes out alone: d: " in check("dense", executor(refuses_to_split=False), splits=2, dtype="f32").error


def test_another_order_of_the_sum_is_caught():
    assert "elements are wrong" in check("dense", executor(unsplit), splits=4, dtype="f32").error


@pytest.mark.parametrize("grouping", GROUPINGS[1:])
def test_a_row_of_nobody_written_is_caught(grouping):
    assert "not the kernel's were written" in check(grouping, executor(rows_too_many=1)).error


def test_the_weights_of_another_group_are_caught():
    assert "elements are wrong" in check("m_grouped_contiguous", executor(other_group=1)).error


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_a_forgotten_element_is_caught(grouping):
    last = {"dense": lambda shape: (-1, -1), "m_grouped_contiguous": lambda shape: (0, -1), "m_grouped_masked": lambda shape: (1, 0, -1)}
    last["m_grouped_gather"] = last["m_grouped_contiguous"]
    assert "never written" in check(grouping, executor(forget=last[grouping])).error


def check_on_blackwell(grouping, execute, exactly, dtype="f32"):
    of_blackwell = variant(dtype=dtype)
    of_blackwell.arch = "sm_100f"
    return checks.check(kernel(grouping), of_blackwell, execute, MOST_ELEMENTS // 4, exactly=exactly)


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_blackwells_rule_passes_to_the_bit_and_another_order_within_its_bound(grouping, dtype):
    outcome = check_on_blackwell(grouping, executor(gemm_fp8b128_of_powers), True, dtype)
    assert outcome.error is None and outcome.checks >= 8
    outcome = check_on_blackwell(grouping, executor(exactly), False, dtype)
    assert outcome.error is None and outcome.checks >= 8


def test_another_order_is_no_rule_of_the_emulators():
    assert "elements are wrong" in check_on_blackwell("dense", executor(exactly), True).error


@pytest.mark.parametrize("product", [first_scale_for_all, first_scale_of_b_for_all_rows, without_the_last_block])
def test_another_product_is_not_within_the_bound(product):
    assert "elements are wrong" in check_on_blackwell("dense", executor(product), False).error


@pytest.mark.parametrize("grouping", GROUPINGS[1:])
def test_another_groups_weights_are_not_within_the_bound(grouping):
    mistake = {"rows_too_many": 1} if grouping == "m_grouped_masked" else {"other_group": 1}
    assert check_on_blackwell(grouping, executor(gemm_fp8b128_of_powers, **mistake), False).error is not None


def along_k(product=gemm_fp8b128_k_grouped, add=accumulated, empty_ones_too=False):
    def execute(kernel, variant, buffers, settings):
        after = {name: buffer.image.copy() for name, buffer in buffers.items()}

        def read(name):
            elements = numpy.ascontiguousarray(buffers[name].laid.elements(after[name]))
            if name.endswith("_scale") and elements.itemsize == 1:
                return decode_e8m0(elements)
            return elements.view(FLOATS.get(name, numpy.int32))

        ends, dtype = read("offsets"), variant.dtypes["d"]
        sums = product(*(read(name) for name in ("a", "a_scale", "b", "b_scale")), ends)
        d = buffers["d"].laid.elements(after["d"])
        before = numpy.ascontiguousarray(d).view(rounded(sums[:0], dtype).dtype)
        if settings["accumulate"] == "no":
            d[...] = rounded(sums, dtype).view(d.dtype)
            return after
        owners = numpy.full(len(ends), True) if empty_ones_too else numpy.diff(ends, prepend=0) > 0
        d[owners] = add(before, sums, dtype).view(d.dtype)[owners]
        return after

    return execute


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_a_right_weight_gradient_passes(dtype):
    outcome = check("k_grouped", along_k(), dtype=dtype)
    assert outcome.error is None and outcome.checks >= 12


def blocks_that_do_not_begin_anew(a, a_scale, b, b_scale, ends):
    sums, begin = [], 0
    for end in ends.tolist():
        scales = a_scale[:, begin // 128 :], b_scale[:, begin // 128 :]
        sums.append(gemm_fp8b128_k_grouped(a[:, begin:end], scales[0], b[:, begin:end], scales[1], [end - begin])[0])
        begin = end
    return numpy.array(sums)


def last_blocks_that_are_not_cut(a, a_scale, b, b_scale, ends):
    sums = gemm_fp8b128_k_grouped(a, a_scale, b, b_scale, ends)
    for group, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        rest = slice(end, begin + -(-(end - begin) // 128) * 128)
        sums[group] += gemm_fp8b128_k_grouped(a[:, rest], a_scale, b[:, rest], b_scale, [a[:, rest].shape[1]])[0]
    return sums


def scale_of_the_first_column(a, a_scale, b, b_scale, ends):
    return gemm_fp8b128_k_grouped(a, a_scale, b, b_scale[:1].repeat(len(b_scale), 0), ends)


@pytest.mark.parametrize("product", [blocks_that_do_not_begin_anew, last_blocks_that_are_not_cut, scale_of_the_first_column])
def test_another_weight_gradient_is_caught(product):
    assert "elements are wrong" in check("k_grouped", along_k(product), dtype="f32").error


def test_forgetting_what_was_there_is_caught():
    assert "elements are wrong" in check("k_grouped", along_k(add=lambda before, sums, dtype: rounded(sums, dtype))).error


def test_adding_nothing_to_minus_zero_is_caught():
    assert "elements are wrong" in check("k_grouped", along_k(empty_ones_too=True), dtype="f32").error


@pytest.mark.parametrize(("grouping", "indexed"), [*((one, 0) for one in (*GROUPINGS, "k_grouped")), ("m_grouped_contiguous", 1)])
def test_k_of_one_instruction_of_a_short_block_and_of_many_blocks_are_among_the_problems(grouping, indexed):
    found = set()
    for problem in checks.problems(kernel(grouping), variant(indexed=indexed)):
        written = has_rows(problem)
        if written and grouping == "k_grouped":
            found |= set(numpy.diff(problem.inputs["offsets"].values, prepend=0).tolist())
        elif written:
            found.add(problem.inputs["a"].values.shape[-1])
    assert found >= {16, 144, 2880}
