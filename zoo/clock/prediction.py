"""How long a launch should take, by the clock of one CTA: extrapolated to all tiles of a multiprocessor, whose share of memory is limited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zoo.clock.chip import PARTITIONS, Chip
from zoo.clock.recorded import Call
from zoo.clock.replay import Rates, Replay, core_cycles, replay
from zoo.emulator.recording import Access, Issue, Recording, Work

_WHOLE, _LENGTHS = 3, (1, 3)  # turns that are emulated as they are; else the lengths that a launch is extrapolated from


@dataclass(frozen=True)
class Prediction:
    call: Call
    replay: Replay  # of the longest recording
    lengths: tuple[int, ...]  # tiles of the recordings
    cycles: float  # of all tiles of a place
    microseconds: float  # of the launch
    from_memory: float  # share of the moved bytes that memory moves, too, and not L2 alone

    @property
    def chip(self) -> Chip:
        return self.call.chip

    @property
    def traced(self) -> int:
        """Tiles in the replay."""
        return self.lengths[-1]


def lengths(call: Call) -> tuple[int, ...]:
    """Tiles of each recording that a prediction needs."""
    return (call.turns,) if call.turns <= _WHOLE else _LENGTHS


def predicted(call: Call, recordings: Sequence[Recording]) -> Prediction:
    tiles, chip = lengths(call), call.chip
    rates, from_memory = _rates(call, recordings[-1], tiles[-1])
    replays = [replay(one, chip, rates, call.resident) for one in recordings]
    cycles = replays[-1].cycles
    one, several = (_products(recording) for recording in (recordings[0], recordings[-1]))
    if several > one:
        cycles += (replays[-1].cycles - replays[0].cycles) / (several - one) * (call.turns * one - several)
    time = chip.launch / 1000 + cycles / chip.clock + _slower(call, recordings[0], tiles[0])
    return Prediction(call, replays[-1], tiles, cycles, time, from_memory)


def _multiplications(recording: Recording) -> Iterator[Work]:
    return (item.work for stream in recording.streams for item in stream.items if isinstance(item, Issue) and item.work.unit == "multiply")


def _products(recording: Recording) -> int:
    return sum(work.rows * work.columns * work.depth for work in _multiplications(recording))


def _rates(call: Call, recording: Recording, tiles: int) -> tuple[Rates, float]:
    """A multiprocessor's share of memory and L2. Bytes that no other CTA has loaded come from memory, and results go there."""
    chip = call.chip
    moved = sum(_moved(item) for stream in recording.streams for item in stream.items) * call.tiles / tiles
    from_memory = min(sum(array.bytes for array in call.arrays.values()) / moved, 1.0)
    each = 1000 / (chip.clock * call.busy_multiprocessors)  # bytes a nanosecond of the chip -> bytes a cycle of a multiprocessor
    rate = min(chip.copy_rate, chip.l2_rate * each, chip.memory_rate * each / from_memory)
    return Rates(rate, chip.l2_latency + from_memory * (chip.memory_latency - chip.l2_latency)), from_memory


def _moved(item: object) -> int:
    if isinstance(item, Issue) and item.work.unit in ("copy", "store"):
        return item.work.bytes
    return item.bytes if isinstance(item, Access) else 0


def _slower(call: Call, recording: Recording, tiles: int) -> float:
    """Microseconds by which a launch is longer because the clock falls while tensor cores work."""
    chip = call.chip
    each = (core_cycles(work, chip) * work.cores * (2 if work.peer else 1) for work in _multiplications(recording))
    cycles = sum(each) / (PARTITIONS * call.cluster * tiles) * call.turns * call.resident
    busy = cycles / chip.clock
    return chip.slowdown * min(busy / chip.slowdown_after, 1.0) * busy
