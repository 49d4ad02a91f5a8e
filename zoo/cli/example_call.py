"""A call of a kernel that runs as it is printed: Python that makes the arrays, launches and prints a result."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from zoo.benchmark.arguments import Described, check_call, describe_arguments, size_symbols
from zoo.benchmark.groups import Groups
from zoo.contract.dtypes import DTYPES
from zoo.contract.manifest import Kernel
from zoo.errors import ZooError

# Small enough for the emulator. C: columns, of a matrix or of scales; T: tensor scales.
_SIZES = {"M": 64, "R": 64, "N": 128, "K": 256, "C": 256, "COLUMNS": 512, "E": 2, "G": 2, "T": 1}
_OTHER_SIZE = 128
_GATHERED = {"T": 16}  # of a product: the rows of a, from which an index takes
_GROUPS = 2
_SHORT = 8  # elements of an array that is written out
_ONE_ONE = "0x22"  # a byte of two e2m1, each 1


def example_call(kernel: Kernel, width: int) -> str:
    """The program, or a comment that says why there is none."""
    usual = {**_SIZES, **(_GATHERED if kernel.fields["op"] == "gemm" else {})}
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
    used = [one.dtype for name, one in arrays.items() if kernel.arguments[name].access != "write" and one.content is None]
    small_floats = dict.fromkeys(DTYPES[dtype].numpy for dtype in used if _is_small(dtype))
    chosen = ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
    lines = textwrap.wrap(f"# a call that runs as it is, in the emulator: {chosen}", width, subsequent_indent="# ")
    lines.append("import numpy, zoo")
    if small_floats:
        lines.append(f"from ml_dtypes import {', '.join(small_floats)}")
    device, makers, remark = f'gpu = zoo.emulator.Device("{kernel.archs[0]}")', "array, empty = gpu.array, gpu.empty", "# on a GPU: "
    beside = f"{makers}  {remark}zoo.to_device, zoo.empty"
    lines += [device, *([beside] if len(beside) <= width else [makers, f"{remark}array, empty = zoo.to_device, zoo.empty"])]
    lines += [f"{name} = {_made(kernel.arguments[name].access, one)}" for name, one in arrays.items()]
    given = {scalar.name: numbers[scalar.name] for scalar in scalars if scalar.default is None}
    lines += _launch(kernel.name, {**{name: name for name in arrays}, **given}, width)
    results = [name for name in arrays if kernel.arguments[name].access in ("write", "read_write")]
    return "\n".join(lines + [f"print({name}.numpy())" for name in results[:1]])


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


def _launch(name: str, arguments: Mapping[str, str], width: int) -> list[str]:
    """`zoo.launch(...)`, its arguments below each other where they do not fit a line."""
    start = f'zoo.launch("{name}",'
    words = ", ".join(f"{argument}={value}" for argument, value in arguments.items())
    if len(start) + len(words) + 2 <= width:
        return [f"{start} {words})"]
    if len(start) <= width:
        return [start, *textwrap.wrap(f"{words})", width, initial_indent=" " * 11, subsequent_indent=" " * 11)]
    return ["zoo.launch(", f'    "{name}",', *textwrap.wrap(f"{words})", width, initial_indent=" " * 4, subsequent_indent=" " * 4)]
