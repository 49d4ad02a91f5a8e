"""alloca, stacksave and stackrestore: memory of a thread's stack behind the frame of the running function (frames.py), until its return."""

import numpy as np

from ..frames import MOST_LOCAL_BYTES, ends_of_frames
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
        local, most = warp.local, warp.machine.stack_bytes
        starts = -(-local.ends // align) * align
        sizes = warp.values[a].astype(np.int64)
        used = local.used + starts + sizes - local.ends
        wrong = mask_of(lanes) & ((sizes < 0) | (sizes > MOST_LOCAL_BYTES - starts) | (used > most))
        if wrong.any():
            asked, left = int(warp.values[a][wrong][0]), max(most - int(local.used[wrong][0]), 0)
            words = f"it asks for {asked:,} bytes of stack, and the thread has {left:,} left of {most:,}"
            ins.report(warp, bits_of(wrong), "stack-overflow", words)
        good = lanes & ~bits_of(wrong)
        if good:
            local.extend(good, starts, starts + sizes, used)
        assign(warp.values[d], starts, lanes)

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
        wrong = mask_of(lanes) & ((ends < ends_of_frames(warp)) | (ends > local.ends))
        if wrong.any():
            ins.report(
                warp, bits_of(wrong), "out-of-bounds", f"no stacksave gave {int(ends[wrong][0]):#x}, or a return has ended its stack"
            )
        ends = np.where(wrong, local.ends, ends)
        assign(local.used, local.used + ends - local.ends, lanes)
        assign(local.ends, ends, lanes)

    return run
