"""The emulator's side of a host program: an emulated device, and what the stand-in asks of it."""

import functools
import struct
from dataclasses import dataclass, field

import numpy as np

from zoo.contract.tensor_map import DTYPES, L2_PROMOTIONS, OUT_OF_BOUNDS_FILLS, SWIZZLES
from zoo.errors import ZooError

from .. import textures
from ..check import arch_for, schedule_name, schedules
from ..device import Device, Module, target_must_fit
from ..errors import EmulatorError, LaunchError
from ..findings import Findings
from ..frames import MOST_LOCAL_BYTES
from ..im2col import MODES
from . import chips
from .fat_binary import Text, texts

SUCCESS, INVALID_VALUE, MEMORY_ALLOCATION, INVALID_CONFIGURATION = 0, 1, 2, 9
INVALID_FUNCTION, INVALID_IMAGE, NOT_FOUND, LAUNCH_FAILURE, TOO_LARGE, INVALID_CLUSTER = 98, 200, 500, 719, 720, 912

_MOST_MEMORY = 1 << 34
_UNTIL_ASKED = 48 << 10  # bytes of shared memory of a CTA whose kernel did not ask for more
_PORTABLE_CLUSTER = 8
_FAULTS = ("trap", "invalid-call", "stack-overflow")  # findings after which a GPU runs nothing more
_DYNAMIC_SHARED, _NOT_PORTABLE = 8, 14  # attributes of a kernel


class Refusal(EmulatorError):
    """The program asks for what the emulator does not have. It ends."""


@dataclass
class Launches:
    """All launches of a kernel under one schedule, like the report of one."""

    kernel: str
    completed: bool = True
    count: int = 0
    warp_instructions: int = 0
    bytes: dict = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)

    def add(self, report):
        self.completed &= report.completed
        self.count += 1
        self.warp_instructions += report.warp_instructions
        for memory, moved in report.bytes.items():
            self.bytes[memory] = self.bytes.get(memory, 0) + moved
        for finding in report.findings:
            self.findings.add(finding)


@dataclass
class Seen:
    """What all processes of a program did. `launches`: (schedule, module, kernel) -> Launches."""

    arch: str | None = None
    launches: dict = field(default_factory=dict)
    notes: dict = field(default_factory=dict)  # sentence -> how often
    refusals: list = field(default_factory=list)

    def note(self, sentence):
        self.notes[sentence] = self.notes.get(sentence, 0) + 1


@dataclass
class _Function:
    module: Module
    entry: str
    attributes: dict = field(default_factory=dict)

    @property
    def program(self):
        return self.module.program(self.entry)

    @property
    def static_shared(self):
        return max(self.program.static_shared_end - 1024, 0)

    @property
    def dynamic_shared(self):
        """The most that a launch may ask for."""
        return self.attributes.get(_DYNAMIC_SHARED, _UNTIL_ASKED - self.static_shared)


class Requests:
    """The requests of one process. Each method gives (error, numbers, bytes), or an error."""

    def __init__(self, seen: Seen, arch: str | None, count: int, seed: int, jobs: int, only: str | None = None):
        self._seen, self._arch, self._jobs = seen, arch, jobs
        self._schedules = schedules(count, seed, only)
        self._device = None
        self._modules, self._functions = [], []
        self._failed = False

    def answer(self, number: int, arguments: tuple, data: bytes) -> tuple[int, tuple, bytes]:
        name = _NAMES[number]
        if self._failed and name not in ("refuse", "note", "device"):
            return LAUNCH_FAILURE, (), b""
        try:
            found = getattr(self, name)(arguments, data)
        except LaunchError as error:
            self._seen.note(f"a launch is refused: {error}")
            found = INVALID_CONFIGURATION
        return found if isinstance(found, tuple) else (found, (), b"")

    def _gpu(self) -> Device:
        if self._device is None:
            self._device = Device(self._arch or "sm_90a", jobs=self._jobs)
            self._seen.arch = self._device.arch
        return self._device

    def refuse(self, _, data):
        raise Refusal(data.decode())

    def note(self, _, data):
        self._seen.note(data.decode())
        return SUCCESS

    def device(self, *_):
        arch = self._gpu().arch
        numbers = chips.attributes(arch)
        values = [numbers.get(number, 0) for number in range(160)]
        return SUCCESS, (), struct.pack("<256sQ160i", f"{arch}, emulated by zoo".encode(), _MOST_MEMORY, *values)

    def set_stack(self, arguments, _):
        if arguments[0] > MOST_LOCAL_BYTES:
            return INVALID_VALUE
        self._gpu().stack_bytes = arguments[0]
        return SUCCESS

    # ---- memory
    def allocate(self, arguments, _):
        size, alignment = arguments[:2]
        memory = self._gpu().memory
        if size + sum(memory.sizes.values()) > _MOST_MEMORY:
            return MEMORY_ALLOCATION
        return SUCCESS, (memory.allocate(size, alignment),), b""

    def _place(self, address, size):
        """Index of a range that the host names, or None with a note."""
        try:
            return self._gpu().memory.span(address, size)
        except EmulatorError as error:
            self._seen.note(f"a copy is refused: {error}")
            return None

    def free(self, arguments, _):
        try:
            self._gpu().memory.free(arguments[0])
        except EmulatorError as error:
            self._seen.note(f"free is refused: {error}")
            return INVALID_VALUE
        return SUCCESS

    def write(self, arguments, data):
        if self._place(arguments[0], len(data)) is None:
            return INVALID_VALUE
        self._gpu().memory.write(arguments[0], data)
        return SUCCESS

    def read(self, arguments, _):
        address, size = arguments[:2]
        start = self._place(address, size)
        if start is None:
            return INVALID_VALUE
        return SUCCESS, (), self._gpu().memory.data[start : start + size].tobytes()

    def copy(self, arguments, _):
        size = arguments[2]
        to, start = (self._place(address, size) for address in arguments[:2])
        if to is None or start is None:
            return INVALID_VALUE
        memory = self._gpu().memory
        for array in (memory.data, memory.state):  # what nobody wrote is not written by a copy
            array[to : to + size] = array[start : start + size].copy()
        return SUCCESS

    def fill(self, arguments, _):
        address, value, width, count = arguments[:4]
        return self.write((address,), value.to_bytes(8, "little")[:width] * count)

    # ---- modules
    def module(self, _, image):
        found = texts(image)
        if self._device is None and self._arch is None and found:
            self._arch = arch_for(max(found).target)
        self._modules.append(found)
        return SUCCESS, (len(self._modules) - 1,), b""

    def _module(self, number) -> Module:
        """A module, parsed when it is first used."""
        found = self._modules[number]
        if isinstance(found, list):
            fitting = [text for text in found if _fits(text, self._gpu().arch)]
            if not fitting:
                have = f"PTX for {', '.join(text.target for text in found)} only" if found else "no PTX"
                raise Refusal(f"the program has {have}, for a GPU of {self._gpu().arch}: compile with nvcc -arch={self._gpu().arch}")
            found = self._modules[number] = Module(max(fitting).ptx, whole=False)
            for name, variable in found.variables.items():
                if variable.space in ("global", "const") and not variable.external:
                    self._gpu().symbol(found, name)  # so that each schedule of the first launch begins with its first value
        return found

    def function(self, arguments, data):
        module, entry = self._module(arguments[0]), data.decode()
        if entry not in module.entries:
            return INVALID_FUNCTION
        function = _Function(module, entry)
        self._functions.append(function)
        program = function.program
        layout = [(program.parameter_offset[one], one.size) for one in program.entry.parameters]
        numbers = (len(self._functions) - 1, program.parameter_bytes)
        return SUCCESS, numbers, b"".join(struct.pack("<II", *pair) for pair in layout)

    def variable(self, arguments, data):
        module, name = self._module(arguments[0]), data.decode()
        if name not in module.variables:
            return NOT_FOUND
        return SUCCESS, (self._gpu().symbol(module, name), module.variables[name].size), b""

    # ---- launches
    def launch(self, arguments, parameters):
        function = self._functions[arguments[0]]
        grid, block, cluster = (tuple(arguments[start : start + 3]) for start in (1, 4, 7))
        shared, cooperative = arguments[10:12]
        clusters = cluster[0] * cluster[1] * cluster[2]
        if shared > function.dynamic_shared:
            sentence = (
                f"{shared} bytes of dynamic shared memory, and its cudaFuncAttributeMaxDynamicSharedMemorySize is {function.dynamic_shared}"
            )
            return self._refused(function, sentence, INVALID_VALUE)
        if clusters > _PORTABLE_CLUSTER and not function.attributes.get(_NOT_PORTABLE):
            sentence = f"a cluster of {clusters} CTAs, and cudaFuncAttributeNonPortableClusterSizeAllowed is not set"
            return self._refused(function, sentence, INVALID_CLUSTER)
        if cooperative:
            resident = self._blocks(function, block[0] * block[1] * block[2], shared) * self._gpu().multiprocessors
            if grid[0] * grid[1] * grid[2] > resident:
                return self._refused(function, f"a cooperative grid {grid}, and {resident} CTAs fit the GPU", TOO_LARGE)
        return self._run(function, grid, block, cluster if clusters else None, shared, bool(cooperative), parameters)

    def _refused(self, function, sentence, error):
        self._seen.note(f"a launch of {function.entry} is refused: it asks for {sentence}")
        return error

    def _run(self, function, grid, block, cluster, shared, cooperative, parameters):
        gpu = self._gpu()
        before = _Contents(gpu.memory) if len(self._schedules) > 1 else None
        for number, (policy, seed) in enumerate(self._schedules):
            if number:
                before.put_back()
            gpu.scheduling, gpu.seed = policy, seed
            try:
                report = gpu.launch(function.module, function.entry, grid, block, cluster, shared, parameters, cooperative=cooperative)
            except LaunchError:
                raise
            except EmulatorError as error:
                raise Refusal(f"{function.entry}: {error}") from None
            launches = self._seen.launches.setdefault(
                (schedule_name(policy, seed), function.module, function.entry), Launches(function.entry)
            )
            launches.add(report)
            if report.together:
                self._seen.note(f"{function.entry} ran in one process: {report.together}")
            if not report.completed or any(finding.kind in _FAULTS for finding in report.findings):
                self._failed = True
                return LAUNCH_FAILURE
        return SUCCESS, (), "".join(report.printed).encode()

    # ---- what a kernel needs
    def set_function(self, arguments, _):
        number, attribute, value = arguments[:3]
        function = self._functions[number]
        if attribute == _DYNAMIC_SHARED and value > chips.attributes(self._gpu().arch)[chips.MOST_SHARED] - function.static_shared:
            return INVALID_VALUE
        function.attributes[attribute] = value
        return SUCCESS

    def function_facts(self, arguments, _):
        function = self._functions[arguments[0]]
        program, directives = function.program, function.program.entry.directives
        threads = directives.get("maxntid") or directives.get("reqntid")
        cluster = directives.get("reqnctapercluster") or ()
        number = int(function.module.target[3:].rstrip("af"))
        values = {
            0: int(np.prod(threads)) if threads else 1024, 1: function.static_shared, 3: program.local_bytes, 4: chips.REGISTERS_ASSUMED, 5: number,
            6: number, 8: function.dynamic_shared, 9: -1, 10: int(bool(cluster)), **dict(zip((11, 12, 13), cluster)),
            14: function.attributes.get(_NOT_PORTABLE, 0),
        }  # fmt: skip
        return SUCCESS, (), struct.pack("<17i", *(values.get(attribute, 0) for attribute in range(17)))

    def _blocks(self, function, threads, shared):
        return chips.resident(self._gpu().arch, threads, function.static_shared + shared)

    def occupancy(self, arguments, _):
        number, threads, shared, cluster = arguments[:4]
        blocks = self._blocks(self._functions[number], threads, shared)
        return SUCCESS, (blocks, blocks * self._gpu().multiprocessors // max(cluster, 1)), b""

    def tensor_map(self, arguments, data):
        dims, strides, box, steps = np.frombuffer(data, np.uint64).reshape(5, 4)[: arguments[1]].T.tolist()
        return self._encoded("cuTensorMapEncodeTiled", arguments, lambda gpu: gpu.tensor_map, (dims, strides[:-1], box), steps)

    def im2col_map(self, arguments, data):
        dims, strides, steps, lower, upper = np.frombuffer(data, np.int64).reshape(5, 5)[: arguments[1]].T.tolist()
        channels, pixels, number = arguments[7:10]
        mode = MODES[number]
        corners = len(dims) - 2 if number == 0 else 1
        shape = (dims, strides[:-1], lower[:corners], upper[:corners], channels, pixels)
        name = "cuTensorMapEncodeIm2colWide" if number else "cuTensorMapEncodeIm2col"
        return self._encoded(name, arguments, lambda gpu: functools.partial(gpu.im2col_map, mode=mode), shape, steps)

    def _encoded(self, name, arguments, encoder, shape, steps):
        dtype, _, address, interleave, swizzle, promotion, fill = arguments[:7]
        if interleave:
            raise Refusal("the program encodes an interleaved tensor map, which is not covered")
        try:
            found = encoder(self._gpu())(
                address, _named(DTYPES, dtype), *shape, _named(SWIZZLES, swizzle), element_strides=steps,
                l2_promotion=_named(L2_PROMOTIONS, promotion), fill=_named(OUT_OF_BOUNDS_FILLS, fill),
            )  # fmt: skip
        except ZooError as error:
            self._seen.note(f"{name} refuses: {error}")
            return INVALID_VALUE
        return SUCCESS, (), found.to_bytes()

    # ---- textures and surfaces
    def texture(self, arguments, data):
        *modes, filter, scaled, normalized, srgb, level_filter, count = struct.unpack("<9i", data[:36])
        *border, bias, least, most = struct.unpack("<7f", data[36:64])
        addresses = struct.unpack("<15Q", data[64:])[:count]

        def made(image):
            read = "normalized" if scaled and image.type in ("u8", "s8", "u16", "s16") else "element"  # others are read as they are
            names = [textures.ADDRESSES[mode] for mode in modes]
            return textures.texture(
                image, filter=textures.FILTERS[filter], address_mode=names, normalized=normalized, read=read, border=border, srgb=srgb,
                levels=textures.smaller(image, addresses, True), level_filter=textures.FILTERS[level_filter], level_bias=bias,
                level_clamp=(least, most) if count else (0, 0),
            )  # fmt: skip

        return self._object("texture", arguments, made)

    def surface(self, arguments, _):
        return self._object("surface", arguments, textures.Surface)

    def _object(self, what, arguments, made):
        address, type, channels, *dims, geometry, layers, pitch, linear = arguments[:10]
        geometry = list(textures.GEOMETRIES)[geometry]
        gpu = self._gpu()
        try:
            image = textures.image(
                address, list(textures.TYPES)[type], dims[: textures.GEOMETRIES[geometry]], channels, geometry=geometry, layers=layers,
                pitch=pitch or None, linear=bool(linear),
            )  # fmt: skip
            gpu.memory.span(address, image.bytes)
            return SUCCESS, (gpu.add_object(made(image)),), b""
        except EmulatorError as error:
            self._seen.note(f"a {what} is refused: {error}")
            return INVALID_VALUE

    def drop(self, arguments, _):
        return SUCCESS if self._gpu().textures.pop(arguments[0], None) else INVALID_VALUE


# In the order of stand_in.h.
_NAMES = (
    "refuse", "device", "allocate", "free", "write", "read", "copy", "fill", "module", "function", "variable", "launch", "set_function",
    "function_facts", "occupancy", "tensor_map", "note", "im2col_map", "texture", "surface", "drop", "set_stack",
)  # fmt: skip


class _Contents:
    """A copy of all memory, to which each further schedule goes back."""

    def __init__(self, memory):
        self._memory = memory
        self._kept = [
            (start, size, *(array[start : start + size].copy() for array in self._arrays())) for start, size in memory.sizes.items()
        ]

    def _arrays(self):
        return self._memory.data, self._memory.state

    def put_back(self):
        for start, size, *copies in self._kept:
            for array, kept in zip(self._arrays(), copies):
                array[start : start + size] = kept


def _fits(text: Text, arch: str) -> bool:
    try:
        target_must_fit(text.target, arch)
    except LaunchError:
        return False
    return True


def _named(table, number):
    for name, value in table.items():
        if (value[0] if isinstance(value, tuple) else value) == number:
            return name
    raise EmulatorError(f"tensor map: {number} is none of the {len(table)} values {', '.join(table)}")
