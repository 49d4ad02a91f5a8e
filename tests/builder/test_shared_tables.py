"""What tables say, they say once: no copied stretch of lines, no piece or word that nobody reads."""

import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from tools.builder import BuildError
from tools.builder.costs import with_costs
from tools.builder.documents import Documents
from tools.builder.include import KINDS, included
from tools.builder.per_format import instances
from tools.builder.sections import sections
from tools.builder.signature import Enums, signature
from zoo.contract.fields import Malformed

ROOT = Path(__file__).resolve().parents[2] / "src_cu"
FILES = sorted(ROOT.rglob("*.toml"))
TESTS = ROOT.parent / "tests" / "zoo_src"  # a zoo of the tests' own, held to the same
WINDOW = 6
SCREEN = 160  # characters


def lines_that_say_something(path: Path) -> list[str]:
    lines = (line.partition(" #")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def repeated(texts: dict[str, list[str]]) -> list[str]:
    """Where six lines stand that stand elsewhere, too."""
    places: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, lines in texts.items():
        for at in range(len(lines) - WINDOW + 1):
            places[tuple(lines[at : at + WINDOW])].append(f"{name}: {lines[at]}")
    return [place for found in places.values() if len(found) > 1 for place in found]


def test_no_six_lines_stand_in_two_places():
    files = [*FILES, *sorted(TESTS.rglob("*.toml"))]
    assert len(files) > len(FILES)
    assert repeated({path.relative_to(ROOT.parent).as_posix(): lines_that_say_something(path) for path in files}) == []


def test_a_copy_of_six_lines_is_seen_wherever_it_stands_and_five_are_not():
    stretch = [f"line = {index}" for index in range(WINDOW)]
    assert repeated({"a": ["first", *stretch], "b": [*stretch, "last"]}) == ["a: line = 0", "b: line = 0"]
    assert repeated({"a": [*stretch, "between", *stretch]}) == ["a: line = 0", "a: line = 0"]
    assert repeated({"a": stretch[:-1], "b": stretch[:-1]}) == []


def test_no_line_of_a_table_runs_past_a_screen():
    files = [*FILES, *sorted(TESTS.rglob("*.toml"))]
    longest = [f"{path.name}:{at}" for path in files for at, line in enumerate(path.read_text().splitlines(), 1) if len(line) > SCREEN]
    assert longest == []


def folder_of(table: dict) -> str:
    formats = table.get("formats", "")
    return formats if isinstance(formats, str) else formats["folder"]


# A file holds one table, or one for each grouping.
TABLES = {path.relative_to(ROOT).as_posix(): sections(tomllib.loads(path.read_text())) for path in sorted(ROOT.glob("**/tables/*.toml"))}
EVERY = [table for tables in TABLES.values() for table in tables]
INCLUDED = sorted({name for table in EVERY for name in table.get("include", [])})
FOLDERS = sorted({folder_of(table) for table in EVERY} - {""})


GPUS = sorted({tile["costs"] for table in EVERY for tile in included(table, Documents(ROOT)).table["variants"]["tiles"] if "costs" in tile})
COSTS = {*GPUS, *(Documents(ROOT).read(name)["formulas"] for name in GPUS)}  # test_measured_costs.py asks who reads what of them


class Without(Documents):
    """The files as they are, but for one piece or word."""

    def __init__(self, name: str, changed: dict):
        super().__init__(ROOT)
        self._read[name] = changed


def readers(name: str) -> list[str]:
    """The tables that read the file."""
    folder = name.rpartition("/")[0]
    return [file for file, tables in TABLES.items() if any(name in one.get("include", []) or folder_of(one) == folder for one in tables)]


def kernels(file: str, documents: Documents) -> list[object]:
    """The kernels of a file, with the parameters of each launch and the constants of each tile."""
    found: list[object] = []
    for table in TABLES[file]:
        for one in instances(with_costs(included(table, documents).table, documents), documents):
            enums = Enums.of(one["enum"])
            found.append(one["name"])
            found += [signature(launch["signature"], one["signature"], enums).parameters for launch in one["launch"].values()]
            found += [
                {name: enums.number(name, value) for name, value in tile.get("constants", {}).items()} for tile in one["variants"]["tiles"]
            ]
    return found


def somebody_misses(name: str, changed: dict) -> bool:
    """Whether a table cannot be read, or stands for other kernels, once the file is so."""
    documents = Without(name, changed)
    try:
        return any(kernels(table, documents) != ALL[table] for table in readers(name))
    except (BuildError, Malformed):
        return True


ALL = {table: kernels(table, Documents(ROOT)) for table in TABLES}


def test_every_file_of_pieces_is_included_by_some_table():
    others = {name.relative_to(ROOT).as_posix() for name in FILES} - TABLES.keys()
    assert others == {*INCLUDED, *COSTS, *(f"{folder}/{name}.toml" for folder in FOLDERS for name in Documents(ROOT).folder(folder))}


@pytest.mark.parametrize("name", INCLUDED)
def test_some_table_uses_every_piece_and_word_of_an_included_file(name):
    document = tomllib.loads((ROOT / name).read_text())
    unread = []
    for kind in document.keys() & set(KINDS):
        for piece in document[kind]:
            changed = document | {kind: {other: value for other, value in document[kind].items() if other != piece}}
            if not somebody_misses(name, changed):
                unread.append(f"{kind}.{piece}")
    for word in {word for case in document.get("words", []) for word in case} - {"only", "except"}:
        cases = [{key: value for key, value in case.items() if key != word} for case in document["words"]]
        if not somebody_misses(name, document | {"words": cases}):
            unread.append(word)
    assert unread == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_some_table_reads_every_word_of_a_format(folder):
    files = Documents(ROOT).folder(folder)
    unread = []
    for format, words in files.items():
        for word in words:
            if not somebody_misses(f"{folder}/{format}.toml", {name: value for name, value in words.items() if name != word}):
                unread.append(f"{format}: {word}")
    assert unread == []
