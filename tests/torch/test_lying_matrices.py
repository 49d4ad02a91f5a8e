"""Matrices put together of parts that lie, and what else the calls of zoo.torch are given wrong: a refusal in a sentence, or the right numbers."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import jvp, vmap

import zoo
import zoo.torch as zt

FORMATS = ("fp8b128", "mxfp8", "mxfp4", "nvfp4")


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


W, X = normal(128, 256), normal(48, 256)
MADE = {name: zt.quantize(W, name, direction="squares" if name == "fp8b128" else "rows") for name in FORMATS}
ACTIVATIONS = {name: zt.quantize(X, name) for name in FORMATS}


def changed(format: str, /, **parts: object) -> zt.Quantized:
    one = MADE[format]
    names = ("elements", "scales", "format", "squares", "transposed", "layout", "tensor_scale", "offsets", "packed_shape")
    return zt.Quantized(**{**{name: getattr(one, name) for name in names}, **parts})


def refused(function, *words: str) -> None:
    with pytest.raises(zoo.ZooError) as caught:
        function()
    found = str(caught.value)
    assert all(word in found for word in words) and len(found) < 900, found


LIES = {
    "a format of nobody": ("mxfp8", dict(format="fp9"), "no format 'fp9'"),
    "no format": ("mxfp8", dict(format=None), "no format None"),
    "another format": ("mxfp8", dict(format="nvfp4"), "elements: nvfp4 has"),
    "a layout of nobody": ("mxfp8", dict(layout="tiled"), "no layout 'tiled'"),
    "elements of another dtype": ("mxfp8", dict(elements=W), "elements: mxfp8 has"),
    "scales of another dtype": ("fp8b128", dict(scales=MADE["fp8b128"].scales.half()), "scales: fp8b128 has"),
    "a list of elements": ("mxfp8", dict(elements=[[1]]), "elements: expected a tensor, got a list"),
    "no scales": ("mxfp8", dict(scales=None), "scales: expected a tensor, got a NoneType"),
    "one row": ("mxfp8", dict(elements=MADE["mxfp8"].elements[0]), "expected a matrix"),
    "four dimensions": ("mxfp8", dict(elements=MADE["mxfp8"].elements.view(2, 2, 32, 256)), "expected a matrix"),
    "scales elsewhere": ("mxfp8", dict(scales=MADE["mxfp8"].scales.to("meta")), "scales: lies on meta, elements on cpu"),
    "no tensor scale, which products would leave out": ("nvfp4", dict(tensor_scale=None), "nvfp4 needs one"),
    "a tensor scale, which dequantising would leave out": ("mxfp8", dict(tensor_scale=torch.ones(1)), "mxfp8 has none"),
    "offsets of two dimensions": ("mxfp8", dict(offsets=torch.ones(1, 2, dtype=torch.int32)), "the end of each group"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_matrix_of_parts_that_do_not_belong_together_is_refused(lie):
    format, parts, words = LIES[lie]
    refused(lambda: changed(format, **parts), "Quantized", words)


@pytest.mark.parametrize("use", ["dequantize", "matmul", "save"])
def test_scales_that_are_too_few_are_refused_where_they_are_read(use, tmp_path):
    pytest.importorskip("safetensors")
    short = changed("mxfp8", scales=MADE["mxfp8"].scales[:, :1])
    uses = {
        "dequantize": short.dequantize,
        "matmul": lambda: zt.matmul(ACTIVATIONS["mxfp8"], short.t()),
        "save": lambda: zt.save(tmp_path / "w", {"w": short}),
    }
    refused(uses[use], "expected (1, 2, 32, 16)", "got (1, 1, 32, 16)")


def test_a_module_that_was_moved_to_another_dtype_is_told_so():
    refused(lambda: MADE["mxfp8"].to(torch.bfloat16), "keeps its dtypes")
    module = torch.nn.Module()
    module.register_buffer("elements", MADE["mxfp8"].elements)
    module.to(torch.bfloat16)
    refused(lambda: changed("mxfp8", elements=module.elements), ".to(device) alone")


WRONG = {
    "a number for x": (lambda: zt.quantize(3, "mxfp8"), "x: expected a tensor, got a int"),
    "numpy for x": (lambda: zt.quantize(W.numpy(), "mxfp8"), "x: expected a tensor, got a ndarray"),
    "sparse": (lambda: zt.quantize(W.to_sparse(), "mxfp8"), "expected a dense tensor"),
    "torch's own quantised": (lambda: zt.quantize(torch.quantize_per_tensor(W, 0.1, 0, torch.qint8), "mxfp8"), "expected a dense tensor"),
    "a list of groups": (lambda: zt.quantize(W, "mxfp8", groups=[40, 128]), "groups: expected a tensor, got a list"),
    "groups of no dimension": (lambda: zt.quantize(W, "mxfp8", groups=torch.tensor(3, dtype=torch.int32)), "the end of each group"),
    "a list of groups to a product": (lambda: zt.matmul(ACTIVATIONS["mxfp8"], MADE["mxfp8"].t(), groups=[48]), "groups: expected a tensor"),
    "a tensor scale that is not read": (lambda: zt.quantize(W, "mxfp8", tensor_scale=torch.ones(1)), "mxfp8 has no tensor_scale"),
    "a number for a tensor scale": (lambda: zt.quantize(W, "nvfp4", tensor_scale=1.0), "tensor_scale: expected a tensor"),
    "an option of nobody": (lambda: zt.quantize(W, "mxfp8", roundin="rceil"), "takes no roundin=", "rounding"),
    "a number for an option": (lambda: zt.quantize(W, "mxfp8", rounding=3), "rounding: expected a text, got 3"),
    "a number for a layout": (lambda: zt.quantize(W, "mxfp8", layout=3), "no layout 3; there are plain, blocked"),
    "a product's option of nobody": (lambda: zt.matmul(ACTIVATIONS["mxfp8"], MADE["mxfp8"].t(), foo=3), "takes no foo="),
    "a number for an addend": (lambda: zt.matmul(ACTIVATIONS["mxfp8"], MADE["mxfp8"].t(), c=3), "c: expected a tensor"),
    "the kernel's word for dtype": (lambda: zt.matmul(ACTIVATIONS["mxfp8"], MADE["mxfp8"].t(), d="f32"), "dtype="),
    "a number for a dtype": (lambda: MADE["mxfp8"].dequantize(3), "dequantize: dtype: expected bf16 or f32, got 3"),
    "a dtype that no kernel writes": (lambda: MADE["mxfp8"].dequantize(torch.float16), "got torch.float16; convert the result by .to()"),
    "a dtype that no kernel of rows writes": (
        lambda: zt.quantize(X.bfloat16(), "fp8token").dequantize(torch.float64),
        "got torch.float64; convert the result",
    ),
    "a product's dtype": (
        lambda: zt.matmul(ACTIVATIONS["mxfp8"], MADE["mxfp8"].t(), dtype=torch.float64),
        "matmul: dtype: expected bf16, f16",
    ),
    "a tensor on the left": (lambda: W @ MADE["mxfp8"], "a is a Tensor; quantise it first"),
    "a list for a kernel": (lambda: zt.register(["quantize.amax"]), "a kernel's name is a text"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_call_that_is_given_something_else_is_refused(what):
    call, *words = WRONG[what]
    refused(call, *words)


@pytest.mark.parametrize("ends", [(40, 30), (40, 300), (-4, 128)])
@pytest.mark.parametrize("format", ["fp8b128", "mxfp8"])
def test_groups_that_decrease_or_pass_the_rows_are_refused(ends, format):
    groups, experts = torch.tensor(ends, dtype=torch.int32), normal(2, 128, 256)
    b = zt.quantize(experts, format, direction="squares" if format == "fp8b128" else "rows").t()
    refused(lambda: zt.matmul(zt.quantize(W, format, layout="plain"), b, groups=groups), "offsets")
    refused(lambda: zt.matmul(zt.quantize(W, format, layout="plain"), b, groups=groups.long()), "torch.int32", "got torch.int64")


@pytest.mark.parametrize("shape", [(0, 256), (0, 128, 256), (0, 100, 256), (3, 0, 256)])
@pytest.mark.parametrize("direction", ["rows", "cols", "squares"])
@pytest.mark.parametrize("format", FORMATS)
def test_no_rows_and_no_matrices_are_as_good_as_many(format, direction, shape):
    made = zt.quantize(torch.empty(shape), format, direction=direction)
    assert made.dequantize().shape == shape


@pytest.mark.parametrize("shape", [(100, 256), (3, 100, 256)])
def test_the_scale_of_a_short_last_block_is_not_lost_between_layouts(shape):
    made = zt.quantize(normal(*shape), "mxfp8", direction="cols")
    assert made.laid("plain").scales.shape[-1] == 4
    assert torch.equal(made.laid("plain").dequantize(), made.dequantize())


def test_a_forward_derivative_is_refused_and_is_not_zero():
    operator = torch.ops.zoo.quantize_mxfp8_rows
    refused(lambda: jvp(lambda x: operator(x)[0], (W,), (W,)), "x: has a tangent")
    with forward_ad.dual_level():
        refused(lambda: operator(forward_ad.make_dual(W, W)), "x: has a tangent")
        assert operator(W)[0].shape == W.shape


def test_a_batch_by_vmap_is_each_matrix_by_itself():
    batch = normal(3, 64, 256)
    found = vmap(lambda x: zt.quantize(x, "mxfp8").elements)(batch)
    assert torch.equal(found.float(), torch.stack([zt.quantize(x, "mxfp8").elements.float() for x in batch]))


def test_shapes_alone_are_refused_as_the_call_would_be():
    x = torch.empty(128, 100, device="meta")
    refused(lambda: torch.ops.zoo.quantize_mxfp8_rows(x), "K must be a multiple of 32")
    a, b = (one.to("meta") for one in (ACTIVATIONS["mxfp8"], zt.quantize(normal(64, 128), "mxfp8")))
    refused(lambda: zt.matmul(a, b.t()), "gemm.mxfp8.dense: b: expected")


def test_outputs_that_overlap_or_are_too_small_are_refused():
    out, q, scales = (
        torch.ops.zoo.quantize_mxfp8_rows.out,
        torch.zeros(128, 256).to(torch.float8_e4m3fn),
        torch.empty(128, 8, dtype=torch.uint8),
    )
    refused(lambda: out(W, q=q[:64], scales=scales), "q: expected (128, 256)")
    refused(lambda: out(W, q=W.view(torch.float8_e4m3fn)[:, :256], scales=scales), "q: overlaps x")
    refused(lambda: out(W, q=q, scales=q.view(torch.uint8)[:, :8]), "scales: overlaps q")
    refused(lambda: out(W, q=q[:1].expand(128, 256), scales=scales), "the rows of q must not overlap")
    refused(lambda: out(W, q=q.to("meta"), scales=scales), "lies on meta")
