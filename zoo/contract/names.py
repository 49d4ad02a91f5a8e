"""Kernel names: `<op>.<formats>...`, lower case, each field from a closed list. The only place that knows the lists."""

from __future__ import annotations

from zoo.errors import ManifestError

FORMATS = (
    "fp8b128", "mxfp8", "mxfp4", "nvfp4",
    "fp8_nvfp4", "fp8_mxfp4", "mxfp8_mxfp4", "bf16_nvfp4", "bf16_mxfp4",
)  # fmt: skip
# of a matrix product, by what its rows are; of a quantiser, by those of x
GROUPINGS = ("dense", "m_grouped_contiguous", "m_grouped_masked", "k_grouped", "m_grouped_gather")
QUANTISED_GROUPINGS = ("m_grouped_contiguous", "m_grouped_padded", "experts")
SCALE_GROUPINGS = ("m_grouped_contiguous", "k_grouped")
DIRECTIONS = ("rows", "cols", "both", "squares")
ARRANGEMENTS = ("blocked", "unblocked", "mn_major", "ue8m0_words")
EPILOGUES = ("swiglu", "swiglu_fp8b128")

# op -> its fields after the op: (field name, allowed values, whether it may be left out). Several: the first that fits.
GRAMMAR = {
    "quantize": (
        (("formats", FORMATS, False), ("direction", DIRECTIONS, False), ("grouping", QUANTISED_GROUPINGS, True), ("extra", ("swiglu", "amax"), True)),
        (("extra", ("amax",), False), ("grouping", QUANTISED_GROUPINGS, True)),
    ),
    "dequantize": ((("formats", FORMATS, False), ("direction", DIRECTIONS, False), ("grouping", QUANTISED_GROUPINGS, True)),),
    "scales": ((("arrangement", ARRANGEMENTS, False), ("grouping", SCALE_GROUPINGS, True)),),
    "gemm": ((("formats", FORMATS, False), ("grouping", GROUPINGS, False), ("extra", EPILOGUES, True)),),
}  # fmt: skip
FIELDS = ("op", *dict.fromkeys(field for forms in GRAMMAR.values() for fields in forms for field, _, _ in fields))

_WHERE = "names come from the closed lists in zoo/contract/names.py: a new word is added there"


def parse_name(name: str) -> dict[str, str]:
    """The fields of a kernel's name, `op` first. Raises ManifestError with the allowed values where it breaks the grammar."""
    op, *words = name.split(".")
    if op not in GRAMMAR:
        raise ManifestError(f"kernel name '{name}': op '{op}' is not one of {', '.join(GRAMMAR)}; {_WHERE}")
    refusals = []
    for form in GRAMMAR[op]:
        fields, refusal = _match(op, words, form)
        if refusal is None:
            return fields
        refusals.append((len(fields), refusal))
    _, refusal = max(refusals, key=lambda one: one[0])  # of the form that went farthest
    raise ManifestError(f"kernel name '{name}': {refusal}; {_WHERE}")


def _match(op: str, words: list[str], form: tuple) -> tuple[dict[str, str], str | None]:
    """The fields found, and what is wrong with the first word that fits none."""
    fields, words = {"op": op}, list(words)
    for field, allowed, optional in form:
        if words and words[0] in allowed:
            fields[field] = words.pop(0)
        elif not optional:
            got = f"'{words[0]}'" if words else "nothing"
            return fields, f"{field} is {got}, expected one of {', '.join(allowed)}"
    return fields, f"'{words[0]}' fits no field of {op}" if words else None
