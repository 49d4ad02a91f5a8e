"""Edits of PTX text, by what an instruction says and what stands around it, never by line number.

A selector is a function (lines of one kernel's body) -> line indices. An edit is a function lines -> lines. Both are built by the
functions below, so that a mutant in the catalogue reads as a sentence:

    delete(first("fence.proxy.async"))
    change(every("mbarrier.init", anchored_to="..."), operand=1, add=1)

An edit that finds nothing to edit raises NothingToEdit: a mutant must never be the kernel itself.
"""

import re

INSTRUCTION = re.compile(r"^\s*(@!?[%\w]+\s+)?([a-z][\w.:]*)(\s+.*)?;\s*$")


class NothingToEdit(Exception):
    """The pattern is not in the kernel: the compiler writes it differently now, and the mutant must be adapted."""


def mutate(ptx, entry, edits):
    """The text with the edits applied to the body of one kernel."""
    lines = ptx.splitlines()
    start = next(i for i, line in enumerate(lines) if re.search(rf"\.entry\s+{entry}\(", line))
    stop = next(i for i in range(start, len(lines)) if lines[i].startswith("}"))
    body = lines[start : stop + 1]
    for edit in edits:
        edited = edit(body)
        if edited == body:
            raise NothingToEdit(f"{entry}: an edit left the text as it was")
        body = edited
    return "\n".join(lines[:start] + body + lines[stop + 1 :]) + "\n"


# ---- selectors --------------------------------------------------------------------------------------------------------------


def _matches(lines, pattern):
    """Lines whose instruction (after the guard) starts with `pattern`, a regular expression."""
    expression = re.compile(rf"^\s*(@!?[%\w]+\s+)?{pattern}")
    found = [i for i, line in enumerate(lines) if expression.search(line)]
    if not found:
        raise NothingToEdit(f"no instruction matches {pattern!r}")
    return found


def every(pattern):
    return lambda lines: _matches(lines, pattern)


def first(pattern, count=1):
    return lambda lines: _matches(lines, pattern)[:count]


def last(pattern):
    return lambda lines: _matches(lines, pattern)[-1:]


def nth(pattern, index):
    """The index-th match, counted from 0."""

    def select(lines):
        found = _matches(lines, pattern)
        if index >= len(found):
            raise NothingToEdit(f"{pattern!r} matches {len(found)} times, not {index + 1}")
        return [found[index]]

    return select


def before(pattern, anchor, anchor_index=0, back=1):
    """The last match (or the `back`-th last) before the given match of `anchor` (0: the first, -1: the last)."""

    def select(lines):
        limit = _matches(lines, anchor)[anchor_index]
        found = [i for i in _matches(lines, pattern) if i < limit]
        if len(found) < back:
            raise NothingToEdit(f"no {pattern!r} before {anchor!r}")
        return [found[-back]]

    return select


def after(pattern, anchor, anchor_index=-1):
    """The first match after the given match of `anchor` (0: the first, -1: the last)."""

    def select(lines):
        limit = _matches(lines, anchor)[anchor_index]
        found = [i for i in _matches(lines, pattern) if i > limit]
        if not found:
            raise NothingToEdit(f"no {pattern!r} after {anchor!r}")
        return found[:1]

    return select


def barrier_inits(object_name):
    """The mbarrier.init of one barrier or array of barriers, found by following its address register to the shared symbol."""

    def select(lines):
        registers = set()
        for line in lines:
            moved = re.match(r"\s*mov\.[bu]32\s+(%\w+), (\w+)(\+\d+)?;", line)
            if moved and re.search(rf"\d{object_name}$", moved[2]):
                registers.add(moved[1])
            added = re.match(r"\s*add\.s32\s+(%\w+), (%\w+), \d+;", line)
            if added and added[2] in registers:
                registers.add(added[1])
        found = [
            i for i in _matches(lines, r"mbarrier\.init")
            if re.search(r"\[(%?\w+)", lines[i])[1] in registers or re.search(rf"\[\w+\d{object_name}\b", lines[i])
        ]  # fmt: skip
        if not found:
            raise NothingToEdit(f"no mbarrier.init of {object_name!r}")
        return found

    return select


def inits_counting(count):
    """The mbarrier.init of the barriers that count so many arrivals."""

    def select(lines):
        values = {m[1]: int(m[2]) for line in lines if (m := re.match(r"\s*mov\.[bu]32\s+(%\w+), (\d+);", line))}
        found = []
        for i in _matches(lines, r"mbarrier\.init"):
            operand = re.search(r", (\S+);", lines[i])[1]
            if (int(operand) if operand.isdigit() else values.get(operand)) == count:
                found.append(i)
        if not found:
            raise NothingToEdit(f"no mbarrier.init with a count of {count}")
        return found

    return select


# ---- edits -------------------------------------------------------------------------------------------------------------------


def delete(selector):
    def edit(lines):
        chosen = set(selector(lines))
        return [f"\t// deleted: {line.strip()}" if i in chosen else line for i, line in enumerate(lines)]

    return edit


def substitute(selector, pattern, replacement):
    """Regular-expression substitution inside the selected instructions; every one of them must change."""

    def edit(lines):
        lines = list(lines)
        for i in selector(lines):
            changed = re.sub(pattern, replacement, lines[i], count=1)
            if changed == lines[i]:
                raise NothingToEdit(f"{pattern!r} is not in {lines[i].strip()!r}")
            lines[i] = changed
        return lines

    return edit


def declare(pattern, replacement):
    """Regular-expression substitution in the declarations (.shared, .reg...) at the kernel's head; exactly one line must match."""

    def edit(lines):
        found = [i for i, line in enumerate(lines) if line.lstrip().startswith(".") and re.search(pattern, line)]
        if len(found) != 1:
            raise NothingToEdit(f"{pattern!r} matches {len(found)} declarations")
        return [re.sub(pattern, replacement, line) if i == found[0] else line for i, line in enumerate(lines)]

    return edit


def duplicate(selector):
    def edit(lines):
        chosen = set(selector(lines))
        return [copy for i, line in enumerate(lines) for copy in ([line, line] if i in chosen else [line])]

    return edit


def move(selector, destination):
    """Takes the selected instruction out and puts it before the destination's first instruction."""

    def edit(lines):
        (source,) = selector(lines)
        target = destination(lines)[0]
        rest = [line for i, line in enumerate(lines) if i != source]
        rest.insert(target - (source < target), lines[source])
        return rest

    return edit


def skip_wait(selector):
    """Makes a loop around mbarrier.try_wait go on at once."""
    return substitute(selector, r"mbarrier\.try_wait\S* (\S+), .*;", r"setp.eq.u32 \1, 0, 0;")


def only_thread_zero(selector):
    """The instruction is executed by thread 0 of the CTA alone."""
    return _guarded(selector, "%tid.x")


def only_lane_zero(selector):
    """The instruction is executed by lane 0 of each warp alone."""
    return _guarded(selector, "%laneid")


def _guarded(selector, number):

    def edit(lines):
        chosen = set(selector(lines))
        result = []
        for i, line in enumerate(lines):
            if i in chosen:
                result += ["\t{", "\t.reg .pred %is_zero;", "\t.reg .b32 %number;", f"\tmov.u32 %number, {number};"]
                result += ["\tsetp.eq.u32 %is_zero, %number, 0;", f"\t@%is_zero {line.strip()}", "\t}"]
            else:
                result.append(line)
        return result

    return edit


def change(selector, operand, add=None, xor=None, to=None, type="b32"):
    """Changes one operand: an index, or a path into brackets such as (1, 1, 0) = operand 1, its second part, the first of that.

    A number is computed here; a register goes through a new one, so that its other uses do not change. `to` replaces the text.
    """
    path = operand if isinstance(operand, tuple) else (operand,)

    def edit(lines):
        lines = list(lines)
        for i in sorted(selector(lines), reverse=True):
            line = lines[i]
            start, stop = _operand_span(line, path)
            old = line[start:stop]
            with_offset = re.fullmatch(r"(%\w+)\+(-?\d+)", old)
            if with_offset and to is None:  # [register+number]: the register changes
                old, stop = with_offset[1], start + len(with_offset[1])
            if to is not None:
                lines[i] = line[:start] + str(to) + line[stop:]
            elif re.fullmatch(r"-?\d+", old):
                lines[i] = line[:start] + str(int(old) + add if add is not None else int(old) ^ xor) + line[stop:]
            else:
                arithmetic = (
                    f"add.{type.replace('b', 's')} %mutated, {old}, {add};" if add is not None else f"xor.{type} %mutated, {old}, {xor};"
                )
                lines[i : i + 1] = ["\t{", f"\t.reg .{type} %mutated;", "\t" + arithmetic, line[:start] + "%mutated" + line[stop:], "\t}"]
            if lines[i] == line:
                raise NothingToEdit(f"operand {operand} of {line.strip()!r} stays {old!r}")
        return lines

    return edit


def _operand_span(line, path):
    parts = INSTRUCTION.match(line)
    if not parts or parts[3] is None:
        raise NothingToEdit(f"not an instruction with operands: {line.strip()!r}")
    start, stop = parts.span(3)
    for depth, index in enumerate(path):
        if depth:
            start, stop = start + 1, stop - 1  # inside the brackets
        spans = _split(line, start, stop)
        if index >= len(spans):
            raise NothingToEdit(f"no operand {path} in {line.strip()!r}")
        start, stop = spans[index]
    return start, stop


def _split(line, start, stop):
    """Spans of the comma-separated parts at bracket depth 0, without surrounding blanks."""
    spans, depth, begin = [], 0, start
    for i in range(start, stop + 1):
        if i == stop or (line[i] == "," and depth == 0):
            text = line[begin:i]
            spans.append((begin + len(text) - len(text.lstrip()), i - (len(text) - len(text.rstrip()))))
            begin = i + 1
        elif line[i] in "[{":
            depth += 1
        elif line[i] in "]}":
            depth -= 1
    return spans
