"""Quantized: what it stands for, which product multiplies it, and what files keep of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import zoo
import zoo.torch as zt
from zoo.errors import ArgumentError
from zoo.runtime.torch_dtypes import torch_dtype

DEVICE = "cuda" if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9 else "cpu"
FORMATS = {"fp8b128": 0.04, "mxfp8": 0.05, "mxfp4": 0.2, "nvfp4": 0.18}  # relative error of a product of normal numbers, at most
every_format = pytest.mark.parametrize("format", FORMATS)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, torch.bfloat16)


def ends(*rows: int) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int32, device=DEVICE)


def skip_products_of_blackwell(format: str) -> None:
    if DEVICE == "cuda" and format != "fp8b128":
        pytest.skip(f"products of {format} run on Blackwell and on the CPU")


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.float() - exact.float()).norm() / exact.float().norm())


@every_format
@pytest.mark.parametrize("direction", ["rows", "cols", "squares"])
def test_it_stands_for_the_matrix_it_was_made_of(format, direction):
    x = normal(48, 256)
    made = zt.quantize(x, format, direction=direction)
    assert made.direction == direction and made.shape == x.shape
    assert error(made.dequantize(), x) < FORMATS[format]
    assert torch.equal(made.t().dequantize("f32"), made.dequantize("f32").t())


@every_format
def test_a_product_by_the_transpose_is_that_of_a_linear_layer(format):
    skip_products_of_blackwell(format)
    x, w = normal(48, 256), normal(128, 256)
    for direction in ("rows", "squares") if format != "fp8b128" else ("squares",):
        a, b = zt.quantize(x, format), zt.quantize(w, format, direction=direction).t()
        assert zt.kernel_of(a, b) == f"gemm.{format}.dense"
        assert error(zt.matmul(a, b), x.float() @ w.float().t()) < FORMATS[format]
        assert error(zt.matmul(a, b, dtype="f32"), a.dequantize("f32") @ b.dequantize("f32")) < 1e-3


@every_format
def test_b_by_its_columns_is_b_as_well(format):
    if format == "fp8b128":
        pytest.skip("its weights are squares")
    skip_products_of_blackwell(format)
    x, b = normal(48, 256), normal(256, 128)
    assert error(zt.matmul(zt.quantize(x, format), zt.quantize(b, format, direction="cols")), x.float() @ b.float()) < FORMATS[format]


@every_format
def test_groups_of_rows_meet_the_weights_of_their_group_and_an_empty_group_none(format):
    skip_products_of_blackwell(format)
    x, w, groups = normal(60, 256), normal(3, 128, 256), ends(20, 20, 60)
    a, b = zt.quantize(x, format, groups=groups), zt.quantize(w, format, direction="squares").t()
    assert zt.kernel_of(a, b, groups) == f"gemm.{format}.m_grouped_contiguous"
    found = zt.matmul(a, b, groups=groups)
    assert error(found[:20], x[:20].float() @ w[0].float().t()) < FORMATS[format]
    assert error(found[20:], x[20:].float() @ w[2].float().t()) < FORMATS[format]


@every_format
def test_several_matrices_use_the_rows_that_are_said(format):
    skip_products_of_blackwell(format)
    x, w, used = normal(2, 30, 256), normal(2, 128, 256), ends(30, 7)
    a, b = zt.quantize(x, format), zt.quantize(w, format, direction="squares").t()
    assert zt.kernel_of(a, b, used) == f"gemm.{format}.m_grouped_masked"
    found = zt.matmul(a, b, groups=used)
    assert error(found[1, :7], x[1, :7].float() @ w[1].float().t()) < FORMATS[format]
    if format != "fp8b128":  # which has no tiles of scales
        assert torch.equal(zt.matmul(a.laid("plain"), b, groups=used)[1, :7], found[1, :7])


def test_a_weight_gradient_sums_over_each_group_alone():
    dy, x, groups = normal(48, 128), normal(48, 256), ends(16, 48)
    along = dict(direction="cols", layout="mn_major", groups=groups)
    a, b = zt.quantize(dy, "fp8b128", **along).t(), zt.quantize(x, "fp8b128", **along)
    assert zt.kernel_of(a, b, groups) == "gemm.fp8b128.k_grouped"
    found = zt.matmul(a, b, groups=groups)
    assert error(found[0], dy[:16].float().t() @ x[:16].float()) < 0.05
    assert error(found[1], dy[16:].float().t() @ x[16:].float()) < 0.05


def test_mxfp8_tokens_meet_mxfp4_weights():
    skip_products_of_blackwell("mxfp8_mxfp4")
    x, w = normal(48, 256), normal(128, 256)
    a, b = zt.quantize(x, "mxfp8"), zt.quantize(w, "mxfp4").t()
    assert zt.kernel_of(a, b) == "gemm.mxfp8_mxfp4.dense"
    assert error(zt.matmul(a, b), x.float() @ w.float().t()) < FORMATS["mxfp4"]


@pytest.mark.parametrize("rows", [128, 40])
@every_format
def test_layouts_are_the_same_matrix(format, rows):
    if format == "fp8b128":
        pytest.skip("it has no tiles of scales")
    for x in (normal(rows, 256), normal(2, rows, 256)):
        made = zt.quantize(x, format)
        plain = made.laid("plain")
        assert made.layout == "blocked" and plain.layout == "plain"
        assert torch.equal(plain.dequantize("f32"), made.dequantize("f32"))
        assert torch.equal(plain.laid("blocked").scales.view(torch.uint8), made.scales.view(torch.uint8))


def test_a_compiled_function_finds_the_product():
    x, w = normal(48, 256), zt.quantize(normal(128, 256), "fp8b128", direction="squares")

    def layer(x: torch.Tensor, w: zt.Quantized) -> torch.Tensor:
        return zt.matmul(zt.quantize(x, "fp8b128"), w.t())

    assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(x, w), layer(x, w))


def without(one: zt.Quantized, field: str) -> zt.Quantized:
    return replace(one, **{field: None})


def experts(w: torch.Tensor) -> zt.Quantized:
    return zt.quantize(w.view(2, 64, 256), "mxfp8").t()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, w: zt.quantize(x, "fp9"), "no format 'fp9'; there are fp8b128"),
        (lambda x, w: zt.quantize(x, "mxfp8", direction="up"), "no direction 'up'"),
        (lambda x, w: zt.quantize(x, "fp8b128", direction="squares", layout="blocked"), "squares of fp8b128 have one layout"),
        (lambda x, w: zt.quantize(x, "mxfp8", direction="squares", groups=x), "squares have no groups"),
        (lambda x, w: zt.matmul(zt.quantize(x, "mxfp8"), zt.quantize(w, "mxfp8")), r"multiply by b.t\(\) if you mean its transpose"),
        (lambda x, w: zt.matmul(zt.quantize(x, "mxfp8", direction="cols"), zt.quantize(w, "mxfp8").t()), "a is Quantized"),
        (lambda x, w: zt.matmul(zt.quantize(x, "mxfp8"), zt.quantize(w, "nvfp4").t()), "no kernel multiplies mxfp8 by nvfp4"),
        (lambda x, w: zt.matmul(zt.quantize(x, "mxfp8"), zt.quantize(normal(2, 128, 256), "mxfp8").t()), "needs groups="),
        (lambda x, w: zt.quantize(x, "fp8b128").laid("blocked"), "cannot become 'blocked'"),
        (lambda x, w: zt.matmul(zt.quantize(x, "fp8b128"), zt.quantize(w, "fp8b128").t()), "quantise b with direction='squares'"),
        (lambda x, w: zt.matmul(x, zt.quantize(w, "mxfp8").t()), r"a is a Tensor; quantise it first: zoo.torch.quantize\(x, 'mxfp8'\)"),
        (lambda x, w: x @ zt.quantize(w, "nvfp4").t(), r"a is a Tensor; quantise it first: zoo.torch.quantize\(x, 'nvfp4'\)"),
        (lambda x, w: zt.matmul(x, zt.quantize(w, "mxfp4").laid("fragments").t()), r"zoo.torch.quantize\(x, 'fp8token'\)"),
        (lambda x, w: zt.quantize(x, "fp8token") @ w, r"b is a Tensor; quantise it first: zoo.torch.quantize\(x, 'mxfp4'\)"),
        (lambda x, w: zt.matmul(zt.quantize(x, "mxfp8"), w), r"b is a Tensor; quantise it first: zoo.torch.quantize\(x, 'mxfp8'\)"),
        (lambda x, w: zt.quantize(x, "nvfp4") @ without(zt.quantize(w, "nvfp4"), "tensor_scale").t(), "tensor_scale: nvfp4 needs one"),
        (lambda x, w: without(zt.quantize(w, "nvfp4"), "tensor_scale").dequantize(), "tensor_scale: nvfp4 needs one"),
        (
            lambda x, w: zt.quantize(x, "fp8token") @ without(zt.quantize(w, "mxfp4").laid("fragments"), "packed_shape").t(),
            "in fragments it needs packed_shape=",
        ),
        (lambda x, w: zt.quantize(x.view(2, 24, 256), "mxfp8") @ zt.quantize(w, "mxfp8").t(), r"quantise x.flatten\(0, -2\)"),
        (
            lambda x, w: zt.quantize(x, "mxfp8", groups=ends(24, 48).long()),
            "groups: expected a tensor of torch.int32 .*, got torch.int64",
        ),
        (
            lambda x, w: zt.matmul(zt.quantize(x, "mxfp8"), experts(w), groups=[24, 48]),
            "groups: expected a tensor of torch.int32 .* got a list",
        ),
        (
            lambda x, w: zt.matmul(zt.quantize(x, "mxfp8"), experts(w), groups=ends(24, 48)),
            "must begin anew with each group: quantise it with the same groups=, or with layout='plain'",
        ),
        (
            lambda x, w: zt.kernel_of(zt.quantize(x, "fp8token"), zt.quantize(w, "mxfp4", direction="squares").t()),
            "takes weights in fragments: quantise b by rows",
        ),
        (lambda x, w: zt.quantize(x[0], "mxfp8"), "expected a matrix"),
        (lambda x, w: zt.quantize(x, "fp8token", scaling="pow2"), "quantize_fp8token_rows takes no scaling="),
        (lambda x, w: zt.quantize(x, "mxfp8", scaling="pow2"), "quantize_mxfp8_rows takes no scaling=; it takes .*rounding"),
        (
            lambda x, w: zt.matmul(zt.quantize(x, "fp8b128"), zt.quantize(w, "fp8b128", direction="squares").t(), bias=x),
            "gemm_fp8b128_dense takes no bias=; it takes .*row_scale",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(call, words):
    with pytest.raises(zoo.ZooError, match=words):
        call(normal(48, 256), normal(128, 256))


@every_format
@pytest.mark.parametrize("direction", ["rows", "squares"])
def test_a_file_gives_back_the_same_numbers(format, direction, tmp_path):
    pytest.importorskip("safetensors")
    layout = "plain" if direction == "squares" else None
    weights = {"one": zt.quantize(normal(128, 256), format, direction=direction, layout=layout), "norm": torch.ones(4, device=DEVICE)}
    weights["experts"] = zt.quantize(normal(2, 64, 256), format, direction=direction, layout=layout)
    zt.save(tmp_path / "w.safetensors", weights)
    loaded = zt.load(tmp_path / "w.safetensors", DEVICE)
    assert set(loaded) == set(weights) and torch.equal(loaded["norm"], weights["norm"])
    for name in ("one", "experts"):
        assert torch.equal(loaded[name].dequantize("f32"), weights[name].dequantize("f32"))


def test_a_global_scale_that_divides_is_turned_round(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    made = zt.quantize(normal(128, 256), "nvfp4", layout="plain")
    stored = {
        "up.weight_packed": made.elements.view(torch.uint8),
        "up.weight_scale": made.scales,
        "up.weight_global_scale": 1 / made.tensor_scale,
    }
    safetensors.save_file(stored, tmp_path / "w.safetensors")
    (loaded,) = zt.load(tmp_path / "w.safetensors", DEVICE).values()
    assert error(loaded.dequantize("f32"), made.dequantize("f32")) < 1e-6


def test_dtypes_may_be_torchs_and_the_operator_is_the_product():
    skip_products_of_blackwell("mxfp8")
    a, b = zt.quantize(normal(48, 256), "mxfp8", q=torch.float8_e5m2), zt.quantize(normal(128, 256), "mxfp8").t()
    assert a.elements.dtype == torch.float8_e5m2
    assert torch.equal(zt.matmul(a, b, dtype=torch.float32), zt.matmul(a, b, dtype="f32"))
    assert torch.equal(a @ b, zt.matmul(a, b)) and b.dequantize(torch.float32).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.uint8, torch_dtype("ue8m0")], ids=str)
def test_fp8b128_with_bytes_as_scales_is_the_same_matrix(dtype, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")

    def of_bytes(one):
        powers = (one.scales.contiguous().view(torch.int32) >> 23).to(torch.uint8)
        return replace(one, scales=(powers.t().contiguous().t() if one.layout == "mn_major" else powers).view(dtype))

    w = zt.quantize(normal(136, 256), "fp8b128", direction="squares", scaling="pow2")
    for layout in ("plain", "mn_major"):
        a = zt.quantize(normal(48, 256), "fp8b128", scaling="pow2", layout=layout)
        assert torch.equal(of_bytes(a) @ of_bytes(w).t(), a @ w.t()) and torch.equal(a @ of_bytes(w).t(), a @ w.t())
        assert torch.equal(of_bytes(a).dequantize("f32"), a.dequantize("f32"))
    assert torch.equal(of_bytes(w).dequantize("f32"), w.dequantize("f32"))
    safetensors.save_file({"up.weight": w.elements, "up.weight_scale_inv": of_bytes(w).scales}, tmp_path / "stored")
    zt.save(tmp_path / "saved", zt.load(tmp_path / "stored"))
    for name in ("stored", "saved"):
        assert torch.equal(zt.load(tmp_path / name, DEVICE)["up"].dequantize("f32"), w.dequantize("f32"))


@pytest.mark.parametrize("direction", ["rows", "squares"])
def test_mxfp8_under_the_names_of_fp8b128_is_read(direction, tmp_path):
    """As MiniMax-M3 stores it."""
    safetensors = pytest.importorskip("safetensors.torch")
    w = zt.quantize(normal(160, 96), "mxfp8", direction=direction, layout="plain")
    safetensors.save_file({"up.weight": w.elements, "up.weight_scale_inv": w.scales.view(torch.uint8)}, tmp_path / "stored")
    loaded = zt.load(tmp_path / "stored", DEVICE)["up"]
    assert (loaded.format, loaded.direction) == ("mxfp8", direction) and torch.equal(loaded.dequantize("f32"), w.dequantize("f32"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_fp8b128_with_scales_of_sixteen_bits_is_read(dtype, tmp_path):
    """Checkpoints of Qwen3 have them."""
    safetensors = pytest.importorskip("safetensors.torch")
    w = zt.quantize(normal(136, 256), "fp8b128", direction="squares", scaling="pow2")
    safetensors.save_file({"up.weight": w.elements, "up.weight_scale_inv": w.scales.to(dtype)}, tmp_path / "stored")
    loaded = zt.load(tmp_path / "stored", DEVICE)["up"]
    assert loaded.squares and torch.equal(loaded.dequantize("f32"), w.dequantize("f32"))


def test_the_least_and_the_last_byte_of_a_scale_are_what_products_take_them_for():
    ones = torch.ones(128, 256, device=DEVICE).to(torch.float8_e4m3fn)
    made = zt.Quantized(ones, torch.tensor([[0, 255]], dtype=torch.uint8, device=DEVICE), "fp8b128", squares=True).dequantize("f32")
    assert (made[:, :128].double() == 2.0**-127).all() and made[:, 128:].isnan().all()


_LONG, _NO_TEXT = "q" * 10**6, 10**5000


@pytest.mark.parametrize(
    "call",
    [
        lambda x, m: zt.quantize(x, _LONG),
        lambda x, m: zt.quantize(x, _NO_TEXT),
        lambda x, m: zt.quantize(x, "mxfp8", direction=_LONG),
        lambda x, m: zt.quantize(x, "mxfp8", direction=_NO_TEXT),
        lambda x, m: zt.quantize(x, "mxfp8", layout=_LONG),
        lambda x, m: zt.quantize(x, "mxfp8", **{_LONG: 1}),
        lambda x, m: zt.quantize(x, "mxfp8", rounding=_LONG),
        lambda x, m: zt.matmul(m, m.t(), **{_LONG: 1}),
        lambda x, m: zt.matmul(m, m.t(), dtype=_LONG),
        lambda x, m: m.laid(_LONG),
        lambda x, m: m.laid(_NO_TEXT),
        lambda x, m: m.laid(["plain"]),
        lambda x, m: m.dequantize(_LONG),
        lambda x, m: zt.Quantized(m.elements, m.scales, "mxfp8", packed_shape=_NO_TEXT),
    ],
)
def test_a_refusal_is_a_short_sentence_whatever_was_given(call):
    x = torch.ones(128, 128, dtype=torch.bfloat16)
    with pytest.raises(zoo.ZooError) as refused:
        call(x, zt.quantize(x, "mxfp8"))
    assert len(str(refused.value)) < 1500


@pytest.mark.parametrize(("format", "order"), [("fp8token", "plain"), ("fp8b128", "fragments")])
def test_the_order_of_elements_is_chosen_by_layout_alone(format, order):
    with pytest.raises(zoo.ArgumentError, match="give layout='plain' or layout='fragments'"):
        zt.quantize(torch.ones(16, 128, dtype=torch.bfloat16), format, order=order)


def test_elements_in_fragments_are_not_taken_for_several_matrices():
    made = zt.quantize(torch.randn(8, 512, dtype=torch.bfloat16), "fp8token")
    with pytest.raises(zoo.ArgumentError, match=r"fp8token has a scale for each row; .* layout='fragments'"):
        zt.Quantized(made.elements, made.scales, "fp8token")


def test_scales_that_are_missing_are_not_hidden_by_tiles():
    """Blocked scales are filled up to whole tiles, so too few plain ones would be multiplied as zeros."""
    q = zt.quantize(torch.randn(256, 128), "mxfp8", layout="plain")
    for scales in (q.scales[:, :2], q.scales[:129]):
        with pytest.raises(ArgumentError, match="expected scales"):
            q._with(scales=scales.contiguous()).laid("blocked")


def test_scales_for_32_x_32_are_multiplied_as_those_of_each_row():
    q = zt.quantize(torch.randn(96, 128), "mxfp8", direction="squares")
    a = zt.quantize(torch.randn(8, 128), "mxfp8", layout="blocked")
    right = a.dequantize() @ q.dequantize().t()
    assert (a @ q.laid("blocked").t() - right).norm() < 0.01 * right.norm()


def test_a_compiled_product_with_scales_in_ue8m0_writes_into_a_tensor():
    a, b = (zt.quantize(torch.randn(16, 64), "mxfp8") for _ in range(2))
    elements, scales = (a.elements, b.elements), (a.scales, b.scales)

    @torch.compile(fullgraph=True)
    def product(elements, scales):
        left, right = (zt.Quantized(*one, "mxfp8", layout="blocked") for one in zip(elements, scales, strict=True))
        return zt.matmul(left, right.t(), out=torch.zeros(16, 16))

    assert torch.equal(product(elements, scales), zt.matmul(a, b.t(), dtype="f32"))
