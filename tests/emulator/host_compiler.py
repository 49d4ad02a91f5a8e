"""Programs with a main function, compiled as users compile them for `zoo emulate PROGRAM`."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from proof_compiler import NO_NVCC, find_nvcc

PROGRAMS = Path(__file__).parent / "programs"


def compiled(name, folder_of_the_run):
    """The compiled program. The first process that needs it compiles it for all."""
    nvcc = find_nvcc()
    libraries = [path for site in sys.path for path in Path(site).glob("nvidia/cu13/lib/libcudart.so.13")]
    if nvcc is None or not libraries:
        pytest.skip(NO_NVCC)
    made = folder_of_the_run / f"program {name}"
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=folder_of_the_run) as folder:
            (Path(folder) / "libcudart.so").symlink_to(libraries[0])  # the wheel has no link for linkers
            flags = ("-std=c++17", "-lineinfo", "-cudart", "shared", "-gencode", "arch=compute_90a,code=compute_90a", f"-L{folder}", "-ldl")
            subprocess.run([nvcc, *flags, "-o", f"{folder}/program", PROGRAMS / name], check=True)
            os.replace(f"{folder}/program", made)
    return made
