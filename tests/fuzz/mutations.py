"""Texts and bytes with something wrong in them."""

from __future__ import annotations

import random
import re

NUMBERS = (0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 1023, 1024, 1025, 4095, 65535, 65536, 2**20, 2**31 - 1, 2**31,
           2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70, 10**400)  # fmt: skip


def number(pick: random.Random) -> int:
    value = pick.choice(NUMBERS)
    return -value if pick.random() < 0.25 else value


def mutated_tokens(pick: random.Random, tokens: list[str], words: list[str], count: int) -> list[str]:
    """`count` times: a token deleted, doubled, swapped, moved, replaced, or its number changed. `tokens` itself stays."""
    tokens = list(tokens)
    for _ in range(count):
        if len(tokens) < 3:
            break
        at, kind = pick.randrange(len(tokens)), pick.randrange(8)
        other = pick.randrange(max(0, at - 40), min(len(tokens), at + 40))
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(at, tokens[at])
        elif kind == 2:
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind == 3:
            tokens.insert(other, tokens.pop(at))
        elif kind == 4:
            tokens[at] = pick.choice(words)
        elif kind == 5:
            tokens.insert(at, pick.choice(words))
        elif kind == 6:
            first, last = sorted((at, other))
            tokens[first:first] = tokens[first:last]
        else:
            numbers = [index for index in range(max(0, at - 60), min(len(tokens), at + 60)) if re.fullmatch(r"\d+", tokens[index])]
            if numbers:
                tokens[pick.choice(numbers)] = "9" * 5000 if pick.random() < 0.02 else str(number(pick))
    return tokens


def mutated_bytes(pick: random.Random, data: bytes, count: int) -> bytes:
    """`count` times: a bit flipped, a word overwritten, a stretch removed, doubled or moved."""
    words = [0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63, 2**64 - 1, len(data), len(data) - 1]
    changed = bytearray(data)
    for _ in range(count):
        if len(changed) < 2:
            break
        at, kind, length = pick.randrange(len(changed)), pick.randrange(6), pick.randrange(1, 64)
        if kind == 0:
            changed[at] ^= 1 << pick.randrange(8)
        elif kind == 1:
            size = pick.choice((1, 2, 4, 8))
            changed[at : at + size] = (pick.choice(words) % 2 ** (8 * size)).to_bytes(size, "little")
        elif kind == 2:
            del changed[at : at + length]
        elif kind == 3:
            changed[at:at] = changed[at : at + length]
        elif kind == 4:
            other = pick.randrange(len(changed))
            changed[at : at + length] = changed[other : other + length]
        else:
            changed[at : at + 1] = bytes([pick.randrange(256)])
    return bytes(changed)
