"""Properties of all launches of a kernel, from its PTX: statements that a thread can reach, uses of mbarriers, accesses before and after a barrier.

mutants.py calls this to leave out edits without an effect. Where the analysis cannot decide, it assumes that the edit has an effect.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import eq, ge, gt, le, lt, ne

from zoo.emulator.parser import Address, Immediate, Label, Negated, PredicatePair, Register, Statement, Variable, Vector, parse

_BARRIERS = ("bar.sync", "barrier.sync", "barrier.cluster")
_MOST_VALUES = 3  # of a register that a search distinguishes: enough for a count to two
_MOST_STATES = 500_000  # after which a search gives up
_COMPARED = {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}
_FOLLOWED = ("mov", "add", "setp", "not", "and", "or", "selp", "ld.param")
# Statements that compute in registers, or that only synchronise lanes of a warp.
_COMPUTES = (
    "mov.", "add.", "sub.", "mul.", "mad.", "fma.", "neg.", "abs.", "min.", "max.", "rcp.", "ex2.", "div.", "rem.", "cvt.", "cvta.", "setp.",
    "selp.", "and.", "or.", "xor.", "not.", "shl.", "shr.", "shf.", "bfind.", "brev.", "prmt.", "bra", "ret", "shfl.sync", "vote.sync",
    "redux.sync", "elect.sync", "bar.warp.sync",
)  # fmt: skip
_READ_FIRST = ("bar.", "barrier.", "tcgen05.dealloc", "call")  # statements that write no register


class Flow:
    """The statements of one kernel, by index. `parameters`: for each parameter its value in every launch, or None if launches differ."""

    def __init__(self, ptx: str, symbol: str, parameters: Sequence[int | None]):
        function = parse(ptx).functions[symbol]
        self.statements: list[Statement] = function.statements
        if any(statement.opcode.startswith(("brx", "call")) for statement in self.statements):
            raise NotImplementedError(f"{symbol} branches to a place in a register, or calls a function")
        self._given = dict(zip(function.parameters, parameters, strict=True))
        self._of_line = {statement.line: i for i, statement in enumerate(self.statements)}
        self._written: dict[Register, list[int]] = {}
        self._used: dict[Register, list[int]] = {}
        for i, statement in enumerate(self.statements):
            for register in _written_by(statement):
                self._written.setdefault(register, []).append(i)
            for register in _read_by(statement):
                self._used.setdefault(register, []).append(i)

    def at(self, line: int) -> int:
        """The statement on a line of the text, counted from 1."""
        return self._of_line[line]

    # ---- barriers in shared memory
    def nobody_uses(self, init: int) -> bool:
        """Whether this statement initialises mbarriers whose addresses no other reachable statement has."""
        barriers = self._initialised_by(init)
        if barriers is None or self._adds_to_an_address:
            return False
        others = set(self._users(barriers)) - {init}
        return not others or not self.reached.intersection(others)

    def nobody_waits_for(self, arrival: int) -> bool:
        """Whether only initialisations and arrivals have the address of this mbarrier, among statements that a launch reaches."""
        added = self._added(arrival)
        found = (self._initialised_by(i) for i in self._of("mbarrier.init"))
        barriers = [one for one in found if one is not None and added in one]
        if len(barriers) != 1 or self._adds_to_an_address:
            return False
        allowed = "mbarrier.init", "mbarrier.arrive.shared"
        others = [i for i in self._users(barriers[0]) if not self.statements[i].opcode.startswith(allowed)]
        return not self.reached.intersection(others)

    def _of(self, opcode: str) -> list[int]:
        return [i for i, statement in enumerate(self.statements) if statement.opcode.startswith(opcode)]

    def _added(self, user: int) -> int | None:
        """The constant in the address of an mbarrier: the constant that the last addition adds."""
        (address,) = (operand for operand in self.statements[user].operands if isinstance(operand, Address))
        made = self._written.get(address.base, ())
        if len(made) != 1 or not self.statements[made[0]].opcode.startswith("add.s32"):
            return None
        number = self.statements[made[0]].operands[2]
        return number.value + address.offset if isinstance(number, Immediate) else None

    def _initialised_by(self, init: int) -> range | None:
        """The constants in the addresses that the lanes of a warp initialise. A branch around the statement skips it in higher lanes."""
        first = self._added(init)
        around = [i for i in range(init) if self._skips(i, init)]
        if first is None or not around:
            return None
        made = self._written[self.statements[around[-1]].guard]
        compared = self.statements[made[0]]
        if len(made) != 1 or compared.opcode != "setp.gt.u32" or not isinstance(compared.operands[2], Immediate):
            return None
        return range(first, first + 8 * (compared.operands[2].value + 1))

    def _skips(self, branch: int, over: int) -> bool:
        statement = self.statements[branch]
        return statement.opcode == "bra" and isinstance(statement.guard, Register) and statement.operands[0].position > over

    def _users(self, addresses: range) -> Iterator[int]:
        """Statements that have one of these addresses, in an operand or in a register from an addition."""
        for i, statement in enumerate(self.statements):
            if not any(number in addresses for number in _numbers_of(statement.operands)):
                continue
            if statement.opcode.startswith("add.s32"):
                yield from self._used.get(statement.operands[0], ())
            else:
                yield i

    @functools.cached_property
    def _adds_to_an_address(self) -> bool:
        """Whether anything is computed from the address of an mbarrier: the result may be the address of another mbarrier."""
        ranges = [self._initialised_by(i) for i in self._of("mbarrier.init")]
        if None in ranges:
            return True
        left = [
            statement.operands[0]
            for statement in self.statements
            if statement.opcode.startswith("add.s32") and any(number in one for number in _numbers_of(statement.operands) for one in ranges)
        ]
        found: set[Register] = set()
        while left:
            register = left.pop()
            if register in found:
                continue
            found.add(register)
            for statement in map(self.statements.__getitem__, self._used.get(register, ())):
                if statement.opcode.startswith("mov."):
                    left.append(statement.operands[0])
                elif register in statement.operands:
                    return True
        return False

    # ---- a barrier of the CTA
    def orders_nothing(self, barrier: int) -> bool:
        """Whether no access between the previous barriers and this barrier conflicts with an access after this barrier.

        Allowed before: loads, and stores to global memory. Allowed after: loads from shared memory, and deallocation of tensor memory.
        """
        if len(self.statements[barrier].operands) != 1 or barrier in self._onwards([barrier]):
            return False
        before, after = self._back_to_barriers(barrier), self._onwards([barrier])
        incomplete = (self._onwards(self._of(f"tcgen05.{name}"), f"tcgen05.wait::{name}") for name in ("ld", "st"))
        return (
            before is not None
            and self._touch_only(before, "ld.param", "ld.global", "ld.shared.", "st.global", "tcgen05.fence")
            and self._touch_only(after, "ld.param", "ld.shared.", "tcgen05.fence", "tcgen05.dealloc")
            and not any(_is_barrier(self.statements[i]) for i in set().union(*incomplete))
        )

    def _touch_only(self, statements: Iterable[int], *allowed: str) -> bool:
        opcodes = {self.statements[i].opcode for i in statements}
        return all(opcode.startswith((*_COMPUTES, *allowed)) and "::cluster" not in opcode for opcode in opcodes)

    def _onwards(self, starts: Iterable[int], until: str = "") -> set[int]:
        """The statements that may run after these statements, up to statements of the opcode `until`."""
        found: set[int] = set()
        left = [following for i in starts for following in self._following(i)]
        while left:
            i = left.pop()
            if i not in found:
                found.add(i)
                left += [] if until and self.statements[i].opcode.startswith(until) else self._following(i)
        return found

    def _back_to_barriers(self, barrier: int) -> set[int] | None:
        """The statements that may run between other barriers and this barrier. None if a path from the kernel's start has no other barrier."""
        found: set[int] = set()
        left = [*self._preceding[barrier]]
        while left:
            i = left.pop()
            if i not in found and not _is_barrier(self.statements[i]):
                found.add(i)
                left += self._preceding[i]
        return None if 0 in found else found

    # ---- where threads go
    def _following(self, i: int) -> list[int]:
        statement = self.statements[i]
        onwards = [i + 1] if i + 1 < len(self.statements) else []
        if statement.opcode.startswith("bra"):
            target = [statement.operands[0].position]
        elif statement.opcode.startswith(("ret", "exit", "trap")):
            target = []
        else:
            return onwards
        return target + onwards if statement.guard is not None else target

    @functools.cached_property
    def _preceding(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.statements]
        for i in range(len(self.statements)):
            for following in self._following(i):
                found[following].append(i)
        return found

    @functools.cached_property
    def reached(self) -> set[int]:
        """The statements that a thread may reach in some launch. A branch goes both ways, unless its condition follows from constants."""
        tracked = self._conditions()
        while True:
            found, excess = self._search(tracked)
            if not excess:
                return found
            tracked -= excess

    def _conditions(self) -> set[Register]:
        """Registers that decide branches, directly or through the operations in _FOLLOWED."""
        left = [register for one in self.statements if one.opcode == "bra" for register in _registers(one.guard)]
        found: set[Register] = set()
        while left:
            register = left.pop()
            if register not in found:
                found.add(register)
                made = (self.statements[i] for i in self._written.get(register, ()))
                left += [source for one in made if one.opcode.startswith(_FOLLOWED) for source in _read_by(one)]
        return found

    def _search(self, tracked: set[Register]) -> tuple[set[int], set[Register]]:
        """(statements reached, registers with too many values). A state is a statement and the values of all tracked registers."""
        seen: set[tuple[int, frozenset]] = set()
        values: dict[Register, set[int]] = {}
        left: list[tuple[int, frozenset]] = [(0, frozenset())]
        while left:
            state = left.pop()
            if state in seen:
                continue
            seen.add(state)
            if len(seen) > _MOST_STATES:
                return set(range(len(self.statements))), set()
            i, known = state
            statement, registers = self.statements[i], dict(known)
            for register in _written_by(statement):
                value = self._value(statement, registers) if statement.guard is None else None
                registers.pop(register, None)
                if value is not None and register in tracked:
                    registers[register] = value
                    values.setdefault(register, set()).add(value)
                    if len(values[register]) > _MOST_VALUES:
                        return set(), {register}
            onwards = frozenset((register, value) for register, value in registers.items() if register in self._live[i])
            left += [(following, onwards) for following in self._taken(i, registers)]
        return {i for i, _ in seen}, set()

    def _taken(self, i: int, known: Mapping[Register, int]) -> list[int]:
        guard = self.statements[i].guard
        value = None if guard is None or self.statements[i].opcode != "bra" else _of(guard, known)
        if value is None:
            return self._following(i)
        return [self.statements[i].operands[0].position] if value else [i + 1]

    def _value(self, statement: Statement, known: Mapping[Register, int]) -> int | None:
        """The value that the statement writes, or None if it does not follow from constants."""
        root, *rest = statement.opcode.split(".")
        if not isinstance(statement.operands[0], Register):
            return None
        if statement.opcode.startswith("ld.param."):
            address = statement.operands[1]
            return self._given.get(address.base) if address.offset == 0 else None
        if root not in _FOLLOWED or (root == "setp" and (len(rest) != 2 or rest[1] not in ("s32", "b32"))):
            return None
        sources = [_of(operand, known) for operand in statement.operands[1:]]
        if root == "selp":
            return None if sources[2] is None else sources[0 if sources[2] else 1]
        if root in ("and", "or") and rest == ["pred"] and (root == "or") in sources:
            return int(root == "or")
        if None in sources:
            return None
        if root == "mov":
            return sources[0]
        if root == "add" and rest == ["s32"]:
            return _signed(sources[0] + sources[1])
        if root == "setp" and rest[0] in _COMPARED:
            return int(_COMPARED[rest[0]](*sources))
        if rest == ["pred"]:
            return int({"not": lambda: not sources[0], "and": lambda: all(sources), "or": lambda: any(sources)}[root]())
        return None

    @functools.cached_property
    def _live(self) -> list[frozenset[Register]]:
        """For each statement the registers of conditions that some path after it reads before it writes them."""
        conditions = self._conditions()
        before: list[set[Register]] = [set() for _ in self.statements]
        behind: list[set[Register]] = [set() for _ in self.statements]
        left = list(range(len(self.statements)))
        while left:
            i = left.pop()
            statement = self.statements[i]
            behind[i] = set().union(*(before[following] for following in self._following(i)))
            written = set(_written_by(statement)) if statement.guard is None else set()
            now = behind[i] - written | conditions.intersection(_read_by(statement))
            if now != before[i]:
                before[i] = now
                left += self._preceding[i]
        return [frozenset(one) for one in behind]


def _is_barrier(statement: Statement) -> bool:
    """Whether the statement is a barrier of the CTA or of the cluster."""
    return statement.opcode.startswith(_BARRIERS)


def _signed(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _of(operand: object, known: Mapping[Register, int]) -> int | None:
    if isinstance(operand, Negated):
        value = known.get(operand.operand)
        return None if value is None else 1 - value
    if isinstance(operand, Immediate):
        return _signed(operand.value) if operand.form == "int" else None
    return known.get(operand) if isinstance(operand, Register) else None


def _parts(operand: object) -> Iterator[object]:
    """An operand, its parts, and their parts."""
    yield operand
    if isinstance(operand, (list, tuple)):
        parts = operand
    elif isinstance(operand, (Register, Immediate, Variable, Label)):
        parts = ()
    else:
        parts = [getattr(operand, name) for name in getattr(operand, "__slots__", ())]
    for part in parts:
        yield from _parts(part)


def _registers(*operands: object) -> Iterator[Register]:
    return (part for operand in operands for part in _parts(operand) if isinstance(part, Register))


def _numbers_of(operands: Iterable[object]) -> Iterator[int]:
    for operand in operands:
        for part in _parts(operand):
            if isinstance(part, Immediate):
                yield part.value
            elif isinstance(part, Address):
                yield part.offset


def _written_by(statement: Statement) -> Iterator[Register]:
    if statement.operands and not statement.opcode.startswith(_READ_FIRST):
        first = statement.operands[0]
        if isinstance(first, (Register, Vector, PredicatePair)):
            yield from _registers(first)


def _read_by(statement: Statement) -> Iterator[Register]:
    yield from _registers(statement.guard, *statement.operands[0 if _reads_first(statement) else 1 :])


def _reads_first(statement: Statement) -> bool:
    return next(_written_by(statement), None) is None
