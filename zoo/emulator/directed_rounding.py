"""Rounding toward zero (rz), down (rm) and up (rp) of float64 and float32 operations: the nearest result, moved one place where it lies on the
wrong side of the exact one. Exact by rational arithmetic, lane by lane: rare in kernels.
"""

from fractions import Fraction

import numpy as np

# The exact result minus r, or anything of its sign.
_ERRORS = {
    "add": lambda r, a, b: a + b - r, "mul": lambda r, a, b: a * b - r, "fma": lambda r, a, b, c: a * b + c - r,
    "div": lambda r, a, b: (a - r * b) * b, "sqrt": lambda r, a: a - r * r,
}  # fmt: skip
_OPPOSITE = {
    "add": lambda a, b: np.signbit(a) != np.signbit(b), "fma": lambda a, b, c: (np.signbit(a) != np.signbit(b)) != np.signbit(c),
}  # fmt: skip


def directed(name, nearest, rounding):
    """The function of arrays that rounds `nearest`, the operation rounded to nearest, in a direction."""
    error_of = _ERRORS[name]

    def function(*arguments):
        result = nearest(*arguments)
        for lane, found in enumerate(result):
            operands = [argument[lane] for argument in arguments]
            if np.isnan(found) or not all(map(np.isfinite, operands)) or (name == "div" and operands[1] == 0):
                continue
            error = -found if np.isinf(found) else error_of(*(Fraction(float(value)) for value in (found, *operands)))
            toward = 0 if rounding == "rz" else -np.inf if rounding == "rm" else np.inf
            if (error < 0 and toward < found) or (error > 0 and toward > found):
                result[lane] = np.nextafter(found, found.dtype.type(toward))
            elif rounding == "rm" and error == found == 0 and name in _OPPOSITE and _OPPOSITE[name](*operands):
                result[lane] = -0.0
        return result

    return function
