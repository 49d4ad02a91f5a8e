"""The video instruction that CUDA's SIMD intrinsics still compile to."""

import numpy as np

from . import instruction
from .elementwise import compute


@instruction("vabsdiff4")
def absolute_differences_of_bytes(ins):
    """The bytes |a - b|; with .add their sum and c"""
    add = ins.flag("add")
    types = ins.types()
    if len(types) != 3 or not set(types) <= {"u32", "s32"}:
        ins.unsupported("it needs three types, each .u32 or .s32")
    ins.expect_operands(4)
    bytes_of = [np.int8 if type == "s32" else np.uint8 for type in types[1:]]

    def function(a, b, c):
        x, y = (register.view(dtype).astype(np.int32) for register, dtype in zip((a, b), bytes_of))
        differences = np.abs(x - y)
        if add:
            return c + differences.reshape(32, 4).sum(axis=1).astype(np.uint32)
        return differences.astype(np.uint8).view(np.uint32)

    return compute(ins, function, ins.write(0, "b32"), [ins.read(k, "b32") for k in (1, 2, 3)])
