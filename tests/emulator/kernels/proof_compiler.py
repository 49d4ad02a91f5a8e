"""Finding nvcc and making PTX or cubins of the proof kernels."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NO_NVCC = (
    "no nvcc: the proof kernels are compiled when the tests run. Install the pinned compiler into this environment "
    "(pip install '.[build]'), or put an nvcc of CUDA 13 on PATH."
)
SOURCES = Path(__file__).resolve().parents[3] / "src_cu"  # whose wrappers of instructions these kernels are made of
FLAGS = ("-std=c++20", "-lineinfo", f"-I{SOURCES}")


def find_nvcc():
    """The pinned nvcc of the running environment (the wheel nvidia-cuda-nvcc), else the one on PATH, else None."""
    for site in sys.path:
        pinned = Path(site) / "nvidia" / "cu13" / "bin" / "nvcc"
        if pinned.exists():
            return str(pinned)
    return shutil.which("nvcc")


class Compiler:
    """Compiles each (text of the source and its headers, arch, form) once per process, or once for all that share a folder."""

    def __init__(self, nvcc, folder=None):
        self.nvcc, self.folder = nvcc, folder
        self._results = {}

    def ptx(self, path, arch):
        return self._compile(Path(path), arch, "-ptx").decode()

    def cubin(self, path, arch):
        """Refuses register spills too: ptxas warns about them, and every warning is an error."""
        return self._compile(Path(path), arch, "-cubin", "-Xptxas=-warn-spills")

    def _compile(self, path, arch, form, *more):
        digest = hashlib.sha256(path.read_bytes())
        for header in sorted([*path.parent.glob("*.cuh"), *SOURCES.glob("common/*.cuh")]):
            digest.update(header.read_bytes())
        key = (digest.hexdigest(), path, arch, form)
        if key not in self._results:
            self._results[key] = self._shared(hashlib.sha256(repr(key).encode()).hexdigest(), path, arch, form, *more)
        return self._results[key]

    def _shared(self, name, *arguments):
        """What another process has left in the folder, or what is left there for the others."""
        if self.folder is None:
            return self._compiled(*arguments)
        known = Path(self.folder) / name
        if not known.exists():
            made = self._compiled(*arguments)
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(made)
            os.replace(file.name, known)
        return known.read_bytes()

    def _compiled(self, path, arch, form, *more):
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, "output")
            command = [self.nvcc, form, f"-arch={arch}", *FLAGS, *more, "-Werror=all-warnings", "-o", output, str(path)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode or done.stderr.strip():
                raise RuntimeError(f"nvcc complains about {path.name} for {arch}\n$ {' '.join(command)}\n{done.stdout}{done.stderr}")
            return Path(output).read_bytes()
