"""Stands in for `zoo.launch` where there is no GPU: a call is resolved as on one, and zoo.reference answers it in host memory.

Products are exact, not those of the tensor core's sums: what is compared with them has the quantisers' errors, 30 times as large.
"""

from dataclasses import replace

import ml_dtypes
import numpy
import torch

from zoo.benchmark.arguments import resolve_without_device
from zoo.contract.array import Array
from zoo.packaged import packaged
from zoo.reference import block_format, gather, padded_bounds, quantize_cols, quantize_rows, quantize_squares_both, swiglu
from zoo.reference.gemm import exact
from zoo.runtime.arrays import Call

_NUMPY = {torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn, torch.bfloat16: ml_dtypes.bfloat16}
_BITS = {1: torch.uint8, 2: torch.int16}


def launch(name, **arguments):
    kernel, values = packaged.kernel(name), Call.read(arguments).values
    resolve_without_device(kernel, {n: replace(v, device=0) if isinstance(v, Array) else v for n, v in values.items()})
    numbers = {n: _host(value) if isinstance(value, torch.Tensor) else value for n, value in arguments.items()}
    for output, array in _ANSWERS[name](**numbers).items():
        array = numpy.ascontiguousarray(array)
        bits = torch.from_numpy(array.view(f"u{array.itemsize}") if array.itemsize == 1 else array)
        into = arguments[output]
        assert into.shape == array.shape, f"{name}: {output}"
        (into.view(torch.uint8) if into.dtype == torch.float8_e4m3fn else into).copy_(bits)


def _host(tensor):
    if tensor.dtype not in _NUMPY:
        return tensor.detach().numpy()
    return tensor.detach().view(_BITS[tensor.element_size()]).numpy().view(_NUMPY[tensor.dtype])


def _rows(x, q, scales, offsets, index=None):
    assert offsets[-1] == len(q)
    return vars(quantize_rows(x if index is None else gather(x, index), block_format("fp8b128"), offsets=offsets))


def _swiglu(x, q, scales):
    return vars(quantize_rows(swiglu(x.reshape(len(x), -1)), block_format("fp8b128")))


def _columns(x, offsets, q, scales, padded_starts, padded_ends, layout):
    starts, ends = padded_bounds(offsets)
    return vars(quantize_cols(x, block_format("fp8b128"), layout, offsets, padded=True)) | {"padded_starts": starts, "padded_ends": ends}


def _squares(x, q, scales, q_cols, scales_cols):
    along_k, along_n = quantize_squares_both(x, block_format("fp8b128"))
    return vars(along_k) | {"q_cols": along_n.q, "scales_cols": along_n.scales}


def _by_rows(a, a_scale, b, b_scale, offsets, d):
    groups = zip(numpy.split(a, offsets[:-1]), numpy.split(a_scale, offsets[:-1]), b, b_scale, strict=True)
    return {"d": numpy.concatenate([exact(*operands)[0] for operands in groups]).astype(numpy.float32)}


def _by_columns(a, a_scale, b, b_scale, offsets, d):
    assert not (offsets % 128).any()
    result, begin = numpy.zeros(d.shape, numpy.float32), 0
    for group, end in enumerate(offsets.tolist()):
        blocks, columns = slice(begin // 128, end // 128), slice(begin, end)
        if begin < end:
            of_each_row = numpy.repeat(b_scale[:, blocks], 128, axis=1)
            left = a[:, columns].astype(numpy.float64) * numpy.repeat(a_scale[:, blocks], 128, axis=1)
            result[group] = left @ (b[:, columns].astype(numpy.float64) * of_each_row).T
        begin = end
    return {"d": result}


_ANSWERS = {
    "quantize.fp8b128.rows.m_grouped_contiguous": _rows,
    "quantize.fp8b128.rows.swiglu": _swiglu,
    "quantize.fp8b128.cols.m_grouped_padded": _columns,
    "quantize.fp8b128.squares": _squares,
    "gemm.fp8b128.m_grouped_contiguous": _by_rows,
    "gemm.fp8b128.k_grouped": _by_columns,
}
