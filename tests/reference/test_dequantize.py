"""What elements and scales stand for: the product of their values, of the right scale, rounded once."""

import ml_dtypes
import numpy as np
import pytest

from tests.reference.cases import any_bits, bytes_of, every_format, same_bits
from tests.reference.test_formats import values_of
from zoo.reference.block_formats import block_format
from zoo.reference.dequantize import dequantize
from zoo.reference.groups import group_sizes
from zoo.reference.quantize import quantize_both, quantize_cols, quantize_rows, quantize_squares_rows
from zoo.reference.small_floats import pack_e2m1


@pytest.mark.parametrize(
    ("format", "element", "scale_dtype"),
    [(block_format("mxfp8", "e4m3"), "e4m3", ml_dtypes.float8_e8m0fnu), (block_format("mxfp8", "e5m2"), "e5m2", ml_dtypes.float8_e8m0fnu),
     (block_format("mxfp4"), "e2m1", ml_dtypes.float8_e8m0fnu), (block_format("nvfp4", tensor_scale=0.3), "e2m1", ml_dtypes.float8_e4m3fn), (block_format("fp8b128"), "e4m3", np.float32)],
    ids=["mxfp8 e4m3", "mxfp8 e5m2", "mxfp4", "nvfp4", "fp8b128"],
)  # fmt: skip
def test_every_element_times_every_scale(format, element, scale_dtype):
    values = values_of(element)
    codes = np.resize(np.arange(len(values), dtype=np.uint8), (256, -(-len(values) // format.block) * format.block))
    if scale_dtype == np.float32:
        scale = any_bits((256, 1), np.float32, seed=1)
        scale_values = scale.astype(np.float64)
    else:
        scale = np.arange(256, dtype=np.uint8).reshape(256, 1).view(scale_dtype)
        scale_values = values_of("e4m3")[:, None] if format.name == "nvfp4" else 2.0 ** (np.arange(256.0)[:, None] - 127)
        if format.name != "nvfp4":
            scale_values[255] = np.nan
    with np.errstate(over="ignore", invalid="ignore"):
        expected = (values[codes] * scale_values).astype(np.float32)  # the product of 24 and 4 bits is exact in float64
        if format.name == "nvfp4":
            expected = (expected.astype(np.float64) * np.float64(np.float32(0.3))).astype(np.float32)
    scales = np.broadcast_to(scale, (256, codes.shape[1] // format.block))
    q = pack_e2m1(codes) if format.packed else codes.view(ml_dtypes.float8_e5m2 if element == "e5m2" else ml_dtypes.float8_e4m3fn)
    found = dequantize(q, np.ascontiguousarray(scales), format, codes.shape[1])
    nan = np.isnan(expected)
    assert (bytes_of(found)[nan] == 0x7FFFFFFF).all()
    assert np.array_equal(bytes_of(found)[~nan], bytes_of(expected)[~nan])


@every_format
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_other_dtypes_are_the_float32_rounded_once_and_nan_has_one_pattern(format, dtype):
    x = np.random.default_rng(2).standard_normal((5, 2 * format.block)).astype(np.float32)
    x[0, 0] = np.nan
    result = quantize_rows(x, format)
    exact, found = (dequantize(result.q, result.scales, format, x.shape[1], to) for to in ("f32", dtype))
    nan = np.isnan(exact)
    assert nan.any() and (bytes_of(found)[nan[:, :]] == 0x7FFF).sum() == nan.sum()
    assert same_bits(found[~nan], exact[~nan].astype(found.dtype))


@every_format
def test_comes_back_near_x_in_both_directions(format):
    x = np.random.default_rng(3).standard_normal((3 * format.block + 5, 2 * format.block)).astype(np.float32)
    rows, cols = quantize_both(x, format)
    step = {True: 0.3, False: 0.13}[format.packed]  # of the largest of a block: half a step of e2m1 at 4 to 6, or saturation
    for result, original in ((rows, x), (cols, x.T)):
        back = dequantize(result.q, result.scales, format, original.shape[1])
        assert back.shape == original.shape
        assert np.abs(back - original).max() <= step * np.abs(x).max() and not np.array_equal(back, original)


@every_format
def test_squares_use_one_scale_for_all_their_rows(format):
    x = np.random.default_rng(4).standard_normal((2 * format.block + 3, 2 * format.block)).astype(np.float32)
    x[: format.block] *= 100
    result = quantize_squares_rows(x, format)
    back = dequantize(result.q, result.scales, format, x.shape[1])
    row = np.arange(len(x)) // format.block
    assert same_bits(back, dequantize(result.q, np.ascontiguousarray(result.scales[row]), format, x.shape[1]))
    assert np.abs(back - x)[format.block :].max() < 2


@every_format
def test_groups_along_the_columns_restart_the_blocks(format):
    offsets = np.array([33, 33, 100, 227], np.int32)
    x = np.random.default_rng(5).standard_normal((230, 8)).astype(np.float32)
    x[33:100] *= 1000
    sizes = group_sizes(offsets, 230)
    cols = quantize_cols(x, format, offsets=offsets)
    back = dequantize(cols.q, cols.scales, format, 227, column_groups=sizes)
    for start, end in ((0, 33), (33, 100), (100, 227)):
        alone = quantize_cols(x[start:end], format)
        assert same_bits(back[:, start:end], dequantize(alone.q, alone.scales, format, end - start))


def test_tensor_scales_of_groups_and_stacks_find_their_elements():
    tensor_scales = np.array([0.001, 0.5, 0.02], np.float32)
    offsets = np.array([5, 5, 40], np.int32)
    sizes = group_sizes(offsets, 40)
    x = np.random.default_rng(6).standard_normal((40, 32)).astype(np.float32)
    rows, cols = quantize_both(x, block_format("nvfp4", tensor_scale=tensor_scales), offsets=offsets)
    back = dequantize(rows.q, rows.scales, block_format("nvfp4", tensor_scale=tensor_scales), 32, row_groups=sizes)
    back_cols = dequantize(cols.q, cols.scales, block_format("nvfp4", tensor_scale=tensor_scales), 40, column_groups=sizes)
    assert np.abs(back - x).max() < 0.6 and np.abs(back_cols.T - x).max() < 0.6
    stack = np.stack((x, x * 50, x * 3))
    result = quantize_rows(stack, block_format("nvfp4", tensor_scale=tensor_scales))
    back = dequantize(result.q, result.scales, block_format("nvfp4", tensor_scale=tensor_scales), 32)
    for i in range(3):
        assert same_bits(back[i], dequantize(result.q[i], result.scales[i], block_format("nvfp4", tensor_scale=tensor_scales[i]), 32))


def test_padding_stands_for_zero():
    offsets = np.array([5, 40], np.int32)
    for format in (block_format("mxfp8"), block_format("mxfp4"), block_format("nvfp4", tensor_scale=1.0), block_format("fp8b128")):
        rows, cols = quantize_both(np.ones((40, 256), np.float32), format, offsets=offsets, padded=True)
        assert dequantize(rows.q, rows.scales, format, 256).sum(axis=1).nonzero()[0].tolist() == [*range(5), *range(128, 163)]
        back = dequantize(cols.q, cols.scales, format, 40 + 256)
        assert back.sum(axis=0).nonzero()[0].tolist() == [*range(5), *range(128, 163)]
