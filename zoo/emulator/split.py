"""The clusters of one launch on several processes.

Each process runs its share of the clusters on a copy of global memory, and marks the bytes that it reads and writes. The caller's memory then
takes what was written. A byte that two processes write differently, or that one reads and another writes, is a race, for nothing orders their
CTAs: instructions by which CTAs could talk keep a launch in one process.
"""

import mmap
import re
from collections import Counter

import numpy as np

from .findings import Finding, Findings
from .memory import GLOBAL_BASE, READ, WRITTEN
from .processes import results

_ORDERED = ("volatile", "acquire", "release", "relaxed", "mmio")


def _talking(program):
    """Words for the first instruction by which CTAs may wait for each other or combine values, or None."""
    return next((f"CTAs may talk by `{ins.text}` (PTX line {ins.line})" for ins in program.instructions if _talks(ins)), None)


def _talks(ins):
    words = ins.opcode.split(".")
    if words[0] == "call":
        return re.search(r"\b(malloc|free)\b", ins.text) is not None
    if any(word.startswith("shared") for word in words) and "global" not in words:
        return False
    if words[0] in ("ld", "st"):
        return "cta" not in words and any(word in words for word in _ORDERED)
    return words[0] in ("atom", "red", "multimem", "sured", "clusterlaunchcontrol", "tensormap") or words[:2] == ["cp", "reduce"]


def launched(device, program, clusters, cooperative, alone):
    """The report of a launch, on device.jobs processes where its CTAs do not talk; alone() runs the clusters of device.share in this one."""
    jobs = min(device.jobs, clusters)
    if jobs < 2:
        return alone()
    talks = "the launch is cooperative" if cooperative else _talking(program)
    if talks is not None:
        report = alone()
        report.together = talks
        return report
    return _shared(device, jobs, alone)


def _shared(device, jobs, alone):
    memory = device.memory
    marks, values = ([_shared_bytes(memory.size) for _ in range(jobs)] for _ in range(2))
    kept = device.watch

    def share(number):
        device.share, device.watch = (number, jobs), None
        memory.note(marks[number])
        report = alone()
        for part in _allocations(memory):
            written = (marks[number][part] & WRITTEN) != 0
            values[number][part][written] = memory.data[part][written]
        return report

    try:
        reports = results(share, [(number,) for number in range(jobs)], jobs)
    finally:
        device.share, device.watch = (0, 1), kept
        memory.note(None)
    merged = reports[0]
    findings = Findings()
    for report in reports:
        for finding in report.findings:
            findings.add(finding)
    for finding in _merged(memory, marks, values, merged.kernel):
        findings.add(finding)
    merged.findings = list(findings)
    merged.completed = all(report.completed for report in reports)
    merged.warp_instructions = sum(report.warp_instructions for report in reports)
    merged.printed = [line for report in reports for line in report.printed]
    merged.bytes, merged.instructions, merged.lines = (_total(reports, name) for name in ("bytes", "instructions", "lines"))
    return merged


def _total(reports, name):
    total = Counter()
    for report in reports:
        total.update(getattr(report, name))
    return total


def _shared_bytes(size):
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


def _allocations(memory):
    return [slice(start, start + memory.sizes[start]) for start in memory.starts]


def _merged(memory, marks, values, kernel):
    """Puts the values that processes wrote into memory; yields what they did to each other."""
    for part in _allocations(memory):
        data, state = memory.data[part], memory.state[part]
        written, read, differing, between = (np.zeros(data.size, bool) for _ in range(4))
        for mark, value in zip(marks, values):
            writes, reads = (mark[part] & WRITTEN) != 0, (mark[part] & READ) != 0
            differing |= written & writes & (data != value[part])
            between |= (written & reads) | (read & writes)
            data[writes] = value[part][writes]
            written |= writes
            read |= reads
        state[written] |= WRITTEN
        for found, what in ((differing, "write different values to"), (between, "read what others write in")):
            if found.any():
                yield Finding(
                    "race",
                    f"CTAs {what} the allocation of {data.size} bytes at {GLOBAL_BASE + part.start:#x}, at {int(found.sum()):,} bytes from its offset "
                    f"{int(np.argmax(found)):#x}, and nothing orders them",
                    kernel=kernel,
                )
