"""The rooms of src_cu: which headers a room may include, how many files a kernel is made of, and how many private words the GEMMs have."""

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src_cu"
INCLUDED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
SHARED_BY_GEMMS = ("gemm/schedule/", "gemm/epilogue/")
GEMMS = tuple(f"{room.relative_to(SOURCES).as_posix()}/" for room in (SOURCES / "gemm").iterdir() if (room / "kernels").is_dir())
OTHERS = tuple(f"{room.name}/" for room in SOURCES.iterdir() if (room / "kernels").is_dir())
MAY_INCLUDE = {
    "common/": (),
    **dict.fromkeys(SHARED_BY_GEMMS, SHARED_BY_GEMMS),
    **dict.fromkeys(GEMMS, SHARED_BY_GEMMS),
    **dict.fromkeys(OTHERS, ()),
    "norm/": ("quantize/rows/",),  # which quantises the rows that it makes
    "quantize/": ("gemm/epilogue/activation.cuh",),  # fp8token quantisers apply the activation that a GEMM's epilogue applies elsewhere
}
KERNELS = sorted(path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("kernels/*.cu"))
GROUPED = ("group", "gather", "workspace")
GLOSSARY = SOURCES / "gemm/README.md"
GATED = ("swiglu", "gated", "epilogues")  # names of sources whose epilogue has an activation or a quantiser


def includes(name: str) -> list[str]:
    return [one for one in INCLUDED.findall((SOURCES / name).read_text()) if (SOURCES / one).is_file()]


def files_of(source: str) -> set[str]:
    """The files of a kernel without those of common/, which wrap instructions of the hardware."""
    found, left = set(), [source]
    while left:
        name = left.pop()
        if name not in found and not name.startswith("common/"):
            found.add(name)
            left += includes(name)
    return found


def test_every_source_belongs_to_a_room():
    names = [path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.cu*")]
    assert names and [name for name in names if not name.startswith(tuple(MAY_INCLUDE))] == []


@pytest.mark.parametrize("room", MAY_INCLUDE)
def test_a_room_includes_its_own_headers_and_shared_ones(room):
    allowed = ("common/", room, *MAY_INCLUDE[room])
    for path in (SOURCES / room).rglob("*.cu*"):
        assert [name for name in INCLUDED.findall(path.read_text()) if not name.startswith(allowed)] == [], path


@pytest.mark.parametrize("room", SHARED_BY_GEMMS)
def test_several_families_include_a_shared_header(room):
    families = [set().union(*(files_of(kernel) for kernel in KERNELS if kernel.startswith(family))) for family in GEMMS]
    for path in (SOURCES / room).iterdir():
        name = path.relative_to(SOURCES).as_posix()
        assert sum(name in files for files in families) > 1, name


@pytest.mark.parametrize("source", KERNELS)
def test_a_kernel_has_few_files(source):
    files = files_of(source)
    most = 18 if any(word in source for word in GATED) else 14 if any(word in source for word in GROUPED) else 12
    assert len(files) <= most, sorted(files)


@pytest.mark.parametrize("source", KERNELS)
def test_the_head_of_a_kernel_lists_its_headers(source):
    """The list tells a reader in which order to read."""
    text = (SOURCES / source).read_text()
    head = text[: text.index("#include")]
    own = [Path(one).name for one in includes(source) if not one.startswith("common/")]
    assert [name for name in own if name not in head] == []


def words_of_the_glossary() -> list[str]:
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", GLOSSARY.read_text().partition("## Glossary")[2], re.MULTILINE)
    assert rows[0] == "word"
    return [word for row in rows[1:] for word in row.split(", ")]


def test_the_glossary_explains_at_most_40_words_once():
    words = words_of_the_glossary()
    assert 0 < len(words) <= 40
    assert len(set(words)) == len(words)


def test_the_glossary_has_no_word_that_sources_do_not_use():
    used = " ".join(path.read_text() for path in (SOURCES / "gemm").rglob("*.*") if path.suffix != ".md").lower()
    assert [word for word in words_of_the_glossary() if not re.search(rf"\b{re.escape(word.lower())}", used)] == []
