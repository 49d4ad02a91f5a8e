"""Products of mma.sync that do not depend on each other are computed together: numpy takes hardly longer for eight of them than for one.

Each of them keeps its operands, and the last one of a group computes. A group lies in one basic block, and nothing in between reads or writes what
its products give; so nobody sees that they give it late. Lanes that are not all of the warp compute at once.
"""

from typing import Any, NamedTuple

import numpy as np

from .lanes import FULL

_MOST = 16  # products of a group; the arrays of more leave the cache


class Product(NamedTuple):
    kind: tuple  # products of one kind may be computed together
    compute: Any  # (machine, A, B, C) -> D: registers, or stacks of them
    a: np.ndarray  # the registers' rows
    b: np.ndarray
    c: np.ndarray
    d: np.ndarray


def grouped(program, code):
    """`code`, with products that wait for the last of their group."""
    code, group, given = list(code), [], set()

    def close():
        if len(group) > 1:
            for ins in group[:-1]:
                code[ins.pc] = _kept(ins.product, code[ins.pc])
            code[group[-1].pc] = _computed(group[-1].product, code[group[-1].pc])
        group.clear(), given.clear()

    for ins in program.instructions:
        product = ins.product if ins.guard is None else None
        if group:
            touched = given & (ins.reads | ins.writes | ins.conditional_reads)
            left = program.blocks[ins.pc] != program.blocks[group[0].pc] or ins.mnemonic == "call"  # whose function has groups of its own
            if touched or left or len(group) == _MOST or (product and product.kind != group[0].product.kind):
                close()
        if product:
            group.append(ins)
            given |= ins.writes
    close()
    return code


def _kept(product, run):
    def keeping(warp, lanes):
        if lanes != FULL:
            return run(warp, lanes)
        words = warp.words
        warp.products.append((product, words[product.a], words[product.b], words[product.c]))

    return keeping


def _computed(product, run):
    keep = _kept(product, run)

    def computing(warp, lanes):
        keep(warp, lanes)
        if warp.products:
            kept, a, b, c = zip(*warp.products)
            warp.products.clear()
            warp.words[np.stack([one.d for one in kept])] = product.compute(warp.machine, np.stack(a), np.stack(b), np.stack(c))

    return computing
