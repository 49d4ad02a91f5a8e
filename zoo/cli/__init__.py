"""The command `zoo`. Each subcommand is a module beside this one, imported when it is named."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

import zoo

if TYPE_CHECKING:
    from zoo.catalog import Zoo

# name -> the module that holds the command, as its attribute `command`
_MODULES = {
    "demo": "zoo.cli.demo",
    "doctor": "zoo.cli.doctor",
    "list": "zoo.cli.list_kernels",
    "show": "zoo.cli.show",
    "verify": "zoo.cli.verify",
    "emulate": "zoo.cli.emulate",
    "trace": "zoo.cli.trace",
    "bench": "zoo.cli.bench",
    "tune": "zoo.cli.tune",
    "first-run": "zoo.cli.first_run",
    "export": "zoo.cli.export",
    "new-kernel": "zoo.cli.new_kernel",
    "digest": "zoo.cli.digest",
}
_OF_TWO_WORDS = {("bench", "layer"): "zoo.cli.bench_layer"}
_PRINTING = ("list", "show")  # only print: a reader that has enough of them, such as `head`, is no failure


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _MODULES:
            return None
        command: click.Command = importlib.import_module(_MODULES[name]).command
        return command

    def resolve_command(self, context: click.Context, arguments: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        completing = context.resilient_parsing
        if (words := tuple(arguments[:2])) in _OF_TWO_WORDS:
            return " ".join(words), importlib.import_module(_OF_TWO_WORDS[words]).command, arguments[2:]
        if arguments and arguments[0] not in _MODULES and not arguments[0].startswith("-") and not completing:
            _refuse_command(arguments[0], context)
        return super().resolve_command(context, arguments)

    def main(self, *arguments: Any, **settings: Any) -> Any:
        from zoo.cli.system import refusals_in_words

        with refusals_in_words():  # around all of it: `--help` prints too
            return super().main(*arguments, **settings)

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        with _refusals_that_fit():
            return super().make_context(*arguments, **settings)

    def invoke(self, context: click.Context) -> Any:
        from zoo.errors import DriverError, ZooError

        with _refusals_that_fit():
            try:
                return super().invoke(context)
            except DriverError as error:
                raise click.ClickException(f"{error}; `zoo doctor` says what this machine lacks") from None
            except ZooError as error:
                raise click.ClickException(str(error)) from None
            except BrokenPipeError:
                if context.invoked_subcommand not in _PRINTING:
                    raise
                from zoo.cli.system import abandon_what_was_not_printed

                abandon_what_was_not_printed()


@contextlib.contextmanager
def _refusals_that_fit() -> Iterator[None]:
    """Shows a refusal broken to the terminal's width. Where stderr is no terminal click shows it, as the one line that scripts read."""
    try:
        yield
    except click.ClickException as error:
        from zoo.cli.text import echo_refusal, printable

        error.message = printable(error.message)  # type: ignore[misc]  # it may quote an argument, which may be anything
        if not sys.stderr.isatty():
            raise
        shown = io.StringIO()
        error.show(shown)
        echo_refusal(shown.getvalue())
        raise click.exceptions.Exit(error.exit_code) from None


def _refuse_command(name: str, context: click.Context) -> NoReturn:
    from zoo.cli.text import listed
    from zoo.contract.nearest import suggestion

    raise click.UsageError(f"no command is named '{name}'; {suggestion(name, _MODULES, f'there are {listed(list(_MODULES))}')}", context)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(zoo.__version__, prog_name="zoo")
@click.option(
    "--cubins",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Work on this directory of cubins instead of the packaged one.",
)
@click.pass_context
def main(context: click.Context, cubins: Path | None) -> None:
    """GPU kernels compiled ahead of time, started by name.

    Exit status: 0 all is well, 1 something failed, 2 the command was misused.
    """
    context.obj = cubins


def collection(context: click.Context, digest: str | None = None) -> Zoo:
    """The Zoo that the command works on, held to a digest of its manifest where there is one."""
    if context.obj is None:
        from zoo.packaged import packaged

        if digest in (None, packaged.digest):
            return packaged
    from zoo.catalog import Zoo
    from zoo.shipped.places import cubins_directory

    return Zoo(context.obj or cubins_directory(), digest)
