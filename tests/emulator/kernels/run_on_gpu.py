"""The Hopper proof kernels on a real Hopper GPU: same bits as numpy's reference and as the emulator.

Two steps, because the machine with the GPU need not have the compiler:

    python tests/emulator/kernels/run_on_gpu.py bundle FOLDER     here: compiles cubins, runs the emulator, saves inputs and outputs
    python tests/emulator/kernels/run_on_gpu.py run FOLDER        there: needs numpy, cuda-bindings and this repository

`run` prints one line per case and exits 1 if any bit differs, 3 if a kernel hangs. FOLDER holds <case>.cubin and <case>.npz.
"""

import ctypes
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parents[2])]

import numpy as np  # noqa: E402
import proof_cases  # noqa: E402
from proof_cases import Map, Pointer  # noqa: E402

ARCH = "sm_90a"
REPEATS = 20  # runs of each kernel on the GPU, all of which must give the same bits
HANG_SECONDS = 10
EMULATED_SCHEDULES = ({"scheduling": "last", "seed": 0}, {"scheduling": "random", "seed": 1})


# ---- here ----------------------------------------------------------------------------------------------------------------------


def bundle(folder):
    from proof_compiler import NO_NVCC, Compiler, find_nvcc
    from proof_emulator import run

    nvcc = find_nvcc()
    if nvcc is None:
        sys.exit(NO_NVCC)
    compiler = Compiler(nvcc)
    folder.mkdir(parents=True, exist_ok=True)
    for name in proof_cases.names(ARCH):
        case = proof_cases.get(name)
        (folder / f"{name}.cubin").write_bytes(compiler.cubin(case.path, ARCH))
        saved = {f"input.{key}": value for key, value in case.buffers.items()}
        saved |= {f"expected.{key}": value for key, value in case.expected.items()}
        for number, schedule in enumerate(EMULATED_SCHEDULES):
            result = run(case, compiler.ptx(case.path, ARCH), arithmetic="hw", **schedule)
            if result.findings:
                sys.exit(f"{name}: the emulator has findings, nothing to compare with a GPU:\n" + "\n".join(map(str, result.findings)))
            saved |= {f"emulated{number}.{key}": value for key, value in result.buffers.items()}
        np.savez_compressed(folder / f"{name}.npz", **saved)
        print(f"{name:28} saved")


# ---- there ---------------------------------------------------------------------------------------------------------------------


class Gpu:
    """Just enough of the driver API: memory, tensor maps, one launch."""

    def __init__(self):
        from cuda.bindings import driver

        self.driver = driver
        self.call("cuInit", 0)
        self.device = self.call("cuDeviceGet", 0)
        self.call("cuCtxSetCurrent", self.call("cuDevicePrimaryCtxRetain", self.device))
        self.stream = self.call("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING

    def call(self, function, *arguments):
        error, *results = getattr(self.driver, function)(*arguments)
        if error != self.driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{function}: {error.name}")
        return results[0] if len(results) == 1 else results

    def name(self):
        return self.call("cuDeviceGetName", 128, self.device).split(b"\0")[0].decode()

    def alloc(self, content):
        pointer = self.call("cuMemAlloc", content.nbytes)
        self.call("cuMemcpyHtoD", pointer, content.ctypes.data, content.nbytes)
        return int(pointer)

    def read(self, pointer, shape, dtype):
        content = np.empty(shape, dtype)
        self.call("cuMemcpyDtoH", content.ctypes.data, pointer, content.nbytes)
        return content

    def tensor_map(self, map_, address):
        from zoo.contract.tensor_map import DTYPES, SWIZZLES

        driver = self.driver
        words = lambda type_, values: [type_(value) for value in values]  # noqa: E731
        return self.call(
            "cuTensorMapEncodeTiled", driver.CUtensorMapDataType(DTYPES[map_.dtype][0]), len(map_.dims), address,
            words(driver.cuuint64_t, map_.dims), words(driver.cuuint64_t, map_.strides), words(driver.cuuint32_t, map_.box),
            words(driver.cuuint32_t, [1] * len(map_.dims)), driver.CUtensorMapInterleave(0),
            driver.CUtensorMapSwizzle(SWIZZLES[map_.swizzle][0]), driver.CUtensorMapL2promotion(0), driver.CUtensorMapFloatOOBfill(0),
        )  # fmt: skip

    def launch(self, function, case, block):
        driver = self.driver
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = (*case.grid, 1, 1)[:3]
        config.blockDimX, config.blockDimY, config.blockDimZ = case.block, 1, 1
        config.sharedMemBytes, config.hStream = case.shared_bytes, self.stream
        if case.cluster != (1, 1, 1):
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = case.cluster
            config.attrs, config.numAttrs = [attribute], 1
        self.call("cuLaunchKernelEx", config, function, ctypes.addressof(block), 0)
        limit = time.monotonic() + HANG_SECONDS
        while (state := self.driver.cuStreamQuery(self.stream)[0]) == self.driver.CUresult.CUDA_ERROR_NOT_READY:
            if time.monotonic() > limit:
                print(f"{case.name}: still running after {HANG_SECONDS} s; giving up", flush=True)
                os._exit(3)  # the context cannot be torn down while the kernel runs
        if state != self.driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{case.name}: {state.name}")


def run_case(gpu, case, cubin):
    """The buffers after one launch on fresh copies of the inputs."""
    module = gpu.call("cuModuleLoadData", cubin)
    function = gpu.call("cuModuleGetFunction", module, case.entry.encode())
    if case.shared_bytes > 48 * 1024:
        gpu.call(
            "cuFuncSetAttribute",
            function,
            gpu.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            case.shared_bytes,
        )
    pointers = {name: gpu.alloc(content) for name, content in case.buffers.items()}
    kept, block = [], (ctypes.c_void_p * len(case.parameters))()
    for i, value in enumerate(case.parameters):
        if isinstance(value, Pointer):
            kept.append(ctypes.c_uint64(pointers[value.buffer]))
            block[i] = ctypes.addressof(kept[-1])
        elif isinstance(value, Map):
            kept.append(gpu.tensor_map(value, pointers[value.buffer]))
            block[i] = int(kept[-1].getPtr())
        else:
            kept.append(ctypes.c_int32(value))
            block[i] = ctypes.addressof(kept[-1])
    gpu.launch(function, case, block)
    buffers = {name: gpu.read(pointers[name], content.shape, content.dtype) for name, content in case.buffers.items()}
    for pointer in pointers.values():
        gpu.call("cuMemFree", pointer)
    gpu.call("cuModuleUnload", module)
    return buffers


def same_bits(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def run_all(folder):
    gpu = Gpu()
    print(f"{gpu.name()}: {REPEATS} runs per kernel, whole buffers compared bit by bit")
    failed = 0
    for name in proof_cases.names(ARCH):
        saved = np.load(folder / f"{name}.npz")
        parts = {"input": {}, "expected": {}}
        for key in saved.files:
            part, _, buffer = key.partition(".")
            parts.setdefault(part, {})[buffer] = saved[key]
        case = replace(proof_cases.get(name), buffers=parts["input"], expected=parts["expected"])
        cubin = (folder / f"{name}.cubin").read_bytes()
        runs = [run_case(gpu, case, cubin) for _ in range(REPEATS)]
        as_reference = sum(all(same_bits(content, case.outcome(key)) for key, content in run.items()) for run in runs)
        as_emulator = sum(
            all(
                same_bits(run[key], content)
                for number in range(len(EMULATED_SCHEDULES))
                for key, content in parts[f"emulated{number}"].items()
            )
            for run in runs
        )
        good = as_reference == as_emulator == REPEATS
        failed += not good
        print(
            f"{name:28} = numpy {as_reference}/{REPEATS}   = emulator {as_emulator}/{REPEATS}   {'ok' if good else 'DIFFERENT'}", flush=True
        )
    print("all equal" if not failed else f"{failed} kernels differ")
    return int(failed > 0)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("bundle", "run"):
        sys.exit(__doc__)
    sys.exit((bundle if sys.argv[1] == "bundle" else run_all)(Path(sys.argv[2])))
