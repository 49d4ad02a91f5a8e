"""Kernel names: `<op>.<formats>...`, lower case, each field a word of a closed list and of what a tree of tables adds to it.

Only the build reads names: the manifest holds each kernel's fields, so that a zoo with words of its own needs no other readers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from zoo.contract import formats
from zoo.errors import ManifestError

FORMATS = formats.NAMES
# of a matrix product, by what its rows are; of a quantiser, by those of x
GROUPINGS = ("dense", "m_grouped_contiguous", "m_grouped_masked", "k_grouped", "m_grouped_gather")
QUANTISED_GROUPINGS = ("m_grouped_contiguous", "m_grouped_padded", "experts")
SCALE_GROUPINGS = ("m_grouped_contiguous", "k_grouped")
DIRECTIONS = ("rows", "cols", "both", "squares")
ARRANGEMENTS = ("blocked", "unblocked", "mn_major", "ue8m0_words")
PACKED = ("fragments",)
EXPERT_STEPS = ("route", "combine")
EPILOGUES = ("swiglu", "swiglu_fp8b128", "swiglu_mxfp8", "swiglu_nvfp4", "mxfp8", "nvfp4")
EXTRAS = (*EPILOGUES, "stored", "swiglu_stored", "swiglu_fp8b128_stored")  # what sums become, and how weights lie

FieldRule = tuple[str, tuple[str, ...], bool]  # the field's name, the words it may be, whether it may be left out

# op -> its fields after the op. Several: the first that fits.
GRAMMAR: dict[str, tuple[tuple[FieldRule, ...], ...]] = {
    "quantize": (
        (("formats", FORMATS, False), ("direction", DIRECTIONS, False), ("grouping", QUANTISED_GROUPINGS, True), ("extra", ("swiglu", "swiglu_backward", "amax"), True)),
        (("extra", ("amax",), False), ("grouping", QUANTISED_GROUPINGS, True)),
    ),
    "dequantize": ((("formats", FORMATS, False), ("direction", DIRECTIONS, False), ("grouping", QUANTISED_GROUPINGS, True)),),
    "requantize": ((("formats", FORMATS, False), ("direction", DIRECTIONS, False)),),
    "scales": ((("arrangement", ARRANGEMENTS, False), ("grouping", SCALE_GROUPINGS, True)),),
    "pack": ((("formats", FORMATS, False), ("arrangement", PACKED, True)),),
    "unpack": ((("formats", FORMATS, False), ("arrangement", PACKED, False)),),
    "gemm": ((("formats", FORMATS, False), ("grouping", GROUPINGS, False), ("extra", EXTRAS, True)),),
    "experts": ((("step", EXPERT_STEPS, False), ("gradient", ("backward",), True)),),
    "norm": (
        (("formats", FORMATS, True), ("direction", ("rows",), False)),
        (("gradient", ("backward",), False), ("extra", ("weight",), True)),
    ),
}  # fmt: skip
FIELDS = ("op", *dict.fromkeys(field for forms in GRAMMAR.values() for rules in forms for field, _, _ in rules))

OWN_WORDS = "names.toml"  # at the root of a tree of tables
_WORD = re.compile(r"[a-z][a-z0-9_]*")
_WHERE = f"names come from the closed lists in zoo/contract/names.py, and from {OWN_WORDS} at the root of the tables"


class Vocabulary:
    """The words that names may be made of: those of GRAMMAR, and a tree's own."""

    def __init__(self, own: Mapping[str, tuple[str, ...]]):
        """`own`: field -> words; of `op`, operations named <op>.<formats>[.<grouping>][.<extra>]."""
        self.own = own

    @classmethod
    def of_tree(cls, root: Path) -> Vocabulary:
        """Zoo's words and those of the tree's names.toml, if it has one."""
        import tomllib  # only builds read it

        path = root / OWN_WORDS
        try:
            data = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
            own: dict[str, tuple[str, ...]] = {}
            for field, words in data.items():
                own[field] = _own_words(field, words, own)
            return cls(own)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ManifestError(f"{path}: not TOML: {error}") from None
        except ValueError as error:
            raise ManifestError(f"{path}: {error}") from None

    def grammar(self) -> dict[str, tuple[tuple[FieldRule, ...], ...]]:
        made = {
            op: tuple(tuple((field, (*words, *self.own.get(field, ())), may_lack) for field, words, may_lack in rules) for rules in forms)
            for op, forms in GRAMMAR.items()
        }
        for op in self.own.get("op", ()):
            made[op] = (tuple((field, self._all(field), field != "formats") for field in ("formats", "grouping", "extra")),)
        return made

    def _all(self, field: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*words_of(field), *self.own.get(field, ()))))

    def fields(self, name: str) -> dict[str, str]:
        """The fields of a kernel's name, `op` first. Raises ManifestError with the allowed words where it breaks the grammar."""
        grammar = self.grammar()
        op, *words = name.split(".")
        if op not in grammar:
            raise ManifestError(f"kernel name '{name}': op '{op}' is not one of {', '.join(grammar)}; {_WHERE}")
        refusals = []
        for form in grammar[op]:
            fields, refusal = _match(op, words, form)
            if refusal is None:
                return fields
            refusals.append((len(fields), refusal))
        _, refusal = max(refusals, key=lambda one: one[0])  # of the form that went farthest
        raise ManifestError(f"kernel name '{name}': {refusal}; {_WHERE}")


def words_of(field: str) -> tuple[str, ...]:
    """All that a field may be, but for what trees of tables add."""
    if field == "op":
        return tuple(GRAMMAR)
    return tuple(word for forms in GRAMMAR.values() for rules in forms for one, words, _ in rules if one == field for word in words)


def _own_words(field: str, words: object, before: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """A field's own words: none that a field has already, or a name could be read in two ways."""
    if field not in FIELDS:
        raise ValueError(f"names have no field '{field}'; they have {', '.join(FIELDS)}")
    if not isinstance(words, list) or not all(isinstance(word, str) and _WORD.fullmatch(word) for word in words):
        raise ValueError(f"{field} is {words!r}, expected a list of words such as myword ({_WORD.pattern})")
    for word in words:
        for other in FIELDS:
            if word in (*words_of(other), *before.get(other, ())):
                raise ValueError(f"{field}: '{word}' is already a word of the field {other}")
    return tuple(words)


def _match(op: str, words: list[str], form: tuple[FieldRule, ...]) -> tuple[dict[str, str], str | None]:
    """The fields found, and what is wrong with the first word that fits none."""
    fields, words = {"op": op}, list(words)
    for field, allowed, may_lack in form:
        if words and words[0] in allowed:
            fields[field] = words.pop(0)
        elif not may_lack:
            got = f"'{words[0]}'" if words else "nothing"
            return fields, f"{field} is {got}, expected one of {', '.join(allowed)}"
    return fields, f"'{words[0]}' fits no field of {op}" if words else None
