"""Cubins made to order: every record is read from its place and to its last bit, and what is one too short or too many is refused there."""

import re
import struct
from pathlib import Path

import pytest

from tests.hostile.elf import GLOBAL_FUNCTION, HEADER, SECTION, SYMBOL, Section, changed, cubin_of
from tests.hostile.test_crafted_cubins import GOOD, SECTIONS
from zoo.errors import IntegrityError
from zoo.shipped.cubin_file import CubinParameter, read_cubin

INFO = 0x70000000
# Each refusal with its offset, as somebody read them beside the bytes; `python -m tests.integrity.test_cubin_file_edges` writes them anew.
SAID = Path(__file__).parent / "cubin_refusals.txt"


def words(attribute, *numbers):
    return struct.pack("<BBH", 4, attribute, 4 * len(numbers)) + struct.pack(f"<{len(numbers)}I", *numbers)


def value(attribute, number, form=3):
    return struct.pack("<BBH", form, attribute, number)


def functions(*rows):
    """`.nv.info` of (symbol number, frame, stack, registers)."""
    return b"".join(words(0x11, n, frame) + words(0x12, n, stack) + words(0x2F, n, registers) for n, frame, stack, registers in rows)


def note(version=b"V13\0", command=b"ptxas -arch sm_90a -O3\0", kind=2000, arch_words=None, name=b"NVIDIA\0\0"):
    texts = version + command
    body = struct.pack("<6I", 9, 8, 7, 0, 5, len(version)) + texts
    return struct.pack("<III", len(name.rstrip(b"\0")) + 1, len(body), kind) + name + body


SPECIFIC = value(9, 1, 2)  # of one arch


def sections(one=b"", two=b"", shared=(), names=b"\0one\0two\0other\0", table=None, compat=SPECIFIC, tool=None, info=None):
    """A cubin's own, with two kernels: symbols 1 and 3; symbol 2 is a function without records of its own, 4 a local one."""
    wanted = (b".note.nv.tkinfo", b".strtab", b".symtab", b".nv.compat", b".nv.info")
    kept = [section for section in SECTIONS if section.name in wanted]
    symbols = [(0, 0), (1, GLOBAL_FUNCTION), (9, GLOBAL_FUNCTION), (5, GLOBAL_FUNCTION), (1, 2)]
    table = b"".join(SYMBOL.pack(at, kind, 0, 0, 0, 0) for at, kind in symbols) if table is None else table
    rows = functions((1, 16, 24, 40), (3, 32, 8, 255)) if info is None else info
    kept = changed(kept, note_nv_tkinfo=note() if tool is None else tool, strtab=names, symtab=table, nv_compat=compat, nv_info=rows)
    return [*kept, Section(b".nv.info.one", INFO, one), Section(b".nv.info.two", INFO, two), *shared]


def made(flags=0x06005A04, **parts):
    like = bytearray(GOOD)
    like[48:52] = struct.pack("<I", flags)
    return cubin_of(sections(**parts), bytes(like))


def test_each_record_is_read_from_its_place():
    parameters = words(0x17, 7, 0x00100001, 12 << 18 | 0x1F000) + words(0x45, 9, 0x00080000, 1 << 20) + words(0x17, 7, 0x001C0002, 4 << 18)
    one = (
        parameters + value(0x19, 0x1100, 3) + words(0x0A, 5, 0xABCD0380) + words(0x05, 256, 2, 3) + words(0x3D, 2, 4, 1) + value(0x77, 1, 1)
    )
    two = words(0x10, 64, 1, 1) + words(0x05, 128, 1, 1) + b"\x04\x66\x05\0hello"
    data = made(one=one.replace(words(0x45, 9, 0x00080000, 1 << 20), words(0x45, 9, 0x00080000, 8)), two=two,
                shared=(Section(b".nv.shared.one", 8, bytes(1024 + 48)), Section(b".nv.shared.two", 8, bytes(1024))))  # fmt: skip
    cubin = read_cubin(data)
    assert (cubin.arch, cubin.compiler, list(cubin.kernels)) == ("sm_90a", "V13", ["one", "two"])
    first, second = cubin.kernels.values()
    assert (first.symbol, first.registers, first.stack, first.static_shared) == ("one", 40, 24, 48)
    assert first.parameters == (CubinParameter(8, 8), CubinParameter(16, 12), CubinParameter(28, 4))
    assert (first.parameter_base, first.parameter_bytes) == (0x380, 0x1100)
    assert (first.max_threads, first.required_threads, first.cluster, first.threads) == ((256, 2, 3), None, (2, 4, 1), (256, 2, 3))
    assert (second.symbol, second.registers, second.stack, second.static_shared) == ("two", 255, 32, 0)
    assert (second.parameters, second.parameter_base, second.parameter_bytes, second.cluster) == ((), 0, 0, None)
    assert (second.max_threads, second.required_threads, second.threads) == ((128, 1, 1), (64, 1, 1), (64, 1, 1))


@pytest.mark.parametrize(
    ("command", "flags", "compat", "arch"),
    [
        (b"-arch sm_90a\0", 0x5A00, value(9, 1, 2), "sm_90a"),
        (b"-O3 -arch=sm_100f -v\0", 0x6400, value(9, 0, 2), "sm_100f"),
        (b"x -arch sm_9\0", 0x0900, value(8, 1, 2), "sm_9"),
        (b"-arch sm_120\0", 0xFF007800, b"", "sm_120"),
        (b"-arch sm_90a\0", 0x5A00, value(1, 0) + value(9, 0x101, 2) + value(2, 0), "sm_90a"),
    ],
)
def test_the_arch_is_what_the_compiler_was_asked_for_and_the_flags_say(command, flags, compat, arch):
    assert read_cubin(made(flags, tool=note(command=command), compat=compat)).arch == arch


NAMES_OF_1024 = b"\0one\0two\0" + b"n" * 1024 + b"\0"
TAKEN = {
    "a parameter that ends the block": dict(one=words(0x45, 0, 0, 8) + value(0x19, 8)),
    "a name of 1024 letters": dict(names=NAMES_OF_1024),
    "a command line of 65,536 letters": dict(tool=note(command=b"-arch sm_90a".ljust(1 << 16) + b"\0")),
    "a name in a note of six letters": dict(tool=note(name=b"NVIDI\0\0\0")),
    "no compiler's version": dict(tool=note(version=b"\0")),
    "nothing after an attribute": dict(one=value(0x19, 0)),
}  # fmt: skip
REFUSED = {
    "a parameter past the block": (dict(one=words(0x45, 0, 0, 9) + value(0x19, 8)), "parameter 0 inside the block's 8 bytes"),
    "a parameter that is missing": (dict(one=words(0x45, 0, 1, 8) + value(0x19, 8)), "parameters 0 to 0, found [1]"),
    "a parameter twice": (dict(one=2 * words(0x45, 0, 0, 8) + value(0x19, 8)), "one parameter 0, found a second"),
    "a parameter of four words": (dict(one=words(0x45, 0, 0, 8, 0)), "12 bytes of attribute 0x45, found 16"),
    "bounds of two words": (dict(one=words(0x05, 1, 1)), "12 bytes of attribute 0x5, found 8"),
    "a bank of one word": (dict(one=words(0x0A, 1)), "8 bytes of attribute 0xa, found 4"),
    "three bytes of an attribute": (dict(one=value(0x19, 8) + b"\x03\x19\0"), "an attribute of 4 bytes before"),
    "an attribute of no form": (dict(one=value(0x19, 8, 5)), "an attribute format of 1 to 4, found 5"),
    "an attribute of form 0": (dict(one=value(0x19, 8, 0)), "an attribute format of 1 to 4, found 0"),
    "an attribute past its section": (dict(one=words(0x3D, 1, 1, 1)[:-1]), "12 bytes of attribute 0x3d before"),
    "no registers": (dict(info=functions((3, 1, 1, 1)) + words(0x11, 1, 0) + words(0x12, 1, 0)), "attribute 0x2f of the kernel one"),
    "no frame": (dict(info=functions((3, 1, 1, 1)) + words(0x12, 1, 0) + words(0x2F, 1, 0)), "attribute 0x11 of the kernel one"),
    "no stack": (dict(info=functions((1, 1, 1, 1)) + words(0x11, 3, 0) + words(0x2F, 3, 0)), "attribute 0x12 of the kernel two"),
    "registers of three words": (dict(info=words(0x2F, 1, 2, 3)), "8 bytes of attribute 0x2f, found 12"),
    "a name of 1025 letters": (dict(names=NAMES_OF_1024.replace(b"nn", b"nnn", 1)), "the name of symbol 2, zero-terminated before"),
    "a command line of 65,537 letters": (dict(tool=note(command=b"-arch sm_90a".ljust((1 << 16) + 1) + b"\0")), "the compiler's command line, zero-terminated"),
    "a name without an end": (dict(names=b"\0one\0two\0other"), "the name of symbol 2, zero-terminated before"),
    "a name that no terminal prints": (dict(names=b"\0one\0two\0ot\x1ber\0"), "the name of symbol 2 in printable ASCII"),
    "a name in another alphabet": (dict(names=b"\0one\0two\0ot\xe9er\0"), "the name of symbol 2 in printable ASCII"),
    "a kernel twice": (dict(table=b"".join(SYMBOL.pack(at, GLOBAL_FUNCTION, 0, 0, 0, 0) for at in (1, 5, 1))), "one kernel named one, found a second"),
    "half a symbol": (dict(table=bytes(SYMBOL.size + 12)), "a symbol table of entries of 24 bytes"),
    "a note of another type": (dict(tool=note(kind=2001)), "a note of type 2000 inside"),
    "a note past its section": (dict(tool=note()[:-1]), "a note of type 2000 inside"),
    "a note of 23 bytes": (dict(tool=struct.pack("<III", 4, 23, 2000) + bytes(40)), "found type 2000, 0x17 bytes"),
    "no arch": (dict(tool=note(command=b"ptxas -O3\0")), "a command line with '-arch sm_90', as e_flags say, found 'ptxas -O3'"),
    "another arch": (dict(flags=0x5B00), "a command line with '-arch sm_91', as e_flags say"),
    "an arch within a word": (dict(tool=note(command=b"x-arch sm_90a\0")), "a command line with '-arch sm_90'"),
    "an arch that goes on": (dict(tool=note(command=b"-arch sm_90ab\0")), "a command line with '-arch sm_90'"),
    "a class that is none": (dict(compat=value(9, 0, 2)), "the feature class of sm_90a"),
    "a class that is not asked for": (dict(tool=note(command=b"-arch sm_90\0")), "the feature class of sm_90"),
    "too little shared memory": (dict(shared=(Section(b".nv.shared.one", 8, bytes(1023)),)), ".nv.shared.one of at least 1024 bytes, found 1023"),
    "a section twice": (dict(shared=(Section(b".nv.info.two", INFO, b""),)), "one section named .nv.info.two, found a second"),
}  # fmt: skip


@pytest.mark.parametrize("what", TAKEN)
def test_what_is_just_right_is_read(what):
    assert set(read_cubin(made(**TAKEN[what])).kernels) == {"one", "two"}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_just_wrong_is_refused_in_its_words(what):
    parts, words_ = REFUSED[what]
    with pytest.raises(IntegrityError) as refusal:
        read_cubin(made(**parts))
    assert words_ in str(refusal.value) and f"{what}: {refusal.value}" in SAID.read_text().splitlines()


@pytest.mark.parametrize("name", [".nv.info", ".nv.compat", ".symtab", ".strtab", ".note.nv.tkinfo"])
def test_a_section_that_is_missing_or_empty_of_contents_is_named(name):
    rest = [section for section in sections() if section.name != name.encode()]
    with pytest.raises(IntegrityError, match=f"a section named {re.escape(name)}"):
        read_cubin(cubin_of(rest, GOOD))
    with pytest.raises(IntegrityError, match=f"the section {re.escape(name)} to have contents"):
        read_cubin(cubin_of([*rest, Section(name.encode(), 8, bytes(8))], GOOD))


def header(data, **fields):
    names = (
        "class",
        "order",
        "osabi",
        "abi",
        "machine",
        "segments_at",
        "header_bytes",
        "segment_bytes",
        "segments",
        "section_bytes",
        "names",
    )
    places = dict(zip(names, (1, 2, 4, 5, 7, 10, 13, 14, 15, 16, 18), strict=True))
    found = list(HEADER.unpack_from(data))
    for name, number in fields.items():
        found[places[name]] = number
    return HEADER.pack(*found) + data[HEADER.size :]


def test_program_headers_are_counted_and_of_56_bytes():
    data = made()
    assert read_cubin(header(data, segment_bytes=55)) == read_cubin(header(data, segments_at=len(data) - 56, segments=1, segment_bytes=56))
    assert read_cubin(header(data + bytes(56), segments_at=len(data), segments=1, segment_bytes=56)) == read_cubin(data)
    for fields, words_ in (
        (dict(segments=1, segment_bytes=55), "at offset 0x36 expected program headers of 56 bytes, found 55"),
        (dict(segments=1, segment_bytes=56, segments_at=len(data) - 55), f"headers up to {len(data) + 1:#x}, the file ends here"),
        (dict(order=2), "at offset 0x5 expected byte order 1 (little endian), found 2"),
        (dict(header_bytes=63), "at offset 0x34 expected a header of 64 bytes, found 63"),
        (dict(names=HEADER.unpack_from(data)[17]), f"the section of names below {HEADER.unpack_from(data)[17]}"),
    ):
        with pytest.raises(IntegrityError, match=re.escape(words_)):
            read_cubin(header(data, **fields))


def with_section(data, index, **fields):
    at = HEADER.unpack_from(data)[11] + SECTION.size * index
    found = list(SECTION.unpack_from(data, at))
    for name, number in fields.items():
        found[dict(name=0, kind=1, offset=4, size=5)[name]] = number
    return data[:at] + SECTION.pack(*found) + data[at + SECTION.size :]


def test_sections_lie_in_the_file_and_beside_each_other():
    data = made(one=value(0x19, 0))
    tables = HEADER.unpack_from(data)[11]
    index = 1 + [section.name for section in sections()].index(b".nv.info.one")
    offset = SECTION.unpack_from(data, tables + SECTION.size * index)[4]
    with pytest.raises(IntegrityError, match=f"section {index} inside the file's {len(data):#x} bytes, found {len(data) - 3:#x} \\+ 0x4"):
        read_cubin(with_section(data, index, offset=len(data) - 3))
    with pytest.raises(IntegrityError, match="sections that do not overlap, found one at"):
        read_cubin(with_section(data, index, offset=offset - 1))
    read_cubin(with_section(data, index, offset=len(data), size=0))
    shared = made(shared=(Section(b".nv.shared.one", 8, bytes(1024)),))
    read_cubin(with_section(shared, len(sections()) + 1, offset=2**40, size=2**40))  # which takes nothing of the file
    with pytest.raises(IntegrityError, match="the end of the file, found 1 more bytes"):
        read_cubin(data + b"\0")


def test_names_are_together_no_longer_than_the_file():
    """Each symbol names the same 1000 letters: as many as fill the file are read, one more is not."""
    strings = b"\0one\0two\0" + b"a" * 1000 + b"\0"

    def of(count):
        return made(names=strings, table=b"".join(SYMBOL.pack(at, GLOBAL_FUNCTION, 0, 0, 0, 0) for at in (1, 9, 5, *[9] * count)), info=functions((0, 0, 0, 0), (2, 0, 0, 0)))  # fmt: skip

    assert read_cubin(of(0)).kernels.keys() == {"one", "two"}
    with pytest.raises(IntegrityError, match="names that are together no longer than the file, at the name of symbol"):
        read_cubin(of(20))


def _refusal(parts):
    try:
        read_cubin(made(**parts))
    except IntegrityError as error:
        return str(error)
    raise AssertionError(parts)


if __name__ == "__main__":
    SAID.write_text("".join(f"{what}: {_refusal(parts)}\n" for what, (parts, _) in REFUSED.items()))
