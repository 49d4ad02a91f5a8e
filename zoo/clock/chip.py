"""Latencies and rates of a GPU, from its data file. Each number has a source."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from zoo.errors import ArgumentError

PARTITIONS = 4  # of a multiprocessor: each has a tensor core and issues an instruction a cycle
FILES = {"sm_90a": "h200.toml", "sm_100f": "b200.toml"}


@dataclass(frozen=True)
class Chip:
    """Cycles are a multiprocessor's. Slots are cycles that a warp instruction occupies a pipe of one partition."""

    name: str
    multiprocessors: int
    held_to_measured_times: bool  # else everything that the clock says of this chip is predicted from published rates alone
    sources: dict[str, str]
    in_fours: float  # share of the multiprocessors that clusters of three or four CTAs reach
    in_eights: float  # share that larger clusters reach
    clock: float  # MHz
    launch: float  # nanoseconds of a launch without work
    slowdown: float  # by which share a launch is longer whose tensor cores draw all power
    slowdown_after: float  # microseconds of busy tensor cores until then
    memory_latency: float  # cycles
    l2_latency: float
    copy_latency: float  # cycles by which a bulk copy takes longer than a load
    memory_rate: float  # bytes a nanosecond, of all multiprocessors
    l2_rate: float
    copy_rate: float  # bytes a cycle into one multiprocessor
    shared_rate: float  # bytes a cycle that its shared memory delivers
    products: float  # of 8-bit elements that its tensor cores compute in a cycle
    multiply_latency: float  # cycles from the end of a multiplication until a barrier shows it
    delay_of_registers: float  # cycles that a slot of its math warps delays a tensor core that reads A from registers
    pair_latency: float  # multiply_latency of a pair of CTAs
    scale_rate: float  # bytes of scales a cycle into tensor memory
    sums_rate: float  # bytes a cycle that a warp reads from tensor memory
    exchange_latency: float  # cycles to another CTA's shared memory
    request_latency: float  # cycles until the next tile is known
    proxy_fence: float  # cycles that a warp waits at fence.proxy.async
    memory_fence: float  # cycles that a warp waits at a fence of all memory
    barrier_latency: float  # cycles from the last arrival until a waiting warp goes on
    arithmetic_latency: float
    shared_latency: float
    issue: float  # slots that a PTX instruction takes in the mean, for one that its pipe needs: ptxas adds and removes instructions
    float_slots: float
    integer_slots: float
    special_slots: float
    shuffle_slots: float

    def clusters(self, size: int) -> int:
        """How many clusters run at once, one CTA on a multiprocessor."""
        share = 1.0 if size <= 2 else self.in_fours if size <= 4 else self.in_eights
        return max(int(self.multiprocessors * share / size), 1)


def chip_for(arch: str) -> Chip:
    if arch not in FILES:
        raise ArgumentError(f"no clock for {arch}: zoo has latencies and rates of {', '.join(FILES)}")
    return read(Path(__file__).parent / FILES[arch])


def read(path: Path) -> Chip:
    """Refuses a number without a source, and a file that lacks a number or has one too many."""
    data = tomllib.loads(path.read_text())
    known = {field.name for field in fields(Chip)} - {"name", "multiprocessors", "held_to_measured_times", "sources"}
    numbers: dict[str, dict[str, Any]] = data.pop("numbers")
    if numbers.keys() != known:
        raise ValueError(f"{path}: {', '.join(sorted(numbers.keys() ^ known))}: a number is missing or unknown")
    without = [name for name, number in numbers.items() if not number.get("source")]
    if without:
        raise ValueError(f"{path}: {', '.join(without)}: a number needs a source")
    values: dict[str, Any] = {name: float(number["value"]) for name, number in numbers.items()}
    sources = {name: number["source"] for name, number in numbers.items()}
    return Chip(**data, **values, sources=sources)
