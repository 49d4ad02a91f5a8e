"""What a GPU did during a call: every kernel and copy with its start and duration, and the gaps between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

GAP = "gap"


class Span(NamedTuple):
    """One kernel or copy, in microseconds."""

    name: str
    start: float
    duration: float


@dataclass(frozen=True)
class Bar:
    """A kernel, or the time in which none ran."""

    name: str
    start: float  # microseconds after the first kernel's start
    duration: float

    @property
    def is_gap(self) -> bool:
        return self.name == GAP


def bars(spans: Sequence[Span]) -> list[Bar]:
    """Kernels in the order of their starts, with the gaps between them. They add up to the length of the whole.

    A kernel that starts while another runs, as programmatic dependent launches do to wait for it, counts from the other's end.
    """
    found: list[Bar] = []
    ordered = sorted(spans, key=lambda one: (one.start, -one.duration))
    begin = end = ordered[0].start if ordered else 0.0
    for one in ordered:
        if one.start > end:
            found.append(Bar(GAP, end - begin, one.start - end))
            end = one.start
        stop = max(one.start + one.duration, end)
        found.append(Bar(one.name, end - begin, stop - end))
        end = stop
    return found


def last_of(found: Sequence[Bar], calls: int) -> list[Bar]:
    """The last of several equal calls, from the start of its first kernel on."""
    kernels = [place for place, one in enumerate(found) if not one.is_gap]
    mine = found[kernels[len(kernels) - len(kernels) // calls] :] if len(kernels) >= calls else []
    return [Bar(one.name, one.start - mine[0].start, one.duration) for one in mine]


def length(found: Sequence[Bar]) -> float:
    """From the start of the first kernel to the end of the last."""
    return max((one.start + one.duration for one in found), default=0.0)


def of_kernels(found: Sequence[Bar]) -> float:
    return sum(one.duration for one in found if not one.is_gap)


def of_gaps(found: Sequence[Bar]) -> float:
    return sum(one.duration for one in found if one.is_gap)


def traced(torch: Any, call: Callable[[], object]) -> list[Span]:
    """The kernels of one call, which has been called before. The profiler's own start is kept out by a trace that is thrown away."""
    for _ in range(2):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            call()
            torch.cuda.synchronize()
    return [
        Span(one.name, float(one.time_range.start), float(one.time_range.end - one.time_range.start))
        for one in seen.events()
        if one.device_type == torch.autograd.DeviceType.CUDA and not getattr(one, "is_user_annotation", False)
    ]


def by_name(found: Sequence[Bar]) -> dict[str, tuple[float, int]]:
    """Microseconds and launches of each kernel, the longest first."""
    sums: dict[str, tuple[float, int]] = {}
    for one in found:
        microseconds, launches = sums.get(one.name, (0.0, 0))
        sums[one.name] = microseconds + one.duration, launches + 1
    return dict(sorted(sums.items(), key=lambda pair: -pair[1][0]))


def merged(found: Sequence[Bar], least: float) -> list[Bar]:
    """The bars, of which neighbours shorter than `least` microseconds are put together, kernels and gaps."""
    out: list[Bar] = []
    short: list[Bar] = []
    for one in [*found, None]:
        if one is not None and one.duration < least:
            short.append(one)
            continue
        if len(short) > 1:
            start = short[0].start
            kernels = sum(not each.is_gap for each in short)
            word = GAP if kernels == 0 else f"{kernels} short kernel{'s' if kernels > 1 else ''}, gaps"
            out.append(Bar(word, start, max(each.start + each.duration for each in short) - start))
        else:
            out += short
        short = []
        if one is not None:
            out.append(one)
    return out


def short_name(name: str) -> str:
    """A kernel's name without its return type, namespaces, template arguments and parameters."""
    if name.startswith("_ZN"):  # mangled: identifiers, each after its length
        rest, last = name[3:], name
        while (digits := re.match(r"\d+", rest)) is not None:
            end = digits.end() + int(digits[0])
            last, rest = rest[digits.end() : end], rest[end:]
        return last
    bare = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    depth, kept = 0, ""
    for letter in bare:
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and kept:
            break
        kept += letter if depth == 0 and letter != ">" else ""
    return kept.rpartition("::")[2].strip() or name
