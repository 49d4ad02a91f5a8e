"""`zoo show`: one kernel's whole contract."""

from __future__ import annotations

import json

import click

from zoo.cli import collection


@click.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(context: click.Context, name: str, as_json: bool):
    """Show a kernel: arguments, rules, launch, variants."""
    from zoo.cli.contract import as_data, as_text
    from zoo.shipped.evidence import Evidence

    zoo = collection(context)
    kernel, evidence = zoo.kernel(name), Evidence(zoo.directory)
    click.echo(json.dumps(as_data(kernel, evidence), indent=1) if as_json else as_text(kernel, evidence))
