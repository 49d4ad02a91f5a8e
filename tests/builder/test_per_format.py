"""One table for several formats: what each of them reads, and what is refused."""

import pytest

from tools.builder import BuildError
from tools.builder.per_format import instances

TABLE = {
    "name": "quantize.{format}.rows",
    "formats": {"mxfp8": {"BLOCK": 32, "elements": ["e4m3", "e5m2"]}, "nvfp4": {"BLOCK": 16, "elements": ["e2m1x2"]}},
    "options": {"rounding": {"values": ["floor"], "only": ["mxfp8"]}},
    "arguments": [
        {"name": "q", "dtypes": "{elements}", "shape": ["M", "ceil_div(K, {BLOCK})"]},
        {"name": "tensor_scale", "only": ["nvfp4"]},
    ],
    "tile": {"SIZE": "{BLOCK}", "whole": True},
}


def with_(**changes) -> dict:
    return {**TABLE, **changes}


def test_each_format_reads_its_own_table():
    mxfp8, nvfp4 = instances(TABLE)
    assert mxfp8 == {
        "name": "quantize.mxfp8.rows",
        "options": {"rounding": {"values": ["floor"]}},
        "arguments": [{"name": "q", "dtypes": ["e4m3", "e5m2"], "shape": ["M", "ceil_div(K, 32)"]}],
        "tile": {"SIZE": 32, "whole": True},
    }
    assert nvfp4["options"] == {} and [one["name"] for one in nvfp4["arguments"]] == ["q", "tensor_scale"]
    assert nvfp4["arguments"][0] == {"name": "q", "dtypes": ["e2m1x2"], "shape": ["M", "ceil_div(K, 16)"]}


def test_a_table_without_formats_is_itself():
    plain = {"name": "quantize.mxfp8.rows", "words": "braces { stay }"}
    assert instances(plain) == [plain]


MISTAKES = {
    "a word that one format lacks": (
        with_(summary="{LENGTH}"),
        "'{LENGTH}': formats.mxfp8 has no such word; it has BLOCK, elements, format",
    ),
    "a word that nothing reads": (
        with_(formats={"mxfp8": {"BLOCK": 32, "elements": [], "EXTRA": 1}}, arguments=TABLE["arguments"][:1]),
        "formats.mxfp8: nothing reads 'EXTRA'",
    ),
    "only for a format that is not there": (with_(tile={"only": ["mxfp9"]}), r"'only' must list some of mxfp8, nvfp4, got \['mxfp9'\]"),
    "only for nothing": (with_(tile={"only": []}), r"'only' must list some of mxfp8, nvfp4, got \[\]"),
    "no formats": (with_(formats={}), "'formats' must hold a table of words for each format"),
    "a format that is no table": (with_(formats={"mxfp8": 3}), "'formats' must hold a table of words for each format"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_refused(mistake):
    table, words = MISTAKES[mistake]
    with pytest.raises(BuildError, match=words):
        instances(table)
