"""A call of a kernel that runs as it is printed: Python that quantises random operands, calls the kernel and prints a result."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from zoo.benchmark.arguments import check_call, describe_arguments, size_symbols, takes_groups
from zoo.benchmark.groups import Groups
from zoo.cli.operands import Operands
from zoo.contract.archs import family_of
from zoo.contract.manifest import Kernel
from zoo.contract.shapes import sizes as sizes_to_say
from zoo.errors import ZooError

# Small enough for the emulator. C: columns, of a matrix or of scales; KB: bytes of a row of weights.
_SIZES = {"M": 64, "R": 64, "N": 128, "K": 256, "C": 256, "E": 2, "G": 2, "S": 1, "T": 1}
_OTHER_SIZE = 128
_GATED = {"N": 256}  # 128 gates and as many ups
_GATHERED = {"T": 16}  # of a product: the rows of a, from which an index takes
_IN_PLACES = {"R": 128}  # tiles of scales begin with each place
_ROUTED = {"T": 4, "top_k": 2, "E": 4, "R": 8, "N": 256}  # of kernels that route tokens
_NORMAL = "def normal(*shape): return array(random.standard_normal(shape).astype(bfloat16))"
_GROUPS = 2
_GPU = ("array = gpu.array", "# on a GPU: array = zoo.to_device")


def example_call(kernel: Kernel, width: int, directory: Path | None = None) -> str:
    """The program, or a comment that says why there is none. `directory`: of the cubins, where they are not those of the package."""
    sizes = example_sizes(kernel)
    scalars = [one for one in kernel.arguments.values() if one.kind == "scalar"]
    numbers = {scalar.name: "1" if scalar.default is None else str(scalar.default) for scalar in scalars}
    groups = Groups(_GROUPS) if takes_groups(kernel) else None
    try:
        check_call(kernel, sizes, numbers, groups=groups)
        arrays, _ = describe_arguments(kernel, sizes, numbers, groups)
        results = {name: one for name, one in arrays.items() if kernel.arguments[name].access != "read"}
        operands = Operands(kernel, sizes, {name: one for name, one in arrays.items() if name not in results}, results)
    except (ZooError, LookupError, StopIteration) as refusal:
        reason = str(refusal) if isinstance(refusal, ZooError) else "what its sizes mean is not known here"
        return "\n".join(textwrap.wrap(f"# no example: {reason}", width, subsequent_indent="# "))
    given = operands.given | {scalar.name: numbers[scalar.name] for scalar in scalars if scalar.default is None}
    given |= {name: str(sizes[name]) for name in sizes_to_say(kernel) if name in sizes}
    if kernel.fields["op"] == "unpack":
        given |= {"KB": str(sizes["KB"])}
    result = next(iter(name for name in results if kernel.arguments[name].access != "workspace"))
    call = _call("zoo.call(" if directory is None else "own.call(", kernel.name, given, width, f").{result}")
    lines = [*(line for one in operands.lines for line in _folded(one, width)), *([] if directory is None else [_own(directory)]), *call]
    return "\n".join(
        [
            f"# a call to paste: {', '.join(sizes)} = {', '.join(map(str, sizes.values()))}",
            *_head(kernel, lines, width),
            *lines,
            "print(result.numpy())",
        ]
    )


def example_sizes(kernel: Kernel) -> dict[str, int]:
    fields = kernel.fields
    product = fields["op"] == "gemm"
    usual = _SIZES | (_GATHERED if product else {}) | (_GATED if "gates" in kernel.options else {})
    usual |= _IN_PLACES if product and fields.get("grouping") == "m_grouped_masked" else {}
    usual |= _ROUTED if fields["op"] == "experts" else {}
    return {symbol: usual.get(symbol, _OTHER_SIZE) for symbol in size_symbols(kernel)}


def _head(kernel: Kernel, lines: list[str], width: int) -> list[str]:
    """Imports, the device, and what makes random numbers, as far as the lines need them."""
    text = "\n".join(lines)
    uses_normal = re.search(r"\bnormal\(", text) is not None
    text += _NORMAL if uses_normal else ""
    seed = ["random = numpy.random.default_rng(0)"] if "random." in text else []
    text += "".join(seed)
    small_floats = dict.fromkeys(re.findall(r"\b(?:bfloat16|float8_\w+)\b", text))
    imports = [
        "import numpy, zoo" if "numpy." in text.replace(".numpy()", "") else "import zoo",
        *([f"from ml_dtypes import {', '.join(small_floats)}"] if small_floats else []),
    ]
    device = f'gpu = zoo.emulator.Device("{family_of(kernel.archs[0]).lower()}")'
    makers = ["  ".join(_GPU)] if len("  ".join(_GPU)) <= width else list(_GPU)
    return [*imports, device, *makers, *seed, *(_folded(_NORMAL, width) if uses_normal else [])]


def _folded(line: str, width: int) -> list[str]:
    """A line, broken between the arguments of its call where it is too long."""
    line = line if len(line) <= width else line.partition("  # ")[0]
    if len(line) <= width or not ("zoo.call(" in line or line.startswith("def ")):
        return [line]
    if line == _NORMAL:
        return ["def normal(*shape):", "    numbers = random.standard_normal(shape)", "    return array(numbers.astype(bfloat16))"]
    start, _, words = line.partition(", ")
    return [f"{start},", *_wrapped(words, width)]


def _own(directory: Path) -> str:
    return f"own = zoo.Zoo({str(directory.resolve())!r})"


def _call(launch: str, name: str, arguments: Mapping[str, str], width: int, end: str) -> list[str]:
    """`result = zoo.call(...)`, its arguments below each other where they do not fit a line."""
    start = f'result = {launch}"{name}",'
    words = ", ".join(f"{argument}={value}" for argument, value in arguments.items()) + end
    if len(start) + len(words) + 1 <= width:
        return [f"{start} {words}"]
    return [*([start] if len(start) <= width else [f"result = {launch}", f'    "{name}",']), *_wrapped(words, width)]


def _wrapped(words: str, width: int) -> list[str]:
    """Broken between arguments, never within one."""
    parts = re.split(r", (?=\w+=)", words)
    lines = [" " * 4]
    for number, part in enumerate(parts):
        piece = part + (", " if number < len(parts) - 1 else "")
        if len(lines[-1] + piece.rstrip()) > width and lines[-1].strip():
            lines.append(" " * 4)
        lines[-1] += piece
    return [line.rstrip() for line in lines]
