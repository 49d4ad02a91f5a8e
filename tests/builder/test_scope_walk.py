"""reachable_names against evaluation itself: it must never miss a name that is read."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from tools.builder.scope import reachable_names
from zoo.contract.expressions import Expression
from zoo.errors import ExpressionError

NAMES = ("a", "b", "flag.x", "flag.y")
atoms = st.sampled_from((*NAMES, "0", "1", "3"))
texts = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(("and", "or", "+", "//", "<", "==")), inner),
        st.builds("(not {})".format, inner),
        st.builds("(-{})".format, inner),
        st.builds("min({}, {})".format, inner, inner),
    ),
    max_leaves=12,
)
values = st.fixed_dictionaries({name: st.integers(0, 2) for name in NAMES})


class Recording(dict):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.read = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


@given(texts, values, st.sets(st.sampled_from(NAMES)))
def test_every_name_that_evaluation_reads_is_reachable(text, given_values, known):
    expression, recording = Expression(text), Recording(given_values)
    with contextlib.suppress(ExpressionError):  # a division by zero: what was read up to there still counts
        expression.evaluate(recording)
    assert recording.read <= reachable_names(expression, {name: given_values[name] for name in known})


def test_a_closed_branch_is_not_walked():
    known = {"layout.plain": 1}
    assert reachable_names(Expression("stride if layout.plain else other"), known) == {"stride", "layout.plain"}
    assert reachable_names(Expression("not layout.plain and other"), known) == {"layout.plain"}
    assert reachable_names(Expression("layout.plain or other"), known) == {"layout.plain"}
    assert reachable_names(Expression("stride if M else other"), known) == {"stride", "M", "other"}
