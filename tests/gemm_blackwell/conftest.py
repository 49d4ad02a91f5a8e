import random

import pytest

import zoo.emulator.machine


@pytest.fixture
def any_order(monkeypatch):
    """Clusters begin, and are taken over by running ones, in an order that nobody knows."""

    class Shuffled(zoo.emulator.machine.WaitingClusters):
        def __init__(self, grid, shape):
            super().__init__(grid, shape)
            in_order = [super(Shuffled, self).popleft() for _ in range(self._all)]
            self._begun, self._order = 0, random.Random(7).sample(in_order, len(in_order))

        def popleft(self):
            self._begun += 1
            return self._order[self._begun - 1]

    monkeypatch.setattr(zoo.emulator.machine, "WaitingClusters", Shuffled)
