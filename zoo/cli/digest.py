"""`zoo digest`: the number that stands for a whole zoo."""

from __future__ import annotations

import click

from zoo.cli import collection


@click.command("digest")
@click.pass_context
def command(context: click.Context) -> None:
    """Print the sha256 that a zoo can be held to.

    It is the manifest's, which holds the sha256 of every cubin and of the PTX, and all that says how kernels are called: two
    zoos of one digest run the same code. Evidence is not covered.

    Keep it in a place that is closed to everybody who may write the cubins, and give it back: `zoo verify --digest SHA256`,
    or in Python zoo.Zoo(directory, digest=SHA256).
    """
    click.echo(collection(context).manifest.sha256)
