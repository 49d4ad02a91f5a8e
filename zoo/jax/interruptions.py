"""Ctrl-C while a kernel's rule runs on the main thread, called by XLA: it waits until XLA has given that thread back.

No exception passes through XLA: it would come out as an error of XLA's own, which programs catch, and where it came before a
handler's first line, as success. So SIGINT's own handler stands back while a rule runs, which runs to its end, and is called
afterwards: by a signal that another thread sends as soon as none of zoo's handlers is on the main thread's stack. XLA may begin the next
kernel of a program right after one; then that is waited for as well. On threads other than the main one Python calls no handlers of signals.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

_POLL = 0.001  # seconds

_called_by_c: set[CodeType] = set()
_own: Any = None  # the handler of SIGINT that stands back
_came = False  # a signal that it has not been called for


def called_by_c(function: Callable[[int], int | None]) -> Callable[[int], int | None]:
    """Marks a handler, through which no exception passes."""
    _called_by_c.add(function.__code__)
    return function


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """In a handler: interruptions of the work inside come when no handler is left."""
    if not _may_stand_back():
        yield
        return
    _stand_back()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _own)  # before the question, so that no signal is lost in between
        if _came:
            raise_later()


def raise_later() -> None:
    """In a handler: has an interruption come again when none is left."""
    global _came
    if _may_stand_back():
        _came = True
        _stand_back()
        threading.Thread(target=_send, name="zoo.jax: Ctrl-C").start()


def _may_stand_back() -> bool:
    """Handlers that are not Python's do not raise anything."""
    return threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT))


def _stand_back() -> None:
    global _own
    if signal.getsignal(signal.SIGINT) is not _handle:  # as it is from the kernel before, where one came
        _own = signal.signal(signal.SIGINT, _handle)


def _handle(number: int, frame: FrameType | None) -> None:
    global _came
    _came = True
    if not _inside(frame):
        _came = False
        signal.signal(signal.SIGINT, _own)
        _own(number, frame)


def _send() -> None:
    main = threading.main_thread().ident
    assert main is not None  # it has begun
    while _inside(sys._current_frames().get(main)):
        time.sleep(_POLL)
    if _came:
        signal.pthread_kill(main, signal.SIGINT)  # which ends a sleep, too


def _inside(frame: FrameType | None) -> bool:
    """Whether a handler is on the stack."""
    while frame is not None and frame.f_code not in _called_by_c:
        frame = frame.f_back
    return frame is not None
