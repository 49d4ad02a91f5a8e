"""A call of a kernel that runs as it is printed: Python that makes the arrays, launches and prints a result."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

from zoo.benchmark.arguments import Described, check_call, describe_arguments, size_symbols
from zoo.benchmark.groups import Groups
from zoo.contract.dtypes import DTYPES
from zoo.contract.manifest import Kernel
from zoo.errors import ZooError

# Small enough for the emulator. C: columns, of a matrix or of scales; T: tensor scales.
_SIZES = {"M": 64, "R": 64, "N": 128, "K": 256, "C": 256, "COLUMNS": 512, "E": 2, "G": 2, "S": 1, "T": 1}
_OTHER_SIZE = 128
_GATED = {"N": 256}  # 128 gates and as many ups
_GATHERED = {"T": 16}  # of a product: the rows of a, from which an index takes
_GROUPS = 2
_SHORT = 8  # elements of an array that is written out
_ONE_ONE = "0x22"  # a byte of two e2m1, each 1


def example_call(kernel: Kernel, width: int, directory: Path | None = None) -> str:
    """The program, or a comment that says why there is none. `directory`: of the cubins, where they are not those of the package."""
    usual = {**_SIZES, **(_GATHERED if kernel.fields["op"] == "gemm" else {}), **(_GATED if "gates" in kernel.options else {})}
    sizes = {symbol: usual.get(symbol, _OTHER_SIZE) for symbol in size_symbols(kernel)}
    scalars = [one for one in kernel.arguments.values() if one.kind == "scalar"]
    numbers = {scalar.name: "1" if scalar.default is None else str(scalar.default) for scalar in scalars}
    groups = Groups(_GROUPS) if "offsets" in kernel.arguments else None
    try:
        check_call(kernel, sizes, numbers, groups=groups)
        arrays, _ = describe_arguments(kernel, sizes, numbers, groups)
    except (ZooError, LookupError, StopIteration) as refusal:
        reason = str(refusal) if isinstance(refusal, ZooError) else "what its sizes mean is not known here"
        return "\n".join(textwrap.wrap(f"# no example: {reason}", width, subsequent_indent="# "))
    access = {name: kernel.arguments[name].access for name in arrays}
    given = {name: name for name in arrays} | {scalar.name: numbers[scalar.name] for scalar in scalars if scalar.default is None}
    chosen = ", ".join(f"{symbol}={size}" for symbol, size in sizes.items())
    lines = [
        *textwrap.wrap(f"# a call that runs in the emulator: {chosen}", width, subsequent_indent="# "),
        *_imports((one.dtype for name, one in arrays.items() if access[name] != "write" and one.content is None), width),
        *_device(kernel.archs[0], width),
        *_arrays({name: _made(access[name], one) for name, one in arrays.items()}, width),
        *([f"own = zoo.Zoo({str(directory.resolve())!r})"] if directory is not None else ()),
        *_launch("zoo.launch(" if directory is None else "own.launch(", kernel.name, given, width),
        *[f"print({name}.numpy())" for name in arrays if access[name] in ("write", "read_write")][:1],
    ]
    return "\n".join(lines)


def _arrays(made: Mapping[str, str], width: int) -> list[str]:
    """One a line, but for those that the kernel writes, together where they fit."""
    written = {name: maker for name, maker in made.items() if maker.startswith("empty(")}
    together = f"{', '.join(written)} = {', '.join(written.values())}"
    if not written or len(together) > width:
        return [f"{name} = {maker}" for name, maker in made.items()]
    return [*(f"{name} = {maker}" for name, maker in made.items() if name not in written), together]


def _imports(dtypes: Iterable[str], width: int) -> list[str]:
    small_floats = dict.fromkeys(DTYPES[dtype].numpy for dtype in dtypes if _is_small(dtype))
    together = f"from ml_dtypes import {', '.join(small_floats)}"
    lines = [together] if len(together) <= width else [f"from ml_dtypes import {name}" for name in small_floats]
    return ["import numpy, zoo", *(lines if small_floats else ())]


def _device(arch: str, width: int) -> list[str]:
    """An emulated one, and in a comment what to write for a GPU."""
    makers, remark = "array, empty = gpu.array, gpu.empty", "# on a GPU: "
    beside = f"{makers}  {remark}zoo.to_device, zoo.empty"
    return [
        f'gpu = zoo.emulator.Device("{arch}")',
        *([beside] if len(beside) <= width else [makers, f"{remark}array, empty = zoo.to_device, zoo.empty"]),
    ]


def _is_small(dtype: str) -> bool:
    return DTYPES[dtype].numpy.startswith(("bfloat", "float8"))


def _made(access: str, one: Described) -> str:
    """The expression that makes an array: of ones, of zeros where the kernel also writes it, or of what must lie there."""
    if access == "write":
        return f'empty({one.shape}, "{one.dtype}")'
    spelled = DTYPES[one.dtype].numpy
    dtype = spelled if _is_small(one.dtype) else f"numpy.{spelled}"
    if one.content is None:
        if access != "read":
            return f"array(numpy.zeros({one.shape}, {dtype}))"
        ones = f"numpy.full({one.shape}, {_ONE_ONE}, {dtype})" if one.dtype == "e2m1x2" else f"numpy.ones({one.shape}, {dtype})"
        return f"array({ones})"
    content = [int(value) for value in one.content]
    if len(content) <= _SHORT:
        return f"array(numpy.array({content}, {dtype}))"
    return f"array(numpy.arange({len(content)}, dtype={dtype}) % {max(content) + 1})"  # an index


def _launch(launch: str, name: str, arguments: Mapping[str, str], width: int) -> list[str]:
    """`zoo.launch(...)`, its arguments below each other where they do not fit a line."""
    start = f'{launch}"{name}",'
    words = ", ".join(f"{argument}={value}" for argument, value in arguments.items())
    if len(start) + len(words) + 2 <= width:
        return [f"{start} {words})"]
    lines, indent = ([start], " " * len(launch)) if len(start) <= width else ([launch, f'    "{name}",'], " " * 4)
    return [*lines, *textwrap.wrap(f"{words})", width, initial_indent=indent, subsequent_indent=indent)]
