"""What the operating system refuses or tells, as one line: full disks, places nobody may write, other users of a GPU."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoo.runtime.driver import Device


@contextlib.contextmanager
def refusals_in_words() -> Iterator[None]:
    """Ends the process with status 1 and one line on stderr where the work inside raises OSError."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader had enough; click ends the process quietly
            raise
        from zoo.cli.text import echo_refusal

        abandon_what_was_not_printed()
        where = f"{error.filename}: " if error.filename else "" if error.errno != errno.ENOSPC else "standard output: "
        echo_refusal(f"Error: {where}{error.strerror or error}")
        sys.exit(1)


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """SIGTERM ends the work inside as Ctrl-C does, so that what follows it is still done. Another Ctrl-C does not disturb what follows.

    C code that calls Python may drop the exception (the import of numpy.random does), so it is raised every half second until the work
    ends, but not while what follows an exit is being done.
    """

    def end(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        if not _handles(SystemExit, sys.exception()):
            sys.exit(128 + signal.SIGTERM)

    def interrupt(*_: object) -> None:
        if not _handles((SystemExit, KeyboardInterrupt), sys.exception()):
            raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGALRM, signal.SIGTERM)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else who started this process wants no Ctrl-C
        before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _handles(ends: type[BaseException] | tuple[type[BaseException], ...], handled: BaseException | None) -> bool:
    """Whether an end is being handled, or was when this came."""
    while handled is not None and not isinstance(handled, ends):
        handled = handled.__context__
    return handled is not None


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C, SIGTERM and its repetitions wait until the work inside is done, which takes no time to speak of."""
    waiting: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: waiting.append(number))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in waiting:
            signal.raise_signal(late)


def abandon_what_was_not_printed() -> None:
    """Text that the output did not take would be tried again at exit, with a traceback and another status."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def warn_of_foreign_load(device: Device) -> int:
    """Percent of the time in which other processes' kernels run on the GPU. Call it before this process starts any."""
    import click

    from zoo.cli.text import fact
    from zoo.runtime.clocks import foreign_load, management

    load = foreign_load(management(device))
    if load:
        click.echo(fact("in use", f"other processes keep {device.name} busy for {load} % of the time: times will be too long"), err=True)
    return load
