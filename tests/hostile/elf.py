"""Cubins taken apart into sections and put together again, whatever the sections then hold."""

import struct
from dataclasses import dataclass, replace

HEADER = struct.Struct("<4s5B7xHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
GLOBAL_FUNCTION = 1 << 4 | 2


@dataclass(frozen=True)
class Section:
    name: bytes
    type: int
    data: bytes


def sections_of(cubin: bytes) -> list[Section]:
    """All but the empty first one and the names."""
    header = HEADER.unpack_from(cubin)
    at, count, names_index = header[11], header[17], header[18]
    headers = [SECTION.unpack_from(cubin, at + SECTION.size * index) for index in range(count)]
    names = headers[names_index][4]
    found = []
    for index, (name, kind, _, _, offset, size, *_) in enumerate(headers):
        if index in (0, names_index):
            continue
        text = cubin[names + name : cubin.index(b"\0", names + name)]
        found.append(Section(text, kind, bytes(size) if kind == 8 else cubin[offset : offset + size]))
    return found


def changed(sections: list[Section], **data: bytes) -> list[Section]:
    """The sections with other contents: `symtab=...` is that of `.symtab`."""
    return [replace(section, data=data.get(section.name.decode().lstrip(".").replace(".", "_"), section.data)) for section in sections]


def cubin_of(sections: list[Section], like: bytes, share: bool = False) -> bytes:
    """A cubin of these sections; with `share`, contents that are equal are stored once."""
    names, body, headers = bytearray(b"\0"), bytearray(), [bytes(SECTION.size)]
    stored: dict[bytes, int] = {}
    start = HEADER.size
    for section in [*sections, Section(b".shstrtab", 3, b"")]:
        name = len(names)
        names += section.name + b"\0"
        data = bytes(names) if section.name == b".shstrtab" else section.data
        offset = stored.get(data) if share else None
        if offset is None:
            offset = stored[data] = start + len(body)
            body += data if section.type != 8 else b""
        headers.append(SECTION.pack(name, section.type, 0, 0, offset, len(data), 0, 0, 1, 0))
    fields = list(HEADER.unpack_from(like))
    fields[10], fields[11], fields[15], fields[17], fields[18] = 0, start + len(body), 0, len(headers), len(headers) - 1
    return HEADER.pack(*fields) + bytes(body) + b"".join(headers)
