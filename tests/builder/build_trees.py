"""Small trees of tables for the tests of the build, and the build as a user runs it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from build_cubins import PACKAGES

ROOT = Path(__file__).resolve().parents[2]

VARIANT_HEADER = """\
#pragma once
#include <cstdint>
namespace zoo {
struct f32;
struct bf16;
struct i32;
enum class Mode { once, twice };
}
"""

TABLE = """\
name = "quantize.mxfp8.rows"
summary = "a test"
source = "copy.cu"

[promises]
deterministic = true

[options.mode]
values = ["once", "twice"]
default = "once"
help = "how often"

[[arguments]]
name = "x"
dtypes = ["f32"]
shape = ["M", "K"]
strides = ["x_stride", "1"]
access = "read"
alignment = 16
help = "input"

[[arguments]]
name = "y"
dtypes = ["f32"]
access = "write"
forms = [
  { when = "mode.once", shape = ["M", "K"], strides = ["y_stride", "1"] },
  { when = "mode.twice", shape = ["2", "M", "K"] },
]

[[arguments]]
name = "bias"
dtypes = ["f32"]
shape = ["K"]
access = "read"
optional = true

[[arguments]]
name = "alpha"
kind = "scalar"
dtypes = ["f32"]
default = 1.0

[[arguments]]
name = "count"
kind = "scalar"
dtypes = ["i32"]
default = 1

[derived]
SIZE = "M * K"

[[constraints]]
expression = "K % 4 == 0"
words = "K must be a multiple of 4"

[launch.default]
grid = ["ceil_div(SIZE, THREADS)", "1", "1"]
values = { stride = "y_stride if mode.once else K" }

[signature.copy]
parameters = ["const float* x", "float* y", "int count", "int64_t stride", "float alpha", "const float* bias"]

[variants]
arch = ["sm_90a", "sm_100f"]

[[variants.tiles]]
name = "t64"
constants = { THREADS = 64 }
cost = "THREADS"

[[variants.tiles]]
name = "t128"
constants = { THREADS = 128 }
when = "M > 1"
"""

SOURCE = """\
#include "quantize/scale.cuh"
extern "C" __global__ void __launch_bounds__(Variant::THREADS)
    ZOO_KERNEL(ZOO_PARAMETERS) {
    const int twice = Variant::mode == zoo::Mode::twice;
    y[threadIdx.x * stride + twice] = scale(x[threadIdx.x]) * alpha + count + (bias ? bias[0] : 0.f);
}
"""

HEADER = "#pragma once\n__device__ inline float scale(float value) { return 2.f * value; }\n"


def write_tree(folder: Path, table: str = TABLE, source: str = SOURCE, header: str = HEADER) -> Path:
    files = {
        "common/variant.cuh": VARIANT_HEADER,
        "quantize/tables/copy.toml": table,
        "quantize/kernels/copy.cu": source,
        "quantize/scale.cuh": header,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def edited(text: str, *changes: tuple[str, str]) -> str:
    """`text` with each `old` replaced by `new`, once; a change that changes nothing is a mistake of the test."""
    for old, new in changes:
        assert old in text, f"{old!r} is not in the text"
        text = text.replace(old, new, 1)
    return text


def _missing_compiler() -> str | None:
    for name, version in PACKAGES.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "not installed"
        if found != version:
            return f"{name} is {found}, these tests need {version}: pip install '.[build]'"
    return None


needs_nvcc = pytest.mark.skipif(_missing_compiler() is not None, reason=_missing_compiler() or "")


_SHARED = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.builder.shared_builds import main; main()"


def run_build(*arguments: str | Path, status: int = 0, environment: dict | None = None, shared: Path | None = None) -> str:
    """Runs build_cubins.py, compiling only what is not in the folder `shared`; the text it printed. Any traceback fails the test."""
    program = [ROOT / "build_cubins.py"] if shared is None else ["-c", _SHARED, shared]
    done = subprocess.run([sys.executable, *program, *map(str, arguments)], capture_output=True, text=True, env=environment)
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    assert done.returncode == status, said
    return said
