"""torch.export of layers that serve: one program for any number of rows."""

from __future__ import annotations

import pytest
import torch

import zoo
from tests.torch.nn.test_gradients import normal
from zoo.torch.nn import Experts, GroupedLinear, Linear

FORMATS = ("fp8b128", "fp8_mxfp4", "fp8_nvfp4", "bf16_mxfp4", "bf16_nvfp4")  # checks of torch tie blocked scales to one tile of rows
ROWS = torch.export.Dim("rows")


@pytest.mark.parametrize("format", FORMATS)
def test_an_exported_linear_layer_is_not_tied_to_the_rows_of_its_example(format):
    layer = Linear(64, 32, format=format).freeze()
    for x, axis in ((normal(12, 64), 0), (normal(2, 12, 64), 1)):
        program = torch.export.export(layer, (x,), dynamic_shapes={"x": {axis: ROWS}}).module()
        for some in (x, x.narrow(axis, 0, 5), x.repeat_interleave(20, axis)):
            assert torch.equal(program(some), layer(some))


@pytest.mark.parametrize("format", FORMATS)
def test_exported_experts_are_not_tied_to_the_tokens_of_their_example(format):
    layer = Experts.from_float(normal(4, 128, 64), normal(4, 64, 64, seed=1), format, frozen=True)
    x, ids, weights = normal(12, 64), torch.arange(24).view(12, 2) % 4, normal(12, 2)
    program = torch.export.export(layer, (x, ids, weights), dynamic_shapes={name: {0: ROWS} for name in ("x", "ids", "weights")}).module()
    for count in (12, 5):
        given = x[:count], ids[:count], weights[:count]
        assert torch.equal(program(*given), layer(*given))
    layer.promotion = "regular"  # as a program is, for any number of tokens
    given = [one.repeat(10, 1) for one in (x, ids, weights)]  # of 64 rows an expert and more, fp8b128 rounds gates outside of programs
    assert torch.equal(program(*given), layer(*given))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("format", ["fp8b128", "mxfp8"])
def test_an_exported_layer_that_trains_computes_nothing_for_a_backward_pass(format, strict):
    if not hasattr(torch.compiler, "is_exporting"):
        pytest.skip("torch before 2.7 takes a compiled layer for an exported one")
    layer, x, ends = GroupedLinear(3, 64, 64, format=format), normal(12, 64), torch.tensor([4, 4, 10], dtype=torch.int32)
    shapes = {"x": {0: torch.export.Dim("rows")}, "offsets": None}
    program = torch.export.export(layer, (x, ends), dynamic_shapes=shapes, strict=strict).module()
    assert "_both" not in program.code and "_cols" not in program.code
    for some in (x, x.repeat(20, 1)):
        assert torch.equal(program(some, ends), layer(some, ends))
    with pytest.raises(zoo.ArgumentError, match="x: requires a gradient"):  # which would be lost in silence
        program(x.requires_grad_(), ends)


@pytest.mark.parametrize("model", [{}, {"activation": "gpt_oss", "limit": 7.0}])
def test_exported_experts_that_train_are_not_tied_to_the_tokens_of_their_example(model):
    layer, x = Experts(4, 64, 128, format="mxfp8" if model else "fp8b128", **model), normal(12, 64)
    ids, weights = torch.arange(24).view(12, 2) % 4, normal(12, 2)
    program = torch.export.export(layer, (x, ids, weights), dynamic_shapes={name: {0: ROWS} for name in ("x", "ids", "weights")}).module()
    assert "_both" not in program.code and "_cols" not in program.code
    assert torch.equal(program(x[:5], ids[:5], weights[:5]), layer(x[:5], ids[:5], weights[:5]))
