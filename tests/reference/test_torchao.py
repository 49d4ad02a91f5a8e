"""The reference against torchao's to_mx, where torch and torchao are installed (a CPU build will do)."""

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")
mx_tensor = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
config = pytest.importorskip("torchao.prototype.mx_formats.config")

# Release 0.18.0 divides where the rule multiplies, treats infinity as a large number and loses scale byte 0.
if not hasattr(mx_tensor, "_f32_to_e8m0_rceil"):
    pytest.skip("this torchao has an older MXFP8 rule: commit 36027d82 or later is needed", allow_module_level=True)

from zoo.reference import quantize_mxfp8_rows  # noqa: E402

ELEMENTS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def inputs():
    random = np.random.default_rng(13)
    patterns = np.arange(65536, dtype=np.uint32)
    alone = np.zeros((65536, 32), np.uint32)
    alone[np.arange(65536), random.integers(0, 32, 65536)] = patterns
    for bits in (patterns.reshape(-1, 32), random.permutation(patterns).reshape(-1, 256), alone.reshape(-1, 1024)):
        yield torch.from_numpy(bits.astype(np.uint16).view(np.int16).copy()).view(torch.bfloat16)
        yield torch.from_numpy((bits << 16).view(np.int32).copy()).view(torch.float32)
    any_float32 = random.integers(0, 1 << 32, (300, 1024), dtype=np.uint64).astype(np.uint32)
    yield torch.from_numpy(any_float32.view(np.int32)).view(torch.float32)
    yield torch.from_numpy(random.standard_normal((129, 160)).astype(np.float32))


def as_numpy(x):
    if x.dtype is torch.bfloat16:
        return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return x.numpy()


@pytest.mark.parametrize("layout", ["plain", "blocked"])
@pytest.mark.parametrize("rounding", ["floor", "rceil", "even", "ceil"])
@pytest.mark.parametrize("element", ["e4m3", "e5m2"])
def test_same_bytes_as_to_mx(element, rounding, layout):
    mode = getattr(config.ScaleCalculationMode, rounding.upper())
    for x in inputs():
        scales, q = mx_tensor.to_mx(x, ELEMENTS[element], 32, mode, is_swizzled_scales=layout == "blocked")
        q, scales = q.view(torch.uint8).numpy(), scales.view(torch.uint8).numpy().ravel()
        expected_q, expected_scales = quantize_mxfp8_rows(as_numpy(x), element, rounding, layout)
        assert np.array_equal(scales, expected_scales.view(np.uint8).ravel())
        # NaN elements are NaN in both; which of the NaN bytes is ours to fix (0x7F).
        is_nan = np.isnan(expected_q.astype(np.float32))
        assert np.array_equal(np.isnan(q.view(expected_q.dtype).astype(np.float32)), is_nan)
        assert np.array_equal(q[~is_nan], expected_q.view(np.uint8)[~is_nan])
