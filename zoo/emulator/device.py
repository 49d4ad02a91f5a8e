"""The public face: a module of PTX, a device with memory, a launch and its report."""

from __future__ import annotations

import functools
import itertools
import math
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from zoo.contract import limits
from zoo.contract.archs import arch_of, words_for
from zoo.contract.array import Pointer, contiguous_strides
from zoo.contract.nearest import suggestion
from zoo.contract.numpy_dtypes import dtype_name, numpy_dtype, plain_numpy
from zoo.contract.own_array import OwnArray
from zoo.contract.tensor_map import DTYPES, L2_PROMOTIONS, OUT_OF_BOUNDS_FILLS, SWIZZLES, TensorMap
from zoo.contract.whole_numbers import shown, whole, whole_tuple

from . import multicast, split, textures
from .array import EmulatedArray
from .asynchronous import POLICIES
from .decode import Program
from .errors import EmulatorError, LaunchError
from .frames import MOST_LOCAL_BYTES, STACK_BYTES
from .heap import Heap
from .im2col import Im2colMap
from .machine import Machine
from .memory import CODE_BASE, GlobalMemory
from .owners import owned
from .parser import parse

if TYPE_CHECKING:
    from typing import Literal

    from numpy.typing import ArrayLike, DTypeLike

MULTIPROCESSORS = {"sm_90": 132, "sm_100": 148, "sm_103": 148, "sm_110": 20, "sm_120": 170, "sm_121": 48}
ARCHS = tuple(
    number + feature for number in MULTIPROCESSORS for feature in "af" if number + feature != "sm_90f"
)  # families begin at sm_100
# Where the sums of every matrix instruction were compared with a GPU's bit by bit (docs/emulator.md).
ARITHMETIC_CONFIRMED = ("sm_90",)

_MOST_BYTES = 1 << 34
_FUNCTION_BYTES = 16  # from the address of a function to the address of the next
_FIRST_HANDLE = 0x5EC0_0000_0001  # of textures and surfaces, which no address of memory equals
_GRID_WORKSPACE = 8  # bytes: a size that nobody reads, and the barrier of the grid


class Module:
    """A PTX text, parsed. Entries are decoded when first launched. whole=False: they are not parsed before, either."""

    def __init__(self, ptx_text: str, whole: bool = True):
        if not isinstance(ptx_text, str) or ".target" not in ptx_text:
            raise EmulatorError("a module is made of PTX text with its .version and .target")
        parsed = parse(ptx_text, whole)
        self._read = None if whole else parsed.read
        self.target, self.version = parsed.target, parsed.version
        self.files, self.variables, self.functions = parsed.files, parsed.variables, parsed.functions
        self._programs = {}

    @property
    def entries(self) -> list[str]:
        """Names of the kernels."""
        return [name for name, function in self.functions.items() if function.entry]

    def read(self, function):
        """Parses the body of a function, if the text has one and it is not parsed yet."""
        if self._read is not None:
            self._read(function)

    def program(self, entry):
        if entry not in self._programs:
            if entry in self.functions:
                self.read(self.functions[entry])
            self._programs[entry] = Program(self, entry)
        return self._programs[entry]

    def __del__(self):
        for program in self.__dict__.get("_programs", {}).values():
            program.dismantle()
        for function in self.__dict__.get("functions", {}).values():
            function.dismantle()


class Report:
    """What a launch did: instruction counts by opcode, bytes moved per memory, findings."""

    def __init__(self, machine, strict: bool = False):
        self.strict = strict
        self.kernel = machine.program.entry.name
        self.completed = machine.completed
        self.findings = list(machine.findings)
        self.bytes = dict(machine.traffic)
        self.warp_instructions = sum(machine.counts)
        self.instructions = Counter()
        self.lines = {}
        for ins, count in zip(machine.program.instructions, machine.counts):
            if count:
                self.instructions[ins.opcode] += count
                self.lines[ins.line] = self.lines.get(ins.line, 0) + count
        self.printed = list(machine.log)
        self.together: str | None = None  # why several jobs did not share the launch

    @property
    def ok(self) -> bool:
        """It ran to its end without errors. A strict device accepts no warnings and no notes either."""
        return self.completed and not any(self.strict or finding.severity == "error" for finding in self.findings)

    def __str__(self) -> str:
        lines = [f"{self.kernel}: {'completed' if self.completed else 'did not complete'}, {self.warp_instructions} warp instructions"]
        lines += [f"  {name}: {count} bytes" for name, count in self.bytes.items() if count]
        lines += [f"  {finding}" for finding in self.findings] or ["  no findings"]
        return "\n".join(lines)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _one_at_a_time(method: _Method) -> _Method:
    """A method of a device that waits until no other thread is in one: its memory is one arena, which grows and moves."""

    @functools.wraps(method)
    def alone(self: Device, *arguments: Any, **settings: Any) -> Any:
        with self._lock:
            return method(self, *arguments, **settings)

    return cast(_Method, alone)


def _refuse_unknown(what: str, given: object, known: Sequence[str]) -> None:
    if not issubclass(type(given), str) or given not in known:
        words = f"one of {', '.join(known)}" if len(known) > 2 else " or ".join(known)
        raise EmulatorError(f"{what} {shown(given)} is unknown; it is {words}")


class Device:
    """An emulated GPU: its memory, and the policies its launches run under. Threads may share one; their calls follow each other.

    arch: "hopper" or "blackwell", a chip such as "h200", or an arch such as "sm_90a".
    scheduling: "issue" executes asynchronous operations at once, "last" as late as is legal, "random" in between, and clusters
    and warps in an order of its own, by `seed`. arithmetic: "exact" sums, or "hw" for the hardware's alignment and truncation; left out, it is "hw"
    where a GPU has confirmed that rule (ARITHMETIC_CONFIRMED), else "exact". stack_bytes: a thread's stack, as cudaLimitStackSize. strict: a report with warnings or notes is not ok. jobs: processes
    that share the clusters of a launch whose CTAs do not talk to each other.
    """

    _machine = Machine  # runs a launch

    def __init__(
        self,
        arch: str = "sm_90a",
        scheduling: Literal["issue", "last", "random"] = "random",
        seed: int = 0,
        arithmetic: Literal["exact", "hw"] | None = None,
        *,
        elect: Literal["lowest", "highest"] = "lowest",
        multiprocessors: int | None = None,
        instruction_limit: int = 50_000_000,
        stack_bytes: int = STACK_BYTES,
        strict: bool = False,
        jobs: int = 1,
    ):
        _refuse_unknown("scheduling", scheduling, POLICIES)
        _refuse_unknown("arithmetic", "exact" if arithmetic is None else arithmetic, ("exact", "hw"))
        _refuse_unknown("elect", elect, ("lowest", "highest"))
        written, arch = arch, arch_of(arch)
        if not issubclass(type(arch), str) or arch not in ARCHS:
            names = words_for(ARCHS)
            known = suggestion(written if issubclass(type(written), str) else shown(written), names, f"it is one of {', '.join(names)}")
            raise LaunchError(f"architecture {shown(written)} is not covered; {known}")
        number = arch[:-1]
        if arithmetic is None:
            arithmetic = "hw" if number in ARITHMETIC_CONFIRMED else "exact"
        self.arch, self.scheduling, self.arithmetic, self.elect = arch, scheduling, arithmetic, elect
        self.seed = whole(seed, "Device: seed")
        self.multiprocessors = MULTIPROCESSORS[number] if multiprocessors is None else whole(multiprocessors, "Device: multiprocessors", 1)
        self.instruction_limit = whole(instruction_limit, "Device: instruction_limit")
        self.stack_bytes = whole(stack_bytes, "Device: stack_bytes", 0, MOST_LOCAL_BYTES)
        self.watch: Callable[[int, int, int], None] | None = None  # called now and then: clusters that ended, all, warp instructions so far
        self.strict = strict
        self.jobs = whole(jobs, "Device: jobs", 1)
        self.share = (0, 1)  # of the clusters: this one of so many
        self._lock = threading.RLock()
        self.memory = GlobalMemory()
        self.heap = Heap(self.memory)  # for malloc in kernels
        self.dropped = deque[int]()  # addresses of arrays that are gone, to be freed; any thread may add one at any time
        self._of_arrays: set[int] = set()
        self._variables = {}
        self._functions = {}  # module -> (function -> address, address -> function)
        self._launches = 0
        self.textures: dict[int, textures.Texture | textures.Surface] = {}  # by handle
        self._handles = itertools.count(_FIRST_HANDLE)

    def __str__(self) -> str:
        return f"emulated {self.arch}"

    @property
    def capability(self) -> tuple[int, int]:
        """(major, minor), as the driver gives it."""
        number = int(self.arch[3:].rstrip("af"))
        return number // 10, number % 10

    # ---- arrays for zoo.launch
    def array(self, values: np.ndarray) -> EmulatedArray:
        """A copy of a numpy array (with ml_dtypes' small floats too) that zoo.launch takes."""
        plain_numpy(values, "array")
        name = dtype_name(values.dtype, "array")
        native = np.asarray(values, values.dtype.newbyteorder("="), order="C")
        return self._array(self.alloc(native), values.shape, name)

    def empty(self, shape: tuple[int, ...], dtype: str | DTypeLike) -> EmulatedArray:
        """An array that nobody has written yet; its dtype is one of zoo's by name, or numpy's or ml_dtypes' own."""
        shape, name = whole_tuple(shape, "shape"), dtype_name(dtype, "empty")
        size = numpy_dtype(name).itemsize * math.prod(shape)
        return self._array(self.alloc(size), shape, name)

    # ---- memory
    @_one_at_a_time
    def alloc(self, source: ArrayLike | int, *, written: ArrayLike | None = None) -> int:
        """Device memory with an array's bytes, or so many uninitialised bytes. Returns its address.

        `written`, a bool for each byte: the others hold what the array says and count as never written.
        """
        if isinstance(source, (int, np.integer)):
            if not 0 <= source < _MOST_BYTES:
                raise EmulatorError(f"{shown(source)} bytes cannot be allocated; an allocation has 0 to {_MOST_BYTES - 1:,}")
            return self._allocate(int(source))
        data = np.ascontiguousarray(source)
        address = self._allocate(data.nbytes)
        if data.nbytes:
            self.memory.write(address, data.tobytes(), written)
        return address

    def _allocate(self, size: int) -> int:
        self._free_dropped()
        return self.memory.allocate(size)

    def _free_dropped(self) -> None:
        while self.dropped:
            address = self.dropped.popleft()
            self._of_arrays.discard(address)
            self.memory.free(address)

    def _array(self, address: int, shape: tuple[int, ...], dtype: str) -> EmulatedArray:
        self._of_arrays.add(address)
        return EmulatedArray(address, shape, dtype, contiguous_strides(shape), self)

    @_one_at_a_time
    def free(self, address: int) -> None:
        """Gives the memory of `alloc` back. The memory of an array is given back when the array is dropped."""
        if address in self._of_arrays:
            raise EmulatorError(f"{address:#x} is the memory of an array, which is freed when the array and its views are dropped")
        self.memory.free(address)

    @_one_at_a_time
    def write(self, address: int, array: ArrayLike) -> None:
        """Copy an array's bytes to device memory."""
        self.memory.write(address, np.ascontiguousarray(array).tobytes())

    @_one_at_a_time
    def read(self, address: int, shape: int | Sequence[int], dtype: DTypeLike) -> np.ndarray:
        """A copy of device memory as an array."""
        dtype = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        start = self.memory.span(address, size)
        return self.memory.data[start : start + size].copy().view(dtype).reshape(shape)

    @_one_at_a_time
    def written(self, address: int, size: int) -> np.ndarray:
        """Bool array: which bytes were ever written, by the host or a kernel."""
        start = self.memory.span(address, size)
        return (self.memory.state[start : start + size] & 2) != 0

    def tensor_map(
        self,
        address: int,
        dtype: str,
        dims: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        swizzle: str = "none",
        *,
        element_strides: Sequence[int] = (),
        l2_promotion: str = "none",
        fill: str = "zero",
    ) -> TensorMap:
        """A checked tensor map (zoo.contract.tensor_map.TensorMap); dimension 0 is the innermost, strides are bytes of dimensions 1 and up."""
        known = {
            "dtype": (dtype, DTYPES), "swizzle": (swizzle, SWIZZLES), "fill": (fill, OUT_OF_BOUNDS_FILLS),
            "promotion": (l2_promotion, L2_PROMOTIONS),
        }  # fmt: skip
        for what, (name, names) in known.items():
            if name not in names:
                raise EmulatorError(f"tensor map: the {what} {name!r} is unknown; it is one of {', '.join(names)}")
        if not len(dims) == len(box) == len(strides) + 1 or len(element_strides) not in (0, len(dims)):
            raise EmulatorError(
                f"tensor map: {len(dims)} dims, {len(strides)} strides, {len(box)} box and {len(element_strides)} element strides do not "
                "go together: as many boxes (and element strides, if any) as dims, and one stride fewer"
            )
        record = TensorMap(
            dtype=dtype, address=int(address), dims=tuple(map(int, dims)), strides=tuple(map(int, strides)), box=tuple(map(int, box)),
            element_strides=tuple(element_strides), swizzle=swizzle, l2_promotion=l2_promotion, fill=fill,
        )  # fmt: skip
        record.check()
        return record

    def im2col_map(
        self,
        address: int,
        dtype: str,
        dims: Sequence[int],
        strides: Sequence[int],
        lower: Sequence[int],
        upper: Sequence[int],
        channels: int,
        pixels: int,
        swizzle: str = "none",
        mode: str = "im2col",
        **options: Any,
    ) -> Im2colMap:
        """A checked tensor map in im2col mode; dimensions from C to N, corners for W, H and D. The other options are tensor_map's.

        In the modes im2col::w and im2col::w::128 corners are given for W only.
        """
        tile = self.tensor_map(address, dtype, dims, strides, (channels, *[1] * (len(dims) - 1)), swizzle, **options)
        record = Im2colMap.of(tile, map(int, lower), map(int, upper), int(pixels), mode)
        record.check()
        return record

    def multicast(self, address: int) -> int:
        """The address of memory of `alloc` for multimem instructions, as in a multicast object of this device alone."""
        self.memory.span(address, 0)
        return multicast.address_of(address)

    # ---- textures and surfaces
    def texture(
        self,
        address: int,
        dtype: str,
        dims: Sequence[int],
        channels: int = 1,
        *,
        geometry: str | None = None,
        layers: int = 1,
        pitch: int | None = None,
        linear: bool = False,
        levels: Sequence[int] = (),
        **sampling: Any,
    ) -> int:
        """Makes a texture object of memory. Returns its handle, which is a parameter of a launch.

        dtype: the type of a channel, "u8", "s8", "u16", "s16", "u32", "s32", "f16" or "f32". dims: texels, dimension 0 innermost. channels: 1, 2 or 4.
        Rows of texels begin `pitch` bytes apart (a multiple of 32; left out, rows have no gaps). Slices or layers follow each other.
        geometry: "1d", "2d", "3d", "a1d", "a2d", "cube" or "acube", the names that tex uses. `layers` counts layers, or six faces of each cube.
        linear: memory for tex1Dfetch. levels: addresses of the smaller levels of a mipmap, whose rows have gaps to multiples of 32 bytes if there is a pitch;
        level_filter, level_bias and level_clamp say how they are chosen. The other options set how the texture is read:
        filter: "point" or "linear". address_mode: "clamp", "border", and with normalized coordinates "wrap" and "mirror", for all dimensions or each.
        Channels that the memory lacks are read as 0. normalized: coordinates run from 0 to 1. read: "element", or "normalized" for integers as floats up to 1.
        border: four values. srgb: colours of normalized u8 become linear. A table of arguments has these options under `texture`, with `address` in place of address_mode, and dims and layers in its shape.
        """
        image = textures.image(address, dtype, dims, channels, geometry=geometry, layers=layers, pitch=pitch, linear=linear)
        return self.add_object(textures.texture(image, levels=textures.smaller(image, levels, pitch is not None), **sampling))

    def surface(self, address: int, dtype: str, dims: Sequence[int], channels: int = 1, **options: Any) -> int:
        """Makes a surface object of memory. Returns its handle. The options are geometry, layers and pitch, as for texture."""
        return self.add_object(textures.Surface(textures.image(address, dtype, dims, channels, **options)))

    def add_object(self, new: textures.Texture | textures.Surface) -> int:
        """Adds a texture or surface. Returns its handle."""
        handle = next(self._handles)
        self.textures[handle] = new
        return handle

    def bind(self, module: Module, name: str, handle: int) -> None:
        """A module's `.texref` or `.surfref` stands for the texture or surface of a handle from now on."""
        if handle not in self.textures:
            raise LaunchError(f"{handle:#x} is the handle of no texture or surface of this device")
        self.textures[self.symbol(module, name)] = self.textures[handle]

    # ---- launching
    @_one_at_a_time
    def launch(
        self,
        module: Module,
        entry: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        cluster: int | Sequence[int] | None = None,
        shared_bytes: int = 0,
        params: Sequence[object] | bytes = (),
        *,
        programmatic: bool = False,
        constant: Sequence[tuple[int, int]] = (),
        cooperative: bool = False,
    ) -> Report:
        """Run an entry to its end. Parameters are ints, floats, pointers, tensor maps, or raw bytes for a struct.

        `params` may also be the bytes of the whole parameter block, as a loader packs it. cooperative: all CTAs are resident and may wait for
        each other (cooperative_groups' grid.sync()). programmatic: launched with programmatic stream serialization, so global memory is off
        limits until griddepcontrol.wait, but for `constant`: (address, bytes) that the launch ahead does not write.
        """
        if not isinstance(module, Module) or not isinstance(entry, str):
            raise LaunchError(f"launch takes a Module and the name of an entry, not {shown(module)} and {shown(entry)}")
        if not isinstance(params, (Sequence, np.ndarray)):
            raise LaunchError(f"params are those of the entry in their order, or the bytes of its block, not {shown(params)}")
        target_must_fit(module.target, self.arch)
        if not isinstance(shared_bytes, (int, np.integer)) or shared_bytes < 0:
            raise LaunchError(f"shared_bytes is a number of bytes, not {shared_bytes!r}")
        self._free_dropped()
        program = module.program(entry)
        grid, block = _triple(grid, "grid"), _triple(block, "block")
        if any(extent > most for extent, most in zip(grid, limits.GRID)):
            raise LaunchError(f"a grid has at most {limits.GRID} CTAs, not {shown(grid)}")
        required = program.entry.directives.get("reqnctapercluster")
        if required is not None:
            required = _triple(required, "cluster")
            if cluster is not None and _triple(cluster, "cluster") != required:
                raise LaunchError(f"{entry} is compiled for clusters of {required}, launched with {cluster}")
            cluster = required
        if cluster is not None:
            cluster = _triple(cluster, "cluster")
            if any(g % c for g, c in zip(grid, cluster)):
                raise LaunchError(f"the grid {grid} is not a multiple of the cluster {cluster}")
            if cluster[0] * cluster[1] * cluster[2] > 16:
                raise LaunchError(f"a cluster has at most 16 CTAs, not {cluster}")
        threads = block[0] * block[1] * block[2]
        if not 1 <= threads <= 1024:
            raise LaunchError(f"a block has 1 to 1024 threads, not {shown(threads)}")
        exact = program.entry.directives.get("reqntid")
        if exact is not None and _triple(exact, "reqntid") != block:
            raise LaunchError(f"{entry} is compiled for blocks of {exact}, launched with {block}")
        most = program.entry.directives.get("maxntid")
        if most is not None and threads > int(np.prod(most)):
            raise LaunchError(f"{entry} is compiled for at most {int(np.prod(most))} threads, launched with {threads}")
        for variable in module.variables.values():
            if variable.space in ("global", "const") and not variable.external:
                self.variable_address(module, variable)
        if program.names_functions:
            self._functions_of(module)
        parameters = pack_parameters(program, params)
        self._launches += 1
        if cooperative and math.prod(grid) > 32 * self.multiprocessors:
            raise LaunchError(f"{self.multiprocessors} multiprocessors do not hold {shown(math.prod(grid))} CTAs of a cooperative launch")
        workspace = self.alloc(np.zeros(_GRID_WORKSPACE, np.uint8)) if cooperative else 0

        clusters = math.prod(grid) // math.prod(cluster or (1,))

        def alone():
            machine = self._machine(
                self, module, program, grid, block, cluster, shared_bytes, parameters, self._launches, workspace, programmatic, constant
            )
            apart = clusters > 1 and not cooperative and split.talking(program) is None
            with np.errstate(all="ignore"), self.memory.noting_writes(program.reads_textures), owned(self.memory, apart):
                machine.run(self.instruction_limit)
            report = Report(machine, self.strict)
            machine.dismantle()
            return report

        try:
            return split.launched(self, program, clusters, cooperative, alone)
        finally:
            if workspace:
                self.free(workspace)

    @property
    def variables(self):
        """(module, name) -> address of each variable that was used."""
        return self._variables

    def variable_address(self, module, variable):
        """Where a module's .global or .const variable lives; it is placed and initialised at first use."""
        address = self._variables.get((module, variable.name))
        if address is None:
            waiting = [variable]
            address = self._place(module, variable)
            while waiting:
                self._initialise(module, waiting.pop(), waiting)
        return address

    def _place(self, module, variable):
        if variable.size is None:
            raise EmulatorError(f"the variable {variable.name} has no size")
        address = self._variables[module, variable.name] = self.memory.allocate(variable.size, max(variable.align, 16))
        return address

    def _initialise(self, module, variable, waiting):
        """Writes the initial value of a variable. Places variables whose addresses the value holds, and appends new ones to `waiting`."""
        data = bytearray(variable.data.ljust(variable.size, b"\0"))
        for offset, width, name, addend, _ in variable.relocations:
            other = module.variables.get(name)
            if other is None:
                target = self.function_address(module, module.functions[name])
            else:
                target = self._variables.get((module, name))
                if target is None:
                    target = self._place(module, other)
                    waiting.append(other)
            data[offset : offset + width] = ((target + addend) % (1 << 64)).to_bytes(8, "little")[:width]
        self.memory.write(self._variables[module, variable.name], bytes(data))

    def _functions_of(self, module):
        found = self._functions.get(module)
        if found is None:
            first = 1 + sum(len(addresses) for addresses, _ in self._functions.values())
            functions = enumerate(dict.fromkeys(module.functions.values()), first)
            by_address = {CODE_BASE + _FUNCTION_BYTES * number: function for number, function in functions}
            found = self._functions[module] = {function: address for address, function in by_address.items()}, by_address
        return found

    def function_address(self, module, function):
        """The address of a function, equal in all kernels of its module."""
        return self._functions_of(module)[0][function]

    def function_at(self, module, address):
        """The function of this module at the address, or None."""
        return self._functions_of(module)[1].get(address)

    @_one_at_a_time
    def symbol(self, module, name):
        """The address of a module's variable, as cuModuleGetGlobal gives it."""
        if name not in module.variables:
            raise EmulatorError(f"the module has no variable {name!r}; it has {', '.join(module.variables) or 'none'}")
        return self.variable_address(module, module.variables[name])

    def c_string(self, address):
        """The zero-terminated text at a device address."""
        try:
            start = self.memory.span(address, 1)
        except EmulatorError:
            return f"<text at {address:#x}>"
        data = self.memory.data[start : start + 4096].tobytes()
        return data.split(b"\0")[0].decode(errors="replace")


def _triple(value, what):
    values = (value,) if not isinstance(value, (tuple, list)) else tuple(value)
    if not all(isinstance(v, (int, np.integer)) for v in values):
        raise LaunchError(f"a {what} is up to three positive numbers, not {value!r}")
    values = tuple(int(v) for v in values) + (1,) * (3 - len(values))
    if len(values) != 3 or any(v < 1 for v in values):
        raise LaunchError(f"a {what} is up to three positive numbers, not {value!r}")
    return values


def target_must_fit(target, arch):
    """PTX for an `a` target runs on that architecture alone, for an `f` target on its family, else on anything newer."""
    number, device = int(target[3:].rstrip("af")), int(arch[3:].rstrip("af"))
    if target.endswith("a"):
        fits = number == device
    elif target.endswith("f"):
        fits = number // 10 == device // 10 and device >= number
    else:
        fits = device >= number
    if not fits:
        raise LaunchError(f"PTX for {target} does not run on {arch}")


def pack_parameters(program, values):
    """The bytes of the parameter block."""
    declared = program.entry.parameters
    if isinstance(values, (bytes, bytearray)):
        if len(values) != program.parameter_bytes:
            raise LaunchError(f"the parameter block of {program.entry.name} has {program.parameter_bytes} bytes, {len(values)} were given")
        return bytes(values)
    if len(values) != len(declared):
        raise LaunchError(f"{program.entry.name} takes {len(declared)} parameters, {len(values)} were given")
    block = bytearray(program.parameter_bytes)
    for number, (variable, value) in enumerate(zip(declared, values)):
        data = _pack_one(variable, value, f"parameter {number} of {program.entry.name}")
        start = program.parameter_offset[variable]
        block[start : start + variable.size] = data
    return bytes(block)


def _pack_one(variable, value, what):
    size = variable.size
    if isinstance(value, TensorMap):
        value = value.to_bytes()
    if isinstance(value, np.ndarray):
        value = value.tobytes()
    elif isinstance(value, np.generic):
        value = value.tobytes() if value.itemsize == size else value.item()
    if isinstance(value, (bytes, bytearray, memoryview)):
        if len(value) != size:
            raise LaunchError(f"{what} has {size} bytes, {len(value)} were given")
        return bytes(value)
    if isinstance(value, (OwnArray, Pointer)):
        raise LaunchError(f"{what}: of an array the launch takes its .address")
    if isinstance(value, float) or (variable.type in ("f32", "f64") and isinstance(value, int)):
        if size not in (4, 8) or variable.type in ("u32", "s32", "u64", "s64"):
            raise LaunchError(f"{what} is no float: it is declared .{variable.type} with {size} bytes")
        return struct.pack("<f" if size == 4 else "<d", value)
    if isinstance(value, int):
        if size > 8 or not -(1 << size * 8 - 1) <= value < 1 << size * 8:
            raise LaunchError(f"{what}: {value} does not fit {size} bytes")
        return (value & ((1 << size * 8) - 1)).to_bytes(size, "little")
    raise LaunchError(f"{what}: a parameter is an int, a float, a pointer, a tensor map or bytes, not {type(value).__name__}")
