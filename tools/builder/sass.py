"""What ptxas made of each kernel, counted in its machine code: products, moves between registers of lanes and of the warp, fences.

The code of many cubins goes through nvdisasm at once, because starting it takes longer than reading a kernel. Branches are followed only
as far as finding the smallest loop around a product, by its jump back.
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.metadata
import importlib.util
import json
import re
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.builder import BuildError
from zoo.shipped.integrity import MACHINE_CODE

FILE = MACHINE_CODE
PACKAGE, VERSION = "nvidia-cuda-nvdisasm", "13.5.37"  # the `build` extra of pyproject.toml installs the same

_BATCH = 2_000_000  # bytes of code for one nvdisasm
_BYTES = 16  # of an instruction
_LINE = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(?:@!?\w+ )?\s*([A-Z][\w.]*)(?: ([^;]*?))?\s*;", re.MULTILINE)
_TARGET = re.compile(r"0x[0-9a-f]+\s*$")

# Products of warps, warpgroups and (UTC...) tensor memory; of the last the operands are registers of the whole warp.
_PRODUCT = re.compile(r"(?:[HIQBDO]|BM|OM)MMA\b|[A-Z]*GMMA\b|UTC[A-Z]*MMA\b")
_COUNTED = {
    "products": _PRODUCT,
    "local": re.compile(r"(?:LDL|STL)\b"),
    "fences": re.compile(r"(?:MEMBAR|FENCE)\b"),
    "calls": re.compile(r"CALL\b"),
}
# Fences of the whole GPU, and what in PTX asks for one: a fence or an access of that scope, a cluster barrier that publishes.
_WIDE_IN_SASS = re.compile(r"MEMBAR\.\w+\.(?:GPU|SYS|VC)$")
_WIDE_IN_PTX = re.compile(
    r"^\s*(?:@!?%?\w+ )?(?:fence\.(?!proxy|mbarrier)\S*\.(?:gpu|sys)|membar\.(?:gl|sys)|\S*\.(?:release|acq_rel|sc)\.(?:gpu|sys)\b"
    r"|barrier\.cluster\.arrive(?!\S*relaxed))",
    re.MULTILINE,
)


# Of a line of K: arrivals behind products, waits for barriers, and invalidations of the L1 cache.
_COUNTED_A_LINE = {"commits": r"UTCBAR\b", "waits": r"SYNCS\.PHASECHK\b", "invalidations": r"CCTL\b"}
_AT_ONCE = 32  # instructions
CEILINGS = Path(__file__).with_name("ceilings.json")  # by name of cubins: the most that a line of K, and an epilogue, may have
_LIMITED = {"line": "a line of K", "epilogue": "in the epilogue"}


@dataclass(frozen=True)
class Line:
    at: int
    opcode: str
    operands: str
    control: int = field(default=0, compare=False)  # bits 105 and up of the instruction, as arXiv 1804.06826 describes them

    def waits_for(self, load: Line) -> bool:
        """Whether it waits for the scoreboard that the load releases."""
        return bool(self.control >> 11 & 1 << (load.control >> 5 & 7))


def disassembler() -> Path:
    """The pinned nvdisasm of this environment."""
    hint = f"install it with the compiler: pip install '.[build]', or pip install {PACKAGE}=={VERSION}"
    try:
        found = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise BuildError(f"{PACKAGE} is not installed in this environment; {hint}") from None
    if found != VERSION:
        raise BuildError(f"{PACKAGE} is {found}, reports are written with {VERSION} only; {hint}")
    package = importlib.util.find_spec("nvidia")
    places = package.submodule_search_locations if package else None
    for place in places or ():
        if (path := Path(place, "cu13/bin/nvdisasm")).is_file():
            return path
    raise BuildError(f"no nvdisasm in this environment's nvidia/cu13/bin; {hint}")


def report(cubins: Mapping[str, bytes], texts: Mapping[str, str], before: Mapping[str, Mapping[str, Any]], jobs: int) -> str:
    """The text of FILE for these cubins (file -> bytes, and -> PTX). What `before` says of the same bytes is taken from there."""
    digests = {file: hashlib.sha256(data).hexdigest() for file, data in cubins.items()}
    known = {file: dict(before[file]) for file, digest in digests.items() if before.get(file, {}).get("sha256") == digest}
    new = {file: data for file, data in cubins.items() if file not in known}
    for file, lines in disassembled(new, jobs):
        known[file] = {"sha256": digests[file], **counted(lines, texts[file])}
    entries = ",\n".join(f" {json.dumps(file)}: {json.dumps(known[file], sort_keys=True)}" for file in sorted(cubins))
    return f'{{"disassembler": "{PACKAGE} {VERSION}", "cubins": {{\n{entries}\n}}}}\n'


def read(path: Path) -> dict[str, dict[str, Any]]:
    """What a report on disk says, file by file; nothing, where there is none of this disassembler."""
    try:
        found = json.loads(path.read_bytes())
        return dict(found["cubins"]) if found["disassembler"] == f"{PACKAGE} {VERSION}" else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def refusals(report_text: str) -> list[str]:
    """What no kernel may have."""
    cubins, ceilings = json.loads(report_text)["cubins"], json.loads(CEILINGS.read_bytes())
    return (
        [
            f"{file}: accesses local memory ({_words(entry['local'])}): an array indexed at run time, or a spill"
            for file, entry in cubins.items()
            if "local" in entry
        ]
        + [
            f"{file}: no loop around its {_words(entry['products'])}, so that {CEILINGS.name} limits nothing"
            for file, entry in cubins.items()
            if "line" not in entry
            and any(name.startswith("UTC") for name in entry.get("products", {}))
            and _ceiling(ceilings["line"], Path(file).stem)
        ]
        + [
            f"{file}: {count:g} {name} {where}, {CEILINGS.name} allows {most:g}"
            for file, entry in cubins.items()
            for part, where in _LIMITED.items()
            for name, count in entry.get(part, {}).items()
            if count > (most := _ceiling(ceilings[part], Path(file).stem)[name])
        ]
    )


def _ceiling(ceilings: Mapping[str, Mapping[str, float]], cubin: str) -> Mapping[str, float]:
    """The last pattern that matches holds. A cubin without one may have nothing, so that its author adds a line."""
    found = [limits for pattern, limits in ceilings.items() if fnmatch.fnmatchcase(cubin, pattern)]
    return found[-1] if found else Counter()


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def disassembled(cubins: Mapping[str, bytes], jobs: int) -> Iterator[tuple[str, list[Line]]]:
    """Each cubin's instructions."""
    batches: list[tuple[str, list[tuple[str, bytes]]]] = []
    for file in sorted(cubins):
        arch, code = file.partition("/")[0], _code(cubins[file])
        if not batches or batches[-1][0] != arch or sum(len(one) for _, one in batches[-1][1]) + len(code) > _BATCH:
            batches.append((arch, []))
        batches[-1][1].append((file, code))
    if not batches:
        return
    tool = disassembler()
    with ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(lambda batch: _batch(tool, *batch), batches):
            yield from found


def _batch(tool: Path, arch: str, codes: list[tuple[str, bytes]]) -> list[tuple[str, list[Line]]]:
    whole = b"".join(code for _, code in codes)
    with tempfile.NamedTemporaryFile(prefix="zoo_sass_") as file:
        file.write(whole)
        file.flush()
        said = subprocess.run([tool, "-b", arch.replace("sm_", "SM"), "-ndf", file.name], capture_output=True, text=True)
    if said.returncode:
        raise BuildError(f"nvdisasm does not read code of {arch}: {said.stderr.strip() or said.returncode}")
    lines = [Line(int(at, 16), opcode, operands, _control(whole, int(at, 16))) for at, opcode, operands in _LINE.findall(said.stdout)]
    total = len(whole)
    if [line.at for line in lines] != list(range(0, total, _BYTES)):
        raise BuildError(f"nvdisasm gave {len(lines)} instructions of {arch}, the code has {total // _BYTES}: another format of lines?")
    found, begin = [], 0
    for name, code in codes:
        end = begin + len(code) // _BYTES
        found.append((name, lines[begin:end]))
        begin = end
    return found


def counted(lines: list[Line], ptx: str) -> dict[str, Any]:
    """The entry of a cubin; what it has none of is left out."""
    entry: dict[str, Any] = {"instructions": len(lines)}
    for name, pattern in _COUNTED.items():
        counts = Counter(_short(line.opcode, name) for line in lines if pattern.match(line.opcode))
        if counts:
            entry[name] = dict(sorted(counts.items()))
    wide, written = sum(bool(_WIDE_IN_SASS.match(line.opcode)) for line in lines), len(_WIDE_IN_PTX.findall(ptx))
    if wide > written:
        entry["unwritten"] = wide - written
    loops = _loops_of_tensor_memory(lines)
    if loops:
        entry["loops"] = [{"instructions": len(loop), "products": products, "R2UR": _opcodes(loop, r"R2UR\b")} for loop, products in loops]
        entry["line"] = _line_of_k(*min(loops, key=lambda found: len(found[0]) / found[1]))
    loads = [index for index, line in enumerate(lines) if line.opcode.startswith("LDTM")]
    if loads:
        entry["epilogue"] = _epilogue(lines, loads)
    return entry


def _short(opcode: str, name: str) -> str:
    """Of a product its name and whether a pair does it, not its shape; of others all."""
    if name != "products":
        return opcode
    base, *rest = opcode.split(".")
    return f"{base}.2CTA" if "2CTA" in rest else base


def _loops_of_tensor_memory(lines: list[Line]) -> list[tuple[list[Line], int]]:
    """The smallest loops around products of tensor memory, and how many products each has. R2UR takes a value from a lane's register each
    time round, which a value that all lanes share from the start need not."""
    products = [index for index, line in enumerate(lines) if line.opcode.startswith("UTC") and _PRODUCT.match(line.opcode)]
    jumps = [
        (index + (int(target[0], 16) - line.at) // _BYTES, index)
        for index, line in enumerate(lines)
        if line.opcode.startswith("BRA") and (target := _TARGET.search(line.operands))
    ]
    found: Counter[tuple[int, int]] = Counter()
    for product in products:
        around = [(to, index) for to, index in jumps if to <= product <= index]
        if around:
            found[min(around, key=lambda loop: loop[1] - loop[0])] += 1
    return [(lines[to : index + 1], count) for (to, index), count in sorted(found.items())]


def _line_of_k(loop: list[Line], products: int) -> dict[str, float]:
    """What the warp that multiplies executes for a line of K: 128 bytes of a row, in four products."""
    counts = {"instructions": len(loop)} | {name: _opcodes(loop, pattern) for name, pattern in _COUNTED_A_LINE.items()}
    return {name: round(4 * count / products, 2) for name, count in counts.items()}


def _epilogue(lines: list[Line], loads: list[int]) -> dict[str, float]:
    """Which part of the loads of tensor memory is waited for at once, and the stores of half sectors that no stores of whole ones replace
    where addresses permit."""
    waited = sum(any(line.waits_for(lines[load]) for line in lines[load + 1 : load + 1 + _AT_ONCE]) for load in loads)
    halves = _opcodes(lines, r"STG\..*\b128\b") - 2 * _opcodes(lines, r"STG\..*\b256\b")
    return {"half_sectors": max(halves, 0), "waited_loads": round(waited / len(loads), 2)}


def _opcodes(lines: Iterable[Line], pattern: str) -> int:
    return sum(bool(re.match(pattern, line.opcode)) for line in lines)


def _control(code: bytes, at: int) -> int:
    return int.from_bytes(code[at : at + _BYTES], "little") >> 105


def _code(cubin: bytes) -> bytes:
    """The machine code of a cubin of one kernel, whose structure the manifest's reader has checked."""
    (sections_at,), (count, names_index) = struct.unpack_from("<Q", cubin, 0x28), struct.unpack_from("<HH", cubin, 0x3C)
    sections = [struct.unpack_from("<IIQQQQ", cubin, sections_at + 64 * index) for index in range(count)]
    names = sections[names_index][4]
    for name, _, _, _, offset, size in sections:
        if cubin.startswith(b".text.", names + name):
            return cubin[offset : offset + size]
    raise BuildError("a cubin has no section of code")
