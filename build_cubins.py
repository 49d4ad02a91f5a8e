"""Builds every cubin and cubins/manifest.json from the tables under src_cu/. The only program that needs nvcc.

pip install '.[build]'
python build_cubins.py                     what changed
python build_cubins.py --check             rebuild all, compare byte for byte with what is there
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from tools.builder import BuildError
from tools.builder.build import Build, Selection
from tools.builder.checkout import OUTPUT, PACKAGES, PINS, SOURCE
from tools.builder.compiler import Compiler
from zoo.cli.system import ended_in_order, refusals_in_words
from zoo.errors import ZooError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--arch", multiple=True, metavar="ARCH", help="Only this arch (sm_90a, sm_100f); may be repeated.")
@click.option("--only", metavar="PATTERN", help="Only kernels, or 'kernel variant', that match: gemm.*, '*_rceil_*'.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count(), help="Compilers at once (default: the cores).")
@click.option("--check", is_flag=True, help="Rebuild everything aside and compare byte for byte; exit 1 where it differs.")
@click.option("--share", type=click.IntRange(1), default=1, metavar="N", help="With --check: what changed, and one in N of the rest.")
@click.option("--ptx", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Write the PTX there instead of building.")
@click.option("--source", type=click.Path(exists=True, file_okay=False, path_type=Path), default=SOURCE, help="The tree of tables.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="Where cubins and manifest.json go.")
def main(
    arch: tuple[str, ...], only: str | None, jobs: int, check: bool, share: int, ptx: Path | None, source: Path, output: Path | None
) -> None:
    """Builds cubins and their manifest from a tree of tables (src_cu/ into cubins/, if not told otherwise)."""
    source = source.resolve()
    if output is None and source != SOURCE:
        raise click.UsageError("--source needs --output: the folder for the cubins of another tree")
    output = (output or OUTPUT).resolve()
    if check and (arch or only or ptx):
        raise click.UsageError("--check compares everything; it goes without --arch, --only and --ptx")
    if share > 1 and not check:
        raise click.UsageError("--share says how much --check compiles; it goes with --check")
    roots = [source] if source == SOURCE else [source, SOURCE]  # other trees may include zoo's own headers
    pins = PINS if output == OUTPUT else None
    try:
        build = Build(Compiler(PACKAGES), roots, output, pins, jobs)
        if check:
            differing = build.check(share)
            for line in differing:
                click.echo(line, err=True)
            if differing:
                raise BuildError(f"{len(differing)} files differ from a fresh build; run build_cubins.py and commit the result")
            click.echo(f"{build.count} variants: byte for byte what a fresh build gives ({build.compiled} cubins compiled)")
        elif ptx:
            click.echo(f"{build.write_ptx(Selection(arch, only), ptx)} files written to {ptx}")
        else:
            click.echo(build.run(Selection(arch, only)))
    except (BuildError, ZooError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    with refusals_in_words(), ended_in_order():
        main()
