"""Compiles the stand-in, starts the program over it, and answers its processes."""

import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..causes import causes
from ..check import Result, schedules
from ..device import Device
from ..errors import EmulatorError, LaunchError
from .linked import functions_of
from .requests import Requests, Seen

_HERE = Path(__file__).parent
_RUNTIMES = ("libcudart.so.12", "libcudart.so.13")
_DEFINED = re.compile(r"^(?:EXPORT [^(]*?|SAME\()(\w+)[(,]", re.MULTILINE)
_DEFAULT_STREAMS = ("_ptsz", "_ptds")  # suffixes of functions that nvcc --default-stream per-thread calls
_MESSAGE = struct.Struct("<14Q")
_REFUSED = (1 << 64) - 1


@dataclass
class ProgramResult(Result):
    """The launches of each kernel are a report. `wrong`: what was refused, as the host judges values. `status`: the program's own."""

    seen: Seen = field(default_factory=Seen)
    status: int = 0

    def failed(self, strict: bool = False) -> bool:
        return bool(self.status or super().failed(strict))


def start(
    program: Path,
    arguments: Sequence[str],
    *,
    arch: str | None = None,
    count: int = 2,
    seed: int = 0,
    jobs: int = 1,
    only: str | None = None,
) -> ProgramResult:
    """Runs a program to its end. jobs: processes that share the clusters of a launch."""
    schedules(count, seed, only)  # refuses one that is unknown
    if arch is not None:
        Device(arch)  # refuses one that is not covered
    wanted = functions_of(program)
    seen = Seen()
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder, socket.socket(socket.AF_UNIX) as listener:
        libraries = _compiled(Path(folder), wanted)
        address = os.path.join(folder, "socket")
        try:
            listener.bind(address)
        except OSError as error:
            raise LaunchError(f"{address} cannot be a socket: {error}; set TMPDIR to a shorter path") from None
        listener.listen()
        answering = _Answering(listener, lambda: Requests(seen, arch, count, seed, jobs, only), seen)
        preloaded = [*map(str, libraries), *filter(None, [os.environ.get("LD_PRELOAD")])]
        environment = {**os.environ, "LD_PRELOAD": ":".join(preloaded), "ZOO_EMULATOR_SOCKET": address}
        status = subprocess.run([program, *arguments], env=environment).returncode
        answering.end()
    reports = [(schedule, launches) for (schedule, *_), launches in seen.launches.items()]
    return ProgramResult(reports, causes(reports), {}, seen.refusals, seen, status)


def _compiled(folder: Path, wanted: set[str]) -> list[Path]:
    """The stand-in with the driver's name, which has all functions, and libraries with the runtime's names, which have none."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise LaunchError("a program is run over a small library in C, and there is no C compiler: install gcc or clang")
    sources = sorted(_HERE.glob("*.c"))
    defined = {name for source in sources for name in _DEFINED.findall(source.read_text())}
    aliases = {name + suffix: name for name in sorted(defined) if "cuda" in name for suffix in _DEFAULT_STREAMS}
    missing = sorted(wanted - defined - set(aliases))
    refusals = (f'EXPORT void {name}(void) {{ refuse("the program calls {name}, which is not covered"); }}\n' for name in missing)
    (folder / "missing.c").write_text('#include "stand_in.h"\n' + "".join(refusals))
    flags = ["-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{_HERE}"]
    driver = folder / "libcuda.so.1"
    linked = [f"-Wl,-soname,{driver.name}", *(f"-Wl,--defsym={name}={plain}" for name, plain in aliases.items()), "-pthread", "-ldl"]
    _run([compiler, *flags, "-o", driver, *sources, folder / "missing.c", *linked])
    made = [driver]
    for name in _RUNTIMES:
        versions = folder / f"{name}.versions"  # a program that is linked with a runtime asks for the symbols' version, too
        versions.write_text(f"{name} {{ }};\n")
        _run([compiler, *flags, f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}", "-o", folder / name, "-x", "c", os.devnull])
        made.append(folder / name)
    return made


def _run(command):
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise EmulatorError(f"the stand-in for the CUDA runtime does not compile: {ran.stderr.strip()}")


class _Answering:
    """A thread that accepts processes, and one for each of them."""

    def __init__(self, listener, requests, seen):
        self._listener, self._requests, self._seen = listener, requests, seen
        self._threads, self._errors = [], []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection):
        requests = self._requests()
        with connection:
            try:
                while (header := _received(connection, _MESSAGE.size)) is not None:
                    what, size, *arguments = _MESSAGE.unpack(header)
                    error, numbers, data = requests.answer(what, tuple(arguments), bytes(_received(connection, size)))
                    connection.sendall(_MESSAGE.pack(error, len(data), *numbers, *[0] * (12 - len(numbers))) + data)
            except EmulatorError as error:
                self._seen.refusals.append(str(error))
                connection.sendall(_MESSAGE.pack(_REFUSED, 0, *[0] * 12))
            except OSError:
                pass  # the process was killed
            except Exception as error:
                self._errors.append(error)

    def end(self):
        """No process is left: what they left behind has been answered when this returns."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]


def _received(connection, size):
    """So many bytes, or None where the process has ended."""
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        got = connection.recv_into(view[at:])
        if got == 0:
            return None
        at += got
    return data
