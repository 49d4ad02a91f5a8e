"""What the checks of several variants share: results by the bits of what they are of, and rows that come again."""

from dataclasses import dataclass
from types import SimpleNamespace

import ml_dtypes
import numpy
import pytest

from zoo import checks
from zoo.checks import Outcome, check_in_turns, gemm_four_bit, gemm_four_bit_gated
from zoo.checks.problem import Placed, Problem
from zoo.checks.remembered import remembered
from zoo.checks.repeated_rows import TOKENS, WEIGHTS, again, drawn_rows
from zoo.errors import DriverError, VariantError
from zoo.packaged import packaged
from zoo.reference.four_bit_gemm import gemm_bf16_by_four_bit, gemm_fp8_by_four_bit
from zoo.reference.gemm import distinct_rows


@dataclass(frozen=True)
class Made:
    one: numpy.ndarray
    other: tuple[numpy.ndarray, str] | None = None


def test_a_result_is_worked_out_once_for_the_same_bits_shape_and_dtype():
    asked = []

    @remembered(megabytes=1)
    def made(array, word):
        asked.append(word)
        return Made(array + 0, (array * 2, word))

    array = numpy.arange(6, dtype=numpy.uint8)
    first = made(array, "a")
    assert made(array.copy(), "a") is first and asked == ["a"]
    others = [array + 1, array[::-1], array.reshape(2, 3), array.view(numpy.int8), array.astype(numpy.uint16), array[:0]]
    assert len({id(made(other, "a")) for other in others}) == len(others) and len(asked) == 1 + len(others)
    assert made(array, "b") is not first and made(array, "a") is first
    for shared in (first.one, first.other[0]):
        with pytest.raises(ValueError, match="read-only"):
            shared += 1


def test_no_more_is_kept_than_is_said_and_the_latest_stays():
    asked = []

    @remembered(megabytes=1)
    def made(number):
        asked.append(number)
        return numpy.full(400_000, number, numpy.uint8)

    for number in (1, 2, 1, 3):  # the third does not fit beside both: what was asked for last stays
        made(number)
    made(1)
    assert asked == [1, 2, 3]
    made(2)
    assert asked == [1, 2, 3, 2]


@pytest.mark.parametrize("repeats", [TOKENS, WEIGHTS])
def test_equal_rows_are_no_power_of_two_apart(repeats):
    """A kernel that takes the row of another lane, warp, tile or stage would look right."""
    assert all(repeats.period % other for other in range(2, repeats.period))
    rows = again(numpy.arange(drawn_rows(5000, 1 << 20, repeats)), 5000)
    assert len(numpy.unique(rows)) == repeats.period
    for apart in (1 << power for power in range(12)):
        assert (rows[apart:] != rows[:-apart]).all()
    assert drawn_rows(9, 1 << 20, repeats) == 9 and drawn_rows(5000, repeats.elements // 5000 - 1, repeats) == 5000


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16])
def test_rows_that_come_again_have_the_sums_that_they_have_alone(dtype):
    """Also where scales for 1 x 128 differ, in shares of K, and where rows differ in the sign of a zero alone."""
    random = numpy.random.default_rng(1)
    a, weights = (again(random.standard_normal((rows, 300)).astype(dtype), 3 * rows) for rows in (3, 5))
    a[[4, 7], 7], a[1, 7] = 0, -0.0
    few, which = distinct_rows(a)
    assert len(few) == 4 and (few[which].view(numpy.uint8) == a.view(numpy.uint8)).all()
    scales = numpy.exp2(random.uniform(-6, 6, (9, 3))).astype(numpy.float32)
    for options in ({}, {"splits": 2}) if dtype == ml_dtypes.bfloat16 else ({}, {"splits": 2}, {"promotion": "never"}, {"a_scale": scales}):
        multiplied = gemm_bf16_by_four_bit if dtype == ml_dtypes.bfloat16 else gemm_fp8_by_four_bit
        found = multiplied(a, weights, **options)
        for row, column in ((0, 0), (4, 3), (8, 14), (1, 9)):
            own = {**options, "a_scale": scales[row : row + 1]} if "a_scale" in options else options
            alone = multiplied(a[row : row + 1], weights[column : column + 1], **own)
            assert found[row, column].tobytes() == alone.tobytes()


@pytest.mark.parametrize("name", ["gemm.fp8_nvfp4.dense.swiglu", "gemm.bf16_mxfp4.m_grouped_contiguous.swiglu"])
def test_large_operands_have_rows_that_come_again_and_small_ones_do_not(name):
    kernel = packaged.kernel(name)
    seen = {}
    for problem in checks.problems(kernel, kernel.variants[0]):
        a = problem.inputs["a"].values
        rows = a.reshape(len(a), int(numpy.prod(a.shape[1:])))
        seen[len(distinct_rows(rows.view(numpy.uint8))[0]) < len(rows)] = problem.elements
    assert set(seen) == {False, True}


@pytest.mark.parametrize("module", [gemm_four_bit, gemm_four_bit_gated])
def test_tokens_of_small_problems_are_all_their_own(module):
    draw = module._tokens
    for of in ("fp8_nvfp4", "bf16_nvfp4") if module is gemm_four_bit else (False, True):
        assert len(distinct_rows(draw(130, 64, of).view(numpy.uint8))[0]) == 130
        assert len(distinct_rows(draw(517, 2880, of).view(numpy.uint8))[0]) == TOKENS.period


def placed(number):
    return {"d": Placed(numpy.full(4, number, numpy.uint8))}


@pytest.fixture
def three(monkeypatch):
    """Three variants of a kernel, of three, one and no problems; what is run, in its order."""
    arguments = {"d": SimpleNamespace(alignment=1, forms=())}
    kernel = SimpleNamespace(name="k", arguments=arguments, options={})
    several = {
        variant: [Problem(f"p{number}", {}, placed(number)) for number in range(count)] for variant, count in (("x", 3), ("y", 1), ("z", 0))
    }
    monkeypatch.setattr(checks, "problems", lambda kernel, variant: iter(several[variant]))
    return kernel, list(several), []


def test_variants_take_turns_at_each_problem(three):
    """So that what one works out is still there for the next one."""
    kernel, variants, ran = three

    def execute(kernel, variant, buffers, settings):
        ran.append(variant)
        return {"d": buffers["d"].laid.image(0xA5, True)}

    said = list(check_in_turns(kernel, variants, execute, poisons=[0xA5]))
    assert ran == ["x", "y", "x", "x"]
    assert [place for place, outcome in said if outcome is None] == [0, 1, 2, 0, 1, 0, 0]
    outcomes = dict(one for one in said if one[1] is not None)
    assert outcomes == {
        0: Outcome(3, None),
        1: Outcome(1, None),
        2: Outcome(0, "no problem has sizes that this variant takes; add one to its checks"),
    }


@pytest.mark.parametrize("refusal", [DriverError("gone"), VariantError("k", "x", "sizes"), None], ids=["failure", "sizes", "wrong"])
def test_what_goes_wrong_with_one_variant_ends_it_and_no_other(three, refusal):
    kernel, variants, ran = three

    def execute(kernel, variant, buffers, settings):
        ran.append(variant)
        if variant == "x" and refusal:
            raise refusal
        return {"d": buffers["d"].laid.image(0xA5, variant != "x")}

    outcomes = dict(one for one in check_in_turns(kernel, variants[:2], execute, poisons=[0xA5]) if one[1] is not None)
    assert outcomes[1] == Outcome(1, None)
    if isinstance(refusal, VariantError):
        assert ran.count("x") == 3 and outcomes[0].checks == 0 and "no problem has sizes" in outcomes[0].error
    else:
        assert ran.count("x") == 1 and outcomes[0].checks == 1 and outcomes[0].error.startswith("p0: ")
