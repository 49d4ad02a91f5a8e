"""`zoo show`: a kernel on one screen, with a call to paste; its whole contract where that is asked for."""

from __future__ import annotations

import json

import click

from zoo.cli import collection


@click.command("show")
@click.argument("kernels")
@click.option("--arguments", is_flag=True, help="What each argument and option means, shapes, strides, constraints.")
@click.option("--parameters", is_flag=True, help="How a launch follows: grid, cluster, the parameter block.")
@click.option("--variants", is_flag=True, help="The tiles of each arch, their registers, what has run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: all of it.")
@click.pass_context
def command(context: click.Context, kernels: str, arguments: bool, parameters: bool, variants: bool, as_json: bool) -> None:
    """Show a kernel on one screen, with a call to paste.

    The call runs as it is, in the emulator; a comment says what to change for a GPU. KERNELS is a name; a part of names or a pattern shows each kernel it means. With --json a name gives one object, anything
    else a list of them.
    """
    from zoo.cli import contract
    from zoo.cli.overview import overview
    from zoo.cli.selection import selected
    from zoo.shipped.evidence import evidence_of

    zoo = collection(context)
    evidence = evidence_of(zoo.directory)
    shown = selected(zoo, kernels)
    if as_json:
        data = [contract.as_data(kernel, evidence) for kernel in shown]
        click.echo(json.dumps(data[0] if kernels == shown[0].name else data, indent=1))
        return
    texts = []
    for kernel in shown:
        sections = [contract.arguments_text(kernel)] if arguments else []
        sections += [contract.parameters_text(kernel)] if parameters else []
        sections += [contract.variants_text(kernel, evidence), contract.origin(kernel)] if variants else []
        texts.append("\n\n".join((contract.title(kernel), *sections)) if sections else overview(kernel, evidence, context.obj))
    click.echo("\n\n\n".join(texts))
