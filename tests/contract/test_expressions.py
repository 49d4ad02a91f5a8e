"""The recipe language: its values, its limits and its refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.contract import expressions
from zoo.contract.expressions import LARGEST, SMALLEST, Expression
from zoo.errors import ExpressionError

VALUES = {"M": 7, "K": 4096, "zero": 0, "layout.blocked": 1, "x.present": 0, "_x.y_2": 11, "min": 12}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 3 - 2", 5),
        ("-M // 2", -4),
        ("-(M // 2)", -3),
        ("-M % 4", 1),
        ("ceil_div(M, 4) * 4 == round_up(M, 4)", 1),
        ("min(M, 3, K) + max(M, 3)", 10),
        ("M < K and K <= 4096", 1),
        ("not M == 7 or zero", 0),
        ("5 or zero", 1),
        ("5 and 4", 1),
        ("layout.blocked and not x.present", 1),
        ("1 if zero else 2 if M > 100 else 3", 3),
        ("(1 if M else 2) + (3 if zero else 4)", 5),
        ("M if M > 3 and K // 2 > 5 or zero else 0", 7),
        ("round_up(0, 128)", 0),
        ("round_up(M, 1) + M // 1 + M % 1 + ceil_div(M, 1)", 21),
        ("-M % -4", -3),
        ("M // -2", -4),
        ("- -M", 7),
        ("---M + 1", -6),
        ("2 - -M", 9),
        (" 7 ", 7),
        ("max(1, 3, 2) * 10 + min(3, 1, 2)", 31),
        ("not not 5", 1),
        ("not zero and M", 1),
        ("zero and zero or M", 1),
        ("zero or zero", 0),
        ("9223372036854775807", LARGEST),
        ("_x.y_2", 11),
        ("min", 12),
    ],
)
def test_value(text, value):
    assert Expression(text).evaluate(VALUES) == value


@pytest.mark.parametrize("text", ["zero and 1 // zero", "M or 1 // zero", "5 if M else 1 // zero", "1 // zero if zero else 5"])
def test_the_side_not_needed_is_not_evaluated(text):
    assert Expression(text).evaluate(VALUES) in (0, 1, 5)


@pytest.mark.parametrize(
    "text", ["", "1 +", "(1", "1)", "M M", "1 < 2 < 3", "f(1, 2)", "ceil_div(1)", "ceil_div(1, 2, 3)", "M.", ".M", "1 if 2", "if", "not",
             "__import__('os')", "M ** 2", "1.5", "M[0]", "lambda: 0", "9223372036854775808", "min(1)"],
)  # fmt: skip
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(ExpressionError, match="is not an expression"):
        Expression(text)


@pytest.mark.parametrize("text", ["1 // zero", "1 % zero", "ceil_div(M, zero)", "round_up(M, zero)"])
def test_division_by_zero_is_an_error(text):
    with pytest.raises(ExpressionError, match="divides by zero"):
        Expression(text).evaluate(VALUES)


@pytest.mark.parametrize("text", ["big + 1", "big * 2", "-small", "small - 1", "round_up(big, 2)", "small // -1", "ceil_div(small, -1)"])
def test_a_result_past_64_bits_is_an_error(text):
    with pytest.raises(ExpressionError, match="64 bits"):
        Expression(text).evaluate({"big": LARGEST, "small": SMALLEST})


def test_an_unknown_name_is_named():
    with pytest.raises(ExpressionError, match="nothing is named 'N'"):
        Expression("M * N").evaluate(VALUES)


def test_names_are_those_read():
    assert Expression("ceil_div(M, 2) + x.bf16 * M").names == ("M", "x.bf16")


def _trees(depth):
    """(text, value as Python computes it) of random expressions."""
    leaf = st.integers(0, 50).map(lambda n: (str(n), n))
    if depth == 0:
        return leaf
    inner = _trees(depth - 1)
    binary = st.tuples(inner, st.sampled_from(["+", "-", "*", "<", "==", ">="]), inner).map(
        lambda t: (f"({t[0][0]} {t[1]} {t[2][0]})", int(eval(f"{t[0][1]} {t[1]} {t[2][1]}")))
    )
    choice = st.tuples(inner, inner, inner).map(lambda t: (f"({t[0][0]} if {t[1][0]} else {t[2][0]})", t[0][1] if t[1][1] else t[2][1]))
    logic = st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
        lambda t: (
            f"({t[0][0]} {t[1]} {t[2][0]})",
            int(bool(t[0][1]) and bool(t[2][1]) if t[1] == "and" else bool(t[0][1]) or bool(t[2][1])),
        )
    )
    return st.one_of(leaf, binary, choice, logic)


@given(_trees(4))
def test_random_expressions_agree_with_python(tree):
    text, value = tree
    assert Expression(text).evaluate({}) == value


@pytest.mark.parametrize("text", ["(" * 900 + "1" + ")" * 900, "9" * 1900, "1 + " * 1000 + "1"])
def test_an_absurd_expression_is_refused_and_nothing_worse(text):
    with pytest.raises(ExpressionError, match="is not an expression"):
        Expression(text)


@pytest.mark.parametrize(("operator", "below", "same", "above"), [
    ("==", 0, 1, 0), ("!=", 1, 0, 1), ("<", 1, 0, 0), ("<=", 1, 1, 0), (">", 0, 0, 1), (">=", 0, 1, 1),
])  # fmt: skip
def test_a_comparison_tells_below_from_the_same_from_above(operator, below, same, above):
    assert [Expression(f"a {operator} 2").evaluate({"a": a}) for a in (1, 2, 3)] == [below, same, above]


def test_what_is_compiled_is_what_the_c_library_runs():
    """Its tables hold these numbers: an operand where there is none is 0."""
    assert Expression("-a + 1").code == [("load", "a"), ("negate", 0), ("constant", 1), ("add", 0)]
    assert Expression("a or b").code == [
        ("load", "a"), ("not", 0), ("jump_if_zero", 6), ("load", "b"), ("truth", 0), ("jump", 7), ("constant", 1),
    ]  # fmt: skip
    assert Expression("not a if b and 1 else min(a, 3)").code == [
        ("load", "b"), ("jump_if_zero", 5), ("constant", 1), ("truth", 0), ("jump", 6), ("constant", 0), ("jump_if_zero", 10),
        ("load", "a"), ("not", 0), ("jump", 13), ("load", "a"), ("constant", 3), ("minimum", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(("length", "words"), [(2000, "expected a value, got"), (2001, "it has more than 2000 characters")])
def test_an_expression_has_up_to_2000_characters_and_is_quoted_in_40(length, words):
    text = "M+" * (length // 2) + "+" * (length % 2)
    with pytest.raises(ExpressionError) as refusal:
        Expression(text)
    quoted = text if length == 2000 else "M+" * 20 + "..."
    assert str(refusal.value).startswith(f"'{quoted}' is not an expression: {words}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a value, got 'the end'"),
        ("1 +", "expected a value, got 'the end'"),
        ("(1", "expected ')', got 'the end'"),
        ("(1 2)", "expected ')', got '2'"),
        ("1)", "unexpected ')'"),
        ("1 2 3", "unexpected '2'"),
        ("1 if 2", "expected 'else', got 'the end'"),
        ("min(1)", "expected ',', got ')'"),
        ("ceil_div(1, 2, 3)", "expected ')', got ','"),
        ("1 + if", "expected a value, got 'if'"),
        ("a $ b", "cannot read '$ b'"),
        ("9223372036854775808", "9223372036854775808 does not fit 64 bits"),
    ],
)
def test_a_refusal_says_what_stands_where_something_else_was_expected(text, words):
    with pytest.raises(ExpressionError) as refusal:
        Expression(text)
    assert str(refusal.value) == f"'{text}' is not an expression: {words}"


def test_the_opcodes_keep_their_numbers():
    assert expressions.OPCODES == (
        "constant", "load", "add", "subtract", "multiply", "floor_divide", "modulo", "negate", "not", "equal", "not_equal", "less", "less_equal",
        "greater", "greater_equal", "minimum", "maximum", "ceil_div", "round_up", "truth", "jump", "jump_if_zero",
    )  # fmt: skip
