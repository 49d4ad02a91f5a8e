"""4-bit weights on Hopper as Quantized: tokens with a scale each by weights in fragments, from memory or from a file."""

from __future__ import annotations

import pytest
import torch

import zoo
import zoo.torch as zt

DEVICE = "cuda" if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9 else "cpu"
FORMATS = {"mxfp4": 0.15, "nvfp4": 0.12}  # relative error of a product of normal numbers, at most
every_format = pytest.mark.parametrize("format", FORMATS)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, torch.bfloat16)


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.float() - exact.float()).norm() / exact.float().norm())


def packed(format: str, *shape: int) -> zt.Quantized:
    return zt.quantize(normal(*shape), format, layout="plain").laid("fragments")


@pytest.mark.parametrize("columns", [128, 80])  # of which the latter is filled up to 128
def test_tokens_stand_for_the_rows_they_were_made_of_in_either_order(columns):
    x = normal(12, columns)
    for layout in ("fragments", "plain"):
        made = zt.quantize(x, "fp8token", layout=layout)
        assert made.shape == x.shape and error(made.dequantize(), x) < 0.03
    assert torch.equal(made.dequantize("f32"), zt.quantize(x, "fp8token").dequantize("f32"))


@every_format
@pytest.mark.parametrize("shape", [(72, 96), (2, 64, 128)])
def test_packed_weights_are_the_same_matrix(format, shape):
    plain = zt.quantize(normal(*shape), format, layout="plain")
    made = plain.laid("fragments")
    assert made.shape == shape and made.layout == "fragments"
    assert (made.scales.numel() == 0) == (made.format == "nvfp4")  # whose scales lie among the elements
    assert torch.equal(made.dequantize("f32"), plain.dequantize("f32"))
    assert torch.equal(made.laid("plain").elements.view(torch.uint8), plain.elements.view(torch.uint8))


@every_format
def test_the_product_is_found_and_knows_rows_that_do_not_fill_a_chunk(format):
    x, w = normal(12, 96), normal(72, 96)
    a, b = zt.quantize(x, "fp8token"), packed(format, 72, 96)
    assert zt.kernel_of(a, b.t()) == f"gemm.fp8_{format}.dense"
    found = a @ b.t()
    assert found.shape == (12, 72) and error(found, x.float() @ w.float().t()) < FORMATS[format]
    assert error(zt.matmul(a, b.t(), dtype="f32"), a.dequantize("f32") @ b.t().dequantize("f32")) < 0.03
    assert torch.equal(zt.matmul(a, b.laid("plain").t()), found)  # packed as it is multiplied


@every_format
def test_groups_meet_the_weights_of_their_group(format):
    x, w = normal(20, 64), normal(2, 64, 64)
    b, ends = packed(format, 2, 64, 64).t(), torch.tensor([5, 20], dtype=torch.int32, device=DEVICE)
    a = zt.quantize(x, "fp8token")
    assert zt.kernel_of(a, b, ends) == f"gemm.fp8_{format}.m_grouped_contiguous"
    found = zt.matmul(a, b, groups=ends)
    for group, (first, last) in enumerate(((0, 5), (5, 20))):
        assert error(found[first:last], x[first:last].float() @ w[group].float().t()) < FORMATS[format]
    a, used = zt.quantize(x.view(2, 10, 64), "fp8token"), torch.tensor([10, 3], dtype=torch.int32, device=DEVICE)
    assert zt.kernel_of(a, b, used) == f"gemm.fp8_{format}.m_grouped_masked"
    assert error(zt.matmul(a, b, groups=used)[1, :3], x[10:13].float() @ w[1].float().t()) < FORMATS[format]


@every_format
def test_weights_of_a_file_are_packed_and_multiplied(format, tmp_path):
    pytest.importorskip("safetensors")
    w = zt.quantize(normal(64, 128), format)
    zt.save(tmp_path / "w.safetensors", {"up": w})
    loaded = zt.load(tmp_path / "w.safetensors", DEVICE)["up"].laid("fragments")
    a = zt.quantize(normal(4, 128), "fp8token")
    assert torch.equal(a @ loaded.t(), a @ w.t())
    zt.save(tmp_path / "again.safetensors", {"up": loaded})
    again = zt.load(tmp_path / "again.safetensors", DEVICE)["up"]
    assert torch.equal(again.dequantize("f32"), w.dequantize("f32"))


@every_format
def test_a_compiled_function_multiplies_packed_weights(format):
    b = packed(format, 64, 128)

    def layer(x: torch.Tensor, b: zt.Quantized) -> torch.Tensor:
        return zt.matmul(zt.quantize(x, "fp8token"), b.t())

    assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(normal(4, 128), b), layer(normal(4, 128), b))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, b: zt.matmul(zt.quantize(x, "fp8token"), zt.quantize(x, "fp8token").t()), "no kernel multiplies fp8token by fp8token"),
        (lambda x, b: zt.matmul(zt.quantize(x, "fp8token", layout="plain"), b.t()), "quantise it with layout='fragments'"),
        (lambda x, b: zt.matmul(zt.quantize(x[:, :96], "fp8token"), b.t()), "the columns of a are not as many as the rows of b"),
        (lambda x, b: zt.quantize(x, "fp8token", direction="cols"), "fp8token has a scale for each row"),
        (lambda x, b: zt.quantize(x, "mxfp4", direction="squares").laid("fragments"), "cannot become 'fragments'"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(call, words):
    with pytest.raises(zoo.ZooError, match=words):
        call(normal(8, 128), packed("mxfp4", 64, 128))


@every_format
def test_tokens_in_bf16_are_multiplied_by_weights_packed_for_them(format):
    x, w = normal(12, 96), zt.quantize(normal(72, 96), format, layout="plain")
    pack, multiply = (getattr(torch.ops.zoo, name) for name in (f"pack_{format}_fragments", f"gemm_bf16_{format}_dense"))
    made = pack(w.elements[None], w.scales[None], tokens="bf16")
    b, rest = (made, {"alpha": w.tensor_scale}) if format == "nvfp4" else (made[0], {"b_row_scale": made[1][0]})
    d = multiply(x, b[0], **rest, N=72)
    assert error(d, x.float() @ w.dequantize("f32").t()) < 0.01
    with pytest.raises(zoo.ArgumentError, match="b: expected 4 dimensions"):
        multiply(x, w.laid("fragments").elements[0], **rest, N=72)
