"""The problems of block-scaled products catch what such kernels get wrong, also where elements may be off. The 'kernel' is the reference."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy
import pytest

from tools.builder.table import read_tables
from zoo import checks
from zoo.checks import block_scaled
from zoo.checks.block_scaled import splits_of
from zoo.checks.problem import NoChecks, Placed, Problem, difference
from zoo.contract.expressions import Expression
from zoo.reference.block_scaled_gemm import KINDS, exact, finished, gemm_block_scaled
from zoo.reference.layouts import from_blocked

SOURCES = Path(__file__).resolve().parents[2] / "src_cu"
FORMATS = ("mxfp8", "mxfp4", "nvfp4")
ALIGNMENTS = dict.fromkeys(("a", "a_scale", "b", "b_scale", "d"), 16) | dict.fromkeys(("alpha", "bias", "row_scale", "c"), 4)
DTYPES = {
    "f32": numpy.float32,
    "bf16": ml_dtypes.bfloat16,
    "f16": numpy.float16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
MOST_ELEMENTS = 20_000


@cache
def kernel(formats):
    (table,) = [table for table in read_tables(SOURCES) if table.name == f"gemm.{formats}.dense"]
    return SimpleNamespace(
        name=table.name,
        fields={"op": "gemm", "formats": formats, "grouping": "dense"},
        arguments={name: SimpleNamespace(alignment=alignment, forms=()) for name, alignment in ALIGNMENTS.items()},
        options={"batch_invariant": SimpleNamespace(values=("no", "yes"), default="no")},
        derived=tuple((name, Expression(text)) for name, text in table.entry["derived"]),
    )


def variant(sharing=True):
    cluster = tuple(map(Expression, ("SPLITS" if sharing else "2", "1", "1")))
    return SimpleNamespace(name="any", constants={}, symbols={}, dtypes={}, options={}, launch=SimpleNamespace(cluster=cluster))


def executor(product=gemm_block_scaled, finish=finished, change=None, change_scales=None):
    """The reference as a kernel, with what is given in the place of its own."""

    def execute(kernel, variant, buffers, settings):
        formats, after = kernel.fields["formats"], {name: buffer.image.copy() for name, buffer in buffers.items()}

        def read(name):
            if name not in buffers:
                return None
            laid = buffers[name].laid
            return numpy.ascontiguousarray(laid.elements(after[name])).view(DTYPES.get(laid.dtype, numpy.uint8))

        a, b = read("a"), read("b")
        K = a.shape[1] * (1 + KINDS[formats].packed[0])
        scales = [from_blocked(read(f"{name}_scale"), len(array), K // KINDS[formats].block) for name, array in (("a", a), ("b", b))]
        if change_scales:
            scales[0] = change_scales(scales[0])
        sums = product(a, scales[0], b, scales[1], formats, splits_of(kernel, variant, (len(a), len(b), K), settings))
        laid = buffers["d"].laid
        d = finish(sums, laid.dtype, **{name: read(name) for name in ("alpha", "bias", "row_scale", "c")})
        if d.size:
            laid.elements(after["d"])[...] = d.view(laid.elements(after["d"]).dtype)
            if change:
                change(laid, after["d"], buffers["d"].image)
        return after

    return execute


def check(formats, execute, exactly=True, sharing=True):
    return checks.check(kernel(formats), variant(sharing), execute, MOST_ELEMENTS, (0xA5,), exactly)


@pytest.mark.parametrize("sharing", [False, True])
@pytest.mark.parametrize("formats", FORMATS)
def test_a_right_kernel_passes(formats, sharing):
    outcome = check(formats, executor(), sharing=sharing)
    assert outcome.error is None and outcome.checks > 50


def in_another_order(a, a_scale, b, b_scale, formats, splits):
    """Every addition exact, the sum rounded once."""
    with numpy.errstate(all="ignore"):
        return exact(a, a_scale, b, b_scale, formats)[0].astype(numpy.float32)


@pytest.mark.parametrize("formats", FORMATS)
def test_another_order_of_addition_passes_where_bits_are_not_known_and_there_alone(formats):
    assert "elements are wrong" in check(formats, executor(in_another_order)).error
    assert check(formats, executor(in_another_order), exactly=False).error is None


def last_block_left_out(a, a_scale, b, b_scale, formats, splits):
    a, half = a.copy(), 1 + KINDS[formats].packed[0]
    a.view(numpy.uint8)[:, -KINDS[formats].block // half :] = 0
    return gemm_block_scaled(a, a_scale, b, b_scale, formats, splits)


def one_element_left_out(a, a_scale, b, b_scale, formats, splits):
    a = a.copy()
    a.view(numpy.uint8)[len(a) // 2 :, -1] = 0
    return gemm_block_scaled(a, a_scale, b, b_scale, formats, splits)


def next_rows_of_b(a, a_scale, b, b_scale, formats, splits):
    return numpy.roll(gemm_block_scaled(a, a_scale, b, b_scale, formats, splits), 1, axis=1)


def one_scale_off(scales):
    scales = scales.copy()
    scales.view(numpy.uint8).reshape(-1)[-1:] ^= 1
    return scales


def scales_of_the_next_row(scales):
    return numpy.roll(scales, 1, axis=0)


def without(name):
    return lambda sums, dtype, **steps: finished(sums, dtype, **{**steps, name: None})


def factor_first(sums, dtype, alpha, bias, row_scale, c):
    with numpy.errstate(all="ignore"):
        return finished(sums if row_scale is None else sums * row_scale[:, None], dtype, alpha, bias, None, c)


def no_nan(sums, dtype, **steps):
    return finished(numpy.nan_to_num(sums), dtype, **steps)


def element(change):
    """Of the last element's bits."""

    def execute(laid, after, before):
        elements = laid.elements(after)
        elements[-1, -1] = change(elements[-1, -1], laid.elements(before)[-1, -1], elements.dtype)

    return execute


def a_guard(laid, after, before):
    after[laid.offset - 1] ^= 1


MISTAKES = {
    "the last block left out": {"product": last_block_left_out},
    "one element of some rows left out": {"product": one_element_left_out},
    "columns moved by one": {"product": next_rows_of_b},
    "one scale off by one": {"change_scales": one_scale_off},
    "scales of the next row": {"change_scales": scales_of_the_next_row},
    "alpha forgotten": {"finish": without("alpha")},
    "bias forgotten": {"finish": without("bias")},
    "row_scale forgotten": {"finish": without("row_scale")},
    "c forgotten": {"finish": without("c")},
    "row_scale before bias": {"finish": factor_first},
    "NaN lost": {"finish": no_nan},
    "NaN where none is": {"change": element(lambda bits, before, kind: kind.type(0x7FFF << 8 * (kind.itemsize - 2)))},
    "the sign of one element": {"change": element(lambda bits, before, kind: bits ^ kind.type(1 << 8 * kind.itemsize - 1))},
    "one element a little off": {"change": element(lambda bits, before, kind: bits ^ kind.type(1 << (19 if kind.itemsize == 4 else 4)))},
    "one element not written": {"change": element(lambda bits, before, kind: before)},
    "a guard written": {"change": a_guard},
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("formats", FORMATS)
def test_a_mistake_is_caught_even_where_elements_may_be_off(formats, mistake):
    assert check(formats, executor(**MISTAKES[mistake]), exactly=False).error is not None


@pytest.mark.parametrize("formats", FORMATS)
def test_one_bit_off_is_caught_where_sums_are_exact_in_any_order(formats):
    """The last bit of every element; of the problems that allow something, each lets some of them pass."""
    execute = executor(change=lambda laid, after, before: numpy.bitwise_xor(laid.elements(after), 1, out=laid.elements(after)))
    caught, whole = 0, 0
    for problem in checks.problems(kernel(formats), variant()):
        if problem.elements <= MOST_ELEMENTS and "whole numbers" in problem.name:
            whole += 1
            caught += difference(problem, kernel(formats), variant(), execute, exactly=False) is not None
    assert caught == whole >= 6


def difference_of(found, wanted, within, exactly=False):
    kernel = SimpleNamespace(arguments={"d": SimpleNamespace(alignment=16, forms=())})

    def execute(kernel, variant, buffers, settings):
        after = buffers["d"].image.copy()
        buffers["d"].laid.elements(after)[...] = found.view(numpy.uint32)
        return {"d": after}

    problem = Problem("any", {}, {"d": Placed(wanted, within=within)})
    return difference(problem, kernel, None, execute, exactly=exactly)


def test_an_element_may_be_off_as_far_as_its_own_bound_says_and_no_further():
    wanted = numpy.array([1, 1, 100], numpy.float32)
    within = numpy.array([0.25, 0, 0.5])
    assert difference_of(wanted + numpy.array([0.25, 0, -0.5], numpy.float32), wanted, within) is None
    for off in ([0.2500001, 0, 0], [0, 1e-6, 0], [0, 0, 1]):
        assert "1 of 3 elements are wrong" in difference_of(wanted + numpy.array(off, numpy.float32), wanted, within)
    assert "elements are wrong" in difference_of(wanted + numpy.array([0.25, 0, 0], numpy.float32), wanted, within, exactly=True)
    assert "elements are wrong" in difference_of(wanted + numpy.array([0.25, 0, 0], numpy.float32), wanted, None)


def test_no_bound_lets_a_number_pass_for_what_is_none_or_the_other_way_round():
    numbers = numpy.array([1, numpy.nan, numpy.inf, -numpy.inf], numpy.float32)
    for within in (1, numpy.inf, numpy.nan):
        bound = numpy.full(4, within)
        assert difference_of(numbers, numbers, bound) is None
        for index in range(4):
            for other in numpy.delete(numbers, index):
                found = numbers.copy()
                found[index] = other
                assert "1 of 4 elements are wrong" in difference_of(found, numbers, bound)


def test_a_large_padding_of_scales_makes_no_problem_large():
    for problem in checks.problems(kernel("nvfp4"), variant()):
        scales = problem.inputs["a_scale"]
        assert (scales.values.view(numpy.uint8) == 0xFF).sum() >= scales.padding
        M, K = len(problem.inputs["a"].values), 2 * problem.inputs["a"].values.shape[1]
        assert scales.values.size - scales.padding == M * K // 16


def test_some_small_problem_of_each_format_shares_k_and_one_that_must_not_does_not():
    for formats in FORMATS:
        names = [problem.name for problem in checks.problems(kernel(formats), variant()) if problem.elements <= MOST_ELEMENTS]
        assert sum("K shared by 2" in name for name in names) > 10
        assert not any("K shared" in name for name in names if "batch_invariant" in name)
        alone = [problem.name for problem in checks.problems(kernel(formats), variant(sharing=False))]
        assert not any("K shared" in name for name in alone)


def test_products_that_nobody_wrote_problems_for_are_refused_by_name():
    other = SimpleNamespace(name="gemm.mxfp8.dense.swiglu", fields={"formats": "mxfp8", "grouping": "dense", "extra": "swiglu"})
    with pytest.raises(NoChecks, match="nobody has written checks for products of mxfp8"):
        next(block_scaled.problems(other, variant()))
