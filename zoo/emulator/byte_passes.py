"""Which bytes of its sources an instruction passes on to which bytes of its destination, or reads at all.

Compilers build words of bytes by prmt, shifts and masks, some of whose sources nobody ever wrote; only what is used in the end counts.
definedness.py asks for this where a register may be undefined, and for nothing else.
"""

from .parser import Address, Immediate, Register


def note(ins, sources, places):
    """Byte k of the destination is byte places[k] of sources[k]; of a source that is no register, or a place that is None, nothing."""
    destination = ins.statement.operands[0]
    if isinstance(destination, Register):
        _set(ins, [[(source, place)] for source, place in zip(sources, places)])


def of_logic(ins, table):
    """A function of up to three bits, by lop3's truth table. Literals may leave nothing of a register's byte."""
    sources = ins.statement.operands[1:4]
    count = (ins.register_bits(0) or 0) // 8
    _set(ins, [[(one, k) for place, one in enumerate(sources) if _matters(table, sources, 4 >> place, k)] for k in range(count)])


def _matters(table, sources, weight, byte):
    """Whether this byte of the result depends on the source whose bit has this weight in an index of the table."""
    literals = [(4 >> place, one.value) for place, one in enumerate(sources) if isinstance(one, Immediate)]
    return any(
        table >> index & 1 != table >> (index ^ weight) & 1
        for bit in range(8 * byte, 8 * byte + 8)
        for index in range(8)
        if all(bool(index & other) == bool(value >> bit & 1) for other, value in literals)
    )


def of_predicates(ins):
    """One of the two decides alone if it is false (and) or true (or)."""
    a, b = ins.statement.operands[1:3]
    if isinstance(a, Register) and isinstance(b, Register):
        _set(ins, [[(a, 0), (b, 0)]])
        if ins.mnemonic != "xor":
            ins.absorbs = (ins.mnemonic == "or", ins.read(a, "pred"), ins.read(b, "pred"))


def of_shift(ins, by, end, signed):
    """The destination's bit i is the source's bit i + by; from bit `end` on there is nothing, or copies of the bit before it."""
    source, count = ins.statement.operands[1], (ins.register_bits(0) or 0) // 8
    found = []
    for k in range(count):
        first, last = 8 * k + by, 8 * k + by + 7
        bytes_there = range(max(first, 0) // 8, (min(last, end - 1)) // 8 + 1) if last >= 0 and first < end else ()
        found.append([(source, byte) for byte in bytes_there])
        if signed and last >= end:
            found[k].append((source, (end - 1) // 8))
    _set(ins, found)


def of_integer_conversion(ins, source_bytes, source_signed, target_bytes, target_signed):
    """Cut off or extended to the target type, and that extended to the register."""
    source, found = ins.statement.operands[1], []
    for k in range((ins.register_bits(0) or 0) // 8):
        if k >= target_bytes:
            found.append(found[target_bytes - 1] if target_signed else [])
        elif k < source_bytes:
            found.append([(source, k)])
        else:
            found.append([(source, source_bytes - 1)] if source_signed else [])
    _set(ins, found)


_BITS_OF_A_PAIR = {
    "f16x2": 16, "bf16x2": 16, "e4m3x2": 8, "e5m2x2": 8, "e2m3x2": 8, "e3m2x2": 8, "ue8m0x2": 8, "e2m1x2": 4, "f32": 32,
}  # fmt: skip


def of_pairs(ins, target, source):
    """A conversion to or from two numbers in one register: the first f32 becomes the upper one."""
    bits = _BITS_OF_A_PAIR.get(target), _BITS_OF_A_PAIR.get(source)
    operands = ins.statement.operands[1:]
    numbers = 2 if source == "f32" else 1
    if None in bits or target == "f32" or len(operands) < numbers:
        return

    def bytes_of(operand):
        return range((ins.register_bits(operand) or 0) // 8)

    def places(operand, width, upper):
        part = range(1) if width == 4 else range(width // 8 * upper, width // 8 * (1 + upper))
        return [k for k in bytes_of(operand) if k in part]

    found = [[(operand, k) for operand in operands[numbers:] for k in bytes_of(operand)] for _ in bytes_of(0)]
    for upper in (0, 1):
        operand = operands[1 - upper] if numbers == 2 else operands[0]
        chosen = bytes_of(operand) if numbers == 2 else places(operand, bits[1], upper)
        for k in places(0, bits[0], upper):
            found[k] += [(operand, byte) for byte in chosen]
    _set(ins, found)


def of_parts(ins, size):
    """A register holds several numbers of `size` bytes. Each number of the result depends on the numbers at its place in the sources."""
    sources, count = ins.statement.operands[1:], (ins.register_bits(0) or 0) // 8
    _set(ins, [[(source, byte) for source in sources for byte in range(k // size * size, k // size * size + size)] for k in range(count)])


def read_low_bytes(ins, operands, count):
    """Of these operands the instruction reads `count` low bytes."""
    bases = [operand.base for operand in ins.statement.operands if isinstance(operand, Address)]
    for operand in operands:
        if isinstance(operand, Register) and operand not in bases:
            number, name, _ = ins.layout.place_of(operand)
            if ins.layout.unit_count[number] > count and name != "pred":
                ins.narrow[number] = count


def _set(ins, found):
    """found: for each byte of the destination its (operand, byte)s."""
    destination = ins.statement.operands[0]
    if not isinstance(destination, Register):
        return
    layout = ins.layout
    operands = [source for sources in found for source, _ in sources if isinstance(source, Register)]
    ins.passes = [
        (unit, [layout.units_of(source)[byte] for source, byte in sources if isinstance(source, Register)])
        for unit, sources in zip(layout.units_of(destination), found)
    ]
    ins.passed = frozenset(
        layout.place_of(operand)[0] for operand in (*operands, *ins.statement.operands[1:4]) if isinstance(operand, Register)
    )
