"""Kernel names: `<op>.<formats>...`, lower case, each field from a closed list. The only place that knows the lists."""

from __future__ import annotations

from zoo.errors import ManifestError

FORMATS = (
    "fp8b128", "mxfp8", "mxfp4", "nvfp4",
    "fp8_nvfp4", "fp8_mxfp4", "mxfp8_mxfp4", "bf16_nvfp4", "bf16_mxfp4",
)  # fmt: skip
GROUPINGS = ("dense", "m_grouped_contiguous", "m_grouped_masked", "k_grouped", "m_grouped_gather")
DIRECTIONS = ("rows", "cols", "both")
EPILOGUES = ("swiglu", "swiglu_fp8b128")

# op -> its fields after the op: (field name, allowed values, whether it may be left out)
GRAMMAR = {
    "quantize": (("formats", FORMATS, False), ("direction", DIRECTIONS, False), ("grouping", GROUPINGS, True)),
    "gemm": (("formats", FORMATS, False), ("grouping", GROUPINGS, False), ("extra", EPILOGUES, True)),
}
FIELDS = ("op", *dict.fromkeys(field for fields in GRAMMAR.values() for field, _, _ in fields))

_WHERE = "names come from the closed lists in zoo/naming.py: a new word is added there"


def parse_name(name: str) -> dict[str, str]:
    """The fields of a kernel's name, `op` first. Raises ManifestError with the allowed values where it breaks the grammar."""
    op, *words = name.split(".")
    if op not in GRAMMAR:
        raise ManifestError(f"kernel name '{name}': op '{op}' is not one of {', '.join(GRAMMAR)}; {_WHERE}")
    fields = {"op": op}
    for field, allowed, optional in GRAMMAR[op]:
        if words and words[0] in allowed:
            fields[field] = words.pop(0)
        elif not optional:
            got = f"'{words[0]}'" if words else "nothing"
            raise ManifestError(f"kernel name '{name}': {field} is {got}, expected one of {', '.join(allowed)}; {_WHERE}")
    if words:
        raise ManifestError(f"kernel name '{name}': '{words[0]}' fits no field of {op}; {_WHERE}")
    return fields
