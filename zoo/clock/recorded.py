"""What the warps of one CTA, or of its cluster, do for a few tiles of a launch, as the emulator runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zoo.benchmark.arguments import Described, addressed, describe_arguments
from zoo.benchmark.groups import Groups
from zoo.catalog import Zoo
from zoo.clock.chip import Chip
from zoo.contract.array import Pointer
from zoo.contract.dtypes import DTYPES
from zoo.contract.manifest import Kernel
from zoo.contract.resolve import Launch, resolve
from zoo.emulator.memory import GLOBAL_BASE, WRITTEN
from zoo.emulator.recording import Recording, RecordingDevice
from zoo.errors import ArgumentError, ZooError

_ENDLESS = 1 << 20  # multiprocessors: more than any launch has tiles for
_MOST_INSTRUCTIONS = 8_000_000  # of warps, in one recording
_MOST_BYTES = 2_000_000_000  # of a call's arrays: the emulator holds them, and a state for each byte
_REGISTERS, _THREADS, _SHARED, _RESERVED = 1 << 16, 2048, 228 << 10, 1 << 10  # of a multiprocessor; reserved for each CTA

Watch = Callable[[int, int, int], None]


@dataclass(frozen=True)
class Call:
    """A launch on a chip, and how its tiles are spread over multiprocessors."""

    zoo: Zoo
    kernel: Kernel
    sizes: Mapping[str, int]
    groups: Groups | None
    arrays: Mapping[str, Described]
    keywords: Mapping[str, str | int | float]
    arch: str
    chip: Chip
    launch: Launch
    tiles: int  # clusters that the launch has on a chip where each computes one tile

    @property
    def problem(self) -> str:
        """Sizes and groups, such as M x N x K = 512 x 7168 x 2048."""
        groups = f" in {self.groups.count:,} groups" if self.groups else ""
        return f"{' x '.join(self.sizes)} = {' x '.join(map(str, self.sizes.values()))}{groups}"

    @property
    def cluster(self) -> int:
        x, y, z = self.launch.cluster
        return x * y * z

    @property
    def clusters(self) -> int:
        return _ctas(self.launch) // self.cluster

    @property
    def resident(self) -> int:
        """CTAs that share a multiprocessor: no more than it takes for all of them to run at once."""
        variant = self.launch.variant
        registers = -(-variant.registers // 8) * 8 * self.launch.threads
        fit = min(_SHARED // (self.launch.shared + _RESERVED), _THREADS // self.launch.threads, _REGISTERS // registers)
        return max(min(fit, -(-self.clusters // self.chip.clusters(self.cluster))), 1)

    @property
    def turns(self) -> int:
        """Tiles that a CTA, or a place for CTAs, computes one after the other."""
        return -(-self.tiles // min(self.chip.clusters(self.cluster) * self.resident, self.clusters))

    @property
    def busy_multiprocessors(self) -> int:
        return min(self.chip.multiprocessors, -(-_ctas(self.launch) // self.resident))


def _ctas(launch: Launch) -> int:
    x, y, z = launch.grid
    return x * y * z


def call_of(
    zoo: Zoo, kernel: Kernel, sizes: Mapping[str, int], arch: str, chip: Chip, variant: str | None, groups: Groups | None = None,
) -> Call:  # fmt: skip
    """Refuses what the loader would refuse, and kernels that multiply nothing."""
    if kernel.fields["op"] != "gemm":
        raise ArgumentError(f"{kernel.name} has no pipeline of copies and tensor cores to trace; name a kernel `gemm.*`")
    whole = "columns" not in kernel.arguments or sizes.get("I", 0) % 32 == 0  # else the call says where columns end: q is counted in pieces
    arrays, keywords = describe_arguments(kernel, sizes, {} if whole else {"columns": str(sizes["I"])}, groups)
    capability = int(arch[3:-2]), int(arch[-2])
    arguments = addressed(arrays, keywords)
    launch = resolve(kernel, arguments, capability, chip.multiprocessors, variant)
    if launch.empty:
        raise ArgumentError(f"{kernel.name}: nothing is launched at {', '.join(f'{name} = {size}' for name, size in sizes.items())}")
    endless = resolve(kernel, arguments, capability, _ENDLESS, launch.variant.name)
    x, y, z = endless.cluster
    return Call(zoo, kernel, sizes, groups, arrays, keywords, arch, chip, launch, _ctas(endless) // (x * y * z))


def record(call: Call, turns: int, watch: Watch | None = None) -> Recording:
    """Emulates one place for CTAs until it has computed about `turns` tiles."""
    held = sum(array.bytes for array in call.arrays.values())
    if held > _MOST_BYTES:
        raise ZooError(
            f"{call.kernel.name}: the arrays of this shape have {held / 1e9:,.0f} GB, of which the emulator holds 2; give a smaller one"
        )
    multiprocessors, clusters = _spread(call, turns)
    each = -(-call.tiles // clusters)  # tiles that a cluster computes
    device = RecordingDevice(  # type: ignore[no-untyped-call]
        call.arch, clusters=-(-turns // each), multiprocessors=multiprocessors, instruction_limit=_MOST_INSTRUCTIONS
    )
    device.watch = watch
    arguments: dict[str, Any] = dict(call.keywords)
    for name, array in call.arrays.items():
        arguments[name] = _placed(device, array)
    report = call.zoo.prepare(call.kernel.name, variant=call.launch.variant.name, **arguments)()
    assert report is not None, "a call that launches nothing is refused"
    if not report.completed:
        why = report.findings[0] if report.findings else ""
        raise ZooError(f"{call.kernel.name}: a CTA alone does not end; a kernel whose CTAs wait for each other cannot be traced\n{why}")
    assert device.recording is not None, "the launch left one"
    return device.recording


def _spread(call: Call, turns: int) -> tuple[int, int]:
    """(multiprocessors, clusters) of a chip on which a cluster of a persistent kernel computes `turns` tiles."""
    capability = int(call.arch[3:-2]), int(call.arch[-2])
    arguments = addressed(call.arrays, call.keywords)
    wanted = -(-call.tiles // turns)
    multiprocessors = wanted * call.cluster
    for _ in range(2):  # the grid of a kernel whose CTAs share a multiprocessor is a multiple of what is asked for
        launch = resolve(call.kernel, arguments, capability, multiprocessors, call.launch.variant.name)
        x, y, z = launch.cluster
        clusters = max(_ctas(launch) // (x * y * z), 1)
        if clusters in (wanted, call.tiles):
            break
        multiprocessors = max(multiprocessors * wanted // clusters, 1)
    return multiprocessors, clusters


def _placed(device: RecordingDevice, array: Described) -> Pointer:
    """Zeros, or the contents that the kernel needs. Inputs count as written."""
    address = device.alloc(array.bytes)
    start = address - GLOBAL_BASE
    if not array.written:
        device.memory.state[start : start + array.bytes] |= WRITTEN
    if array.content is not None:
        device.write(address, array.content.astype(DTYPES[array.dtype].numpy))
    return Pointer(address, array.shape, array.dtype, array.strides, device)
