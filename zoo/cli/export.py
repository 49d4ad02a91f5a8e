"""`zoo export`: a C package of the chosen kernels."""

from __future__ import annotations

from pathlib import Path

import click

from zoo.cli import collection


@click.command("export")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--select", "patterns", metavar="PATTERN", multiple=True, default=("*",), help="Kernels by name; may be repeated.")
@click.option("--arch", "archs", multiple=True, help="Archs, such as sm_90a; may be repeated. Left out: all.")
@click.pass_context
def command(context: click.Context, directory: Path, patterns: tuple[str, ...], archs: tuple[str, ...]):
    """Write a self-contained C package to DIRECTORY.

    Header, source, tables, the chosen cubins embedded, CMakeLists.txt, Makefile and an example: C11, needs no CUDA
    headers, opens the driver itself.
    """
    from zoo.capi.export import export

    zoo = collection(context)
    written = export(directory, zoo.manifest, zoo.directory, patterns, archs or None)
    click.echo(f"wrote {directory}: {', '.join(written.kernels)}; {written.variants} variants, {written.cubin_bytes:,} bytes of cubins")
    click.echo(f"build it with: make -C {directory}")
