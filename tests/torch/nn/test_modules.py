"""What torch does to modules: moved, copied, saved, loaded; quantised weights keep their bits."""

from __future__ import annotations

import copy
import io
import pickle
import re

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import zoo
import zoo.torch as zt
from tests.torch.nn.test_gradients import normal
from zoo.errors import ArgumentError
from zoo.torch.nn import Experts, GroupedLinear, Linear
from zoo.torch.nn.formats import FORMATS, check_device, on_gpu

every_format = pytest.mark.parametrize("format", FORMATS)
CASTS = {
    "half": lambda layer: layer.half(),
    "bfloat16": lambda layer: layer.bfloat16(),
    "double": lambda layer: layer.double().bfloat16(),
    "to(dtype)": lambda layer: layer.to(torch.float16),
    "type": lambda layer: layer.type(torch.float32),
    "to(device, dtype)": lambda layer: layer.to("cpu", torch.bfloat16),
}


def frozen(format: str, bias: bool = True) -> Linear:
    torch.manual_seed(0)
    return Linear(96, 40, bias, format).freeze()


def bits(module: torch.nn.Module) -> dict[str, bytes]:
    return {name: one.detach().contiguous().view(torch.uint8).numpy().tobytes() for name, one in module.state_dict().items()}


@pytest.mark.parametrize("cast", CASTS)
@every_format
def test_a_cast_of_the_module_leaves_quantised_weights_alone(format, cast):
    layer = frozen(format)
    before = bits(layer)
    CASTS[cast](layer)
    after = bits(layer)
    assert {name: after[name] for name in after if name != "bias"} == {name: before[name] for name in before if name != "bias"}
    with torch.no_grad():
        assert layer(normal(4, 96, dtype=torch.bfloat16)).isfinite().all()


def test_a_cast_reaches_a_weight_that_trains():
    layer = Linear(96, 40).to(torch.bfloat16)
    assert layer.weight.dtype == layer.bias.dtype == torch.bfloat16


SWAPS = {
    "a cast": lambda layer: layer.to(torch.bfloat16),
    "a state": lambda layer: layer.load_state_dict(Linear(96, 40).state_dict()),
}


@pytest.mark.parametrize("swap", SWAPS)
def test_a_parameter_whose_cast_is_kept_can_be_swapped(swap, monkeypatch):
    """torch swaps no parameter that has a weak reference."""
    layer, x = Linear(96, 40), normal(4, 96)
    before = layer(x).detach()
    monkeypatch.setattr(torch.__future__, "_swap_module_params_on_conversion", True)
    weight = layer.weight
    SWAPS[swap](layer)
    assert layer.weight is weight and not torch.equal(layer(x), before)


COMPUTED = {
    "parametrised": torch.nn.utils.parametrizations.weight_norm,
    "pruned": lambda layer: torch.nn.utils.prune.l1_unstructured(layer, "weight", 0.5),
}


@pytest.mark.parametrize("computed", COMPUTED)
def test_a_weight_that_a_hook_computes_is_not_frozen_and_then_computed_again(computed):
    import torch.nn.utils.prune

    layer, x = Linear(64, 32), normal(4, 64)
    COMPUTED[computed](layer)
    before = layer(x)
    with pytest.raises(
        ArgumentError, match=r"freeze: the weight of .* computed by a hook; call .*remove_parametrizations or .*prune\.remove"
    ):
        layer.freeze()
    assert torch.equal(layer(x), before) and not layer.frozen
    with pytest.raises(ArgumentError, match=r"from_float: expected a torch\.nn\.Linear whose weight is a parameter"):
        Linear.from_float(layer)


def test_a_frozen_layer_that_is_given_a_weight_trains_again():
    layer, x = Linear(96, 40).freeze(), normal(4, 96)
    layer.weight = torch.nn.Parameter(normal(40, 96))
    assert not layer.frozen and set(layer.state_dict()) == {"weight", "bias"}
    layer(x).sum().backward()
    assert layer.weight.grad.any()


@every_format
def test_a_module_is_moved_and_begun_on_no_device(format):
    layer = frozen(format)
    shapes = {name: (one.shape, one.dtype) for name, one in layer.state_dict().items()}
    empty = Linear(96, 40, format=format, device="meta").freeze()
    assert {name: (one.shape, one.dtype) for name, one in empty.state_dict().items()} == shapes
    empty.to_empty(device="cpu").load_state_dict(layer.state_dict())
    assert bits(empty) == bits(layer)
    assert all(one.is_meta for one in layer.to("meta").state_dict().values())


@every_format
def test_a_saved_state_is_loaded_as_weights_alone(format):
    layer, other, file = frozen(format), Linear(96, 40, format=format).freeze(), io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert set(state) >= {"elements", "scales", "bias"} and "weight" not in state
    for assign in (False, True):
        other.load_state_dict(state, assign=assign)
        assert bits(other) == bits(layer)


@every_format
def test_a_frozen_layer_has_buffers_of_fixed_size_and_no_parameter_but_its_bias(format):
    """FSDP2 has failed at parameters of bytes, and distributed checkpoints at an extra state whose size differs."""
    layer = frozen(format)
    assert [name for name, _ in layer.named_parameters()] == ["bias"]
    assert set(layer.state_dict()) <= {"elements", "scales", "tensor_scale", "bias"}
    assert {name: one.shape for name, one in layer.state_dict().items()} == {
        name: one.shape for name, one in frozen(format).state_dict().items()
    }


def test_states_of_masters_are_those_of_torch():
    ours, theirs = Linear(96, 40), torch.nn.Linear(96, 40)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict()) and torch.equal(ours.weight, theirs.weight)


@every_format
def test_a_state_of_another_format_is_refused(format):
    states = {name: frozen(name).state_dict() for name in FORMATS if name != format}
    if format in ("mxfp4", "mxfp8_mxfp4"):  # whose weights are equal
        states = {name: one for name, one in states.items() if name not in ("mxfp4", "mxfp8_mxfp4")}
    for name, state in states.items():
        with pytest.raises(zoo.ArgumentError, match=f"of {format}, got .*: the state has another format or size"):
            torch.nn.ModuleDict({"up": frozen(format)}).load_state_dict({f"up.{part}": one for part, one in state.items()})
        assert name


def test_a_state_that_torch_would_copy_number_by_number_is_refused():
    layer, master = frozen("fp8b128"), Linear(96, 40)
    with pytest.raises(zoo.ArgumentError, match=r"is frozen in fp8b128, and the state has a weight that is not"):
        layer.load_state_dict(master.state_dict())
    with pytest.raises(zoo.ArgumentError, match=r"is not frozen, and the state is that of a frozen layer"):
        master.load_state_dict(layer.state_dict())
    with pytest.raises(zoo.ArgumentError, match=r"weight: expected numbers, got torch.float8_e4m3fn, whose scales would be lost"):
        master.load_state_dict({"weight": master.weight.detach().to(torch.float8_e4m3fn), "bias": master.bias.detach()})


def test_a_state_whose_parts_are_no_tensors_is_refused_by_torch():
    for layer, name in ((Linear(64, 32), "weight"), (Linear(64, 32, format="fp8_mxfp4").freeze(), "elements")):
        with pytest.raises(RuntimeError, match=rf"parameter named \"{name}\", expected torch.Tensor"):
            layer.load_state_dict(layer.state_dict() | {name: [1, 2]})


@every_format
def test_a_copy_and_a_pickle_compute_the_same(format):
    x = normal(4, 96, dtype=torch.bfloat16)
    for layer in (frozen(format), Linear(96, 40, format=format)):
        with torch.no_grad():
            expected, file = layer(x), io.BytesIO()
            torch.save(layer, file)
            file.seek(0)
            for other in (copy.deepcopy(layer), torch.load(file, weights_only=False), pickle.loads(pickle.dumps(layer))):
                assert torch.equal(other(x), expected) and other._kept is not layer._kept


def test_from_float_leaves_the_layer_it_is_given_as_it_is():
    linear = torch.nn.Linear(96, 40)
    layer, fixed = Linear.from_float(linear, "mxfp8"), Linear.from_float(linear, "nvfp4", frozen=True)
    assert layer.weight is linear.weight and layer.bias is linear.bias
    assert fixed.frozen and fixed.weight is None and linear.weight.requires_grad and linear.bias.requires_grad
    assert "format=nvfp4, frozen" in repr(fixed)
    with pytest.raises(zoo.ArgumentError, match=r"from_float: expected a torch\.nn\.Linear"):
        Linear.from_float(torch.nn.Conv1d(3, 4, 1))


@pytest.mark.parametrize(("stored", "format"), [("mxfp8", "fp8b128"), ("mxfp8", None), ("fp8b128", None), ("nvfp4", "fp8_nvfp4")])
def test_a_layer_of_a_checkpoints_weight_multiplies_its_numbers(stored, format):
    torch.manual_seed(1)
    w, bias, x = torch.randn(96, 160), torch.randn(96), torch.randn(5, 160).bfloat16()
    weight = zt.quantize(w, stored, **({"direction": "squares"} if stored == "fp8b128" else {"layout": "plain"}))
    layer = Linear.from_quantized(weight, bias, format)
    assert layer.frozen and layer.format == (format or stored)
    numbers = weight.dequantize("f32")
    assert (layer.dequantize(torch.float32) - numbers).norm() < 1e-3 * numbers.norm()
    exact = x.float() @ numbers.t() + bias
    assert (layer(x).float() - exact).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize(
    ("weight", "format", "words"),
    [
        (torch.ones(4, 32), None, "expected a quantised weight (N, K), got a Tensor"),
        (zt.quantize(torch.ones(2, 32, 32), "mxfp8", layout="plain"), None, "got Quantized(mxfp8, (2, 32, 32)"),
        (zt.quantize(torch.ones(32, 64), "mxfp8", layout="plain"), "mxfp4", "multiplies weights in mxfp4, and these are in mxfp8"),
        (zt.quantize(torch.ones(40, 64), "mxfp8", layout="plain"), "mxfp8", "multiples of 32, and this weight is 40 x 64"),
    ],
)
def test_a_weight_that_is_none_of_the_format_is_refused(weight, format, words):
    with pytest.raises(zoo.ArgumentError) as caught:
        Linear.from_quantized(weight, format=format)
    assert words in str(caught.value)


def test_a_new_layer_begins_with_small_random_numbers():
    """As torch.nn.Linear does: uniform up to 1 / sqrt(K), not the numbers that the memory had."""
    torch.manual_seed(0)
    experts = Experts(3, 64, 256, bias=True)
    for layer in (GroupedLinear(3, 64, 96), experts.gate_up, experts.down):
        bound = layer.weight.shape[-1] ** -0.5
        for one in (layer.weight, layer.bias):
            assert 0.9 * bound < one.abs().max() <= bound and one.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)


@every_format
def test_a_grouped_layer_is_a_linear_layer_for_each_group(format):
    linears = [torch.nn.Linear(96, 40) for _ in range(3)]
    layer = GroupedLinear.from_float(linears, format, frozen=True)
    x, ends = normal(20, 96, dtype=torch.bfloat16), torch.tensor([7, 7, 18], dtype=torch.int32)
    with torch.no_grad():
        y = layer(x, ends)
        first, last = linears[0](x[:7].float()), linears[2](x[7:18].float())
    error = {"mxfp8": 0.04, "fp8b128": 0.04}.get(format, 0.2)
    assert (y[:7] - first).norm() / first.norm() < error and (y[7:18] - last).norm() / last.norm() < error and not y[18:].any()
    with pytest.raises(zoo.ArgumentError, match="layers of one shape"):
        GroupedLinear.from_float([*linears, torch.nn.Linear(96, 48)])
    assert GroupedLinear.from_float([torch.nn.Linear(96, 40, bias=False)], format).bias is None


@every_format
def test_tokens_that_are_too_narrow_for_a_frozen_weight_are_not_filled_up(format):
    """The weight was filled up to a multiple of 16 or 32, so kernels would take them."""
    layers = {"linear": Linear(90, 40, format=format).freeze(), "grouped": GroupedLinear(1, 90, 40, format=format).freeze()}
    for name, layer in layers.items():
        more = () if name == "linear" else (torch.tensor([4], dtype=torch.int32),)
        with torch.no_grad():
            assert layer(normal(4, 90), *more).shape == (4, 40)
        for width in (89, 96):
            with pytest.raises(zoo.ArgumentError, match=rf"x: expected \(\.\.\., 90\), as its weight \((1, )?40, 90\), got \(4, {width}\)"):
                layer(normal(4, width), *more)


@every_format
def test_a_frozen_weight_has_fewer_bytes_and_nearly_the_numbers(format):
    torch.manual_seed(0)
    layer = Linear(256, 128, format=format, dtype=torch.bfloat16)
    weight = layer.weight.detach().float()
    layer.freeze()
    held = sum(getattr(layer, name).nbytes for name in ("elements", "scales"))
    eight = FORMATS[format].weights in ("fp8b128", "mxfp8")
    assert held < (0.55 if eight else 0.3) * 2 * weight.numel()
    assert (layer.dequantize(torch.float32) - weight).norm() / weight.norm() < (0.03 if eight else 0.13)
    assert not layer.bias.requires_grad and layer.freeze() is layer


class ConstantWeights(TorchDispatchMode):
    """Whether each dense product was told that its weight is a constant."""

    def __init__(self):
        super().__init__()
        self.told = []

    def __torch_dispatch__(self, function, types, given=(), named=None):
        if re.search(r"gemm_\w+_dense", str(function)):
            self.told.append((named or {}).get("b_constant", "no"))
        return function(*given, **(named or {}))


@pytest.mark.parametrize("format", ["fp8b128", "nvfp4"])
def test_a_weight_that_is_cast_in_the_stream_is_not_read_ahead_of_its_cast(format):
    layer, x = Linear(64, 32, format=format, dtype=torch.bfloat16), normal(8, 64, dtype=torch.bfloat16).requires_grad_()
    with ConstantWeights() as constant:
        layer(x).sum().backward()
        assert constant.told == ["no", "no"]
        layer.freeze()(x).sum().backward()
    assert constant.told[2:] == ["yes", "no"]  # the gradient multiplies by the transpose, which is made in the stream


def test_a_weight_that_each_product_packs_is_not_read_ahead_of_that():
    a, b = (zt.quantize(normal(32, 64, dtype=torch.bfloat16), format) for format in ("mxfp8", "mxfp4"))
    with ConstantWeights() as constant:
        zt.matmul(a, b.t(), b_constant="yes")
    assert constant.told == ["no"]


def test_a_format_that_a_gpu_lacks_is_refused_with_those_it_has(monkeypatch):
    assert on_gpu((9, 0)) == ("fp8b128", "fp8_nvfp4", "fp8_mxfp4", "bf16_nvfp4", "bf16_mxfp4")
    assert on_gpu((10, 0)) == ("fp8b128", "mxfp8", "nvfp4", "mxfp4", "mxfp8_mxfp4")
    assert on_gpu((8, 0)) == ()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "H200")
    with pytest.raises(zoo.ArchitectureError, match="format 'mxfp8': H200 has no product for it; it has fp8b128, fp8_nvfp4"):
        check_device("mxfp8", torch.device("cuda"))


def test_a_format_that_is_none_is_refused_before_memory_is_taken():
    with pytest.raises(zoo.ArgumentError, match="no format 'fp8' of layers"):
        Linear(96, 40, format="fp8")


def test_layers_are_imported_when_they_are_asked_for():
    assert zt.nn.Linear is Linear and "nn" in dir(zt) and "quantize_" in dir(zt)
    with pytest.raises(AttributeError, match="no attribute 'nm'"):
        zt.nm  # noqa: B018


@pytest.mark.parametrize("bias", [[0.0] * 64, torch.zeros(3), torch.zeros(64, dtype=torch.int32)], ids=["list", "short", "integers"])
def test_a_bias_that_does_not_fit_a_quantised_weight_is_refused(bias):
    with pytest.raises(ArgumentError, match="expected a bias"):
        Linear.from_quantized(zt.quantize(torch.randn(64, 128), "fp8b128", direction="squares"), bias)
