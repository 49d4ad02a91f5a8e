"""Kernels that the compiler takes and the zoo must not: the build fails, says why, and writes nothing."""

import os
import subprocess
import sys

import pytest

from build_cubins import PACKAGES
from tests.builder.build_trees import ROOT, SOURCE, TABLE, edited, needs_nvcc, run_build, write_tree
from tools.builder import BuildError
from tools.builder.compiler import Compiler

SMALL = edited(TABLE, ('["sm_90a", "sm_100f"]', '["sm_90a"]'), ('["once", "twice"]', '["once"]'), ('  { when = "mode.twice", shape = ["2", "M", "K"] },\n', ""))  # fmt: skip
GRID = 'grid = ["ceil_div(SIZE, THREADS)"'
SHARED = ('extern "C"', 'namespace zoo {\nconstexpr int DYNAMIC_SHARED_BYTES = 2048 * Variant::THREADS;\n}\nextern "C"')
USED = "    extern __shared__ float held[];\n    held[threadIdx.x] = 1.f;\n    __syncthreads();\n    y[1] = held[count];\n"

STATEMENT = "    const int twice"
LOCAL = "    float table[64];\n    for (int i = 0; i < 64; ++i) table[i] = x[i];\n    for (int i = 0; i < count; ++i) table[int(x[i])] += 1.f;\n    y[0] = table[count];\n"
SPILL = """\
    float held[200];
#pragma unroll
    for (int i = 0; i < 200; ++i) held[i] = x[i * stride + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 200; ++i) y[i * stride + threadIdx.x] = held[i] * held[(i + 100) % 200];
"""
SERIALIZED = """\
    float sum[4] = {};
    for (int i = 0; i < 4; ++i) {
        asm volatile("wgmma.fence.sync.aligned;");
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "l"(stride), "l"(stride + i));
        sum[0] += x[i];
        asm volatile("wgmma.commit_group.sync.aligned;");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;");
    y[threadIdx.x] = sum[0] + sum[1] + sum[2] + sum[3];
"""
LIST = "ZOO_PARAMETERS"
OWN_LIST = "const float* x, float* y, int count, int64_t stride, float alpha, const float* bias"
UNNAMED = "namespace { __device__ int counter; }\n"

# what is wrong -> (changes of the table, changes of the source, what the build says)
FAILURES = {
    "syntax": ([], [("* alpha", "* alhpa")], 'quantize/kernels/copy.cu(5): error: identifier "alhpa" is undefined'),
    "unknown constant": ([], [("Variant::THREADS", "Variant::THREAD")], "THREAD"),
    "a warning": ([], [(STATEMENT, "    int unused = 3;\n" + STATEMENT)], "was declared but never referenced"),
    "a parameter that the signature has not": ([], [("+ count", "+ counts")], 'identifier "counts" is undefined'),
    "a list of its own": ([], [(LIST, OWN_LIST)], "must take ZOO_KERNEL(ZOO_PARAMETERS)"),
    "a list of its own beside the name in a comment": ([], [(LIST, f"{OWN_LIST} /* ZOO_PARAMETERS */"), ('#include "quantize', '// ZOO_PARAMETERS\n#include "quantize')],
                                                       "must take ZOO_KERNEL(ZOO_PARAMETERS)"),
    "another symbol": ([], [("ZOO_KERNEL(", "my_kernel(")], "must take ZOO_KERNEL(ZOO_PARAMETERS)"),
    "a pipeline that the source has not": ([("{ THREADS = 64 }", '{ THREADS = 64 }\npipeline = "other"')], [], "pipeline = other, but "),
    "a second kernel": ([], [('extern "C"', 'extern "C" __global__ void second() {}\nextern "C"')], "it defines"),
    "no kernel": ([], [('extern "C" __global__ void __launch_bounds__(Variant::THREADS)', "__device__ void")], "it defines none"),
    "any number of threads": ([], [("__launch_bounds__(Variant::THREADS)", "")], "copy.cu must say of ZOO_KERNEL how many threads it has: __launch_bounds__(...)"),
    "threads along two axes": ([], [("__launch_bounds__(Variant::THREADS)", "__block_size__((32, 2, 1))")], "started with 32 threads, compiled for 32x2x1"),
    "another cluster than it requires": ([], [("__launch_bounds__", "__cluster_dims__(2, 1, 1) __launch_bounds__")], "started in clusters of 1x1x1, compiled for 2x1x1"),
    "too large a cluster": ([(GRID, 'cluster = ["32", "1", "1"]\n' + GRID)], [], "a cluster of 32x1x1 CTAs, expected 1 to 16"),
    "too much shared memory": ([], [SHARED, (STATEMENT, USED + STATEMENT)], "262144 bytes of shared memory (0 static), the limit is 232448"),
    "shared memory of nobody knows how much": ([], [(STATEMENT, USED + STATEMENT)], "has extern __shared__ memory; say how much"),
    "shared memory that nothing uses": ([], [SHARED], "zoo::DYNAMIC_SHARED_BYTES is 131072, but no extern __shared__ memory is used; remove it"),
    "static and dynamic together": ([("THREADS = 128", "THREADS = 113")], [SHARED, (STATEMENT, USED + "    __shared__ float s[512];\n    s[threadIdx.x] = 1.f;\n    __syncthreads();\n    y[0] = s[count];\n" + STATEMENT)],
                                    "233472 bytes of shared memory (2048 static), the limit is 232448"),
    "an array in local memory": ([], [(STATEMENT, LOCAL + STATEMENT)], "uses 256 bytes of stack a thread in local memory"),
    "spilled registers": ([("THREADS = 64", "THREADS = 1024")], [(STATEMENT, SPILL + STATEMENT)], "spills registers: "),
    "serialized tensor cores": ([], [(STATEMENT, SERIALIZED + STATEMENT)], "Potential Performance Loss: wgmma.mma_async instructions are serialized"),
    "a name of the day": ([], [('extern "C"', UNNAMED + 'extern "C"'), (STATEMENT, "    atomicAdd(&counter, count);\n" + STATEMENT)], "something in an unnamed namespace"),
    "a division by zero": ([(GRID, 'cluster = ["THREADS // (THREADS - 64)", "1", "1"]\n' + GRID)], [], "divides by zero"),
}  # fmt: skip


@needs_nvcc
@pytest.mark.parametrize("failure", FAILURES)
def test_the_build_fails_for(shared_build, tmp_path, failure):
    table_changes, source_changes, words = FAILURES[failure]
    source = write_tree(tmp_path / "source", edited(SMALL, *table_changes), edited(SOURCE, *source_changes))
    said = shared_build("--source", source, "--output", tmp_path / "cubins", status=1)
    assert words in said
    assert "quantize.mxfp8.rows once_t" in said and "sm_90a" in said and "copy.cu" in said  # the variant and its source
    assert not (tmp_path / "cubins").exists()


@needs_nvcc
def test_the_kernel_that_the_failures_are_made_in_builds(shared_build, tmp_path):
    shared_build("--source", write_tree(tmp_path / "source", SMALL), "--output", tmp_path / "cubins")


@needs_nvcc
def test_all_failures_are_told_and_the_good_cubins_stay(shared_build, tmp_path):
    source = write_tree(tmp_path / "source", SMALL)
    shared_build("--source", source, "--output", tmp_path / "cubins")
    before = {path: path.read_bytes() for path in (tmp_path / "cubins").rglob("*") if path.is_file()}
    write_tree(source, SMALL, edited(SOURCE, ("* alpha", "* alhpa")))
    said = shared_build("--source", source, "--output", tmp_path / "cubins", status=1)
    assert said.count("does not compile") == 1 and said.count('identifier "alhpa" is undefined') == 1, "one typo, one message"
    assert "quantize.mxfp8.rows once_t128 (sm_90a) does not compile" in said and "and 1 more alike: once_t64 (sm_90a)" in said
    assert {path: path.read_bytes() for path in (tmp_path / "cubins").rglob("*") if path.is_file()} == before


@needs_nvcc
def test_each_distinct_message_is_printed(shared_build, tmp_path):
    asserts = '    static_assert(Variant::THREADS != 64, "too small");\n    static_assert(Variant::THREADS != 128, "too large");\n'
    source = write_tree(tmp_path / "source", SMALL, edited(SOURCE, (STATEMENT, asserts + STATEMENT)))
    said = shared_build("--source", source, "--output", tmp_path / "cubins", status=1)
    assert said.count("does not compile") == 2 and "too small" in said and "too large" in said and "alike" not in said


@needs_nvcc
@pytest.mark.parametrize("option", ["--output", "--ptx"])
def test_a_place_that_cannot_be_written_is_said_before_compiling(tmp_path, option):
    write_tree(tmp_path / "source", SMALL, edited(SOURCE, ("* alpha", "* alhpa")))  # compiling would fail otherwise
    places = {"--output": tmp_path / "cubins"} | {option: "/dev/null/x"}
    said = run_build("--source", tmp_path / "source", *(part for pair in places.items() for part in pair), status=1)
    assert said.strip() == "error: cannot write to /dev/null/x: /dev/null is not a directory"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, ROOT / "build_cubins.py", "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr == "Error: standard output: No space left on device\n"


def test_another_version_of_the_compiler_is_refused():
    with pytest.raises(BuildError, match=r"nvidia-cuda-nvcc is .*; install the pinned compiler: pip install '\.\[build\]'"):
        Compiler({**PACKAGES, "nvidia-cuda-nvcc": "1.2.3"})


def test_a_missing_package_is_named():
    with pytest.raises(BuildError, match="no-such-compiler is not installed in this environment; install the pinned compiler"):
        Compiler({"no-such-compiler": "1.0"})


def test_the_build_extra_installs_what_the_build_demands():
    text = (ROOT / "pyproject.toml").read_text()
    for name, version in PACKAGES.items():
        assert f'"{name}=={version}"' in text
