"""tcgen05.mma: D = A * B^T (+ D) for a CTA or a pair of CTAs, D in tensor memory, B in shared memory, A in either.

One thread issues it, the tensor core executes it later, in order of issue.  With cta_group::2 the even CTA of the pair holds the first half of
the rows of A, of D and of B, the odd CTA the second; the scales of B must be complete in both.
`.sp`: A is sparse (sparsity.py), K is twice as deep, and metadata lies in tensor memory. `.ws`: M may be 32, and columns of B may count as zero.
"""

import functools

import numpy as np

from .. import arithmetic, descriptors, number_formats, sparsity
from ..asynchronous import Operation
from ..errors import EmulatorError
from ..lanes import first_lane
from ..parser import Address, Vector
from ..tensor_memory import ALL_LANES, LANES_OF_A_PART, PARTS, Access
from . import instruction
from .ldmatrix import decompress_4, decompress_6
from .mma_sync import codes_of, integers_of, nibbles
from .tcgen05 import core_of, cta_group, ctas_of, lane_and_column, need_one_lane, uncommitted
from .wgmma import chunk_words, read_chunks

# The scales of A begin at a multiple of four columns. CUTLASS and Triton shift those of B by the two columns of 64 rows.
_STEPS = {"A": 4, "B": 2}


@instruction("tcgen05.mma", "tcgen05.mma.sp", "tcgen05.mma.ws", "tcgen05.mma.ws.sp")
def mma(ins):
    sparse, stationary = (name in ins.opcode.split(".cta_group")[0] for name in (".sp", ".ws"))
    group = cta_group(ins)
    kind = ins.pattern(r"kind::(\w+)").group(1)
    if kind not in descriptors.KINDS:
        ins.unsupported(f"kind::{kind} is not covered")
    scaled = ins.flag("block_scale")
    if scaled != (kind in descriptors.BLOCK_SCALED):
        ins.unsupported(f"kind::{kind} {'does not take' if scaled else 'needs'} .block_scale")
    vector = _scale_vector(ins, kind) if scaled else None
    # a hint: the source must stay unchanged either way
    ins.pattern(rf"collector::{'b[0-3]' if stationary else 'a'}(::(fill|use|lastuse|discard))?", required=False)
    if stationary and (scaled or group == 2):
        ins.unsupported("tcgen05.mma.ws exists for cta_group::1 without block scales")
    if ins.flag("ashift"):
        ins.unsupported(".ashift is not covered: the manual does not say whether the product reads A before or after the shift")
    has_96 = kind in ("mxf4", "mxf4nvf4") and ins.program.target.startswith("sm_103")
    d_address = ins.address(0)
    a_in_tensor_memory = isinstance(ins.operands[1], Address)
    a_address = ins.address(1) if a_in_tensor_memory else None
    a_slot = None if a_in_tensor_memory else ins.read(1, "u64")
    b_slot = ins.read(2, "u64")
    metadata = ins.address(3) if sparse else None
    k = 4 if sparse else 3
    i_slot = ins.read(k, "u32")
    k += 1
    disable = None
    scale_a = scale_b = None
    if scaled:
        scale_a, scale_b = ins.address(k), ins.address(k + 1)
        k += 2
    elif isinstance(ins.operands[k], Vector) and not stationary:
        disable = ins.read_list(k, "u32")
        if len(disable) != 4 * group:
            ins.unsupported(f"disable-output-lane needs {4 * group} words")
        k += 1
    enable = ins.read(k, "pred")
    shrink = 0
    zero_mask = ins.read(k + 1, "u64") if stationary and ins.has_operand(k + 1) else None
    if not stationary and ins.has_operand(k + 1):
        shrink = getattr(ins.operands[k + 1], "value", None)
        if scaled or kind not in ("f16", "tf32") or shrink is None or not 0 <= shrink <= 15:
            ins.unsupported("scale-input-d is an immediate 0..15 of kind::f16 and kind::tf32")
    ins.expect_operands(k + 1, k + 2)

    def run(warp, lanes):
        need_one_lane(ins, warp, lanes)
        lane = first_lane(lanes)
        bits = int(warp.values[i_slot][lane])
        if has_96 and bits >> 31:
            raise EmulatorError("K = 96 is not covered: the manual shows only in pictures where the scales of 96 elements lie")
        what = descriptors.decode_instruction(bits, kind, group, vector, sparse, stationary)
        for problem in what.problems:
            ins.report(warp, lanes, "invalid-descriptor", f"instruction descriptor {bits:#010x}: {problem}")
        ctas = ctas_of(ins, warp, lanes, group)
        if what.problems or ctas is None:
            return
        accumulate = bool(warp.values[enable][lane])
        d_lane, d_column = lane_and_column(int(d_address(warp)[lane]))
        half_of_lanes = not stationary and what.m // group == 64 and (group == 1 or sparse)
        layout = _result_layout(what.m // group, what.n, half_of_lanes, d_lane)
        if layout is None:
            ins.report(
                warp,
                lanes,
                "tensor-memory-misuse",
                f"D at lane {d_lane}: M = {what.m} must start at lane {'0 or 16' if half_of_lanes else '0'}",
            )
            return
        access = Access(ins, warp, lanes, "mma")
        order = _UseList(ins, warp, lanes, access)
        rows, columns, width = layout
        parts_of_d = slice(d_lane // LANES_OF_A_PART, PARTS, 2) if half_of_lanes else ALL_LANES
        for cta in ctas:
            if not order.add(cta.tensor_memory, d_column, width, reads=accumulate, writes=True, what="D occupies", parts=parts_of_d):
                return
        reads, garbage_a, garbage_b = [], [], []  # which rows hold bytes that nobody wrote, of each CTA
        half = 1 if group == 1 else 2
        a_rows_each, b_rows_each = what.m // half, what.n // half
        a_chunks = b_chunks = None
        element = _element_bytes(what.a)
        if a_in_tensor_memory:
            _a_lane, a_column = lane_and_column(int(a_address(warp)[lane]))
            a_width = what.k // (2 if sparse else 1) * _element_bits_in_memory(what) // 32
            if stationary and what.m < 128:
                raise EmulatorError(
                    "A of fewer than 128 rows in tensor memory is not covered with .ws: the manual does not say in which lanes it lies"
                )
            if what.a_mn_major:
                ins.report(warp, lanes, "invalid-descriptor", "A in tensor memory cannot be transposed")
                return
            for cta in ctas:
                if not order.add(cta.tensor_memory, a_column, a_width, reads=True, writes=False, what="A occupies", parts=parts_of_d):
                    return
        else:
            depth = what.k // (2 if sparse else 1)
            a_chunks = _operand_chunks(
                ins, warp, lanes, int(warp.values[a_slot][lane]), "A", a_rows_each, depth, 32, what.a_mn_major, element
            )
            for cta in ctas:
                if not _check_operand(ins, warp, lanes, cta, a_chunks, what.a, kind, a_rows_each, what.a_mn_major, garbage_a):
                    return
                reads.append((cta, a_chunks))
        b_chunks = _operand_chunks(
            ins, warp, lanes, int(warp.values[b_slot][lane]), "B", b_rows_each, what.k, 64 if sparse else 32, what.b_mn_major,
            _element_bytes(what.b),
        )  # fmt: skip
        for cta in ctas:
            if not _check_operand(ins, warp, lanes, cta, b_chunks, what.b, kind, b_rows_each, what.b_mn_major, garbage_b):
                return
            reads.append((cta, b_chunks))
        sf_a = sf_b = None
        if scaled:
            lane_a, sf_a = lane_and_column(int(scale_a(warp)[lane]))
            lane_b, sf_b = lane_and_column(int(scale_b(warp)[lane]))
            b_columns = what.n // 2 if group == 2 and what.m == 128 else what.n
            for name, first_row, column in (("A", lane_a, sf_a), ("B", lane_b, sf_b)):
                if first_row:
                    ins.report(
                        warp,
                        lanes,
                        "tensor-memory-misuse",
                        f"the address of the scales of {name} names lane {first_row}: they begin at lane 0",
                    )
                if column % _STEPS[name]:
                    step = f"the scales of {name} begin at column {column}: it must be a multiple of {_STEPS[name]}"
                    ins.report(warp, lanes, "tensor-memory-misuse", step)
            for cta in ctas:
                if not order.add(cta.tensor_memory, sf_a, -(-a_rows_each // 32), reads=True, writes=False, what="the scales of A occupy"):
                    return
                if not order.add(cta.tensor_memory, sf_b, -(-b_columns // 64) * 2, reads=True, writes=False, what="the scales of B occupy"):
                    return
        meta_column = None
        if sparse:
            meta_lane, meta_column = lane_and_column(int(metadata(warp)[lane]))
            if meta_lane != d_lane or meta_column % 2:
                ins.report(
                    warp, lanes, "tensor-memory-misuse",
                    f"the metadata is at lane {meta_lane}, column {meta_column}: the lane must be D's, {d_lane}, and the column even",
                )  # fmt: skip
                return
            meta_column += what.selector
            meta_width = 1 if kind in ("f16", "tf32") else 2
            for cta in ctas:
                if not order.add(cta.tensor_memory, meta_column, meta_width, reads=True, writes=False, what="the metadata occupies"):
                    return
        order.check()
        zeros = None
        if zero_mask is not None:
            mask = int(warp.values[zero_mask][lane])
            if mask >> 56 & 63:
                raise EmulatorError("a column shift in a zero-column mask is not covered")
            zeros = descriptors.zero_columns(mask, what.m, what.n)
        disabled = None
        if disable is not None:
            mask = np.array([int(warp.values[slot][lane]) for slot in disable], np.uint32)
            flags = (mask[:, None] >> np.arange(32, dtype=np.uint32)) & 1 == 1
            disabled = flags.reshape(group, 128)
        mode = warp.machine.arithmetic

        def execute():
            if a_in_tensor_memory:
                left = np.concatenate([_from_tensor_memory(ins, warp, lanes, cta, what, a_column, a_width, rows) for cta in ctas])
                garbage_a[:] = [cta.tensor_memory.garbage[rows[:, 0], a_column : a_column + a_width].any(axis=1) for cta in ctas]
            else:
                left = np.concatenate([_codes(cta.shared, a_chunks, what, what.a, what.a_mn_major, kind) for cta in ctas])
            right = np.concatenate([_codes(cta.shared, b_chunks, what, what.b, what.b_mn_major, kind) for cta in ctas])
            if zeros is not None:
                right[zeros] = 0
            scales = (None, None)
            if scaled:
                scales = _scales(ins, warp, lanes, ctas, what, vector, sf_a, sf_b, group)
            addend = None
            if accumulate:
                parts = []
                for cta in ctas:
                    place = (rows, columns + d_column)
                    cta.tensor_memory.check_valid(ins, warp, lanes, *place, "D is accumulated into tensor memory")
                    parts.append(cta.tensor_memory.cells[place])
                addend = np.concatenate(parts)
                if what.result == "f16":
                    addend = addend & 0xFFFF
                if shrink:
                    addend = _shrunk(addend, shrink, what.result)
            if sparse:
                total = _sparse_product(ins, warp, lanes, ctas, what, rows[:, 0], meta_column, left, right, addend, scales, mode)
            else:
                total = _multiply(what, left, right, addend, scales, mode)
            garbage_columns = np.concatenate(garbage_b)
            if zeros is not None:
                garbage_columns &= ~zeros
            for number, cta in enumerate(ctas):
                part = total[number * a_rows_each : (number + 1) * a_rows_each]
                place = (rows, columns + d_column)
                memory = cta.tensor_memory
                before = memory.garbage[place] if accumulate else 0
                garbage = np.where(garbage_a[number][:, None] | garbage_columns, ins.pc + 1, before)
                if disabled is not None:
                    keep = np.broadcast_to(disabled[number][rows], part.shape)
                    part = np.where(keep, memory.cells[place], part)
                    garbage = np.where(keep, memory.garbage[place], garbage)
                    valid = memory.valid[place] | ~keep
                else:
                    valid = True
                memory.put(*place, part, valid, garbage)

        uncommitted(warp).append(access)
        warp.machine.asynchronous.issue(Operation(ins, warp, lanes, execute, queue=core_of(warp, group), reads=reads))

    return run


class _UseList:
    """The tensor-memory columns of one mma: bounds first, order when all are known to be in bounds."""

    def __init__(self, ins, warp, lanes, access):
        self.ins, self.warp, self.lanes, self.access = ins, warp, lanes, access
        self.uses = []

    def add(self, memory, first, count, *, reads, writes, what, parts=ALL_LANES):
        if not memory.in_bounds(self.ins, self.warp, self.lanes, first, count, what):
            return False
        self.uses.append((memory, parts, first, count, reads, writes))
        return True

    def check(self):
        for memory, parts, first, count, reads, writes in sorted(self.uses, key=lambda use: use[-1]):
            memory.check_use(self.ins, self.warp, self.lanes, self.access, parts, first, count, reads=reads, writes=writes)


def _scale_vector(ins, kind):
    """Scales per row: 1, 2 or 4."""
    named = ins.choice("scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32", default=None)
    if named is None:
        if kind == "mxf4nvf4":
            ins.unsupported("kind::mxf4nvf4 needs .block16, .block32 or .scale_vec::NX")
        named = "block32"
    if named.startswith("scale_vec"):
        vector = int(named[-2])
    else:
        vector = {"block16": 4, "block32": 1 if kind == "mxf8f6f4" else 2}[named]
    allowed = {"mxf8f6f4": (1,), "mxf4": (2,), "mxf4nvf4": (2, 4)}[kind]
    if vector not in allowed:
        ins.unsupported(f"kind::{kind} does not take .{named}")
    return vector


def _element_bytes(format):
    """Bytes of an element in shared memory; 4 and 6-bit elements count as the byte of their padded image."""
    return 1 if isinstance(format, str) else max(1, format.bits // 8)


def _element_bits_in_memory(what):
    """Bits of one element of A in tensor memory."""
    if what.kind in ("mxf4", "mxf4nvf4"):
        return 4
    return 8 * _element_bytes(what.a)


def _operand_chunks(ins, warp, lanes, bits, name, rows, depth, row_bytes, mn_major, element):
    """The chunks of an operand, whose rows have row_bytes along K."""
    descriptor = descriptors.decode_tcgen05(bits)
    for problem in descriptor.problems:
        ins.report(warp, lanes, "invalid-descriptor", f"descriptor {bits:#018x} of {name}: {problem}")
    atom = descriptor.swizzle == descriptors.SWIZZLE_128_ATOM_32
    if mn_major:
        if atom != (element == 4):
            ins.report(
                warp, lanes, "invalid-descriptor",
                f"a transposed {name} of {8 * element}-bit elements {'needs' if element == 4 else 'does not take'} the 128-byte swizzle with 32-byte atoms",
            )  # fmt: skip
        return descriptor.mn_major_chunks(rows, depth, element)
    if descriptor.swizzle == descriptors.SWIZZLE_32 and row_bytes > 32:
        raise EmulatorError(descriptors.SPARSE_SWIZZLE_32)
    return descriptor.k_major_chunks(rows, row_bytes)


def _operand_words(chunks, format, kind):
    """Byte offsets of the 32-bit words that are data: the padding of 4 and 6-bit elements is never written."""
    bits = 8 if isinstance(format, str) else format.bits
    if bits >= 8 or kind in ("mxf4", "mxf4nvf4"):
        return chunk_words(chunks)
    return (chunks[..., None] + np.arange(0, 2 * bits, 4)).reshape(-1)


def _check_operand(ins, warp, lanes, cta, chunks, format, kind, rows, mn_major, garbage):
    """Whether the operand can be read. Appends to `garbage` which rows hold bytes that nobody wrote.

    Rows of a product are independent. A kernel may multiply rows that it never filled, if it does not use their results.
    """
    words, shared = _operand_words(chunks, format, kind), cta.shared
    unwritten = np.zeros(rows, bool)
    if words.max() < len(shared.valid) and 0 in shared.valid[words].tobytes():
        if mn_major:  # a chunk holds neighbouring rows
            places = (chunks[..., None] + np.arange(16)).reshape(len(chunks), rows, -1)
            unwritten = (shared.valid[places] == 0).any(axis=(0, 2))
        else:
            unwritten = (shared.valid[words].reshape(rows, -1) == 0).any(axis=1)
    garbage.append(unwritten)
    return shared.check_async_read(ins, warp, lanes, words, must_be_written=False)


def _codes(shared, chunks, what, format, mn_major, kind):
    """Element codes (rows, K), or the bytes for integers."""
    data = read_chunks(shared, chunks)
    name = format if isinstance(format, str) else format.name
    if mn_major:
        element = _element_bytes(format)
        unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32}[element]
        return np.ascontiguousarray(data.reshape(len(chunks), -1).view(unsigned).T)
    if kind in ("mxf4", "mxf4nvf4"):
        return nibbles(data.reshape(len(chunks), -1))
    bits = 8 if isinstance(format, str) else format.bits
    if bits == 4:  # 16 nibbles, then 8 bytes of padding
        return (decompress_4(data.reshape(-1, 16)) >> 2).reshape(len(chunks), -1)
    if bits == 6:
        return decompress_6(data.reshape(-1, 16)).reshape(len(chunks), -1)
    return data.reshape(len(chunks), -1) if name in ("u8", "s8") else codes_of(data.reshape(len(chunks), -1).view(np.uint32), name, True)


def _from_tensor_memory(ins, warp, lanes, cta, what, column, width, d_rows):
    """A from tensor memory: row r in the lane where row r of D lies, K along the columns."""
    cells = (d_rows[:, :1], np.arange(column, column + width)[None, :])
    cta.tensor_memory.check_valid(ins, warp, lanes, *cells, "A is read from tensor memory")
    words = np.ascontiguousarray(cta.tensor_memory.cells[cells])
    if isinstance(what.a, str):
        return words.view(np.uint8)
    return codes_of(words, what.a.name, what.kind not in ("mxf4", "mxf4nvf4"))


@functools.cache
def _result_layout(each, n, half_of_lanes, lane):
    """(rows, columns, width): tensor-memory lane (rows of one CTA, 1 or N) and column of every element of one CTA's part of D."""
    column = np.arange(n)[None, :]
    row = np.arange(each)[:, None]
    if half_of_lanes:  # 16 rows in the lower (or upper) half of each quarter
        if lane not in (0, 16):
            return None
        return row % 16 + 32 * (row // 16) + lane + 0 * column, column + 0 * row, n
    if lane:
        return None
    width = n * each // 128  # with fewer than 128 rows the next part of N lies in the lanes above
    return row + each * (column // width), column % width + 0 * row, width


def _scales(ins, warp, lanes, ctas, what, vector, column_a, column_b, group):
    """(BlockScale of A (M rows), BlockScale of B (N rows)) from tensor memory."""
    each = what.m // group
    parts = [_scale_bytes(ins, warp, lanes, cta, each, column_a, what.scale_a_id, vector, False) for cta in ctas]
    split = group == 2 and what.m == 128
    scales_b = [_scale_bytes(ins, warp, lanes, cta, what.n, column_b, what.scale_b_id, vector, split) for cta in ctas]
    if group == 2 and (scales_b[0] != scales_b[1]).any():
        ins.report(warp, lanes, "tensor-memory-misuse", "the two CTAs of the pair hold different scales of B; each needs all of them")
    return arithmetic.BlockScale(what.scale_format, np.concatenate(parts)), arithmetic.BlockScale(what.scale_format, scales_b[0])


def _scale_bytes(ins, warp, lanes, cta, count, column, byte, vector, split):
    """(count, vector) scale codes: row i in lane i % 32 of every quarter, column i / 32, bytes `byte` on.

    `split` (a pair with M = 128, scales of B): the first half of the rows in the lower two quarters, the second half in the upper two.
    """
    row = np.arange(count)
    memory = cta.tensor_memory
    if split:
        half = count // 2
        quarters = [(row % half % 32 + 64 * (row >= half) + 32 * q) for q in (0, 1)]
        columns = column + row % half // 32
    else:
        quarters = [row % 32 + 32 * q for q in range(4)]
        columns = column + row // 32
    found = None
    for number, rows in enumerate(quarters):
        memory.check_valid(ins, warp, lanes, rows, columns, "block scales are read")
        words = np.ascontiguousarray(memory.cells[rows, columns])
        codes = words.view(np.uint8).reshape(count, 4)[:, byte : byte + vector]
        if found is None:
            found = codes
        elif (codes != found).any():
            ins.report(
                warp, lanes, "tensor-memory-misuse",
                f"the block scales in lanes {32 * number}.. differ from those in lanes 0..; they must be replicated", int(column),
            )  # fmt: skip
    return found


def _shrunk(addend, shrink, result):
    """D * 2^-shrink, exact except where it underflows (then truncated)."""
    if result == "f16":
        return number_formats.encode(number_formats.F16, number_formats.decode(number_formats.F16, addend) * 2.0**-shrink, "rz").astype(
            np.uint32
        )
    return number_formats.encode(number_formats.F32, number_formats.decode(number_formats.F32, addend) * 2.0**-shrink, "rz").astype(
        np.uint32
    )


def _sparse_product(ins, warp, lanes, ctas, what, lanes_of_rows, column, left, right, addend, scales, mode):
    bits = 4 if what.kind in ("mxf4", "mxf4nvf4") else 8 * _element_bytes(what.a)
    parts = []
    for cta in ctas:
        columns = column + np.arange(2 if bits < 16 else 1)
        cta.tensor_memory.check_valid(ins, warp, lanes, lanes_of_rows[:, None], columns, "the sparsity metadata is read")
        parts.append(sparsity.of_tensor_memory(cta.tensor_memory.cells, lanes_of_rows, column, bits))
    nibbles = np.concatenate(parts)
    scale_a, scale_b = scales

    def product(left, right, addend, rows):
        scaled = None if scale_a is None else arithmetic.BlockScale(scale_a.format, scale_a.codes[rows])
        return _multiply(what, left, right, addend, (scaled, scale_b), mode)

    return sparsity.multiply(
        left, nibbles, bits, right, addend, product, lambda problem: ins.report(warp, lanes, "arithmetic", problem),
        format=None if isinstance(what.b, str) else what.b, ordered="tcgen05",
    )  # fmt: skip


def _multiply(what, left, right, addend, scales, mode):
    if what.kind == "i8":
        return arithmetic.integer_sum(integers_of(left, what.a), integers_of(right, what.b), addend, what.saturate)
    return arithmetic.tcgen05_sum(
        arithmetic.operand(what.a, left, negate=what.negate_a), arithmetic.operand(what.b, right, negate=what.negate_b), addend, what.result, mode, *scales,
        fp4=what.kind in ("mxf4", "mxf4nvf4"),
    )  # fmt: skip
