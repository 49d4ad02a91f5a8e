"""The recording stand-in for libcuda: build it, run a program against it, read back what it was asked to launch.

library = build(tmp_path)                         # compiles recorder.c with cc
run = python(library, "import zoo; zoo.launch(...)", devices="9.0:132,10.0:148")
run.launches[0].grid, run.launches[0].block(rule), run.faults, run.calls("cuLibraryLoadData")
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.contract.manifest import LaunchRule

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def build(directory: Path | str, compiler: str = "cc") -> Path:
    """Compiles the stand-in into `directory` and returns the path of its libcuda.so.1."""
    library = Path(directory) / "libcuda.so.1"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread"]
    subprocess.run([compiler, *flags, f"-Wl,-soname,{library.name}", "-o", library, HERE / "recorder.c"], check=True)
    return library


@dataclass(frozen=True)
class RecordedLaunch:
    kernel: str
    device: int
    grid: tuple[int, int, int]
    threads: int
    cluster: tuple[int, int, int]
    shared: int
    programmatic: bool
    stream: int
    capturing: bool
    buffer: bool  # the parameters came in one buffer rather than by pointers
    parameters: tuple[bytes, ...]  # in the kernel's order; tensor maps as zoo.contract.tensor_map.TensorMap.to_bytes()

    def block(self, rule: LaunchRule) -> bytes:
        """The parameters where the manifest puts them, to compare with zoo.contract.resolve.Launch.logical_block()."""
        block = bytearray(rule.parameter_bytes)
        assert len(rule.parameters) == len(self.parameters)
        for parameter, value in zip(rule.parameters, self.parameters, strict=True):
            assert parameter.size == len(value)
            block[parameter.offset : parameter.offset + parameter.size] = value
        return bytes(block)


class Log:
    """What the stand-in wrote: launches, calls (with trace on) and faults, in order."""

    def __init__(self, path: Path):
        self.lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def launches(self) -> list[RecordedLaunch]:
        return [_launch(line) for line in self.lines if "kernel" in line]

    @property
    def faults(self) -> list[str]:
        """What the program did that a driver need not forgive."""
        return [line["fault"] for line in self.lines if "fault" in line]

    def calls(self, *names: str) -> int:
        """How often one of `names` was called; needs trace=True."""
        return sum(line.get("call") in names for line in self.lines)


def _launch(line: dict) -> RecordedLaunch:
    assert line["block"][1:] == [1, 1]
    return RecordedLaunch(
        kernel=line["kernel"],
        device=line["device"],
        grid=tuple(line["grid"]),
        threads=line["block"][0],
        cluster=tuple(line["cluster"]),
        shared=line["shared"],
        programmatic=bool(line["programmatic"]),
        stream=line["stream"],
        capturing=line["capturing"],
        buffer=line["buffer"],
        parameters=tuple(bytes.fromhex(parameter) for parameter in line["parameters"]),
    )


class Run(Log):
    """A finished program: its log, and its `returncode`, `stdout` and `stderr`."""

    def __init__(self, log: Path, process: subprocess.CompletedProcess):
        super().__init__(log)
        self.returncode, self.stdout, self.stderr = process.returncode, process.stdout, process.stderr


def environment(library: Path, log: Path | None = None, devices: str = "9.0:132", fail: str = "", trace: bool = False) -> dict[str, str]:
    """The variables under which a program finds the stand-in instead of a driver."""
    found = os.environ.get("LD_LIBRARY_PATH")
    return {
        **os.environ,
        "LD_LIBRARY_PATH": f"{library.parent}:{found}" if found else str(library.parent),
        "PYTHONPATH": str(ROOT),
        "ZOO_RECORDER_DEVICES": devices,
        "ZOO_RECORDER_LOG": str(log or ""),
        "ZOO_RECORDER_FAIL": fail,
        "ZOO_RECORDER_TRACE": "1" if trace else "",
    }


def program(
    library: Path,
    command: Sequence[str | Path],
    devices: str = "9.0:132",
    fail: str = "",
    trace: bool = False,
    check: bool = True,
    timeout: float = 120,
    **variables: str,
) -> Run:
    """Runs a program against the stand-in. `check`: fail the test, showing stderr, if it exits with another status than 0."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        settings: Mapping[str, str] = {**environment(library, log, devices, fail, trace), **variables}
        process = subprocess.run([str(word) for word in command], env=settings, capture_output=True, text=True, timeout=timeout)
        if check and process.returncode:
            raise AssertionError(f"status {process.returncode}\n{process.stdout}{process.stderr}")
        return Run(log, process)


def python(library: Path, snippet: str, **settings) -> Run:
    """Runs a Python snippet against the stand-in, in a process of its own, with the project importable."""
    return program(library, [sys.executable, "-c", snippet], **settings)
