"""A manifest of a stranger: refused in words whatever it holds, in bounded time and memory, and nothing in it reaches a terminal or a shell."""

import copy
import dataclasses
import json
import os
from pathlib import Path

import pytest

from tests.hostile.bounded import bounded
from zoo.contract.expressions import Expression
from zoo.contract.files import is_file_name
from zoo.contract.manifest import Manifest
from zoo.errors import ManifestError

GOOD = Path(__file__).resolve().parents[1] / "zoo_cubins/manifest.json"
KERNEL = "gemm.fp8b128.dense"


def every_kernel(path):
    manifest = Manifest(path)
    return [manifest.kernel(name) for name in manifest.names]


def refusal(tmp_path, data) -> str:
    path = tmp_path / "manifest.json"
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    with pytest.raises(ManifestError) as caught:
        every_kernel(path)
    assert len(str(caught.value)) < 4000 and str(caught.value).isprintable()
    return str(caught.value)


def changed(change):
    data = json.loads(GOOD.read_text())
    change(data["kernels"][KERNEL])
    return data


TEXT = GOOD.read_bytes()
TEXTS = {
    "UTF-16": TEXT.decode().encode("utf-16"),
    "UTF-32": TEXT.decode().encode("utf-32"),
    "a byte order mark": b"\xef\xbb\xbf" + TEXT,
    "no text at all": b"\xff\xfe\x00" + TEXT,
    "NaN": TEXT.replace(b'"default": null', b'"default": NaN', 1),
    "Infinity": TEXT.replace(b'"default": null', b'"default": -Infinity', 1),
    "deep lists": b'{"schema": 6, "compiler": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "a number of 5000 digits": TEXT.replace(b'"bytes": ', b'"bytes": ' + b"1" * 5000, 1),
    "a key twice": TEXT.replace(b'"kernels": {', b'"kernels": {}, "kernels": {', 1),
    "a kernel twice": TEXT.replace(b'"kernels": {', b'"kernels": {"gemm.fp8b128.dense": {}, ', 1),
    "trailing": TEXT + b"{}",
    "nothing": b"",
    "many kernels": json.dumps({**json.loads(TEXT), "kernels": {f"quantize.{n}": {} for n in range(2000)}}).encode(),
}


@pytest.mark.parametrize("what", TEXTS)
def test_what_is_no_plain_json_is_refused(tmp_path, what):
    refusal(tmp_path, TEXTS[what])


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (b'"kernels": {', b'"kernels": {}, "kernels": {', "kernels"),
        (b'"schema": 6,', b'"schema": 6, "schema": 6,', "schema"),
        (b'"default": null', b'"default": null, "default": null', "default"),
    ],
)
def test_a_key_that_comes_twice_is_named_even_where_it_says_the_same_twice(tmp_path, old, new, key):
    assert old in TEXT
    assert f"the key '{key}' comes twice in one table" in refusal(tmp_path, TEXT.replace(old, new, 1))


@pytest.mark.parametrize("number", ["1e999", "-" + "9" * 400, str(2**63)])
def test_a_number_past_all_floats_is_no_default(tmp_path, number):
    """JSON spells 1e999, Python reads infinity; and 400 digits, of which Python makes no float."""
    data = json.dumps(changed(lambda entry: entry["arguments"].append(SCALAR | {"default": 1.5}))).replace("1.5", number)
    assert "a number of 64 bits" in refusal(tmp_path, data.encode())


SCALAR = {
    "name": "factor", "kind": "scalar", "dtypes": ["f32"], "compiled": True, "forms": [], "access": "read", "alignment": 4,
    "optional": False, "default": None, "help": "",
}  # fmt: skip

NAMES = ["../x.cubin", "/etc/passwd", "sm_90a/../../x", "$(id).cubin", "a*/b.cubin", "a\nb.cubin", "a b.cubin", ".hidden", "sm_90a/.x", "-rf",
         "sm_90a/-x", "a//b", "a/", "", ".", "..", "ö.cubin", "a\\b", "a:b", "a'b", 'a"b', "a;b", "a`b", "a#b", "a%b", "a\0b", "a\u202eb", "x" * 300]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_file_name_that_means_something_elsewhere_is_refused(tmp_path, name):
    assert not is_file_name(name)
    for change in (
        lambda entry: entry["variants"][0].update(file=name),
        lambda entry: entry.update(table=name),
        lambda entry: entry.update(source=name),
    ):
        assert "a path of letters" in refusal(tmp_path, changed(change))


@pytest.mark.parametrize("text", ["\x1b[2J", "two\nlines", "\u202e", "\ud800", "\x9b2J", "\x00"])
@pytest.mark.parametrize("key", ["summary", "help", "name", "words", "promise", "expression", "kernel"])
def test_no_text_that_a_terminal_would_obey(tmp_path, key, text):
    def change(entry):
        if key == "summary":
            entry["summary"] = text
        elif key == "help":
            entry["arguments"][0]["help"] = text
        elif key == "name":
            entry["variants"][0]["name"] = text
        elif key == "words":
            entry["constraints"].append({"expression": "1", "words": text})
        elif key == "expression":
            entry["constraints"].append({"expression": f"1 {text}", "words": ""})
        elif key == "promise":
            entry["promises"][text] = True

    data = changed(change)
    if key == "kernel":
        data["kernels"][text] = data["kernels"].pop(KERNEL)
    refusal(tmp_path, data)


def test_digits_and_letters_of_other_scripts_are_none(tmp_path):
    for text in ("\u0663", "\u00b2", "\u03b1", "M\u00a0+ 1"):
        refusal(tmp_path, changed(lambda entry, text=text: entry["constraints"].append({"expression": text, "words": ""})))


def flags(count: int) -> dict:
    return {f"o{index}": {"values": ["a", "b"], "default": "a", "compiled": False, "help": ""} for index in range(count)}


def with_flags(entry, count: int, condition: str):
    entry["options"] |= flags(count)
    entry["arguments"][0]["forms"][0]["when"] = condition


def all_of(count: int) -> str:
    return " and ".join(f"(o{index}.a or o{index}.b)" for index in range(count))


def test_4096_combinations_of_flags_are_tried_and_no_more(tmp_path):
    short = "1 or " + " + ".join(f"o{index}.a" for index in range(12))
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(changed(lambda entry: with_flags(entry, 12, short))))
    assert Manifest(path).kernel(KERNEL)
    more = "1 or " + " + ".join(f"o{index}.a" for index in range(13))
    assert "8192 combinations of flags, expected at most 4096" in refusal(tmp_path, changed(lambda entry: with_flags(entry, 13, more)))


def test_conditions_that_take_long_to_try_are_refused(tmp_path):
    assert "steps to try" in refusal(tmp_path, changed(lambda entry: with_flags(entry, 12, all_of(12))))


def test_more_arguments_than_a_kernel_may_have_are_refused(tmp_path):
    many = [SCALAR | {"name": f"factor{index}", "default": 1.0} for index in range(64)]
    assert "expected at most 64" in refusal(tmp_path, changed(lambda entry: entry["arguments"].extend(many)))


def test_a_manifest_of_gigabytes_is_not_read(tmp_path):
    with open(tmp_path / "manifest.json", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ManifestError, match="more than the"):
        Manifest(tmp_path / "manifest.json")


def test_a_pipe_in_place_of_a_manifest_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(ManifestError, match="no regular file"):
        Manifest(tmp_path / "manifest.json")


def test_a_manifest_full_of_lists_costs_little(tmp_path):
    (tmp_path / "manifest.json").write_bytes(b'{"schema": 6, "compiler": {"a": [' + b"[]," * (4 << 20) + b"[]]}, \n")
    bounded(
        """
        from pathlib import Path
        from zoo.contract.manifest import Manifest
        from zoo.errors import ManifestError
        try:
            Manifest(Path(sys.argv[1]))
            sys.exit("taken")
        except ManifestError:
            pass
        """,
        tmp_path / "manifest.json",
        megabytes=1500,
    )


def test_more_than_the_c_library_can_number_is_refused():
    """Places are 16 bits: one more, and the first would stand for the last, or for none."""
    from zoo.capi.table import MOST_EXPRESSIONS, MOST_PLACES, kernel_tables

    kernel = Manifest(GOOD).kernel(KERNEL)
    files = {variant.file: 0 for variant in kernel.variants}

    def tables(constraints) -> str:
        return kernel_tables(dataclasses.replace(kernel, constraints=tuple(constraints)), kernel.variants, 0, 0, files)[0]

    def numbered(text: str):
        one = copy.copy(Expression("M >= 1"))
        one.text = text
        return one, ""

    few = tables([numbered("a")])
    others = few[few.index("zoo_expression k0_expressions") :].count("_code + ") - 1
    many = [numbered(f"a{number}") for number in range(MOST_EXPRESSIONS - others + 1)]
    assert tables(many[:-1]).count("k0_code + ") == MOST_EXPRESSIONS
    with pytest.raises(ManifestError, match=f"{KERNEL}: more than 65,535 expressions"):
        tables(many)
    tables(many[:1] * MOST_PLACES)
    with pytest.raises(ManifestError, match=f"{KERNEL}: more than 65,535 constraints"):
        tables(many[:1] * (MOST_PLACES + 1))
