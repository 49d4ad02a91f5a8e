"""What `zoo bench --plot` draws of timings, and where: points, lines, axes. Renderers put it on a terminal or into a file.

A product is drawn as a roofline: TFLOPS over operations a byte, below the best arithmetic and bandwidth seen on the device; where nobody
has looked, below the fastest copy of this run, which small matrices do not bring to its best. Other kernels move bytes and nothing else: GB/s over the bytes, beside the copies of as many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zoo.benchmark.measure import Measurement

# TFLOPS of e4m3 products and TB/s, the best that anybody's have been seen at: docs/lab/fp8_gemm.md
BEST_SEEN = {"NVIDIA H200": (1560.0, 4.3), "NVIDIA H100 80GB HBM3": (1540.0, 3.03)}
_NO_TORCH = "torch is not installed here, or sees no GPU"
Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    label: str
    low: float
    high: float
    logarithmic: bool

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            factors = (1, 2, 5) if last - first < 2 else (1,)
            found = [factor * 10.0**power for power in range(first - 1, last + 1) for factor in factors]
            return [tick for tick in found if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9)]
        step = 10.0 ** math.floor(math.log10(self.high - self.low))
        while (self.high - self.low) / step > 6:
            step *= 2
        return [self.low + step * count for count in range(int((self.high - self.low) / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Series:
    name: str
    marker: str  # one letter, on a terminal
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Plot:
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    line: tuple[Point, ...]  # the limit; none: nothing is drawn
    line_name: str
    notes: tuple[str, ...]


def plot(name: str, device: str, measured: Iterable[Measurement]) -> Plot:
    measured = list(measured)
    return (_roofline if all(one.operations for one in measured) else _bandwidth)(name, device, measured)


def _roofline(name: str, device: str, measured: Sequence[Measurement]) -> Plot:
    def points(times: Iterable[float | None]) -> tuple[Point, ...]:
        pairs = [(one, time) for one, time in zip(measured, times, strict=True) if time is not None]
        return tuple((one.operations / one.bytes, one.operations / time / 1e6) for one, time in pairs)

    series = [Series("zoo", "o", points(one.microseconds for one in measured))]
    torch = points(one.tensor_wise for one in measured)
    if torch:
        series.append(Series("torch._scaled_mm, one scale a tensor", "x", torch))
    reason = f"{_NO_TORCH}, or does not multiply these sizes in FP8 (on this device; N and K must be multiples of 16)"
    notes = _missing(len(measured) - len(torch), "torch._scaled_mm", reason)
    seen = [point for one in series for point in one.points]
    x = _logarithmic("operations a byte", [place for place, _ in seen])
    if device in BEST_SEEN:
        arithmetic, bandwidth = BEST_SEEN[device]
        ends = sorted({x.low, min(max(arithmetic / bandwidth, x.low), x.high), x.high})
        line = [(end, min(end * bandwidth, arithmetic)) for end in ends]
        words = f"limit, the best seen on this device: {arithmetic:.0f} TFLOPS, {bandwidth} TB/s"
    else:
        fair = [one for one in measured if one.past_cache] or measured  # a copy within the L2 cache is no limit
        bandwidth = max(_copied(one) for one in fair) / 1e6
        line, words = [(end, end * bandwidth) for end in (x.low, x.high)], f"the fastest copy of this run, {bandwidth:.2f} TB/s"
        notes += (f"how fast {device} can multiply is not known here: no limit of arithmetic is drawn",)
    y = _logarithmic("TFLOPS", [place for _, place in seen + line])
    return Plot(f"{name} on {device}", x, y, tuple(series), tuple(line), words, notes)


def _bandwidth(name: str, device: str, measured: Sequence[Measurement]) -> Plot:
    def points(times: Iterable[float | None]) -> tuple[Point, ...]:
        pairs = [(one, time) for one, time in zip(measured, times, strict=True) if time is not None]
        return tuple((one.bytes / 1e6, one.bytes / time / 1e3) for one, time in pairs)

    series = [Series("zoo", "o", points(one.microseconds for one in measured))]
    series.append(Series("the driver's copy of as many bytes", "c", points(one.copy_microseconds for one in measured)))
    torch = points(one.torch_microseconds for one in measured)
    if torch:
        series.append(Series("torch's copy_ of as many bytes", "x", torch))
    seen = [point for one in series for point in one.points]
    x = _logarithmic("megabytes moved", [place for place, _ in seen])
    y = Axis("GB/s", 0, max(place for _, place in seen) * 1.05, logarithmic=False)
    return Plot(f"{name} on {device}", x, y, tuple(series), (), "", _missing(len(measured) - len(torch), "torch's copy_", _NO_TORCH))


def _copied(one: Measurement) -> float:
    """Bytes a microsecond of the faster copy."""
    return one.bytes / min(one.copy_microseconds, one.torch_microseconds or one.copy_microseconds)


def _missing(count: int, whose: str, reason: str) -> tuple[str, ...]:
    return (f"without {count} {'point' if count == 1 else 'points'} of {whose}: {reason}",) if count else ()


def _logarithmic(label: str, values: Sequence[float]) -> Axis:
    low, high = min(values), max(values)
    if high < 1.2 * low:  # one point has an axis, too
        low, high = low / 2, high * 2
    return Axis(label, low / 1.1, high * 1.1, logarithmic=True)
