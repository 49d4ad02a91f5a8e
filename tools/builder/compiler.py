"""The pinned nvcc: where it is, and what it makes of one translation unit."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from tools.builder import BuildError

# Every warning is an error; -v makes ptxas tell spills, and is part of the cubin's note of its command line.
FLAGS = ("-std=c++20", "-Werror", "all-warnings", "-Xptxas", "-v")

# Behind a unit: a source says zoo::DYNAMIC_SHARED_BYTES, or nothing, which is 0. In the PTX that is one line, which nothing reads.
_SAID = "zoo_dynamic_shared_bytes"
_EXPORT = f"""\
inline constexpr int DYNAMIC_SHARED_BYTES = 0;
namespace zoo {{ extern "C" __device__ const int {_SAID} = DYNAMIC_SHARED_BYTES; }}
"""
_EXPORTED = re.compile(rf"^\.global \.align 4 \.u32 {_SAID}(?: = (\d+))?;\n", re.MULTILINE)

# what would change the compiler's work from outside
_STRAY_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
# what ptxas -v says of a kernel that has nothing wrong; `info : (C7510) Potential Performance Loss` is not among it
_USUAL = re.compile(
    r"ptxas info\s*: (?:\d+ bytes gmem|Compiling entry|Function properties|Used \d+ reg|Compile time)|\s+\d+ bytes stack frame"
)


@dataclass(frozen=True)
class Text:
    """The PTX of a unit."""

    ptx: str
    dynamic_shared: int  # bytes


@dataclass(frozen=True)
class Compiled:
    text: Text
    cubin: bytes
    spill_stores: int
    spill_loads: int


class Compiler:
    def __init__(self, packages: dict[str, str]):
        wanted = " ".join(f"{name}=={version}" for name, version in packages.items())
        hint = f"install the pinned compiler: pip install '.[build]', or pip install {wanted}"
        for name, version in packages.items():
            try:
                found = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                raise BuildError(f"{name} is not installed in this environment; {hint}") from None
            if found != version:
                raise BuildError(f"{name} is {found}, cubins are built with {version} only; {hint}")
        nvcc = _find_nvcc()
        if nvcc is None:
            raise BuildError(f"no nvcc in this environment's nvidia/cu13/bin; {hint}")
        self.nvcc, version = nvcc, packages["nvidia-cuda-nvcc"]
        said = subprocess.run([self.nvcc, "--version"], capture_output=True, text=True).stdout
        if f"V{version}" not in said:
            raise BuildError(f"{self.nvcc} is not version {version}; {hint}")
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped, self._lock = False, threading.Lock()
        self.record = {
            "nvcc": version,
            "packages": packages,
            "flags": ["-cubin", "-arch=<arch>", *FLAGS],
            "reproducible": "byte for byte from the same sources and packages, in any folder",
        }

    def compiled(self, unit: str, arch: str, roots: list[Path]) -> Compiled:
        """The cubin of a unit and the PTX it is assembled from: the bytes that `nvcc -cubin` makes in one step, without doing
        half of the work twice. BuildError holds the compiler's own words."""
        text = self.text(unit, arch, roots)
        with tempfile.TemporaryDirectory(prefix="zoo_build_") as folder:
            Path(folder, "in.ptx").write_text(text.ptx)
            said = self._run(["-cubin", f"-arch={arch}", *FLAGS, "-o", "out.cubin", "in.ptx"], Path(folder), folder)
            cubin = Path(folder, "out.cubin").read_bytes()
        spills = _SPILLS.findall(said)
        stores, loads = (sum(int(found[index]) for found in spills) for index in (1, 2))
        self._refuse_paths(cubin, roots)
        return Compiled(text, cubin, stores, loads)

    def text(self, unit: str, arch: str, roots: list[Path]) -> Text:
        with tempfile.TemporaryDirectory(prefix="zoo_build_") as folder:
            output = Path(folder, "out.ptx")
            # From the first root and through stdin: the compiler sees the same names whatever the folder.
            includes = [f"-I{root}" for root in (".", *roots[1:])]
            self._run(["-x", "cu", "-ptx", f"-arch={arch}", *FLAGS, *includes, "-o", str(output), "-"], roots[0], folder, unit + _EXPORT)
            ptx = output.read_text()
        return _text(ptx)

    def stop(self) -> None:
        """Ends what is being compiled, and compiles nothing any more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)

    def _run(self, arguments: list[str], folder: Path, scratch: str, text: str = "") -> str:
        """What nvcc says, all of which is usual. What it writes meanwhile lies in `scratch`, and goes with it."""
        environment = {name: value for name, value in os.environ.items() if name not in _STRAY_VARIABLES} | {"TMPDIR": scratch}
        with self._lock:
            if self._stopped:
                raise BuildError("the build was stopped")
            process = subprocess.Popen(
                [str(self.nvcc), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                cwd=folder, env=environment, start_new_session=True,
            )  # fmt: skip
            self._running.add(process)
        try:
            said = "".join(process.communicate(text))
        finally:
            with self._lock:
                self._running.discard(process)
        if process.returncode:
            said = re.sub(r"^\./", f"{folder}/", said.strip(), flags=re.MULTILINE)
            said = re.sub(r'"[^"]*tmpxft[^"]*"', "this variant", said)
            if "gcc" in said and "not found" in said:
                said += "\nnvcc preprocesses with the host's C++ compiler: install gcc"
            raise BuildError(said or f"nvcc ended with status {process.returncode} and no message")
        odd = [line for line in said.splitlines() if line.strip() and not _USUAL.match(line)]
        if odd:
            raise BuildError("\n".join(odd))
        return said

    @staticmethod
    def _refuse_paths(cubin: bytes, roots: list[Path]) -> None:
        """What would differ in another folder, or at the next run."""
        for text in (*(str(root.resolve()) for root in roots), "tmpxft"):
            at = cubin.find(text.encode())
            if at >= 0:
                start = max(cubin.rfind(b"\0", 0, at) + 1, at - 200)
                name = cubin[start : cubin.find(b"\0", at)].decode("ascii", "replace")
                raise BuildError(
                    f"the cubin holds '{name}', which changes from build to build: __FILE__ or assert, or something in an "
                    "unnamed namespace that was not inlined; give that a name in namespace zoo"
                )


def _text(ptx: str) -> Text:
    """What the compiler wrote, apart from what the source says of dynamic shared memory."""
    said = _EXPORTED.search(ptx)
    if said is None:
        raise BuildError("the PTX does not hold zoo::DYNAMIC_SHARED_BYTES as expected: is it a constant of 32 bits, at least 0?")
    ptx, taken = ptx[: said.start()] + ptx[said.end() :], int(said[1] or 0)
    if taken == 0 and ".extern .shared" in ptx:
        raise BuildError("has extern __shared__ memory; say how much: `constexpr int DYNAMIC_SHARED_BYTES = ...;` in namespace zoo")
    if taken and ".extern .shared" not in ptx:
        raise BuildError(f"zoo::DYNAMIC_SHARED_BYTES is {taken}, but no extern __shared__ memory is used; remove it")
    return Text(ptx, taken)


def _find_nvcc() -> Path | None:
    """In whichever folder of the `nvidia` packages has it; this machine's own CUDA toolkit is never used."""
    package = importlib.util.find_spec("nvidia")
    places = package.submodule_search_locations if package else None
    return next((path for place in places or () if (path := Path(place, "cu13/bin/nvcc")).is_file()), None)
