"""What the shell completes: kernels, archs, fields of names, variants and settings. Commands and options are completed by click."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

if TYPE_CHECKING:
    from zoo.contract.manifest import Kernel

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


class FieldWord(StringParamType):
    """A word that names of kernels have in a field, such as `op`."""

    def __init__(self, field: str) -> None:
        self._field = field

    def shell_complete(self, context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from zoo.contract.names import words_of

        return _completed(words_of(self._field), incomplete)


class VariantName(StringParamType):
    """A variant of the kernel that the line names."""

    def shell_complete(self, context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        kernel = _named_kernel(context)
        return [] if kernel is None else _completed(dict.fromkeys(one.name for one in kernel.variants), incomplete)


class Setting(StringParamType):
    """NAME=VALUE, of options and dtypes of the kernel that the line names."""

    def shell_complete(self, context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        kernel = _named_kernel(context)
        if kernel is None:
            return []
        values = {name: option.values for name, option in kernel.options.items()}
        values |= {name: one.dtypes for name, one in kernel.arguments.items() if one.kind == "array"}
        return _completed((f"{name}={value}" for name, several in values.items() for value in several), incomplete)


def _named_kernel(context: click.Context) -> Kernel | None:
    from zoo.cli import collection
    from zoo.errors import ZooError

    typed = (context.params.get("kernels"), *context.args)  # click leaves words unparsed behind an option that lacks its value
    try:
        name = next((one for one in _names(context) if one in typed), None)
        return None if name is None else collection(context.find_root()).kernel(name)
    except (ZooError, OSError):
        return None


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
