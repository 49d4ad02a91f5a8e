"""Other libraries are timed on results that are right alone: their scales lie as they read them, and what is missing is a reason."""

import importlib
import json
from itertools import pairwise
from types import SimpleNamespace

import pytest

from tools import compare_rivals
from tools.documentation.comparison import PARTS, Comparison
from zoo.benchmark import rivals
from zoo.benchmark.layer_models import Model
from zoo.benchmark.moe_layers import ROUTED, Layer, Tokens
from zoo.benchmark.product import Product
from zoo.runtime.hardware import Hardware

torch = pytest.importorskip("torch")
importlib.import_module("zoo.torch")  # registers the operators
EXPERTS = {"experts": 2, "top": 2, "tokens": 5, "N": 64, "K": 128}
GROUPS = {"groups": 3, "rows": 20, "N": 128, "K": 192}
SMALL_PROBLEMS = {
    "dense": [({"M": M, "N": N, "K": K}, Product("fp8b128", "dense", M, N, K)) for M, N, K in ((1, 64, 192), (130, 128, 256))],
    "contiguous": [(GROUPS, Product("fp8b128", "m_grouped_contiguous", 61, 128, 192, (20, 20, 61)))],
    "masked": [(GROUPS, Product("fp8b128", "m_grouped_masked", 192, 128, 192, (64, 128, 192), used=(20, 1, 39)))],
    "experts": [(EXPERTS, Product("fp8_mxfp4", "m_grouped_contiguous", 9, 64, 128, (4, 9)))],
    "bf16 experts": [(EXPERTS, Product("bf16_mxfp4", "m_grouped_contiguous", 9, 64, 128, (4, 9)))],
}
SMALL = Model(experts=4, hidden=192, inner=128)


class Clock:
    """What would be replayed on a GPU: it calls once, and every library takes as long as its name."""

    def __init__(self, torch, calls, device):
        calls[0]()

    def microseconds(self):
        return 5.0

    def close(self):
        pass


@pytest.fixture
def on_a_cpu(monkeypatch, tmp_path):
    """The script with torch's CPU in the GPU's place; gives a function that runs it and returns (exit status, record)."""

    def launch(name, *, d, **arguments):
        sizes = {"N": d.shape[1]} if "b_row_scale" in arguments else {}
        d.copy_(getattr(torch.ops.zoo, name.replace(".", "_"))(**arguments, **sizes))

    monkeypatch.setattr(compare_rivals.zoo, "launch", launch)
    for module in (compare_rivals, rivals):
        monkeypatch.setattr(module, "torch_with_gpu", lambda: torch)
        monkeypatch.setattr(module, "TorchReplay", Clock)
    monkeypatch.setattr(compare_rivals, "WHERE", "cpu")
    monkeypatch.setattr(compare_rivals, "replayed", lambda make, product, *_: Clock(torch, [rivals.checked(make, product, "cpu").call], 0))
    monkeypatch.setattr(compare_rivals, "describe", lambda _: Hardware("NVIDIA H200", "9.0", "580 (CUDA 13.0)"))
    monkeypatch.setattr(compare_rivals.driver, "device", lambda _: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=1))
    monkeypatch.setattr(compare_rivals, "problems", lambda part, *_: SMALL_PROBLEMS[part])

    def run(*arguments):
        file = tmp_path / "found.json"
        monkeypatch.setattr("sys.argv", ["compare_rivals", "--output", str(file), *arguments])
        with pytest.raises(SystemExit) as ended:
            compare_rivals.main()
        return ended.value.code, json.loads(file.read_text())

    return run


def test_absent_libraries_are_reasons_and_the_record_is_whole(on_a_cpu):
    status, found = on_a_cpu("--only", "dense")
    assert status == 0 and [one["sizes"]["M"] for one in found["dense"]] == [1, 130] and found["experts"] == []
    for one in found["dense"]:
        assert set(one["microseconds"]) == {"zoo", "torch tensor-wise"} and "deep_gemm" in one["refused"]["DeepGEMM"]
    assert [(one.rival, one.tokens, one.mean) for one in Comparison(found).ratios()] == [
        ("torch tensor-wise", (1, 16), 1.0), ("torch tensor-wise", (129, 2048), 1.0),
    ]  # fmt: skip
    assert Comparison(found).rivals("dense") == ["torch tensor-wise"] and "torch" in found["libraries"]


def test_zoos_calls_of_every_part_are_right_and_a_part_that_is_not_timed_keeps_its_rows(on_a_cpu, monkeypatch):
    status, found = on_a_cpu("--only", "contiguous,masked")
    assert status == 0 and list(found["contiguous"][0]["microseconds"]) == ["zoo"]
    assert list(found["masked"][0]["microseconds"]) == ["zoo", "zoo, rows not told"]
    status, after = on_a_cpu("--only", "experts,bf16 experts")
    assert status == 0 and list(after["bf16 experts"][0]["microseconds"]) == ["zoo"]
    through = "zoo, through an index"
    assert list(after["experts"][0]["microseconds"]) == ["zoo", "zoo, never promoted", through, f"{through}, never promoted"]
    assert after["masked"] == found["masked"] and after["less"].keys() >= {"torch tensor-wise"}
    timed = after["experts"]
    _, after = on_a_cpu("--only", "dense", "--seed", "2")
    assert after["dense"] and (after["masked"], after["experts"], after["seeds"]) == (found["masked"], timed, [2])
    assert after["earlier"].keys() == {"contiguous", "masked", "experts", "bf16 experts"} and after["earlier"]["masked"]["seeds"] == [1]
    monkeypatch.setattr(compare_rivals, "libraries", lambda: {"torch": "another"})
    _, after = on_a_cpu("--only", "dense")
    assert after["dense"] and after["masked"] == after["experts"] == [] and not after["earlier"]  # of other libraries


def test_a_part_of_another_name_is_refused(on_a_cpu, capsys):
    with pytest.raises(FileNotFoundError):  # nothing is written
        on_a_cpu("--only", "dense,grouped")
    assert "no part is named grouped" in capsys.readouterr().err


def test_a_wrong_result_of_zoo_fails_the_run_and_is_not_timed(on_a_cpu, monkeypatch):
    monkeypatch.setattr(compare_rivals.zoo, "launch", lambda name, *, d, **arguments: d.fill_(1))
    for part in SMALL_PROBLEMS:
        status, found = on_a_cpu("--only", part)
        assert status == 1 and all("wrong" in one["refused"]["zoo"] and "zoo" not in one["microseconds"] for one in found[part])
        assert Comparison(found).ratios(part) == []


def test_what_there_was_no_time_for_is_said(on_a_cpu, capsys):
    status, found = on_a_cpu("--seconds", "-1")
    assert status == 0 and found["dense"] == [] and "no time for 6" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["zoo", "torch bf16"])
def test_a_layer_with_one_mistake_is_told_from_a_right_one(name):
    torch.manual_seed(1)
    layer = Layer(torch, SMALL, "cpu")
    tokens, product = Tokens(layer, 9), Product("", "", 9, SMALL.hidden, SMALL.inner)
    made = ROUTED[name](layer)
    case = made.case(tokens)
    assert rivals.error_of(torch, case, product, "cpu") <= case.tolerance
    tokens.logits = tokens.logits.roll(1, 0)
    assert rivals.error_of(torch, made.case(tokens), product, "cpu") > case.tolerance


@pytest.mark.parametrize("part", list(PARTS))
def test_problems_of_a_seed_are_as_many_in_every_band(part):
    drawn = compare_rivals.problems(part, 1, 16)
    assert drawn == compare_rivals.problems(part, 1, 16) != compare_rivals.problems(part, 2, 16)
    for least, most in PARTS[part].bands:
        assert sum(least <= sizes[PARTS[part].size] <= most for sizes, _ in drawn) == 16
    for sizes, product in drawn:
        assert (sizes["N"], sizes["K"]) == (product.N, product.K) and product.ends[-1:] in ((), (product.M,))
        slots = (end - begin for begin, end in pairwise((0, *product.ends)))
        assert all(0 < used <= slot for used, slot in zip(product.used, slots, strict=False))


def block_wise(a, b, a_scale, a_recipe, b_scale, b_recipe, *swizzles):
    """torch.nn.functional.scaled_mm as it reads memory on Hopper: of the scales it has an address and the sizes."""
    M, K, N = *a.shape, b.shape[1]
    blocks, filled = -(-K // 128), -(-K // 128 // 4) * 4
    assert M % 4 == 0 and a_scale.shape == (M, blocks) and a_scale.stride() == (1, M)
    assert b_scale.shape == (filled, -(-N // 128)) and b_scale.stride() == (1, filled)
    of_a = torch.as_strided(a_scale, (M, blocks), (1, M)).repeat_interleave(128, 1)[:, :K]
    of_b = torch.as_strided(b_scale, (blocks, -(-N // 128)), (1, filled)).repeat_interleave(128, 0)[:K].repeat_interleave(128, 1)[:, :N]
    return ((a.float() * of_a) @ (b.float() * of_b)).to(torch.bfloat16)


@pytest.mark.parametrize(("M", "N", "K"), [(1, 64, 128), (7, 192, 384), (8, 128, 1920)])
def test_torchs_block_wise_product_gets_scales_in_its_layout(monkeypatch, M, N, K):
    monkeypatch.setattr(rivals, "torch_with_gpu", lambda: torch)
    monkeypatch.setattr(torch.nn.functional, "scaled_mm", block_wise, raising=False)
    product = Product("fp8b128", "dense", M, N, K)
    case = rivals.checked(rivals.RIVALS["torch block-wise"].make, product, "cpu")
    assert case.call().shape == (-(-M // 4) * 4, N)

    def late(a, b, a_scale, a_recipe, b_scale, *others):
        return block_wise(a, b, a_scale, a_recipe, b_scale.t().roll(1, 1).t(), *others)

    if K > 128:
        monkeypatch.setattr(torch.nn.functional, "scaled_mm", late)
        with pytest.raises(rivals.Unavailable, match="wrong: its error is"):
            rivals.checked(rivals.RIVALS["torch block-wise"].make, product, "cpu")


class DeepGemm:
    """DeepGEMM's three functions and two helpers, by their documentation."""

    get_mn_major_tma_aligned_tensor = staticmethod(lambda scales: scales)
    get_mk_alignment_for_contiguous_layout = staticmethod(lambda: 128)

    @staticmethod
    def fp8_gemm_nt(a, b, d):
        scale = b[1].repeat_interleave(128, 0)[: len(b[0])].repeat_interleave(128, 1)[:, : a[0].shape[1]]
        rows = a[0].float() * a[1].repeat_interleave(128, 1)[:, : a[0].shape[1]]
        d.copy_(rows @ (b[0].float() * scale).t())

    @classmethod
    def m_grouped_fp8_gemm_nt_contiguous(cls, a, b, d, groups, use_psum_layout=False):
        if use_psum_layout:  # each group begins at the tile after the end of the one before
            ends = groups.tolist()
            tiles = [-(-end // 128) - -(-begin // 128) for begin, end in pairwise((0, *ends))]
            groups = torch.arange(len(ends)).repeat_interleave(torch.tensor(tiles) * 128)
        for first in range(0, len(d), 128):
            (group,) = set(groups[first : first + 128].tolist())
            tile = slice(first, min(first + 128, ends[group]) if use_psum_layout else first + 128)
            cls.fp8_gemm_nt((a[0][tile], a[1][tile]), (b[0][group], b[1][group]), d[tile])

    @classmethod
    def m_grouped_fp8_gemm_nt_masked(cls, a, b, d, rows, expected):
        for group, count in enumerate(rows.tolist()):
            cls.fp8_gemm_nt((a[0][group, :count], a[1][group, :count]), (b[0][group], b[1][group]), d[group, :count])


RAGGED = ("m_grouped_contiguous", 300, (0, 130, 130, 300))


@pytest.mark.parametrize(
    ("grouping", "M", "ends", "rival"),
    [
        ("dense", 9, (), "DeepGEMM"),
        (*RAGGED, "DeepGEMM"),
        (*RAGGED, "DeepGEMM, ends of groups"),
        ("m_grouped_masked", 12, (4, 8, 12), "DeepGEMM"),
    ],
)
def test_deep_gemm_gets_groups_of_whole_tiles_and_full_places(monkeypatch, grouping, M, ends, rival):
    monkeypatch.setattr(rivals, "torch_with_gpu", lambda: torch)
    monkeypatch.setattr(rivals, "imported", {"deep_gemm": DeepGemm}.__getitem__)
    case = rivals.checked(rivals.RIVALS[rival].make, Product("fp8b128", grouping, M, 64, 192, ends), "cpu")
    assert len(case.call()) == (512 if grouping == "m_grouped_contiguous" else M)


class HummingLayer(torch.nn.Module):
    """humming's layer of experts, by its documentation: the ends of groups begin with 0."""

    def __init__(self, *, shape_n, shape_k, weight_config, input_config, num_experts, torch_dtype, **padding):
        super().__init__()
        assert weight_config == {"quant_method": "mxfp4"} and torch_dtype is torch.bfloat16
        self.humming_config = (num_experts, shape_n, shape_k)

    def load_from_tensors(self, tensors):
        self.tensors = tensors

    def transform(self):
        codes, scales = self.tensors["weight"], self.tensors["weight_scale"]
        assert (codes.shape[0], codes.shape[1], 2 * codes.shape[2]) == self.humming_config
        magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        numbers = torch.stack((codes & 15, codes >> 4), -1).flatten(-2).long()
        values = magnitudes[numbers & 7] * (1 - 2.0 * (numbers >> 3))
        self.weights = values * torch.exp2(scales.float() - 127).repeat_interleave(32, -1)

    def forward(self, inputs, input_scale, outputs, expert_layout, compute_config, tuning_config):
        assert compute_config == {"gemm_type": "grouped_contiguous"} and tuning_config == (len(inputs), "grouped_contiguous")
        ends = expert_layout.tolist()
        for group, (begin, end) in enumerate(pairwise(ends)):
            rows = inputs[begin:end].float() * (1 if input_scale is None else input_scale[begin:end])
            outputs[begin:end] = rows @ self.weights[group].t()


@pytest.mark.parametrize("formats", ["fp8_mxfp4", "bf16_mxfp4"])
def test_humming_gets_the_begin_of_the_first_group_and_a_scale_a_row(monkeypatch, formats):
    tune = SimpleNamespace(get_heuristics_config=lambda config, shape_m, gemm_type: (shape_m, gemm_type))
    monkeypatch.setattr(rivals, "torch_with_gpu", lambda: torch)
    monkeypatch.setattr(rivals, "imported", {"humming.layer": SimpleNamespace(HummingLayer=HummingLayer), "humming.tune": tune}.__getitem__)
    product = Product(formats, "m_grouped_contiguous", 30, 64, 192, (0, 13, 13, 30))
    rivals.checked(rivals.RIVALS["humming"].make, product, "cpu")


def test_a_rival_that_raises_is_told_with_its_words(monkeypatch):
    monkeypatch.setattr(rivals, "torch_with_gpu", lambda: torch)
    monkeypatch.setattr(torch, "_scaled_mm", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("no such\nstory")))
    with pytest.raises(rivals.Unavailable, match=r"^refuses: RuntimeError: no such$"):
        rivals.checked(rivals.RIVALS["torch tensor-wise"].make, Product("fp8b128", "dense", 4, 64, 64), "cpu")


def test_a_product_that_a_library_lacks_is_not_asked_for():
    for name in ("torch block-wise", "DeepGEMM", "triton_kernels", "humming", "torch row-wise", "torch bf16"):
        with pytest.raises(rivals.Unavailable, match="has no such product"):
            rivals.RIVALS[name].make(torch, Product("fp8b128", "dense", 4, 64, 64, (), "swiglu"), "cpu")
