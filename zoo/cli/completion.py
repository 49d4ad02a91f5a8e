"""What the shell completes: names of kernels and archs. Commands and options are completed by click."""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

_MOST = 200  # of names


class KernelName(StringParamType):
    """A name, a part of names or a pattern."""

    def shell_complete(self, context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _completed(_names(context), incomplete)


class ArchName(StringParamType):
    """`sm_90a`, or what people call it."""

    def shell_complete(self, context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from zoo.contract.archs import CHIPS, words_for

        return _completed(words_for(list(CHIPS)), incomplete)


def _names(context: click.Context) -> Iterable[str]:
    """Of the zoo that the command would work on. While a line is typed nothing is refused."""
    from zoo.cli import collection
    from zoo.errors import ZooError

    try:
        context.find_root().obj = context.find_root().params.get("cubins")
        return collection(context.find_root()).manifest.names
    except (ZooError, OSError):
        return ()


def _completed(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Words that begin so, else words that hold what is typed: a word of a name finds it."""
    words = list(words)
    found = [word for word in words if word.startswith(incomplete)] or [word for word in words if incomplete in word]
    return [CompletionItem(word) for word in found[:_MOST]]
