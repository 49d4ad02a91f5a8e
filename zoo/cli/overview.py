"""A kernel on one screen: what it takes, what it asks, what has run where, and a call to paste."""

from __future__ import annotations

import re
from pathlib import Path

from zoo.benchmark.arguments import size_symbols
from zoo.cli.contract import form_texts, title
from zoo.cli.example_call import example_call
from zoo.cli.text import columns, count, listed, paragraph, width
from zoo.contract.archs import family_of
from zoo.contract.manifest import Argument, Kernel, Option
from zoo.shipped.evidence import Evidence, summary

_SCREEN = 40  # lines; of what a kernel needs as much is said as fits them


def overview(kernel: Kernel, evidence: Evidence, directory: Path | None = None) -> str:
    """`directory`: of the cubins, where they are not those of the package."""
    rows = [_argument_row(argument) for argument in kernel.arguments.values()]
    rows += [_option_row(name, option) for name, option in kernel.options.items()]
    room = width() - sum(max(len(row[column]) for row in rows) + 2 for column in range(3)) - 2
    rows = [_with_layout(row, kernel.arguments.get(row[0]), room) for row in rows]
    facts = []
    if kernel.promises:
        promises = [f"{'' if kept else 'not '}{name.replace('_', ' ')}" for name, kept in kernel.promises.items()]
        facts.append(_fact("promises", listed(promises)))
    for arch in kernel.archs:
        variants = [variant for variant in kernel.variants if variant.arch == arch]
        facts.append(_fact(family_of(arch), f"{arch}, {count(len(variants), 'cubin')}: {summary(evidence, variants)}"))
    shape = f"--shape {','.join(size_symbols(kernel))}"
    facts.append(_fact("more", f"{shape} (which variant runs), --arguments, --parameters, --variants, --json"))
    head, foot = f"{title(kernel)}\n\n{columns(rows, indent=2)}", "\n".join(facts)
    call = example_call(kernel, width(), directory)
    others = "\n\n".join((head, foot, call)).count("\n") + 1
    needs = [words for _, words in kernel.constraints]
    text = "\n\n".join((head, "\n".join(filter(None, (_needs(needs, _SCREEN - others), foot))), call))
    too_long = text.count("\n") + 1 - _SCREEN
    return text.replace("\n\n", "\n", too_long) if too_long > 0 else text  # what sets its parts apart goes first


def _fact(label: str, words: str) -> str:
    return paragraph(f"{label:<9} {words}", hanging=10)


def _needs(words: list[str], lines: int) -> str:
    """The first of the constraints, as many as so many lines take, and how many more there are."""
    if not words:
        return ""
    for shown in range(len(words), 0, -1):
        more = f"; {len(words) - shown} more, which --arguments prints" if shown < len(words) else ""
        text = _fact("needs", f"{'; '.join(words[:shown])}{more}")
        if text.count("\n") < lines:
            return text
    return _fact("needs", f"{count(len(words), 'rule')} for sizes and strides, which --arguments prints")


def _argument_row(argument: Argument) -> tuple[str, str, str, str]:
    parts = ["its bytes: --arguments"] if argument.access == "workspace" else form_texts(argument, strides=False)
    if argument.optional:
        parts.append("may be left out")
    elif argument.default is not None:
        parts.append(f"default {argument.default:g}" if isinstance(argument.default, float) else f"default {argument.default}")
    return argument.name, argument.access, " ".join(argument.dtypes), "; ".join(parts)


def _with_layout(row: tuple[str, str, str, str], argument: Argument | None, room: int) -> tuple[str, str, str, str]:
    """The row with what the argument's help says first, how the array lies or what it is, where that fits the line."""
    if argument is None or argument.kind != "array" or argument.access == "workspace" or argument.optional:
        return row
    clause = re.split(r"[;:.] |, (?:as|rounded|before|stored|in any order)\b", argument.help + " ")[0].strip()
    text = f"{row[3]}  {clause}"
    return (*row[:3], text) if clause and len(text) <= room else row


def _option_row(name: str, option: Option) -> tuple[str, str, str, str]:
    others = [value for value in option.values if value != option.default]
    return name, "option", option.default, f"or {' or '.join(others)}" if others else ""
