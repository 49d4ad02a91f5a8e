"""The stack of a thread, behind its .local variables: what alloca() compiles to. What a function took goes when it returns, see `call`."""

import numpy as np

from ..decode import MOST_LOCAL_BYTES
from ..lanes import bits_of
from . import assign, instruction, mask_of


def _type(ins):
    type = ins.type()
    if type not in ("u32", "u64"):
        ins.unsupported("an address is .u32 or .u64")
    return type


@instruction("alloca")
def allocate(ins):
    """d = the local address of so many bytes that nobody wrote"""
    type = _type(ins)
    ins.expect_operands(2, 3)
    d, a = ins.write(0, type), ins.read(1, type)
    align = ins.operands[2].value if ins.has_operand(2) else 8
    if align < 1 or align & (align - 1):
        ins.unsupported(f"an alignment of {align}")

    def run(warp, lanes):
        local, mask = warp.local, mask_of(lanes)
        starts = -(-local.ends // align) * align
        sizes = warp.values[a].astype(np.int64)
        wrong = mask & ((sizes < 0) | (sizes > MOST_LOCAL_BYTES - starts))
        if wrong.any():
            asked = int(warp.values[a][wrong][0])
            words = f"it asks for {asked:,} bytes of stack; the emulator has {MOST_LOCAL_BYTES:,} bytes of local memory a thread"
            ins.report(warp, bits_of(wrong), "out-of-bounds", words)
        ends = np.where(mask & ~wrong, starts + sizes, local.ends)
        local.grow(int(ends.max()))
        for row, start, end in zip(local.valid, starts.tolist(), ends.tolist()):
            row[start:end] = 0
        assign(warp.values[d], starts, lanes)
        local.ends = ends

    return run


@instruction("stacksave")
def save(ins):
    """d = the end of the stack"""
    d = ins.write(0, _type(ins))
    ins.expect_operands(1)

    def run(warp, lanes):
        assign(warp.values[d], warp.local.ends, lanes)

    return run


@instruction("stackrestore")
def restore(ins):
    """What alloca gave after the stacksave is gone"""
    a = ins.read(0, _type(ins))
    ins.expect_operands(1)

    def run(warp, lanes):
        local = warp.local
        ends = warp.values[a].astype(np.int64)
        wrong = mask_of(lanes) & ((ends < local.size) | (ends > local.ends))
        if wrong.any():
            ins.report(
                warp, bits_of(wrong), "out-of-bounds", f"no stacksave gave {int(ends[wrong][0]):#x}, or a return has ended its stack"
            )
        assign(local.ends, np.where(wrong, local.ends, ends), lanes)

    return run
