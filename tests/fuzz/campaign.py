"""How a fuzzer runs: a few inputs by default, for a time when asked to, and by a seed that a failure prints.

    ZOO_FUZZ_SECONDS=3600 pytest tests/fuzz/test_ptx_text.py     for an hour, from a seed of its own
    ZOO_FUZZ_SEED=12345 pytest tests/fuzz/test_ptx_text.py       one input again

A fuzzer is a function of a random generator that tries one input and returns a word on how it ended; any error that it lets out
is a finding, and so is an input that takes longer than `LONGEST`.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable

LONGEST = 20.0  # seconds of computing for one input
MOST_BYTES = 4 << 30  # of addresses, where a campaign has the process for itself


class TookTooLong(BaseException):
    """No Exception: what is tried may catch those."""


def fuzz(attempt: Callable[[random.Random], str], inputs: int) -> Counter:
    """How often each end was met."""
    if "ZOO_FUZZ_SEED" in os.environ:
        return _ends(attempt, [int(os.environ["ZOO_FUZZ_SEED"])])
    seconds = float(os.environ.get("ZOO_FUZZ_SECONDS", 0))
    if not seconds:
        return _ends(attempt, range(inputs))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    first, until = random.SystemRandom().randrange(1 << 40), time.monotonic() + seconds
    found = _ends(attempt, _seeds_until(first, until))
    print(f"\n{attempt.__name__}: {found.total():,} inputs from seed {first} in {seconds:.0f} s: {dict(found.most_common(12))}")
    return found


def _seeds_until(seed: int, until: float):
    while time.monotonic() < until:
        yield seed
        seed += 1


def _ends(attempt: Callable[[random.Random], str], seeds) -> Counter:
    def too_long(*_):
        raise TookTooLong(f"more than {LONGEST} s")

    ends: Counter = Counter()
    before = signal.signal(signal.SIGPROF, too_long)
    try:
        for seed in seeds:
            signal.setitimer(signal.ITIMER_PROF, LONGEST)
            try:
                ends[attempt(random.Random(seed))] += 1
            except (Exception, TookTooLong) as error:
                again = f"ZOO_FUZZ_SEED={seed} pytest {attempt.__module__.replace('.', '/')}.py -k {attempt.__name__}"
                raise AssertionError(f"{attempt.__name__} with seed {seed}: {type(error).__name__}: {error}; again: {again}") from error
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
    finally:
        signal.signal(signal.SIGPROF, before)
    return ends
