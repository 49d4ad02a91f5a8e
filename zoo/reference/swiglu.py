"""SwiGLU, as the quantisers that fuse it compute it: silu(gate) * up, in float32, to the bit.

The rule. Gate g, up u, as float32; every operation is IEEE float32, rounded to nearest even, subnormals kept:

    t = |g| * -log2(e)              log2(e) as float32, 0x3FB8AA3B
    t = max(t, -127)                NaN may become -127 here: the last lines have g itself
    n = t to the nearest integer, ties to even
    f = t - n                       exact; -1/2 <= f <= 1/2
    p = 1 + f * (C1 + f * (C2 + f * (C3 + f * (C4 + f * C5))))     five fused multiply-adds, innermost first
    e = the float32 with bits(p) + (n << 23)                       2^t = exp(-|g|): 0 <= e <= 1
    r = 1 / (1 + e)                 an addition, and a correctly rounded reciprocal: 1/2 <= r <= 1
    s = max(g, g * e) * r           a product, a maximum that NaN wins, a product
    h = s * u

so silu(g) = g / (1 + exp(-g)) for g >= 0 and g * exp(g) / (1 + exp(g)) for g < 0. h is not rounded to the dtype of x.
C1 to C5 are below, fitted so that the largest relative error of 2^f is small, with p(0) = 1.

Why so. A GPU's own exp2 and reciprocal (ex2.approx, rcp.approx) are cheap, but their bits are nobody's promise: they
can be checked on one machine only and not reproduced here. So everything is made of operations that IEEE fixes:
- the exponent goes in with one integer addition, and n comes from adding 1.5 * 2^23, whose low bits then are n;
- degree 5 leaves 2^-23.4 of the exponential, less than the roundings, for one instruction a term;
- with |g| the exponential is at most 1 and the reciprocal is of a number in [1, 2]: no overflow, no infinity, no special
  case. rcp.rn is right by definition; rcp.approx and two fused multiply-adds do without its branch, and whether they
  round all of them right on a given GPU is a matter of trying 2^23 + 1 numbers (2 - 2^-23 is the hard one);
- t stops at -127 because there p = 1 and the sum of bits is exactly 0: silu(-large) is -0, not large * 2^-127. Between
  -127 and -126 e is a subnormal and off by less than 2^-126, so silu is off by less than |g| * 2^-126;
- the maximum picks g or g * e without a comparison: e <= 1.
About 19 instructions an element. Where 4 bytes come in and 1 goes out, the time of a copy has 35 on Hopper.
Against exact arithmetic, relative: 2^-21.4 for g >= -2, 2^-19.7 for g >= -20, 2^-17.9 down to g = -87, where the
rounding of t shows; bf16, where others round in between, is 2^-9.

NaN in g or u gives NaN. An infinite gate gives NaN on both sides: infinity * 0 lies in g * e.

What other models make of g and u is the same rule with other numbers, each operation rounded to float32 (`gated_unit`):

    g = min(g, limit)               NaN stays
    u = max(min(u, limit), -limit)
    s = g / (1 + exp(-z))           the rule above with |z| in the place of |g| in its first line; z = slope * g
    h = s * (u + added)             an addition, where added is not 0, and a product

    silu            no limit        slope 1        added 0
    deepseek_v4     a limit         slope 1        added 0
    gpt_oss         a limit         slope 1.702    added 1

A group of rows may have alpha: a factor for its gates and a factor for its ups. g and u are then multiplied by their factor and rounded to float32.
"""

from __future__ import annotations

import numpy as np

from zoo.reference.float32 import fused_multiply_add

MINUS_LOG2_E = np.float32(-1.4426950408889634)
C1, C2, C3, C4, C5 = (
    np.float32(float.fromhex(c)) for c in ("0x1.62e42ap-1", "0x1.ebf9bcp-3", "0x1.c6b752p-5", "0x1.3cea88p-7", "0x1.5bba14p-10")
)
ONE = np.float32(1)
ACTIVATIONS = {  # slope, what is added to ups, whether there is a limit
    "silu": (np.float32(1), np.float32(0), False),
    "deepseek_v4": (np.float32(1), np.float32(0), True),
    "gpt_oss": (np.float32(1.702), np.float32(1), True),
}
PIECE = 1 << 15  # elements at a time: the temporaries stay in a cache


def swiglu(x: np.ndarray, order: str = "halves") -> np.ndarray:
    """x (M, 2K) -> float32 (M, K). `order` as in `gates_and_ups`."""
    gate, up = gates_and_ups(x, order)
    with np.errstate(all="ignore"):
        return silu(gate.astype(np.float32)) * up.astype(np.float32)


def gates_and_ups(x: np.ndarray, order: str) -> tuple[np.ndarray, np.ndarray]:
    """halves: gates x[:, :K], ups x[:, K:]; interleaved: gates x[:, 0::2], ups x[:, 1::2]; packed: 8 gates, then their 8 ups."""
    columns, unit = x.shape[-1], 16 if order == "packed" else 2
    if columns % unit:
        raise ValueError(f"x has {columns} columns, expected a multiple of {unit}: as many gates as ups{', in units of 8' * (unit == 16)}")
    if order == "halves":
        return x[..., : columns // 2], x[..., columns // 2 :]
    if order == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    if order == "packed":
        units, half = x.reshape(*x.shape[:-1], columns // 16, 2, 8), (*x.shape[:-1], columns // 2)
        return units[..., 0, :].reshape(half), units[..., 1, :].reshape(half)
    raise ValueError(f"order is 'halves', 'interleaved' or 'packed', not {order!r}")


def gated_unit(x: np.ndarray, order: str, activation: str, limit: np.float32) -> np.ndarray:
    """float32 gates and ups in the order of `swiglu` -> h of one of ACTIVATIONS; silu has no limit."""
    gate, up = gates_and_ups(x, order)
    slope, added, limited = ACTIVATIONS[activation]
    with np.errstate(all="ignore"):
        if limited:
            gate, up = np.minimum(gate, limit), np.maximum(np.minimum(up, limit), -limit)
        return np.asarray(silu(gate, slope) * (up + added if added else up))


def silu(gate: np.ndarray, slope: np.float32 = ONE) -> np.ndarray:
    """The rule up to s, for float32 of any shape."""
    flat = np.ascontiguousarray(gate, np.float32).reshape(-1)
    result = np.empty_like(flat)
    for start in range(0, flat.size, PIECE):
        result[start : start + PIECE] = _silu(flat[start : start + PIECE], slope)
    return result.reshape(gate.shape)


def sigmoids(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rule's r and e * r, which are sigmoid(|z|) and sigmoid(-|z|), for float32 of any shape."""
    e, r = _exponential_and_reciprocal(z)
    return r, e * r


def _silu(g: np.ndarray, slope: np.float32) -> np.ndarray:
    with np.errstate(all="ignore"):
        e, r = _exponential_and_reciprocal(slope * g)
        return np.asarray(np.maximum(g, g * e) * r)


def _exponential_and_reciprocal(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """e and r of the rule."""
    with np.errstate(all="ignore"):
        e = _exp2(np.fmax(np.abs(z) * MINUS_LOG2_E, np.float32(-127)))
        return e, np.float32(1) / (np.float32(1) + e)


def _exp2(t: np.ndarray) -> np.ndarray:
    """2^t for -127 <= t <= 0."""
    n = np.rint(t)
    f = t - n
    p = fused_multiply_add(C5, f, C4)
    for coefficient in (C3, C2, C1, np.float32(1)):
        p = fused_multiply_add(p, f, coefficient)
    return np.asarray((p.view(np.int32) + (n.astype(np.int32) << 23)).view(np.float32))
