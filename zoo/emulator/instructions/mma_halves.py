"""mma.sync.m8n8k4 of halves: four products of 8 x 8 x 4, one for each pair of quads. Pair p has lanes 4 p to 4 p + 3 and 4 p + 16 to 4 p + 19.

Thread t of a pair holds four halves of A and of B and eight numbers of C and D, element i:
    A row-major, B column-major: row t of A, or column t of B, and k = i
    A column-major, B row-major: row or column i + 4 * (t / 4), and k = t % 4
    C and D in f16: row t, column i
    C and D in f32: row t % 2 + 2 * (i / 2 % 2) + 4 * (t / 4), column i % 2 + 2 * (t / 2 % 2) + 4 * (i / 4)
GPUs of sm_80 and later compute D by f32 operations. Their order for k = 0..3 is read from the machine code of ptxas 13.0, and gave an H200's bits in f32:
    C and D in f32: fma(a3, b3, fma(a2, b2, fma(a1, b1, a0 b0))) + C
    C and D in f16: (C + fma(a1, b1, a0 b0)) + fma(a3, b3, a2 b2), rounded to f16
"""

import numpy as np

from .. import arithmetic, number_formats
from . import need_all, put_rows

_PAIRS = 4 * np.arange(4)[:, None] + [0, 1, 2, 3, 16, 17, 18, 19]
_THREAD, _ELEMENT = np.arange(8)[:, None], np.arange(8)
_ROWS = _THREAD % 2 + 2 * (_ELEMENT // 2 % 2) + 4 * (_THREAD // 4)
_COLUMNS = _ELEMENT % 2 + 2 * (_THREAD // 2 % 2) + 4 * (_ELEMENT // 4)


def _halves(words):
    """(pairs, threads, halves) of registers (n, 32)."""
    return np.ascontiguousarray(words.T).view(np.uint16)[_PAIRS]


def _factor(words, along):
    """(pairs, 8, 4) codes, K last. along: whether the four halves of a thread are along K."""
    halves = _halves(words)
    return halves if along else halves.reshape(4, 2, 4, 4).swapaxes(2, 3).reshape(4, 8, 4)


def _of_fma(a, b, c, result):
    """C plus the products, as a GPU computes them; all in register bits."""
    a, b = (number_formats.decode(number_formats.F16, codes).astype(np.float32).view(np.uint32) for codes in (a, b))
    a, b = np.broadcast_arrays(a[:, :, None], b[:, None])

    def term(k, total=None):
        of_k = a[..., k], b[..., k]
        return number_formats.multiply(*of_k) if total is None else number_formats.fma(*of_k, total)

    if result == "f32":
        return number_formats.add(term(3, term(2, term(1, term(0)))), c)
    c = number_formats.decode(number_formats.F16, c).astype(np.float32).view(np.uint32)
    return number_formats.f32_to_f16(number_formats.add(number_formats.add(c, term(1, term(0))), term(3, term(2))))


def mma_halves(ins, types, layouts):
    result = types[0]
    if types not in (["f16"] * 4, ["f32", "f16", "f16", "f32"]):
        ins.unsupported(f"m8n8k4 with {', '.join(types)}: it multiplies .f16, and C and D are both .f16 or both .f32")
    d_rows, a_rows, b_rows, c_rows = ins.rows(0, destination=True), ins.rows(1), ins.rows(2), ins.rows(3)
    results = 4 if result == "f16" else 8
    if (len(d_rows), len(a_rows), len(b_rows), len(c_rows)) != (results, 2, 2, results):
        ins.unsupported("the numbers of registers do not fit the shape")
    ins.expect_operands(4)
    a_along, b_along = layouts[0] == "row", layouts[1] == "col"

    def addends(words):
        if result == "f16":
            return _halves(words).astype(np.uint32)
        found = np.empty((4, 8, 8), np.uint32)
        found[:, _ROWS, _COLUMNS] = np.ascontiguousarray(words.T)[_PAIRS]
        return found

    def run(warp, lanes):
        need_all(ins, warp, lanes)
        words = warp.words
        factors, addend = (_factor(words[a_rows], a_along), _factor(words[b_rows], b_along)), addends(words[c_rows])
        if warp.machine.arithmetic == "exact":
            factors = (arithmetic.operand(number_formats.F16, codes) for codes in factors)
            total = arithmetic.exact_sum(*factors, addend, result)
        else:
            total = _of_fma(*factors, addend, result)
        of_threads = total.astype(np.uint16).view(np.uint32) if result == "f16" else total[:, _ROWS, _COLUMNS]
        registers = np.empty((32, results), np.uint32)
        registers[_PAIRS] = of_threads
        put_rows(warp, d_rows, registers.T, lanes)

    return run
