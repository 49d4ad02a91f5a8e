"""`zoo export`: a self-contained C package of chosen kernels, their cubins embedded."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import zoo
from zoo.capi.folder import LAST, replace
from zoo.capi.table import kernel_tables, refuse_places, text
from zoo.contract.archs import arch_of
from zoo.contract.manifest import Kernel, Manifest, Variant
from zoo.contract.nearest import a_few
from zoo.errors import ArchitectureError, ManifestError, UnknownKernelError
from zoo.shipped.verified import read_verified

_SOURCES = Path(__file__).parent
_WORD = re.compile(r"@([a-z_]+)@")
_MARKDOWN = re.compile(r"[\\`*\[\]<>|&#~]")
_MARKDOWN_FIRST = re.compile(r"(\d*)([-+=.)])")
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
    chosen = _choose(manifest, patterns, archs)
    files = {variant.file: variant for _, variants in chosen for variant in variants}
    cubins = {file: read_verified(cubins_directory, variant) for file, variant in files.items()}
    names = [kernel.name for kernel, _ in chosen]
    count = sum(len(variants) for _, variants in chosen)
    sources = _sources(cubins)
    example = "example_quantize.c" if _EXAMPLE_KERNEL in names else "example_load.c"
    values = {
        "version": zoo.__version__,
        "sources": " ".join(sources),
        "source_lines": "\n    ".join(sources),
        "kernels": "\n\n".join(_describe(kernel) for kernel, _ in chosen),
        "archs": ", ".join(dict.fromkeys(variant.arch for _, variants in chosen for variant in variants)),
        "manifest": manifest.sha256,
    }
    declarations = "".join(f"extern const uint64_t zoo_cubin_{place}[];\n" for place in range(len(cubins)))
    replace(
        Path(directory),
        {
            **{name: (_SOURCES / name).read_text("utf-8") for name in ("zoo.h", "zoo.c", "zoo_contract.h", "zoo_table.h")},
            "cubins/cubins.h": _fill("cubins.h", {"declarations": declarations}),
            **{source: _cubin_source(place, file, cubins[file]) for place, (source, file) in enumerate(sources.items())},
            LAST: _table(chosen, cubins, files),
            "example.c": (_SOURCES / "templates" / example).read_text("utf-8"),
            **{name: _fill(name, values) for name in ("Makefile", "CMakeLists.txt", "README.md")},
        },
    )
    return Exported(tuple(names), count, sum(map(len, cubins.values())))


def _choose(manifest: Manifest, patterns: Sequence[str], archs: Sequence[str] | None) -> list[tuple[Kernel, list[Variant]]]:
    for pattern in patterns:
        if not fnmatch.filter(manifest.names, pattern):
            raise UnknownKernelError(f"no kernel matches '{pattern}'; `zoo list` shows them all")
    matching = [name for name in manifest.names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    kernels = [kernel for name in matching if (kernel := manifest.kernel(name)) is not None]
    shipped = list(dict.fromkeys(arch for kernel in kernels for arch in kernel.archs))
    archs = None if archs is None else [arch_of(arch) for arch in archs]
    for arch in archs or ():
        if arch not in shipped:
            raise ArchitectureError(f"{a_few(matching)}: no cubin for {arch}; the zoo ships {', '.join(shipped)}")
    each = [(kernel, [variant for variant in kernel.variants if archs is None or variant.arch in archs]) for kernel in kernels]
    chosen = [(kernel, variants) for kernel, variants in each if variants]
    if not chosen:
        raise ArchitectureError(f"{a_few(matching)}: no cubin to export")
    return chosen


def _sources(cubins: Collection[str]) -> dict[str, str]:
    """The C file of each cubin, by its name in the package."""
    sources: dict[str, str] = {}
    for file in cubins:
        source = f"cubins/{file.removesuffix('.cubin').replace('/', '_')}.c"
        if source in sources:
            raise ManifestError(f"the cubins {sources[source]} and {file} would both be {source}; rename one, or export them apart")
        sources[source] = file
    refuse_places("all kernels together", "cubins", len(sources))
    return sources


def _fill(name: str, values: Mapping[str, str]) -> str:
    """A template with its @words@ replaced. What replaces them is not looked into: a text of the manifest may hold such a word."""
    return _WORD.sub(lambda found: values[found[1]], (_SOURCES / "templates" / name).read_text("utf-8"))


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
        refuse_places("all kernels together", "variants", first)
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
    lines = [f"### {kernel.name}", _prose(kernel.summary), "", "| argument | dtypes | shape | |", "|---|---|---|---|"]
    for argument in kernel.arguments.values():
        shapes = " or ".join(f"`({', '.join(expression.text for expression in form.shape)})`" for form in argument.forms) or "a number"
        default = f", {argument.default} if left out" if argument.default is not None else ", optional" if argument.optional else ""
        lines.append(
            f"| `{argument.name}` | {', '.join(argument.dtypes)} | {shapes} | {argument.access}{default}; {_prose(argument.help)} |"
        )
    for name, option in kernel.options.items():
        lines.append(f"| `{name}` | | {' or '.join(option.values)} | {option.default} if left out; {_prose(option.help)} |")
    return "\n".join(lines)


def _prose(words: str) -> str:
    """A text of the manifest as Markdown that shows it, and nothing in it as a table, a link or HTML."""
    escaped = _MARKDOWN.sub(r"\\\g<0>", words.strip())
    return _MARKDOWN_FIRST.sub(r"\1\\\2", escaped, count=1) if _MARKDOWN_FIRST.match(escaped) else escaped
