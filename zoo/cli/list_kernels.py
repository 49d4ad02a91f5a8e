"""`zoo list`: what the zoo holds, and on which chips what has been seen to run."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from zoo.cli import collection
from zoo.cli.completion import ArchName, FieldWord, KernelName
from zoo.contract.archs import arch_of, family_of
from zoo.contract.manifest import Kernel, Variant
from zoo.shipped.evidence import Evidence, evidence_of

_SHORTEST = 24  # columns for what a kernel does; where there is less room the name stands alone
_MOST_LINES = 30  # of kernels by name; more are folded
_OF_ONE_LINE = ("dequantize", "norm", "requantize")
_SIGNS = {  # of what has been seen of the cubins of an arch: the sign, its ASCII twin, its colour, what it means
    "seen": ("\u25cf", "#", "green", "passed on a GPU"),
    "partly": ("\u25d0", "+", "yellow", "partly"),
    "emulated": ("\u25cb", "o", "yellow", "emulated only"),
    "unseen": ("?", "?", "yellow", "never run"),
    "failed": ("!", "!", "red", "FAILED"),
    "none": ("-", "-", None, "no cubin"),
}
_RAN = dict.fromkeys(("seen", "partly", "emulated"), "ran")


@click.command("list")
@click.argument("kernels", default="*", type=KernelName())
@click.option("--op", type=FieldWord("op"), help="Only this operation: quantize, gemm.")
@click.option("--formats", type=FieldWord("formats"), help="Only these formats: mxfp8, fp8b128, ...")
@click.option(
    "--arch", metavar="ARCH", type=ArchName(), default="*", help="Only kernels with cubins for it: hopper, b200, sm_90a, 'sm_10*'."
)
@click.option("--all", "unfolded", is_flag=True, help="A line for each kernel, however many there are.")
@click.option("--evidence", "as_evidence", is_flag=True, help="What has been seen of the cubins, arch by arch.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the evidence.")
@click.pass_context
def command(
    context: click.Context, kernels: str, op: str | None, formats: str | None, arch: str, unfolded: bool, as_evidence: bool, as_json: bool
) -> None:
    """List kernels, with a column for each arch, and a total.

    KERNELS is a name, a part of names such as swiglu, or a pattern such as 'quantize.*.rows'. Many kernels are folded:
    those that differ in their formats and groupings share a line.
    """
    from zoo.cli.selection import refuse_unknown, refuse_unknown_arch, selected

    zoo = collection(context)
    every = zoo.find()
    fields = {field: value for field, value in (("op", op), ("formats", formats)) if value is not None}
    for field, value in fields.items():
        refuse_unknown(f"--{field}", value, (kernel.fields[field] for kernel in every if field in kernel.fields))
    refuse_unknown_arch(arch, every)
    arch, meant = arch_of(arch), selected(zoo, kernels)
    chosen = [kernel for kernel in meant if fnmatch.filter(kernel.archs, arch) and fields.items() <= kernel.fields.items()]
    if not chosen:
        raise click.ClickException(f"none of the {len(meant)} kernels that '{kernels}' means has all that the options ask for")
    evidence = evidence_of(zoo.directory)
    if as_json:
        click.echo(json.dumps([_as_data(kernel, evidence, arch) for kernel in chosen], indent=1))
    elif as_evidence:
        click.echo(f"{_folded(chosen, evidence, arch)}\n\n{_total(chosen, arch)}")
    else:
        click.echo(f"{listing(chosen, evidence, unfolded, arch)}\n{_total(chosen, arch)}")


def listing(kernels: Sequence[Kernel], evidence: Evidence, unfolded: bool = False, pattern: str = "*") -> str:
    """A line for each kernel, or for each fold of them where there are many; what the signs mean is the last line."""
    from zoo.cli.in_short import in_short, in_short_together
    from zoo.cli.text import can_print, paragraph, styled, table

    archs = [arch for arch in dict.fromkeys(arch for kernel in kernels for arch in kernel.archs) if fnmatch.fnmatchcase(arch, pattern)]
    archs.sort(key=lambda arch: int(arch[3:-1]))
    by_line = [[kernel] for kernel in kernels]
    if not unfolded and len(kernels) > _MOST_LINES:
        by_line = _folds(kernels, evidence, archs)
    rows, marks = [], dict[str, None]()
    for members in by_line:
        name = members[0].name if len(members) == 1 else _name_of_fold(members)
        states = [_state(evidence, members, arch) for arch in archs]
        marks |= dict.fromkeys(states)
        shown = in_short(members[0]) if len(members) == 1 else in_short_together(members)
        rows.append((name, *(_sign(state) for state in states), shown))
    header, rows = _that_fit(("kernels", *map(family_of, archs), "what it does"), rows)
    text = table(header, rows)
    legend = [f"{_sign(state)} {_SIGNS[state][3]}" for state in _SIGNS if state in marks]
    legend += [f"{head} {family_of(arch)}" for head, arch in zip(header[1:], archs, strict=False) if head != family_of(arch)]
    legend += ["* any word (--all: every name)"] if any(len(members) > 1 for members in by_line) else []
    text += "\n\n" + paragraph("   ".join(legend))
    for state in marks:
        sign, _, colour, _ = _SIGNS[state]
        if colour and can_print(sign) and not sign.isascii():
            text = text.replace(sign, styled(sign, fg=colour))
    return text


def _that_fit(header: Sequence[str], rows: list[tuple[str, ...]]) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """The columns for which there is room: archs by their initials, or no words, where the terminal is narrow."""
    from zoo.cli.text import width

    name = max(len(row[0]) for row in rows)
    short = (header[0], *(word[0] for word in header[1:-1]), header[-1])
    for heads in (header, short):
        if name + sum(len(head) + 2 for head in heads[1:-1]) + 2 + _SHORTEST <= width():
            return heads, rows
    heads = next((one for one in (header, short) if name + sum(len(head) + 2 for head in one[1:-1]) <= width()), short)
    return heads[:-1], [row[:-1] for row in rows]


def _folds(kernels: Sequence[Kernel], evidence: Evidence, archs: Sequence[str]) -> list[list[Kernel]]:
    """Kernels whose names are folded to the same, with cubins for the same archs. Kernels that failed or never ran stand apart."""
    found: dict[tuple[object, ...], list[Kernel]] = {}
    for kernel in kernels:
        states = tuple(_RAN.get(state, state) for state in (_state(evidence, [kernel], arch) for arch in archs))
        found.setdefault((_folded_name(kernel), states), []).append(kernel)
    names = list(dict.fromkeys(name for name, _ in found))
    return [members for (_, members) in sorted(found.items(), key=lambda one: names.index(one[0][0]))]


def _name_of_fold(members: Sequence[Kernel]) -> str:
    """A pattern that means them all, and perhaps others that begin so."""
    name = _folded_name(members[0])
    if all(kernel.name.endswith("stored") for kernel in members):
        return f"{name}{'_' if name.count('.') > 2 else '.'}stored"
    alike = all(kernel.name.count(".") == name.count(".") for kernel in members)
    return name + ("" if alike or name.endswith("*") else "*")


def _folded_name(kernel: Kernel) -> str:
    """`gemm.*.*.swiglu`: stars for formats and grouping. Weights packed or stored, results in mxfp8 or nvfp4, gradients beside what they
    are of, and all of an operation that few kernels have share a line."""
    op, *words = kernel.name.split(".")
    fields = kernel.fields
    if op in _OF_ONE_LINE:
        return f"{op}.*"
    if op == "experts":
        return f"{op}.{words[0]}"
    for field in ("formats", "grouping"):
        if fields.get(field) in words:  # the first: an epilogue may be called as a format
            words[words.index(fields[field])] = "*"
    if op != "gemm" and "grouping" in fields:  # which others of the line lack
        words.pop()
    if op == "gemm" and len(words) > 2:
        extra = words[2].removesuffix("stored").removesuffix("_")
        words[2:] = [f"{extra.rpartition('_')[0]}_*".lstrip("_") if extra.endswith(("mxfp8", "nvfp4")) else extra] if extra else []
    return ".".join((op, *words))


def _state(evidence: Evidence, kernels: Iterable[Kernel], arch: str) -> str:
    """What has been seen of all cubins."""
    records = [
        evidence.of(variant) or (evidence.own.of(variant) if evidence.own is not None else {})
        for kernel in kernels
        for variant in kernel.variants
        if variant.arch == arch
    ]
    if not records:
        return "none"
    if any("error" in seen and seen["error"] is not None for record in records for seen in record.values()):
        return "failed"
    if all("gpu" in record for record in records):
        return "seen"
    if not all("emulator" in record or "gpu" in record for record in records):
        return "unseen"
    return "partly" if any("gpu" in record for record in records) else "emulated"


def _sign(state: str) -> str:
    from zoo.cli.text import can_print

    sign, twin, *_ = _SIGNS[state]
    return sign if can_print(sign) else twin


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


def _total(kernels: Sequence[Kernel], pattern: str) -> str:
    """How much that is, and where to go on."""
    from zoo.cli.text import count, listed, paragraph

    by_arch: dict[str, dict[str, int]] = {}
    for kernel in kernels:
        for arch, variants in _archs(kernel, pattern):
            by_arch.setdefault(arch, {}).update({variant.file: variant.bytes for variant in variants})
    each = listed([f"{len(files)} for {family_of(arch)} ({arch})" for arch, files in by_arch.items()])
    cubins = {file: size for files in by_arch.values() for file, size in files.items()}
    text = f"{count(len(kernels), 'kernel')}, {count(len(cubins), 'cubin')}, {sum(cubins.values()) / 1e6:.1f} MB: {each}"
    return f"{paragraph(text)}\n{paragraph('`zoo show NAME` says how to call a kernel, `zoo list --evidence` what has run.')}"


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
