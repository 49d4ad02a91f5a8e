"""MXFP8 weights in fp8b128: equal numbers where e4m3 has them, a count where not, and the written rule everywhere."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
import torch

import zoo.torch as zt
from zoo.errors import ArgumentError
from zoo.reference.fold_scales import fold_scales as rule
from zoo.torch import folded

E4M3, NAN = torch.float8_e4m3fn, 255
DEVICE = "cuda" if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9 else "cpu"


def weights(codes, scales, squares=False):
    elements, scales = (torch.from_numpy(np.ascontiguousarray(one, np.uint8)).to(DEVICE) for one in (codes, scales))
    return zt.Quantized(elements.view(E4M3), scales, "mxfp8", squares=squares)


def codes_of(q):
    return q.elements.view(torch.uint8).cpu().numpy()


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE)


def test_normal_numbers_and_their_scales_are_exact_but_for_the_smallest():
    x = normal(300, 416)
    plain = zt.quantize(x, "mxfp8", layout="plain", rounding="rceil")
    made = zt.fold_scales(plain)
    off = (made.weights.dequantize("f32") - plain.dequantize("f32")).abs()
    assert made.weights.format == "fp8b128" and made.weights.squares and made.weights.scales.shape == (3, 4)
    assert int((off > 0).sum()) == made.rounded < 1e-3 * x.numel()
    largest = plain.dequantize("f32").abs().max()
    assert off.max() <= largest / 229376


@pytest.mark.parametrize("squares", [False, True])
def test_numbers_that_e4m3_has_under_one_scale_keep_their_bits(squares):
    """In the left blocks exponents may decrease by one, in the right blocks they increase: there subnormals become normal numbers."""
    random, signs = np.random.default_rng(2), np.array([0, 128])
    left = random.integers(0x10, 0x7F, (160, 128)) | random.choice(signs, (160, 128))
    right = random.integers(0, 0x1F, (160, 128)) | random.choice(signs, (160, 128))
    scales = random.integers(120, 122, (5 if squares else 160, 8))
    plain = weights(np.hstack((left, right)), scales, squares)
    made = zt.fold_scales(plain)
    assert (made.rounded, made.largest_error) == (0, 0.0)
    rows = weights(codes_of(plain), np.repeat(scales, 32, 0)) if squares else plain
    assert torch.equal(made.weights.dequantize("f32").view(torch.int32), rows.dequantize("f32").view(torch.int32))


def test_wide_exponents_are_counted_and_rounded_to_nearest_even():
    codes, scales = np.zeros((2, 64)), np.full((2, 2), 127)
    codes[0, 0] = 0x78  # 256, so 2^0 is the scale of the block
    scales[1] = 127 - 20
    codes[1, :4] = 0x78, 0x69, 0x61, 0x71  # * 2^-20: 2^-12, 1.125 * 2^-14 ... are less than 2^-10 and become zero
    made = zt.fold_scales(weights(codes, scales))
    assert (made.rounded, made.largest_error) == (4, 1.0) and not codes_of(made.weights)[1].any()
    scales[1] = 127 - 16
    codes[1, :4] = 0x78, 0x70, 0x7C, 0x74  # 2^-8 has its bit, 2^-9 too, 1.5 * 2^-8 too; 1.5 * 2^-9 is a tie and becomes 2^-8
    made = zt.fold_scales(weights(codes, scales))
    assert codes_of(made.weights)[1, :4].tolist() == [2, 1, 3, 2] and made.rounded == 1 and made.largest_error == pytest.approx(1 / 3)


@pytest.mark.parametrize("shape", [(300, 416), (2, 130, 160), (1, 32), (0, 64)])
@pytest.mark.parametrize("squares", [False, True])
def test_any_bytes_give_the_bytes_of_the_written_rule(shape, squares, monkeypatch):
    """Ragged extents, NaN elements, scales of 0 and 255, and weights of several parts."""
    monkeypatch.setattr(folded, "_AT_A_TIME", 128 * shape[-1])
    random, (*more, rows, columns) = np.random.default_rng(3), shape
    codes = random.integers(0, 256, shape)
    scales = random.integers(0, 256, (*more, -(-rows // 32) if squares else rows, columns // 32))
    scales[..., ::3, :] = np.minimum(scales[..., ::3, :] // 4 + 100, 140)
    scales[..., :1, :1] = NAN
    wanted = rule(codes.astype(np.uint8).view(ml_dtypes.float8_e4m3fn), scales.astype(np.uint8)) if rows else None
    made = zt.fold_scales(weights(codes, scales, squares))
    if wanted is None:
        assert made.weights.shape == shape and made.rounded == 0
        return
    np.testing.assert_array_equal(codes_of(made.weights), wanted.q.view(np.uint8))
    np.testing.assert_array_equal(made.weights.scales.cpu().numpy(), wanted.scales)
    assert (made.rounded, made.largest_error) == wanted[2:]


def test_a_scale_or_an_element_that_is_no_number_reaches_its_elements_alone():
    codes, scales = np.full((128, 128), 0x38), np.full((128, 4), 127)
    scales[5, 2], codes[7, 9], codes[8, 9] = NAN, 0x7F, 0xFF
    made = zt.fold_scales(weights(codes, scales))
    wanted = np.zeros((128, 128), bool)
    wanted[5, 64:96] = wanted[7:9, 9] = True
    numbers = made.weights.dequantize("f32").cpu().numpy()
    np.testing.assert_array_equal(np.isnan(numbers), wanted)
    assert made.rounded == 0 and (numbers[~wanted] == 1).all()


def test_blocks_of_zeros_and_the_smallest_and_largest_scales_keep_their_numbers():
    codes, scales = np.zeros((128, 384)), np.zeros((128, 12))
    codes[:, 128:256] = 0x78  # 256 * 2^-127
    codes[:, 256:], scales[:, 8:] = 0x7E, 254  # 448 * 2^127 is more than f32 has
    made = zt.fold_scales(weights(codes, scales))
    assert made.weights.scales.tolist() == [[1.0, 2.0**-126, 2.0**127]] and made.rounded == 0
    assert (codes_of(made.weights)[0, ::128] == [0, 0x70, 0x7E]).all()


def test_a_view_of_some_columns_gives_weights_whose_rows_are_contiguous():
    whole = zt.quantize(normal(96, 320), "mxfp8", layout="plain")
    part = zt.Quantized(whole.elements[:, 64:224], whole.scales[:, 2:7], "mxfp8")
    made, exact = zt.fold_scales(part).weights, whole.dequantize("f32")[:, 64:224]
    assert made.elements.is_contiguous() and (made.dequantize("f32") - exact).abs().max() <= exact.abs().max() / 229376


def test_a_product_by_folded_weights_is_that_of_the_numbers():
    x, w = normal(9, 256).bfloat16(), normal(160, 256).bfloat16()
    plain = zt.quantize(w, "mxfp8", layout="plain", rounding="rceil")
    a, b = zt.quantize(x, "fp8b128"), zt.fold_scales(plain).weights
    exact = a.dequantize("f32") @ plain.dequantize("f32").t()
    assert (zt.matmul(a, b.t(), dtype="f32") - exact).norm() < 1e-3 * exact.norm()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: torch.ones(2, 2), "expected weights of mxfp8 in e4m3, got a Tensor"),
        (lambda: zt.quantize(torch.ones(128, 128), "fp8b128"), "got Quantized(fp8b128"),
        (lambda: zt.quantize(torch.ones(128, 128), "mxfp8", q="e5m2"), "torch.float8_e5m2"),
        (lambda: zt.quantize(torch.ones(128, 128), "mxfp8").to("meta"), "on the device meta, which holds no numbers"),
        (lambda: weights(np.zeros((4, 40)), np.zeros((4, 1))), "expected K as a multiple of 32 and scales (4, 1), got K = 40"),
        (lambda: weights(np.zeros((40, 64)), np.zeros((2, 2))), "scales (40, 2), got K = 64 and scales (2, 2)"),
    ],
)
def test_what_has_no_such_scales_is_refused_in_a_sentence(wrong, words):
    with pytest.raises(ArgumentError) as caught:
        zt.fold_scales(wrong())
    assert words in str(caught.value)


def test_a_layer_that_loses_bits_warns_once(monkeypatch):
    monkeypatch.setattr(folded, "_said", False)
    codes, scales = np.full((128, 128), 0x78), np.full((128, 4), 127)
    scales[3, 1] = 100
    with pytest.warns(
        UserWarning, match=r"32 of 16384 elements were rounded\. Each is off by at most 1/229376 of the largest .*fold_scales"
    ):
        folded.in_fp8b128(weights(codes, scales))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folded.in_fp8b128(weights(codes, scales))
