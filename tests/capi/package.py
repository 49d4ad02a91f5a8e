"""Exports, builds and runs C packages for the tests."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from array import array
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.recorder.cubin import make_cubin
from zoo.capi.export import export
from zoo.contract.manifest import SCHEMA, Manifest
from zoo.contract.names import Vocabulary

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
_ALIGNMENTS = {"pointer": 8, "i32": 4, "i64": 8, "f32": 4, "tensor_map": 64}


_OBJECTS = tempfile.TemporaryDirectory(prefix="objects")  # what this process compiled
_FEW = 100  # cubins that the compiler itself reads

ADDRESSES = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
THREADS = ("-fsanitize=thread", "-g")


@cache
def sanitizers() -> tuple[str, ...]:
    """The flags that catch overflow and stray accesses, where the compiler has them."""
    return ADDRESSES if runs(ADDRESSES, {"ASAN_OPTIONS": "detect_leaks=0"}) else ()


@cache
def sanitizer_settings() -> dict[str, str]:
    """The environment of a program built with them: looking for leaks too, where the system lets a process inspect itself."""
    return {"ASAN_OPTIONS": f"detect_leaks={int(runs(sanitizers(), {'ASAN_OPTIONS': 'detect_leaks=1'}))}"}


def needed_sanitizer(flags: Sequence[str], settings: Mapping[str, str]) -> tuple[str, ...]:
    """`flags`, if programs built with them run here. Else the test is skipped, or fails where ZOO_NEEDS_SANITIZERS says so, as CI does."""
    if runs(flags, settings):
        return tuple(flags)
    words = f"no program built with {flags[0]} runs here"
    if os.environ.get("ZOO_NEEDS_SANITIZERS"):
        pytest.fail(words)
    pytest.skip(words)


def runs(flags: Sequence[str], settings: Mapping[str, str]) -> bool:
    """Whether a program built with `flags` works here."""
    with tempfile.TemporaryDirectory() as directory:
        command = ["cc", *flags, "-x", "c", "-", "-o", f"{directory}/trial"]
        built = subprocess.run(command, input="int main(void) { return 0; }", text=True, capture_output=True)
        return built.returncode == 0 and subprocess.run([f"{directory}/trial"], env={**settings}, capture_output=True).returncode == 0


def make_directory(directory: Path, entries: dict[str, dict]) -> Path:
    """A cubin directory of entries whose cubins are made up: right in symbol, arch and parameters, without instructions."""
    for name, entry in entries.items():
        entry["fields"] = Vocabulary({}).fields(name)
        for variant in entry["variants"]:
            rule = entry["launches"][variant["launch"]]
            parameters = [(p["size"], _ALIGNMENTS[p["kind"]]) for p in rule["parameters"]]
            data = make_cubin(variant["symbol"], parameters, variant["arch"])
            path = directory / variant["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            variant["bytes"], variant["sha256"] = len(data), hashlib.sha256(data).hexdigest()
    manifest = {"schema": SCHEMA, "compiler": {}, "ptx": None, "kernels": entries}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def compile_package(
    package: Path, program: Path, sources: Sequence[Path], flags: Sequence[str] = (), compiler: Sequence[str] = ("cc", "-std=c11")
):
    """Compiles a package together with other sources into a program, two files at a time. What was compiled before is not again: most
    packages differ in their tables alone."""
    texts = sorted((package / "cubins").glob("*.c"))
    if len(texts) > _FEW:
        cubins = _assembly(texts, program)
        command = [compiler[0]]
    else:
        cubins = program.parent / f"{program.name}_cubins.c"  # all in one, and as they are: there is nothing in them to run
        cubins.write_text("".join(f'#include "{source}"\n' for source in texts))
        command = [*compiler, *STRICT, "-O1"]
    objects, running = [program.parent / f"{program.name}_cubins.o"], []
    running.append(_start([*command, "-I", package, "-c", "-o", objects[0], cubins]))
    headers = b"".join(header.read_bytes() for header in sorted((*package.rglob("*.h"), *HERE.glob("*.h"))))
    for source in (*sources, *sorted(package.glob("zoo*.c"))):
        command = [*compiler, *STRICT, "-O1", *flags]
        key = hashlib.sha256(repr((command, source.name, source.read_bytes(), headers)).encode()).hexdigest()
        objects.append(Path(_OBJECTS.name) / f"{key}.o")
        if not objects[-1].exists():
            running.append(_start([*command, "-I", package, "-c", "-o", objects[-1], source]))
        if len(running) == 2:
            _wait(running)
    _wait(running)
    link = [compiler[0], *flags, "-o", program, *objects, "-ldl", "-lm", "-pthread"]
    subprocess.run([str(word) for word in link], check=True)
    return program


def _assembly(texts: Sequence[Path], program: Path) -> Path:
    """The words of hundreds of cubins, of which an assembler takes the bytes at once and a compiler reads each."""
    lines = [".section .rodata"]
    for index, text in enumerate(texts):
        (name, words) = re.fullmatch(r".*uint64_t (\w+)\[\][^=]*=\s*\{([^}]*)\};\s*", text.read_text(), re.DOTALL).groups()
        data = program.parent / f"{program.name}_cubin_{index}"
        data.write_bytes(array("Q", [int(word, 16) for word in words.split(",")]).tobytes())
        lines.append(f'.balign 16\n.globl {name}\n{name}: .incbin "{data}"')
    source = program.parent / f"{program.name}_cubins.s"
    source.write_text("\n".join([*lines, '.section .note.GNU-stack,"",%progbits', ""]))
    return source


def _start(command: Sequence[object]) -> subprocess.Popen:
    return subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True)


def _wait(running: list[subprocess.Popen]):
    while running:
        process = running.pop()
        _, words = process.communicate()
        assert process.returncode == 0, words


def export_and_compile(cubins: Path, work: Path, source: Path = HERE / "caller.c", flags: Sequence[str] = ()) -> Path:
    """The whole of a cubin directory as a package, built with a program."""
    package = work / "package"
    if package.exists():
        shutil.rmtree(package)
    export(package, Manifest(cubins / "manifest.json"), cubins, ["*"])
    return compile_package(package, work / "program", [source], flags)
