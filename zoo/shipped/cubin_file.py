"""Reads what zoo needs from a cubin: its arch, its kernels, and of each the parameters and resources.

A cubin is a 64-bit ELF file (ABI version 8 since CUDA 13). Where each fact stands in it:

- the SM number: bits 8..15 of e_flags (0x5a = 90, 0x64 = 100);
- the feature class: `.nv.compat` attribute 9 is 1 for an arch-specific target (`a`). Family targets (`f`) look
  like plain ones there; `.note.nv.tkinfo` holds ptxas' command line, whose `-arch` says it in full;
- registers and stack: `.nv.info`, one record per function, by symbol number;
- the parameters and the bounds on threads: `.nv.info.<kernel>`;
- static shared memory: the size of `.nv.shared.<kernel>`, which starts with the 1024 bytes the system reserves.

Any malformed file gives IntegrityError with the offset and what was expected there, and nothing else. Reading takes time and memory in
proportion to the file, however it is crafted: sections do not overlap, so that none is walked twice, and names are short and
together no longer than the file.
"""

from __future__ import annotations

import re
import reprlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from zoo.contract import limits
from zoo.errors import IntegrityError

_HEADER = struct.Struct("<4s5B7xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SEGMENT_BYTES = 56
_ELF64, _LITTLE_ENDIAN, _CUDA_OSABI, _ABI_VERSION, _CUDA_MACHINE = 2, 1, 0x41, 8, 190
_NULL, _SYMTAB, _NOBITS = 0, 2, 8
_FUNCTION, _GLOBAL = 2, 1  # symbol type and binding
_TOOL_NOTE = 2000
_LONGEST_NAME = 1024
_LONGEST_COMMAND = 1 << 16

# .nv.info attributes (cuobjdump -elf prints them as EIATTR_*)
_MAX_THREADS, _REQUIRED_THREADS, _CLUSTER = 0x05, 0x10, 0x3D
_FRAME_SIZE, _STACK, _REGISTERS = 0x11, 0x12, 0x2F
_PARAMETER, _PARAMETER_V2, _PARAMETER_BYTES, _PARAMETER_BANK = 0x17, 0x45, 0x19, 0x0A
# .nv.compat attributes
_ARCH_SPECIFIC = 0x09

_VALUE_FORMATS = {1: "none", 2: "byte", 3: "half", 4: "sized"}


@dataclass(frozen=True)
class CubinParameter:
    offset: int  # from the start of the parameter block in the constant bank
    size: int


@dataclass(frozen=True)
class CubinKernel:
    symbol: str
    registers: int
    stack: int
    static_shared: int  # what the kernel declares, without the reserved part
    parameter_base: int  # the block's address in the constant bank; alignments above 16 count from address 0
    parameter_bytes: int
    parameters: tuple[CubinParameter, ...]
    max_threads: tuple[int, int, int] | None  # __launch_bounds__
    required_threads: tuple[int, int, int] | None  # __block_size__
    cluster: tuple[int, int, int] | None  # __cluster_dims__

    @property
    def threads(self) -> tuple[int, int, int] | None:
        """How many it is compiled for: exactly so many, or at most."""
        return self.required_threads or self.max_threads


@dataclass(frozen=True)
class CubinFile:
    arch: str
    compiler: str  # ptxas' version line
    kernels: dict[str, CubinKernel]


def read_cubin(data: bytes) -> CubinFile:
    return _Reader(data).cubin()


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    type: int
    offset: int
    size: int


class _Reader:
    def __init__(self, data: bytes):
        self.data = data
        self.names_left = len(data)

    def _fail(self, offset: int, expected: str) -> NoReturn:
        raise IntegrityError(f"malformed cubin: at offset {offset:#x} expected {expected}")

    def _unpack(self, form: struct.Struct, offset: int, what: str) -> tuple[Any, ...]:
        if offset + form.size > len(self.data):
            self._fail(offset, f"{what} of {form.size} bytes, the file ends at {len(self.data):#x}")
        return form.unpack_from(self.data, offset)

    def _text(self, start: int, index: int, end: int, what: str, longest: int = _LONGEST_NAME) -> str:
        """The zero-terminated text at `start + index` of a string table that stops at `end`."""
        end = min(end, start + index + longest + 1)
        stop = self.data.find(b"\0", start + index, end)
        if stop < 0:
            self._fail(start + index, f"{what}, zero-terminated before {end:#x}")
        self.names_left -= stop - start - index
        if self.names_left < 0:
            self._fail(start + index, f"names that are together no longer than the file, at {what}")
        text = self.data[start + index : stop].decode("latin-1")
        if not text.isascii() or not text.isprintable():
            self._fail(start + index, f"{what} in printable ASCII")
        return text

    def cubin(self) -> CubinFile:
        sm = self._header()
        self._read_sections()
        arch, compiler = self._arch(sm)
        entries = self._entries()
        records = self._function_records()
        kernels = {}
        for index, symbol in entries.items():
            for attribute, of_function in records.items():
                if index not in of_function:
                    self._fail(self.sections[".nv.info"].offset, f"attribute {attribute:#x} of the kernel {symbol}")
            stack = max(records[_FRAME_SIZE][index], records[_STACK][index])  # its own, and with what it calls
            kernels[symbol] = self._kernel(symbol, records[_REGISTERS][index], stack)
        return CubinFile(arch, compiler, kernels)

    def _header(self) -> int:
        fields = self._unpack(_HEADER, 0, "an ELF header")
        magic, elf_class, order, _, osabi, abi, _, machine, _, _, segments_at, sections_at, flags = fields[:13]
        header_bytes, segment_bytes, segments, section_bytes, sections, self.names_index = fields[13:]
        checks = (
            (0x0, magic, b"\x7fELF", "the ELF magic"),
            (0x4, elf_class, _ELF64, "class 2 (64 bits)"),
            (0x5, order, _LITTLE_ENDIAN, "byte order 1 (little endian)"),
            (0x7, osabi, _CUDA_OSABI, "OS ABI 0x41 (CUDA)"),
            (0x8, abi, _ABI_VERSION, "ABI version 8 (CUDA 13)"),
            (0x12, machine, _CUDA_MACHINE, "machine 190 (CUDA)"),
            (0x34, header_bytes, _HEADER.size, f"a header of {_HEADER.size} bytes"),
            (0x3A, section_bytes, _SECTION.size, f"section headers of {_SECTION.size} bytes"),
        )
        for offset, found, wanted, words in checks:
            if found != wanted:
                self._fail(offset, f"{words}, found {found!r}")
        if segments and segment_bytes != _SEGMENT_BYTES:
            self._fail(0x36, f"program headers of {_SEGMENT_BYTES} bytes, found {segment_bytes}")
        self.sections_at, self.section_count = sections_at, sections
        self.tables_end = max(sections_at + sections * _SECTION.size, segments_at + segments * _SEGMENT_BYTES)
        if self.tables_end > len(self.data):
            self._fail(len(self.data), f"the section and program headers up to {self.tables_end:#x}, the file ends here")
        return int(flags) >> 8 & 0xFF

    def _read_sections(self) -> None:
        headers = []
        for index in range(self.section_count):
            at = self.sections_at + index * _SECTION.size
            name, kind, _, _, offset, size, *_ = self._unpack(_SECTION, at, f"section header {index}")
            if kind != _NOBITS and offset + size > len(self.data):
                self._fail(at, f"section {index} inside the file's {len(self.data):#x} bytes, found {offset:#x} + {size:#x}")
            headers.append((at, name, kind, offset, size))
        self._refuse_overlaps(headers)
        if self.names_index >= len(headers):
            self._fail(0x3E, f"the section of names below {len(headers)}, found {self.names_index}")
        _, _, _, names, names_size = headers[self.names_index]
        end = max([self.tables_end, *(offset + size for _, _, kind, offset, size in headers if kind != _NOBITS)])
        if end != len(self.data):
            self._fail(end, f"the end of the file, found {len(self.data) - end} more bytes")
        self.sections: dict[str, _Section] = {}
        for index, (at, name, kind, offset, size) in enumerate(headers[1:], start=1):
            text = self._text(names, name, names + names_size, f"the name of section {index}")
            if text in self.sections:
                self._fail(at, f"one section named {text}, found a second")
            self.sections[text] = _Section(text, kind, offset, size)

    def _refuse_overlaps(self, headers: list[tuple[int, int, int, int, int]]) -> None:
        end = 0
        for offset, size, at in sorted(
            (offset, size, at) for at, _, kind, offset, size in headers if kind not in (_NULL, _NOBITS) and size
        ):
            if offset < end:
                self._fail(at, f"sections that do not overlap, found one at {offset:#x} before {end:#x}")
            end = offset + size

    def _section(self, name: str) -> _Section:
        if name not in self.sections:
            self._fail(self.sections_at, f"a section named {name}")
        section = self.sections[name]
        if section.type == _NOBITS:
            self._fail(self.sections_at, f"the section {name} to have contents")
        return section

    def _arch(self, sm: int) -> tuple[str, str]:
        section = self._section(".note.nv.tkinfo")
        at = section.offset
        name_bytes, description_bytes, kind = self._unpack(struct.Struct("<III"), at, "a note header")
        start = at + 12 + (name_bytes + 3 & ~3)
        end = start + description_bytes
        if kind != _TOOL_NOTE or end > at + section.size or description_bytes < 24:
            self._fail(at, f"a note of type {_TOOL_NOTE} inside {section.size:#x} bytes, found type {kind}, {description_bytes:#x} bytes")
        _, _, _, version, _, command = self._unpack(struct.Struct("<6I"), start, "a tool note")
        compiler = self._text(start + 24, version, end, "the compiler's version")
        command_line = self._text(start + 24, command, end, "the compiler's command line", _LONGEST_COMMAND)
        match = re.search(r"(?:^|\s)-arch[ =](sm_(\d{1,3})[af]?)(?=\s|$)", command_line)
        if match is None or int(match[2]) != sm:
            self._fail(start + 24 + command, f"a command line with '-arch sm_{sm}', as e_flags say, found {reprlib.repr(command_line)}")
        arch = match[1]
        specific = any(
            attribute == _ARCH_SPECIFIC and value & 0xFF for attribute, value, _, _ in self._attributes(self._section(".nv.compat"))
        )
        if specific != arch.endswith("a"):
            self._fail(self.sections[".nv.compat"].offset, f"the feature class of {arch}")
        return arch, compiler

    def _entries(self) -> dict[int, str]:
        """The kernels by symbol number."""
        table, strings = self._section(".symtab"), self._section(".strtab")
        if table.type != _SYMTAB or table.size % _SYMBOL.size:
            self._fail(table.offset, f"a symbol table of entries of {_SYMBOL.size} bytes")
        entries: dict[int, str] = {}
        found = set()
        for index in range(table.size // _SYMBOL.size):
            at = table.offset + index * _SYMBOL.size
            name, info, _, _, _, _ = _SYMBOL.unpack_from(self.data, at)
            if not name:
                continue
            text = self._text(strings.offset, name, strings.offset + strings.size, f"the name of symbol {index}")
            if info == (_GLOBAL << 4 | _FUNCTION) and f".nv.info.{text}" in self.sections:
                if text in found:
                    self._fail(at, f"one kernel named {text}, found a second")
                entries[index] = text
                found.add(text)
        return entries

    def _attributes(self, section: _Section) -> Iterator[tuple[int, int, int, int]]:
        """(attribute, its small value, and the offset and size of its data) of an .nv.info-like section."""
        at, end = section.offset, section.offset + section.size
        while at < end:
            if at + 4 > end:
                self._fail(at, f"an attribute of 4 bytes before {end:#x}")
            form, attribute, value = struct.unpack_from("<BBH", self.data, at)
            if form not in _VALUE_FORMATS:
                self._fail(at, f"an attribute format of 1 to 4, found {form}")
            size = value if form == 4 else 0
            if at + 4 + size > end:
                self._fail(at + 4, f"{size} bytes of attribute {attribute:#x} before {end:#x}")
            yield attribute, value, at + 4, size
            at += 4 + size

    def _words(self, count: int, at: int, size: int, attribute: int) -> tuple[int, ...]:
        if size != 4 * count:
            self._fail(at, f"{4 * count} bytes of attribute {attribute:#x}, found {size}")
        return struct.unpack_from(f"<{count}I", self.data, at)

    def _function_records(self) -> dict[int, dict[int, int]]:
        """attribute -> symbol number -> value"""
        records: dict[int, dict[int, int]] = {_FRAME_SIZE: {}, _STACK: {}, _REGISTERS: {}}
        for attribute, _, at, size in self._attributes(self._section(".nv.info")):
            if attribute in records:
                symbol, value = self._words(2, at, size, attribute)
                records[attribute][symbol] = value
        return records

    def _kernel(self, symbol: str, registers: int, stack: int) -> CubinKernel:
        section = self._section(f".nv.info.{symbol}")
        parameters: dict[int, CubinParameter] = {}
        bounds: dict[int, tuple[int, int, int]] = {}
        base = parameter_bytes = 0
        for attribute, value, at, size in self._attributes(section):
            if attribute in (_PARAMETER, _PARAMETER_V2):
                _, place, extent = self._words(3, at, size, attribute)
                ordinal = place & 0xFFFF
                if ordinal in parameters:
                    self._fail(at, f"one parameter {ordinal}, found a second")
                parameters[ordinal] = CubinParameter(place >> 16, extent >> 18 if attribute == _PARAMETER else extent)
            elif attribute == _PARAMETER_BYTES:
                parameter_bytes = value
            elif attribute == _PARAMETER_BANK:
                base = self._words(2, at, size, attribute)[1] & 0xFFFF
            elif attribute in (_MAX_THREADS, _REQUIRED_THREADS, _CLUSTER):
                x, y, z = self._words(3, at, size, attribute)
                bounds[attribute] = (x, y, z)
        if sorted(parameters) != list(range(len(parameters))):
            self._fail(section.offset, f"parameters 0 to {len(parameters) - 1}, found {reprlib.repr(sorted(parameters))}")
        for ordinal, parameter in parameters.items():
            if parameter.offset + parameter.size > parameter_bytes:
                self._fail(section.offset, f"parameter {ordinal} inside the block's {parameter_bytes} bytes")
        shared = self.sections.get(f".nv.shared.{symbol}")
        if shared and shared.size < limits.RESERVED_SHARED:
            self._fail(self.sections_at, f".nv.shared.{symbol} of at least {limits.RESERVED_SHARED} bytes, found {shared.size}")
        return CubinKernel(
            symbol=symbol,
            registers=registers,
            stack=stack,
            static_shared=shared.size - limits.RESERVED_SHARED if shared else 0,
            parameter_base=base,
            parameter_bytes=parameter_bytes,
            parameters=tuple(parameters[ordinal] for ordinal in range(len(parameters))),
            max_threads=bounds.get(_MAX_THREADS),
            required_threads=bounds.get(_REQUIRED_THREADS),
            cluster=bounds.get(_CLUSTER),
        )
