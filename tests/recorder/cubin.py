"""Smallest possible cubins: an ELF with the sections a loader and the stand-in read, and no instructions.

For tests of loading and launching where no compiler is at hand; nothing could run them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_BANK = {9: 0x210}  # where parameters begin in the constant bank; 0x380 from compute capability 10 on


def make_cubin(
    symbol: str, parameters: Sequence[tuple[int, int]], arch: str = "sm_90a", static_shared: int = 0, threads: int = 1024
) -> bytes:
    """A cubin of one kernel. `parameters` are (bytes, alignment) in order, laid out as ptxas does: aligned in the bank."""
    version = int("".join(filter(str.isdigit, arch)))
    bank = _BANK.get(version // 10, 0x380)
    info, end = b"", bank
    for ordinal, (size, alignment) in enumerate(parameters):
        start = -(-end // alignment) * alignment
        info = struct.pack("<BBHIHHI", 4, 0x17, 12, 0, ordinal, start - bank, size << 18 | 0x1F000) + info
        end = start + size
    info += struct.pack("<BBH", 3, 0x19, end - bank)
    info += struct.pack("<BBHIII", 4, 0x05, 12, threads, 1, 1)
    sections = [
        (b"", 0, b"", 0),
        (b".shstrtab", 3, b"", 0),
        (b".text." + symbol.encode(), 1, bytes(128), 0),
        (b".nv.info." + symbol.encode(), 0x70000000, info, 0),
        (b".nv.shared." + symbol.encode(), 8, b"", static_shared),
    ]
    names = b"\0".join(name for name, *_ in sections) + b"\0"
    body, headers, offset = b"", b"", 64
    for name, kind, content, empty_bytes in sections:
        content = names if name == b".shstrtab" else content
        place = 0 if not name else names.index(b"\0" + name + b"\0") + 1
        headers += struct.pack("<IIQQQQIIQQ", place, kind, 0, 0, offset + len(body), len(content) or empty_bytes, 0, 0, 1, 0)
        body += content
    ident = b"\x7fELF\x02\x01\x01\x41\x08".ljust(16, b"\0")
    flags = version << 8 | 0x6000002
    header = ident + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), flags, 64, 56, 0, 64, len(sections), 1)
    return header + body + headers
