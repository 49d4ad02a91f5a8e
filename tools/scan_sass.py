"""What is in the machine code of the cubins of a folder, as cubins/sass.json holds it of the shipped ones.

python tools/scan_sass.py DIRECTORY ['gemm_mxfp8*']
"""

from __future__ import annotations

import fnmatch
import json
import os
import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.builder import BuildError, sass
from zoo.shipped import ptx


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("pattern", default="*")
def main(folder: Path, pattern: str) -> None:
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.glob("*/*.cubin"))}
    cubins = {file: path.read_bytes() for file, path in files.items() if fnmatch.fnmatchcase(path.stem, pattern)}
    texts = ptx.read(folder / ptx.FILE)
    try:
        said = sass.report(cubins, {file: texts[ptx.name_of(file)].decode() for file in cubins}, {}, os.cpu_count() or 1)
    except BuildError as error:
        raise click.ClickException(str(error)) from None
    for file, entry in json.loads(said)["cubins"].items():
        click.echo(f"{file} {len(cubins[file])} bytes: {json.dumps({key: value for key, value in entry.items() if key != 'sha256'})}")
    for problem in sass.refusals(said):
        click.echo(f"refused: {problem}")


if __name__ == "__main__":
    main()
