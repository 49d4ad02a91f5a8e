"""How long a launch should take, by the clock of one CTA: extrapolated to all tiles of a multiprocessor, whose share of memory is limited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zoo.clock.chip import Chip
from zoo.clock.recorded import Call
from zoo.clock.replay import Rates, Replay, replay
from zoo.emulator.recording import Access, Issue, Recording

_WHOLE, _LENGTHS = 3, (1, 3)  # turns that are emulated as they are; else the lengths that a launch is extrapolated from


@dataclass(frozen=True)
class Prediction:
    call: Call
    chip: Chip
    replay: Replay  # of the longest recording
    lengths: tuple[int, ...]  # tiles of the recordings
    cycles: float  # of all tiles of a place
    microseconds: float  # of the launch
    from_memory: float  # share of the moved bytes that memory moves, too, and not L2 alone

    @property
    def traced(self) -> int:
        """Tiles in the replay."""
        return self.lengths[-1]


def lengths(call: Call) -> tuple[int, ...]:
    """Tiles of each recording that a prediction needs."""
    return (call.turns,) if call.turns <= _WHOLE else _LENGTHS


def predicted(call: Call, chip: Chip, recordings: Sequence[Recording]) -> Prediction:
    tiles = lengths(call)
    rates, from_memory = _rates(call, chip, recordings[-1], tiles[-1])
    replays = [replay(one, chip, rates, call.resident) for one in recordings]
    cycles = replays[-1].cycles
    if len(tiles) > 1:
        one, several = (_products(recording) for recording in (recordings[0], recordings[-1]))
        cycles += (replays[-1].cycles - replays[0].cycles) / (several - one) * (call.turns * one - several)
    time = _microseconds(call, chip, replays[-1], tiles[-1], cycles)
    return Prediction(call, chip, replays[-1], tiles, cycles, time, from_memory)


def _products(recording: Recording) -> int:
    """What the tensor cores multiplied."""
    works = (item.work for stream in recording.streams for item in stream.items if isinstance(item, Issue) and item.work.unit == "multiply")
    return sum(work.rows * work.columns * work.depth for work in works)


def _rates(call: Call, chip: Chip, recording: Recording, tiles: int) -> tuple[Rates, float]:
    """A multiprocessor's share of memory and L2. Bytes that no other CTA has loaded come from memory, and results go there."""
    moved = sum(_moved(item) for stream in recording.streams for item in stream.items) * call.tiles / tiles
    from_memory = min(sum(array.bytes for array in call.arrays.values()) / moved, 1.0)
    each = 1000 / (chip.clock * call.busy_multiprocessors)  # bytes a nanosecond of the chip -> bytes a cycle of a multiprocessor
    rate = min(chip.copy_rate, chip.l2_rate * each, chip.memory_rate * each / from_memory)
    return Rates(rate, chip.l2_latency + from_memory * (chip.memory_latency - chip.l2_latency)), from_memory


def _moved(item: object) -> int:
    if isinstance(item, Issue) and item.work.unit in ("copy", "store"):
        return item.work.bytes
    return item.bytes if isinstance(item, Access) else 0


def _microseconds(call: Call, chip: Chip, traced: Replay, tiles: int, cycles: float) -> float:
    """The clock falls under load: a launch is longer by a share of the time in which its tensor cores are busy."""
    time = cycles / chip.clock
    cores = next(iter(traced.multiprocessors.values())).tensor_cores
    busy = sum(core.busy for core in cores) / len(cores) * call.turns / tiles / chip.clock
    slower = chip.slowdown * min(busy / chip.slowdown_after, 1.0)
    return chip.launch / 1000 + time + slower * busy
