"""What a host program asks of CUDA's libraries: read from its ELF file and from those that it is linked with."""

import os
import re
import struct
import subprocess
from pathlib import Path

from ..errors import EmulatorError, LaunchError

_CUDA = re.compile(r"(?:__)?cuda[A-Z]\w*|cu[A-Z]\w*")
_SECTIONS_AT, _SECTION = struct.Struct("<40xQ10xHHH"), struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC_SYMBOLS = 11


def functions_of(program: Path) -> set[str]:
    """Names of CUDA's functions that the program and its libraries call and do not have themselves."""
    with open(program, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return set()  # a script, whose programs are known when they start
    wanted, sections = _read(program)
    if ".interp" in sections:  # else the loader, which would list the libraries, has no part in it
        for names, more in map(_read, _libraries(program)):
            wanted, sections = wanted | names, sections | more
    if ".nv_fatbin" in sections and "__cudaRegisterFatBinary" not in wanted:
        raise LaunchError(f"{program} contains the CUDA runtime itself: compile it with nvcc -cudart shared")
    return wanted


def _libraries(program: Path) -> list[Path]:
    """What the loader would load, as ldd lists it."""
    traced = subprocess.run([program], env={**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True, text=True, timeout=60)
    return [Path(path) for path in re.findall(r"=> (/\S+) \(0x", traced.stdout) if not _is_of_cuda(path)]


def _is_of_cuda(path: str) -> bool:
    return Path(path).name.startswith(("libcudart.so", "libcuda.so"))


def _read(path: Path) -> tuple[set[str], set[str]]:
    """(CUDA's functions that a file calls and does not define, names of its sections)."""
    data = path.read_bytes()
    try:
        start, size, count, names_in = _SECTIONS_AT.unpack_from(data)
        sections = [_SECTION.unpack_from(data, start + number * size) for number in range(count)]
        names_at = sections[names_in][4]
        wanted = set()
        for _, kind, _, _, at, length, link, *_ in sections:
            if kind == _DYNAMIC_SYMBOLS:
                texts_at = sections[link][4]
                symbols = [_SYMBOL.unpack_from(data, at + offset) for offset in range(0, length, _SYMBOL.size)]
                wanted = {_text(data, texts_at + name) for name, _, _, section, *_ in symbols if section == 0}
        return {name for name in wanted if _CUDA.fullmatch(name)}, {_text(data, names_at + section[0]) for section in sections}
    except (struct.error, IndexError, ValueError):
        raise EmulatorError(f"{path} is no ELF file of 64 bits") from None


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode(errors="replace")
