"""`zoo export`: a C package of the chosen kernels."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from zoo.cli import collection
from zoo.cli.completion import ArchName, KernelName


@click.command("export")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--select", "written", metavar="KERNELS", type=KernelName(), multiple=True, default=("*",),
    help="A name, a part of names such as swiglu, or a pattern such as 'quantize.*'; may be repeated.",
)  # fmt: skip
@click.option("--arch", "archs", type=ArchName(), multiple=True, help="Archs, such as hopper or sm_90a; may be repeated. Left out: all.")
@click.pass_context
def command(context: click.Context, directory: Path, written: tuple[str, ...], archs: tuple[str, ...]) -> None:
    """Write a self-contained C package to DIRECTORY.

    Header, source, tables, the chosen cubins embedded, CMakeLists.txt, Makefile and an example: C11, needs no CUDA
    headers, opens the driver itself.
    """
    from zoo.capi.export import export
    from zoo.cli.selection import refuse_unknown_arch, selected
    from zoo.cli.text import count, paragraph

    zoo = collection(context)
    chosen = {kernel.name: kernel for one in written for kernel in selected(zoo, one)}
    for arch in archs:
        refuse_unknown_arch(arch, chosen.values())
    done = export(directory, zoo.manifest, zoo.directory, list(chosen), archs or None)
    amounts = f"{count(len(done.kernels), 'kernel')}, {count(done.variants, 'variant')}, {count(done.cubin_bytes, 'byte')} of cubins"
    click.echo(paragraph(f"wrote {directory}: {amounts}", hanging=2))
    click.echo(paragraph(f"kernels: {', '.join(done.kernels)}", hanging=2))
    click.echo(f"build it with: make -C {shlex.quote(str(directory))}")
