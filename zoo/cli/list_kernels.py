"""`zoo list`: what the zoo holds and what has been seen of it."""

from __future__ import annotations

import fnmatch
import json

import click

from zoo.cli import collection


@click.command("list")
@click.argument("pattern", default="*")
@click.option("--op", help="Only this operation: quantize, gemm.")
@click.option("--formats", help="Only these formats: mxfp8, fp8b128, ...")
@click.option("--arch", metavar="PATTERN", default="*", help="Only kernels with cubins for these archs, such as 'sm_10*'.")
@click.option("--long", is_flag=True, help="Each kernel by itself, with what a caller may choose.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(context: click.Context, pattern: str, op: str | None, formats: str | None, arch: str, long: bool, as_json: bool):
    """List the kernels, their archs and their evidence.

    PATTERN selects names, such as 'quantize.*'. Kernels that differ in their formats only share a line, unless there is one.
    """
    from zoo.shipped.evidence import Evidence

    zoo = collection(context)
    fields = {field: value for field, value in (("op", op), ("formats", formats)) if value is not None}
    kernels = [kernel for kernel in zoo.find(pattern, **fields) if fnmatch.filter(kernel.archs, arch)]
    if not kernels:
        raise click.ClickException(f"no kernel matches; the zoo holds {', '.join(zoo.manifest.names)}")
    evidence = Evidence(zoo.directory)
    if as_json:
        click.echo(json.dumps([_as_data(kernel, evidence, arch) for kernel in kernels], indent=1))
    elif long or len(kernels) == 1:
        click.echo("\n\n".join(_as_text(kernel, evidence, arch) for kernel in kernels))
    else:
        click.echo(_folded(kernels, evidence, arch))


def choices(kernel) -> dict[str, list[str]]:
    """What a caller may choose: the arguments with several dtypes, and the options."""
    found = {a.name: list(a.dtypes) for a in kernel.arguments.values() if len(a.dtypes) > 1}
    return found | {name: list(option.values) for name, option in kernel.options.items()}


def families(kernels) -> dict[str, list]:
    """Kernels by their names with `*` in place of the formats, where several differ in nothing else."""
    found: dict[str, list] = {}
    for kernel in kernels:
        words = ["*" if word == kernel.fields.get("formats") else word for word in kernel.name.split(".")]
        found.setdefault(".".join(words), []).append(kernel)
    return {members[0].name if len(members) == 1 else name: members for name, members in found.items()}


def _folded(kernels, evidence, pattern: str) -> str:
    """A line for each family and its formats, and one for each arch."""
    from zoo.cli.text import paragraph, table
    from zoo.shipped.evidence import summary

    lines = []
    for name, members in families(kernels).items():
        formats = f": {', '.join(kernel.fields['formats'] for kernel in members)}" if len(members) > 1 else ""
        lines.append(paragraph(name + formats, hanging=2))
        rows = []
        for arch in dict.fromkeys(arch for kernel in members for arch, _ in _archs(kernel, pattern)):
            variants = [variant for kernel in members for variant in kernel.variants if variant.arch == arch]
            rows.append((arch, f"{len(variants)} cubins", summary(evidence, variants)))
        lines.append(table(("arch", "cubins", "evidence"), rows, indent=2).partition("\n")[2])
    return "\n".join(lines)


def _archs(kernel, pattern: str):
    for arch in fnmatch.filter(kernel.archs, pattern):
        yield arch, [variant for variant in kernel.variants if variant.arch == arch]


def _as_data(kernel, evidence, pattern: str) -> dict:
    from dataclasses import asdict

    from zoo.shipped.evidence import seen, summary

    archs = {
        arch: {"variants": len(variants), "evidence": {**asdict(seen(evidence, variants)), "summary": summary(evidence, variants)}}
        for arch, variants in _archs(kernel, pattern)
    }
    return {"name": kernel.name, "summary": kernel.summary, "choices": choices(kernel), "archs": archs}


def _as_text(kernel, evidence, pattern: str) -> str:
    from zoo.cli.text import paragraph, table
    from zoo.shipped.evidence import summary

    lines = [kernel.name, paragraph(kernel.summary, indent=2)]
    offered = ", ".join(f"{name} {'|'.join(values)}" for name, values in choices(kernel).items())
    if offered:
        lines.append(paragraph(offered, indent=2))
    rows = [(arch, len(variants), summary(evidence, variants)) for arch, variants in _archs(kernel, pattern)]
    lines.append(table(("arch", "cubins", "evidence"), rows, indent=2))
    return "\n".join(lines)
