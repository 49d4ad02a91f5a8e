"""Kernels of CuTe DSL: its compiler makes PTX and a host function without a GPU; the host function runs here, over an emulated device.

cute.compile --> PTX of the kernels --> Module
             --> host function --> machine code, which calls the functions of _Cuda where it would call the CUDA runtime
"""

import ctypes
import inspect
import re
import tempfile
from collections.abc import Sequence
from typing import Any

from zoo.contract.tensor_map import BYTES

from .arguments import Argument
from .device import Device, Module
from .errors import EmulatorError, LaunchError
from .hardware_map import decoded
from .program import chips
from .user_code import attribute_of

_ALIGNMENT = 16  # bytes that kernels may assume of arrays
_NAMES = {  # of dtypes whose name CuTe does not just capitalise
    "bfloat16": "BFloat16", "bool": "Boolean", "float8_e4m3fn": "Float8E4M3FN", "float8_e5m2": "Float8E5M2", "float8_e8m0fnu": "Float8E8M0FNU",
}  # fmt: skip
_STATIC_SHARED = 1  # of a kernel's attributes
_COOPERATIVE, _CLUSTER, _PROGRAMMATIC = 2, 4, 6  # of a launch's attributes
_LAUNCH_FAILURE = 719
_CALLED = re.compile(r"llvm\.call @(_cu\w+|cuda_\w+)")
_Pointer, _Int = ctypes.c_void_p, ctypes.c_int32


class _Attribute(ctypes.Structure):  # cudaLaunchAttribute
    _fields_ = [("kind", ctypes.c_uint32), ("_", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16)]


class _Configuration(ctypes.Structure):  # cudaLaunchConfig_t
    _fields_ = [
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_size_t), ("stream", _Pointer),
        ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint32),
    ]  # fmt: skip


class _Tensor:
    """A tensor of a layout that the compiler knew: the host function gets the address alone."""

    def __init__(self, address: int):
        self._address = _Pointer(address)

    def __c_pointers__(self) -> list[int]:
        return [ctypes.addressof(self._address)]


def host_of(name: str, arguments: Sequence[Argument], arch: str) -> "Host":
    """The compiled host function that `module:function` names: a function of cute.jit, or an object whose __call__ is one."""
    import cutlass  # noqa: F401  # whoever lacks it learns that first

    return Host(attribute_of(name), arguments, arch)


class Host:
    """A compiled host function with its kernels."""

    def __init__(self, function: Any, arguments: Sequence[Argument], arch: str):
        from cutlass import cute
        from cutlass._mlir.execution_engine import ExecutionEngine

        given = {argument.name: argument for argument in arguments}
        self._parameters = inspect.signature(function).parameters
        needed = {name for name, parameter in self._parameters.items() if parameter.default is parameter.empty}
        if not needed <= set(given) <= set(self._parameters):
            raise LaunchError(f"the function takes {', '.join(self._parameters)}; the arguments are {', '.join(given) or 'none'}")
        self._arguments = arguments
        with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
            options = f"--gpu-arch {arch} --keep-ptx --dump-dir {folder} --generate-line-info"
            try:
                self._compiled = cute.compile(function, **self._values(), options=options, no_jit_engine=True)
            except Exception as error:
                raise EmulatorError(f"CuTe DSL does not compile the function: {error}") from None
        self.module = Module(self._compiled.__ptx__, whole=False)
        self._engine = ExecutionEngine(self._compiled.ir_module, 2, [])
        self._cuda = _Cuda(self.module, self._engine)
        missing = sorted(set(_CALLED.findall(str(self._compiled.ir_module))) - self._cuda.names)
        if missing:
            raise EmulatorError(f"the host function calls {', '.join(missing)}, which is not covered")

    def launches(self, device: Device, addresses: dict[str, int]) -> list:
        """The reports of all launches of one call, whose arrays are placed on the device."""
        for argument in self._arguments:
            if argument.array is not None:
                addresses[argument.name] = device.alloc(argument.array if argument.written else argument.array.nbytes)
        self._cuda.begin(device)
        library, status, number = _Pointer(), _Int(), _Int()
        place = ctypes.pointer(ctypes.pointer(library))
        self._call("cuda_init", place, ctypes.pointer(status))
        self._call("cuda_load_to_device", place, ctypes.pointer(number), ctypes.pointer(status))
        execution = self._compiled.execution_args
        values = {name: value for name, value in self._values(addresses).items() if name in execution.signature.parameters}
        places, _alive = execution.generate_execution_args((), values)
        self._call(f"_mlir_ciface_{self._compiled.function_name}", *places, ctypes.pointer(status))
        return self._cuda.end(status.value)

    def _call(self, name, *arguments):
        packed = (_Pointer * len(arguments))(*(one if isinstance(one, int) else ctypes.cast(one, _Pointer) for one in arguments))
        ctypes.CFUNCTYPE(None, _Pointer)(self._engine.raw_lookup(name))(packed)

    def _values(self, addresses=None):
        """What the function is called with, or compiled for, where no array has an address."""
        import cutlass
        from cutlass import cute
        from cutlass.cute.runtime import make_fake_compact_tensor, make_ptr

        values = {}
        for argument in self._arguments:
            name, array, parameter = argument.name, argument.array, self._parameters[argument.name]
            if array is None:
                values[name] = _scalar(argument.value, parameter)
                continue
            element = getattr(cutlass, _NAMES.get(array.dtype.name, array.dtype.name.capitalize()))
            if parameter.annotation in (cute.Pointer, cute.Pointer | None):
                values[name] = make_ptr(element, addresses[name] if addresses else 0, cute.AddressSpace.gmem, assumed_align=_ALIGNMENT)
            elif addresses:
                values[name] = _Tensor(addresses[name])
            else:
                order = tuple(reversed(range(array.ndim)))
                values[name] = make_fake_compact_tensor(element, array.shape, stride_order=order, assumed_align=_ALIGNMENT)
        return values


def _scalar(value, parameter):
    """A number, a stream where the function takes one, None of the text "none", or CuTe's object of a text like "cutlass.Float16"."""
    import cutlass

    if value == "none":
        return None
    if isinstance(value, str):
        found = getattr(cutlass, value.removeprefix("cutlass."), None)
        if found is None:
            raise LaunchError(f"{parameter.name}: CuTe DSL has no {value}")
        return found
    if str(getattr(parameter.annotation, "__name__", parameter.annotation)).endswith("CUstream"):
        from cuda.bindings.driver import CUstream

        return CUstream(value)
    return value


class _Cuda:
    """What a host function calls of CUDA, for one emulated device after the other. Kernels are numbers from 1."""

    def __init__(self, module: Module, engine: Any):
        self._module, self._kernels, self._keep = module, [], []
        word, size = ctypes.c_int32, ctypes.c_int64
        functions = {
            "_cudaLibraryLoadData": (self._load, _Pointer, _Pointer, _Pointer, _Pointer, word, _Pointer, _Pointer, word),
            "_cudaLibraryGetKernel": (self._kernel, _Pointer, _Pointer, ctypes.c_char_p),
            "_cudaGetDevice": (self._device, _Pointer),
            "_cudaDeviceGetAttribute": (self._limit, _Pointer, word, word),
            "_cuKernelGetAttribute": (self._fact, _Pointer, word, size, word),
            "_cudaKernelSetAttributeForDevice": (self._set, size, word, word, word),
            "_cudaFuncSetAttribute": (self._set, size, word, word),
            "_cudaLaunchKernelEx": (self._launch, ctypes.POINTER(_Configuration), size, ctypes.POINTER(_Pointer)),
        }
        self.names = set(functions)
        for name, (function, *types) in functions.items():
            called = ctypes.CFUNCTYPE(word, *types)(self._guarded(function))
            self._keep.append(called)
            engine.raw_register_runtime(name, ctypes.cast(called, _Pointer))

    def begin(self, device: Device):
        self._gpu, self._reports, self._error = device, [], None

    def end(self, status: int) -> list:
        if self._error is not None:
            raise self._error
        if status and all(report.completed for report in self._reports):
            raise EmulatorError(f"the host function ends with status {status}")
        return self._reports

    def _guarded(self, function):
        """An exception cannot pass through the host function: it is kept until that has ended."""

        def called(*arguments):
            try:
                return function(*arguments) or 0
            except Exception as error:
                self._error = self._error or error
                return _LAUNCH_FAILURE

        return called

    def _load(self, library, *_):
        _Pointer.from_address(library).value = 1

    def _kernel(self, kernel, _, name):
        self._kernels.append(name.decode())
        _Pointer.from_address(kernel).value = len(self._kernels)

    def _device(self, number):
        _Int.from_address(number).value = 0

    def _limit(self, value, attribute, _):
        _Int.from_address(value).value = chips.attributes(self._gpu.arch).get(attribute, 0)

    def _fact(self, value, attribute, kernel, _):
        if attribute != _STATIC_SHARED:
            raise EmulatorError(f"the host function asks for the attribute {attribute} of a kernel, which is not covered")
        _Int.from_address(value).value = max(self._module.program(self._kernels[kernel - 1]).static_shared_end - 1024, 0)

    def _set(self, *_):
        pass

    def _launch(self, configuration, kernel, arguments):
        how, entry = configuration.contents, self._kernels[kernel - 1]
        attributes = {one.kind: one.value for one in how.attributes[: how.count]}
        cluster = tuple(attributes[_CLUSTER][:3]) if _CLUSTER in attributes else None
        program = self._module.program(entry)
        block = bytearray(program.parameter_bytes)
        for number, variable in enumerate(program.entry.parameters):
            start, value = program.parameter_offset[variable], ctypes.string_at(arguments[number], variable.size)
            if variable.size == BYTES and variable.align >= 64:
                value = decoded(value)
            block[start : start + variable.size] = value
        report = self._gpu.launch(
            self._module, entry, tuple(how.grid), tuple(how.block), cluster, how.shared, bytes(block),
            cooperative=_COOPERATIVE in attributes and bool(attributes[_COOPERATIVE][0]),
            programmatic=_PROGRAMMATIC in attributes and bool(attributes[_PROGRAMMATIC][0]),
        )  # fmt: skip
        self._reports.append(report)
        return 0 if report.completed else _LAUNCH_FAILURE
