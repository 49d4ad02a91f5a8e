"""One table for several formats: what each of them reads, and what is refused."""

import pytest

from tools.builder import BuildError
from tools.builder.documents import Documents
from tools.builder.per_format import instances

FORMATS = {
    "mxfp8": 'BLOCK = 32\nscale = "ue8m0"\nelements = ["e4m3", "e5m2"]\nPER_BYTE = 1\n',
    "mxfp4": 'BLOCK = 32\nscale = "ue8m0"\nelements = ["e2m1x2"]\nPER_BYTE = 2\n',
    "nvfp4": 'BLOCK = 16\nscale = "e4m3"\nelements = ["e2m1x2"]\nPER_BYTE = 2\ntensor_scaled = true\n',
}
TABLE = {
    "name": "quantize.{format}.rows",
    "formats": "common/formats",
    "words": [
        {"only": {"PER_BYTE": 1}, "LENGTH": "K"},
        {"except": {"PER_BYTE": 1}, "LENGTH": "K // {PER_BYTE}"},
    ],
    "options": {"rounding": {"values": ["floor"], "only": {"scale": "ue8m0"}}},
    "arguments": [
        {"name": "q", "dtypes": "{elements}", "shape": ["M", "ceil_div({LENGTH}, {BLOCK})"]},
        {"name": "tensor_scale", "only": {"tensor_scaled": True}},
    ],
    "tile": {"SIZE": "{BLOCK}", "whole": True},
}


@pytest.fixture
def documents(tmp_path):
    for name, text in FORMATS.items():
        path = tmp_path / "common" / "formats" / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Documents(tmp_path)


def with_(**changes) -> dict:
    return {**TABLE, **changes}


def read(table, documents) -> dict[str, dict]:
    return {one["name"].split(".")[1]: one for one in instances(table, documents)}


def test_each_format_reads_its_own_table(documents):
    tables = read(TABLE, documents)
    assert tables["mxfp8"] == {
        "name": "quantize.mxfp8.rows",
        "options": {"rounding": {"values": ["floor"]}},
        "arguments": [{"name": "q", "dtypes": ["e4m3", "e5m2"], "shape": ["M", "ceil_div(K, 32)"]}],
        "tile": {"SIZE": 32, "whole": True},
    }
    assert tables["mxfp4"]["arguments"] == [{"name": "q", "dtypes": ["e2m1x2"], "shape": ["M", "ceil_div(K // 2, 32)"]}]
    nvfp4 = tables["nvfp4"]
    assert nvfp4["options"] == {} and [one["name"] for one in nvfp4["arguments"]] == ["q", "tensor_scale"]
    assert nvfp4["arguments"][0] == {"name": "q", "dtypes": ["e2m1x2"], "shape": ["M", "ceil_div(K // 2, 16)"]}


def test_a_new_file_is_a_new_format_of_every_table(documents):
    text = 'BLOCK = 64\nscale = "e4m3"\nelements = ["e4m3"]\nPER_BYTE = 1\n'
    (documents.roots[0] / "common" / "formats" / "toy.toml").write_text(text)
    toy = read(TABLE, documents)["toy"]
    assert toy["options"] == {} and toy["arguments"] == [{"name": "q", "dtypes": ["e4m3"], "shape": ["M", "ceil_div(K, 64)"]}]


def test_a_table_may_be_for_some_formats_only(documents):
    assert list(read(with_(formats={"folder": "common/formats", "only": {"PER_BYTE": 2}}), documents)) == ["mxfp4", "nvfp4"]
    assert list(read(with_(formats={"folder": "common/formats", "except": {"BLOCK": [16]}}), documents)) == ["mxfp4", "mxfp8"]


def test_all_words_of_only_must_hold_and_one_of_several_values(documents):
    table = with_(extra={"only": {"BLOCK": [16, 32], "PER_BYTE": 2, "scale": "ue8m0"}}, rest={"except": {"BLOCK": 32, "PER_BYTE": 2}})
    tables = read(table, documents)
    assert [name for name, one in tables.items() if "extra" in one] == ["mxfp4"]
    assert [name for name, one in tables.items() if "rest" in one] == ["mxfp8", "nvfp4"]


def test_a_list_is_meant_as_a_whole_within_a_list(documents):
    tables = read(with_(extra={"only": {"elements": [["e4m3", "e5m2"]]}}), documents)
    assert [name for name, one in tables.items() if "extra" in one] == ["mxfp8"]


def test_words_of_included_files_may_stay_unread(documents):
    assert instances(with_(included_words=[{"UNREAD": 1}]), documents) == instances(TABLE, documents)


def test_a_table_says_words_of_its_own_in_the_place_of_included_ones(documents):
    others = [{"LENGTH": "K + 1"}, {"only": {"BLOCK": 16}, "EXTRA": "M"}]
    assert instances(with_(included_words=others), documents) == instances(TABLE, documents)
    twice = with_(included_words=[{"EXTRA": 1}, {"EXTRA": 2}])
    with pytest.raises(BuildError, match="words: 'EXTRA' is there twice for mxfp4"):
        read(twice, documents)


def test_a_table_for_no_formats_is_itself(documents):
    plain = {"name": "quantize.mxfp8.rows", "summary": "braces { stay }"}
    assert instances(plain, documents) == [plain]


MISTAKES = {
    "a word that one format lacks": (
        with_(summary="{LENGHT}"),
        r"'\{LENGHT\}': mxfp4 has no such word; did you mean LENGTH\?; it has BLOCK, LENGTH, PER_BYTE, elements, format, scale",
    ),
    "a word that nothing reads": (with_(words=[*TABLE["words"], {"EXTRA": 1}]), "words: nothing reads 'EXTRA' for mxfp4; remove it"),
    "a word twice": (with_(words=[*TABLE["words"], {"LENGTH": "K"}]), "words: 'LENGTH' is there twice for mxfp4"),
    "a word of the file again": (with_(words=[*TABLE["words"], {"BLOCK": 1}]), "words: 'BLOCK' is there twice for mxfp4"),
    "a word made of itself": (
        with_(words=[{"LENGTH": "{HALF}"}, {"HALF": "{LENGTH} // 2"}]),
        "words: 'LENGTH' is made of itself: LENGTH -> HALF -> LENGTH",
    ),
    "words without formats": ({"name": "plain", "words": []}, "'words' are for a table of several formats; add 'formats'"),
    "words that are no tables": (with_(words=["LENGTH"]), "'words' must be a list of tables, got"),
    "only for a word that no file has": (
        with_(tile={"only": {"scales": "f32"}}),
        r"'only': no file of common/formats has a word scales; did you mean scale\?",
    ),
    "only for what no file says": (with_(tile={"only": {"BLOCK": 31}}), "'only': BLOCK is never 31 in common/formats, only 32, 32, 16"),
    "except what no file says": (with_(tile={"except": {"scale": "f32"}}), "'except': scale is never 'f32' in common/formats"),
    "only for nothing": (with_(tile={"only": {}}), "'only' must be a table of words and what they are to be, got {}"),
    "a format named": (with_(tile={"only": ["mxfp8"]}), r"'only' must be a table of words and what they are to be, got \['mxfp8'\]"),
    "a folder that is not there": (with_(formats="common/format"), "formats: no file common/format/"),
    "formats in the table": (with_(formats={"mxfp8": {"BLOCK": 32}}), "'formats' must be a folder or"),
    "for no format at all": (
        with_(formats={"folder": "common/formats", "only": {"BLOCK": 16, "PER_BYTE": 1}}),
        "formats: none of mxfp4, mxfp8, nvfp4 is meant",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_refused(mistake, documents):
    table, words = MISTAKES[mistake]
    with pytest.raises(BuildError, match=words):
        instances(table, documents)
