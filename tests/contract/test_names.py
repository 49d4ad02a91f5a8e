"""What a kernel may be called: each field that must be there, and each that may be left out."""

import pytest

from zoo.contract.names import GRAMMAR, OWN_WORDS, Vocabulary, words_of
from zoo.errors import ManifestError

# Names that lack nothing, with their fields; an X marks what may not be left out.
NAMES = {
    "quantize.mxfp8.rows.experts.swiglu": {"formats": "X", "direction": "X", "grouping": "experts", "extra": "swiglu"},
    "quantize.amax.experts": {"extra": "X", "grouping": "experts"},
    "dequantize.mxfp8.rows.experts": {"formats": "X", "direction": "X", "grouping": "experts"},
    "requantize.mxfp8.squares": {"formats": "X", "direction": "X"},
    "scales.blocked.k_grouped": {"arrangement": "X", "grouping": "k_grouped"},
    "experts.combine.backward": {"step": "X", "gradient": "backward"},
    "gemm.mxfp8.dense.swiglu": {"formats": "X", "grouping": "X", "extra": "swiglu"},
}


def refusal(name, words=None):
    with pytest.raises(ManifestError) as refused:
        (words or Vocabulary({})).fields(name)
    return str(refused.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_may_lack_what_is_optional_and_nothing_else(name):
    op, *words = name.split(".")
    fields = dict(zip(NAMES[name], words, strict=True))
    assert Vocabulary({}).fields(name) == {"op": op, **fields}
    for field, said in NAMES[name].items():
        rest = {one: word for one, word in fields.items() if one != field}
        shorter = ".".join([op, *rest.values()])
        if said == "X":
            assert refusal(shorter).startswith(f"kernel name '{shorter}': ")
        else:
            assert Vocabulary({}).fields(shorter) == {"op": op, **rest}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fold.mxfp8", "op 'fold' is not one of quantize, dequantize,"),
        ("pack", "formats is nothing, expected one of "),
        ("gemm.mxfp8", "grouping is nothing, expected one of dense,"),
        ("gemm.dense.mxfp8", "formats is 'dense', expected one of "),
        ("gemm.mxfp8.dense.swiglu.swiglu", "'swiglu' fits no field of gemm;"),
        ("quantize.mxfp8.rows.swiglu.experts", "'experts' fits no field of quantize;"),
        ("quantize.mxfp8.up", "direction is 'up', expected one of rows,"),  # of the form that went farther
        ("quantize.amax.up", "'up' fits no field of quantize;"),
    ],
)
def test_what_does_not_fit_is_named_with_what_would(name, words):
    said = refusal(name)
    assert said.startswith(f"kernel name '{name}': {words}") and f"and from {OWN_WORDS} at the root" in said


def test_words_of_a_tree_are_added_to_those_of_their_field_alone():
    own = Vocabulary({"direction": ("diagonals",), "op": ("permute",), "grouping": ("by_hand",)})
    assert own.fields("requantize.mxfp8.diagonals") == {"op": "requantize", "formats": "mxfp8", "direction": "diagonals"}
    assert "direction is 'by_hand'" in refusal("requantize.mxfp8.by_hand", own)
    assert own.fields("permute.mxfp8.by_hand.swiglu") == {"op": "permute", "formats": "mxfp8", "grouping": "by_hand", "extra": "swiglu"}
    assert own.fields("permute.mxfp8") == {"op": "permute", "formats": "mxfp8"}
    assert "formats is nothing" in refusal("permute", own) and "op 'permute' is not one of" in refusal("permute.mxfp8")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('form = ["a"]', "names have no field 'form'; they have op, formats"),
        ('formats = "a"', "formats is 'a', expected a list of words such as myword"),
        ('formats = ["a", 3]', "expected a list of words"),
        ('formats = ["A"]', "expected a list of words"),
        ('formats = ["a-b"]', "expected a list of words"),
        ('formats = ["rows"]', "formats: 'rows' is already a word of the field direction"),
        ('formats = ["gemm"]', "formats: 'gemm' is already a word of the field op"),
        ('formats = ["mine"]\nextra = ["other", "mine"]', "extra: 'mine' is already a word of the field formats"),
        ("formats = [", "not TOML"),
    ],
)
def test_words_that_make_a_name_mean_two_things_are_refused(tmp_path, text, words):
    (tmp_path / OWN_WORDS).write_text(text)
    with pytest.raises(ManifestError) as refused:
        Vocabulary.of_tree(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path / OWN_WORDS}: ") and words in str(refused.value)
    (tmp_path / OWN_WORDS).write_text('formats = ["a2_b"]\nextra = ["other"]')
    assert Vocabulary.of_tree(tmp_path).own == {"formats": ("a2_b",), "extra": ("other",)}
    assert words_of("op") == tuple(GRAMMAR)
