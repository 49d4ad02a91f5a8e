"""A directory of cubins as a collection of kernels: found, loaded, prepared and launched by name."""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from zoo.contract.manifest import Kernel, Manifest, Variant
from zoo.contract.names import FIELDS
from zoo.contract.nearest import a_few, suggestion
from zoo.contract.resolve import Launch, pick_arch, resolve
from zoo.errors import ArchitectureError, ArgumentError, StreamError, UnknownKernelError, VariantError
from zoo.runtime import driver, streams
from zoo.runtime.call import Call, Repeated
from zoo.runtime.emulated import EmulatedModules, EmulatedPlan
from zoo.runtime.library import Library
from zoo.runtime.plan import Plan

_MOST_REPEATED = 4096  # calls a thread remembers before it starts over


class Zoo:
    """The kernels of one cubin directory. `zoo.launch` and its siblings are those of the packaged one."""

    def __init__(self, directory: str | Path, manifest_sha256: str | None = None):
        self.directory = Path(directory)
        self.library = Library(self.directory)
        self._modules = EmulatedModules(self.directory)
        self._manifest_sha256 = manifest_sha256
        self._local = threading.local()

    @cached_property
    def manifest(self) -> Manifest:
        return Manifest(self.directory / "manifest.json", self._manifest_sha256)

    def kernel(self, name: str) -> Kernel:
        """The manifest's entry of a kernel."""
        if not isinstance(name, str):
            raise UnknownKernelError(f"a kernel's name is a text, got {name!r}")
        kernel = self.manifest.kernel(name)
        if kernel is None:
            names = self.manifest.names
            raise UnknownKernelError(f"no kernel is named '{name}'; {suggestion(name, names, f'`zoo list` shows all {len(names)}')}")
        return kernel

    def find(self, pattern: str = "*", *, arch: str | None = None, **fields: str) -> list[Kernel]:
        """The kernels whose name matches `pattern` and whose fields match: `find(op="gemm", arch="sm_90a", grouping="dense")`."""
        unknown = fields.keys() - FIELDS
        if unknown:
            raise ArgumentError(f"find: names have no field '{min(unknown)}'; they have {', '.join(FIELDS)}")
        kernels = (self.kernel(name) for name in self.manifest.names if fnmatch.fnmatchcase(name, pattern))
        return [
            kernel
            for kernel in kernels
            if arch in (None, *kernel.archs) and all(kernel.fields.get(field) == value for field, value in fields.items())
        ]

    def load(self, pattern: str = "*", *, device: int = 0, variant: str | None = None) -> int:
        """Loads the variants of the matching kernels that run on a device; returns how many. Do this before a graph capture."""
        opened = driver.device(device)
        loadable = list(self._loadable(pattern, opened, variant))
        if not loadable:
            kernels = self.find(pattern)
            names = a_few([kernel.name for kernel in kernels])
            if not kernels:
                every = self.manifest.names
                hint = suggestion(pattern, every, f"`zoo list` shows all {len(every)}")
                raise UnknownKernelError(f"no kernel matches '{pattern}'; {hint}")
            if not any(pick_arch(kernel.archs, opened.capability) for kernel in kernels):
                major, minor = opened.capability
                shipped = ", ".join(sorted({arch for kernel in kernels for arch in kernel.archs}))
                raise ArchitectureError(f"{names}: no cubin for compute capability {major}.{minor}; the zoo ships {shipped}")
            raise VariantError(f"{names}: no variant '{variant}' for {opened.name}")
        for one in loadable:
            self.library.function(one, opened)
        return len(loadable)

    def _loadable(self, pattern: str, device: driver.Device, variant: str | None) -> Iterator[Variant]:
        for kernel in self.find(pattern):
            arch = pick_arch(kernel.archs, device.capability)
            for one in kernel.variants:
                if one.arch == arch and variant in (None, one.name):
                    yield one

    def prepare(self, name: str, /, *, stream=None, variant: str | None = None, **arguments) -> Plan | EmulatedPlan:
        """Resolves and checks a call, encodes its tensor maps and packs its block; `plan(stream)` then starts it.

        The plan keeps the arrays alive. `stream` says which stream's capture must not be disturbed by loading;
        left out, it is the current one of the arrays' framework.
        """
        call = Call.read(arguments)
        if call.emulated:
            return self._emulated(name, call, variant, arguments)
        launch, device = self._resolve(name, call, variant)
        device.adopt_thread()
        function = self.library.function(launch.variant, device, call.stream() if stream is None else streams.handle_of(stream))
        return Plan(launch, device, function, {array: arguments[array] for array in call.owners})

    def _emulated(self, name: str, call: Call, variant: str | None, arguments: Mapping[str, object]) -> EmulatedPlan:
        launch, device = self._resolve(name, call, variant)
        return EmulatedPlan(
            launch, device, self._modules.of(launch.variant, self.manifest), {array: arguments[array] for array in call.owners}
        )

    def _resolve(self, name: str, call: Call, variant: str | None) -> tuple[Launch, driver.Device]:
        kernel = self.kernel(name)
        call.check_kinds(kernel)
        device = call.device if call.emulated else driver.device(call.device)
        return resolve(kernel, call.values, device.capability, device.multiprocessors, variant), device

    def launch(self, name: str, /, *, stream=None, variant: str | None = None, **arguments):
        """Starts a kernel on arrays of any mix of torch, CuPy, JAX, numba, DLPack, DeviceArray and ptr.

        Without `stream`, on the current stream of the framework that owns the arrays. On arrays of an emulated device
        the kernel runs to its end, and whatever the emulator finds wrong with it raises EmulationError.
        """
        try:
            calls = self._local.calls
        except AttributeError:
            calls = self._local.calls = _Calls()
        # Mostly a call is of the form of this kernel's last one. That is found by comparing, without hashing.
        try:
            repeated = calls.last.get(name)
        except TypeError:  # a name that is no text
            repeated = None
        addresses = None if repeated is None else repeated.match(variant, arguments)
        if addresses is None:
            call = Call.read(arguments)
            if call.emulated:
                return self._emulated(name, call, variant, arguments).run()
            repeated = calls.find(name, variant, call)
            if repeated is None:
                repeated = self._first(name, call, stream, variant, arguments)
                calls.remember(name, variant, call, repeated)
            addresses = [call.values[array].address for array in repeated.order]
        if stream is None:
            stream = repeated.stream()
            if stream is None:
                _refuse_streamless(name)
        if not repeated.fits(addresses):
            self._resolve(name, Call.read(arguments), variant)  # raises, or finds that they fit after all
        repeated.launch(addresses, stream)

    def _first(self, name: str, call: Call, stream, variant: str | None, arguments: Mapping[str, object]) -> Repeated:
        launch, device = self._resolve(name, call, variant)
        handle = call.stream() if stream is None else streams.handle_of(stream)
        if handle is None:
            _refuse_streamless(name)
        device.adopt_thread()
        function = self.library.function(launch.variant, device, handle)
        return Repeated(self.kernel(name), call, arguments, variant, launch, device, function)


class _Calls:
    """The calls that one thread has made: of each kernel the last, and by form as many as it may remember."""

    def __init__(self):
        self.last: dict[str, Repeated] = {}
        self._by_form: dict[tuple, Repeated] = {}

    def find(self, name: str, variant: str | None, call: Call) -> Repeated | None:
        try:
            found = self._by_form.get((name, variant, *call.form))
        except TypeError:  # an argument that cannot be a key; resolving it will say so
            return None
        if found is not None:
            self.last[name] = found
        return found

    def remember(self, name: str, variant: str | None, call: Call, repeated: Repeated):
        if len(self._by_form) >= _MOST_REPEATED:
            self._by_form.clear()
        self._by_form[(name, variant, *call.form)] = self.last[name] = repeated


def _refuse_streamless(name: str):
    raise StreamError(
        f"{name}: these arguments belong to no framework with a current stream; pass stream= (0 is the legacy default stream)"
    )
