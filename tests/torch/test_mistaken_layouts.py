"""Operators of torch refuse an operand in another layout by its shape, in words that name the call or option that makes the right one."""

import re

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

import zoo  # noqa: E402
import zoo.torch as zt  # noqa: E402
from tests.mistaken_layouts import HAZARDS, MISTAKES  # noqa: E402
from zoo.contract.dtypes import DTYPES  # noqa: E402
from zoo.errors import ArgumentError, ConstraintError  # noqa: E402


def called(mistake, spoilt):
    kernel, operands = zoo.kernel(mistake.kernel), {}
    for name, (dtype, *_) in mistake.inputs(spoilt).items():
        array = mistake.arrays(spoilt)[name]
        signed = {1: "uint8", 2: "int16", 4: "int32"}[array.dtype.itemsize]
        operands[name] = torch.from_numpy(array.view(signed)).view(getattr(torch, DTYPES[dtype].torch, torch.uint8))
    operator = getattr(torch.ops.zoo, mistake.kernel.replace(".", "_"))
    by_name = {name: one for name, one in operands.items() if kernel.arguments[name].optional}
    return operator(*(one for name, one in operands.items() if name not in by_name), **by_name, **mistake.settings)


@pytest.mark.parametrize("mistake", MISTAKES, ids=HAZARDS)
def test_an_operand_of_another_layout_is_refused_with_the_name_of_its_maker(mistake):
    with pytest.raises((ArgumentError, ConstraintError), match=rf"{mistake.wrong[0]}\b.*{re.escape(mistake.maker)}"):
        called(mistake, spoilt=True)


@pytest.mark.parametrize("mistake", MISTAKES, ids=HAZARDS)
def test_the_operand_that_its_maker_writes_is_multiplied(mistake):
    found = called(mistake, spoilt=False)
    found = (found,) if isinstance(found, torch.Tensor) else found
    assert [tuple(one.shape) for one in found] == [tuple(shape) for _, *shape in mistake.outputs.values()]


def test_tokens_whose_columns_lie_in_turn_are_refused_before_they_are_multiplied():
    """Both are e4m3 with a scale for each row: only the shape tells."""
    x, w = torch.randn(4, 128, dtype=torch.bfloat16), torch.randn(64, 128, dtype=torch.bfloat16)
    weights = zt.quantize(w, "mxfp4", layout="plain").laid("fragments")
    for order in ("plain", "fragments"):
        a, scales = torch.ops.zoo.quantize_fp8token_rows(x, order=order)
        given = {"a_scale": scales, "b_row_scale": weights.scales, "N": 64}
        if order == "plain":
            with pytest.raises(ArgumentError, match='with order="fragments"'):
                torch.ops.zoo.gemm_fp8_mxfp4_dense(a, weights.elements, **given)
        else:
            found = torch.ops.zoo.gemm_fp8_mxfp4_dense(a, weights.elements, **given).float()
    right = zt.quantize(x, "fp8token", layout="plain").dequantize("f32") @ weights.dequantize("f32").T
    assert (found - right).norm() < 0.01 * right.norm()


def test_as_many_rows_as_blocks_of_scales_are_told_apart_by_their_strides():
    x, w = torch.randn(8, 1024, dtype=torch.bfloat16), zt.quantize(torch.randn(128, 1024), "fp8b128", direction="squares")
    q, plain = torch.ops.zoo.quantize_fp8b128_rows(x)
    _, mn_major = torch.ops.zoo.quantize_fp8b128_rows(x, layout="mn_major")
    assert torch.equal(plain, mn_major) and plain.stride() == (8, 1) and mn_major.stride() == (1, 8)
    products = [torch.ops.zoo.gemm_fp8b128_dense(q, scales, w.elements, w.scales) for scales in (plain, mn_major)]
    assert products[0].any() and torch.equal(*products)
    for scales, layout in ((plain, "mn_major"), (mn_major, "plain")):
        with pytest.raises(ConstraintError, match="rows of plain scales, or the columns of mn_major ones"):
            torch.ops.zoo.dequantize_fp8b128_rows(q, scales, layout=layout)
