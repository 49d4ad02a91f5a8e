"""SIMD video instructions on whole registers: two halves or four bytes at a time. CUDA's intrinsics compile to vabsdiff2 and vabsdiff4."""

import numpy as np

from . import instruction
from .elementwise import compute

_PARTS = {2: {"u32": np.uint16, "s32": np.int16}, 4: {"u32": np.uint8, "s32": np.int8}}
_COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_OPERATIONS = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}  # fmt: skip


def _simd(ins, operation, types, saturates):
    """Combines each part of a with the part of b at its place. d holds the results, or with .add their sum and c. types: of d, a and b."""
    count = int(ins.mnemonic[-1])
    adds = ins.flag("add")
    if adds and saturates:
        ins.unsupported(".sat and .add exclude each other")
    ins.expect_operands(4)
    target, *of_sources = (_PARTS[count][type] for type in types)
    bits, bounds = f"u{4 // count}", np.iinfo(target)

    def function(a, b, c):
        x, y = (register.view(dtype).astype(np.int32) for register, dtype in zip((a, b), of_sources))
        found = operation(x, y).astype(np.int32)
        if adds:
            return c + found.reshape(32, count).sum(axis=1).astype(np.uint32)
        if saturates:
            found = np.clip(found, bounds.min, bounds.max)
        return found.astype(bits).view(np.uint32)

    return compute(ins, function, ins.write(0, "b32"), [ins.read(k, "b32") for k in (1, 2, 3)])


@instruction(*(f"{name}{count}" for name in _OPERATIONS for count in _PARTS))
def parts(ins):
    """Halves or bytes added, subtracted, averaged, compared..."""
    saturates, types = ins.flag("sat"), ins.types()
    if len(types) != 3 or not set(types) <= {"u32", "s32"}:
        ins.unsupported("it needs three types, each .u32 or .s32")
    return _simd(ins, _OPERATIONS[ins.mnemonic[:-1]], types, saturates)


@instruction("vset2", "vset4")
def compare_parts(ins):
    """1 in each half or byte where the comparison holds, else 0"""
    comparison, types = ins.choice(*_COMPARISONS), ins.types()
    if len(types) != 2 or not set(types) <= {"u32", "s32"}:
        ins.unsupported("it needs two types, each .u32 or .s32")
    return _simd(ins, _COMPARISONS[comparison], ["u32", *types], False)
