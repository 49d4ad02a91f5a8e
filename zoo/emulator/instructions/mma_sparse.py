"""mma.sp: mma.sync where A is sparse. A holds the stored half of its elements, in the fragments of a dense A of half the depth."""

from .. import arithmetic, number_formats, sparsity
from . import instruction, need_all, put_rows
from .mma_sync import INTEGERS, block_scales, c_matrix, checked_scales, codes_of, d_registers, integers_of, words_of_a, words_of_b

# element type -> K -> bits of an element in a register
_SHAPES = {
    type: shapes
    for types, shapes in {
        "f16 bf16": {16: 16, 32: 16},
        "tf32": {8: 32, 16: 32},
        "s8 u8": {32: 8, 64: 8},
        "s4 u4": {64: 4, 128: 4},
        "e4m3 e5m2 e2m3 e3m2": {64: 8},
        "e2m1": {64: 8, 128: 4},
    }.items()
    for type in types.split()
}


@instruction("mma.sp", "mma.sp::ordered_metadata")
def mma_sparse(ins):
    """D = A * B + C; A is 2:4 sparse, or 1:2 if tf32"""
    ordered = "ordered_metadata" in ins.opcode
    if not (ins.flag("sync") and ins.flag("aligned") and ins.flag("row") and ins.flag("col")):
        ins.unsupported("it needs .sync.aligned and .row.col")
    m, n, depth = (int(x) for x in ins.pattern(r"m(\d+)n(\d+)k(\d+)").groups())
    kind = ins.pattern(r"kind::(f8f6f4|mxf8f6f4|mxf4nvf4|mxf4)", required=False)
    kind = kind.group(1) if kind else None
    scaled, vector = ins.flag("block_scale"), ins.pattern(r"scale_vec::([124])X", required=False)
    saturate = ins.flag("satfinite")
    types = ins.types()
    if len(types) != 4 + scaled:
        ins.unsupported(f"it names {len(types)} types")
    result, a, b, c = types[:4]
    if kind and not ordered:
        ins.unsupported("a .kind needs .sp::ordered_metadata")
    if scaled:
        vector = checked_scales(ins, kind, a, b, depth // 2, result, types[4], int(vector.group(1)) if vector else None)
    elif vector or kind not in (None, "f8f6f4"):
        ins.unsupported(f"kind::{kind} without .block_scale")
    fp4 = scaled and kind != "mxf8f6f4"
    containers = kind is not None and not fp4
    bits = _SHAPES.get(a, {}).get(depth)
    if (m, n) != (16, 8) or bits is None or bits != _SHAPES.get(b, {}).get(depth):
        ins.unsupported(f"the shape m{m}n{n}k{depth} with .{a}.{b} is not covered")
    integer = result == "s32"
    if any(integer != (type in INTEGERS) for type in (a, b)) or (bits > 8 and a != b) or (bits == 4 and fp4 == integer):
        ins.unsupported(f".{a} does not go with .{b} and .{result}")
    packed = bits == 4
    if packed:
        depth, bits = depth // 2, 8  # from here on two packed elements count as one of 8 bits
    if (
        result != c
        or result not in ("f32", "f16", "s32")
        or (saturate and not integer)
        or ({a, b} & {"e2m3", "e3m2", "e2m1"} and kind is None)
    ):
        ins.unsupported(f".{result}.{a}.{b}.{c} is not covered")
    d_rows, a_rows, b_rows, c_rows = ins.rows(0, destination=True), ins.rows(1), ins.rows(2), ins.rows(3)
    words = depth * bits // 32  # of a column of B
    counts = (2 if result == "f16" else 4, words // 4, words // 4, 2 if result == "f16" else 4)
    if tuple(map(len, (d_rows, a_rows, b_rows, c_rows))) != counts:
        ins.unsupported(f"D, A, B and C have {counts} registers in this shape")
    metadata = ins.rows(4)
    selector = selector_of(ins, 5, bits, depth)
    scales = block_scales(ins, 6, vector, types[4]) if scaled else lambda warp, lanes: (None, None)
    ins.expect_operands(10 if scaled else 6)

    def run(warp, lanes):
        need_all(ins, warp, lanes)
        words = warp.words
        left, right, addend = words_of_a(words[a_rows]), words_of_b(words[b_rows]), c_matrix(words[c_rows], result)
        nibbles = sparsity.of_warp(words[metadata[0]], selector, bits, depth)
        found = scales(warp, lanes)
        if found is None:
            return
        native, mode = warp.machine.device.arch.startswith("sm_12"), warp.machine.arithmetic

        def product(left, right, addend, rows):
            if integer:
                return arithmetic.integer_sum(integers_of(left, a), integers_of(right, b), addend, saturate)
            left, right = arithmetic.operand(number_formats.FORMATS[a], left), arithmetic.operand(number_formats.FORMATS[b], right)
            if scaled:
                of_rows = arithmetic.BlockScale(found[0].format, found[0].codes[rows])
                return arithmetic.tcgen05_sum(left, right, addend, result, mode, of_rows, found[1], fp4=fp4)
            return arithmetic.mma_sync_sum(left, right, addend, result, fp8=bits == 8, native_fp8=native, mode=mode)

        codes_a, codes_b = codes_of(left, a, containers), codes_of(right, b, containers)
        total = sparsity.multiply(
            codes_a, nibbles, 4 if packed else bits, codes_b, addend, product, lambda problem: ins.report(warp, lanes, "arithmetic", problem),
            format=number_formats.FORMATS.get(b), ordered="mma" if ordered else None,
        )  # fmt: skip
        put_rows(warp, d_rows, d_registers(total, result), lanes)

    return run


def selector_of(ins, k, bits, depth):
    """The sparsity selector, which says which lanes of four hold metadata: an immediate below four over their number."""
    selector = getattr(ins.operands[k], "value", None)
    lanes = depth // 16 if bits == 8 else depth * bits // 256
    if selector is None or not 0 <= selector < 4 // lanes:
        ins.unsupported(f"the sparsity selector is an immediate below {4 // lanes} in this shape")
    return selector
