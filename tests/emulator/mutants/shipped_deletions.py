"""Deletes one instruction that orders others from the PTX of a shipped kernel, and says whether the emulator notices.

    python tests/emulator/mutants/shipped_deletions.py [--kernels 10] [--each 1] [--seed 0] [words of a kind...]

A bar.warp.sync is one between writes to shared memory and an arrival or an asynchronous read. For each kind the program draws so many cubins
by seed, and so many places of each that a small problem executes. Noticed is a finding, a deadlock or wrong bits, under up to four schedules.
A tcgen05.wait::ld is no loss where the use of all loaded registers takes its place (pending_registers.py).
"""

import argparse
import contextlib
import functools
import random
import re
import sys
from itertools import islice
from pathlib import Path
from unittest import mock

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[3])]

from mutant_edits import delete, mutate, skip_wait

from zoo import checks
from zoo.checks import emulated
from zoo.checks.problem import POISONS, difference
from zoo.emulator import Device, machine
from zoo.emulator.device import Module
from zoo.errors import EmulationError, VariantError
from zoo.packaged import packaged
from zoo.shipped.ptx import Texts

KINDS = {
    "tcgen05.wait::ld": (r"tcgen05\.wait::ld", delete),
    "fence.proxy.async": (r"fence\.proxy\.async\.shared", delete),
    "bar.warp.sync": (r"bar\.warp\.sync", delete),
    "mbarrier wait": (r"mbarrier\.try_wait", skip_wait),
}
LIMIT = 600_000  # instructions: what never ends is a livelock
TEXTS = Texts(packaged.directory)
CUBINS = {variant.sha256: (kernel, variant) for kernel in packaged.find("*") for variant in kernel.variants}


class Edited:
    """A zoo whose variants run from another text."""

    def __init__(self, module):
        self._module = module

    def prepare(self, name, **arguments):
        plan = packaged.prepare(name, **arguments)
        plan._module = self._module
        return plan


def notice(kernel, variant, text, problems, schedules):
    """What notices something wrong with the text: the kind of the first finding, "wrong bits", or ""."""
    module = Module(text)
    with mock.patch.object(emulated, "Device", functools.partial(Device, instruction_limit=LIMIT)):
        for count in schedules:
            for problem in problems:
                try:
                    wrong = difference(problem, kernel, variant, emulated.executor(Edited(module), count), POISONS[:1])
                except EmulationError as error:
                    finding = re.search(r"^  (?:warning, |note, )?([a-z-]+): ", str(error), re.MULTILINE)
                    return finding[1] if finding else str(error)[:60]
                if wrong:
                    return "wrong bits"
    return ""


def small_problems(kernel, variant, text, most=12):
    """Of the first of a variant's problems the largest small ones that end within the limit, the largest of them last."""
    some = sorted((one for one in islice(checks.problems(kernel, variant), 40) if 0 < one.elements <= 40_000), key=lambda one: one.elements)
    found = []
    for problem in some[-most:]:
        with contextlib.suppress(VariantError):
            if notice(kernel, variant, text, [problem], (1,)) != "livelock":
                found.append(problem)
    return found


def executed(kernel, variant, text, problems):
    """The lines that the problems execute."""
    lines, dismantle = set(), machine.Machine.dismantle

    def noted(ended):
        lines.update(ins.line for ins, count in zip(ended.program.instructions, ended.counts, strict=True) if count)
        dismantle(ended)

    with mock.patch.object(machine.Machine, "dismantle", noted):
        assert not notice(kernel, variant, text, problems, (1,)), variant.symbol
    return lines


def between_writes_and_their_reader(lines, place):
    """Whether the last that happens before a bar.warp.sync is a write to shared memory, and the next thing hands it on."""
    before = next((line for line in reversed(lines[: place - 1]) if re.search(r"\s(st|ld|cp|bar|mbarrier|tcgen05|wgmma)\.|\$L", line)), "")
    behind = next((line for line in lines[place:] if re.search(r"\s(st|ld|cp|bar|mbarrier|tcgen05|wgmma)\.", line)), "")
    return "st.shared" in before and bool(re.search(r"mbarrier\.arrive|cp\.async\.bulk|tcgen05\.(cp|mma)", behind))


def drawn(pattern, edit, kernels, each, rng):
    """(variant, number of the place, line, edited text, problems)"""
    order = sorted(CUBINS)
    rng.shuffle(order)
    for digest in order:
        kernel, variant = CUBINS[digest]
        text = TEXTS.of(variant, packaged.manifest)
        lines = text.splitlines()
        places = [number for number, line in enumerate(lines, 1) if re.match(rf"\s*(@!?[%\w]+\s+)?{pattern}", line)]
        if "warp" in pattern:
            places = [place for place in places if between_writes_and_their_reader(lines, place)]
        problems = small_problems(kernel, variant, text) if places else []
        if not problems:
            continue
        reached = executed(kernel, variant, text, problems)
        places = [place for place in places if place in reached]
        if not places:
            continue
        for place in rng.sample(places, min(each, len(places))):
            start = next(number for number, line in enumerate(lines) if re.search(rf"\.entry\s+{variant.symbol}\(", line))
            yield kernel, variant, place, mutate(text, variant.symbol, [edit(lambda _, at=place - 1 - start: [at])]), problems
        kernels -= 1
        if not kernels:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--kernels", type=int, default=10)
    parser.add_argument("--each", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for name, (pattern, edit) in KINDS.items():
        if not all(word in name for word in asked.words):
            continue
        noticed = total = 0
        for kernel, variant, place, text, problems in drawn(pattern, edit, asked.kernels, asked.each, random.Random(asked.seed)):
            how = notice(kernel, variant, text, problems, (1, 4))
            total, noticed = total + 1, noticed + bool(how)
            print(f"{name:20} {variant.arch} {variant.symbol:60} PTX line {place:6} {how or 'NOT NOTICED'}", flush=True)
        print(f"{name}: {noticed} of {total} noticed", flush=True)


if __name__ == "__main__":
    main()
