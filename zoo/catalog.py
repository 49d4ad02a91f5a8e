"""A directory of cubins as a collection of kernels: found, loaded, prepared and launched by name."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, NoReturn

from zoo import calls
from zoo.calls import Shape
from zoo.contract.archs import all_of, arch_of, words_for
from zoo.contract.array import HOST, Array
from zoo.contract.manifest import Kernel, Manifest, Variant
from zoo.contract.matching import matching
from zoo.contract.names import FIELDS, words_of
from zoo.contract.nearest import a_few, afterthought, suggestion
from zoo.contract.resolve import Launch, pick_arch, resolve
from zoo.contract.shapes import forgiven
from zoo.contract.trial import without_idle_workspaces
from zoo.contract.whole_numbers import LONGEST, shown
from zoo.errors import ArchitectureError, ArgumentError, UnknownKernelError, VariantError
from zoo.runtime import driver, streams
from zoo.runtime.allocation import allocator_of
from zoo.runtime.arrays import Call, plain, read
from zoo.runtime.costs import kernel_on
from zoo.runtime.library import Library
from zoo.runtime.multiprocessors import checked, limit_here, limit_of
from zoo.runtime.plan import Plan
from zoo.runtime.recent import Recent

if TYPE_CHECKING:
    from zoo.emulator.device import Device as EmulatedDevice
    from zoo.emulator.module_store import ModuleStore
    from zoo.emulator.plan import EmulatedPlan

MOST_FORMS = 256  # of a kernel's calls that a thread surely remembers; it never keeps more than twice as many


class Zoo:
    """The kernels of one cubin directory. `zoo.launch` and its siblings are those of the packaged one."""

    def __init__(self, directory: str | Path, digest: str | None = None):
        self.directory = _folder(directory)
        if digest is not None and not (issubclass(type(digest), str) and re.fullmatch("[0-9a-f]{64}", digest)):
            raise ArgumentError(f"a digest is the 64 hexadecimal digits that `zoo digest` prints, got {shown(digest)}")
        self.digest = digest  # of the manifest, which it is held to; None: whatever lies there
        self.library = Library(self.directory)
        self._local = threading.local()  # .plans: of each kernel those of the calls made lately, by form

    @cached_property
    def manifest(self) -> Manifest:
        return Manifest(self.directory / "manifest.json", self.digest)

    @cached_property
    def _modules(self) -> ModuleStore:
        from zoo.emulator.module_store import ModuleStore  # the emulator is imported for arrays of an emulated device only

        return ModuleStore(self.directory, self.manifest)

    def kernel(self, name: str) -> Kernel:
        """The manifest's entry of a kernel."""
        if not issubclass(type(name), str):
            raise UnknownKernelError(f"a kernel's name is a text, got {shown(name)}")
        kernel = self.manifest.kernel(name)
        if kernel is None:
            names = self.manifest.names
            raise UnknownKernelError(f"no kernel is named {shown(name)}; {suggestion(name, names, f'`zoo list` shows all {len(names)}')}")
        return kernel

    def find(self, pattern: str = "*", *, arch: str | None = None, **fields: str) -> list[Kernel]:
        """The kernels that `pattern` means, a name, a part of names or a pattern, and whose fields match:
        `find("swiglu")`, `find("quantize.*.rows")`, `find(op="gemm", arch="hopper", grouping="dense")`."""
        unknown = fields.keys() - FIELDS
        if unknown:
            hint = suggestion(min(unknown), FIELDS, f"they have {', '.join(FIELDS)}")
            raise ArgumentError(f"find: names have no field {shown(min(unknown))}; {hint}")
        kernels = (self.kernel(name) for name in matching(pattern, self.manifest.names))
        are_texts = all(value is None or issubclass(type(value), str) for value in (arch, *fields.values()))
        found = [
            kernel
            for kernel in kernels
            if are_texts
            and (arch is None or arch_of(arch) in kernel.archs)
            and all(kernel.fields.get(field) == value for field, value in fields.items())
        ]
        if not found and (fields or arch is not None):
            self._refuse_unknown_values(arch, fields)
        return found

    def _refuse_unknown_values(self, arch: str | None, fields: Mapping[str, str]) -> None:
        """Of a search that found nothing: words that no name has, and archs that are none. Others are an answer, if an empty one."""
        kernels = [self.kernel(name) for name in self.manifest.names]
        for field, value in fields.items():
            known = dict.fromkeys((*words_of(field), *(kernel.fields[field] for kernel in kernels if field in kernel.fields)))
            if value is not None and (not issubclass(type(value), str) or value not in known):
                raise ArgumentError(f"find: no {field} is {shown(value)}; {_nearest(value, known)}")
        if arch is not None and not (issubclass(type(arch), str) and re.fullmatch("sm_[0-9]+[af]", arch_of(arch))):
            archs = dict.fromkeys(arch for kernel in kernels for arch in kernel.archs)
            hint = suggestion(_written(arch), words_for(archs), all_of(archs))
            raise ArgumentError(f"find: no arch is {shown(arch)}; {hint}")

    def load(self, pattern: str = "*", *, device: int = 0, variant: str | None = None) -> int:
        """Loads the variants that run on a device of the kernels that `pattern` means; returns how many. Do this before a graph capture."""
        kernels = self.find(pattern)
        if not kernels:
            every = self.manifest.names
            hint = suggestion(pattern, every, f"`zoo list` shows all {len(every)}")
            raise UnknownKernelError(f"no kernel matches {shown(pattern)}; {hint}")
        opened = driver.device(device)
        runnable = list(_runnable(kernels, opened))
        loadable = [one for one in runnable if variant is None or (issubclass(type(variant), str) and variant == one.name)]
        if not loadable:
            names = a_few([kernel.name for kernel in kernels])
            if not any(pick_arch(kernel.archs, opened.capability) for kernel in kernels):
                major, minor = opened.capability
                shipped = ", ".join(sorted({arch for kernel in kernels for arch in kernel.archs}))
                raise ArchitectureError(f"{names}: no cubin for compute capability {major}.{minor}; the zoo ships {shipped}")
            hint = suggestion(_written(variant), dict.fromkeys(one.name for one in runnable), "`zoo show NAME --variants` shows a kernel's")
            raise VariantError(f"{names}: no variant {shown(variant)} for {opened.name}; {hint}")
        for one in loadable:
            self.library.function(one, opened)
        return len(loadable)

    def prepare(
        self, name: str, /, *unnamed: Never, stream: object = None, variant: str | None = None, multiprocessors: object = None,
        **arguments: object,
    ) -> Plan | EmulatedPlan:  # fmt: skip
        """Resolves and checks a call, encodes its tensor maps and packs its block; `plan(stream)` then starts it.

        The plan keeps the arrays alive. `stream` says which stream's capture must not be disturbed by loading;
        left out, it is the current one of the arrays' framework. `multiprocessors`: as in `launch`.
        """
        if unnamed:
            self.refuse_unnamed(name, len(unnamed))
        call = Call.read(arguments)
        owners = {array: (arguments[array], call.values[array].owner) for array in call.arrays}
        plan, _ = self._plan(name, call, variant, limit_of(multiprocessors), stream, owners)
        return plan

    def launch(
        self, name: str, /, *unnamed: Never, stream: object = None, variant: str | None = None, multiprocessors: object = None,
        **arguments: object,
    ) -> None:  # fmt: skip
        """Starts a kernel on arrays of any mix of torch, CuPy, JAX, numba, DLPack, DeviceArray and ptr.

        Without `stream`, on the current stream of the framework that owns the arrays. On arrays of an emulated device
        the kernel runs to its end, and whatever the emulator finds wrong with it raises EmulationError. A persistent kernel
        fills at most `multiprocessors` of the device's; left out, as many as the context `zoo.multiprocessors` says.
        """
        if unnamed:
            self.refuse_unnamed(name, len(unnamed))
        limit = limit_here() if multiprocessors is None else limit_of(multiprocessors)
        form, addresses = read(arguments, variant, limit)
        try:
            plans = self._local.plans[name]
            if plans.latest_form != form:
                plans.latest = plans[tuple(form)]
                plans.latest_form = plans.latest.form  # and not this one, which holds what DLPack producers exported
            plan = plans.latest
        except Exception:  # nothing like it yet, or something that cannot be compared or be a key: resolving says so
            plan = None
        if plan is not None and plan.move(addresses):
            plan.run(stream)
        else:
            self._first(name, Call(arguments, form, addresses), variant, limit, stream, form)

    def call(
        self, name: str, /, *unnamed: Never, stream: object = None, variant: str | None = None, multiprocessors: object = None,
        **arguments: object,
    ) -> Any:  # fmt: skip
        """Starts a kernel on the inputs given and returns its outputs by name, allocated by the framework that owns the inputs, on their
        device and stream.

        An output under its own name may be an array that exists, or the dtype that it shall have; an optional one may be True. A size that
        no input tells is given by its symbol. Workspaces are zoo's business; one that may be left out is made where the variant chosen
        looks at it, and not at all where it is False. `multiprocessors`: as in `launch`.
        """
        if unnamed:
            self.refuse_unnamed(name, len(unnamed))
        limit = limit_here() if multiprocessors is None else limit_of(multiprocessors)
        form, addresses = read(arguments, variant, limit)
        try:
            made = self._local.calls[name]
            if made.latest_form != form:
                made.latest = made[tuple(form)]
                made.latest_form = made.latest.form
            repeated = made.latest
        except Exception:  # as in `launch`
            repeated = None
        if repeated is not None:
            result = repeated(addresses[:], arguments, stream)
            if result is not None:
                return result
        return self._first_call(name, arguments, form, addresses, variant, limit, stream)

    def shapes(self, name: str, /, *unnamed: Never, **arguments: object) -> dict[str, Shape]:
        """What `call` would make of inputs like these, which may be arrays or (shape, dtype) of them. Touches no driver."""
        if unnamed:
            self.refuse_unnamed(name, len(unnamed))
        return calls.shapes(self.kernel(name), arguments)

    def refuse_unnamed(self, name: str, count: int) -> NoReturn:
        kernel = self.kernel(name)
        names = ", ".join(f"{one}=" for one in (*kernel.arguments, *kernel.options))
        raise ArgumentError(f"{name}: arguments go by name, and {count} came without one; it takes {names}")

    def plan_of(
        self,
        launch: Launch,
        device: driver.Device | EmulatedDevice,
        arrays: Mapping[str, object],
        stream_source: Callable[[], int | None] = streams.none,
        stream: int | None = None,
    ) -> Plan | EmulatedPlan:
        """What starts a launch on a device: the one place where a GPU and an emulated device differ.

        `arrays` are kept alive; `stream_source` gives the stream where none is passed; `stream` says which stream's capture loading
        must not disturb.
        """
        if isinstance(device, driver.Device):
            device.adopt_thread()
            return Plan(launch, device, self.library.function(launch.variant, device, stream), arrays, stream_source)
        from zoo.emulator.plan import EmulatedPlan  # as in `_modules`

        return EmulatedPlan(launch, device, self._modules.of(launch.variant), arrays)

    def _first_call(
        self, name: str, arguments: Mapping[str, object], form: list[object], addresses: list[int], variant: str | None,
        limit: int | None, stream: object,
    ) -> Any:  # fmt: skip
        """Calls like no call that this thread remembers, or one whose arrays may not lie where they do."""
        kernel = self.kernel(name)
        call = Call(arguments, form, addresses)
        settled = calls.settled(kernel, call.values)
        first = next((array for array, one in settled.arrays.items() if one.device != HOST), None)
        if first is None:
            raise ArgumentError(
                f"{name}: {next(iter(settled.arrays), 'its inputs')}: expected arrays in device memory; "
                "zoo.to_device copies there; without a GPU, zoo.emulator.Device(arch).array does, and zoo.torch and zoo.jax work on the CPU"
            )
        device, source = call.device, call.stream_source()
        kernel = kernel_on(kernel, device)
        handle = source() if stream is None else streams.handle_of(stream)
        where = settled.arrays[first].device
        _refuse_what_names_no_variant(kernel, variant)
        limit = checked(limit, name, device.multiprocessors)
        settled = without_idle_workspaces(kernel, settled, device.capability, device.multiprocessors, variant, limit)
        repeated = calls.Repeated(kernel, settled, allocator_of(arguments[first]), where, source)

        def planned(made: Mapping[str, int]) -> Plan | EmulatedPlan:
            shapes = settled.made
            arrays = {one: Array(at, shapes[one].dtype, shapes[one].shape, shapes[one].strides, where) for one, at in made.items()}
            launch = self._resolve(kernel, {**settled.others, **settled.arrays, **arrays}, device, variant, limit)
            return self.plan_of(launch, device, dict.fromkeys((*call.arrays, *made)), source, handle)

        result = repeated.first(arguments, planned, stream)
        if repeated.movable:
            form = [plain(part) for part in form]
            remembered = self._local.__dict__.setdefault("calls", {}).setdefault(name, Recent(MOST_FORMS))
            remembered[tuple(form)] = remembered.latest = repeated
            remembered.latest_form = repeated.form = form
        return result

    def _first(self, name: str, call: Call, variant: str | None, limit: int | None, stream: object, form: list[object]) -> None:
        """Launches a call like none that this thread remembers, or one whose arrays may not lie where they do."""
        plan, handle = self._plan(name, call, variant, limit, stream, dict.fromkeys(call.arrays))
        if plan.movable:
            form = [plain(part) for part in form]
            plans = self._local.__dict__.setdefault("plans", {})
            lately = plans.setdefault(name, Recent(MOST_FORMS))
            lately[tuple(form)] = lately.latest = plan
            lately.latest_form = plan.form = form
        plan.run(handle)

    def _plan(
        self, name: str, call: Call, variant: str | None, limit: int | None, stream: object, arrays: Mapping[str, object]
    ) -> tuple[Plan | EmulatedPlan, int | None]:
        """The plan of a call, and the stream it was asked to run on or that its owners work on now."""
        kernel = self.kernel(name)
        call.check_kinds(kernel)
        device = call.device
        kernel = kernel_on(kernel, device)
        limit = checked(limit, name, device.multiprocessors)
        launch = self._resolve(kernel, forgiven(kernel, call.values), device, variant, limit)
        source = call.stream_source()
        handle = source() if stream is None else streams.handle_of(stream)
        return self.plan_of(launch, device, arrays, source, handle), handle

    def _resolve(
        self, kernel: Kernel, values: Mapping[str, Any], device: driver.Device | EmulatedDevice, variant: str | None, limit: int | None
    ) -> Launch:
        _refuse_what_names_no_variant(kernel, variant)
        try:
            return resolve(kernel, values, device.capability, device.multiprocessors, variant, limit)
        except (ArgumentError, VariantError) as error:
            hint = _meant(kernel, values, device, variant if isinstance(error, VariantError) else None)
            if not hint:
                raise
            raise type(error)(f"{error}{hint}") from None


def _folder(given: Any) -> Path:
    try:
        if b"\0" not in os.fsencode(given):
            return Path(os.fsdecode(given))
    except (TypeError, UnicodeError):
        pass
    raise ArgumentError(f"Zoo: expected the path of a directory of cubins, got {shown(given)}")


def _written(given: object) -> str:
    """What a caller wrote for a word, as a text whose nearest words can be found."""
    return str.__str__(given) if issubclass(type(given), str) else shown(given)


def _nearest(given: object, known: Collection[str]) -> str:
    return suggestion(_written(given), known, f"there are {', '.join(known)}")


def _refuse_what_names_no_variant(kernel: Kernel, variant: object) -> None:
    if variant is not None and not issubclass(type(variant), str):
        raise VariantError(f"{kernel.name}: a variant's name is a text, got {shown(variant)}")
    if variant is not None and len(_written(variant)) > LONGEST:
        raise VariantError(f"{kernel.name}: no variant is named {shown(variant)}; `zoo show {kernel.name} --variants` shows all")


def _runnable(kernels: Iterable[Kernel], device: driver.Device | EmulatedDevice) -> Iterator[Variant]:
    for kernel in kernels:
        arch = pick_arch(kernel.archs, device.capability)
        yield from (one for one in kernel.variants if one.arch == arch)


def _meant(kernel: Kernel, given: Iterable[str], device: driver.Device | EmulatedDevice, variant: str | None) -> str:
    """What a refused call may have meant by an argument, or by a variant, that the kernel has not; nothing if it has them all."""
    known = (*kernel.arguments, *kernel.options)
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        return afterthought(unknown, known)
    names = dict.fromkeys(one.name for one in _runnable([kernel], device))
    if variant is None or variant in names:
        return ""
    return f"; {suggestion(str(variant), names, f'`zoo show {kernel.name} --variants` shows all {len(names)}')}"
