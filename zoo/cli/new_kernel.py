"""`zoo new-kernel`: the source, table and check of a kernel that builds and is right, to be edited."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

_TEMPLATES = Path(__file__).parent / "new_kernel_files"
_WORD = re.compile("[a-z][a-z0-9_]*")


def _split(context: click.Context, parameter: click.Parameter, name: str) -> tuple[str, str]:
    words = name.split(".")
    if len(words) != 2 or not all(map(_WORD.fullmatch, words)) or len(name) > 100:
        raise click.BadParameter(
            "a new kernel has two words, what it does and its format, such as scale_rows.bf16; "
            "a word has small letters, digits and _, and begins with a letter"
        )
    from zoo.contract.names import FIELDS, words_of

    known = {field: words_of(field) for field in FIELDS}
    op, formats = words
    if any(op in known[field] for field in FIELDS):
        raise click.BadParameter(f"'{op}' is a word of zoo's own names; choose another first word")
    if formats not in known["formats"] and (op == formats or any(formats in known[field] for field in FIELDS)):
        raise click.BadParameter(f"'{formats}' is no format but another word of names; choose another second word")
    return op, formats


@click.command("new-kernel")
@click.argument("name", callback=_split)
@click.option(
    "--into", type=click.Path(file_okay=False, path_type=Path), default="my_kernels", show_default=True, help="The tree of tables."
)
@click.pass_context
def command(context: click.Context, name: tuple[str, str], into: Path) -> None:
    """Write a kernel that builds and passes its check, to be edited.

    NAME is what the kernel does and its format, such as scale_rows.bf16. Written are the table, its words, the CUDA source and a program that
    checks the kernel in the emulator. The kernel multiplies rows of bf16 by factors, whatever its name. Building needs a checkout of zoo; docs/adding_a_kernel.md explains each file.
    """
    op, formats = name
    values = {"name": f"{op}.{formats}", "op": op}
    files = {
        into / op / "tables" / f"{op}.toml": _filled("table.toml", values),
        into / op / "kernels" / f"{op}.cu": _filled("kernel.cu", values),
        into / op / "check.py": _filled("check.py", values),
    }
    there = next((path for path in files if path.exists()), None)
    if there is not None:
        raise click.ClickException(
            f"{there} is there already: new-kernel overwrites no file, and names files by the first word of a kernel; choose another first word"
        )
    files[into / "names.toml"] = _names(into / "names.toml", op, formats)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        click.echo(f"wrote {path}")
    click.echo(
        f"\nIn a checkout of zoo, build and check it:\n"
        f"  python build_cubins.py --source {into} --output my_cubins\n"
        f"  python {into / op / 'check.py'}    # silent if all is right\n"
        f"  zoo --cubins my_cubins show {op}.{formats}"
    )


def _filled(template: str, values: Mapping[str, str]) -> str:
    text = (_TEMPLATES / f"{template}.txt").read_text("utf-8")
    return re.sub("@([a-z]+)@", lambda found: values[found[1]], text)


def _names(path: Path, op: str, formats: str) -> str:
    """The words that names of this tree may have, beside zoo's: those that the file has, and these."""
    import tomllib

    from zoo.contract.names import words_of

    try:
        text = path.read_text("utf-8") if path.exists() else ""
        words: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path}: not TOML: {error}") from None
    for field, word in (("op", op), ("formats", formats)):
        if word not in words_of(field) and word not in words.get(field, []):
            words[field] = [*words.get(field, []), word]
            text = _with_word(text, field, word)
    try:
        kept = tomllib.loads(text) == words
    except tomllib.TOMLDecodeError:
        kept = False
    if not kept:
        lines = "; ".join(f"{field} = {json.dumps(words[field])}" for field in ("op", "formats") if field in words)
        raise click.ClickException(f"{path}: new-kernel cannot add its words here; write {lines} into it first")
    return text


def _with_word(text: str, field: str, word: str) -> str:
    """The text of a names.toml with one word more at the end of a field's list. All else stays, comments too."""
    found = re.search(rf"^{field}[ \t]*=[ \t]*\[([^\]]*)\]", text, re.MULTILINE)
    if found is None:
        return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{field} = {json.dumps([word])}\n"
    listed = found[1].rstrip()
    separator = " " if listed.endswith(",") else ", " if listed else ""
    end = found.start(1) + len(listed)
    return f"{text[:end]}{separator}{json.dumps(word)}{text[end:]}"
