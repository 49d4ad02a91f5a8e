"""A cubin that was crafted to be expensive is refused in time and memory in proportion to its length."""

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hostile.bounded import bounded
from tests.hostile.elf import GLOBAL_FUNCTION, SYMBOL, Section, changed, cubin_of, sections_of
from zoo.errors import IntegrityError
from zoo.shipped.cubin_file import read_cubin
from zoo.shipped.integrity import verify_integrity

GOOD = min((Path(__file__).resolve().parents[1] / "zoo_cubins").glob("*/*.cubin"), key=os.path.getsize).read_bytes()
SECTIONS = sections_of(GOOD)


def symbols(offsets, info=0) -> bytes:
    return b"".join(SYMBOL.pack(offset, info, 0, 0, 0, 0) for offset in offsets)


def overlapping_names() -> bytes:
    """40,000 symbols, each with a name that is the rest of one megabyte."""
    strings = b"\0" + b"a" * (1 << 20) + b"\0"
    return cubin_of(changed(SECTIONS, strtab=strings, symtab=symbols(range(1, 40_001))), GOOD)


def overlapping_short_names() -> bytes:
    """A million symbols whose names share their ends: a gigabyte of names in a file of 25 MB."""
    strings = b"\0" + (b"a" * 1000 + b"\0")
    return cubin_of(changed(SECTIONS, strtab=strings, symtab=symbols([1] * 1_000_000)), GOOD)


def many_kernels() -> bytes:
    """30,000 kernels, each looked for among all that came before it."""
    names = [b"k%05d" % index for index in range(30_000)]
    strings = b"\0" + b"".join(name + b"\0" for name in names)
    table = symbols(range(1, 1 + 7 * len(names), 7), GLOBAL_FUNCTION)
    extra = [Section(b".nv.info." + name, 0x70000000, b"") for name in names]
    return cubin_of([*changed(SECTIONS, strtab=strings, symtab=table), *extra], GOOD)


def one_section_named_often() -> bytes:
    """20,000 kernels whose attributes are the same half megabyte."""
    names = [b"k%05d" % index for index in range(20_000)]
    strings = b"\0" + b"".join(name + b"\0" for name in names)
    table = symbols(range(1, 1 + 7 * len(names), 7), GLOBAL_FUNCTION)
    records = b"".join(
        b"\x04" + bytes([attribute]) + b"\x08\0" + index.to_bytes(4, "little") + bytes(4)
        for index in range(20_000)
        for attribute in (0x11, 0x12, 0x2F)
    )
    attributes = b"\x01\x01\0\0" * (1 << 17)
    extra = [Section(b".nv.info." + name, 0x70000000, attributes) for name in names]
    return cubin_of([*changed(SECTIONS, strtab=strings, symtab=table, nv_info=records), *extra], GOOD, share=True)


def test_a_cubin_taken_apart_and_put_together_reads_as_before():
    """What the attacks below change is all that is wrong with them."""
    assert read_cubin(cubin_of(SECTIONS, GOOD)) == read_cubin(GOOD)


@pytest.mark.parametrize("crafted", [overlapping_names, overlapping_short_names, many_kernels, one_section_named_often])
def test_a_crafted_cubin_is_refused_in_little_time_and_memory(tmp_path, crafted):
    (tmp_path / "crafted").write_bytes(crafted())
    said = bounded(
        """
        from zoo.errors import IntegrityError
        from zoo.shipped.cubin_file import read_cubin
        data = open(sys.argv[1], "rb").read()
        before = resource.getrusage(resource.RUSAGE_SELF)
        try:
            read_cubin(data)
        except IntegrityError as error:
            print(error)
        after = resource.getrusage(resource.RUSAGE_SELF)
        assert after.ru_utime - before.ru_utime < 2, after
        assert after.ru_maxrss - before.ru_maxrss < 80 << 10, after
        """,
        tmp_path / "crafted",
    )
    assert "malformed cubin" in said


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (lambda: [*SECTIONS, Section(b".a" * 600, 1, b"")], "zero-terminated before"),
        (lambda: [*SECTIONS, Section(b".\x1b[2J", 1, b"")], "printable"),
        (lambda: [*SECTIONS, Section(b".tab\t", 1, b"")], "printable"),
    ],
    ids=["long", "escape", "tab"],
)
def test_a_name_for_the_terminal_is_refused(sections, words):
    with pytest.raises(IntegrityError, match=words):
        read_cubin(cubin_of(sections(), GOOD))


@pytest.mark.parametrize(("attribute", "field"), [(0x05, "max_threads"), (0x10, "required_threads"), (0x3D, "cluster")])
def test_bounds_that_the_compiler_noted_are_read(attribute, field):
    """What a kernel was compiled for must not be passed over: the launch is held to it."""
    (name,) = read_cubin(GOOD).kernels
    info = next(section for section in SECTIONS if section.name == f".nv.info.{name}".encode())
    noted = b"\x04" + bytes([attribute]) + b"\x0c\0" + struct.pack("<3I", 4, 2, 1)
    others = [section if section is not info else replace(info, data=info.data + noted) for section in SECTIONS]
    assert getattr(read_cubin(cubin_of(others, GOOD)).kernels[name], field) == (4, 2, 1)


def test_two_kernels_of_one_name_are_refused():
    table = next(section for section in SECTIONS if section.name == b".symtab").data
    entries = [table[at : at + SYMBOL.size] for at in range(0, len(table), SYMBOL.size)]
    kernels = [entry for entry in entries if entry[4] == GLOBAL_FUNCTION]
    with pytest.raises(IntegrityError, match="found a second"):
        read_cubin(cubin_of(changed(SECTIONS, symtab=table + kernels[0]), GOOD))


def test_a_name_has_at_most_1024_characters():
    assert read_cubin(cubin_of([*SECTIONS, Section(b"." + b"a" * 1023, 1, b"")], GOOD))
    with pytest.raises(IntegrityError, match="zero-terminated before"):
        read_cubin(cubin_of([*SECTIONS, Section(b"." + b"a" * 1024, 1, b"")], GOOD))


def test_a_command_line_has_at_most_65536_characters():
    (tool,) = (section.data for section in SECTIONS if section.name == b".note.nv.tkinfo")
    start = tool.rindex(b"\0", 0, tool.index(b"-arch")) + 1
    end = tool.index(b"\0", start)
    for length in (1 << 16, (1 << 16) + 1):
        padded = tool[:end] + b" " * (length - (end - start)) + tool[end:]
        size = int.from_bytes(tool[4:8], "little") + len(padded) - len(tool)
        data = cubin_of(changed(SECTIONS, note_nv_tkinfo=padded[:4] + size.to_bytes(4, "little") + padded[8:]), GOOD)
        if length == 1 << 16:
            assert read_cubin(data) == read_cubin(GOOD)
        else:
            with pytest.raises(IntegrityError, match="command line, zero-terminated"):
                read_cubin(data)


def test_overlapping_sections_are_refused():
    shared = [*SECTIONS, Section(b".one", 1, b"the same"), Section(b".two", 1, b"the same")]
    assert read_cubin(cubin_of(shared, GOOD))
    with pytest.raises(IntegrityError, match="do not overlap"):
        read_cubin(cubin_of(shared, GOOD, share=True))


def test_an_sm_number_of_5000_digits_is_refused_in_words():
    """Python refuses to make such a number, by an error of its own."""
    (tool,) = (section.data for section in SECTIONS if section.name == b".note.nv.tkinfo")
    start = tool.index(b"-arch") + 5
    end = start + len(tool[start:].split(b"\0")[0].split(b" ")[1]) + 1
    long = tool[:start] + b"=sm_" + b"9" * 5000 + tool[end:]
    grown = int.from_bytes(tool[4:8], "little") + len(long) - len(tool)
    long = long[:4] + grown.to_bytes(4, "little") + long[8:]
    with pytest.raises(IntegrityError, match="expected"):
        read_cubin(cubin_of(changed(SECTIONS, note_nv_tkinfo=long), GOOD))


@pytest.mark.parametrize("kind", ["pipe", "device", "hole"])
def test_a_file_that_never_ends_in_place_of_a_cubin_is_not_read(tmp_path, kind):
    import shutil

    from zoo.contract.manifest import Manifest

    folder = shutil.copytree(Path(__file__).resolve().parents[1] / "zoo_cubins", tmp_path / "zoo")
    victim = sorted(folder.glob("*/*.cubin"))[0]
    victim.unlink()
    if kind == "pipe":
        os.mkfifo(victim)
    elif kind == "device":
        victim.symlink_to("/dev/zero")
    else:
        with open(victim, "wb") as file:
            file.truncate(1 << 40)
    problems = [result for result in verify_integrity(folder, Manifest(folder / "manifest.json")) if result.problem]
    assert [result.file for result in problems] == [victim.relative_to(folder).as_posix()]
    assert "cannot be read" in problems[0].problem
