"""When the sums of FP8 tokens and 4-bit weights leave the tensor core: the switch `promotion` of a layer."""

from __future__ import annotations

import pytest
import torch

import zoo.torch as zt
from zoo.errors import ArgumentError
from zoo.torch.nn import Experts, GroupedLinear, Linear


@pytest.mark.parametrize("grouped", [False, True])
def test_sums_are_promoted_only_where_a_layer_is_asked_to(grouped):
    torch.manual_seed(0)
    layer = GroupedLinear(1, 4096, 32, False, "fp8_mxfp4") if grouped else Linear(4096, 32, False, "fp8_mxfp4")
    layer.weight.detach().abs_()  # sums of one sign lose most
    layer.freeze()
    x = torch.rand(4, 4096, dtype=torch.bfloat16)
    offsets = torch.tensor([4], dtype=torch.int32) if grouped else None
    by_place = (x,) if offsets is None else (x, offsets)
    a, weight = zt.quantize(x, "fp8token"), layer.quantized().t()
    expected = {one: zt.matmul(a, weight, groups=offsets, promotion=one) for one in ("never", "regular")}
    assert (expected["never"] != expected["regular"]).any()
    with torch.no_grad():
        assert torch.equal(layer(*by_place), expected["never"])
        layer.promotion = "regular"
        assert torch.equal(layer(*by_place), expected["regular"])


def test_a_word_that_no_product_knows_is_refused_where_it_is_set():
    for layer in (Linear(64, 32, format="fp8_mxfp4"), GroupedLinear(2, 64, 32, format="fp8_nvfp4")):
        with pytest.raises(ArgumentError, match=r"promotion: .* expects 'never' or 'regular', got 'nonsense'"):
            layer.promotion = "nonsense"
        assert "promotion=never" in repr(layer)
        layer.promotion = "regular"
        assert "promotion=regular" in repr(layer)
    assert "promotion" not in repr(Linear(64, 32))


def test_experts_refuse_sums_that_their_kernels_do_not_have():
    layer = Experts(2, 128, 128, format="fp8_mxfp4")
    with pytest.raises(ArgumentError, match="expects 'regular', got 'never'"):
        layer.promotion = "never"
    layer.promotion = "regular"
    assert layer.promotion == layer.gate_up.promotion == "regular"
