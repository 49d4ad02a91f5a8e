"""`zoo show`: a kernel on one screen, with a call to paste; its whole contract where that is asked for."""

from __future__ import annotations

import json

import click

from zoo.cli import collection
from zoo.cli.completion import KernelName
from zoo.cli.shape import typed_sizes

_MOST = 5  # kernels; more are listed
_GROUPS = 64


def _shape(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> list[int] | None:
    if len(texts) > 1:
        raise click.BadParameter("one shape at a time: give --shape once")
    return typed_sizes(texts[0]) if texts else None


@click.command("show")
@click.argument("kernels", type=KernelName())
@click.option("--arguments", is_flag=True, help="What each argument and option means, shapes, strides, constraints.")
@click.option("--parameters", is_flag=True, help="How a launch follows: grid, cluster, the parameter block.")
@click.option("--variants", is_flag=True, help="The tiles of each arch, their registers, what has run.")
@click.option("--shape", metavar="M,N,K", multiple=True, callback=_shape, help="Which variant a call of these sizes runs, on each arch.")
@click.option("--groups", type=click.IntRange(1), help="With --shape, for kernels with offsets: how many groups (default: 64).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: all of it.")
@click.pass_context
def command(
    context: click.Context,
    kernels: str,
    arguments: bool,
    parameters: bool,
    variants: bool,
    shape: list[int] | None,
    groups: int | None,
    as_json: bool,
) -> None:
    """Show a kernel on one screen, with a call to paste.

    The call quantises random numbers and runs in the emulator; a comment says what to change for a GPU. KERNELS is a name, a
    part of names or a pattern: up to five kernels are shown, more are listed. With --json a name gives one object, anything
    else a list of objects.
    """
    from zoo.benchmark.arguments import named_sizes, takes_groups
    from zoo.benchmark.groups import Groups
    from zoo.cli import contract
    from zoo.cli.chosen_variant import chosen_variants
    from zoo.cli.list_kernels import listing
    from zoo.cli.overview import overview
    from zoo.cli.selection import selected
    from zoo.cli.text import paragraph
    from zoo.shipped.evidence import evidence_of

    if groups is not None and shape is None:
        raise click.UsageError("--groups says how the rows of --shape are grouped: give --shape, too")
    zoo = collection(context)
    evidence = evidence_of(zoo.directory)
    shown = selected(zoo, kernels)
    if as_json:
        data = [contract.as_data(kernel, evidence) for kernel in shown]
        click.echo(json.dumps(data[0] if kernels == shown[0].name else data, indent=1))
        return
    if len(shown) > _MOST:
        words = f"'{kernels}' means {len(shown)} kernels, and up to {_MOST} are shown: `zoo show NAME` shows a kernel"
        click.echo(f"{listing(shown, evidence)}\n{paragraph(words)}")
        return
    if groups is not None and not any(takes_groups(kernel) for kernel in shown):
        raise click.UsageError(f"{shown[0].name} has no offsets: leave out --groups")
    texts, taken = [], True
    for kernel in shown:
        sections = []
        if shape is not None:
            text, taken_here = chosen_variants(kernel, named_sizes(kernel, shape), Groups(groups or _GROUPS))
            sections, taken = [text], taken and taken_here
        sections += [contract.arguments_text(kernel)] if arguments else []
        sections += [contract.parameters_text(kernel)] if parameters else []
        sections += [contract.variants_text(kernel, evidence), contract.origin(kernel)] if variants else []
        texts.append("\n\n".join((contract.title(kernel), *sections)) if sections else overview(kernel, evidence, context.obj))
    click.echo("\n\n\n".join(texts))
    if not taken:
        context.exit(1)
