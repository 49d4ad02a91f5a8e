"""An export of a stranger's manifest: every text in it is refused when it is read, or means nothing in any file that is written."""

import copy
import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.capi.entries import plain_entry
from tests.contract.entries import signed
from tests.recorder import ROOT, build, program
from tests.recorder.cubin import make_cubin
from zoo.capi.export import export
from zoo.capi.table import MOST_PLACES, kernel_tables
from zoo.contract.fields import LONGEST_TEXT
from zoo.contract.files import is_file_name
from zoo.contract.manifest import SCHEMA, Manifest, parse_kernel
from zoo.errors import ManifestError, ZooError

needs_make = pytest.mark.skipif(shutil.which("cc") is None or shutil.which("make") is None, reason="no C compiler or no make")

HAZARDS = {
    "a command": "$(touch pwned)",
    "a command in backticks": "`touch pwned`",
    "the end of a comment": "*/ int pwned; /*",
    "the beginning of a comment": "// pwned /* pwned",
    "a quote": '"; int pwned; "',
    "a single quote": "'; touch pwned; '",
    "a backslash at the end": "pwned\\",
    "a trigraph": "pwned??/",
    "a format": "%n %s %1000000000d pwned",
    "a word of the templates": "pwned @kernels@ @cubins@ @definitions@ @sources@ @manifest@",
    "a rule of make": "pwned: ; touch pwned",
    "a directive": "#include pwned",
    "a cell of a table": "pwned | pwned |",
    "HTML": "<script>pwned()</script> &lt;pwned",
    "a link": "[pwned](https://example.org) ![pwned](x)",
    "a list": "- pwned",
    "a numbered list": "1. pwned",
    "a fence": "~~~ pwned",
    "other letters": "pwn\u00e9d \u4e2d",
    "a line break": "pwned\n# pwned",
    "a carriage return": "pwned\rpwned",
    "a zero": "pwned\0",
    "a long text": "pwned" * 300,
    "nothing": "",
}


def entry_of(words: str = "plain") -> dict:
    entry = copy.deepcopy(plain_entry())
    entry |= {"fields": {"op": "quantize", "formats": "test"}, "summary": words, "promises": {"deterministic": True}}
    entry["options"] = {"mode": {"values": ["once", "twice"], "default": "once", "compiled": False, "help": words}}
    entry["derived"] = [["SIZE", "M * K"]]
    entry["constraints"] = [{"expression": "K % 4 == 0", "words": words}]
    for argument in entry["arguments"]:
        argument["help"] = words
    for variant in entry["variants"]:
        variant |= {"bytes": 1, "sha256": "0" * 64}
    return entry


def directory_of(folder, kernels: dict[str, dict]):
    """A cubin directory of entries, their cubins made up."""
    for entry in kernels.values():
        for variant in entry["variants"]:
            data = make_cubin(variant["symbol"], [(8, 8)] * 4, variant["arch"])
            variant |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            (folder / variant["file"]).parent.mkdir(parents=True, exist_ok=True)
            (folder / variant["file"]).write_bytes(data)
    manifest = {"schema": SCHEMA, "compiler": {}, "ptx": None, "kernels": kernels}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def exported(folder, kernels: dict[str, dict]) -> dict[str, str]:
    """What an export of a manifest with these entries writes: name -> text."""
    cubins = directory_of(folder / "cubins", kernels)
    export(folder / "package", Manifest(cubins / "manifest.json"), cubins, ["*"])
    return {path.relative_to(folder / "package").as_posix(): path.read_text("utf-8") for path in (folder / "package").rglob("*.*")} | {
        "Makefile": (folder / "package/Makefile").read_text()
    }


def places(value, path=()):
    """The path of every text in JSON, the keys of its tables included; of a list the first is enough."""
    if isinstance(value, str):
        yield path, "value"
    elif isinstance(value, dict):
        for key, one in value.items():
            yield (*path, key), "key"
            yield from places(one, (*path, key))
    elif isinstance(value, list):
        for index, one in enumerate(value[:1]):
            yield from places(one, (*path, index))


def with_text(entry: dict, path: tuple, what: str, text: str) -> dict:
    changed = copy.deepcopy(entry)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    if what == "value":
        inner[path[-1]] = text
    else:
        items = [(text if key == path[-1] else key, one) for key, one in inner.items()]
        inner.clear()
        inner.update(items)
    return changed


EXPRESSIONS = {"a list", "a long text"}  # minus a symbol, and one with a long name
_LITERAL = r'"(?:[^"\\\n]|\\.)*"'  # a text; what remains without them is code


def check_harmless(files: dict[str, str], plain: dict[str, str], same_code: bool):
    """Nothing but the texts of the tables and the words of the README may differ from an export of plain words."""
    assert files.keys() == plain.keys()
    for name in files.keys() - {"zoo_table.c", "README.md"}:
        assert files[name] == plain[name] and "pwned" not in files[name], name
    table = files["zoo_table.c"]
    assert "??" not in table and table.isascii()
    code, wanted = (re.sub(_LITERAL, "", text) for text in (table, plain["zoo_table.c"]))
    assert "pwn" not in code and (code == wanted or not same_code), "neither the code nor a comment is another"
    for line in files["README.md"].splitlines():
        if "pwn" in line:
            check_prose(line)


def check_prose(line: str):
    """Markdown in which no letter but those of the table itself means anything."""
    if line.startswith("|"):
        cells = re.split(r"(?<!\\)(?:\\\\)*\|", line)
        assert len(cells) == 6, line
        line = " ".join(cells)
    else:
        assert not re.match(r"\s*([-+=>#]|\d+[.)]|~~~)", line), line
    line = re.sub(r"`[^`\\]*`", "", line)  # names and shapes, which are of closed alphabets
    line = re.sub(r"\\[^\w\s]", "", line)
    assert not re.search(r"[|<>`*\[\]&~\\]", line), line


def test_every_text_of_a_manifest_is_refused_or_harmless(tmp_path, monkeypatch):
    """Each place in turn holds each hazard: names, words, expressions, files, symbols, options, dtypes, keys."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    entry = entry_of()
    plain = exported(tmp_path / "plain", {"quantize.test": entry})
    taken, tried = {}, 0
    for path, what in places(entry):
        for hazard, text in HAZARDS.items():
            if what == "value" and text == "":
                continue  # an empty text is one, where any is
            changed = with_text(entry, path, what, text)
            tried += 1
            try:
                parse_kernel("quantize.test", changed)
            except ManifestError:
                continue
            taken.setdefault((*path[:1], *path[-1:]), []).append(hazard)
            folder = tmp_path / str(tried)
            try:
                files = exported(folder, {"quantize.test": changed})
            except ZooError:
                continue
            check_harmless(files, plain, same_code=hazard not in EXPRESSIONS)
            shutil.rmtree(folder)
    assert tried > 1000
    free = {("summary", "summary"), ("arguments", "help"), ("options", "help"), ("constraints", "words"), ("variants", "name"), ("promises", "deterministic")}  # fmt: skip
    assert {place for place, hazards in taken.items() if set(hazards) != EXPRESSIONS} == free, "sentences are free, and nothing else is"
    refused = {"a line break", "a carriage return", "a zero", "a long text"}
    assert all(not refused & set(hazards) for place, hazards in taken.items() if place in free)
    assert all(len(hazards) >= len(HAZARDS) - len(refused) - 1 for place, hazards in taken.items() if place in free)


@pytest.mark.parametrize("hazard", [*HAZARDS.values(), "int main", "a*/b", "Quantize", "a-b"])
def test_a_kernel_is_named_by_words_of_a_closed_alphabet(tmp_path, hazard):
    """Its name stands in a comment of zoo_table.c and in a heading."""
    if "." in hazard:
        hazard = hazard.replace(".", ":")
    entry = entry_of() | {"fields": {"op": "quantize", "formats": hazard}}
    with pytest.raises(ManifestError):
        parse_kernel(f"quantize.{hazard}", entry)


KEYWORDS = (
    "int",
    "main",
    "while",
    "v0",
    "launch0",
    "names",
    "code",
    "arguments",
    "default",
    "return",
    "static",
    "a",
    "expressions",
    "zoo_open",
)


def keyword_kernels() -> dict[str, dict]:
    """Kernels, arguments, options, constants and symbols called as words of C, as the tables' own arrays, and longer than compilers tell apart."""
    long = [f"{'long_' * 40}{end}" for end in "ab"]
    kernels = {}
    for op in ("int", "main", long[0]):
        entry = entry_of()
        names = [*KEYWORDS, *long]
        entry["fields"] = {"op": op}
        entry["arguments"] = [
            {**entry["arguments"][0], "name": name, "dtypes": ["bf16", "f32"], "compiled": False, "forms": [{"when": "1", "shape": ["M"], "strides": None}]}
            for name in names
        ]  # fmt: skip
        entry["options"] = {
            f"{name}s": {"values": ["int", "main", "default", long[0], long[1]], "default": "int", "compiled": False, "help": ""}
            for name in ("int", "main", "v0", "launch0")
        }
        entry["launches"] = {"default": {**entry["launches"]["default"], "grid": ["M", "1", "1"], "parameters": [], "parameter_bytes": 0}}
        entry["derived"], entry["constraints"] = [["main_", "M * 2"]], []
        for variant in entry["variants"]:
            variant |= {
                "symbol": "main",
                "name": "int",
                "constants": {"while": 1, "int": 2, "main": 3},
                "file": f"{variant['arch']}/{op}.cubin",
            }
        kernels[op] = signed(entry)
    return kernels


@needs_make
def test_words_of_c_and_names_of_the_tables_are_names_like_others(tmp_path):
    """An argument called v0 once took the name of the first variant's array, and the tables did not compile."""
    exported(tmp_path, keyword_kernels())
    subprocess.run(["make", "-s", "-C", tmp_path / "package", "CFLAGS=-O0 -Werror"], check=True)


@needs_make
def test_a_package_of_all_hazards_builds_without_a_warning_and_says_them_as_they_are(tmp_path):
    """make, the compiler, the program and its printf meet every text that may stand in a manifest; none of them obeys one."""
    texts = [text for text in HAZARDS.values() if text.isprintable() and len(text) <= LONGEST_TEXT]
    words = " ".join(texts)
    assert len(words) <= LONGEST_TEXT and len(texts) == len(HAZARDS) - 4
    entry = entry_of(words)
    for variant in entry["variants"]:
        variant["name"] = words
    exported(tmp_path, {"quantize.test": entry})
    package = tmp_path / "package"
    said = subprocess.run(["make", "-C", package, "CFLAGS=-O0 -Werror"], check=True, capture_output=True, text=True)
    assert "warning" not in said.stderr
    (tmp_path / "driver").mkdir()
    run = program(build(tmp_path / "driver"), [package / "example"], check=False)
    assert words in run.stdout
    assert not list(tmp_path.rglob("pwned*")) and not (ROOT / "pwned").exists()


def test_the_longest_text_is_taken_and_one_longer_is_not():
    assert parse_kernel("quantize.test", entry_of("x" * LONGEST_TEXT)).summary == "x" * LONGEST_TEXT
    with pytest.raises(ManifestError, match="a text, of at most 1,000 characters"):
        parse_kernel("quantize.test", entry_of("x" * (LONGEST_TEXT + 1)))


def test_two_cubins_that_would_be_one_file_are_refused(tmp_path):
    entry = entry_of()
    one, other = entry["variants"]
    one["file"], other["file"] = "sm/a.cubin", "sm_a.cubin"
    with pytest.raises(ManifestError, match=r"the cubins sm/a\.cubin and sm_a\.cubin would both be cubins/sm_a\.c"):
        exported(tmp_path, {"quantize.test": entry})
    assert not (tmp_path / "package").exists()


@pytest.mark.parametrize("file", ["a.b.c.cubin", "x", "manifest.cubin", "9-9.cubin", "zoo_table.c", "_"])
def test_an_odd_name_of_a_cubin_is_a_file_of_the_package(tmp_path, file):
    entry = entry_of()
    entry["variants"] = entry["variants"][:1]
    entry["variants"][0]["file"] = f"odd/{file}"
    files = exported(tmp_path, {"quantize.test": entry})
    (source,) = (name for name in files if name.startswith("cubins/") and name.endswith(".c"))
    assert (
        is_file_name(source)
        and f"SOURCES = zoo.c zoo_table.c {source}\n" in files["Makefile"]
        and f"    {source})" in files["CMakeLists.txt"]
    )
    exported(tmp_path, {"quantize.test": entry})


def test_more_forms_or_variants_than_can_be_numbered_are_refused():
    kernel = parse_kernel("quantize.test", entry_of())
    files = {variant.file: 0 for variant in kernel.variants}
    first, *others = kernel.arguments.values()
    arguments = {"x": dataclasses.replace(first, forms=first.forms * (MOST_PLACES + 1))} | {one.name: one for one in others}
    with pytest.raises(ManifestError, match=r"quantize\.test: more than 65,535 forms of x"):
        kernel_tables(dataclasses.replace(kernel, arguments=arguments), kernel.variants, 0, 0, files)
    with pytest.raises(ManifestError, match=r"quantize\.test: more than 65,535 variants"):
        kernel_tables(kernel, kernel.variants[:1] * (MOST_PLACES + 1), 0, 0, files)
    with pytest.raises(ManifestError, match=r"quantize\.test: more than 65,535 derived symbols"):
        kernel_tables(dataclasses.replace(kernel, derived=kernel.derived * (MOST_PLACES + 1)), kernel.variants, 0, 0, files)


def test_a_locale_does_not_show_in_an_export(tmp_path):
    """Texts of other alphabets come out as UTF-8, also where the terminal knows ASCII only."""
    entry = entry_of(HAZARDS["other letters"])
    wanted = exported(tmp_path, {"quantize.test": entry})
    program = "import sys; from zoo.cli import main; main(sys.argv[1:])"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", program, "--cubins", tmp_path / "cubins", "export", tmp_path / "other"]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True)
    assert "\u4e2d" in wanted["README.md"]
    for name, text in wanted.items():
        assert (tmp_path / "other" / name).read_bytes() == text.encode(), name
