"""Execute the raw instructions on the GPU of this machine and write what it computed.

    python -m tests.emulator.hardware.instructions > instructions.cu
    nvcc -arch=sm_90a -cubin -o instructions.cubin instructions.cu
    python -m tests.emulator.hardware.run_on_gpu instructions.cubin FOLDER

compares every output with the emulator's, prints what differs, and writes to FOLDER
`sm_90.npz`, the test vectors (a slice of every matrix result in full, digests of the rest and of the inputs, which cases.py makes);
`differences.npz`, all outputs of the instructions that differ, for whoever looks for the rule behind it;
`sm_90_approximate.npz`, every 256th result of the approximate functions.
Needs numpy and cuda-bindings.
"""

from __future__ import annotations

import pathlib
import sys
import time

import numpy

from tests.emulator.hardware import cases, replay, vectors_file
from tests.emulator.hardware.instructions import APPROXIMATE, ELEMENTWISE, MATRIX

TILES = {"mma": 64, "wgmma": 16, "wgmma_registers": 16}
KEPT_ROWS = 16  # of the first tile of every matrix result
APPROXIMATE_STEP = 256

_TYPE = {"h": numpy.uint16, "r": numpy.uint32, "l": numpy.uint64}


class Gpu:
    """The few driver calls that a launch needs."""

    def __init__(self, cubin: pathlib.Path):
        try:
            from cuda.bindings import driver
        except ImportError:
            from cuda import cuda as driver
        self.driver = driver
        self.call("cuInit", 0)
        self.device = self.call("cuDeviceGet", 0)
        self.context = self.call("cuDevicePrimaryCtxRetain", self.device)
        self.call("cuCtxSetCurrent", self.context)
        self.module = self.call("cuModuleLoadData", cubin.read_bytes())
        self.buffers = [self.call("cuMemAlloc", 16 << 20) for _ in range(4)]

    def call(self, name, *arguments):
        code, *rest = getattr(self.driver, name)(*arguments)
        if int(code) != 0:
            raise RuntimeError(f"{name} failed: {code}")
        return rest[0] if len(rest) == 1 else rest

    def description(self) -> str:
        name = self.call("cuDeviceGetName", 64, self.device).decode().rstrip("\0")
        return f"{name}, driver {self.call('cuDriverGetVersion')}"

    def launch(self, symbol: str, grid: int, block: int, inputs, output: numpy.ndarray, count: int | None) -> numpy.ndarray:
        function = self.call("cuModuleGetFunction", self.module, symbol.encode())
        pointers = self.buffers[: len(inputs)]
        for pointer, array in zip(pointers, inputs, strict=True):
            array = numpy.ascontiguousarray(array)
            self.call("cuMemcpyHtoD", pointer, array.ctypes.data, array.nbytes)
        target = self.buffers[len(inputs)]
        self.call("cuMemsetD8", target, 0xA5, output.nbytes)
        values = [numpy.array([int(p)], dtype=numpy.uint64) for p in (*pointers, target)]
        if count is not None:
            values.append(numpy.array([count], dtype=numpy.uint32))
        parameters = numpy.array([v.ctypes.data for v in values], dtype=numpy.uint64)
        self.call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, 0, parameters.ctypes.data, 0)
        self.call("cuCtxSynchronize")
        self.call("cuMemcpyDtoH", output.ctypes.data, target, output.nbytes)
        return output


def run(cubin: pathlib.Path, folder: pathlib.Path) -> None:
    start = time.time()
    gpu = Gpu(cubin)
    folder.mkdir(parents=True, exist_ok=True)
    vectors, different, approximate = vectors_file.Writer(gpu.description()), {}, {}
    print(gpu.description(), flush=True)

    def compare(key: str, seen: numpy.ndarray, expected: numpy.ndarray) -> None:
        wrong = seen != expected
        if wrong.any():
            at = tuple(int(i[0]) for i in numpy.nonzero(wrong))
            print(f"{key}: {wrong.sum()} of {seen.size} differ, first at {at}: seen {seen[at]:#x}, emulator {expected[at]:#x}", flush=True)
            different[key] = seen

    for m in MATRIX:
        tiles = TILES[m.family]
        for name in cases.MATRIX_CLASSES if m.result != "s32" else ("bits",):
            a, b, c = cases.matrix_inputs(m, name, tiles)
            inputs = [cases.packed(m, a, "a"), cases.packed(m, b, "b"), c]
            d = gpu.launch(m.name, tiles, 32 if m.family == "mma" else 128, inputs, numpy.empty(c.shape, numpy.uint32), None)
            key = f"{m.name}/{name}"
            vectors.add(key, inputs, d, rows=d[0, :KEPT_ROWS])
            compare(key, d, replay.matrix(m, a, b, c))
    print(f"matrices done after {time.time() - start:.1f} s", flush=True)
    for e in ELEMENTWISE + APPROXIMATE:
        inputs = cases.elementwise_inputs(e)
        count = len(inputs[0])
        out = gpu.launch(e.name, 264, 256, inputs, numpy.empty(count, _TYPE[e.output]), count)
        if e in APPROXIMATE:
            approximate[e.name] = out[::APPROXIMATE_STEP]
            continue
        vectors.add(e.mnemonic, inputs, out)
        compare(e.mnemonic, out, replay.elementwise(e, inputs))
    print(f"separate values done after {time.time() - start:.1f} s", flush=True)
    vectors.save(folder / "sm_90.npz")
    numpy.savez_compressed(folder / "differences.npz", **different)
    numpy.savez_compressed(folder / "sm_90_approximate.npz", **approximate)
    print(
        f"{len(MATRIX)} matrix and {len(ELEMENTWISE)} other instructions, {len(different)} input sets differ, {time.time() - start:.1f} s"
    )
    for path in sorted(folder.glob("*.npz")):
        print(path.name, path.stat().st_size, "bytes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    run(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
