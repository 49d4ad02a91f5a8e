"""Slips that public kernels have (docs/lab/emulator.md), in CUDA of our own: the finding names the line, and the mended kernel has none."""

import numpy as np
import pytest

from zoo import emulator

SOURCE = r"""
// A warp adds two rows. One warp too many comes in.
template <bool RIGHT> __device__ void add_rows(const float* a, const float* b, float* sum, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, column = threadIdx.x % 32;
    if (RIGHT ? row >= rows : row > rows) return;
    float first = a[row * 32 + column];  // row
    sum[row * 32 + column] = first + b[row * 32 + column];  // row
}

// A thread scales four values; a block of 64 values has a scale. Threads without values load a scale, too.
template <bool RIGHT> __device__ void scale_blocks(const float* values, const float* scales, float* out, int count) {
    __shared__ float staged[256];
    int start = 256 * blockIdx.x, first = start + 4 * threadIdx.x;
    float scale = !RIGHT || first < count ? scales[first / 64] : 0;  // scale
    for (int i = threadIdx.x; i < 256 && start + i < count; i += blockDim.x) staged[i] = values[start + i];
    __syncthreads();
    for (int i = first; i < first + 4 && i < count; ++i) out[i] = staged[i - start] * scale;
}

// 16 lanes find their largest value. Both halves of the warp name the lower one.
template <bool RIGHT> __device__ void largest_of_16(const float* values, float* out) {
    unsigned mask = RIGHT ? 0xffffu << (threadIdx.x & 16) : 0xffffu;
    float largest = fabsf(values[threadIdx.x]);
    #pragma unroll
    for (int step = 8; step; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(mask, largest, step));  // mask
    if (threadIdx.x % 16 == 0) out[threadIdx.x / 16] = largest;
}

// A warp stores its line of shared memory by the asynchronous proxy.
template <bool RIGHT> __device__ void store_line(const float* values, float* out) {
    __shared__ __align__(128) float line[32];
    line[threadIdx.x] = 2 * values[threadIdx.x];  // write
    if (RIGHT) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (threadIdx.x) return;
    unsigned from = __cvta_generic_to_shared(line);
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128;" :: "l"(out), "r"(from) : "memory");  // copy
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}

#define BOTH(NAME, PARAMETERS, ...) \
    extern "C" __global__ void NAME PARAMETERS { NAME<false>(__VA_ARGS__); } \
    extern "C" __global__ void NAME##_right PARAMETERS { NAME<true>(__VA_ARGS__); }
BOTH(add_rows, (const float* a, const float* b, float* sum, int rows), a, b, sum, rows)
BOTH(scale_blocks, (const float* values, const float* scales, float* out, int count), values, scales, out, count)
BOTH(largest_of_16, (const float* values, float* out), values, out)
BOTH(store_line, (const float* values, float* out), values, out)
"""
X = np.random.default_rng(56).standard_normal((10, 32)).astype("f4")
SCALES = np.arange(5, dtype="f4")
# kernel -> the kind of the finding, what marks its lines, grid, block, inputs, the result, which the kernel stores, and integers
CASES = {
    "add_rows": ("out-of-bounds", "row", 3, 128, [X, 2 * X], X + 2 * X, [10]),
    "scale_blocks": ("out-of-bounds", "scale", 2, 64, [X, SCALES], X.reshape(5, 64) * SCALES[:, None], [320]),
    "largest_of_16": ("convergence", "mask", 1, 32, [X[0]], np.abs(X[0]).reshape(2, 16).max(axis=1), []),
    "store_line": ("missing-proxy-fence", "copy", 1, 32, [X[0]], 2 * X[0], []),
}


@pytest.fixture(scope="module")
def module(compile_ptx, tmp_path_factory):
    source = tmp_path_factory.mktemp("slips") / "slips.cu"
    source.write_text(SOURCE)
    return emulator.Module(compile_ptx(source, "sm_90a"), whole=False)


def launch(module, name, right):
    _, _, grid, block, inputs, expected, integers = CASES[name]
    gpu = emulator.Device(scheduling="last")
    out = gpu.alloc(expected.nbytes)
    report = gpu.launch(module, name + "_right" * right, grid, block, params=[*map(gpu.alloc, inputs), out, *integers])
    return report, gpu.read(out, expected.shape, "f4")


@pytest.mark.parametrize("name", CASES)
def test_a_slip_of_public_kernels_is_found_in_its_line(module, name):
    kind, mark, *_ = CASES[name]
    report, _ = launch(module, name, right=False)
    marked = {f"slips.cu:{number}" for number, line in enumerate(SOURCE.splitlines(), 1) if line.endswith(f"// {mark}")}
    assert {finding.kind for finding in report.findings} == {kind}, report
    ours = [[place for place in (finding.source, *finding.callers) if "slips.cu" in place] for finding in report.findings]
    assert {places[0].rpartition("/")[2] for places in ours} == marked, report


@pytest.mark.parametrize("name", CASES)
def test_the_mended_kernel_has_no_finding(module, name):
    report, result = launch(module, name, right=True)
    assert not report.findings, report
    np.testing.assert_array_equal(result, CASES[name][5])
