"""multimem: loads, stores and reductions of the copies on all devices. There is one device, so a reduction of copies is the value itself."""

from . import instruction
from .memory import load, reduction, store

_BITS = {"bf16x2": "b32", "e4m3": "b8", "e5m2": "b8", "e4m3x2": "b16", "e5m2x2": "b16", "e4m3x4": "b32", "e5m2x4": "b32"}


def _plain(ins):
    """Replaces packed types by bits, which loads and stores accept."""
    ins.modifiers = [_BITS.get(modifier, modifier) for modifier in ins.modifiers]


@instruction("multimem.ld_reduce")
def load_reduce(ins):
    """Load a value of all copies, reduced"""
    ins.choice("min", "max", "add", "and", "or", "xor")
    ins.choice("acc::f32", "acc::f16", default=None)
    _plain(ins)
    return load(ins)


@instruction("multimem.st")
def store_all(ins):
    """Store a value to all copies"""
    _plain(ins)
    return store(ins)


@instruction("multimem.red")
def reduce_all(ins):
    """Combine a value with all copies"""
    return reduction(ins)
