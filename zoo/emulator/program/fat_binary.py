"""The PTX inside a fat binary, which is how nvcc embeds kernels in a host program.

A fat binary is a header and entries, each with a header of its own: kind, sizes, flags. An entry is PTX or a cubin, plain or compressed.
"""

import ctypes
import re
import struct
from typing import NamedTuple

from ..errors import EmulatorError

MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes of all entries
_ENTRY = struct.Struct(
    "<HHIQI20xQ8xQ"
)  # kind, version, bytes of this header, bytes of the payload, of its compressed form, flags, unpacked bytes
_PTX = 1
_LZ4, _ZSTANDARD = 0x2000, 0x8000  # flags
_LARGEST = 1 << 28  # bytes of one PTX text

_TARGET = re.compile(r"^\s*\.target\s+sm_(\d+)([af]?)", re.MULTILINE)


class Text(NamedTuple):
    """A PTX text; texts compare by how specific their target is."""

    number: int
    feature: str
    ptx: str

    @property
    def target(self) -> str:
        return f"sm_{self.number}{self.feature}"


def texts(image: bytes) -> list[Text]:
    """The PTX texts of a fat binary, or the one text that the bytes are."""
    if image[:4] != struct.pack("<I", MAGIC):
        return [] if image[:4] == b"\x7fELF" else _text(image)
    try:
        _, _, at, size = _HEADER.unpack_from(image)
        end, found = at + size, []
        while at < end:
            kind, _, header, length, packed, flags, unpacked = _ENTRY.unpack_from(image, at)
            if header < _ENTRY.size or at + header + length > len(image):
                raise EmulatorError("a fat binary's entry ends outside the fat binary")
            if kind == _PTX:
                payload = image[at + header : at + header + (packed or length)]
                found += _text(_unpacked(payload, flags, unpacked))
            at += header + length
        return found
    except struct.error:
        raise EmulatorError("a fat binary ends in the middle of a header") from None


def _text(data: bytes) -> list[Text]:
    text = data.rstrip(b"\0").decode(errors="replace")
    match = _TARGET.search(text)
    return [Text(int(match[1]), match[2], text)] if match else []


def _unpacked(data: bytes, flags: int, size: int) -> bytes:
    if not flags & (_LZ4 | _ZSTANDARD):
        return data
    if size > _LARGEST:
        raise EmulatorError(f"a fat binary's PTX has more than {_LARGEST:,} bytes")
    found = _lz4(data, size) if flags & _LZ4 else _zstandard(data, size)
    if len(found) != size:
        raise EmulatorError("a fat binary's compressed PTX is damaged")
    return found


def _lz4(data: bytes, size: int) -> bytes:
    """An LZ4 block: literals and copies of what was written before, in turn."""
    out, at = bytearray(), 0

    def length(total: int) -> int:
        nonlocal at
        more = 255 if total == 15 else 0
        while more == 255:
            more = data[at]
            total, at = total + more, at + 1
        return total

    try:
        while True:
            token = data[at]
            at += 1
            literals = length(token >> 4)
            out += data[at : at + literals]
            at += literals
            if at >= len(data) or len(out) > size:
                return bytes(out)
            distance = data[at] | data[at + 1] << 8
            at += 2
            count = length(token & 15) + 4
            start = len(out) - distance
            if distance == 0 or start < 0:
                return b""
            while count > 0:  # a copy may overlap what it writes
                part = out[start : start + count]
                out += part
                count -= len(part)
    except IndexError:
        return b""


def _zstandard(data: bytes, size: int) -> bytes:
    """By the system's libzstd: Python has its own from 3.14 on only."""
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        raise EmulatorError(
            "the program's PTX is compressed and libzstd.so.1 is not installed: install it (package libzstd1), or compile with nvcc --no-compress"
        ) from None
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_decompress.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
    out = ctypes.create_string_buffer(size)
    written = library.ZSTD_decompress(out, size, data, len(data))
    return out.raw if written == size else b""
