"""wgmma: four warps of a warpgroup multiply a 64 x K by a K x N matrix from shared memory into registers, asynchronously.

Warp w of the group owns rows 16w .. 16w+15 and is executed on its own. Fragments of lane l (row counted within the warp's 16):
    D element j (f32, s32: register j; f16: register j / 2): row l / 4 + 8 * ((j / 2) % 2), column 8 * (j / 4) + 2 * (l % 4) + j % 2
    A register i, in 32-bit words along K: row l / 4 + 8 * (i % 2), word l % 4 + 4 * (i / 2)
wgmma.mma_async.sp has the same A at twice the depth K: the stored half of its elements (sparsity.py).
"""

import functools

import numpy as np

from .. import arithmetic, descriptors, number_formats, sparsity, warpgroup
from ..asynchronous import Operation
from ..errors import EmulatorError
from ..lanes import first_lane
from . import FULL, instruction, put_rows, uniform
from .mma_sparse import selector_of
from .mma_sync import integers_of, words_of_a

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
_RESULTS = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "e4m3": ("f16", "f32"), "e5m2": ("f16", "f32"), "s8": ("s32",), "u8": ("s32",),
}  # fmt: skip


@functools.cache
def _fragment(n):
    """(rows, columns), each (N / 2, 32): the place of D element j of every lane."""
    lane, j = np.arange(32)[None, :], np.arange(n // 2)[:, None]
    return lane // 4 + 8 * (j // 2 % 2), 8 * (j // 4) + 2 * (lane % 4) + j % 2


def accumulator(words, n, result):
    """(16, N) register words of D from its registers."""
    rows, columns = _fragment(n)
    matrix = np.empty((16, n), np.uint32)
    if result == "f16":
        matrix[rows[0::2], columns[0::2]] = words & 0xFFFF
        matrix[rows[1::2], columns[1::2]] = words >> 16
    else:
        matrix[rows, columns] = words
    return matrix


def registers(matrix, n, result):
    """D's registers from (16, N) words."""
    rows, columns = _fragment(n)
    if result == "f16":
        return matrix[rows[0::2], columns[0::2]] | matrix[rows[1::2], columns[1::2]] << 16
    return matrix[rows, columns]


def operand_codes(data, bits):
    """Element codes of a contiguous (rows, bytes) uint8 array."""
    return data if bits == 8 else data.view(np.uint16 if bits == 16 else np.uint32)


def read_chunks(shared, chunks):
    """(rows, columns, 16) bytes of an array of 16-byte chunk offsets."""
    return shared.bytes[: shared.bytes.size // 16 * 16].reshape(-1, 16)[chunks >> 4]


def chunk_words(chunks):
    """The byte offsets of the 32-bit words of 16-byte chunks: what the access checks look at."""
    return (chunks[..., None] + _WORDS).reshape(-1)


_WORDS = np.array([0, 4, 8, 12])


@instruction("wgmma.fence")
def fence(ins):
    ins.flag("sync"), ins.flag("aligned")

    def run(warp, lanes):
        warp.state["wgmma fenced"] = True
        warp.wgmma_read.clear(), warp.wgmma_written.clear()

    return run


@instruction("wgmma.commit_group")
def commit_group(ins):
    ins.flag("sync"), ins.flag("aligned")

    def run(warp, lanes):
        warpgroup.commit(warp)

    return run


@instruction("wgmma.wait_group")
def wait_group(ins):
    ins.flag("sync"), ins.flag("aligned")
    slot = ins.read(0, "u32")

    def run(warp, lanes):
        return warpgroup.wait(warp, keep=int(warp.values[slot][first_lane(lanes)]))

    return run


@instruction("wgmma.mma_async", "wgmma.mma_async.sp")
def mma_async(ins):
    sparse = ins.opcode.startswith("wgmma.mma_async.sp.")
    if not (ins.flag("sync") and ins.flag("aligned")):
        ins.unsupported("wgmma.mma_async needs .sync.aligned")
    m, n, depth = (int(x) for x in ins.pattern(r"m(\d+)n(\d+)k(\d+)").groups())
    saturate = ins.flag("satfinite")
    types = ins.types()
    if len(types) != 3:
        ins.unsupported(f"it names {len(types)} types")
    result, a, b = types
    if a not in _BITS or b not in _BITS or result not in _RESULTS[a]:
        ins.unsupported(f".{result}.{a}.{b} is not covered")
    bits = _BITS[a]
    integer, fp8 = result == "s32", a in ("e4m3", "e5m2")
    if not (a == b or (fp8 and b in ("e4m3", "e5m2")) or (integer and b in ("s8", "u8"))):
        ins.unsupported(f".{a} does not go with .{b}")
    if m != 64 or depth * bits != (512 if sparse else 256) or n % 8 or not 8 <= n <= 256 or (integer and n > 32 and n % 16):
        ins.unsupported(f"the shape m{m}n{n}k{depth} does not exist for .{a}")
    if saturate and not integer:
        ins.unsupported(".satfinite is for .s32")

    d_rows = ins.rows(0, destination=True)
    if len(d_rows) != n // (4 if result == "f16" else 2):
        ins.unsupported(f"D has {len(d_rows)} registers")
    a_rows = a_slot = None
    if len(ins.items(1)) == 4:
        a_rows = ins.rows(1)
    elif len(ins.items(1)) == 1:
        a_slot = ins.read(1, "u64")
    else:
        ins.unsupported("A must be a descriptor or four registers")
    b_slot = ins.read(2, "u64")
    metadata = ins.rows(3) if sparse else None
    selector = selector_of(ins, 4, bits, depth) if sparse else None
    k = 5 if sparse else 3
    scale_d = ins.read(k, "pred")
    # D is read only when scale-d is true: the first instruction of an accumulation may find it unwritten.
    ins.conditional_reads = {ins.layout.place_of(item)[0] for item in ins.items(0)}
    ins.condition = scale_d
    accumulators = frozenset(ins.conditional_reads)
    fragments = frozenset(ins.layout.place_of(item)[0] for item in ins.items(1)) if a_rows is not None else frozenset()
    transposes = 0 if bits != 16 or integer else (1 if a_rows is not None else 2)
    operands = k + 1 + (0 if integer else 2) + transposes
    ins.expect_operands(operands)
    signs, transposed = [1, 1], [False, False]
    if not integer:
        signs = [_constant(ins, k + 1), _constant(ins, k + 2)]
        if any(sign not in (1, -1) for sign in signs):
            ins.unsupported("imm-scale-a and imm-scale-b must be 1 or -1")
        flags = [_constant(ins, place) for place in range(k + 3, operands)]
        if any(value not in (0, 1) for value in flags):
            ins.unsupported("imm-trans must be 0 or 1")
        transposed = [bool(value) for value in ([0] * (2 - len(flags)) + flags)]

    b_bytes = depth * bits // 8  # of a column
    stored = depth // 2 if sparse else depth  # elements of a row of A

    def load(shared, chunks, mn_major):
        data = read_chunks(shared, chunks)
        data = data.reshape(len(chunks), -1)
        return np.ascontiguousarray(data.view(np.uint16).T) if mn_major else operand_codes(data, bits)

    def run(warp, lanes):
        if lanes != FULL:
            ins.report(warp, lanes, "divergent-aligned", f"lanes {FULL & ~lanes:#010x} do not take part: the result is undefined")
        _check_group(ins, warp, lanes)
        accumulate = uniform(ins, warp, scale_d, lanes)
        _check_fence(ins, warp, lanes, accumulators, fragments, accumulate)
        cta = warp.cta
        quarter = warp.index % 4
        wide = uniform(ins, warp, b_slot, lanes)
        descriptor_b = _descriptor(ins, warp, lanes, wide, "B")
        b_chunks = descriptor_b.mn_major_chunks(n, depth, 2) if transposed[1] else descriptor_b.k_major_chunks(n, b_bytes)
        if sparse and descriptor_b.swizzle == descriptors.SWIZZLE_32 and not transposed[1]:
            raise EmulatorError(descriptors.SPARSE_SWIZZLE_32)
        shared = cta.shared
        readable = shared.check_async_read(ins, warp, lanes, chunk_words(b_chunks))
        reads = [(cta, b_chunks)]
        if a_slot is not None:
            descriptor_a = _descriptor(ins, warp, lanes, uniform(ins, warp, a_slot, lanes), "A")
            if transposed[0]:
                # 16 rows of M are two chunks
                a_chunks = descriptor_a.mn_major_chunks(64, stored, 2)[:, 2 * quarter : 2 * quarter + 2]
            else:
                a_chunks = descriptor_a.k_major_chunks(64, 32)[16 * quarter : 16 * quarter + 16]
            readable = shared.check_async_read(ins, warp, lanes, chunk_words(a_chunks)) and readable
            reads.append((cta, a_chunks))
        if not readable:
            return  # an address outside shared memory has been reported; there is nothing to compute with
        nibbles = sparsity.of_warp(warp.words[metadata[0]], selector, bits, depth) if sparse else None
        mode = warp.machine.arithmetic

        def product(left, right, addend, _rows=None):
            if integer:
                return arithmetic.integer_sum(integers_of(left, a), integers_of(right, b), addend, saturate)
            return arithmetic.wgmma_sum(
                arithmetic.operand(number_formats.FORMATS[a], left, negate=signs[0] < 0),
                arithmetic.operand(number_formats.FORMATS[b], right, negate=signs[1] < 0),
                addend, result, fp8=fp8, mode=mode,
            )  # fmt: skip

        def execute():
            right = load(shared, b_chunks, transposed[1])
            if a_slot is not None:
                left = load(shared, a_chunks, transposed[0])
            else:
                left = operand_codes(words_of_a(warp.words[a_rows]).view(np.uint8), bits)
            addend = accumulator(warp.words[d_rows], n, result) if accumulate else None
            if sparse:
                total = sparsity.multiply(
                    left, nibbles, bits, right, addend, product, lambda problem: ins.report(warp, lanes, "arithmetic", problem),
                    format=number_formats.FORMATS.get(b),
                )  # fmt: skip
            else:
                total = product(left, right, addend)
            put_rows(warp, d_rows, registers(total, n, result), lanes)

        warp.machine.asynchronous.issue(
            Operation(
                ins,
                warp,
                lanes,
                execute,
                queue=("wgmma", warp),
                reads=reads,
                registers=[d_rows],
                register_sources=[] if a_rows is None else [a_rows],
            )
        )

    return run


def _check_fence(ins, warp, lanes, accumulators, fragments, accumulate):
    """Registers that ordinary instructions used need a wgmma.fence before wgmma uses them. What is only overwritten here may have been
    written at any time."""
    if not warp.state.get("wgmma fenced"):
        ins.report(warp, lanes, "missing-wgmma-fence", "no wgmma.fence has been executed")
        warp.state["wgmma fenced"] = True
        return
    used = warp.wgmma_read & (accumulators | fragments)
    used |= warp.wgmma_written & (accumulators | fragments if accumulate else fragments)
    if used:
        names = sorted(ins.layout.names[number] for number in used)
        some = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        ins.report(warp, lanes, "missing-wgmma-fence", f"no wgmma.fence since other instructions used {some}")
        warp.wgmma_read -= used
        warp.wgmma_written -= used


def _constant(ins, k):
    """The value of an immediate operand."""
    value = getattr(ins.operands[k], "value", None)
    if value is None:
        ins.unsupported(f"operand {k} must be an immediate")
    return value


def _descriptor(ins, warp, lanes, bits, name):
    descriptor = descriptors.decode_wgmma(bits)
    for problem in descriptor.problems:
        ins.report(warp, lanes, "invalid-descriptor", f"descriptor {bits:#018x} of {name}: {problem}")
    return descriptor


def _check_group(ins, warp, lanes):
    """All four warps of a warpgroup must execute the same sequence of wgmma instructions."""
    if (warp.index | 3) >= warp.cta.warp_count:
        ins.report(warp, lanes, "divergent-warpgroup", f"warp {warp.index} belongs to a warpgroup of fewer than four warps")
        return
    history = warp.cta.state.setdefault(("wgmma", warp.group), ([], {}))
    sequence, counts = history
    count = counts.get(warp.index, 0)
    counts[warp.index] = count + 1
    if count == len(sequence):
        sequence.append(ins)
    elif sequence[count] is not ins:
        other = sequence[count]
        ins.report(
            warp, lanes, "divergent-warpgroup", f"as its wgmma number {count + 1} this warp executes this one, another warp of its group "
            f"`{other.text}` (PTX line {other.line})",
        )  # fmt: skip
