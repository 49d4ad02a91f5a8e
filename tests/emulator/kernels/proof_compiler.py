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
FLAGS = ("-std=c++17", "-lineinfo")


def find_nvcc():
    """The pinned nvcc of the running environment (the wheel nvidia-cuda-nvcc), else the one on PATH, else None."""
    for site in sys.path:
        pinned = Path(site) / "nvidia" / "cu13" / "bin" / "nvcc"
        if pinned.exists():
            return str(pinned)
    return shutil.which("nvcc")


class Compiler:
    """Compiles each (text of the source and its headers, arch, form) once per process."""

    def __init__(self, nvcc):
        self.nvcc = nvcc
        self._results = {}

    def ptx(self, path, arch):
        return self._compile(Path(path), arch, "-ptx").decode()

    def cubin(self, path, arch):
        """Refuses register spills too: ptxas warns about them, and every warning is an error."""
        return self._compile(Path(path), arch, "-cubin", "-Xptxas=-warn-spills")

    def _compile(self, path, arch, form, *more):
        digest = hashlib.sha256(path.read_bytes())
        for header in sorted(path.parent.glob("common/*.cuh")):
            digest.update(header.read_bytes())
        key = (digest.hexdigest(), path, arch, form)
        if key not in self._results:
            with tempfile.TemporaryDirectory() as folder:
                output = os.path.join(folder, "output")
                command = [self.nvcc, form, f"-arch={arch}", *FLAGS, *more, "-Werror=all-warnings", "-o", output, str(path)]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode or done.stderr.strip():
                    raise RuntimeError(f"nvcc complains about {path.name} for {arch}\n$ {' '.join(command)}\n{done.stdout}{done.stderr}")
                self._results[key] = Path(output).read_bytes()
        return self._results[key]
