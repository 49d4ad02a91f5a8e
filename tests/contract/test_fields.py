"""What each kind of field holds, to its edge; what it refuses, in its words; what a table's value becomes."""

import re

import pytest

from zoo.contract import fields
from zoo.contract.expressions import Expression
from zoo.contract.fields import Malformed
from zoo.contract.schema import Option


class Doubled(fields.Kind):
    words = "a text that is doubled"

    def read(self, value):
        return value if type(value) is str else fields.refuse(value, self.words)

    def lowered(self, value):
        return value * 2 if type(value) is str else value


LETTERS = fields.Text("letters", re.compile("[a-z]+"))
SEVERAL = fields.ListOf(Doubled(), "texts", fields.SEVERAL)
TWO = fields.ListOf(Doubled(), "texts", range(2, 3), distinct=True)
SOME = fields.ListOf(LETTERS, "words", range(1, 4))

TAKEN = [
    (fields.Text(), "", ""), (fields.Text(), "a" * 1000, "a" * 1000), (LETTERS, "abc", "abc"),
    (fields.FileName(), "sm_90a/a-b.cubin", "sm_90a/a-b.cubin"),
    (fields.OneOf(("a", "b")), "b", "b"),
    (fields.Whole(-2, 5), -2, -2), (fields.Whole(-2, 5), 5, 5),
    (fields.PowerOfTwo(64), 1, 1), (fields.PowerOfTwo(64), 32, 32), (fields.PowerOfTwo(64), 64, 64),
    (fields.Truth(), False, False), (fields.Truth(), True, True),
    (fields.NumberOrNull(), None, None), (fields.NumberOrNull(), -(2**63), -(2**63)), (fields.NumberOrNull(), 2**63 - 1, 2**63 - 1),
    (fields.NumberOrNull(), 0.5, 0.5),
    (SOME, ["a"], ("a",)), (SOME, ["a", "b", "a"], ("a", "b", "a")), (TWO, ["a", "b"], ("a", "b")), (SEVERAL, ["a"] * 5, ("a",) * 5),
    (fields.ListOf(LETTERS, "words"), [], ()),
    (fields.OrNull(LETTERS, "null"), None, None), (fields.OrNull(LETTERS, "null"), "a", "a"),
    (fields.TableOf(fields.Whole(0, 3), "numbers"), {"A b": 3}, {"A b": 3}), (fields.TableOf(LETTERS, "words", LETTERS), {}, {}),
    (fields.Anything(), [{}], [{}]), (fields.Subtable("X"), {"a": []}, {"a": []}),
]  # fmt: skip

REFUSED = [
    (fields.Text(), 7, "it is 7, expected a text"),
    (fields.Text(), "a\n", "it is 'a\\n', expected a text"),
    (fields.Text(), "a" * 1001, "expected a text, of at most 1,000 characters"),
    (LETTERS, "A", "it is 'A', expected letters"),
    (LETTERS, "abC", "it is 'abC', expected letters"),
    (fields.FileName(), "../a", "it is '../a', expected a path of letters, digits, _ . and -, no part of which starts with a dot or a dash"),
    (fields.FileName(), None, "it is None, expected a path of letters"),
    (fields.OneOf(("a", "b")), "c", "it is 'c', expected one of a, b"),
    (fields.OneOf(("a",)), ["a"], "it is ['a'], expected a"),
    (fields.OneOf(()), "a", "it is 'a', expected one of none"),
    (fields.Whole(-2, 5), -3, "it is -3, expected a whole number of -2 to 5"),
    (fields.Whole(-2, 5, "few"), 6, "it is 6, expected few"),
    (fields.Whole(0, 1), True, "it is True, expected a whole number of 0 to 1"),
    (fields.PowerOfTwo(64), 0, "it is 0, expected a power of two up to 64"),
    (fields.PowerOfTwo(64), 3, "it is 3, expected a power of two up to 64"),
    (fields.PowerOfTwo(64), 128, "it is 128, expected a power of two up to 64"),
    (fields.PowerOfTwo(64), True, "it is True, expected a power of two up to 64"),
    (fields.Truth(), 1, "it is 1, expected true or false"),
    (fields.NumberOrNull(), 2**63, "expected a number of 64 bits"),
    (fields.NumberOrNull(), -(2**63) - 1, "expected a number of 64 bits"),
    (fields.NumberOrNull(), float("inf"), "it is inf, expected a number of 64 bits"),
    (fields.NumberOrNull(), False, "it is False, expected a number of 64 bits"),
    (fields.Formula(), 1, "it is 1, expected an expression"),
    (fields.Formula(), "1\n", "it is '1\\n', expected an expression"),
    (fields.Formula(), "1 +", "it: '1 +' is not an expression: expected a value, got 'the end'"),
    (SOME, [], "it is [], expected a list of 1 to 3 words"),
    (SOME, ["a"] * 4, "it is ['a', 'a', 'a', 'a'], expected a list of 1 to 3 words"),
    (SOME, ("a",), "it is ('a',), expected a list of 1 to 3 words"),
    (SOME, ["a", "b", "C"], "[2] is 'C', expected letters"),
    (TWO, ["a", "a"], "it is ['a', 'a'], expected a list of 2 texts, none twice"),
    (TWO, ["a"], "it is ['a'], expected a list of 2 texts, none twice"),
    (SEVERAL, [], "it is [], expected a list of one or more texts"),
    (fields.OrNull(LETTERS, "null for none"), 1, "it is 1, expected letters"),
    (fields.TableOf(LETTERS, "words"), [], "it is [], expected a table of words"),
    (fields.TableOf(LETTERS, "words", LETTERS), {"A": "a"}, "it has the key 'A', expected letters"),
    (fields.TableOf(fields.TableOf(SOME, "lists"), "tables"), {"x": {"y": ["a", 1]}}, "x.y[1] is 1, expected letters"),
    (fields.Subtable("X"), [], "it is [], expected a table: X"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "made"), TAKEN)
def test_what_a_field_may_hold_is_read(kind, value, made):
    found = kind.read(value)
    assert found == made and type(found) is type(made)


@pytest.mark.parametrize(("kind", "value", "words"), REFUSED)
def test_what_a_field_may_not_hold_is_refused_where_it_stands(kind, value, words):
    with pytest.raises(Malformed) as refusal:
        kind.read(value)
    assert str(refusal.value).startswith(words) or (words.startswith("expected") and str(refusal.value).endswith(words))
    with pytest.raises(Malformed) as refusal, fields.inside(".here"):
        kind.read(value)
    assert str(refusal.value).startswith("here")


def test_an_expression_is_parsed():
    found = fields.Formula().read("M + 1")
    assert type(found) is Expression and found.evaluate({"M": 2}) == 3


LOWERED = [
    (fields.Text(), "a", "a"), (fields.Formula(), 3, "3"), (fields.Formula(), True, True), (fields.Formula(), "M", "M"),
    (SEVERAL, ["a", "b"], ["aa", "bb"]), (SEVERAL, "a", "a"),
    (fields.OrNull(Doubled(), "null"), None, None), (fields.OrNull(Doubled(), "null"), "a", "aa"),
    (fields.TableOf(Doubled(), "texts"), {"x": "a", "y": 1}, {"x": "aa", "y": 1}), (fields.TableOf(Doubled(), "texts"), ["a"], ["a"]),
    (fields.TableOf(fields.ListOf(Doubled(), "texts"), "lists"), {"x": ["a"]}, {"x": ["aa"]}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "made"), LOWERED)
def test_a_tables_value_becomes_the_manifests_and_what_is_of_another_kind_stays(kind, value, made):
    assert kind.lowered(value) == made


def test_a_count_is_said_in_words():
    assert [fields.how_many(count) for count in (range(3, 4), range(1, 4), fields.SEVERAL)] == ["3", "1 to 3", "one or more"]
    assert (min(fields.SEVERAL), max(fields.SEVERAL)) == (1, 65535)


def test_a_misspelt_key_is_told_what_was_meant():
    known = ["box", "l2_promotion"]
    fields.refuse_unknown({"box": 1}, known)
    with pytest.raises(Malformed) as refusal:
        fields.refuse_unknown({"box": 1, "l2_promotoin": 2}, known)
    assert str(refusal.value) == "it has the unknown key 'l2_promotoin'; did you mean 'l2_promotion'? known here: box, l2_promotion"
    with pytest.raises(Malformed) as refusal:
        fields.refuse_unknown({"zzz": 2}, known)
    assert str(refusal.value) == "it has the unknown key 'zzz'; known here: box, l2_promotion"


@pytest.mark.parametrize("data", [3, None, [("values", ["a"])], "values"])
def test_what_a_table_gives_for_a_record_is_a_table(data):
    with pytest.raises(Malformed, match="expected a table"):
        fields.lowered(Option, data)
