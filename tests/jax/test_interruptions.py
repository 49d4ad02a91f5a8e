"""Ctrl-C while a kernel computes by its rule: on the main thread, where XLA computes what costs little, and on a thread of XLA's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import zoo
from tests.recorder import ROOT

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")

import jax.numpy as jnp  # noqa: E402

import zoo.jax  # noqa: E402
from zoo.jax import interruptions  # noqa: E402
from zoo.reference import kernels  # noqa: E402

X = numpy.random.default_rng(3).standard_normal((8, 256)).astype(numpy.float32)
_LONG = 60.0  # seconds, in which an interruption has come


def quantise(x: Any) -> Any:
    return zoo.jax.call("quantize.fp8b128.rows", x=x)


def bits(found: Any) -> list[bytes]:
    return [numpy.asarray(array).tobytes() for array in jax.tree.leaves(found)]


@pytest.fixture(autouse=True)
def on_the_host() -> Iterator[None]:
    with jax.default_device(jax.devices("cpu")[0]):
        yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "SIGINT's own handler did not come back"


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[bool]]:
    """Has something happen in the middle of the next rule; gives a list of whether each rule ran on the main thread."""

    def interrupt(happens: Callable[[], object]) -> list[bool]:
        ran: list[bool] = []

        def run(*arguments: Any, **named: Any) -> None:
            ran.append(threading.current_thread() is threading.main_thread())
            if len(ran) == 1:
                happens()
            rule(*arguments, **named)

        monkeypatch.setattr(kernels, "run", run)
        return ran

    rule = kernels.run
    return interrupt


def interrupted(work: Callable[[], object]) -> bool:
    """Whether KeyboardInterrupt came of this work, and nothing else."""
    try:
        work()
        time.sleep(_LONG)
    except KeyboardInterrupt:
        return True
    return False


def ctrl_c() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("compile", [jax.jit, lambda function: function], ids=["compiled", "called"])
def test_ctrl_c_in_a_rule_is_no_error_of_xla_and_the_next_call_is_right(
    compile: Any, times: int, rules: Callable[[Callable[[], object]], list[bool]]
) -> None:
    program, x = compile(quantise), jnp.asarray(X)
    expected = bits(program(x))
    ran = rules(lambda: [ctrl_c() for _ in range(times)])
    assert interrupted(lambda: program(x))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert ran == [True], "the rule ran elsewhere: this test saw nothing"
    assert bits(program(x)) == expected


def test_kernels_after_one_that_was_interrupted_are_right_before_the_interruption_comes(
    rules: Callable[[Callable[[], object]], list[bool]],
) -> None:
    program = jax.jit(lambda x, y: (quantise(x), quantise(y)))
    operands = [jnp.asarray(X), jnp.asarray(-X)]
    expected, found = bits(program(*operands)), []
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(interruptions._inside(frame)))
    try:
        ran = rules(ctrl_c)
        found = bits(program(*operands))
        until = time.monotonic() + _LONG
        while not seen and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ran == [True] * 2, "the rules ran elsewhere: this test saw nothing"
    assert found == expected and seen == [False]


def test_ctrl_c_while_a_thread_of_xla_computes_a_rule_is_as_ever(rules: Callable[[Callable[[], object]], list[bool]]) -> None:
    program, x = jax.jit(lambda x: quantise(x @ x.T @ x)), jnp.asarray(X)
    expected = bits(program(x))
    ran = rules(ctrl_c)
    assert interrupted(lambda: jax.block_until_ready(program(x)))
    assert bits(program(x)) == expected
    assert ran[:1] == [False], "the rule ran on the main thread: this test saw nothing"


def test_an_interruption_that_a_rule_itself_lets_out_comes_after_the_error(rules: Callable[[Callable[[], object]], list[bool]]) -> None:
    """As one that comes when the handler of SIGINT is just being put back."""

    def out() -> None:
        raise KeyboardInterrupt

    program, x = jax.jit(quantise), jnp.asarray(X)
    expected = bits(program(x))
    ran = rules(out)

    def work() -> None:
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=r"zoo\.jax: KeyboardInterrupt"):
            program(x)

    assert interrupted(work) and ran == [True]
    assert bits(program(x)) == expected


def test_a_program_that_leaves_ctrl_c_alone_is_left_alone(rules: Callable[[Callable[[], object]], list[bool]]) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        rules(ctrl_c)
        bits(jax.jit(quantise)(jnp.asarray(X)))
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


_PROGRAM = """
import signal, time, jax, jax.numpy as jnp, zoo.jax
from zoo.reference import kernels
program, x = jax.jit(lambda x: zoo.jax.call("quantize.fp8b128.rows", x=x)), jnp.ones((8, 256))
jax.block_until_ready(program(x))
rule = kernels.run
def run(*arguments, **named):
    signal.raise_signal(signal.SIGINT)
    rule(*arguments, **named)
kernels.run = run
found = program(x)
"""


@pytest.mark.parametrize(("last", "status"), [("time.sleep(60)", {-signal.SIGINT}), ("", {-signal.SIGINT, 0})])
def test_a_program_that_is_interrupted_in_a_rule_ends(last: str, status: set[int]) -> None:
    """Where the rule is the last thing, the interruption may come when Python is about to end; nothing waits for it forever."""
    settings = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", _PROGRAM + last], env=settings, capture_output=True, text=True, timeout=300)
    assert run.returncode in status, run.stderr
    if last:
        assert run.stderr.endswith("\nKeyboardInterrupt\n") and "Error" not in run.stderr and "ignored" not in run.stderr
