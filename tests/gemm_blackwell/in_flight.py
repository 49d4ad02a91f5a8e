"""Several launches of an emulated device at the same time, as a stream runs those that begin before the one ahead has ended.

Each launch has a thread; one of them runs at a time, and which is drawn anew whenever a warp is to go on. A launch that executes
griddepcontrol.wait goes on when the launch ahead of it has ended, as on a GPU; what it does before may come at any time.
"""

from __future__ import annotations

import contextlib
import threading

import numpy

from zoo.emulator import clocks, machine
from zoo.emulator.instructions import TABLE, load_tables


class InFlight:
    def __init__(self, device, seed, waits=True):
        self._random = numpy.random.default_rng(seed)
        self._turn, self._number = threading.Condition(), threading.local()
        self._ready, self._ended, self._waiting = [], set(), set()
        self._current, self._waits = None, waits  # without: griddepcontrol.wait does nothing, as if a kernel had forgotten it
        self.begun_before_the_end_of_the_one_ahead = set()
        device._lock = contextlib.nullcontext()  # one thread runs at a time

    def _go_on(self):
        """Draws who runs next, and returns when it is this thread."""
        number = self._number.value
        with self._turn:
            runnable = [other for other in self._ready if other not in self._ended | self._waiting]
            self._current = runnable[self._random.integers(len(runnable))] if runnable else None
            self._turn.notify_all()
            if number not in self._ended:
                self._turn.wait_for(lambda: self._current == number)

    def _wait_for_the_launch_ahead(self):
        number = self._number.value
        if number - 1 in self._ready and number - 1 not in self._ended:
            self._waiting.add(number)
            self._go_on()

    def run(self, plans, monkeypatch):
        """The reports of all launches."""
        reports, run_warp, flight = {}, machine.Warp.run, self

        def run_of_a_warp(warp, budget):
            flight._go_on()
            number = flight._number.value
            if number - 1 in flight._ready and number - 1 not in flight._ended:
                flight.begun_before_the_end_of_the_one_ahead.add(number)
            return run_warp(warp, budget)

        def grid_dependency(ins):
            def wait(warp, lanes):
                flight._wait_for_the_launch_ahead()
                warp.clocks[clocks.DEPENDENCY] = 1  # as the emulator's own

            waits = ins.choice("wait", "launch_dependents") == "wait" and flight._waits
            return wait if waits else lambda warp, lanes: None

        load_tables()  # or they would be loaded with one instruction registered already
        monkeypatch.setattr(machine.Warp, "run", run_of_a_warp)
        monkeypatch.setitem(TABLE, "griddepcontrol", grid_dependency)

        def launch(number, plan):
            flight._number.value = number
            with flight._turn:
                flight._turn.wait_for(lambda: flight._current == number)
            try:
                reports[number] = plan()
            finally:
                flight._ended.add(number)
                flight._waiting.discard(number + 1)
                flight._go_on()

        threads = [threading.Thread(target=launch, args=item) for item in enumerate(plans)]
        self._ready = list(range(len(plans)))
        for thread in threads:
            thread.start()
        with self._turn:
            self._current = 0
            self._turn.notify_all()
        for thread in threads:
            thread.join()
        return [reports[number] for number in self._ready]
