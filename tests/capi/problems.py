"""Random calls of any kernel, from nothing but its manifest entry, and ways to spoil them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial

from zoo.contract.array import HOST, Array, contiguous_strides
from zoo.contract.chips import chip_of, on_chip
from zoo.contract.dtypes import CARRIED_BY_BYTES, DTYPES
from zoo.contract.expressions import Expression
from zoo.contract.manifest import Argument, Form, Kernel, Variant
from zoo.contract.resolve import Launch, pick_arch, resolve
from zoo.contract.shapes import lies_by_columns
from zoo.errors import ExpressionError, ZooError
from zoo.runtime.multiprocessors import checked

# ordinal -> (capability, multiprocessors); what the recorder is told to be
DEVICES = [((9, 0), 132), ((10, 0), 148), ((10, 3), 160), ((8, 0), 108), ((9, 0), 78), ((9, 0), 114)]
# ordinal -> name, clock, memory's clock and bus; the other devices have an H200's
CHIPS = {4: ("NVIDIA H20", 1980000, 2619000, 6144), 5: ("NVIDIA H100 PCIe", 1755000, 1593000, 5120)}
RECORDER_DEVICES = ",".join(
    "@".join((f"{major}.{minor}:{count}", *map(str, CHIPS.get(ordinal, ())))) for ordinal, ((major, minor), count) in enumerate(DEVICES)
)
_SIZES = (0, 1, 2, 3, 8, 16, 31, 32, 33, 64, 96, 100, 127, 128, 129, 160, 192, 256, 320, 384, 512, 640, 1000, 1024, 2048, 4096, 7168, 17408)
_PADS = (0, 0, 0, 16, 32, 48, 64, 128, 256, 1, 8)
_DLPACK_CUDA, _DLPACK_MANAGED, _DLPACK_CPU, _DLPACK_PINNED = 2, 13, 1, 3


@dataclass(frozen=True)
class Tensor:
    """A DLTensor: more than an Array can say, so that C's reading of it is tested too."""

    address: int
    dtype: tuple[int, int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    device: tuple[int, int]
    offset: int = 0

    def array(self) -> Array:
        names = {dtype.dlpack: name for name, dtype in DTYPES.items()}
        strides = contiguous_strides(self.shape) if self.strides is None else self.strides
        device = self.device[1] if self.device[0] in (_DLPACK_CUDA, _DLPACK_MANAGED) else HOST
        return Array(self.address, names.get(self.dtype, f"DLPack type {self.dtype}"), self.shape, strides, device)

    def words(self) -> str:
        strides = "0" if self.strides is None else " ".join(map(str, (1, *self.strides)))
        numbers = (self.address - self.offset, self.offset, *self.device, *self.dtype, len(self.shape), *self.shape)
        return f"{' '.join(map(str, numbers))} {strides}"


@cache
def on_device(kernel: Kernel, device: int) -> Kernel:
    """The kernel with the numbers of a device's chip."""
    capability, present = DEVICES[device]
    name, *rates = CHIPS.get(device, ("", 0, 0, 0))
    return on_chip(kernel, pick_arch(kernel.archs, capability) or "", chip_of(name, present, *rates))


@dataclass(frozen=True)
class Problem:
    kernel: Kernel
    device: int
    arguments: dict[str, Tensor | int | float | str | None] = field(default_factory=dict)
    variant: str | None = None
    mode: str = "launch"
    spoiled: str = ""  # how, for messages
    limit: int | None = None  # of multiprocessors

    def change(self, **arguments) -> Problem:
        return replace(self, arguments={**self.arguments, **arguments})

    def words(self) -> str:
        """As caller.c reads it."""
        given = dict(self.arguments)
        if self.variant is not None:
            given["variant"] = self.variant
        if self.limit is not None:
            given["multiprocessors"] = self.limit
        lines = [f"call {self.device} {self.kernel.name} {self.mode} {len(given)}"]
        for name, value in given.items():
            if isinstance(value, Tensor):
                lines.append(f"tensor {name} {value.words()}")
            elif value is None:
                option = name in self.kernel.options
                lines.append(f"choice {name} -" if option else f"tensor {name} null")
            elif isinstance(value, int):
                lines.append(f"integer {name} {value}")
            elif isinstance(value, float):
                lines.append(f"number {name} {value.hex() if math.isfinite(value) else value}")
            else:
                lines.append(f"choice {name} {value}")
        return "\n".join(lines) + "\n"

    def resolve(self) -> Launch | ZooError:
        return self._answer

    @cached_property
    def _answer(self) -> Launch | ZooError:
        arguments = {name: value.array() if isinstance(value, Tensor) else value for name, value in self.arguments.items()}
        try:
            capability, present = DEVICES[self.device]
            kernel, limit = on_device(self.kernel, self.device), checked(self.limit, self.kernel.name, present)
            return resolve(kernel, arguments, capability, present, self.variant, limit)
        except ZooError as error:
            return error


class Maker:
    """Makes random problems of a kernel that choose, or are pinned to, one of its variants."""

    def __init__(self, kernel: Kernel, seed: int):
        self.kernel = kernel
        self.random = random.Random(seed)
        self._numbers = {name: a for name, a in kernel.arguments.items() if a.kind == "scalar" and a.dtypes[0] != "f32"}
        derived = dict(kernel.derived)

        def read(expression: Expression) -> set[str]:
            return {name for each in expression.names for name in (read(derived[each]) if each in derived else {each})}

        self._rules = [(rule, tuple(sorted(read(rule)))) for rule, _ in kernel.constraints]

    def valid(self, variant: Variant, tries: int = 8000) -> Problem:
        for _ in range(tries):
            problem = self.make(variant)
            if problem is not None and isinstance(problem.resolve(), Launch):
                return problem
        raise AssertionError(f"{self.kernel.name} {variant.name}: no valid problem in {tries} tries")

    def launching(self, variant: Variant, count: int, tries: int = 4000) -> list[Problem]:
        """So many valid ones, for one of which this variant is launched; of many tiles, few sizes fall to each."""
        others: list[Problem] = []
        launched: Problem | None = None
        for _ in range(tries):
            problem = self.valid(variant)
            launch = problem.resolve()
            if launched is None and (launch.variant.name, launch.variant.arch) == (variant.name, variant.arch) and not launch.empty:
                launched = problem
            elif len(others) < count - 1:
                others.append(problem)
            if launched is not None and len(others) == count - 1:
                return [launched, *others]
        raise AssertionError(f"{self.kernel.name} {variant.name}: not launched by {tries} problems")

    def make(self, variant: Variant) -> Problem | None:
        """A problem of the variant's dtypes and options, most often a valid one; None if its expressions have no value."""
        pick = self.random
        present = {name: a for name, a in self.kernel.arguments.items() if a.kind == "array" and not (a.optional and pick.random() < 0.4)}
        device = pick.choice([i for i, (capability, _) in enumerate(DEVICES) if _runs(variant.arch, capability)])
        several = [v for v in self.kernel.variants if v.arch == variant.arch and (v.dtypes, v.options) == (variant.dtypes, variant.options)]
        arguments: dict[str, object] = {}
        values = {"sms": DEVICES[device][1]}
        for name, argument in self.kernel.arguments.items():
            if argument.kind == "scalar" and (argument.default is None or pick.random() < 0.7):
                arguments[name] = self._scalar(argument)
            if argument.kind == "scalar" and argument.dtypes[0] != "f32":
                values[name] = arguments.get(name, argument.default)
        for name, option in self.kernel.options.items():
            chosen = variant.options[name] if option.compiled else pick.choice(option.values)
            values.update({f"{name}.{value}": int(value == chosen) for value in option.values})
            if chosen != option.default or pick.random() < 0.5:
                arguments[name] = chosen
        dtypes = {name: variant.dtypes.get(name) or pick.choice(a.dtypes) for name, a in self.kernel.arguments.items() if a.kind == "array"}
        for name, dtype in dtypes.items():
            values |= {f"{name}.present": int(name in present), f"{name}.itemsize": DTYPES[dtype].bytes}
            values |= {f"{name}.{other}": int(other == dtype) for other in self.kernel.arguments[name].dtypes}
        try:
            self._arrays(present, dtypes, values, arguments, device)
        except ExpressionError:
            return None
        names = list(arguments)
        pick.shuffle(names)
        pinned = variant.name if len(several) > 1 and pick.random() < 0.5 else None
        return Problem(self.kernel, device, {name: arguments[name] for name in names}, pinned, pick.choice(("launch", "plan")))

    def _scalar(self, argument: Argument) -> int | float:
        if argument.dtypes[0] == "f32":
            return self.random.choice((1.0, 0.0, -0.0, 0.1, -1e-40, 3e38, float("inf"), float("nan"), self.random.uniform(-10, 10), 3))
        return self.random.choice((0, 1, 1, 2, 3, 4, 5, 7, 8, 16, -1, self.random.randrange(-(2**31), 2**31)))

    def _derive(self, values: dict[str, int]):
        for name, expression in self.kernel.derived:
            try:
                values[name] = expression.evaluate(values)
            except ExpressionError:  # it reads a stride, which no shape should need
                continue

    def _agree(self, values: dict[str, int], drawn: dict[str, Callable[[int], int]], multiple: int, arguments: dict, tries: int = 200):
        """Draws sizes and whole numbers again, one that a broken rule reads at a time: of kernels with several rules for them, one call in
        a thousand would be right by chance. Rules of strides are left to chance."""
        for _ in range(tries):
            broken = next((names for rule, names in self._rules if not _holds(rule, values)), None)
            again = [name for name in broken or () if name in drawn or name in self._numbers]
            if not again:
                return
            name = self.random.choice(again)
            if name in drawn:
                values[name] = drawn[name](self.random.choice((1, multiple)))
            else:
                values[name] = arguments[name] = self._scalar(self._numbers[name])
            self._derive(values)

    def _arrays(self, present: dict[str, Argument], dtypes: dict[str, str], values: dict[str, int], arguments: dict, device: int):
        pick = self.random
        forms = {name: next(f for f in a.forms if f.when.evaluate(values)) for name, a in present.items()}
        multiple = pick.choice((1, 32, 32, 128, 128))

        def extent(form: Form, dtype: str, multiple: int) -> int:
            size = pick.choice(_SIZES) // multiple * multiple or pick.choice((multiple, multiple, multiple, 0))
            one_for_all = len(form.shape) == 1 and dtype == "f32" and pick.random() < 0.5  # as a tensor's scale must be
            return 1 if one_for_all else size

        drawn: dict[str, Callable[[int], int]] = {}
        for name, form in forms.items():
            for expression in form.shape:
                if expression.names == (expression.text,) and expression.text not in values:
                    drawn[expression.text] = partial(extent, form, dtypes[name])
                    values[expression.text] = drawn[expression.text](multiple)
        for name in self.kernel.arguments:  # what only absent arguments would bind
            for form in self.kernel.arguments[name].forms if name not in present else ():
                for expression in (*form.shape, *(form.strides or ())):
                    if expression.names == (expression.text,):
                        values.setdefault(expression.text, 0)
        self._derive(values)
        self._agree(values, drawn, multiple, arguments)
        address = pick.randrange(1, 1000) * 2**32
        for name, argument in present.items():
            form, dtype = forms[name], dtypes[name]
            shape = tuple(expression.evaluate(values) for expression in form.shape)
            if any(extent < 0 for extent in shape):
                raise ExpressionError("a negative extent")
            strides, step, axes = [0] * len(shape), 1, list(range(len(shape) - 1, -1, -1))
            if lies_by_columns(form):
                axes[:2] = axes[1::-1]
            for axis in axes:
                expression = form.strides[axis] if form.strides else None
                stride = step
                if expression is not None:
                    bare = expression.names == (expression.text,)
                    if bare and expression.text not in values:
                        stride = values[expression.text] = step + pick.choice(_PADS)
                    else:
                        stride = expression.evaluate(values)
                if shape[axis] <= 1 and pick.random() < 0.3:
                    strides[axis] = pick.choice((0, 1, stride, 12345))  # of a short dimension: anything
                else:
                    strides[axis] = stride
                step = stride * max(shape[axis], 1)
            alignment = argument.alignment * pick.choice((1, 1, 2, 16))
            address = -(-address // alignment) * alignment + pick.randrange(4) * alignment
            carried = [other for other in argument.dtypes if other in CARRIED_BY_BYTES]
            as_bytes = carried == [dtype] and pick.random() < 0.3
            passed = pick.choice((dtype, "ue8m0", "e4m3")) if dtype == "u8" else "u8" if as_bytes else dtype
            empty = 0 in shape
            arguments[name] = Tensor(
                address=0 if empty and pick.random() < 0.5 else address,
                dtype=DTYPES[passed].dlpack,
                shape=shape,
                strides=None if tuple(strides) == contiguous_strides(shape) and pick.random() < 0.5 else tuple(strides),
                device=(pick.choice((_DLPACK_CUDA, _DLPACK_CUDA, _DLPACK_MANAGED)), device),
                offset=pick.choice((0, 0, 16, 256)) if address >= 256 and not empty else 0,
            )
            if not empty:
                address += (sum((e - 1) * s for e, s in zip(shape, strides, strict=True)) + 1) * DTYPES[dtype].bytes


def _holds(rule: Expression, values: dict[str, int]) -> bool:
    """Unless it reads what is not known yet."""
    try:
        return not values.keys() >= {*rule.names} or bool(rule.evaluate(values))
    except ExpressionError:
        return False


def _runs(arch: str, capability: tuple[int, int]) -> bool:
    from zoo.contract.resolve import runs_on

    return runs_on(arch, capability)


# ---- ways to spoil a call: each takes a good problem and returns another, or None where it does not apply ----


def _tensors(problem: Problem) -> list[tuple[str, Tensor]]:
    return [(name, value) for name, value in problem.arguments.items() if isinstance(value, Tensor)]


def _change_one(change: Callable[[random.Random, Problem, Tensor], Tensor | None]) -> Callable:
    def spoil(pick: random.Random, problem: Problem) -> Problem | None:
        name, tensor = pick.choice(_tensors(problem))
        changed = change(pick, problem, tensor)
        return None if changed is None else problem.change(**{name: changed})

    return spoil


def _with_axis(numbers: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return (*numbers[:axis], value, *numbers[axis + 1 :])


def _missing(pick, problem):
    name = pick.choice(list(problem.arguments))
    if pick.random() < 0.5:
        return problem.change(**{name: None})
    return replace(problem, arguments={other: value for other, value in problem.arguments.items() if other != name})


def _unknown(pick, problem):
    return problem.change(**{pick.choice(("stream", "bias_", "X", "variants")): pick.choice((1, "x", None, _tensors(problem)[0][1]))})


def _option(pick, problem):
    names = list(problem.kernel.options)
    return problem.change(**{pick.choice(names): pick.choice(("tiled", "Plain", 3))}) if names else None


def _number(pick, problem):
    scalars = [name for name, a in problem.kernel.arguments.items() if a.kind == "scalar"]
    odd = (1.5, 2.0, 2**31, -(2**31) - 1, 2**63 - 1, 1e300, -1e300, 1e22, 1e16, 123456.789, 1e-5, 1e-4, float("inf"), float("nan"), "one")
    return problem.change(**{pick.choice(scalars): pick.choice(odd)}) if scalars else None


def _extent(pick, problem, tensor):
    if not tensor.shape:
        return None
    axis = pick.randrange(len(tensor.shape))
    extent = tensor.shape[axis]
    value = pick.choice((extent + 1, max(extent - 1, 0), 2 * extent, -1, extent + 16, 0))
    return replace(tensor, shape=_with_axis(tensor.shape, axis, value))


def _stride(pick, problem, tensor):
    strides = contiguous_strides(tensor.shape) if tensor.strides is None else tensor.strides
    if not strides:
        return None
    axis = pick.randrange(len(strides))
    value = pick.choice((strides[axis] + 1, strides[axis] + 16, 0, -1, 2 * strides[axis], max(strides[axis] - 1, 0)))
    return replace(tensor, strides=_with_axis(strides, axis, value))


def _huge(pick, problem, tensor):
    numbers = (2**31, 2**32, 2**33 + 32, 2**40, 2**48, 2**62, 2**63 - 1)
    if not tensor.shape:
        return None
    axis = pick.randrange(len(tensor.shape))
    if pick.random() < 0.3:
        return replace(tensor, address=pick.choice((2**63 - 16, 2**62)), offset=0)
    if pick.random() < 0.5:
        strides = contiguous_strides(tensor.shape) if tensor.strides is None else tensor.strides
        return replace(tensor, strides=_with_axis(strides, axis, pick.choice(numbers)))
    strides = contiguous_strides(tensor.shape) if tensor.strides is None else tensor.strides
    return replace(tensor, shape=_with_axis(tensor.shape, axis, pick.choice(numbers)), strides=strides)


def _rank(pick, problem, tensor):
    if pick.random() < 0.5 or not tensor.shape:
        return replace(tensor, shape=(1, *tensor.shape), strides=None)
    return replace(tensor, shape=tensor.shape[1:], strides=None)


def _overlap(pick, problem):
    tensors = _tensors(problem)
    if len(tensors) < 2:
        return None
    (name, tensor), (_, other) = pick.sample(tensors, 2)
    return problem.change(**{name: replace(tensor, address=other.address + pick.choice((0, 16, 64, 256, 4096)), offset=0)})


def _columns(pick, problem):
    """Two matrices as columns of one buffer, side by side or just meeting: some of these are right."""
    names = {dtype.dlpack: dtype.bytes for dtype in DTYPES.values()}
    matrices = [(name, t) for name, t in _tensors(problem) if len(t.shape) == 2 and min(t.shape) > 0 and t.dtype in names]
    if len(matrices) < 2:
        return None
    (one, a), (two, b) = pick.sample(matrices, 2)
    a_row, b_row = a.shape[1] * names[a.dtype], b.shape[1] * names[b.dtype]
    pitch = -(-(a_row + b_row) // 64) * 64 + pick.choice((0, 0, 64, 4096))
    behind = pick.choice((a_row, a_row - 16, a_row + 16, pitch - b_row, pitch - b_row + 16, pitch - b_row - 16, -b_row, pitch))
    return problem.change(
        **{
            one: replace(a, strides=(pitch // names[a.dtype], 1)),
            two: replace(b, strides=(pitch // names[b.dtype], 1), address=a.address + behind + pick.choice((0, 0, 3)) * pitch, offset=0),
        }
    )


def _swapped(pick, problem):
    tensors = _tensors(problem)
    if len(tensors) < 2:
        return None
    (one, a), (two, b) = pick.sample(tensors, 2)
    return problem.change(**{one: b, two: a})


def _sizes(pick, problem):
    """One size changed wherever it stands, so that shapes agree and the kernel's own limits speak."""
    sizes = sorted({extent for _, tensor in _tensors(problem) for extent in tensor.shape if extent > 1})
    if not sizes:
        return None
    old, new = pick.choice(sizes), pick.choice((17, 32, 32, 33, 100, 250, 8191, 2**31 - 1, 2**31 + 31, 2**36))
    changed = {}
    for name, tensor in _tensors(problem):
        shape = tuple(new if extent == old else extent for extent in tensor.shape)
        changed[name] = replace(tensor, shape=shape, strides=None) if shape != tensor.shape else tensor
    return problem.change(**changed)


def _wrong_device(pick, problem):
    device = pick.choice([i for i in range(len(DEVICES)) if i != problem.device])
    moved = {name: replace(tensor, device=(tensor.device[0], device)) for name, tensor in _tensors(problem)}
    return replace(problem.change(**moved), device=device)


_OTHER_DTYPES = [dtype.dlpack for dtype in DTYPES.values()] + [(2, 64, 1), (1, 16, 1), (6, 8, 1), (10, 8, 2), (0, 0, 0)]

SPOILERS: dict[str, Callable[[random.Random, Problem], Problem | None]] = {
    "missing": _missing,
    "unknown": _unknown,
    "option": _option,
    "number": _number,
    "extent": _change_one(_extent),
    "stride": _change_one(_stride),
    "huge": _change_one(_huge),
    "rank": _change_one(_rank),
    "dtype": _change_one(lambda pick, problem, tensor: replace(tensor, dtype=pick.choice(_OTHER_DTYPES))),
    "host": _change_one(lambda pick, problem, tensor: replace(tensor, device=(pick.choice((_DLPACK_CPU, _DLPACK_PINNED, 10)), 0))),
    "device": _change_one(lambda pick, problem, tensor: replace(tensor, device=(_DLPACK_CUDA, problem.device + 1))),
    "null": _change_one(lambda pick, problem, tensor: replace(tensor, address=0, offset=0)),
    "alignment": _change_one(lambda pick, problem, tensor: replace(tensor, address=tensor.address + pick.choice((1, 2, 4, 8, 16)))),
    "overlap": _overlap,
    "columns": _columns,
    "swapped": _swapped,
    "sizes": _sizes,
    "variant": lambda pick, problem: replace(problem, variant=pick.choice(("r4", "x", *(v.name for v in problem.kernel.variants)))),
    "architecture": _wrong_device,
}
