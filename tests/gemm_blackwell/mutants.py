"""Deliberate bugs in the PTX of the block-scaled products, made mechanically: every kind at every place where it applies, drawn by seed.

    python -m tests.gemm_blackwell.mutants [--each 3] [--seed 0] [--jobs 1] [--of mxfp8 ...] [words of a kind, product or variant...]

prints the table of all that are drawn and exits with 1 when fewer than 97 % are found. A mutant is found when the emulator reports a
finding or a deadlock, or an element of D is not the reference's. The edits are those of the proof kernels' mutants. Without --of they are of
three dense products; PRODUCTS has the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "emulator" / "mutants"))

from mutant_edits import change, delete, duplicate, move, mutate, only_lane_zero, skip_wait, substitute

from tests.gemm_blackwell.flow import Flow
from tests.gemm_blackwell.which import CUBINS, ZOO
from zoo import checks
from zoo.checks import block_scaled_epilogues, emulated, gemm_swiglu
from zoo.checks.block_scaled import dense_problem, finishing_steps, random_operands
from zoo.checks.problem import POISONS, Problem, difference
from zoo.contract.expressions import Expression
from zoo.emulator import Device, machine
from zoo.emulator.device import Module
from zoo.errors import EmulationError
from zoo.reference.block_scaled_gemm import KINDS as KINDS_OF_FORMATS
from zoo.shipped.ptx import Texts

GOAL = 0.97
DENSE = ("mxfp8", "mxfp4", "nvfp4")
PRODUCTS = {
    **{formats: f"gemm.{formats}.dense" for formats in DENSE},
    "fp8b128": "gemm.fp8b128.m_grouped_contiguous.swiglu_fp8b128",
    "mxfp8_mxfp4 gather": "gemm.mxfp8_mxfp4.m_grouped_gather.swiglu_mxfp8",
    "nvfp4 gather": "gemm.nvfp4.m_grouped_gather.swiglu_nvfp4",
    "fp8b128 gather": "gemm.fp8b128.m_grouped_gather.swiglu_fp8b128",
}
INSTRUCTION_LIMIT = 600_000  # several times what the largest problem here takes: what never ends is a livelock

# instructions, as regular expressions
WAIT, EXPECT, INIT = r"mbarrier\.try_wait", r"mbarrier\.arrive\.expect_tx", r"mbarrier\.init"
ARRIVE = r"mbarrier\.arrive\.shared"
LOAD, COPY, MMA = r"cp\.async\.bulk\.tensor\.2d", r"tcgen05\.cp", r"tcgen05\.mma"
LOAD_TO_BOTH = r"cp\.async\.bulk\.tensor\.2d\S*multicast"
COMMIT, COMMIT_TO_BOTH = r"tcgen05\.commit", r"tcgen05\.commit\S*multicast"
ST, WAIT_ST = r"tcgen05\.st", r"tcgen05\.wait::st"
LD, WAIT_LD, ALLOC, DEALLOC = r"tcgen05\.ld", r"tcgen05\.wait::ld", r"tcgen05\.alloc", r"tcgen05\.dealloc"
CTA_BARRIER, CLUSTER_BARRIER = r"bar(rier)?\.sync", r"barrier\.cluster\.(arrive|wait)"
STORE, STORE_SHARED, READ = r"st\.global", r"st\.shared", r"ld\.global"
PREFETCH, GATHER = r"prefetch\.tensormap", r"cp\.async\.bulk\.tensor\.2d\S*gather4"
MMA_4_BITS, ARRIVE_IN_PAIR, READ_IN_CLUSTER = r"tcgen05\.mma\S*kind::mxf4", r"mbarrier\.arrive\S*\.shared::cluster", r"ld\.shared::cluster"
PROXY_FENCE, LAUNCH_AHEAD, ACQUIRE_FENCE = r"fence\.proxy\.async", r"griddepcontrol\.wait", r"fence\.acquire\.sync_restrict"
ASK, ANSWER = r"clusterlaunchcontrol\.try_cancel", r"@granted clusterlaunchcontrol\S*get_first_ctaid"
# what moves data or says so
OPERATIONS = "({})".format("|".join((WAIT, r"mbarrier\.arrive", LOAD, COPY, MMA, COMMIT, LD, STORE, STORE_SHARED, ASK, INIT)))

Edit = Callable[[list[str]], list[str]]
At = Callable[[list[str]], list[int]]


def renamed(pattern: str, replacement: str) -> Callable[[At], Edit]:
    return lambda at: substitute(at, pattern, replacement)


def operand(index: int | tuple[int, ...], **how: object) -> Callable[[At], Edit]:
    return lambda at: change(at, index, **how)


def earlier(before: str) -> Callable[[At], Edit]:
    """To the place before the last instruction of a kind ahead of it."""

    def made(at: At) -> Edit:
        def target(lines: list[str]) -> list[int]:
            return [[i for i in places(lines, before) if i < at(lines)[0]][-1]]

        return move(at, target)

    return made


def at_the_end(at: At) -> Edit:
    return move(at, lambda lines: places(lines, "ret;")[-1:])


def one_more(at: At) -> Edit:
    """The number that an instruction under a predicate gives."""

    def edit(lines: list[str]) -> list[str]:
        (i,) = at(lines)
        register = re.search(r"(%r\d+)", lines[i])
        return [*lines[: i + 1], f"\tadd.s32 {register[1]}, {register[1]}, 1;", *lines[i + 1 :]]

    return edit


# What is wrong: (where, how). In the operands of an instruction, (1, 0) is the first part inside the brackets of the second.
KINDS: dict[str, tuple[str, Callable[[At], Edit]]] = {
    "does not wait": (WAIT, skip_wait),
    "waits for the other phase": (WAIT, operand(2, xor=1)),
    "waits for the next barrier": (WAIT, operand((1, 0), add=8)),
    "does not arrive": (ARRIVE, delete),
    "arrives twice": (ARRIVE, duplicate),
    "does not commit": (COMMIT, delete),
    "commits twice": (COMMIT, duplicate),
    "commits to one CTA of the pair": (COMMIT_TO_BOTH, operand(1, xor=2, type="b16")),
    "commits to the other CTA of the pair alone": (COMMIT_TO_BOTH, operand(1, xor=1, type="b16")),
    "commits to the next barrier": (COMMIT, operand((0, 0), add=8)),
    "commits before the products": (COMMIT, earlier(MMA)),
    "expects 16 bytes too many": (EXPECT, operand(2, add=16)),
    "expects 16 bytes too few": (EXPECT, operand(2, add=-16)),
    "does not expect bytes": (EXPECT, delete),
    "a barrier counts one too many": (INIT, operand(1, add=1)),
    "a barrier counts two too many": (INIT, operand(1, add=2)),
    "a barrier is not initialised": (INIT, delete),
    "a box is not loaded": (LOAD, delete),
    "a box is loaded twice": (LOAD, duplicate),
    "a box from one row further on": (LOAD, operand((1, 1, 1), add=1)),
    "a box from 16 bytes or words further on": (LOAD, operand((1, 1, 0), add=16)),
    "a box to the next 1024 bytes": (LOAD, operand((0, 0), add=1024)),
    "a box counted by the next barrier": (LOAD, operand((2, 0), add=8)),
    "a box to one CTA of the pair": (LOAD_TO_BOTH, operand(3, xor=2, type="b16")),
    "a box to the other CTA of the pair alone": (LOAD_TO_BOTH, operand(3, xor=1, type="b16")),
    "scales are not copied": (COPY, delete),
    "scales are copied to the next column": (COPY, operand((0, 0), add=1)),
    "scales are copied from 16 bytes further on": (COPY, operand(1, add=1, type="b64")),
    "scales are copied with half the stride": (COPY, operand(1, xor=(8 ^ 4) << 32, type="b64")),
    "scales are copied after the product": (COPY, lambda at: move(at, lambda lines: [places(lines, COMMIT)[0]])),
    "a product is left out": (MMA, delete),
    "a product is added twice": (MMA, duplicate),
    "a product of A 32 bytes further on": (MMA, operand(1, add=2, type="b64")),
    "a product of B 32 bytes further on": (MMA, operand(2, add=2, type="b64")),
    "a product of A and B exchanged": (MMA, renamed(r"(\], )(%rd\d+), (%rd\d+)", r"\1\3, \2")),
    "a product without A's swizzle": (MMA, operand(1, xor=2 << 61, type="b64")),
    "a product with half of B's stride": (MMA, operand(2, xor=(64 ^ 32) << 32, type="b64")),
    "a product of another type of A": (MMA, operand(3, xor=1 << 7)),
    "a product of another type of B": (MMA, operand(3, xor=1 << 10)),
    "a product of another N": (MMA, operand(3, xor=1 << 18)),
    "a product of another M": (MMA, operand(3, xor=1 << 28)),
    "a product of another format of scales": (MMA, operand(3, xor=1 << 23)),
    "a product with A's scale of another step": (MMA, operand(3, xor=1 << 30)),
    "a product with B's scale of another step": (MMA, operand(3, xor=1 << 5)),
    "a product with A's scales of the next column": (MMA, operand((4, 0), add=1)),
    "a product with B's scales of the next column": (MMA, operand((5, 0), add=1)),
    "a product with the scales exchanged": (MMA, renamed(r"(\[%r\d+\]), (\[%r\d+\]), adds", r"\2, \1, adds")),
    "sums one column further on": (MMA, operand((0, 0), add=1)),
    "sums in the columns of the next tile": (MMA, operand((0, 0), add=128)),
    "a product that adds where it must not, or the other way round": (r"setp\.ne\.b32 adds", renamed("setp.ne", "setp.eq")),
    "sums are read one column further on": (LD, operand((1, 0), add=1)),
    "sums are read from the next lanes": (LD, operand((1, 0), add=1 << 16)),
    "sums are used before they are read": (WAIT_LD, delete),
    "results are not put back": (ST, delete),
    "results are put back one column further on": (ST, operand((0, 0), add=1)),
    "results are put back to the next lanes": (ST, operand((0, 0), add=1 << 16)),
    "results are used before they are put back": (WAIT_ST, delete),
    "half of tensor memory": (ALLOC, operand(1, to=256)),
    "tensor memory is not freed": (DEALLOC, delete),
    "half of tensor memory is freed": (DEALLOC, operand(1, to=256)),
    "tensor memory is freed before all have read": (DEALLOC, earlier(r"(bar(rier)?\.sync|barrier\.cluster\.arrive)")),
    "half of a cluster's barrier": (CLUSTER_BARRIER, delete),
    "no barrier of the CTA": (CTA_BARRIER, delete),
    "an address in the other CTA": (r"mapa\.", operand(2, xor=1)),
    "does not ask for a tile": (ASK, delete),
    "asks for a tile twice": (ASK, duplicate),
    "takes the tile after the one it got": (ANSWER, one_more),
    "all lanes do what one is to do": (r"elect\.sync", renamed(r"elect\.sync _\|one, \S+;", "setp.eq.u32 one, 0, 0;")),
    "a number is read 16 bytes further on": (READ, operand((1, 0), add=16, type="b64")),
    "elements are not stored": (STORE, delete),
    "elements are stored 16 bytes further on": (STORE, operand((0, 0), add=16, type="b64")),
    "sums or scales are not laid down": (STORE_SHARED, delete),
    "rounds towards zero": (r"cvt\.rn\.(bf16x2|f16x2)\.f32", renamed(r"cvt\.rn", "cvt.rz")),
    "a factor is left out": (r"mul\.rn\.f32", renamed(r"mul\.rn\.f32\s+(\S+), (\S+), \S+;", r"mov.b32 \1, \2;")),
    "a summand is left out": (r"add\.rn\.f32", renamed(r"add\.rn\.f32\s+(\S+), (\S+), \S+;", r"mov.b32 \1, \2;")),
    # what the manual forbids, and a GPU may let pass
    "a reserved bit of the instruction descriptor": (MMA, operand(3, xor=1 << 3)),
    "bit 12 of the instruction descriptor of 4-bit elements": (MMA_4_BITS, operand(3, xor=1 << 12)),
    "a reserved bit of A's descriptor": (MMA, operand(1, xor=1 << 53, type="b64")),
    "a product with A's scales of the next lane": (MMA, operand((4, 0), add=1 << 16)),
    "scales are copied to the next lane": (COPY, operand((0, 0), add=1 << 16)),
    "does not wait for the launch ahead": (LAUNCH_AHEAD, delete),
    "waits for the launch ahead at the end": (LAUNCH_AHEAD, at_the_end),
    "no proxy fence": (PROXY_FENCE, delete),
    "a proxy fence by one lane": (PROXY_FENCE, only_lane_zero),
    "no fence behind a relaxed wait": (ACQUIRE_FENCE, delete),
    "an arrival released to its own CTA": (r"mbarrier\.arrive\.shared::cluster", renamed(r"arrive\.shared", "arrive.release.cta.shared")),
    "an arrival that names its own CTA": (ARRIVE_IN_PAIR, renamed("shared::cluster", "shared::cta")),
    "a read that names its own CTA": (READ_IN_CLUSTER, renamed("shared::cluster", "shared::cta")),
    "fetches a tensor map 64 bytes further on": (PREFETCH, operand((0, 0), add=64, type="b64")),
    "gathers for a pair that is none": (GATHER, renamed(r"tensor\.2d\.", "tensor.2d.cta_group::2.")),
    "a box to a CTA that is not there": (LOAD_TO_BOTH, operand(3, xor=4, type="b16")),
    "commits to a CTA that is not there": (COMMIT_TO_BOTH, operand(1, xor=4, type="b16")),
    "a ring is one stage too short": (r"setp\.eq\.b32\s+%p\d+, %r\d+, [2-9];", operand(2, add=-1)),
}


def places(lines: list[str], pattern: str) -> list[int]:
    expression = re.compile(rf"^\s*(@!?[%\w]+\s+)?{pattern}")
    return [i for i, line in enumerate(lines) if expression.search(line)]


@dataclass(frozen=True)
class Mutant:
    product: str  # of PRODUCTS
    variant: str
    kind: str
    number: int  # of the place among all of the kernel's
    instruction: str

    @property
    def name(self) -> str:
        return f"{self.product} {self.variant}: {self.kind}, place {self.number}"

    def ptx(self) -> str:
        variant = variant_of(self.product, self.variant)
        pattern, made = KINDS[self.kind]
        return mutate(text_of(self.product, self.variant), variant.symbol, (made(lambda lines: [places(lines, pattern)[self.number]]),))


def kernel_of(product: str):
    return ZOO.kernel(PRODUCTS[product])


def variant_of(product: str, name: str):
    return next(variant for variant in kernel_of(product).variants if variant.name == name and variant.arch == "sm_100f")


@functools.cache
def text_of(product: str, variant: str) -> str:
    return Texts(Path(CUBINS)).of(variant_of(product, variant), ZOO.manifest)


@functools.cache
def flow_of(product: str, name: str) -> Flow:
    """The Flow of a variant, with the parameters that are equal in all launches."""
    variant = variant_of(product, name)
    values = [parameter.value for parameter in variant.launch.parameters]
    given = [value.evaluate({}) if isinstance(value, Expression) and not value.names else None for value in values]
    return Flow(text_of(product, name), variant.symbol, given)


def every_place(of: Sequence[str] = DENSE) -> dict[str, list[Mutant]]:
    found: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for product in of:
        for variant in (variant for variant in kernel_of(product).variants if variant.arch == "sm_100f"):
            lines = text_of(product, variant.name).splitlines()
            for kind, (pattern, _) in KINDS.items():
                for number, line in enumerate(places(lines, pattern)):
                    found[kind].append(Mutant(product, variant.name, kind, number, lines[line].strip()))
    return found


def drawn(seed: int, of: Sequence[str] = DENSE) -> Iterator[list[Mutant]]:
    """Of each kind all that there are, in an order of their own."""
    for kind, mutants in every_place(of).items():
        yield random.Random(f"{seed} {kind}").sample(mutants, len(mutants))


def reason_it_is_none(mutant: Mutant) -> str | None:
    """Why an edit leaves the kernel right, where it does."""
    lines = text_of(mutant.product, mutant.variant).splitlines()
    place = places(lines, KINDS[mutant.kind][0])[mutant.number]
    if in_a_loop_of_waits(lines, place):
        return (
            "at their end those who load wait until all stages are empty, so that no arrival is on its way to a CTA that has ended: "
            "those who store have then seen the commit of the same thread that comes after all of these"
        )
    if "elect.sync" in lines[place] and lines[next(i for i in places(lines, f"({OPERATIONS}|{PREFETCH})") if i > place)].count("prefetch"):
        return "a tensor map that is fetched ahead by all lanes is fetched ahead"
    factor = re.search(r"mul\.rn\.f32\s+\S+, \S+, (%r\d+);", lines[place])
    if factor and any(re.search(rf"mov\.b32\s+{factor[1]}, 0f3F800000;", line) for line in lines):
        return "a factor of 1 is left out"
    of_squares = reason_of_squares(mutant) if mutant.product.startswith("fp8b128") else None
    return of_squares or reason_of_the_warp_that_multiplies(lines, place) or reason_of_flow(mutant, place + 1)


def reason_of_flow(mutant: Mutant, line: int) -> str | None:
    """Why an edit has no effect in any launch, if Flow proves it."""
    if mutant.kind in ("a barrier counts one too many", "a barrier counts two too many", "a barrier is not initialised"):
        flow = flow_of(mutant.product, mutant.variant)
        return "no launch uses this barrier" if flow.nobody_uses(flow.at(line)) else None
    if mutant.kind == "does not arrive":
        flow = flow_of(mutant.product, mutant.variant)
        return "no launch waits for this barrier" if flow.nobody_waits_for(flow.at(line)) else None
    if mutant.kind == "no barrier of the CTA":
        flow = flow_of(mutant.product, mutant.variant)
        return "no access before the barrier meets one after it" if flow.orders_nothing(flow.at(line)) else None
    return None


def reason_of_the_warp_that_multiplies(lines: list[str], place: int) -> str | None:
    """Where weights may be loaded ahead, it has a wait of its own for the launch ahead. It reads answers, as others do."""
    waits, copies, commits = (places(lines, pattern) for pattern in (LAUNCH_AHEAD, COPY, COMMIT))
    if place in waits and len(waits) > 1 and next(i for i in places(lines, f"({LOAD}|{COPY})") if i > place) in copies:
        return "the warp that multiplies uses no global memory"
    if [i for i in places(lines, f"({COMMIT}|{LOAD}|{LD}|{STORE})") if i < place][-1:] != [i for i in commits if i < place][-1:]:
        return None
    if place in places(lines, ARRIVE_IN_PAIR):
        return "the warp that multiplies is in the CTA that asks for tiles"
    if place in places(lines, PROXY_FENCE) and any("ld.shared.b128" in line for line in lines[place - 16 : place]):
        return "a commit hands on what the warp that multiplies has read, and the warp that asks fences it with its own reads"
    return None


def reason_of_squares(mutant: Mutant) -> str | None:
    """Of scales for 128 x 128."""
    few = mutant.variant == "few128"
    copies = 2 if few else 3  # of a K block: the first is of MMA operand A
    if mutant.kind.endswith("scale of another step"):
        return "the four steps of a line have one scale"
    if mutant.kind == "scales are copied with half the stride" and (mutant.number % copies == 0) == few:
        return "weights that share a scale: all lines of their tile are the same 16 bytes"
    return None


def in_a_loop_of_waits(lines: list[str], place: int) -> bool:
    """Whether all that the loop around a place does that moves data or says so is one wait."""
    starts = [i for i in range(place) if '.pragma "nounroll"' in lines[i]]
    label = starts and re.match(r"(\$\w+):", lines[starts[-1] - 1])
    if not label:
        return False
    back = [i for i in range(place, len(lines)) if re.search(rf"\bbra(\.uni)? \t?{re.escape(label[1])};", lines[i])]
    inside = [i for i in places(lines, OPERATIONS) if back and starts[-1] < i < back[-1]]
    return len(inside) == 1 and inside[0] in places(lines, WAIT)


# K blocks of a deep problem, before a partial block. They make a CTA begin its second tile or product at stage 1 of the ring, in a later turn. A
# mutant that waits for the next barrier there waits for the sums of the first tile. Other problems end some stages after an odd number of turns: a
# mutant that waits for the other parity never ends there.
_DEEP = 12


@functools.cache
def problems(product: str, variant_name: str) -> list[Problem]:
    """Several tiles a CTA; more lines than stages, shared where that is done; all steps of finishing; all dtypes of D; whole and half
    steps of K; scales of a second tile of columns; weights that are constants, more and fewer lines than are loaded ahead."""
    kernel, variant = kernel_of(product), variant_of(product, variant_name)
    if "gather" in product:
        return problems_of_rows_through_an_index(kernel, variant)
    if product == "fp8b128":
        return problems_of_groups(kernel, variant)
    line = KINDS_OF_FORMATS[product].line
    steps, found = list(finishing_steps(130, 32)), []
    for M, N, K, dtype, finish, constant in (
        (130, 32, 224, "f32", steps[4], "no"),
        (4, 8, 8 * line + 32, "bf16", {}, "yes"),
        (130, 32, 64, "f16", steps[1], "no"),
        (20, 168, 2 * line, "bf16", {}, "no"),
        (257, 264, 32, "f16", {}, "yes"),
        (513, 8, 32, "bf16", {}, "no"),  # three tiles of 256 rows: an odd number of answers
    ):
        options = {"b_constant": constant}
        found.append(dense_problem(kernel, variant, f"{M} x {N} x {K}", random_operands(product, M, N, K), dtype, 1, finish, options))
    return found


def problems_of_groups(kernel, variant) -> list[Problem]:
    """Gates in both orders, ups with two scales in 128 rows, several tiles a CTA, ragged ends, and more K blocks than stages."""
    groups = (
        (9, 192, 16, (5, 0), "halves"),
        (131, 16, 48, (129, 1), "interleaved"),
        (25, 16, _DEEP * 128 + 16, (20, 2), "interleaved"),
        (40, 144, 144, (33,), "interleaved"),
        (3, 16, 4 * 128 + 16, (1, 2), "interleaved"),
    )
    runs = tuple((columns, K, ((0, sizes[0]), (-1, 1), (1, max(sizes[-1], 1))), gates) for _, columns, K, sizes, gates in groups)
    with mock.patch.multiple(gemm_swiglu, _GROUPS=groups, _RUNS=runs):
        made = list(gemm_swiglu.problems(kernel, variant))
    return made[: len(runs)] if variant.constants.get("INDEXED") else made[::2]


def problems_of_rows_through_an_index(kernel, variant) -> list[Problem]:
    """As problems of groups, with rows that take no row of x, and with an index of a NaN row in places that no group reads."""
    if kernel.fields["formats"] == "fp8b128":
        few_tiles, narrow, deep, *others = problems_of_groups(kernel, variant)
        with mock.patch.multiple(gemm_swiglu, _GROUPS=((131, 16, 48, (129, 1), "interleaved"),)):
            odd_rows = list(gemm_swiglu.problems(kernel, variant))[1:]
        return [_by_one_cta(few_tiles), narrow, _by_one_cta(deep), *others, *odd_rows]
    deep, deeper = (blocks * KINDS_OF_FORMATS[kernel.fields["formats"]].line + 32 for blocks in (_DEEP, 20))
    # 20 rows exceed the first 8 rows of a tile of scales, and so show a wrong stride.
    # With 128 columns, gates are in halves in odd turns of _ProblemsOfGroups.
    groups = (160, 96, (2, 0, 129), 2), (128, 32, (33, 2), 1), (128, deep, (20, 2), 0), (32, deeper, (20,), 0)
    with mock.patch.multiple(block_scaled_epilogues, _GROUPS=groups):
        made = list(checks.problems(kernel, variant))
    return [made[3], made[10], _by_one_cta(made[7]), made[2]]


def _by_one_cta(problem: Problem) -> Problem:
    """The problem on one multiprocessor, where one CTA of a persistent kernel computes all tiles."""
    return dataclasses.replace(problem, multiprocessors=1)


@functools.cache
def executed(product: str, variant_name: str) -> set[int]:
    """The lines of the kernel as it is that these problems execute."""
    lines: set[int] = set()
    dismantle = machine.Machine.dismantle

    def noted(ended: machine.Machine) -> None:
        lines.update(ins.line for ins, count in zip(ended.program.instructions, ended.counts, strict=False) if count and ins is not None)
        dismantle(ended)

    with mock.patch.object(machine.Machine, "dismantle", noted):
        verdict = verdict_on(product, variant_name, text_of(product, variant_name), schedules=(1,))
    assert not verdict.found_by, verdict.detail
    return lines


def is_reached(mutant: Mutant) -> bool:
    lines = text_of(mutant.product, mutant.variant).splitlines()
    return places(lines, KINDS[mutant.kind][0])[mutant.number] + 1 in executed(mutant.product, mutant.variant)


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    found_by: str  # the first words of the finding, "wrong bits", or "" when nothing noticed
    detail: str

    def __str__(self) -> str:
        return f"{self.mutant.name:90} {self.found_by or 'NOT FOUND: ' + self.mutant.instruction}"


class Edited:
    """A zoo whose one variant runs from another text."""

    def __init__(self, module: Module):
        self._module = module

    def prepare(self, name: str, **arguments):
        plan = ZOO.prepare(name, **arguments)
        plan._module = self._module
        return plan


def judge(mutant: Mutant) -> Verdict:
    return verdict_on(mutant.product, mutant.variant, mutant.ptx(), mutant)


def verdict_on(product: str, variant_name: str, ptx: str, mutant: Mutant | None = None, schedules: tuple[int, ...] = (1, 4)) -> Verdict:
    kernel, variant, module = kernel_of(product), variant_of(product, variant_name), Module(ptx)
    with mock.patch.object(emulated, "Device", functools.partial(Device, instruction_limit=INSTRUCTION_LIMIT)):
        for count in schedules:
            for problem in problems(product, variant_name):
                try:
                    wrong = difference(problem, kernel, variant, emulated.executor(Edited(module), count), POISONS[:1])
                except EmulationError as error:
                    finding = re.search(r"^  ([a-z-]+): ", str(error), re.MULTILINE)
                    return Verdict(mutant, finding[1] if finding else str(error).split(":")[-1].strip()[:60], str(error))
                if wrong:
                    return Verdict(mutant, "wrong bits", wrong)
    return Verdict(mutant, "", "no finding, no deadlock and the right bits")


def chosen(each: int, seed: int, words: Sequence[str] = (), of: Sequence[str] = DENSE) -> Iterator[Mutant]:
    """So many mutants of each kind, leaving out what is no mutant and what none of the problems executes."""
    for mutants in drawn(seed, of):
        named = (mutant for mutant in mutants if all(word in mutant.name for word in words))
        there = (mutant for mutant in named if reason_it_is_none(mutant) is None and is_reached(mutant))
        yield from itertools.islice(there, each)


def judged(each: int, seed: int, words: Sequence[str] = (), of: Sequence[str] = DENSE, jobs: int = 1) -> Iterator[Verdict]:
    if jobs == 1:
        yield from map(judge, chosen(each, seed, words, of))
    else:
        with ProcessPoolExecutor(jobs) as pool:
            yield from pool.map(judge, chosen(each, seed, words, of))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--each", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--of", nargs="+", default=DENSE)
    asked = parser.parse_args()
    verdicts = []
    for verdict in judged(asked.each, asked.seed, asked.words, asked.of, asked.jobs):
        verdicts.append(verdict)
        print(verdict, flush=True)
    found = [verdict for verdict in verdicts if verdict.found_by]
    kinds = len({verdict.mutant.kind for verdict in verdicts})
    print(f"{len(found)} of {len(verdicts)} mutants of {kinds} kinds found ({len(found) / max(1, len(verdicts)):.1%})")
    print(f"{sum(verdict.found_by == 'wrong bits' for verdict in found)} of them by their wrong bits alone")
    sys.exit(len(found) < GOAL * len(verdicts))


if __name__ == "__main__":
    main()
