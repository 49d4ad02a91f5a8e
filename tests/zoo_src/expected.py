"""What the test kernels compute, in numpy: the formulas at the heads of their sources."""

import ml_dtypes
import numpy


def fp8b128_dense(a, b, bias, alpha, shift, block_m, output):
    """a (M, K) and b (N, K) as bytes, bias (N,) or None; exact while the sums are small integers and alpha a power of two."""
    (m_count, k_count), n_count = a.shape, b.shape[0]
    from_a = numpy.zeros((m_count, n_count), numpy.float32)
    width = min(k_count, n_count)
    from_a[:, :width] = a[:, :width]
    m = numpy.arange(m_count)
    k = 32 * (m // block_m % (k_count // 32)) + m % 32
    from_b = b.astype(numpy.float32)[:, k].T
    added = numpy.float32(shift) + (0 if bias is None else bias)
    result = numpy.float32(alpha) * from_a + from_b + added
    return result.astype({"f32": numpy.float32, "bf16": ml_dtypes.bfloat16}[output])


def fp8b128_dense_who(m_count, n_count, block_m, grid, cluster):
    tiles = -(-m_count // block_m) * -(-n_count // 128)
    cta = numpy.arange(tiles) % grid
    return cta + 65536 * (cta // cluster * cluster + cluster - 1)


def mxfp4_masked(a, scale, masked_m, untouched, layout):
    """a and untouched (G, max_m, K_bytes) as bytes; scale as the layout says."""
    groups, max_m, k_bytes = a.shape
    g, m, j = numpy.ogrid[:groups, :max_m, :k_bytes]
    c = j // 16
    scales = scale[g, m, c] if layout == "plain" else scale[g, m // 128, c // 4, m % 32, 4 * (m // 32 % 4) + c % 4]
    counts = numpy.clip(masked_m, 0, max_m)
    return numpy.where(m < counts[:, None, None], a ^ scales, untouched), counts


def mxfp4_masked_workspace(masked_m, max_m, tag):
    counts = numpy.clip(masked_m, 0, max_m)[:, None]
    return (numpy.clip(counts - 32 * numpy.arange(-(-max_m // 32)), 0, 32) + tag).reshape(-1)


def bf16_mxfp4_dense(x, v, add):
    (_, k_count), padded = x.shape, -(-x.shape[1] // 32) * 32
    rows = x[::2].astype(numpy.float32)
    result = numpy.full((rows.shape[0], padded), numpy.nan, numpy.float32)
    result[:, :k_count] = rows + v + numpy.float32(add)
    return result
