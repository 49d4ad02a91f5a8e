"""Sizes as they are typed: `--shape 64,4096,7168`."""

from __future__ import annotations

import click

from zoo.contract.whole_numbers import shown

_LARGEST = 2**63 - 1
_DIGITS = len(str(_LARGEST))


def typed_sizes(text: str) -> list[int]:
    """Whole numbers between commas, none larger than an array can be."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise click.BadParameter(f"{shown(text)}: expected whole numbers between commas, such as 64,4096,7168")
    too_large = next((word for word in words if len(word.lstrip("0")) > _DIGITS or int(word) > _LARGEST), None)
    if too_large is not None:
        raise click.BadParameter(f"{shown(too_large)} is larger than any size: the largest is {_LARGEST:,}")
    return [int(word) for word in words]
