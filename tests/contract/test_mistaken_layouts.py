"""An operand in another layout has another shape, so that it is refused and not multiplied; the refusal names the call or option that makes the right one."""

import re

import ml_dtypes
import numpy
import pytest

import zoo
from tests.mistaken_layouts import HAZARDS, MISTAKES
from zoo.errors import ArgumentError, ConstraintError
from zoo.reference.fragments import column_order


def called(mistake, spoilt):
    kernel = zoo.kernel(mistake.kernel)
    gpu = zoo.emulator.Device("hopper" if kernel.archs[0].startswith("sm_90") else "blackwell")
    return zoo.call(mistake.kernel, **{name: gpu.array(array) for name, array in mistake.arrays(spoilt).items()}, **mistake.settings)


@pytest.mark.parametrize("mistake", MISTAKES, ids=HAZARDS)
def test_an_operand_of_another_layout_is_refused_with_the_name_of_its_maker(mistake):
    with pytest.raises((ArgumentError, ConstraintError), match=rf"{mistake.wrong[0]}\b.*{re.escape(mistake.maker)}"):
        called(mistake, spoilt=True)


@pytest.mark.parametrize("mistake", MISTAKES, ids=HAZARDS)
def test_the_operand_that_its_maker_writes_is_multiplied(mistake):
    result = called(mistake, spoilt=False)
    assert all(getattr(result, name).shape == tuple(shape) for name, (_, *shape) in mistake.outputs.items())


def test_as_many_rows_as_blocks_of_scales_are_multiplied_by_what_their_strides_say():
    gpu, random = zoo.emulator.Device("hopper"), numpy.random.default_rng(8)
    x, w = (gpu.array(random.standard_normal(shape).astype(ml_dtypes.bfloat16)) for shape in ((8, 1024), (128, 1024)))
    w = zoo.call("quantize.fp8b128.squares", x=w.reshape(1, 128, 1024))
    products = []
    for layout in ("plain", "mn_major"):
        a = zoo.call("quantize.fp8b128.rows", x=x, layout=layout)
        assert a.scales.shape == (8, 8)
        given = {"a": a.q, "a_scale": a.scales, "b": w.q.reshape(128, 1024), "b_scale": w.scales.reshape(1, 8)}
        products.append(zoo.call("gemm.fp8b128.dense", **given, d="f32").d.numpy())
        other = {"plain": "mn_major", "mn_major": "plain"}[layout]
        with pytest.raises(ConstraintError, match="rows of plain scales, or the columns of mn_major ones"):
            zoo.call("dequantize.fp8b128.rows", q=a.q, scales=a.scales, layout=other)
        with pytest.raises(ConstraintError, match="rows of plain scales, or the columns of mn_major ones"):
            zoo.launch("quantize.fp8b128.rows", x=x, q=a.q, scales=a.scales, layout=other)
    assert products[0].any() and numpy.array_equal(*products)


def test_the_first_products_result_is_made_in_the_size_that_packed_weights_tell():
    """It is a of the second product, columns in fragment order."""
    gpu, random = zoo.emulator.Device("hopper"), numpy.random.default_rng(1)
    x, w = (gpu.array(random.standard_normal(shape).astype(ml_dtypes.bfloat16)) for shape in ((4, 128), (2 * 96, 128)))
    codes = zoo.call("quantize.mxfp4.rows", x=w)
    packed = zoo.call("pack.mxfp4.fragments", q=codes.q.reshape(1, 2, 96, 64), scales=codes.scales.reshape(1, 2, 96, 4), gates="halves")
    a = zoo.call("quantize.fp8token.rows", x=x, order="fragments")
    name, weights = "gemm.fp8_mxfp4.m_grouped_contiguous.swiglu_fp8b128", {"b": packed.b, "b_row_scale": packed.row_scale}
    given = {"a": a.q, "a_scale": a.scales, "offsets": gpu.array(numpy.array([4], numpy.int32)), **weights}
    made = [zoo.call(name, **given, order=order) for order in ("fragments", "plain")]
    assert made[0].q.shape == (4, 2, 64) and made[1].q.shape == (4, 96) and made[0].scales.shape == (4, 1)
    rows = made[0].q.numpy().view(numpy.uint8).reshape(4, 128)
    plain = made[1].q.numpy().view(numpy.uint8)
    order = column_order(96)
    assert plain.any() and numpy.array_equal(rows[:, order < 96], plain[:, order[order < 96]]) and not rows[:, order >= 96].any()
