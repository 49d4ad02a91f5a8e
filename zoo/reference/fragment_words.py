"""Where each code of a chunk, 64 x 64 weights in 2048 bytes, lies: in an order for products with FP8 and in one for products with bf16.

Thread t = 32 w + 4 g + q of a warpgroup (warp w, g < 8, q < 4) has the 16 bytes from 16 t on, four little-endian words of eight codes of the
rows 16 w + 8 h + g. A code is three bits of magnitude, lowest first, and a sign.

    fp8     word 2 s + h has columns 16 q + 8 s + j, j < 8, of row h
                magnitude at 4 j to 4 j + 2; sign at 8 j + 7 if j < 4, or else at 8 (j - 4) + 3
    bf16    word i has columns 16 i + 8 s + 2 q + j, j < 2, of both rows: a pair for each register r = 2 s + h of instruction i
                r = 0, 1, 2     magnitude at 16 j + 3 r + 6 to 16 j + 3 r + 8, sign at 16 j + 3 r + 15, counted round a word of 32 bits
                r = 3           magnitude at 16 j + 3, 16 j + 4, 16 j; sign at 16 j + 1

FP8: a mask leaves four magnitudes as selectors of a byte permutation, another the signs of four weights in the top bits of four bytes, where e4m3
has them. bf16: turned right by 3 r and masked, a word is two bf16, each 2^-126 of a code; the last register takes a product with 2^14 + 2^8 + 2^3 instead.
"""

from __future__ import annotations

import numpy as np

ROWS, COLUMNS = 64, 64  # of a chunk
CODE_BYTES = ROWS * COLUMNS // 2
TOKENS = ("fp8", "bf16")


def _places(tokens: str) -> np.ndarray:
    """(8, 4): of each code of a word, where its bits lie. fp8: by j; bf16: by h, s, j."""
    if tokens == "fp8":
        return np.array([[4 * j, 4 * j + 1, 4 * j + 2, 8 * j + 7 if j < 4 else 8 * j - 29] for j in range(8)], np.uint32)
    if tokens != "bf16":
        raise ValueError(f"tokens is one of {', '.join(TOKENS)}, not {tokens!r}")
    of_registers = [[(3 * r + bit) % 32 for bit in (6, 7, 8, 15)] for r in range(3)] + [[3, 4, 0, 1]]
    return np.array(
        [[(16 * j + bit) % 32 for bit in of_registers[2 * s + h]] for h in range(2) for s in range(2) for j in range(2)], np.uint32
    )


def packed_codes(codes: np.ndarray, tokens: str) -> np.ndarray:
    """(..., 64 R, 64 C) codes -> (..., R, C, 2048) bytes."""
    lead, rows, chunks = codes.shape[:-2], codes.shape[-2] // ROWS, codes.shape[-1] // COLUMNS
    if tokens == "fp8":
        split = codes.reshape(*lead, rows, 4, 2, 8, chunks, 4, 2, 8)  # w, h, g; q, s, j
        of_words = axes_behind(split, lead, (0, 4, 1, 3, 5, 6, 2, 7))
    else:
        split = codes.reshape(*lead, rows, 4, 2, 8, chunks, 4, 2, 4, 2)  # w, h, g; i, s, q, j
        of_words = axes_behind(split, lead, (0, 4, 1, 3, 7, 5, 2, 6, 8))
    of_words = of_words.reshape(*lead, rows, chunks, CODE_BYTES // 4, 8)
    bits = np.arange(16, dtype=np.uint32)[:, None] >> np.arange(4, dtype=np.uint32) & 1
    words = np.zeros(of_words.shape[:-1], np.uint32)
    for code, places in enumerate(_places(tokens)):
        words |= np.bitwise_or.reduce(bits << places, axis=-1)[of_words[..., code]]
    return words.astype("<u4").view(np.uint8)


def unpacked_codes(b: np.ndarray, tokens: str) -> np.ndarray:
    """The inverse."""
    lead, rows, chunks = b.shape[:-3], b.shape[-3], b.shape[-2]
    words, places = np.ascontiguousarray(b).view("<u4")[..., None], _places(tokens)
    codes = np.zeros((*words.shape[:-1], 8), np.uint8)
    for bit in range(4):
        codes |= (words >> places[:, bit] & 1).astype(np.uint8) << bit
    if tokens == "fp8":
        split = codes.reshape(*lead, rows, chunks, 4, 8, 4, 2, 2, 8)  # w, g, q, s, h, j
        in_rows = axes_behind(split, lead, (0, 2, 6, 3, 1, 4, 5, 7))
    else:
        split = codes.reshape(*lead, rows, chunks, 4, 8, 4, 4, 2, 2, 2)  # w, g, q, i, h, s, j
        in_rows = axes_behind(split, lead, (0, 2, 6, 3, 1, 5, 7, 4, 8))
    return in_rows.reshape(*lead, rows * ROWS, chunks * COLUMNS)


def axes_behind(x: np.ndarray, lead: tuple[int, ...], order: tuple[int, ...]) -> np.ndarray:
    """The axes behind the leading ones in another order."""
    first = len(lead)
    return np.transpose(x, (*range(first), *(first + axis for axis in order)))
