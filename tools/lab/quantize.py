"""Check and time builds of quantize.mxfp8.rows on a GPU, beside torch's copy_ of the same bytes.

    python tools/lab/quantize.py FOLDER [--check] [--time] [--json FILE]

FOLDER holds cubins and index.json, a list of builds: {"label", "file", "symbol", "x", "q", "rounding", "layout",
"threads", "loads", "lane_bytes" (of a load), "persist" (CTAs an SM of a persistent grid; 0: one share a warp), "pdl",
"shared" (dynamic, bytes), "check", "time"}. Nothing is built here, so builds by several compilers, or of designs that
were not kept, go through the same run. Needs torch, cuda-bindings and zoo.reference.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pathlib
import statistics
import sys

import ml_dtypes
import numpy as np
import torch
from cuda.bindings import driver

from zoo.reference import quantize_mxfp8_rows

SHAPES = [(8192, 2048), (8192, 7168), (32768, 2048), (32768, 7168), (131072, 2048), (131072, 7168)]
NUMPY = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
TORCH_NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
BITS = {"bf16": np.uint16, "f16": np.uint16, "f32": np.uint32}
POISON = 0xA5


def call(result):
    status, *values = result
    if int(status):
        raise RuntimeError(f"driver: {status}")
    return values[0] if len(values) == 1 else values


class Build:
    """One cubin and how it is launched."""

    def __init__(self, folder: pathlib.Path, entry: dict, sms: int) -> None:
        self.__dict__.update(entry)
        self.sms = sms
        self.itemsize = np.dtype(BITS[self.x]).itemsize
        library = call(driver.cuLibraryLoadData((folder / self.file).read_bytes(), [], [], 0, [], [], 0))
        self.function = call(driver.cuKernelGetFunction(call(driver.cuLibraryGetKernel(library, self.symbol.encode()))))

    @property
    def name(self) -> str:
        return f"{self.label}: {self.x}_{self.q}_{self.rounding}_{self.layout}"

    def grid(self, m: int, k: int) -> int:
        row_bytes, piece_bytes = k * self.itemsize, 32 * self.lane_bytes
        if self.layout == "plain":
            shares = m * -(-row_bytes // (piece_bytes * self.loads))
        else:
            shares = -(-m // 128) * 128 // self.loads * -(-row_bytes // piece_bytes)
        ctas = max(1, -(-shares // (self.threads // 32)))
        return min(ctas, self.sms * self.persist) if self.persist else ctas

    def launch(self, x, q, scales, m, k, x_stride, q_stride, scales_stride, stream) -> None:
        """Pointers and sizes, in elements; enqueues and returns."""
        block = (ctypes.c_uint64 * 8)(x, q, scales, m, k, x_stride, q_stride, scales_stride)
        pointers = (ctypes.c_void_p * 8)(*(ctypes.addressof(block) + 8 * i for i in range(8)))
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self.grid(m, k), 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self.threads, 1, 1
        config.sharedMemBytes = self.shared
        config.hStream = driver.CUstream(stream)
        if self.pdl:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            value = driver.CUlaunchAttributeValue()
            value.programmaticStreamSerializationAllowed = 1
            attribute.value = value
            config.attrs, config.numAttrs = [attribute], 1
        call(driver.cuLaunchKernelEx(config, self.function, ctypes.addressof(pointers), 0))

    def scales_bytes(self, m: int, k: int) -> int:
        return -(-m // 128) * 128 * (-(-k // 128) * 4) if self.layout == "blocked" else m * k // 32

    def scales_stride(self, k: int) -> int:
        return 512 * -(-k // 128) if self.layout == "blocked" else k // 32


# ---------------------------------------------------------------------------------------------------- checking


def inputs(x: str):
    """(name, bits of a matrix) for one input dtype: what a quantiser gets wrong first."""
    random = np.random.default_rng(7)
    bits, dtype = BITS[x], NUMPY[x]
    width = np.dtype(bits).itemsize * 8

    def any_bits(m, k):
        return random.integers(0, 1 << width, (m, k), dtype=np.uint64).astype(bits)

    def finite(m, k):
        with np.errstate(over="ignore"):
            spread = random.standard_normal((m, k)) * 2.0 ** random.integers(-150, 128, (m, k // 32)).repeat(32, 1)
            rounded = spread.astype(np.float32).astype(dtype).astype(np.float32)
            return np.nan_to_num(rounded, posinf=1, neginf=-1).astype(dtype).view(bits)

    shapes = [(1, 32), (3, 96), (33, 288), (127, 256), (128, 128), (129, 1056), (257, 2080), (300, 2880), (5, 7168)]
    for shape in shapes:
        yield f"all exponents {shape}", any_bits(*shape)
        yield f"finite, spread over blocks {shape}", finite(*shape)
    patterns = np.arange(65536, dtype=np.uint16)
    if x == "f32":  # every bf16 pattern, its neighbours above and below: e4m3 ties and the values beside them
        high = patterns.astype(np.uint32) << 16
        yield "bf16 patterns as f32", high.reshape(-1, 32)
        yield "just above bf16 patterns", (high + 1).reshape(-1, 64)
        yield "just below bf16 patterns", (high - 1).reshape(-1, 128)
        alone = {"bf16 pattern": high, "one above": high + 1, "one below": high - 1}
        special = [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFC00000, 0x80000000, 1, 0x00400000, 0x7F7FFFFF]
    else:
        yield "all patterns", patterns.reshape(-1, 32)
        yield "all patterns, shuffled", random.permutation(patterns).reshape(-1, 256)
        inf = 0x7F80 if x == "bf16" else 0x7C00
        alone = {"pattern": patterns}
        special = [inf, inf | 0x8000, inf + 1, inf | 0x8001, 0x7FFF, 0xFFFF, 0x8000, 1, 0x8001, inf - 1]
    for name, values in alone.items():  # the scale of every amax
        lonely = np.zeros((65536, 32), bits)
        lonely[np.arange(65536), random.integers(0, 32, 65536)] = values
        yield f"every {name} alone in its block", lonely.reshape(-1, 512)
    loud = any_bits(64, 1024) & bits((1 << (width - 1)) - 1 ^ (1 << (width - 2)))  # small, one special value a block
    loud = loud.reshape(-1, 32)
    loud[np.arange(len(loud)), random.integers(0, 32, len(loud))] = random.choice(np.array(special, bits), len(loud))
    yield "one special value a block", loud.reshape(-1, 1024)
    yield "zeros", np.zeros((130, 160), bits)
    yield "negative zeros", np.full((130, 160), 1 << (width - 1), bits)


def run_guarded(build: Build, x_bits: np.ndarray, x_pad: int, q_pad: int, scales_pad: int):
    """Quantise in poisoned buffers, guards on both sides, rows padded; returns the whole q and scales buffers."""
    m, k = x_bits.shape
    guard = 256
    x_stride, q_stride = k + x_pad * 16 // build.itemsize, k + 16 * q_pad
    wide = np.full((m, x_stride), np.iinfo(x_bits.dtype).max, x_bits.dtype)  # NaN between the rows
    wide[:, :k] = x_bits
    x_device = torch.from_numpy(wide.view(np.int16 if build.itemsize == 2 else np.int32)).cuda()
    scales_stride = build.scales_stride(k) + (scales_pad if build.layout == "plain" else 0)
    scales_bytes = build.scales_bytes(m, k) if build.layout == "blocked" else m * scales_stride
    q = torch.full((2 * guard + m * q_stride,), POISON, dtype=torch.uint8, device="cuda")
    scales = torch.full((2 * guard + scales_bytes,), POISON, dtype=torch.uint8, device="cuda")
    build.launch(
        x_device.data_ptr(),
        q.data_ptr() + guard,
        scales.data_ptr() + guard,
        m,
        k,
        x_stride,
        q_stride,
        scales_stride,
        torch.cuda.current_stream().cuda_stream,
    )
    torch.cuda.synchronize()
    return q.cpu().numpy(), scales.cpu().numpy(), guard, q_stride, scales_stride


def expected_buffers(build: Build, reference, m, k, guard, q_stride, scales_stride):
    q_reference, scales_reference = (part.view(np.uint8) for part in reference)
    q = np.full(2 * guard + m * q_stride, POISON, np.uint8)
    q[guard : guard + m * q_stride].reshape(m, q_stride)[:, :k] = q_reference
    if build.layout == "blocked":
        scales = np.full(2 * guard + scales_reference.size, POISON, np.uint8)
        scales[guard : guard + scales_reference.size] = scales_reference
    else:
        scales = np.full(2 * guard + m * scales_stride, POISON, np.uint8)
        scales[guard : guard + m * scales_stride].reshape(m, scales_stride)[:, : k // 32] = scales_reference
    return q, scales


def check(builds: list[Build]) -> int:
    failures = cases = 0
    for x in NUMPY:
        mine = [build for build in builds if build.x == x and build.check]
        if not mine:
            continue
        for name, bits in inputs(x):
            references = {}
            m, k = bits.shape
            for build in mine:
                key = build.q, build.rounding, build.layout
                if key not in references:
                    references[key] = quantize_mxfp8_rows(bits.view(NUMPY[x]), *key)
                for pads in [(0, 0, 0), (1, 3, 5)]:
                    *found, guard, q_stride, scales_stride = run_guarded(build, bits, *pads)
                    expected = expected_buffers(build, references[key], m, k, guard, q_stride, scales_stride)
                    cases += 1
                    for what, a, b in zip(("q", "scales"), found, expected, strict=True):
                        if not np.array_equal(a, b):
                            failures += 1
                            first = int(np.flatnonzero(a != b)[0])
                            if failures < 20:
                                print(
                                    f"WRONG {build.name} {name} pads {pads} {what}: {np.sum(a != b)} bytes, "
                                    f"first at {first - guard}: {a[first]:#x}, expected {b[first]:#x}"
                                )
        for build in mine:  # nothing to do: nothing written
            *found, guard, _, _ = run_guarded(build, np.zeros((0, 64), BITS[x]), 0, 0, 0)
            cases += 1
            if any((part != POISON).any() for part in found):
                failures += 1
                print(f"WRONG {build.name}: M = 0 writes")
    checked = sum(build.check for build in builds)
    print(f"bit-exact and nothing else written: {cases - failures} of {cases} cases over {checked} builds")
    return failures


def check_large(builds: list[Build]) -> int:
    """M * K past 2^31: equal to the same kernel on pieces of 2^20 rows or fewer, whose offsets are small."""
    failures = 0
    m, k = 262144 + 64, 8224
    stream = torch.cuda.current_stream().cuda_stream
    x = torch.randint(-32768, 32767, (m, k), dtype=torch.int16, device="cuda")
    for build in builds:
        if build.x != "bf16" or not build.check or build.q != "e4m3" or build.rounding != "rceil":
            continue
        q, piece_q = (torch.full((m, k), POISON, dtype=torch.uint8, device="cuda") for _ in range(2))
        scales, piece_scales = (torch.full((build.scales_bytes(m, k),), POISON, dtype=torch.uint8, device="cuda") for _ in range(2))
        build.launch(x.data_ptr(), q.data_ptr(), scales.data_ptr(), m, k, k, k, build.scales_stride(k), stream)
        step = 65536
        for row in range(0, m, step):
            rows = min(step, m - row)
            build.launch(
                x[row].data_ptr(), piece_q[row].data_ptr(), piece_scales.data_ptr() + build.scales_bytes(row, k),
                rows, k, k, k, build.scales_stride(k), stream,
            )  # fmt: skip
        torch.cuda.synchronize()
        if not (torch.equal(q, piece_q) and torch.equal(scales, piece_scales)):
            failures += 1
            print(f"WRONG {build.name}: M * K = {m * k}")
        del q, piece_q, scales, piece_scales
    print(f"M * K = {m * k}: {'equal to its pieces' if not failures else 'DIFFERENT'}")
    return failures


# ---------------------------------------------------------------------------------------------------- timing


def graph_of(work, launches: int):
    """A CUDA graph of `launches` calls work(i); replaying it is the measured thing."""
    graph = torch.cuda.CUDAGraph()
    work(0)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for i in range(launches):
            work(i)
    return graph


def time_builds(builds: list[Build], repeats: int) -> dict:
    """Medians in microseconds: {x dtype: {build: {shape: (time, bytes)}}}, the builds and copy_ taking turns."""
    tables = {}
    for x in NUMPY:
        timed = [build for build in builds if build.time and build.x == x]
        for m, k in SHAPES if timed else []:
            total = m * k * (timed[0].itemsize + 1) + m * k // 32
            for name, median in time_shape(timed, x, m, k, total, repeats).items():
                tables.setdefault(x, {}).setdefault(name, {})[f"{m}x{k}"] = (median, total)
            torch.cuda.empty_cache()
    return tables


def time_shape(timed: list[Build], x: str, m: int, k: int, total: int, repeats: int) -> dict[str, float]:
    """The median of each build, and of copy_, at one shape that moves `total` bytes."""
    half = total // 2 // 16 * 16
    sets = max(2, -(-600_000_000 // total))  # rotating: well past the L2 cache
    launches = max(2 * sets, min(40, 4_000_000_000 // total)) // sets * sets

    def buffers(size):
        return [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(sets)]

    xs = [torch.randn(m, k, device="cuda").to(getattr(torch, TORCH_NAMES[x])) for _ in range(sets)]
    qs, scales = buffers(m * k), buffers(m * k // 32)
    sources = [torch.randint(0, 255, (half,), dtype=torch.uint8, device="cuda") for _ in range(sets)]
    targets = buffers(half)

    graphs = {"copy_": graph_of(lambda i: targets[i % sets].copy_(sources[i % sets]), launches)}
    for build in timed:

        def work(i, build=build):
            j = i % sets
            build.launch(
                xs[j].data_ptr(), qs[j].data_ptr(), scales[j].data_ptr(), m, k, k, k, build.scales_stride(k),
                torch.cuda.current_stream().cuda_stream,
            )  # fmt: skip

        graphs[build.name] = graph_of(work, launches)
    samples = {name: [] for name in graphs}
    for repeat in range(repeats + 1):
        for name, graph in graphs.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if repeat:
                samples[name].append(start.elapsed_time(end) * 1e3 / launches)
    return {name: statistics.median(values) for name, values in samples.items()}


def print_table(table: dict) -> None:
    shapes = list(next(iter(table.values())))
    print(f"{'share of copy_ (microseconds)':44s}" + "".join(f"{shape:>15s}" for shape in shapes))
    for name, row in table.items():
        cells = "".join(f"{table['copy_'][s][0] / row[s][0]:8.3f}{row[s][0]:7.1f}" for s in shapes)
        print(f"{name:44s}{cells}")
    print(f"{'copy_ TB/s':44s}" + "".join(f"{table['copy_'][s][1] / table['copy_'][s][0] / 1e6:15.2f}" for s in shapes))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    torch.cuda.init()
    torch.empty(1, device="cuda")
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    entries = json.loads((arguments.folder / "index.json").read_text())
    builds = [Build(arguments.folder, entry, sms) for entry in entries]
    failures = 0
    if arguments.check:
        failures += check(builds) + check_large(builds)
    if arguments.time:
        tables = time_builds(builds, arguments.repeats)
        for table in tables.values():
            print_table(table)
        if arguments.json:
            arguments.json.write_text(json.dumps(tables, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
