"""The texts of an export as they were when somebody last looked at them: a number out of its place is a difference, without a compiler.

After a change that is meant, `python -m tests.capi.test_exported_texts` writes them anew; look at them before they are kept.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.entries import entry, signed
from zoo.capi import folder, table
from zoo.capi.contract_header import MOST
from zoo.capi.export import _cubin_source, _describe
from zoo.capi.table import MOST_EXPRESSIONS, _stack_depth, _Writer, integer, kernel_tables, refuse_places, text
from zoo.contract.expressions import Expression
from zoo.contract.manifest import parse_kernel
from zoo.errors import ManifestError

HERE = Path(__file__).parent / "exported"
NAME = "gemm.mxfp8_mxfp4.dense"


def texts() -> dict[str, str]:
    made = entry()
    made["arguments"][0]["help"] = 'the "left" operand??/ | of *all*'
    made["promises"]["c_may_be_d"] = True
    made["variants"][6] |= {"numbers": {"turn": 7, "call": 9}, "tensor": {"turn": 5}, "rates": {"call": "memory"}}
    made["summary"] = "1. a summary \u00e9 with <marks>"
    kernel = parse_kernel(NAME, made)
    variants = kernel.variants[5:9] + kernel.variants[20:22]
    places = {variant.file: 3 * place for place, variant in enumerate(variants)}
    definition, row = kernel_tables(kernel, variants, 7, 40, places)
    return {
        "table.txt": f"{definition}\n{row}\n",
        "description.md": _describe(kernel) + "\n",
        "cubin.txt": _cubin_source(5, "sm_90a/a.cubin", bytes(range(1, 150))),
    }


@pytest.mark.parametrize("name", ["table.txt", "description.md", "cubin.txt"])
def test_an_export_writes_what_somebody_looked_at(name):
    assert texts()[name] == (HERE / name).read_text("utf-8")


def test_the_list_of_an_export_is_read_to_16_mib(tmp_path):
    path = tmp_path / folder.LIST
    path.write_text("zoo.c\n".ljust(16 << 20, "#"))
    assert path.stat().st_size == 16 << 20 and folder._listed(tmp_path) == {"zoo.c"}
    with path.open("a") as file:
        file.write("\n")
    with pytest.raises(OSError, match="it has more than the 16,777,216 bytes that zoo reads"):
        folder._listed(tmp_path)


def test_a_text_is_a_literal_of_c_whatever_is_in_it():
    assert text('a"b\\c??=\x1f \x7e\x7f\u00e9') == '"a\\"b\\\\c\\?\\?=\\037 ~\\177\\303\\251"'
    assert [integer(n) for n in (-(2**63), -(2**63) + 1, 2**63 - 1)] == [
        "(-INT64_C(9223372036854775807) - 1)", "INT64_C(-9223372036854775807)", "INT64_C(9223372036854775807)",
    ]  # fmt: skip


def test_what_is_counted_in_16_bits_ends_there():
    refuse_places("here", "things", 65535)
    with pytest.raises(ManifestError, match="here: more than 65,535 things, the C library takes no more"):
        refuse_places("here", "things", 65536)


@pytest.mark.parametrize("what", MOST)
def test_what_the_c_library_has_room_for_is_taken_and_one_more_is_refused(what):
    writer = _Writer(parse_kernel(NAME, entry()), [], 0)
    writer._check(what, MOST[what])
    with pytest.raises(ManifestError, match=f"{NAME}: {MOST[what] + 1} {what}, the C library takes at most {MOST[what]}"):
        writer._check(what, MOST[what] + 1)


def constants(made):
    made["variants"][0]["constants"] = {f"C{n}": n for n in range(33)}


def options(made):
    made["options"] |= {f"o{n}": {**made["options"]["order"], "values": [f"a{n}", f"b{n}"], "default": f"a{n}"} for n in range(15)}


def arguments(made):
    made["arguments"] += [{**made["arguments"][6], "name": f"n{n}"} for n in range(41)]


def parameters(made):
    made["launches"]["default"].update(parameter_bytes=56 * 8 + 208)
    made["launches"]["default"]["parameters"] += [
        {"name": f"more{n}", "kind": "i64", "offset": 208 + 8 * n, "size": 8, "value": "M"} for n in range(56)
    ]


def maps(made):
    recipe = made["launches"]["default"]["parameters"][6]
    made["launches"]["default"].update(parameter_bytes=256 + 128 * 16)
    made["launches"]["default"]["parameters"] += [{**recipe, "name": f"map{n}", "offset": 256 + 128 * n} for n in range(16)]


def dimensions(made):
    made["arguments"][7]["forms"][0]["shape"] = ["M"] * 9


def stack(made):
    made["derived"] = [["D", "(1 + " * 32 + "1" + ")" * 32]]


@pytest.mark.parametrize(
    ("change", "words"),
    [(constants, "33 constants"), (options, "17 options"), (arguments, "49 arguments"), (parameters, "65 parameters"), (maps, "17 tensor maps"),
     (dimensions, "9 dimensions"), (stack, "33 stack")],
)  # fmt: skip
def test_a_kernel_that_needs_one_more_of_anything_is_not_written(change, words):
    made = entry()
    change(made)
    kernel = parse_kernel(NAME, signed(made))
    files = {variant.file: 0 for variant in kernel.variants}
    with pytest.raises(ManifestError, match=f"{NAME}: {words}, the C library takes at most "):
        kernel_tables(kernel, kernel.variants, 0, 0, files)


@pytest.mark.parametrize(("part", "what"), [("derived", "derived symbols"), ("constraints", "constraints"), ("variants", "variants")])
def test_a_kernel_with_more_places_than_16_bits_is_not_written(part, what):
    kernel = parse_kernel(NAME, entry())
    many = replace(kernel, **{part: getattr(kernel, part)[:1] * 65536})
    with pytest.raises(ManifestError, match=f"{NAME}: more than 65,535 {what}, the C library takes no more"):
        kernel_tables(many, many.variants, 0, 0, {})


def test_an_argument_with_more_forms_than_16_bits_is_not_written():
    kernel = parse_kernel(NAME, entry())
    argument = kernel.arguments["a"]
    with pytest.raises(ManifestError, match=f"{NAME}: more than 65,535 forms of a, the C library takes no more"):
        _Writer(kernel, kernel.variants[:1], 0)._argument(replace(argument, forms=argument.forms * 65536), 0)


def test_a_default_that_c_cannot_spell_and_a_name_for_two_things_are_refused():
    kernel = parse_kernel(NAME, entry())
    writer = _Writer(kernel, kernel.variants[:1], 0)
    with pytest.raises(ManifestError, match=f"{NAME}: alpha: a default of inf cannot be written in C"):
        writer._argument(replace(kernel.arguments["alpha"], default=float("inf")), 0)
    with pytest.raises(ManifestError, match=r"'a\.present' stands for two things"):
        writer._slot("a.present", new=True)
    assert writer._slot("a.present") == 1 and writer._slot("another", new=True) == writer._slot("another")


def test_expressions_are_counted_in_16_bits(monkeypatch):
    kernel = parse_kernel(NAME, entry())
    monkeypatch.setattr(table, "MOST_EXPRESSIONS", 2)
    writer = _Writer(kernel, kernel.variants[:1], 0)
    assert [writer._expression(Expression(text)) for text in ("1", "2", "1")] == [0, 1, 0] and (table.MOST_PLACES, MOST_EXPRESSIONS) == (
        65535,
    ) * 2
    with pytest.raises(ManifestError, match=f"{NAME}: more than 2 expressions, the C library takes no more"):
        writer._expression(Expression("3"))


@pytest.mark.parametrize(
    ("expression", "deepest"),
    [("1", 1), ("a + b", 2), ("a + (b + (c + d))", 4), ("a + b + c", 2), ("-a", 1), ("not a", 1), ("a and b", 1), ("a or b or c", 1),
     ("a if b else c + d", 2), ("a + b if c else d", 2), ("a + (b if c else d)", 2), ("a if b + (c + d) else e", 3), ("min(a, b, c)", 2)],
)  # fmt: skip
def test_the_stack_is_as_deep_as_the_deepest_path(expression, deepest):
    assert _stack_depth(Expression(expression)) == deepest


if __name__ == "__main__":
    for file, words in texts().items():
        (HERE / file).write_text(words, "utf-8")
