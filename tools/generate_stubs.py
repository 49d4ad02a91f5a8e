"""Writes zoo/__init__.pyi: what zoo exports, and for each kernel of the manifest the arguments and options that it takes.

    python tools/generate_stubs.py             write it
    python tools/generate_stubs.py --check     exit 1 if it is not what would be written

With it an editor completes `zoo.launch("gemm...` and its keywords, and mypy finds a misspelt one before a GPU does.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import zoo
from zoo.contract.manifest import Argument, Kernel, Manifest, Option
from zoo.contract.shapes import sizes

STUB = ROOT / "zoo" / "__init__.pyi"
_OVERLOADED = ("launch", "prepare", "call")
_WRITTEN = (*_OVERLOADED, "find", "kernel")  # the rest is imported
_WIDTH = 140

HEAD = '''\
# Written by tools/generate_stubs.py from what zoo exports and from cubins/manifest.json. Do not edit.
"""zoo: block-scaled low-precision GPU kernels, compiled ahead of time, started by name."""

from typing import Any, Literal, Protocol, TypeAlias, overload
'''

ARRAY = '''\
class _Array(Protocol):
    """An array of any framework, a DeviceArray, a Pointer, or whatever else zoo reads; the call says what it cannot read."""
'''


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if the file is not what would be written.")
def main(check: bool) -> None:
    """Writes the stub file that types zoo's exports and each kernel's keywords."""
    text = stub(Manifest(ROOT / "cubins" / "manifest.json"))
    if not check:
        STUB.write_text(text)
    elif not STUB.is_file() or STUB.read_text() != text:
        raise click.ClickException("zoo/__init__.pyi is not what the manifest and zoo's exports give; run tools/generate_stubs.py")


def stub(manifest: Manifest) -> str:
    functions = {name: getattr(zoo.Zoo, name) for name in _OVERLOADED}
    parts = [
        HEAD,
        _imports(functions.values()),
        "__version__: str\n",
        ARRAY,
        f"_KernelName: TypeAlias = {_literal(manifest.names)}\n",
        "def kernel(name: _KernelName | str) -> Kernel: ...\n",
        *(_overloads(name, function, manifest.kernels) for name, function in functions.items()),
        _find(manifest.kernels),
    ]
    return "\n".join(parts)


def _imports(functions: Iterable[Callable[..., object]]) -> str:
    """Every name zoo exports, and the types that the overloaded functions return."""
    homes = {name: home for name, home in vars(zoo)["_HOME"].items() if name not in _WRITTEN}
    lines = {f"from {home} import {name} as {name}" for name, home in homes.items()}
    for function in functions:
        for module, name in _imported_by(function.__module__):
            if name in re.findall(r"\w+", _returns(function)) and name not in homes:
                lines.add(f"from {module} import {name}")
    lines.add("from zoo.contract.manifest import Kernel")
    return "from zoo import emulator as emulator\nfrom zoo import reference as reference\n" + "\n".join(sorted(lines)) + "\n"


def _imported_by(module: str) -> Iterator[tuple[str, str]]:
    """(from where, what), also of what is imported for types alone."""
    for statement in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if isinstance(statement, ast.ImportFrom) and statement.module is not None:
            yield from ((statement.module, alias.name) for alias in statement.names)


def _returns(function: Callable[..., object]) -> str:
    annotation = inspect.signature(function).return_annotation
    return "None" if annotation is inspect.Signature.empty else str(annotation)


def _overloads(name: str, function: Callable[..., object], kernels: Iterable[Kernel]) -> str:
    """One overload for all kernels that take the same keywords, and one for names that are only known when the program runs.

    That last one wants a keyword that nobody writes, which only `**arguments` can be thought to hold: a type that takes
    every str would take a misspelt name as well.
    """
    named: dict[str, list[str]] = {}
    for kernel in kernels:
        named.setdefault(_keywords(kernel, returns=name == "call"), []).append(kernel.name)
    result = _returns(function)
    forms = [
        f"@overload\ndef {name}(\n    name: {_literal(names, 4)},\n    /,\n    *,\n"
        f"    stream: object = None,\n    variant: str | None = None,\n    multiprocessors: int | None = None,\n{keywords}) -> {result}: ...\n"
        for keywords, names in named.items()
    ]
    forms.append(
        f"@overload\ndef {name}(\n    name: str,\n    /,\n    *,\n    name_known_at_run_time: object,\n"
        f"    stream: Any = None,\n    variant: Any = None,\n    multiprocessors: Any = None,\n    **arguments: Any,\n) -> {result}: ...\n"
    )
    return "".join(forms)


def _keywords(kernel: Kernel, returns: bool = False) -> str:
    """Of a call that returns what it writes, an output is what exists, a dtype, or True; a workspace that may be left out is so by False; and a
    size that no input tells may be said."""
    lines = [
        f"{argument.name}: {_output(argument) if returns and argument.written else _argument(argument)}"
        for argument in kernel.arguments.values()
        if not (returns and argument.access == "workspace" and not argument.optional)
    ]
    lines += [f"{symbol}: int | None = None" for symbol in sizes(kernel) if returns]
    lines += [f"{name}: {_option(option)}" for name, option in kernel.options.items()]
    return "".join(f"    {line},\n" for line in lines)


def _output(argument: Argument) -> str:
    if argument.access == "workspace":
        return "_Array | Literal[False] | None = None"
    return f"_Array | {_literal(argument.dtypes)} | bool | None = None"


def _argument(argument: Argument) -> str:
    if argument.kind == "array":
        return "_Array | None = None" if argument.optional else "_Array"
    number = "float" if any(dtype.startswith(("f", "bf")) for dtype in argument.dtypes) else "int"
    return f"{number}{'' if argument.default is None else f' = {argument.default}'}"


def _option(option: Option) -> str:
    return f"{_literal(option.values)} = {_quoted(option.default)}"


def _find(kernels: Iterable[Kernel]) -> str:
    """The words that names have in each field, of the kernels that there are."""
    words: dict[str, dict[str, None]] = {}
    archs: dict[str, None] = {}
    for kernel in kernels:
        archs |= dict.fromkeys(kernel.archs)
        for field, word in kernel.fields.items():
            words.setdefault(field, {})[word] = None
    fields: Mapping[str, Iterable[str]] = {"arch": archs, **words}
    lines = "".join(f"    {field}: {_literal(values, 4)} | None = ...,\n" for field, values in fields.items())
    return f'def find(\n    pattern: str = "*",\n    *,\n{lines}) -> list[Kernel]: ...\n'


def _quoted(text: str) -> str:
    return f'"{text}"'


def _literal(words: Iterable[str], indent: int = 0) -> str:
    quoted = [_quoted(word) for word in words]
    line = f"Literal[{', '.join(quoted)}]"
    if indent + len(line) + 24 <= _WIDTH:
        return line
    inner = " " * (indent + 4)
    return "Literal[\n" + "".join(f"{inner}{word},\n" for word in quoted) + " " * indent + "]"


if __name__ == "__main__":
    main()
