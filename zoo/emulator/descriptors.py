"""Matrix descriptors: what the 64-bit shared-memory descriptors and the 32-bit instruction descriptors say, and where elements lie.

A shared-memory operand is read in 16-byte chunks, because every layout keeps 16 bytes together:
`k_major_chunks` and `mn_major_chunks` give the byte offset of every chunk in the CTA's shared memory, swizzle included.
Decoding collects what is wrong in `problems` (sentences); the caller reports them as "invalid-descriptor".
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy

from . import number_formats
from .number_formats import Format

SWIZZLE_NONE, SWIZZLE_32, SWIZZLE_64, SWIZZLE_128, SWIZZLE_128_ATOM_32 = "none", "32B", "64B", "128B", "128B with 32B atom"
_ROW_BYTES = {SWIZZLE_32: 32, SWIZZLE_64: 64, SWIZZLE_128: 128, SWIZZLE_128_ATOM_32: 128}
SPARSE_SWIZZLE_32 = "B of a sparse product with the 32-byte swizzle is not covered: it has 64 bytes along K, and the manual does not say where the upper 32 lie"
_WGMMA_SWIZZLE = (SWIZZLE_NONE, SWIZZLE_128, SWIZZLE_64, SWIZZLE_32)
_TCGEN05_SWIZZLE = {0: SWIZZLE_NONE, 1: SWIZZLE_128_ATOM_32, 2: SWIZZLE_128, 4: SWIZZLE_64, 6: SWIZZLE_32}


def swizzle(addresses: numpy.ndarray, mode: str) -> numpy.ndarray:
    """XOR some address bits (16-byte or 32-byte column within a row) with the row number taken from higher bits."""
    if mode == SWIZZLE_NONE:
        return addresses
    if mode == SWIZZLE_32:
        return addresses ^ (((addresses >> 7) & 1) << 4)
    if mode == SWIZZLE_64:
        return addresses ^ (((addresses >> 7) & 3) << 4)
    if mode == SWIZZLE_128:
        return addresses ^ (((addresses >> 7) & 7) << 4)
    if mode == SWIZZLE_128_ATOM_32:
        return addresses ^ (((addresses >> 7) & 3) << 5)
    raise ValueError(f"unknown swizzle {mode!r}")


@dataclass(frozen=True)
class MatrixDescriptor:
    """A shared-memory matrix: byte offset of its start, the two strides in bytes, and the swizzle.

    The swizzle follows the address, so a matrix may start in any row of the pattern. A base offset is for patterns that start elsewhere.
    """

    start: int
    leading: int
    stride: int
    swizzle: str
    problems: tuple[str, ...] = field(default=(), compare=False)

    def k_major_chunks(self, rows: int, row_bytes: int) -> numpy.ndarray:
        """Offsets (rows, row_bytes / 16) of the chunks of a K-major matrix."""
        relative = _k_major_relative(self.leading, self.stride, self.swizzle, rows, row_bytes)
        return swizzle(relative + self.start, self.swizzle)

    def mn_major_chunks(self, mn: int, depth: int, element_bytes: int) -> numpy.ndarray:
        """Offsets (depth, mn * element_bytes / 16) of the chunks of an MN-major matrix; a chunk runs along MN."""
        relative = _mn_major_relative(self.leading, self.stride, self.swizzle, mn, depth, element_bytes)
        return swizzle(relative + self.start, self.swizzle)


@functools.lru_cache(512)
def _k_major_relative(leading: int, stride: int, mode: str, rows: int, row_bytes: int) -> numpy.ndarray:
    row = numpy.arange(rows)[:, None]
    chunk = numpy.arange(row_bytes // 16)[None, :]
    if mode == SWIZZLE_NONE:  # 8 x 16-byte core matrices
        return row // 8 * stride + row % 8 * 16 + chunk * leading
    return row // 8 * stride + row % 8 * _ROW_BYTES[mode] + chunk * 16


@functools.lru_cache(512)
def _mn_major_relative(leading: int, stride: int, mode: str, mn: int, depth: int, element_bytes: int) -> numpy.ndarray:
    k = numpy.arange(depth)[:, None]
    chunk = numpy.arange(mn * element_bytes // 16)[None, :]
    if mode == SWIZZLE_NONE:
        return chunk * stride + k % 8 * 16 + k // 8 * leading
    if mode == SWIZZLE_128_ATOM_32:
        # 32-bit elements only: an atom is 4 rows of k, each 128 bytes of mn.
        return chunk % 8 * 16 + chunk // 8 * leading + k % 4 * 128 + k // 4 * stride
    width = _ROW_BYTES[mode]
    per_row = width // 16
    return chunk % per_row * 16 + chunk // per_row * leading + k % 8 * width + k // 8 * stride


def decode_wgmma(bits: int) -> MatrixDescriptor:
    """The 64-bit matrix descriptor of wgmma."""
    mode = _WGMMA_SWIZZLE[bits >> 62]
    start = (bits & 0x3FFF) << 4
    problems = []
    if bits & 0x3FF1_C000_C000_C000:
        problems.append(f"reserved bits are set in {bits:#018x}")
    if bits >> 49 & 7:
        problems.append("a base offset other than 0 is not covered by the emulator")
    return MatrixDescriptor(start, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4, mode, tuple(problems))


def decode_tcgen05(bits: int) -> MatrixDescriptor:
    """The 64-bit shared-memory descriptor of tcgen05.mma and tcgen05.cp."""
    layout = bits >> 61
    mode = _TCGEN05_SWIZZLE.get(layout, SWIZZLE_NONE)
    start = (bits & 0x3FFF) << 4
    problems = []
    if layout not in _TCGEN05_SWIZZLE:
        problems.append(f"layout {layout} (bits 61-63) is none of 0, 1, 2, 4, 6")
    if bits >> 46 & 7 != 1:
        problems.append(f"bits 46-48 are {bits >> 46 & 7:#05b}; they must be 0b001")
    if bits >> 49 & 7:
        problems.append("a base offset other than 0 is not covered by the emulator")
    if bits >> 52 & 1:
        problems.append("the absolute leading-dimension mode (bit 52) exists only on sm_103 with K = 96")
    if bits >> 53 & 0xFF:
        problems.append(f"bits 53-60 must be zero, they are {bits >> 53 & 0xFF:#x}")
    if bits & 0xC000_C000:
        problems.append(f"reserved bits are set in {bits:#018x}")
    return MatrixDescriptor(start, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4, mode, tuple(problems))


# ---------------------------------------------------------------------------------------------
# instruction descriptors of tcgen05.mma

KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
BLOCK_SCALED = ("mxf8f6f4", "mxf4", "mxf4nvf4")

_F8F6F4 = {0: number_formats.E4M3, 1: number_formats.E5M2, 3: number_formats.E2M3, 4: number_formats.E3M2, 5: number_formats.E2M1}
_TYPES = {
    "f16": {0: number_formats.F16, 1: number_formats.BF16},
    "tf32": {2: number_formats.TF32},
    "f8f6f4": _F8F6F4,
    "i8": {0: "u8", 1: "s8"},
    "mxf8f6f4": _F8F6F4,
    "mxf4": {1: number_formats.E2M1},
    "mxf4nvf4": {1: number_formats.E2M1},
}
_DEPTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}


@dataclass(frozen=True)
class InstructionDescriptor:
    """What a tcgen05.mma computes; `a` and `b` are Formats, or "u8"/"s8" for kind::i8."""

    kind: str
    a: Format | str
    b: Format | str
    result: str  # f32, f16, s32
    m: int
    n: int
    k: int
    a_mn_major: bool
    b_mn_major: bool
    negate_a: bool
    negate_b: bool
    saturate: bool
    scale_format: Format | None
    scale_a_id: int
    scale_b_id: int
    sparse: bool
    selector: int  # of the sparsity metadata
    problems: tuple[str, ...] = field(default=(), compare=False)


@functools.lru_cache(1024)
def decode_instruction(
    bits: int, kind: str, cta_group: int, scale_vector: int | None, sparse: bool = False, stationary: bool = False
) -> InstructionDescriptor:
    """The 32-bit instruction descriptor; `scale_vector` is the number of scales per row (1, 2, 4) of a block-scaled kind.

    sparse: of tcgen05.mma.sp; stationary: of tcgen05.mma.ws.
    """
    problems = []
    scaled = kind in BLOCK_SCALED
    types = _TYPES[kind]
    a_code, b_code = bits >> 7 & 7, bits >> 10 & (3 if kind in ("mxf4", "mxf4nvf4") else 7)
    for name, code in (("A", a_code), ("B", b_code)):
        if code not in types:
            problems.append(f"type {code} of {name} does not exist for kind::{kind}")
    a = types.get(a_code, next(iter(types.values())))
    b = types.get(b_code, next(iter(types.values())))
    m, n, k = (bits >> 24 & 31) << 4, (bits >> 17 & 63) << 3, _DEPTH[kind] * (2 if sparse else 1)
    selector = bits & 3
    if kind == "f16" and a is not b:
        problems.append("kind::f16 needs the same type for A and B")
    if (bits >> 2 & 1) != sparse:
        problems.append(f"the sparsity bit (2) is {bits >> 2 & 1}: it must be {int(sparse)} {'with' if sparse else 'without'} .sp")
    if selector > (1 if sparse and kind in ("f16", "tf32") else 0):
        problems.append(f"the sparsity selector (bits 0-1) is {selector}: it is 0 or 1 for sparse kind::f16 and kind::tf32, otherwise 0")
    if bits >> 6 & 1:
        problems.append("reserved bit 6 is set")
    scale_format, scale_a_id, scale_b_id, saturate, result = None, 0, 0, False, "f32"
    if scaled:
        scale_format = number_formats.UE8M0 if bits >> 23 & 1 else number_formats.UE4M3
        scale_a_id, scale_b_id = bits >> 29 & 3, bits >> 4 & 3
        if bits >> 3 & 1:
            problems.append("reserved bit 3 is set")
        if bits >> 24 & 7:
            problems.append("reserved bits 24-26 are set")
        if kind != "mxf8f6f4" and bits >> 12 & 1:
            problems.append("reserved bit 12 is set")
        if bits >> 31:
            problems.append("bit 31 (K = 96) exists only on sm_103 for kind::mxf4 and kind::mxf4nvf4")
        problems += _scale_problems(kind, scale_format, scale_vector, scale_a_id, scale_b_id)
    else:
        saturate = bool(bits >> 3 & 1)
        if saturate and kind != "i8":
            problems.append("saturation is for kind::i8")
        code = bits >> 4 & 3
        allowed = {"f16": {0: "f16", 1: "f32"}, "tf32": {1: "f32"}, "f8f6f4": {0: "f16", 1: "f32"}, "i8": {2: "s32"}}[kind]
        if code not in allowed:
            problems.append(f"result type {code} does not exist for kind::{kind}")
        result = allowed.get(code, next(iter(allowed.values())))
        if result == "f16" and kind == "f16" and a is not number_formats.F16:
            problems.append("an f16 result needs f16 operands")
        if bits >> 23 & 1 or bits >> 29 & 1:
            problems.append("reserved bit 23 or 29 is set")
    negate_a, negate_b = bool(bits >> 13 & 1), bool(bits >> 14 & 1)
    if kind == "i8" and (negate_a or negate_b):
        problems.append("kind::i8 cannot negate")
    a_mn, b_mn = bool(bits >> 15 & 1), bool(bits >> 16 & 1)
    if kind in ("mxf4", "mxf4nvf4") and (a_mn or b_mn):
        problems.append(f"kind::{kind} has no transposed operands")
    for name, format, transposed in (("A", a, a_mn), ("B", b, b_mn)):
        if transposed and isinstance(format, Format) and format.bits < 8:
            problems.append(f"{name} is {format.name}: 4-bit and 6-bit types cannot be transposed")
    problems += _shapes_of_stationary(m, n) if stationary else _shape_problems(kind, cta_group, m, n, b_mn, sparse)
    return InstructionDescriptor(
        kind, a, b, result, m, n, k, a_mn, b_mn, negate_a, negate_b, saturate, scale_format, scale_a_id, scale_b_id, sparse, selector,
        tuple(problems),
    )  # fmt: skip


def _scale_problems(kind: str, scale: Format, vector: int | None, a_id: int, b_id: int) -> list[str]:
    allowed = {
        "mxf8f6f4": {(number_formats.UE8M0, 1)},
        "mxf4": {(number_formats.UE8M0, 2)},
        "mxf4nvf4": {(number_formats.UE8M0, 2), (number_formats.UE8M0, 4), (number_formats.UE4M3, 4)},
    }[kind]
    problems = []
    if (scale, vector) not in allowed:
        problems.append(f"kind::{kind} does not take {vector} {scale.name} scales per row")
    step = {1: 1, 2: 2, 4: 4}.get(vector, 1)
    for name, number in (("A", a_id), ("B", b_id)):
        if number % step:
            problems.append(f"scale id {number} of {name}: with {vector} scales per row it must be a multiple of {step}")
    return problems


def _shapes_of_stationary(m: int, n: int) -> list[str]:
    problems = [] if m in (32, 64, 128) else [f"M = {m}: tcgen05.mma.ws takes 32, 64 or 128"]
    return problems if n in (64, 128, 256) else [*problems, f"N = {n}: tcgen05.mma.ws takes 64, 128 or 256"]


def zero_columns(bits: int, m: int, n: int) -> numpy.ndarray:
    """Which of B's N columns count as zero, by a zero-column mask descriptor.

    The columns are 128 / M equal parts. A part alternates between spans of use + 1 columns that are used and of skip + 1 that are zero, as in
    the manual's examples (its table of fields has the two the other way round). It starts in the kind of span that `first` names, as many
    columns into it as `start` says. A start beyond that span leaves its last column: the manual is silent, a B200 is reported to do so.
    """
    if not bits >> 39 & 1:
        return numpy.zeros(n, bool)
    skip, use = (bits >> 40 & 255) + 1, (bits >> 48 & 255) + 1
    parts = 128 // m
    masks = []
    for part in range(parts):
        start, first = bits >> (8 * part) & 255, bits >> (32 + part) & 1
        start = min(start, (skip if first else use) - 1)
        place = numpy.arange(n // parts) + start + (use if first else 0)
        masks.append(place % (use + skip) >= use)
    return numpy.concatenate(masks)


def _shape_problems(kind: str, cta_group: int, m: int, n: int, b_mn_major: bool, sparse: bool) -> list[str]:
    if kind in BLOCK_SCALED:
        rows = (128,) if cta_group == 1 else (256,) if sparse else (128, 256)
    else:
        rows = (64, 128) if cta_group == 1 else (128, 256)
    problems = []
    if m not in rows:
        problems.append(f"M = {m}: kind::{kind} with cta_group::{cta_group} takes {' or '.join(map(str, rows))}")
    step = 8 if cta_group == 1 else 16
    if kind == "i8":
        fits = n in (8, 16, 24, 32) or (n > 32 and n % 16 == 0) if cta_group == 1 else n % 32 == 0
    else:
        fits = n % step == 0
        if b_mn_major and kind in ("f8f6f4", "mxf8f6f4"):
            fits = n % (2 * step) == 0
    if not fits or not step <= n <= 256:
        problems.append(f"N = {n} is not a shape of kind::{kind} with cta_group::{cta_group}")
    return problems
