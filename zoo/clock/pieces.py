"""How long a warp takes for instructions that follow each other without a jump or an event.

A piece takes as long as its longest chain of dependent instructions, or as its fullest pipe. ptxas orders instructions, so their order in PTX
counts for nothing. A register that a load from global memory fills may be used pieces later; `effects` say which these are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.clock.chip import PARTITIONS, Chip
from zoo.emulator.parser import Address, Negated, PredicatePair, Register, TensorAddress, Vector

_FLOAT = re.compile(r"(add|sub|mul|fma|mad|neg|abs)\b.*\.(f32|f16|bf16|f16x2|bf16x2|f32x2)\b")
_SPECIAL = ("ex2", "rcp", "rsqrt", "sqrt", "lg2", "tanh", "sin", "cos", "div")
_SHUFFLES = ("shfl", "vote", "match", "redux", "activemask", "elect")
_FREE = ("mov", "cvta", "ret", "exit", "pragma", "nop")
_LOGIC = ("and", "or", "xor", "not")  # ptxas makes one instruction of two with at most three operands
_ON_FLOAT_PIPES = ("add", "sub", "mul", "mad", "shl", "neg", "abs")  # of whole numbers: ptxas spreads them over both kinds of pipes
_SHARED = ("ld", "st", "atom", "red", "ldmatrix", "stmatrix")
_WIDTH = re.compile(r"\.v(\d)\b|\.x(\d)\b")
_BITS = re.compile(r"\.[busf](8|16|32|64|128)\b")
_MEMORY_FENCE = re.compile(r"membar\.(gl|sys)|fence\.(sc|acq_rel)\.(gpu|sys)|mbarrier\.arrive\S*\.release\.cluster")
_WIDE = re.compile(r"\.[busf]64$")  # whole numbers of 64 bits are two of 32
# Instructions whose first operand is no result.
_WITHOUT_RESULT = (
    "st", "bra", "red", "fence", "membar", "bar", "barrier", "mbarrier", "cp", "prefetch", "wgmma", "tcgen05", "setmaxnreg", "stmatrix",
)  # fmt: skip
_OPERANDS_OF_LOGIC = 3

Number = int  # of a register


@dataclass(frozen=True)
class Piece:
    slots: float  # cycles of the fullest pipe
    cycles: float  # of the longest chain
    effects: tuple[tuple[str, Number, float], ...]  # ("load", register, when), ("need", register, when) or ("copy", to, from)


class Pieces:
    """The pieces of a program, each computed when it is first asked for."""

    def __init__(self, instructions: Sequence[Any], chip: Chip):
        self._chip = chip
        self._instructions = [_Read(ins, chip) for ins in instructions]
        _fuse(self._instructions)
        self._slow = _slow_registers(self._instructions)
        self._known: dict[tuple[int, int], Piece] = {}

    def between(self, first: int, last: int) -> Piece:
        found = self._known.get((first, last))
        if found is None:
            found = self._known[first, last] = self._piece(self._instructions[first : last + 1])
        return found

    def _piece(self, instructions: Sequence[_Read]) -> Piece:
        ready: dict[Number, float] = {}
        pipes: dict[str, float] = {}
        effects: list[tuple[str, Number, float]] = []
        issued = cycles = fences = 0.0
        for one in instructions:
            at = max((ready.get(register, 0.0) for register in one.sources), default=0.0)
            effects += [("need", register, at) for register in one.sources if register in self._slow and not one.free]
            if one.free:
                effects += [("copy", to, source) for to, source in zip(one.results, one.sources, strict=False) if source in self._slow]
            else:
                issued += 1
                pipes[one.pipe] = pipes.get(one.pipe, 0.0) + one.slots
                cycles = max(cycles, at + 1)
                fences += one.fence
            for register in one.results:
                ready[register] = at + one.latency
                if one.slow:
                    effects.append(("load", register, at))
        pipes["float"] = pipes.get("float", 0.0) + pipes.get("multiply", 0.0) / 2  # a whole number takes one of the two halves
        slots = max(issued, *pipes.values()) * self._chip.issue
        return Piece(slots, max(slots, cycles) + fences, tuple(effects))


class _Read:
    """What the clock looks at of an instruction."""

    def __init__(self, ins: Any, chip: Chip):
        opcode: str = ins.opcode
        mnemonic = opcode.partition(".")[0]
        self.free = mnemonic in _FREE or opcode.startswith(("ld.param", "cvt.u64.u32", "cvt.s64.s32", "cvt.u32.u64"))
        self.slow = mnemonic in ("ld", "atom") and ".global" in opcode
        self.logic = mnemonic in _LOGIC and opcode.endswith("b32")
        self.pipe, self.latency = "multiply" if mnemonic in _ON_FLOAT_PIPES else "logic", chip.arithmetic_latency
        self.slots = chip.integer_slots * (2 if _WIDE.search(opcode) else 1)
        if self.free:
            self.latency = 0.0
        elif _FLOAT.match(opcode):
            self.pipe, self.slots = "float", chip.float_slots
        elif mnemonic in _SPECIAL:
            self.pipe, self.slots, self.latency = "special", chip.special_slots, chip.arithmetic_latency + chip.special_slots
        elif mnemonic in _SHUFFLES:
            self.pipe, self.slots, self.latency = "shared", chip.shuffle_slots, chip.shared_latency
        elif mnemonic in _SHARED:
            self.pipe, self.slots = "shared", 32 * _bytes(opcode) * PARTITIONS / chip.shared_rate
            self.latency = chip.l2_latency if self.slow else chip.shared_latency
        elif mnemonic in ("wgmma", "tcgen05", "mbarrier", "cp", "bra", "bar", "barrier", "fence"):
            self.pipe, self.slots = "control", 1.0
        self.fence = chip.memory_fence if _MEMORY_FENCE.match(opcode) else 0.0
        if opcode.startswith("fence.proxy.async"):
            self.fence = chip.proxy_fence
        operands = ins.statement.operands
        registers = [list(_registers(operand)) for operand in operands]
        has_result = bool(operands) and mnemonic not in _WITHOUT_RESULT and not isinstance(operands[0], Address)
        self.results: list[Number] = registers[0] if has_result else []
        self.sources: list[Number] = [one for group in registers[has_result:] for one in group]
        self.inputs = len(operands) - 1
        if ins.statement.guard is not None:
            self.sources += _registers(ins.statement.guard)


def _bytes(opcode: str) -> int:
    """Of a lane's access."""
    width, bits = _WIDTH.search(opcode), _BITS.search(opcode)
    count = int(width[1] or width[2]) if width else 1
    return max(count * (int(bits[1]) if bits and "matrix" not in opcode else 32) // 8, 4)


def _registers(operand: Any) -> Iterator[Number]:
    if isinstance(operand, Register):
        yield id(operand)
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from _registers(item)
    elif isinstance(operand, Address):
        yield from _registers(operand.base)
    elif isinstance(operand, Negated):
        yield from _registers(operand.operand)
    elif isinstance(operand, PredicatePair):
        yield from (*_registers(operand.first), *_registers(operand.second))
    elif isinstance(operand, TensorAddress):
        yield from (*_registers(operand.map), *_registers(operand.coordinates))


def _fuse(instructions: Sequence[_Read]) -> None:
    """Makes a logical instruction free whose result only another one reads, where both together read at most three operands."""
    uses = Counter(register for one in instructions for register in one.sources)
    made = {one.results[0]: one for one in instructions if one.logic and len(one.results) == 1}
    for one in instructions:
        for register in one.sources if one.logic else ():
            earlier = made.get(register)
            if earlier is not None and uses[register] == 1 and one.inputs - 1 + earlier.inputs <= _OPERANDS_OF_LOGIC:
                one.inputs += earlier.inputs - 1
                earlier.free = True


def _slow_registers(instructions: Sequence[_Read]) -> set[Number]:
    """Registers that loads from global memory fill, and those that moves copy these to."""
    slow = {register for one in instructions if one.slow for register in one.results}
    moves = [(one.results, one.sources) for one in instructions if one.free and one.results]
    while True:
        more = {to for results, sources in moves for to, source in zip(results, sources, strict=False) if source in slow} - slow
        if not more:
            return slow
        slow |= more
