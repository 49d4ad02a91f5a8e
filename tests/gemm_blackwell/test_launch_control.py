"""When a dense product requests further tiles (cluster launch control): a multiprocessor that starts late must find tiles left.

The model below has no GPU behind it. tests/emulator checks the instructions, test_dense.py the results.
"""

import heapq
from pathlib import Path

import numpy
import pytest

from tests.gemm_blackwell.named import named
from tests.gemm_blackwell.notes import note
from tests.gemm_blackwell.test_dense import arguments_of
from tests.gemm_blackwell.which import CUBINS, ZOO
from zoo.checks.block_scaled import random_operands
from zoo.emulator import Device, Module
from zoo.shipped.ptx import Texts

BLOCKS = 4  # K blocks of a tile


@pytest.mark.parametrize(
    ("tile", "M", "copies"), [("t128", 384, 2), ("t256_w256", 768, 4)]
)  # of elements in a K block, by all CTAs of a tile
def test_a_tile_is_requested_when_half_of_the_tile_before_is_copied(tile, M, copies, monkeypatch):
    events = []
    for name in ("cp.async.bulk.tensor", "clusterlaunchcontrol.try_cancel"):
        note(monkeypatch, name, lambda _, name=name: events.append(name))
    kernel = ZOO.kernel("gemm.mxfp8.dense")
    variant = next(variant for variant in kernel.variants if variant.name == tile and variant.dtypes.get("a", "e4m3") == "e4m3")
    device = Device(arch="sm_100f", multiprocessors=2 if "256" in tile else 1, scheduling="issue")
    d = device.empty((M, 8), "f32")
    plan = ZOO.prepare(
        kernel.name, variant=tile, d=d, **named(kernel.name, arguments_of(device, random_operands("mxfp8", M, 8, BLOCKS * 128)))
    )
    plan._module = Module(Texts(Path(CUBINS)).of(variant, ZOO.manifest))  # decoded with the functions above
    assert plan().ok
    requests = [i for i, event in enumerate(events) if event == "clusterlaunchcontrol.try_cancel"]
    copied = [at - number for number, at in enumerate(requests)]
    tiles = range(3)
    assert len(events) - len(requests) == copies * BLOCKS * len(tiles)
    slack = copies // 4 * BLOCKS  # copies of the pair's second CTA, which runs by itself
    assert all(abs(before - copies * BLOCKS * (i + 0.5)) <= slack for i, before in zip(tiles, copied, strict=True)), copied


# ---- a model of launches: cycles of a B200, docs/lab/blackwell.md

MICROSECOND, ANSWER, FIRST_COPY, IN_FLIGHT = 1965, 1650, 1500, 3000  # IN_FLIGHT: what the stages hold, in cycles of copying
PAIRS = 74  # of multiprocessors


class Cluster:
    """Times at which the tiles of one cluster are answered, copied, multiplied and stored."""

    def __init__(self, start, tile, epilogue):
        self.start, self.tile, self.epilogue = start, tile, epilogue
        self.answers, self.copies, self.products, self.ends = [], [], [], []

    def copied(self, part):
        """When so much of the last tile is copied."""
        return max(self.copies[-1], self.products[-1] + part * self.tile - IN_FLIGHT)

    def compute(self, answered):
        free = self.copied(1) if self.copies else self.start
        self.answers.append(answered)
        self.copies.append(max(answered, free))
        ready = self.copies[-1] + FIRST_COPY
        after = self.products[-1] + self.tile if self.products else 0
        read = self.ends[-2] if len(self.ends) > 1 else 0
        self.products.append(max(ready, after, read))
        self.ends.append(max(self.products[-1] + self.tile, self.ends[-1] if self.ends else 0) + self.epilogue)


def at_once(cluster):
    """Three responses are in flight, as before one was requested a tile."""
    number = len(cluster.copies)
    return max(cluster.answers[-1], cluster.ends[number - 4] if number > 3 else 0)


def halfway(cluster):
    number = len(cluster.copies)
    return max(cluster.copied(0.5), cluster.ends[number - 3] if number > 2 else 0)


def duration(clusters, waves, skew, tile, epilogue, request, answer):
    """Clusters start at random within `skew`; each takes the next of the tiles that are left."""
    random, left, end = numpy.random.default_rng(clusters), int(waves * clusters), 0
    queue = [(start, number, Cluster(start, tile, epilogue)) for number, start in enumerate(random.uniform(0, skew, clusters))]
    heapq.heapify(queue)
    while left:
        now, number, cluster = heapq.heappop(queue)
        left -= 1
        cluster.compute(now + answer if cluster.copies else now)
        end = max(end, cluster.ends[-1])
        heapq.heappush(queue, (request(cluster), number, cluster))
    return end


def loss(request, tile):
    """The worst ratio to requests that are answered at once, when the next tile could be copied."""
    worst = 0
    for waves in (1.5, 2, 3):
        for skew in (0.3 * MICROSECOND, 2 * MICROSECOND):
            launch = PAIRS, waves, skew, tile, 1000
            worst = max(worst, duration(*launch, request, ANSWER) / duration(*launch, lambda cluster: cluster.copied(1), 0))
    return worst


@pytest.mark.parametrize("tile", [6000, 12000, 24000])
def test_late_multiprocessors_lose_under_two_percent_in_a_model(tile):
    assert loss(halfway, tile) < 1.02
    assert loss(at_once, tile) > 1.2
