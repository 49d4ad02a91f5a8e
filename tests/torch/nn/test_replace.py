"""quantize_: which layers become zoo's, what its report says, and how much memory that takes."""

from __future__ import annotations

import functools
import math

import pytest
import torch

import zoo
import zoo.torch as zt
from tests.torch.nn.test_gradients import normal
from zoo.torch.nn import Experts, GroupedLinear, Linear
from zoo.torch.nn.formats import FORMATS


class Model(torch.nn.Module):
    """A small language model: tied head, router, two layers, one of them reached by two names."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(50, 64)
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict({"up": torch.nn.Linear(64, 128), "down": torch.nn.Linear(128, 64)}) for _ in range(2)
        )
        self.router = torch.nn.Linear(64, 4, bias=False)
        self.again = self.layers[0]["up"]
        self.lm_head = torch.nn.Linear(64, 50, bias=False)
        self.lm_head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        x = self.embedding(tokens) * scale
        for layer in self.layers:
            x = x + layer["down"](torch.nn.functional.gelu(layer["up"](x)))
        return self.lm_head(x * self.router(x).softmax(-1).amax(-1, keepdim=True))


TOKENS = torch.arange(40).view(2, 20)
ALL = ["layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down", "router"]


def replaced(report) -> list[str]:
    return [one.name for one in report if not one.kept]


@pytest.mark.parametrize("format", FORMATS)
def test_every_linear_layer_is_replaced_and_the_report_has_its_errors(format):
    model = Model()
    exact = model(TOKENS).detach()
    report = zt.quantize_(model, format, skip="router", calibrate=TOKENS)
    assert replaced(report) == ALL[:-1] and all(type(model.get_submodule(name)) is Linear for name in ALL[:-1])
    assert model.again is model.layers[0]["up"] and model.again.frozen
    with torch.no_grad():
        assert 0 < (model(TOKENS) - exact).norm() / exact.norm() < 0.3
    eight = FORMATS[format].weights in ("fp8b128", "mxfp8")
    for name in ALL[:-1]:
        one = report[name]
        assert one.format == format and one.bytes_before == 4 * 64 * 128
        assert one.bytes_after == sum(part.nbytes for key, part in model.get_submodule(name).state_dict().items() if key != "bias")
        assert (0.01 if eight else 0.05) < one.weight_error < (0.03 if eight else 0.14) and one.output_error < (0.04 if eight else 0.2)


def test_a_report_is_a_table(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    report = zt.quantize_(Model(), "fp8b128", skip=["router", "layers.1"], calibrate=TOKENS)
    lines = str(report).splitlines()
    assert lines[0].split() == ["layer", "format", "bytes", "before", "after", "weights'", "error", "outputs'", "error"]
    assert lines[1].split()[:4] == ["layers.0.up", "fp8b128", "32768", "8196"]
    assert "kept: skipped" in str(report) and "kept: shares its weight with" in str(report)
    assert lines[-1].startswith("total") and len(report) == 6


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal_alone(terminal, monkeypatch):
    import io
    import sys

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    monkeypatch.setattr(sys, "stderr", screen := Screen())
    zt.quantize_(torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(3))), "fp8b128")
    shown = screen.getvalue()
    assert ("quantising" in shown and "100%" in shown) if terminal else not shown


class ForeignExperts(torch.nn.Module):
    """Experts as transformers has them: no linear layer, and most of a model's bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(torch.ones(4, 128, 64))
        self.down_proj = torch.nn.Parameter(torch.ones(4, 64, 64))


def test_a_report_counts_the_bytes_that_stay_outside_linear_layers(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(ForeignExperts, "__module__", "transformers.models.qwen3_moe")
    model = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=True), ForeignExperts(), torch.nn.LayerNorm(64))
    report = zt.quantize_(model, "fp8b128")
    assert report.others == {"LayerNorm": 4 * 2 * 64}
    assert report["1"].kept == "experts of ForeignExperts; zoo.transformers.ZooConfig replaces these while loading"
    assert report["1"].bytes_before == report["1"].bytes_after == 4 * 4 * 192 * 64 and "kept: experts of" in str(report)
    others, total = (line.split() for line in str(report).splitlines()[-2:])
    rest = sum(report.others.values())
    assert others == ["(others)", "kept:", "LayerNorm", str(rest), str(rest)]
    assert [int(one) for one in total[1:]] == [sum(getattr(one, name) for one in report) + rest for name in ("bytes_before", "bytes_after")]


def test_a_tied_weight_is_counted_once_in_a_report():
    report = zt.quantize_(Model(), "fp8b128", skip="router")
    assert report["lm_head"].bytes_after == 4 * 50 * 64 and not report.others


def test_a_model_without_linear_layers_has_a_report():
    assert "LayerNorm" in str(zt.quantize_(torch.nn.Sequential(torch.nn.LayerNorm(64)), "fp8b128"))


SKIPS = {
    "a name": ("router", ALL[:-1]),
    "a pattern": ("*.down", ["layers.0.up", "layers.1.up", "router"]),
    "what is inside": (["layers.0", "router"], ["layers.1.up", "layers.1.down"]),
    "what is deep inside": ("layers", ["router"]),
    "a module without linear layers": (["router", "embedding"], ALL[:-1]),
    "a function": (lambda name, layer: layer.out_features != 64, ["layers.0.down", "layers.1.down"]),
}


@pytest.mark.parametrize("skip", SKIPS)
def test_what_is_skipped_stays(skip):
    model, (given, expected) = Model(), SKIPS[skip]
    assert replaced(zt.quantize_(model, "mxfp8", skip=given)) == expected
    assert [name for name, one in model.named_modules() if type(one) is Linear] == expected


def test_a_name_that_skips_nothing_is_refused_before_anything_changes():
    model = Model()
    with pytest.raises(
        zoo.ArgumentError,
        match=r"no module is named 'layers\.0\.dwon'; did you mean layers\.0\.down or layers\.1\.down\? `print\(model\)` shows all",
    ):
        zt.quantize_(model, "mxfp8", skip=["router", "layers.0.dwon"])
    with pytest.raises(zoo.ArgumentError, match="no module is named ''"):
        zt.quantize_(model, "mxfp8", skip="")
    assert not [one for one in model.modules() if isinstance(one, Linear)]


@pytest.mark.parametrize("skip", [None, 3, ["lm_head", 0]])
def test_what_names_no_layers_to_skip_is_a_sentence(skip):
    model = Model()
    with pytest.raises(zoo.ArgumentError, match=r"skip: expected names or patterns, or a function of name and layer, got (None|3|0)"):
        zt.quantize_(model, "mxfp8", skip=skip)
    assert not [one for one in model.modules() if isinstance(one, Linear)]


def test_a_batch_without_memory_gives_no_error_of_outputs():
    model = torch.nn.Sequential(torch.nn.Linear(64, 32, device="meta"))
    report = zt.quantize_(model, "fp8b128", calibrate=torch.empty(2, 64, device="meta"))
    assert math.isnan(report["0"].output_error) and model[0].frozen


def test_tied_weights_stay_tied():
    model = Model()
    report = zt.quantize_(model, "fp8b128", frozen=False)
    assert report["lm_head"].kept == "shares its weight with embedding.weight"
    assert type(model.lm_head) is torch.nn.Linear and model.lm_head.weight is model.embedding.weight


def test_a_layer_that_torch_reads_past_its_forward_stays():
    model = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    report = zt.quantize_(model, "fp8b128")
    assert not replaced(report) and "reads its weight itself" in report["linear1"].kept
    with torch.no_grad():
        assert model(normal(2, 8, 64)).isfinite().all()


def test_the_calibration_runs_the_unchanged_model_once_however_it_is_given():
    for calibrate in (TOKENS, (TOKENS, 1.0), {"tokens": TOKENS, "scale": 1.0}, lambda model: model(TOKENS)):
        model, calls = Model(), []
        model.register_forward_hook(lambda *given, calls=calls: calls.append(given[2]))
        exact = model(TOKENS)
        report = zt.quantize_(model, "nvfp4", calibrate=calibrate)
        assert torch.equal(calls[-1], exact) and len(calls) == 2 and 0.05 < report["layers.1.down"].output_error < 0.2
        assert len(model.layers[0]["up"]._forward_hooks) == 0


def test_a_model_that_trains_keeps_its_parameters_and_its_hooks():
    model, seen = Model(), []
    parameters = dict(model.named_parameters())
    model.router.register_forward_hook(lambda *_: seen.append("router"))
    report = zt.quantize_(model, "fp8b128", frozen=False)
    assert all(one is parameters[name] for name, one in model.named_parameters())
    model(TOKENS).sum().backward()
    assert seen == ["router"] and all(one.grad is not None for one in model.parameters())
    assert all(one.bytes_before == one.bytes_after for one in report)
    again = zt.quantize_(model, "fp8b128")  # after training
    assert replaced(again) == ALL and model.router.frozen


def test_layers_of_zoo_that_train_are_frozen_in_the_format_that_is_asked_for():
    model = torch.nn.Sequential(Linear(64, 32, format="fp8b128"), GroupedLinear(2, 32, 32, format="mxfp8"))
    assert replaced(zt.quantize_(model, "nvfp4")) == ["0", "1"] and model[1].format == "nvfp4" and model[1].frozen
    assert replaced(zt.quantize_(model, "mxfp8")) == []  # what is frozen stays


def test_a_frozen_layer_that_stays_in_another_format_is_in_the_report():
    model = Model()
    first = zt.quantize_(model, "fp8b128", skip="router")
    again = zt.quantize_(model, "nvfp4", skip=["layers.0", "lm_head"])
    assert replaced(again) == ["router"] and {one.name for one in again} == {one.name for one in first}
    assert all(again[name].kept == "frozen in fp8b128" for name in ALL[:4])
    for one in ALL[:4]:
        assert again[one].bytes_before == again[one].bytes_after == first[one].bytes_after
    assert again.others == first.others


class Mixture(torch.nn.Module):
    """Experts that train, and a linear layer."""

    def __init__(self, **options) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.experts, self.out = Experts(4, 128, 64, **{"gates": "interleaved", **options}), torch.nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ids = torch.arange(2 * len(x)).view(-1, 2) % 4
        return self.out(self.experts(x, ids, torch.full(ids.shape, 0.5)))


@pytest.mark.parametrize("format", FORMATS)
def test_experts_change_their_format_as_a_whole(format):
    model, x = Mixture(), normal(12, 128)
    with torch.no_grad():
        exact = model(x)
        report = zt.quantize_(model, format, calibrate=x)
        assert (model(x) - exact).norm() / exact.norm() < (0.1 if FORMATS[format].weights in ("fp8b128", "mxfp8") else 0.4)
    assert [one.name for one in report] == ["experts", "out"] and model.experts.frozen
    assert {model.experts.format, model.experts.gate_up.format, model.experts.down.format} == {format}
    state = model.experts.state_dict().values()
    assert report["experts"].bytes_after == sum(one.nbytes for one in state) and report["experts"].bytes_before == 4 * 4 * 3 * 64 * 128
    assert 0.02 < report["experts"].weight_error < 0.14


def test_experts_that_a_format_cannot_serve_stay():
    model = Mixture(activation="gpt_oss", gates="halves")
    assert "needs a multiple of 128, got 64" in zt.quantize_(model, "mxfp8")["experts"].kept and not model.experts.frozen
    assert replaced(zt.quantize_(model, "mxfp8", frozen=False)) == ["experts"]
    model(normal(4, 128)).sum().backward()
    assert replaced(zt.quantize_(model, "fp8b128")) == ["experts"] and model.experts.frozen


COMPUTED = {
    "pruned": lambda layer: torch.nn.utils.prune.l1_unstructured(layer, "weight", 0.5),
    "spectral norm": torch.nn.utils.spectral_norm,
}


@pytest.mark.parametrize("computed", COMPUTED)
def test_a_weight_that_a_hook_computes_stays(computed):
    import torch.nn.utils.prune

    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 32))
    COMPUTED[computed](model[0])
    report = zt.quantize_(model, "fp8b128")
    assert replaced(report) == ["1"] and "computed by a hook" in report["0"].kept
    assert model(normal(4, 64)).isfinite().all()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_layer_with_a_forward_of_its_own_stays(frozen):
    """As accelerate's hooks set it: it would still call torch's forward."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 32))
    model[0].forward = functools.partial(lambda forward, x: forward(x), model[0].forward)
    report = zt.quantize_(model, "fp8b128", frozen=frozen)
    assert replaced(report) == ["1"] and "its forward is set on the instance" in report["0"].kept
    assert model(normal(4, 64)).isfinite().all()


def test_weights_of_several_devices_are_refused_before_a_layer_is_replaced(monkeypatch):
    class DTensor(torch.nn.Parameter): ...

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    monkeypatch.setattr(model[1], "weight", DTensor(model[1].weight.detach()))
    with pytest.raises(zoo.ArgumentError, match=r"the weight of '1' is a DTensor; call quantize_ before fully_shard"):
        zt.quantize_(model, "fp8b128")
    assert type(model[0]) is torch.nn.Linear


def test_a_linear_layer_by_itself_is_a_model():
    layer = torch.nn.Linear(64, 32)
    report = zt.quantize_(layer, "mxfp4")
    assert type(layer) is Linear and "(model)" in str(report)


def test_no_more_than_one_layer_is_there_twice(monkeypatch):
    """Bytes of tensors that zoo's operators make and that live at once, beside the layer that they are made of."""
    import weakref

    model = torch.nn.Sequential(*(torch.nn.Linear(256, 1024, bias=False) for _ in range(3)))
    weights = {one.untyped_storage()._cdata for one in model.parameters()}
    alive: dict[int, tuple[weakref.ref, int]] = {}
    most = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, given=(), named=None):
            nonlocal most
            found = function(*given, **(named or {}))
            for one in found if isinstance(found, tuple | list) else [found]:
                if isinstance(one, torch.Tensor) and not one._is_view():
                    storage = one.untyped_storage()
                    if storage._cdata not in weights:
                        alive[storage._cdata] = (weakref.ref(one), storage.nbytes())
            held = {id(one) for module in model.modules() for one in module._buffers.values()}
            most = max(most, sum(size for tensor, size in alive.values() if tensor() is not None and id(tensor()) not in held))
            return found

    monkeypatch.setattr("zoo.torch.nn.replace._CHUNK", 128 * 256)
    with Watch():
        zt.quantize_(model, "fp8b128")
    assert 0 < most <= 4 * 256 * 1024


def test_a_report_of_a_model_without_memory_has_no_errors():
    report = zt.quantize_(torch.nn.Linear(64, 32, device="meta"), "fp8b128")
    assert report[""].bytes_after == 32 * 64 + 4 and report[""].weight_error != report[""].weight_error


def test_bad_input_is_refused():
    with pytest.raises(zoo.ArgumentError, match=r"quantize_: expected a torch\.nn\.Module, got a Tensor"):
        zt.quantize_(TOKENS, "fp8b128")
    with pytest.raises(zoo.ArgumentError, match="no format 'int8' of layers"):
        zt.quantize_(Model(), "int8")
    assert zt.quantize_(torch.nn.Linear(64, 32).double(), "fp8b128")[""].kept == "weight in torch.float64"


def test_a_format_that_cannot_train_is_refused_before_a_layer_is_replaced():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64))
    with pytest.raises(zoo.ArgumentError, match=r"frozen=False: format 'mxfp4' has no gradients; train in fp8b128 or mxfp8 or nvfp4"):
        zt.quantize_(model, "mxfp4", frozen=False)
    assert type(model[0]) is torch.nn.Linear
