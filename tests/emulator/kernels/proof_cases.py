"""Every proof kernel with its launch, its inputs and what must come out, as data.

The same cases run on the emulator (test_kernels.py), as the ground of the mutants (mutants/) and on a GPU (run_on_gpu.py). Inputs
are chosen so that every sum is exact: results are compared bit by bit, whole buffers at a time, so that a byte written outside
the result is seen too (outputs start as POISON).
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from proof_numbers import (
    E2M1_VALUES,
    E4M3_VALUES,
    bf16_bits,
    bf16_values,
    blocked_scales,
    e4m3_codes,
    exact_f32,
    pack_nibbles,
    swizzled_offset,
)

FOLDER = Path(__file__).parent
POISON = 0xA5


@dataclass(frozen=True)
class Pointer:
    buffer: str


@dataclass(frozen=True)
class Map:
    """A tensor map over a buffer; the fields of zoo.contract.tensor_map.TensorMap."""

    buffer: str
    dtype: str
    dims: tuple
    strides: tuple  # bytes, dimensions 1 and up
    box: tuple
    swizzle: str = "none"


@dataclass(frozen=True)
class Case:
    name: str
    source: str  # file in this folder
    arch: str
    entry: str
    grid: tuple
    block: int
    parameters: tuple  # int, Pointer or Map
    buffers: dict  # name -> initial content
    expected: dict  # name -> content afterwards; a buffer that is not here must not change
    cluster: tuple = (1, 1, 1)
    shared_bytes: int = 0
    teaches: tuple = field(default=())  # the capabilities it proves

    @property
    def path(self):
        return FOLDER / self.source

    def outcome(self, name):
        return self.expected.get(name, self.buffers[name])


_BUILDERS = {}


def case(*variants):
    """Registers a function that builds a Case; called once per variant (the arguments of the function)."""

    def register(build):
        for arguments in variants or ((),):
            _BUILDERS["-".join([build.__name__, *map(str, arguments)])] = (build, arguments)
        return build

    return register


def names(arch=None):
    return [name for name in _BUILDERS if arch is None or get(name).arch == arch]


@cache
def get(name):
    build, arguments = _BUILDERS[name]
    return build(name, np.random.default_rng(sum(name.encode())), *arguments)


def poison(shape, dtype):
    return np.full(int(np.prod(shape)) * np.dtype(dtype).itemsize, POISON, np.uint8).view(dtype).reshape(shape)


def tiles(extent, tile):
    return -(-extent // tile)


def pad_rows(rows, multiple):
    """2-D bytes with each row padded with POISON to a multiple of bytes: the pitch that a tensor map needs."""
    result = poison((rows.shape[0], tiles(rows.shape[1], multiple) * multiple), np.uint8)
    result[:, : rows.shape[1]] = rows
    return result


# ---- copies ----------------------------------------------------------------------------------------------------------------


@case(("none",), ("32B",), ("64B",), ("128B",), ("128B_atom_32B",), ("128B_atom_32B_flip_8B",), ("128B_atom_64B",))
def tma_swizzle(name, rng, swizzle):
    row_bytes = {"32B": 32, "64B": 64}.get(swizzle, 128)
    width, height, tile_rows = row_bytes * 2 + 12, 50, 32
    grid = (tiles(width, row_bytes), tiles(height, tile_rows))
    source = pad_rows(rng.integers(0, 256, (height, width), dtype=np.uint8), 16)
    pitch = source.shape[1]
    target = poison((height, pitch), np.uint8)
    stored = np.zeros_like(target)  # its rows end where the load has put zeros: TMA stores cut rows off at multiples of 16 bytes only
    stored[:, :width] = source[:, :width]
    whole = np.zeros((grid[1] * tile_rows, grid[0] * row_bytes), np.uint8)  # outside the tensor: zeros
    whole[:height, :width] = source[:, :width]
    image = np.empty((grid[1], grid[0], tile_rows * row_bytes), np.uint8)
    offsets = swizzled_offset(np.arange(tile_rows * row_bytes), swizzle)
    for y in range(grid[1]):
        for x in range(grid[0]):
            box = whole[y * tile_rows : (y + 1) * tile_rows, x * row_bytes : (x + 1) * row_bytes]
            image[y, x, offsets] = box.reshape(-1)
    shape = dict(dtype="u8", strides=(pitch,), box=(row_bytes, tile_rows), swizzle=swizzle)
    return Case(
        name, "tma_swizzle.cu", "sm_100a" if "atom" in swizzle else "sm_90a", "tma_swizzle", grid, 64,
        (Map("source", dims=(width, height), **shape), Map("target", dims=(pitch, height), **shape), Pointer("image"), row_bytes),
        {"source": source, "target": target, "image": poison(image.shape, np.uint8)},
        {"target": stored, "image": image},
        shared_bytes=5120, teaches=("TMA load and store", "swizzle"),
    )  # fmt: skip


@case()
def bulk_copy(name, rng):
    elements = 256 * 6 + 100
    x = rng.integers(0, 2**32, elements, dtype=np.uint32)
    y = poison(elements + 8, np.uint32)
    expected = y.copy()
    expected[:elements] = x + np.uint32(1)
    return Case(
        name, "bulk_copy.cu", "sm_90a", "bulk_copy", (2,), 64, (Pointer("x"), Pointer("y"), elements),
        {"x": x, "y": y}, {"y": expected}, teaches=("bulk 1-D copy", "proxy fence"),
    )  # fmt: skip


@case(("groups",), ("mbarrier",))
def cp_async(name, rng, form):
    rows, columns, tokens = 13, 160, 20
    x = rng.integers(-9, 10, (tokens, columns)).astype(np.float32)
    index = rng.integers(0, tokens, rows).astype(np.int32)
    y = poison(rows + 5, np.float32)
    expected = y.copy()
    expected[:rows] = exact_f32(x[index].astype(np.float64).sum(1))
    return Case(
        name, "cp_async.cu", "sm_90a", f"cp_async_{form}", (tiles(rows, 8),), 64,
        (Pointer("x"), Pointer("index"), Pointer("y"), rows, columns),
        {"x": x, "index": index, "y": y}, {"y": expected}, teaches=("cp.async",),
    )  # fmt: skip


@case()
def tma_reduce(name, rng):
    rows, columns = 96, 72
    x = rng.integers(-9, 10, (rows, columns)).astype(np.float32)
    y = rng.integers(-9, 10, (32, columns)).astype(np.float32)
    total = exact_f32(y.astype(np.float64) + x.astype(np.float64).reshape(3, 32, columns).sum(0))
    return Case(
        name, "tma_reduce.cu", "sm_90a", "tma_reduce", (tiles(columns, 32), rows // 32), 32,
        (Map("x", "f32", (columns, rows), (columns * 4,), (32, 32)), Map("y", "f32", (columns, 32), (columns * 4,), (32, 32))),
        {"x": x, "y": y}, {"y": total}, teaches=("TMA reduction",),
    )  # fmt: skip


@case()
def tma_gather4(name, rng):
    tokens, columns = 10, 128
    x = rng.integers(0, 2**16, (tokens, columns)).astype(np.uint16)
    index = np.array([7, 2, 2, 9, 0, tokens, 5, 1000, 3, 8, 1, 6], np.int32)  # two of them outside
    expected = np.zeros((len(index), columns), np.uint16)
    inside = index < tokens
    expected[inside] = x[index[inside]]
    return Case(
        name, "tma_gather4.cu", "sm_100a", "tma_gather4", (columns // 64, len(index) // 4), 32,
        (Map("x", "bf16", (columns, tokens), (columns * 2,), (64, 1)),
         Map("y", "bf16", (columns, len(index)), (columns * 2,), (64, 4)), Pointer("index")),
        {"x": x, "index": index, "y": poison(expected.shape, np.uint16)}, {"y": expected}, teaches=("TMA gather4",),
    )  # fmt: skip


@case(("align8",), ("align16",))
def tma_packed_fp4(name, rng, form):
    columns, rows, box_rows = (300, 20, 16) if form == "align8" else (256, 20, 16)
    values = pad_rows(rng.integers(0, 256, (rows, columns // 2), dtype=np.uint8), 32)
    grid = (tiles(columns, 128), tiles(rows, box_rows))
    whole = np.zeros((grid[1] * box_rows, grid[0] * 64), np.uint8)
    whole[:rows, : columns // 2] = values[:, : columns // 2]
    image = np.ascontiguousarray(whole.reshape(grid[1], box_rows, grid[0], 64).transpose(0, 2, 1, 3))
    return Case(
        name, "tma_packed_fp4.cu", "sm_100a", "tma_packed_fp4", grid, 64,
        (Map("x", f"u4_{form}", (columns, rows), (values.shape[1],), (128, box_rows)), Pointer("image"), 1 if form == "align8" else 2),
        {"x": values, "image": poison(image.shape, np.uint8)}, {"image": image}, teaches=("packed 4-bit TMA",),
    )  # fmt: skip


@case()
def stmatrix_tma_store(name, rng):
    rows, columns = 104, 136
    x = (rng.standard_normal((rows, columns)) * 2.0 ** rng.integers(-20, 20, (rows, columns))).astype(np.float32)
    y = bf16_bits(x)
    return Case(
        name, "stmatrix_tma_store.cu", "sm_90a", "stmatrix_tma_store", (tiles(columns, 64), tiles(rows, 64)), 128,
        (Pointer("x"), Map("y", "bf16", (columns, rows), (columns * 2,), (64, 64), "128B"),
         Map("y_transposed", "bf16", (rows, columns), (rows * 2,), (64, 64), "128B"), rows, columns),
        {"x": x, "y": poison(y.shape, np.uint16), "y_transposed": poison(y.T.shape, np.uint16)},
        {"y": y, "y_transposed": np.ascontiguousarray(y.T)},
        shared_bytes=17408, teaches=("stmatrix", "TMA store"),
    )  # fmt: skip


# ---- Hopper GEMMs ------------------------------------------------------------------------------------------------------------


def _d_buffer(m, n, dtype):
    """D with a poisoned tail: one tile row more than the kernel owns."""
    return poison((m + 3, n), dtype)


def _with_d(buffer, values):
    expected = buffer.copy()
    expected[: values.shape[0]] = values
    return expected


@case()
def wgmma_fp8_gemm(name, rng):
    m, n, k = 100, 98, 464  # values are small: |sum| < 2^13, which even Hopper's 13 fraction bits hold
    a, b = (rng.integers(-2, 3, (rows, k)) for rows in (m, n))
    d = _d_buffer(m, n, np.float32)
    return Case(
        name, "wgmma_fp8_gemm.cu", "sm_90a", "wgmma_fp8_gemm", (tiles(n, 64), tiles(m, 64)), 160,
        (Map("a", "u8", (k, m), (k,), (128, 64), "128B"), Map("b", "u8", (k, n), (k,), (128, 64), "128B"), Pointer("d"), m, n, k),
        {"a": e4m3_codes(a), "b": e4m3_codes(b), "d": d}, {"d": _with_d(d, exact_f32(a.astype(np.float64) @ b.T))},
        shared_bytes=50176, teaches=("wgmma fp8", "TMA + mbarrier pipeline"),
    )  # fmt: skip


def _bf16_gemm(rng, m, n, k):
    a, b = (bf16_bits(rng.integers(-8, 9, (rows, k)).astype(np.float32)) for rows in (m, n))
    return a, b, bf16_values(a), bf16_values(b)


def _k_major_bf16(buffer, rows, k, box_rows):
    return Map(buffer, "bf16", (k, rows), (k * 2,), (64, box_rows), "128B")


@case()
def wgmma_bf16_gemm(name, rng):
    m, n, k = 200, 72, 328
    a, b, a_values, b_values = _bf16_gemm(rng, m, n, k)
    d = _d_buffer(m, n, np.uint16)
    return Case(
        name, "wgmma_bf16_gemm.cu", "sm_90a", "wgmma_bf16_gemm", (tiles(n, 64), tiles(m, 128)), 384,
        (_k_major_bf16("a", m, k, 128), _k_major_bf16("b", n, k, 64), Pointer("d"), m, n, k),
        {"a": a, "b": b, "d": d}, {"d": _with_d(d, bf16_bits(exact_f32(a_values @ b_values.T)))},
        shared_bytes=74752, teaches=("wgmma bf16", "TMA + mbarrier pipeline", "setmaxnreg"),
    )  # fmt: skip


@case()
def wgmma_register_a(name, rng):
    m, n, k = 100, 64, 200
    a, b, a_values, b_values = _bf16_gemm(rng, m, n, k)
    d = _d_buffer(m, n, np.float32)
    return Case(
        name, "wgmma_register_a.cu", "sm_90a", "wgmma_register_a", (tiles(n, 64), tiles(m, 64)), 160,
        (_k_major_bf16("a", m, k, 64), _k_major_bf16("b", n, k, 64), Pointer("d"), m, n, k),
        {"a": a, "b": b, "d": d}, {"d": _with_d(d, exact_f32(abs(a_values) @ b_values.T))},
        shared_bytes=33792, teaches=("wgmma, A from registers", "ldmatrix"),
    )  # fmt: skip


@case()
def wgmma_mn_major(name, rng):
    m, n, k = 136, 72, 100
    a, b, a_values, b_values = _bf16_gemm(rng, m, n, k)
    d = _d_buffer(m, n, np.float32)
    return Case(
        name, "wgmma_mn_major.cu", "sm_90a", "wgmma_mn_major", (tiles(n, 64), tiles(m, 128)), 160,
        (Map("a", "bf16", (m, k), (m * 2,), (64, 32), "128B"), Map("b", "bf16", (n, k), (n * 2,), (64, 32), "128B"), Pointer("d"),
         m, n, k),
        {"a": np.ascontiguousarray(a.T), "b": np.ascontiguousarray(b.T), "d": d}, {"d": _with_d(d, exact_f32(a_values @ b_values.T))},
        shared_bytes=25600, teaches=("wgmma, MN-major operands",),
    )  # fmt: skip


@case()
def cluster_multicast(name, rng):
    m, n, k = 200, 100, 328
    a, b, a_values, b_values = _bf16_gemm(rng, m, n, k)
    d = _d_buffer(m, n, np.float32)
    return Case(
        name, "cluster_multicast.cu", "sm_90a", "cluster_multicast", (tiles(n, 64), tiles(m, 128) * 2), 160,
        (_k_major_bf16("a", m, k, 64), _k_major_bf16("b", n, k, 32), Pointer("d"), m, n, k),
        {"a": a, "b": b, "d": d}, {"d": _with_d(d, exact_f32(a_values @ b_values.T))},
        cluster=(1, 2, 1), shared_bytes=33792, teaches=("cluster multicast", "distributed shared memory"),
    )  # fmt: skip


# ---- Blackwell GEMMs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operand:
    values: np.ndarray  # what the codes and scales mean, float64 (rows, k)
    data: np.ndarray  # bytes of a row-major matrix, padded rows
    scales: np.ndarray  # (rows, k / block) bytes


def _operand(rng, rows, k, element, scale_block):
    """Random codes and scales whose products and sums are exact in f32."""
    if element == "e4m3":
        codes = e4m3_codes(rng.integers(-4, 5, (rows, k)))
        values, data = E4M3_VALUES[codes], codes
    else:
        codes = rng.integers(0, 16, (rows, k))
        values, data = E2M1_VALUES[codes], pack_nibbles(codes)
    blocks = tiles(k, scale_block)
    if scale_block == 16:  # ue4m3
        scales = e4m3_codes(rng.choice([0.5, 1, 1.5, 2], (rows, blocks)))
        factors = E4M3_VALUES[scales]
    else:  # ue8m0
        scales = rng.integers(126, 129, (rows, blocks)).astype(np.uint8)
        factors = 2.0 ** (scales.astype(np.float64) - 127)
    return Operand(values * np.repeat(factors, scale_block, 1)[:, :k], pad_rows(data, 32), scales)


# kind: element of A, of B, values per scale, K (ragged where the format allows), values of K per stage, map types of A and B
_KINDS = {
    "mxf8f6f4": ("e4m3", "e4m3", 32, 416, 128, "u8", "u8"),
    "mxf8f6f4_e2m1": ("e4m3", "e2m1", 32, 512, 128, "u8", "u4_align16"),
    "mxf4": ("e2m1", "e2m1", 32, 960, 256, "u4_align8", "u4_align8"),
    "mxf4nvf4": ("e2m1", "e2m1", 16, 1008, 256, "u4_align8", "u4_align8"),
}


def _block_scaled(rng, kind, m, n, k=None):
    element_a, element_b, scale_block, usual_k, tile_k, map_a, map_b = _KINDS[kind]
    k = k or usual_k
    a, b = _operand(rng, m, k, element_a, scale_block), _operand(rng, n, k, element_b, scale_block)
    stages, blocks = tiles(k, tile_k), tiles(tile_k // scale_block, 4)
    assert tiles(tiles(k, scale_block), 4) == stages * blocks, "the kernel wants whole stages of scale blocks"
    scales = {"scales_a": blocked_scales(a.scales), "scales_b": blocked_scales(b.scales)}

    def map_of(buffer, operand, dtype, rows, box_rows):
        return Map(buffer, dtype, (k, rows), (operand.data.shape[1],), (tile_k if dtype != "u4_align16" else 128, box_rows), "128B")

    return a, b, k, scales, blocks, map_of, map_a, map_b


@case(*((kind,) for kind in _KINDS))
def tcgen05(name, rng, kind):
    m, n = 200, 136
    a, b, k, scales, _, map_of, map_a, map_b = _block_scaled(rng, kind, m, n)
    d = _d_buffer(m, n, np.float32)
    return Case(
        name, "tcgen05_one_cta.cu", "sm_100a", f"tcgen05_{kind}", (tiles(n, 128), tiles(m, 128)), 128,
        (map_of("a", a, map_a, m, 128), map_of("b", b, map_b, n, 128), Pointer("scales_a"), Pointer("scales_b"), Pointer("d"), m, n, k),
        {"a": a.data, "b": b.data, "d": d, **scales}, {"d": _with_d(d, exact_f32(a.values @ b.values.T))},
        shared_bytes=111616, teaches=(f"tcgen05 {kind}", "tcgen05.cp", "tcgen05.ld"),
    )  # fmt: skip


@case(*((kind,) for kind in _KINDS))
def tcgen05_pair(name, rng, kind):
    m, n = 300, 136
    a, b, k, scales, blocks, map_of, map_a, map_b = _block_scaled(rng, kind, m, n)
    d = _d_buffer(m, n, np.float32)

    def scale_map(buffer):
        return Map(buffer, "u32", (128, scales[buffer].size // 512), (512,), (128, blocks))

    return Case(
        name, "tcgen05_cta_pair.cu", "sm_100a", f"tcgen05_pair_{kind}", (tiles(n, 128), tiles(m, 256) * 2), 128,
        (map_of("a", a, map_a, m, 128), map_of("b", b, map_b, n, 64), scale_map("scales_a"), scale_map("scales_b"), Pointer("d"), m, n, k),
        {"a": a.data, "b": b.data, "d": d, **scales}, {"d": _with_d(d, exact_f32(a.values @ b.values.T))},
        cluster=(1, 2, 1), shared_bytes=87040, teaches=(f"tcgen05 {kind}", "CTA pair", "tcgen05.cp", "tcgen05.ld"),
    )  # fmt: skip


@case()
def tcgen05_persistent(name, rng):
    m, n = 300, 264  # nine tiles for fewer CTAs
    a, b, k, scales, _, map_of, map_a, map_b = _block_scaled(rng, "mxf4nvf4", m, n, k=496)
    d = _d_buffer(m, n, np.float32)
    return Case(
        name, "tcgen05_persistent.cu", "sm_100a", "tcgen05_persistent", (tiles(n, 128) * tiles(m, 128),), 256,
        (map_of("a", a, map_a, m, 128), map_of("b", b, map_b, n, 128), Pointer("scales_a"), Pointer("scales_b"), Pointer("d"), m, n, k),
        {"a": a.data, "b": b.data, "d": d, **scales}, {"d": _with_d(d, exact_f32(a.values @ b.values.T))},
        shared_bytes=111616, teaches=("tcgen05 mxf4nvf4", "cluster launch control", "two accumulators"),
    )  # fmt: skip


@case(("mxf8f6f4",), ("mxf4",), ("mxf4nvf4",))
def mma_sync(name, rng, kind):
    element, _, scale_block, _, _, _, _ = _KINDS[kind]
    m, n, k = 32, 24, 256
    a, b = _operand(rng, m, k, element, scale_block), _operand(rng, n, k, element, scale_block)
    d = _d_buffer(m, n, np.float32)
    return Case(
        name, "mma_sync_block_scaled.cu", "sm_120a", f"mma_sync_{kind}", (n // 8, m // 16), 32,
        (Pointer("a"), Pointer("scales_a"), Pointer("b"), Pointer("scales_b"), Pointer("d"), n, a.data.shape[1]),
        {"a": a.data, "b": b.data, "scales_a": a.scales, "scales_b": b.scales, "d": d},
        {"d": _with_d(d, exact_f32(a.values @ b.values.T))}, teaches=(f"mma.sync {kind}",),
    )  # fmt: skip


@case(("single",), ("cluster",))
def clc_persistent(name, rng, form):
    grid = 24
    x = rng.standard_normal(grid * 64).astype(np.float32)
    y = poison(grid * 64 + 16, np.float32)
    expected = y.copy()
    expected[: grid * 64] = 2 * x
    return Case(
        name, "clc_persistent.cu", "sm_100a", "clc_persistent" if form == "single" else "clc_persistent_cluster", (grid,), 64,
        (Pointer("x"), Pointer("y"), Pointer("visits")),
        {"x": x, "y": y, "visits": np.zeros(grid, np.uint32)}, {"y": expected, "visits": np.ones(grid, np.uint32)},
        cluster=(1 if form == "single" else 2, 1, 1), teaches=("cluster launch control",),
    )  # fmt: skip
