"""The reference against torchao's MXFP4, NVFP4, 3-D weights, grouped scales and padded groups, where torchao is installed.

Where torchao differs, the difference is a test too: zoo's written rule decides.
"""

import ml_dtypes
import numpy as np
import pytest

from tests.reference.cases import any_bits, bytes_of, every_bf16, same_bits
from zoo.reference.block_formats import block_format, nvfp4_tensor_scale
from zoo.reference.groups import group_sizes, padded_bounds
from zoo.reference.quantize import quantize_cols, quantize_rows, quantize_squares_cols
from zoo.reference.scales import blocked_column_groups_shape, columns_of_groups, to_blocked_column_groups, to_blocked_row_groups
from zoo.reference.small_floats import E4M3, decode, unpack_e2m1

torch = pytest.importorskip("torch")
mx_tensor = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
if not hasattr(mx_tensor, "_f32_to_e8m0_rceil"):
    pytest.skip("this torchao has older MX rules: commit 36027d82 or later is needed", allow_module_level=True)

from torchao.prototype.moe_training.kernels.mxfp8 import quant  # noqa: E402
from torchao.prototype.mx_formats import config, nvfp4_tensor  # noqa: E402


def to_torch(x):
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(x.copy())


def as_bytes(tensor):
    return tensor.contiguous().view(torch.uint8).numpy()


def inputs():
    patterns = every_bf16()[0]
    shuffled = np.random.default_rng(1).permutation(patterns).reshape(-1, 256)
    alone = np.zeros((65536, 32), ml_dtypes.bfloat16)
    alone[np.arange(65536), np.arange(65536) % 32] = patterns
    yield from (patterns.reshape(-1, 32), shuffled, alone)
    with np.errstate(invalid="ignore"):
        yield from (shuffled.astype(np.float32), any_bits((300, 512), np.float32, seed=2, finite=False))
    yield np.random.default_rng(3).standard_normal((129, 160)).astype(np.float32)


@pytest.mark.parametrize("layout", ["plain", "blocked"])
@pytest.mark.parametrize("rounding", ["floor", "rceil", "even", "ceil"])
def test_mxfp4_is_to_mx(rounding, layout):
    mode = getattr(config.ScaleCalculationMode, rounding.upper())
    for x in inputs():
        scales, q = mx_tensor.to_mx(to_torch(x), torch.float4_e2m1fn_x2, 32, mode, is_swizzled_scales=layout == "blocked")
        expected = quantize_rows(x, block_format("mxfp4", rounding=rounding), layout)
        assert np.array_equal(as_bytes(scales).reshape(-1), bytes_of(expected.scales).reshape(-1))
        # e2m1 has no NaN. In a block with scale 255, which is NaN, torchao leaves a code that zoo fixes at 0.
        nan = quantize_rows(x, block_format("mxfp4", rounding=rounding)).scales.view(np.uint8).repeat(32, axis=1) == 255
        codes = unpack_e2m1(as_bytes(q).reshape(len(x), -1))
        assert np.array_equal(codes[~nan], unpack_e2m1(expected.q)[~nan]) and (unpack_e2m1(expected.q)[nan] == 0).all()


@pytest.mark.parametrize("amax", [448.0 * 6, 1.0, 0.37, 1e-5, 3e38, 1e-20])
def test_nvfp4_is_nvfp4_quantize(amax):
    tensor_scale = nvfp4_tensor_scale(amax)
    assert tensor_scale == nvfp4_tensor.per_tensor_amax_to_scale(torch.tensor(amax)).numpy()
    for x in inputs():
        scales, q = nvfp4_tensor.nvfp4_quantize(to_torch(x), 16, torch.from_numpy(tensor_scale.copy()))
        expected = quantize_rows(x, block_format("nvfp4", tensor_scale=tensor_scale))
        assert np.array_equal(as_bytes(scales), bytes_of(expected.scales))
        nan = np.isnan(decode(expected.scales, E4M3)).repeat(16, axis=1)
        codes = unpack_e2m1(as_bytes(q).reshape(len(x), -1))
        assert np.array_equal(codes[~nan], unpack_e2m1(expected.q)[~nan]) and (unpack_e2m1(expected.q)[nan] == 0).all()


def test_nvfp4_without_a_tensor_scale_is_tensor_scale_one():
    for x in inputs():
        scales, q = nvfp4_tensor.nvfp4_quantize(to_torch(x), 16)
        expected = quantize_rows(x, block_format("nvfp4", tensor_scale=1.0))
        nan = np.isnan(decode(expected.scales, E4M3)).repeat(16, axis=1)
        assert np.array_equal(as_bytes(scales), bytes_of(expected.scales))
        assert np.array_equal(unpack_e2m1(as_bytes(q).reshape(len(x), -1))[~nan], unpack_e2m1(expected.q)[~nan])


def test_nvfp4_zero_tensor_differs_torchao_divides_by_zero():
    scales, _ = nvfp4_tensor.nvfp4_quantize(torch.zeros(2, 32), 16, nvfp4_tensor.per_tensor_amax_to_scale(torch.tensor(0.0)))
    assert torch.isnan(scales.float()).all()
    result = quantize_rows(np.zeros((2, 32), np.float32), block_format("nvfp4", tensor_scale=nvfp4_tensor_scale(0.0)))
    assert (bytes_of(result.scales) == 0x08).all() and (result.q == 0).all()


@pytest.mark.parametrize("rounding", ["floor", "rceil"])
@pytest.mark.parametrize("shape", [(3, 64, 96), (2, 160, 256)])
def test_stacks_of_weights_are_the_3d_quantiser(rounding, shape):
    x = any_bits(shape, ml_dtypes.bfloat16, seed=4)
    x[0] = np.random.default_rng(4).standard_normal(shape[1:])
    for side, blocked, quantize in ((1, False, quantize_cols), (1, True, quantize_cols), (32, False, quantize_squares_cols)):
        options = {"scale_block_dim1": 32, "scale_block_dim2": side, "scaling_mode": rounding, "blocked_scale_output": blocked}
        q, scales = quant._mxfp8_quantize_reference_3d(to_torch(x), block_size=32, **options)
        expected = quantize(x, block_format("mxfp8", "e4m3", rounding=rounding), "blocked" if blocked else "plain")
        assert np.array_equal(as_bytes(q.transpose(1, 2)), bytes_of(expected.q))
        # Plain, torchao keeps (E, N / 32, K); zoo stores what it stores for every `cols`, (E, K, N / 32).
        found = as_bytes(scales) if blocked else as_bytes(scales).reshape(shape[0], shape[1] // 32, -1).swapaxes(1, 2)
        assert np.array_equal(found, bytes_of(expected.scales))
    # Blocked scales of squares, which that reference does not reach: every row of a square has the square's.
    repeated = torch.from_numpy(bytes_of(expected.scales)).repeat_interleave(32, dim=1)
    found = quantize_squares_cols(x, block_format("mxfp8", "e4m3", rounding=rounding), "blocked").scales
    assert np.array_equal(quant.torch_to_blocked_per_group_3d(repeated).numpy(), bytes_of(found))


OFFSETS = [[32, 32, 160, 288, 320], [1, 130, 130, 300], [0, 0, 256]]


@pytest.mark.parametrize("offsets", OFFSETS)
def test_blocked_row_groups(offsets):
    plain = np.random.default_rng(5).integers(1, 256, (offsets[-1], 8), dtype=np.uint8)
    offsets = np.array(offsets, np.int32)
    found, starts = quant.torch_to_blocked_2d_M_groups(torch.from_numpy(plain), torch.from_numpy(offsets))
    expected, found = to_blocked_row_groups(plain, offsets, len(plain)), found.numpy().reshape(-1)
    assert starts[:-1].tolist() == padded_bounds(offsets)[0].tolist()
    # zoo's has whole tiles: it rounds M up to 128 as well. Zeros beyond.
    assert np.array_equal(found, expected[: len(found)]) and (expected[len(found) :] == 0).all()


@pytest.mark.parametrize("offsets", OFFSETS)
def test_blocked_column_groups(offsets):
    sizes = group_sizes(np.array(offsets, np.int32), offsets[-1])
    counts = columns_of_groups(sizes, 32)
    plain = np.random.default_rng(6).integers(1, 256, (200, counts.sum()), dtype=np.uint8)
    found, _ = quant.torch_to_blocked_2d_K_groups(torch.from_numpy(plain), torch.from_numpy(np.cumsum(counts)))
    size = np.prod(blocked_column_groups_shape(200, offsets[-1], len(offsets), 32))
    expected, found = to_blocked_column_groups(plain, counts, size), found.numpy().reshape(-1)
    shorter, longer = sorted((found, expected), key=len)
    assert np.array_equal(longer[: len(shorter)], shorter) and (longer[len(shorter) :] == 0).all()


@pytest.mark.parametrize("offsets", OFFSETS)
def test_padded_groups_lie_where_pad_token_groups_puts_them(offsets):
    x = any_bits((offsets[-1], 64), np.float32, seed=7)
    offsets = np.array(offsets, np.int32)
    padded, starts, ends = quant.torch_pad_token_groups(to_torch(x), torch.from_numpy(offsets), 128)
    assert [starts.tolist(), ends.tolist()] == [bound.tolist() for bound in padded_bounds(offsets)]
    # torchao pads and then quantises; zeros have scale byte 0 in MXFP8, so the bytes are those of zoo's padding.
    expected = quantize_rows(padded.numpy()[: len(x) + 128 * len(offsets)], block_format("mxfp8"))
    found = quantize_rows(x, block_format("mxfp8"), "plain", offsets, padded=True)
    assert same_bits(found.q, expected.q) and same_bits(found.scales, expected.scales)
