"""A kernel run under several schedules with arguments from a file or from Python: what was found, and what the arrays hold afterwards."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zoo.errors import ZooError

from .arguments import Argument
from .asynchronous import POLICIES
from .causes import causes
from .device import ARCHS, Device, Module
from .errors import EmulatorError, LaunchError
from .processes import results


def arch_for(target: str) -> str:
    """The arch that runs PTX for a target: its own, or the nearest that has an emulator."""
    number = target.rstrip("af")
    own = [arch for arch in ARCHS if arch == target] or [arch for arch in ARCHS if arch == f"{number}a"]
    if own:
        return own[0]
    if int(number[3:]) < 90 and target == number:
        return "sm_90a"
    raise EmulatorError(f"PTX for {target} runs on no arch that is covered; these are {', '.join(ARCHS)}")


def schedules(count, seed=0, only=None):
    """`count` pairs (policy, seed): all asynchronous work as late as is legal, then orders drawn at random. `only`: this one instead."""
    if only is not None:
        policy, colon, number = only.partition(":")
        if policy not in POLICIES or (colon and not (policy == "random" and number.isascii() and number.isdigit() and len(number) < 11)):
            raise LaunchError(f"{only!r} is no schedule; it is last, issue or random:SEED, as random:3")
        return [(policy, int(number or seed))]
    return [("random" if number else "last", seed + number) for number in range(count)]


def schedule_name(policy, seed):
    return f"random, seed {seed}" if policy == "random" else policy


def _alone(name):
    """Words for a schedule and how to run it alone."""
    return f"{name} (--only {name.replace(', seed ', ':')})"


_ADDRESS = re.compile(r"(?:(allocation of [\d,]+ bytes) )?\bat (0x[0-9a-f]{10,})")


@dataclass
class Result:
    """`causes`: findings by cause. `arrays`: name -> array after the first run. `wrong`: sentences about values."""

    reports: list
    causes: list
    arrays: dict
    wrong: list = field(default_factory=list)

    def failed(self, strict: bool = False) -> bool:
        """Whether a run did not end, a value is wrong or there is an error; with strict, also a warning or a note."""
        errors = [cause for cause in self.causes if strict or cause.severity == "error"]
        return bool(errors or self.wrong or not all(report.completed for _, report in self.reports))


def run(
    module: Module,
    entry: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Sequence[Argument],
    *,
    cluster: Sequence[int] | None = None,
    shared_bytes: int = 0,
    arch: str | None = None,
    scratch: Sequence[int] = (),
    cooperative: bool = False,
    programmatic: bool = False,
    stack_bytes: int | None = None,
    **schedules: Any,
) -> Result:
    """Runs an entry as `under_schedules` does. `scratch`: sizes of buffers that follow the arguments; 0 is a null pointer."""
    declared = module.functions[entry].parameters
    passed = [argument for argument in arguments if not argument.reference]
    if len(passed) + len(scratch) != len(declared):
        kinds = ", ".join(f"{one.name} ({one.size} bytes)" for one in declared[:8]) + (", ..." if len(declared) > 8 else "")
        raise LaunchError(f"{entry} takes {len(declared)} parameters, {len(passed)} were given: {kinds or 'none'}")

    for argument, variable in zip(passed, declared):
        if argument.array is not None and variable.size < (8 if argument.tensor_map is None else 128):
            what = "an array" if argument.tensor_map is None else "a tensor map"
            raise LaunchError(f"{argument.name} is {what}, and the parameter {variable.name} has {variable.size} bytes")

    def launched(device, addresses):
        if stack_bytes is not None:
            device.stack_bytes = stack_bytes
        parameters = [_parameter(device, argument, addresses, variable.size) for argument, variable in zip(passed, declared)]
        for argument in arguments:
            if argument.reference:
                device.bind(module, argument.name, _parameter(device, argument, addresses, 8))
        parameters += [device.alloc(np.zeros(size, np.uint8)) if size else 0 for size in scratch]
        how = {"cooperative": cooperative, "programmatic": programmatic}
        return [device.launch(module, entry, grid, block, cluster, shared_bytes, parameters, **how)]

    return under_schedules(launched, arguments, arch or arch_for(module.target), **schedules)


def under_schedules(
    launched: Callable[[Device, dict[str, int]], list],
    arguments: Sequence[Argument],
    arch: str,
    *,
    count: int = 2,
    seed: int = 0,
    only: str | None = None,
    watch: Callable[[str, int, int, int], None] | None = None,
    jobs: int = 1,
) -> Result:
    """Calls `launched` once under each of `count` schedules, or under the one that `only` names, `jobs` of them at a time, each with a device of its own. It places the arguments,
    notes the addresses of their arrays, and returns the reports of its launches. Where there are fewer schedules than jobs, the clusters of a
    launch share the others. `watch` is called where there is one job."""
    leaves = [leaf for argument in arguments for leaf in argument.leaves()]
    given = {argument.name: argument for argument in leaves}
    orders = schedules(count, seed, only)

    def once(policy, number):
        name = schedule_name(policy, number)
        device, addresses = Device(arch, policy, number, jobs=max(1, jobs // len(orders))), {}
        if watch is not None and jobs == 1:
            device.watch = lambda done, all, executed, name=name: watch(name, done, all, executed)
        reports = launched(device, addresses)
        places = [(name, address, given[name].array.nbytes) for name, address in addresses.items()]
        for finding in (finding for report in reports for finding in report.findings):
            finding.message = _ADDRESS.sub(lambda match: _in_words(match, places), finding.message)
        after = {
            argument.name: device.read(addresses[argument.name], argument.array.shape, argument.array.dtype)
            for argument in leaves
            if argument.array is not None
        }
        return name, reports, after

    ran = results(once, orders, jobs)
    ended = [(name, after) for name, reports, after in ran if all(report.completed for report in reports)]
    wrong = [sentence for argument in leaves if argument.array is not None for sentence in _wrong(argument, ended)]
    named = [(name, report) for name, reports, _ in ran for report in reports]
    return Result(named, causes(named), ran[0][2], wrong)


def _in_words(match, places):
    """An address in a message, by the argument whose array it is in."""
    number = int(match[2], 16)
    for name, address, size in places:
        if match[1] and number == address:
            return f"{match[1]} of the argument {name}"
        if not match[1] and address <= number < address + size:
            return f"at byte {number - address} of the argument {name}"
    return match[0]


def _parameter(device, argument, addresses, size):
    if argument.fields is not None:
        return _struct(device, argument, addresses, size)
    if argument.array is None:
        return int(argument.value) if isinstance(argument.value, bool) else argument.value
    array = argument.array
    address = addresses[argument.name] = device.alloc(array if argument.written else array.nbytes)
    if argument.texture_at is not None:
        return device.add_object(argument.texture_at(address))
    if argument.multicast:
        return device.multicast(address)
    if argument.tensor_map is None:
        return address
    spec = argument.tensor_map
    dtype = {"uint8": "u8", "uint16": "u16", "uint32": "u32", "int32": "i32", "uint64": "u64", "int64": "i64", "float16": "f16",
             "float32": "f32", "float64": "f64", "bfloat16": "bf16"}.get(array.dtype.name, f"u{8 * array.itemsize}")  # fmt: skip
    try:
        return device.tensor_map(
            address, dtype, array.shape[::-1], array.strides[-2::-1], spec["box"][::-1], spec["swizzle"], fill=spec["fill"]
        )
    except ZooError as error:
        raise LaunchError(f"{argument.name}: {error}") from None


def _struct(device, argument, addresses, size):
    """The bytes of a struct."""
    block = bytearray(size)
    for offset, field_ in argument.fields:
        value = _parameter(device, field_, addresses, 8)
        if field_.array is None:
            whole = np.iinfo(field_.dtype) if field_.dtype.kind in "iu" else None
            if whole is not None and (isinstance(value, float) or not whole.min <= value <= whole.max):
                raise LaunchError(f"{field_.name}: {value} does not fit {field_.dtype}")
            data = np.array(float(value) if whole is None else value).astype(field_.dtype).tobytes()
        else:
            data = value.to_bytes(8, "little") if isinstance(value, int) else value.to_bytes()
        if offset + len(data) > size:
            raise LaunchError(f"{field_.name}: {argument.name} has {size} bytes, the field ends at {offset + len(data)}")
        block[offset : offset + len(data)] = data
    return bytes(block)


def _wrong(argument, ended):
    """A sentence where an array is not as expected after some schedule, or else not as after the first one. ended: (schedule, arrays)."""
    found = [(name, after[argument.name]) for name, after in ended]
    if argument.expected is not None:
        bad = [(name, array) for name, array in found if _unexpected(argument, array).any()]
        if bad:
            (name, array), every = bad[0], len(bad) == len(found)
            wrong = _unexpected(argument, array)
            first = tuple(_first(wrong))
            yield (
                f"{_count(argument, wrong)} not as expected under {'every schedule' if every else f'{len(bad)} of {len(found)} schedules'}; "
                f"the first, {list(first)}, is {array[first]}{'' if every else f' under {_alone(name)}'}, expected {argument.expected[first]}"
            )
            return
    for name, array in found[1:]:
        differs = _unlike(argument, array, found[0][1])
        if differs.any():
            first = tuple(_first(differs))
            yield (
                f"{_count(argument, differs)} not the same under two schedules; the first, {list(first)}, is {found[0][1][first]} under "
                f"{_alone(found[0][0])} and {array[first]} under {_alone(name)}"
            )
            return


def _count(argument, bad):
    return f"{argument.name}: {int(bad.sum()):,} of {bad.size:,} elements {'are' if bad.sum() > 1 else 'is'}"


def _first(bad):
    return [int(one) for one in np.argwhere(bad)[0]]


def _unlike(argument, found, wanted):
    """Where two results differ by more than the argument's tolerance, or without a tolerance in any bit. Atomic sums in another order need one."""
    if argument.rtol or argument.atol:
        return ~np.isclose(found.astype(np.float64), wanted.astype(np.float64), argument.rtol, argument.atol, equal_nan=True)
    one, other = (np.frombuffer(array.tobytes(), np.uint8).reshape(*array.shape, -1) for array in (found, wanted))
    return (one != other).any(axis=-1)


def _unexpected(argument, found):
    """Where an array is not what was expected."""
    expected = argument.expected
    if argument.rtol or argument.atol:
        return _unlike(argument, found, expected)
    return found != expected if found.dtype.kind in "biu" else (found != expected) & ~(np.isnan(found) & np.isnan(expected))
