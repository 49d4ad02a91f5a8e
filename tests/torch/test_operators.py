"""torch.ops.zoo as torch sees it: registered late, traced, exported, and refusing in sentences what no kernel can do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import zoo
import zoo.torch
from zoo.contract.shapes import Made
from zoo.runtime import allocation

ROOT = Path(__file__).parents[2]


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)


class TwoKernels(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, scales = torch.ops.zoo.quantize_fp8b128_rows(x, layout="mn_major")
        return torch.ops.zoo.dequantize_fp8b128_rows(q, scales, layout="mn_major")


def test_importing_reads_no_manifest_and_registers_nothing():
    code = "import sys, torch, zoo.torch; print('zoo.contract.manifest' in sys.modules, len(zoo.torch.operators._registered))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "0"]


def test_an_operator_that_is_none_is_refused_as_torch_does():
    with pytest.raises(AttributeError):
        torch.ops.zoo.quantize_mxfp9_rows  # noqa: B018
    with pytest.raises(zoo.UnknownKernelError, match=r"no kernel is named 'quantize.mxfp9.rows'"):
        zoo.torch.register("quantize.mxfp9.rows")


def test_a_compiled_function_of_any_number_of_rows_gives_the_same_bits():
    compiled = torch.compile(TwoKernels(), fullgraph=True, dynamic=True, backend="aot_eager")
    for count in (16, 40, 41):
        assert torch.equal(compiled(rows(count, 256)), TwoKernels()(rows(count, 256)))


def exported() -> torch.export.ExportedProgram:
    dynamic = {"x": {0: torch.export.Dim("m", min=3, max=4096)}}
    return torch.export.export(TwoKernels(), (rows(16, 256),), dynamic_shapes=dynamic)


def test_an_exported_program_takes_any_number_of_rows():
    assert torch.equal(exported().module()(rows(41, 256)), TwoKernels()(rows(41, 256)))


class DecodedOnce(torch.nn.Module):
    def forward(self, a, b):
        return torch.ops.zoo.gemm_fp8_nvfp4_dense(a, b, N=128)


@pytest.mark.parametrize("count", [16, 400])
def test_a_workspace_for_many_rows_ties_no_exported_program_to_few_or_to_many(count):
    a, b = torch.ones(count, 1, 64).to(torch.float8_e4m3fn), torch.full((2, 1, 2304), 56, dtype=torch.uint8)
    dynamic = {"a": {0: torch.export.Dim("m", min=3, max=4096)}, "b": None}
    program = torch.export.export(DecodedOnce(), (a, b), dynamic_shapes=dynamic).module()
    for rows in (3, 256, 257, 700):
        some = torch.ones(rows, 1, 64).to(torch.float8_e4m3fn)
        assert torch.equal(program(some, b), DecodedOnce()(some, b)) and program(some, b).shape == (rows, 128)


def test_an_exported_program_is_saved_and_loaded(tmp_path):
    from torch._export.serde import serialize

    if torch.float8_e4m3fn not in serialize._TORCH_TO_SERIALIZE_DTYPE:
        pytest.skip("the files of this torch know no fp8")
    torch.export.save(exported(), tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2").module()
    assert torch.equal(loaded(rows(41, 256)), TwoKernels()(rows(41, 256)))


def test_a_pitch_of_padded_rows_is_the_same_on_fake_tensors():
    x = rows(100, 512)
    q, _ = torch.ops.zoo.quantize_fp8b128_cols(x)
    fake, _ = torch.ops.zoo.quantize_fp8b128_cols(x.to("meta"))
    assert q.stride() == fake.stride() == (112, 1)


def test_a_gradient_that_has_no_formula_is_refused_and_none_is_not():
    x = rows(4, 256).requires_grad_()
    for operator in (torch.ops.zoo.quantize_mxfp8_rows, torch.ops.zoo.quantize_mxfp8_rows.default):
        with pytest.raises(zoo.ArgumentError, match=r"quantize.mxfp8.rows: x: requires a gradient"):
            operator(x)
    with torch.no_grad():
        torch.ops.zoo.quantize_mxfp8_rows(x)
    torch.ops.zoo.quantize_mxfp8_rows(x.detach())


def test_functorch_is_refused_where_it_asks_for_a_gradient():
    with pytest.raises(zoo.ArgumentError, match="requires a gradient"):
        torch.func.grad(lambda x: torch.ops.zoo.dequantize_mxfp8_rows(*torch.ops.zoo.quantize_mxfp8_rows(x), out="f32").sum())(
            rows(4, 64).float()
        )


def test_bytes_of_scales_that_nobody_owns_are_zero_on_the_cpu():
    q, scales = torch.ops.zoo.quantize_mxfp8_rows(rows(128, 128))
    index, ends = torch.arange(8, dtype=torch.int32), torch.tensor([4, 8], dtype=torch.int32)
    of_b = q.expand(2, 128, 128).contiguous(), torch.ops.zoo.scales_blocked(scales).expand(2, 1, 1, 32, 16).contiguous()
    _, made = torch.ops.zoo.gemm_mxfp8_m_grouped_gather_mxfp8(q, scales, *of_b, index, ends)
    assert made.shape == (3, 1, 32, 16) and not made.view(torch.uint8)[2:].any()  # each group has 128 rows, and there is room for one more


def test_a_batch_by_vmap_is_refused_where_tensors_are_written():
    x = rows(2, 4, 64)
    q, scales = torch.ops.zoo.quantize_mxfp8_rows(x.flatten(0, 1))
    written = [q.view(2, 4, 64), scales.view(2, 4, 2)]
    before = [one.view(torch.uint8).clone() for one in written]
    with pytest.raises(zoo.ArgumentError, match=r"quantize.mxfp8.rows: torch.vmap over .out"):
        torch.vmap(lambda x, q, scales: torch.ops.zoo.quantize_mxfp8_rows.out(-x, q=q, scales=scales))(x, *written)
    assert all(torch.equal(one.view(torch.uint8), old) for one, old in zip(written, before, strict=True))


def test_writing_into_a_tensor_that_autograd_saved_is_noticed():
    q, scales = torch.ops.zoo.quantize_mxfp8_rows(rows(4, 256))
    before = q._version
    torch.ops.zoo.quantize_mxfp8_rows.out(rows(4, 256), q=q, scales=scales)
    assert q._version == before + 1 and scales._version > 0


def test_autocast_changes_nothing():
    x = rows(4, 256).float()
    q, scales = torch.ops.zoo.quantize_mxfp8_rows(x)
    with torch.autocast("cpu", torch.bfloat16):
        again = torch.ops.zoo.quantize_mxfp8_rows(x)
    assert torch.equal(q.view(torch.uint8), again[0].view(torch.uint8)) and torch.equal(
        scales.view(torch.uint8), again[1].view(torch.uint8)
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: torch.ops.zoo.quantize_mxfp8_rows(rows(4, 33)), "K must be a multiple of 32"),
        (lambda: torch.ops.zoo.quantize_mxfp8_rows(rows(4, 64).double()), "x: expected bf16 or f16 or f32, got torch.float64"),
        (lambda: torch.ops.zoo.quantize_mxfp8_rows(rows(64, 64).t()), "x"),
        (lambda: torch.ops.zoo.quantize_mxfp8_rows(rows(4, 64), layout="round"), "layout: expected plain or blocked, got 'round'"),
        (
            lambda: torch.ops.zoo.quantize_mxfp8_rows(rows(4, 64), q="f32"),
            "q: expected an array, or one of its dtypes: e4m3 or e5m2; got 'f32'",
        ),
        (lambda: torch.ops.zoo.scales_unblocked(torch.zeros(1, 1, 32, 16, dtype=torch.uint8)), "no input tells M"),
        (lambda: torch.ops.zoo.quantize_mxfp8_rows(rows(2, 2, 64)), r"x: expected 2 dimensions \(M, K\), got 3"),
        (lambda: zoo.call("quantize.mxfp8.rows", x=rows(4, 64)), "x: expected arrays in device memory"),
        (lambda: zoo.call("quantize.mxfp8.rows", x=rows(4, 64).to("meta")), "without memory"),
        (lambda: torch.vmap(lambda x: zoo.call("quantize.mxfp8.rows", x=x).q)(rows(2, 4, 64)), "x: "),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call, words):
    with pytest.raises(zoo.ZooError, match=words):
        call()


_NOT_DENSE = {
    "coordinates": (lambda x: x.to_sparse(), "torch.sparse_coo of torch.float32"),
    "rows": (lambda x: x.to_sparse_csr(), "torch.sparse_csr of torch.float32"),
    "blocks": (lambda x: x.to_sparse_bsr((4, 4)), "torch.sparse_bsr of torch.float32"),
    "packed": (lambda x: x.to_mkldnn(), "torch._mkldnn of torch.float32"),
    "quantised": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "torch.strided of torch.qint8"),
    "nested": (lambda x: torch.nested.nested_tensor([x[:2], x[2:]]), "a nested one"),
    "ragged": (lambda x: torch.nested.nested_tensor([x[:2], x[2:]], layout=torch.jagged), "a nested one"),
}


@pytest.mark.filterwarnings("ignore")  # torch's, of what it means to remove
@pytest.mark.parametrize("what", _NOT_DENSE)
def test_a_tensor_that_is_not_dense_is_refused_by_name_and_not_with_a_list_of_backends(what):
    make, got = _NOT_DENSE[what]
    x, quantize = rows(4, 64).float(), torch.ops.zoo.quantize_mxfp8_rows
    remedy = (
        ".to_padded_tensor(0) makes one; of a jagged one .values() are the rows, and .offsets()[1:] the ends of groups"
        if got == "a nested one"
        else ".to_dense() makes one of most"
    )
    words = f"expected a dense tensor, got {got}; {remedy}"
    with pytest.raises(zoo.ArgumentError) as refusal:
        quantize(make(x))
    assert str(refusal.value) == f"quantize.mxfp8.rows: x: {words}"
    q = quantize(x)[0]
    with pytest.raises(zoo.ArgumentError) as refusal:
        quantize.out(x, q=q, scales=make(torch.zeros(4, 64)))
    assert str(refusal.value) == f"quantize.mxfp8.rows: scales: {words}"


@pytest.mark.filterwarnings("ignore")
def test_a_ragged_tensor_is_refused_in_inference_and_when_it_is_saved(tmp_path):
    ragged = _NOT_DENSE["ragged"][0](rows(4, 64).float())
    with torch.inference_mode(), pytest.raises(zoo.ArgumentError, match="x: expected a dense tensor, got a nested one"):
        torch.ops.zoo.quantize_mxfp8_rows(ragged)
    with pytest.raises(zoo.ArgumentError, match=r"^save: w: expected a dense tensor that has memory, got a nested one"):
        zoo.torch.save(tmp_path / "w.safetensors", {"w": ragged})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("quantize_mxfp8_row", "torch.ops.zoo has no operator 'quantize_mxfp8_row'; did you mean quantize_mxfp8_rows, "),
        ("nothing", "torch.ops.zoo has no operator 'nothing'; `dir(torch.ops.zoo)` shows all "),
        ("w" * 10**6, f"torch.ops.zoo has no operator '{'w' * 199}...; `dir(torch.ops.zoo)` shows all "),
    ],
)
def test_a_misspelt_operator_is_refused_with_the_nearest_that_there_are(name, words):
    with pytest.raises(AttributeError) as refused:
        getattr(torch.ops.zoo, name)
    assert str(refused.value).startswith(words) and not hasattr(torch.ops.zoo, name)


def test_dir_shows_the_public_names_alone():
    assert dir(zoo.torch) == sorted(zoo.torch.__all__)


def test_a_sparse_tensor_without_memory_is_refused_too():
    from torch._subclasses.fake_tensor import FakeTensorMode

    for make in (torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr):
        with FakeTensorMode() as fake, pytest.raises(zoo.ArgumentError, match=r"x: expected a dense tensor, got torch\.sparse"):
            torch.ops.zoo.quantize_mxfp8_rows(fake.from_tensor(make(rows(4, 64).float())))
        with pytest.raises(zoo.ArgumentError, match=r"x: expected a dense tensor, got torch\.sparse"):
            torch.ops.zoo.quantize_mxfp8_rows(make(rows(4, 64).float()).to("meta"))


def test_none_for_a_tensor_is_refused_by_name():
    with pytest.raises(zoo.ArgumentError, match=r"^quantize\.mxfp8\.rows: x: expected a tensor, got None$"):
        torch.ops.zoo.quantize_mxfp8_rows(None)


def test_tensors_of_a_device_that_zoo_has_nothing_for_are_refused_with_their_device():
    from zoo.torch import operators

    refuse = operators._refuse_others(zoo.kernel("quantize.mxfp8.rows"))
    with pytest.raises(zoo.ArgumentError, match=r"^quantize\.mxfp8\.rows: takes tensors of GPUs and of the CPU, got some of meta$"):
        refuse(rows(4, 64).to("meta"), layout="plain")


def test_a_fake_tensor_has_shapes_in_an_operator_and_no_memory_for_a_launch():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(4, 64, dtype=torch.bfloat16)
        q, _ = torch.ops.zoo.quantize_mxfp8_rows(x)
        assert q.shape == (4, 64)
        with pytest.raises(zoo.ArgumentError, match="x: "):
            zoo.call("quantize.mxfp8.rows", x=x)


def test_tensors_of_two_devices_are_refused_before_anything_is_made():
    with pytest.raises(zoo.ArgumentError, match="lies on cpu, another argument on meta"):
        torch.ops.zoo.quantize_nvfp4_rows(rows(4, 64).to("meta"), torch.ones(1))


def test_an_operator_asks_for_a_dtype_only_where_there_are_several():
    def named(operator, part="arguments"):
        return [one.name for one in getattr(operator.default._schema, part)]

    assert named(torch.ops.zoo.quantize_mxfp8_rows) == ["x", "q", "rounding", "layout"]
    assert named(torch.ops.zoo.quantize_mxfp4_rows) == ["x", "rounding", "layout"]
    assert named(torch.ops.zoo.quantize_mxfp8_rows, "returns") == ["q", "scales"]
    assert len(named(torch.ops.zoo.dequantize_mxfp8_rows, "returns")) == 1 and "-> Tensor" in str(
        torch.ops.zoo.dequantize_mxfp8_rows.default._schema
    )


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("strides", [(4, 1), (1, 2)])
def test_results_in_4_bits_exist_where_deterministic_algorithms_fill_memory(deterministic, monkeypatch, strides):
    expected = torch.ops.zoo.quantize_mxfp4_rows(rows(8, 64))[0]
    assert expected.dtype == getattr(torch, "float4_e2m1fn_x2", torch.uint8) and expected.view(torch.uint8).any()
    monkeypatch.setattr(torch, "device", lambda *of_gpu: "cpu")
    made = allocation._torch_maker(Made("q", "e2m1x2", (2, 4), strides, "write"), 0)()
    assert (made.dtype, made.shape, made.stride()) == (expected.dtype, (2, 4), strides)


def test_tangents_are_looked_for_while_there_may_be_some_and_never_else(monkeypatch):
    from torch.autograd import forward_ad

    asked = []
    monkeypatch.setattr(zoo.torch.operators, "_refuse_tangents", lambda kernel, given: asked.append([name for name, _ in given]))
    torch.ops.zoo.quantize_mxfp8_rows(rows(4, 64))
    assert asked == []
    with forward_ad.dual_level():
        torch.ops.zoo.quantize_mxfp8_rows(rows(4, 64), layout="blocked")
    assert asked == [["x", "layout"]]
