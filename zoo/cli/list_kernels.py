"""`zoo list`: what the zoo holds, a line for each kernel, and what has run where."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from zoo.cli import collection
from zoo.contract.manifest import Kernel, Variant
from zoo.shipped.evidence import Evidence, evidence_of

_SHORTEST_SUMMARY = 16  # columns; where there is less room the name stands alone


@click.command("list")
@click.argument("kernels", default="*")
@click.option("--op", help="Only this operation: quantize, gemm.")
@click.option("--formats", help="Only these formats: mxfp8, fp8b128, ...")
@click.option("--arch", metavar="PATTERN", default="*", help="Only kernels with cubins for these archs, such as 'sm_10*'.")
@click.option("--evidence", "as_evidence", is_flag=True, help="What has been seen of the cubins, arch by arch.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the evidence.")
@click.pass_context
def command(context: click.Context, kernels: str, op: str | None, formats: str | None, arch: str, as_evidence: bool, as_json: bool) -> None:
    """List kernels: a line each, and a total.

    KERNELS is a name, a part of names such as swiglu, or a pattern such as 'quantize.*.rows'. With --evidence, kernels
    that differ in their formats only share a line.
    """
    from zoo.cli.selection import refuse_unknown, selected

    zoo = collection(context)
    every = zoo.find()
    fields = {field: value for field, value in (("op", op), ("formats", formats)) if value is not None}
    for field, value in fields.items():
        refuse_unknown(f"--{field}", value, (kernel.fields[field] for kernel in every if field in kernel.fields))
    refuse_unknown("--arch", arch, (one for kernel in every for one in kernel.archs))
    meant = selected(zoo, kernels)
    chosen = [kernel for kernel in meant if fnmatch.filter(kernel.archs, arch) and fields.items() <= kernel.fields.items()]
    if not chosen:
        raise click.ClickException(f"none of the {len(meant)} kernels that '{kernels}' means has all that the options ask for")
    evidence = evidence_of(zoo.directory)
    if as_json:
        click.echo(json.dumps([_as_data(kernel, evidence, arch) for kernel in chosen], indent=1))
    elif as_evidence:
        click.echo(_folded(chosen, evidence, arch))
    else:
        click.echo("\n".join(_line(kernel, _name_width(chosen)) for kernel in chosen))
        click.echo("\n" + _total(chosen, evidence, arch))


def choices(kernel: Kernel) -> dict[str, list[str]]:
    """What a caller may choose: the arguments with several dtypes, and the options."""
    found = {a.name: list(a.dtypes) for a in kernel.arguments.values() if len(a.dtypes) > 1}
    return found | {name: list(option.values) for name, option in kernel.options.items()}


def families(kernels: Iterable[Kernel]) -> dict[str, list[Kernel]]:
    """Kernels by their names with `*` in place of the formats, where several differ in nothing else."""
    found: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        words = ["*" if word == kernel.fields.get("formats") else word for word in kernel.name.split(".")]
        found.setdefault(".".join(words), []).append(kernel)
    return {members[0].name if len(members) == 1 else name: members for name, members in found.items()}


def _name_width(kernels: Iterable[Kernel]) -> int:
    """Of the column of names: as the longest name, up to half the terminal. Longer names push their summary to the right."""
    from zoo.cli.text import terminal_width

    return min(max(len(kernel.name) for kernel in kernels), terminal_width() // 2)


def _line(kernel: Kernel, name_width: int) -> str:
    from zoo.cli.text import cut, terminal_width

    name = kernel.name.ljust(name_width) + "  "
    room = terminal_width() - len(name)
    return (name + (cut(kernel.summary, room) if room >= _SHORTEST_SUMMARY else "")).rstrip()


def _total(kernels: Sequence[Kernel], evidence: Evidence, pattern: str) -> str:
    """How much that is, what of each arch has been seen to run, and where to go on."""
    from zoo.cli.text import columns, count, paragraph
    from zoo.shipped.evidence import summary

    by_arch: dict[str, dict[str, Variant]] = {}
    for kernel in kernels:
        for arch, variants in _archs(kernel, pattern):
            by_arch.setdefault(arch, {}).update({variant.file: variant for variant in variants})
    cubins = {file: variant.bytes for files in by_arch.values() for file, variant in files.items()}
    rows = [(f"{arch}:", f"{count(len(files), 'cubin')}, {summary(evidence, files.values())}") for arch, files in by_arch.items()]
    return "\n".join(
        (
            f"{count(len(kernels), 'kernel')}, {count(len(cubins), 'cubin')}, {sum(cubins.values()) / 1e6:.1f} MB",
            columns(rows),
            paragraph("`zoo show NAME` says how to call one, `zoo list --evidence` what has run."),
        )
    )


def _folded(kernels: Iterable[Kernel], evidence: Evidence, pattern: str) -> str:
    """A line for each family and its formats, and one for each arch."""
    from zoo.cli.text import columns, count, paragraph
    from zoo.shipped.evidence import summary

    lines = []
    for name, members in families(kernels).items():
        formats = f": {', '.join(kernel.fields['formats'] for kernel in members)}" if len(members) > 1 else ""
        lines.append(paragraph(name + formats, hanging=2))
        rows = []
        for arch in dict.fromkeys(arch for kernel in members for arch, _ in _archs(kernel, pattern)):
            files = {variant.file: variant for kernel in members for variant in kernel.variants if variant.arch == arch}
            rows.append((arch, count(len(files), "cubin"), summary(evidence, files.values())))
        lines.append(columns(rows, indent=2))
    return "\n".join(lines)


def _archs(kernel: Kernel, pattern: str) -> Iterator[tuple[str, list[Variant]]]:
    for arch in fnmatch.filter(kernel.archs, pattern):
        yield arch, [variant for variant in kernel.variants if variant.arch == arch]


def _as_data(kernel: Kernel, evidence: Evidence, pattern: str) -> dict[str, Any]:
    from dataclasses import asdict

    from zoo.shipped.evidence import seen, summary

    archs = {
        arch: {"variants": len(variants), "evidence": {**asdict(seen(evidence, variants)), "summary": summary(evidence, variants)}}
        for arch, variants in _archs(kernel, pattern)
    }
    return {"name": kernel.name, "summary": kernel.summary, "choices": choices(kernel), "archs": archs}
