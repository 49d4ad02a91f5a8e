"""The formats of matrices that zoo has words for: what their elements and scales are. Kernel names take their words from here.

A format is added here, and kernel names, checks and documentation know it. A zoo of one's own adds words in its tree's names.toml.
"""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """What one matrix is stored as."""

    name: str
    words: str
    elements: tuple[str, ...]  # the dtypes an element may have
    scales: str | None = None  # the dtype of a scale; None: the elements are the numbers
    block: int | None = None  # so many elements of a row share a scale; None: all of the row
    tensor_scale: bool = False  # one f32 more, for the whole matrix


class Pair(NamedTuple):
    """The operands A and B of a product, where their formats differ."""

    name: str
    words: str
    a: tuple[str, ...]  # the formats that A may have
    b: str


FORMATS = {
    one.name: one
    for one in (
        Format("fp8b128", "e4m3 with an f32 scale for 128 elements of a row, of weights for a square of 128 x 128", ("e4m3",), "f32", 128),
        Format("mxfp8", "e4m3 or e5m2 with a ue8m0 scale for 32 elements", ("e4m3", "e5m2"), "ue8m0", 32),
        Format("mxfp4", "e2m1 with a ue8m0 scale for 32 elements", ("e2m1x2",), "ue8m0", 32),
        Format("nvfp4", "e2m1 with an e4m3 scale for 16 elements and one f32 scale for the matrix", ("e2m1x2",), "e4m3", 16, True),
        Format("fp8token", "e4m3 with an f32 scale for each row", ("e4m3",), "f32"),
        Format("bf16", "bf16 without scales", ("bf16",)),
    )
}
PAIRS = {
    one.name: one
    for one in (
        Pair("fp8_nvfp4", "e4m3, scaled by row, by 128 elements or as a whole, times nvfp4", ("fp8token", "fp8b128"), "nvfp4"),
        Pair("fp8_mxfp4", "e4m3, scaled by row, by 128 elements or as a whole, times mxfp4", ("fp8token", "fp8b128"), "mxfp4"),
        Pair("mxfp8_mxfp4", "mxfp8 times mxfp4", ("mxfp8",), "mxfp4"),
        Pair("bf16_nvfp4", "bf16 times nvfp4", ("bf16",), "nvfp4"),
        Pair("bf16_mxfp4", "bf16 times mxfp4", ("bf16",), "mxfp4"),
    )
}

# Everything that the field `formats` of a kernel's name may say; bf16 alone is no format that a kernel makes or reads scales of.
NAMES = (*(name for name, one in FORMATS.items() if one.scales), *PAIRS)
