"""What is recorded: all of a launch's work, and nothing of a launch that nobody records."""

import subprocess
import sys
from collections import Counter

from tests.recorder import ROOT
from zoo.clock.replay import MATH
from zoo.emulator.device import Device
from zoo.emulator.machine import Machine
from zoo.emulator.recording import Arrive, Issue, Wait


def issued(prediction):
    return [item.work for lane in prediction.replay.lanes for item in lane.stream.items if isinstance(item, Issue)]


def test_every_product_of_a_tile_is_recorded(hopper, blackwell):
    assert sum(work.rows * work.columns * work.depth for work in issued(hopper) if work.unit == "multiply") == 256 * 128 * 1024
    assert sum(work.rows * work.columns * work.depth for work in issued(blackwell) if work.unit == "multiply") == 256 * 256 * 512


def test_every_byte_of_both_operands_is_copied_once(hopper):
    copied = sum(work.bytes for work in issued(hopper) if work.unit == "copy")
    elements, scales = (256 + 128) * 1024, 256 * 1024 // 128 * 4
    assert elements <= copied <= elements + scales


def test_a_phase_has_all_its_arrivals(hopper, blackwell):
    """Every phase that a warp waited for is completed by arrivals that were recorded, as many as it counts."""
    for prediction in (hopper, blackwell):
        items = [item for lane in prediction.replay.lanes for item in lane.stream.items]
        arrivals = Counter(item.phase for item in items if isinstance(item, Arrive))
        arrivals.update(phase for work in issued(prediction) for phase in work.phases)
        waited = {item.phase for item in items if isinstance(item, Wait)}
        assert waited
        assert all(arrivals[phase] == phase.contributions > 0 for phase in waited)


def test_warps_have_the_roles_that_their_work_gives_them(hopper, blackwell):
    assert {MATH, "copies", "scales"} <= {lane.role for lane in hopper.replay.lanes}
    assert {"copies", "scales", "multiply", "epilogue"} <= {lane.role for lane in blackwell.replay.lanes}


def test_a_launch_that_nobody_records_costs_nothing():
    """A plain device has the plain machine, runs the program's own instructions, and imports nothing of the recorder."""
    assert Device._machine is Machine
    program = (
        "import numpy, sys, zoo\n"
        "gpu = zoo.emulator.Device('h200')\n"
        "zoo.call('scales.mn_major', scales=gpu.array(numpy.ones((4, 4), 'f4')))\n"
        "assert 'zoo.emulator.recording' not in sys.modules and not any(name.startswith('zoo.clock') for name in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
