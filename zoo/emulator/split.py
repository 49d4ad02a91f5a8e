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
from .owners import Owners, instruction, words
from .processes import results

_ORDERED = ("volatile", "acquire", "release", "relaxed", "mmio")


def talking(program):
    """Words for the first instruction by which CTAs may wait for each other or combine values, or None."""
    if program.talking is None:
        words = (f"CTAs may talk by `{ins.text}` (PTX line {ins.line})" for ins in program.instructions if _talks(ins))
        program.talking = next(words, "")
    return program.talking or None


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
    talks = "the launch is cooperative" if cooperative else talking(program)
    if talks is not None:
        report = alone()
        report.together = talks
        return report
    return _shared(device, program, jobs, alone)


def _shared(device, program, jobs, alone):
    memory = device.memory
    marks, values = ([_shared_bytes(memory.size) for _ in range(jobs)] for _ in range(2))
    owners = [Owners(memory.end, _shared_array) for _ in range(jobs)]
    kept = device.watch

    def share(number):
        device.share, device.watch = (number, jobs), None
        memory.note(marks[number])
        memory.owners = owners[number]
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
        memory.owners = None
    merged = reports[0]
    findings = Findings()
    for report in reports:
        for finding in report.findings:
            findings.add(finding)
    for finding in _merged(memory, marks, values, owners, program):
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


def _shared_array(count, dtype):
    return np.frombuffer(mmap.mmap(-1, count * np.dtype(dtype).itemsize), dtype)


def _shared_bytes(size):
    return _shared_array(size, np.uint8)


def _allocations(memory):
    return [slice(start, start + memory.sizes[start]) for start in memory.starts]


def _merged(memory, marks, values, owners, program):
    """Puts the values that processes wrote into memory; yields what they did to each other."""
    for part in _allocations(memory):
        data, state = memory.data[part], memory.state[part]
        before, unwritten = data.copy(), (state & WRITTEN) == 0
        written, changed, read, differing, between = (np.zeros(data.size, bool) for _ in range(5))
        for mark, value in zip(marks, values):
            writes, reads = (mark[part] & WRITTEN) != 0, (mark[part] & READ) != 0
            changes = writes & ((value[part] != before) | unwritten)
            differing |= written & writes & (data != value[part])
            between |= (changed & reads) | (read & changes)
            data[writes] = value[part][writes]
            written |= writes
            changed |= changes
            read |= reads
        state[written] |= WRITTEN
        for found, does, mark in ((differing, "writes", WRITTEN), (between, "reads", READ)):
            if found.any():
                place = part.start + int(np.argmax(found))
                yield _race(place, does, _by(owners, marks, place, mark), _by(owners, marks, place, WRITTEN), program)


def _by(owners, marks, place, mark):
    """The entries of processes that wrote or read a byte."""
    arrays = ((one.writers if mark == WRITTEN else one.readers, marks_of_one) for one, marks_of_one in zip(owners, marks))
    return {number: int(array[place // 4]) for number, (array, of_one) in enumerate(arrays) if of_one[place] & mark}


def _race(place, does, here, others, program):
    """A finding without its instructions where these accessed 1 or 2 bytes."""
    number, place = max(here), place // 4 * 4
    other = next(entry for one, entry in others.items() if one != number or len(others) == 1)
    place = {"address": GLOBAL_BASE + place, "kernel": program.entry.name}
    if here[number]:
        ins = instruction(program, here[number])
        place |= {"line": ins.line, "text": ins.text, "source": ins.source, "callers": ins.callers, "block": program.blocks[ins.pc]}
    met = ("written", instruction(program, other)) if other else None
    return Finding("race", words(does, f" at {place['address']:#x}", "wrote"), other=met, **place)
