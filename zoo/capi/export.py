"""`zoo export`: a self-contained C package of chosen kernels, their cubins embedded."""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import zoo
from zoo.capi.table import kernel_tables, text
from zoo.contract.manifest import Kernel, Manifest, Variant
from zoo.contract.nearest import a_few
from zoo.errors import ArchitectureError, ArgumentError, UnknownKernelError
from zoo.runtime.library import read_verified

_SOURCES = Path(__file__).parent
_MARK = "zoo_table.c"  # by which an earlier export is known
_EXAMPLE_KERNEL = "quantize.mxfp8.rows"
_WORDS_PER_LINE = 8


@dataclass(frozen=True)
class Exported:
    kernels: tuple[str, ...]
    variants: int
    cubin_bytes: int


def export(
    directory: Path | str, manifest: Manifest, cubins_directory: Path, patterns: Sequence[str], archs: Sequence[str] | None = None
) -> Exported:
    """Writes the C package of the kernels that match one of `patterns`, for `archs` (None: all), to `directory`."""
    directory = Path(directory)
    chosen = _choose(manifest, patterns, archs)
    files = {variant.file: variant for _, variants in chosen for variant in variants}
    cubins = {file: read_verified(cubins_directory, variant) for file, variant in files.items()}
    _make_room(directory)
    names = [kernel.name for kernel, _ in chosen]
    count = sum(len(variants) for _, variants in chosen)
    cubin_sources = [f"cubins/{file.removesuffix('.cubin').replace('/', '_')}.c" for file in cubins]

    for name in ("zoo.h", "zoo.c", "zoo_contract.h", "zoo_table.h"):
        shutil.copyfile(_SOURCES / name, directory / name)
    declarations = "".join(f"extern const uint64_t zoo_cubin_{place}[];\n" for place in range(len(cubins)))
    (directory / "cubins" / "cubins.h").write_text(_fill("cubins.h", {"declarations": declarations}))
    for place, (source, (file, data)) in enumerate(zip(cubin_sources, cubins.items(), strict=True)):
        (directory / source).write_text(_cubin_source(place, file, data))
    (directory / _MARK).write_text(_table(chosen, cubins, files))
    example = "example_quantize.c" if _EXAMPLE_KERNEL in names else "example_load.c"
    shutil.copyfile(_SOURCES / "templates" / example, directory / "example.c")
    values = {
        "version": zoo.__version__,
        "sources": " ".join(cubin_sources),
        "source_lines": "\n    ".join(cubin_sources),
        "kernels": "\n\n".join(_describe(kernel) for kernel, _ in chosen),
        "archs": ", ".join(dict.fromkeys(variant.arch for _, variants in chosen for variant in variants)),
        "manifest": manifest.sha256,
    }
    for name in ("Makefile", "CMakeLists.txt", "README.md"):
        (directory / name).write_text(_fill(name, values))
    return Exported(tuple(names), count, sum(map(len, cubins.values())))


def _choose(manifest: Manifest, patterns: Sequence[str], archs: Sequence[str] | None) -> list[tuple[Kernel, list[Variant]]]:
    for pattern in patterns:
        if not fnmatch.filter(manifest.names, pattern):
            raise UnknownKernelError(f"no kernel matches '{pattern}'; `zoo list` shows them all")
    matching = [name for name in manifest.names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    kernels = [kernel for name in matching if (kernel := manifest.kernel(name)) is not None]
    shipped = list(dict.fromkeys(arch for kernel in kernels for arch in kernel.archs))
    for arch in archs or ():
        if arch not in shipped:
            raise ArchitectureError(f"{a_few(matching)}: no cubin for {arch}; the zoo ships {', '.join(shipped)}")
    chosen = [(kernel, [variant for variant in kernel.variants if archs is None or variant.arch in archs]) for kernel in kernels]
    return [(kernel, variants) for kernel, variants in chosen if variants]


def _make_room(directory: Path) -> None:
    if directory.exists() and any(directory.iterdir()) and not (directory / _MARK).exists():
        raise ArgumentError(f"{directory} is neither empty nor an earlier export; choose another directory")
    (directory / "cubins").mkdir(parents=True, exist_ok=True)
    for stale in (directory / "cubins").glob("*.[ch]"):
        stale.unlink()


def _fill(name: str, values: dict[str, str]) -> str:
    """A template with its @words@ replaced."""
    content = (_SOURCES / "templates" / name).read_text()
    for word, value in values.items():
        content = content.replace(f"@{word}@", value)
    return content


def _cubin_source(place: int, file: str, data: bytes) -> str:
    """The bytes as words, of which a compiler reads a quarter as many."""
    words = [f"{int.from_bytes(data[start : start + 8], 'little'):#x}" for start in range(0, len(data), 8)]
    lines = (",".join(words[start : start + _WORDS_PER_LINE]) for start in range(0, len(words), _WORDS_PER_LINE))
    body = ",\n".join(lines)
    return f'/* {file} */\n#include "cubins.h"\n\nconst uint64_t zoo_cubin_{place}[] __attribute__((aligned(16))) = {{\n{body}}};\n'


def _table(chosen: list[tuple[Kernel, list[Variant]]], cubins: dict[str, bytes], files: dict[str, Variant]) -> str:
    places = {file: place for place, file in enumerate(cubins)}
    definitions, entries, first = [], [], 0
    for index, (kernel, variants) in enumerate(chosen):
        definition, entry = kernel_tables(kernel, variants, index, first, places)
        definitions.append(definition)
        entries.append(entry)
        first += len(variants)
    embedded = [
        f"{{{text(file)}, (const unsigned char *)zoo_cubin_{place}, {len(cubins[file])}, {{{','.join(map(str, bytes.fromhex(files[file].sha256)))}}}}}"
        for file, place in places.items()
    ]
    return _fill(
        "zoo_table.c",
        {
            "definitions": "\n".join(definitions),
            "kernels": ",\n    ".join(entries),
            "kernel_count": str(len(entries)),
            "variant_count": str(first),
            "cubins": ",\n    ".join(embedded),
            "cubin_count": str(len(embedded)),
        },
    )


def _describe(kernel: Kernel) -> str:
    lines = [f"### {kernel.name}", kernel.summary, "", "| argument | dtypes | shape | |", "|---|---|---|---|"]
    for argument in kernel.arguments.values():
        shapes = " or ".join(f"({', '.join(expression.text for expression in form.shape)})" for form in argument.forms) or "a number"
        default = f", {argument.default} if left out" if argument.default is not None else ", optional" if argument.optional else ""
        lines.append(f"| `{argument.name}` | {', '.join(argument.dtypes)} | {shapes} | {argument.access}{default}; {argument.help} |")
    for name, option in kernel.options.items():
        lines.append(f"| `{name}` | | {' or '.join(option.values)} | {option.default} if left out; {option.help} |")
    return "\n".join(lines)
