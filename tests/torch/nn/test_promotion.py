"""When the sums of FP8 tokens and 4-bit weights leave the tensor core: the switch `promotion` of a layer."""

from __future__ import annotations

import pytest
import torch

import zoo.torch as zt
from zoo.torch.nn import GroupedLinear, Linear


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
