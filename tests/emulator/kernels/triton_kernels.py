"""Kernels for Triton's compiler, each with a part of the language whose PTX differs between GPUs."""

import triton
import triton.language as tl


@triton.jit
def layer_norm(x, y, n, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * n + column, column < n, other=0.0)
    mean = tl.sum(row, 0) / n
    away = tl.where(column < n, row - mean, 0.0)
    tl.store(y + tl.program_id(0) * n + column, away * tl.rsqrt(tl.sum(away * away, 0) / n + 1e-5), column < n)


@triton.jit
def doubled_by_descriptor(x, y, rows, columns, HIGH: tl.constexpr, WIDE: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [HIGH, WIDE])
    target = tl.make_tensor_descriptor(y, [rows, columns], [columns, 1], [HIGH, WIDE])
    first, second = tl.program_id(0) * HIGH, tl.program_id(1) * WIDE
    target.store([first, second], source.load([first, second]) * 2)


@triton.jit
def sum_and_largest(x, y, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + place, place < n, other=0)
    tl.atomic_add(y, tl.sum(values, 0))
    tl.atomic_max(y + 1, tl.max(values, 0))


@triton.jit
def sums_order_and_counts(x, y, BLOCK: tl.constexpr, BINS: tl.constexpr):
    place = tl.arange(0, BLOCK)
    values = tl.load(x + place)
    tl.store(y + place, tl.cumsum(values, 0))
    tl.store(y + BLOCK + place, tl.sort(values))
    tl.store(y + 2 * BLOCK + tl.arange(0, BINS), tl.histogram(values, BINS))


@triton.jit
def to_eight_bits_and_back(x, y, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(y + place, tl.load(x + place).to(tl.float8e5).to(tl.float32))


@triton.jit
def attention(q, k, v, o, n, WIDE: tl.constexpr, BLOCK: tl.constexpr, SPECIALISED: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDE)
    query = tl.load(q + row[:, None] * WIDE + column[None, :])
    largest, total = tl.full((BLOCK,), -1e30, tl.float32), tl.zeros((BLOCK,), tl.float32)
    sums = tl.zeros((BLOCK, WIDE), tl.float32)
    for start in tl.range(0, n, BLOCK, warp_specialize=SPECIALISED):
        key = start + tl.arange(0, BLOCK)
        scores = tl.dot(query, tl.load(k + key[None, :] * WIDE + column[:, None]))
        new = tl.maximum(largest, tl.max(scores, 1))
        weights, shrink = tl.exp(scores - new[:, None]), tl.exp(largest - new)
        total = total * shrink + tl.sum(weights, 1)
        values = tl.load(v + key[:, None] * WIDE + column[None, :])
        sums = tl.dot(weights.to(values.dtype), values, sums * shrink[:, None])
        largest = new
    tl.store(o + row[:, None] * WIDE + column[None, :], (sums / total[:, None]).to(o.dtype.element_ty))
