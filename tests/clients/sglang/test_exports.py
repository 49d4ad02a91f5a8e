"""What SGLang sends or saves of layers that zoo serves: nothing, since another instance would read packed weights as its own."""

import contextlib
import types

import pytest

pytest.importorskip("sglang", reason="SGLang is not installed")
import torch

from tests.clients.experts import weights_of
from tests.clients.sglang.test_experts import layer_of, runner  # noqa: F401
from tests.clients.sglang.test_experts import load as load_experts
from tests.clients.sglang.test_linear_layers import config_of, fresh, load  # noqa: F401
from tests.clients.weights import error, quantised

SEED = "zoo has packed weights of this instance.*ZOO_SGLANG=0"


def linear(weights="nvfp4", rows=128):
    from sglang.srt.layers.linear import ReplicatedLinear

    layer = ReplicatedLinear(128, rows, bias=False, quant_config=config_of(weights), prefix="proj")
    tensors, numbers = quantised(torch.randn(rows, 128, dtype=torch.float32) / 12, weights)
    load(layer, tensors)
    return layer, numbers


def exporter(model):
    from sglang.srt.model_executor.model_runner_components.weight_exporter import WeightExporter

    return WeightExporter(tp_rank=0, tp_size=1, gpu_id=0, get_model_path=str, get_model=lambda: model)


@pytest.mark.parametrize("weights", ["fp8b128", "nvfp4"])
def test_a_seed_instance_with_packed_linear_layers_sends_and_saves_nothing(weights, gpu, bf16, tmp_path):
    one = exporter(torch.nn.Sequential(torch.nn.Linear(2, 2), linear(weights)[0]))
    for answer in (
        one.init_weights_send_group_for_remote_instance("127.0.0.1", "1", 0, 2, "group"),
        one.send_weights_to_remote_instance("127.0.0.1", "1", "group"),
    ):
        assert answer[0] is False and "ZOO_SGLANG=0" in answer[1]
    for save in (one.save_sharded_model, one.save_remote_model):
        with pytest.raises(RuntimeError, match=SEED):
            save(str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("weights", ["fp8b128", "nvfp4"])
def test_a_seed_instance_with_packed_experts_sends_nothing(weights, runner):  # noqa: F811
    layer = layer_of(weights, runner)
    load_experts(layer, weights_of(weights)[0])
    sent, why = exporter(torch.nn.Sequential(layer)).init_weights_send_group_for_remote_instance("127.0.0.1", "1", 0, 2, "group")
    assert sent is False and "ZOO_SGLANG=0" in why


def test_an_sglang_that_asks_nothing_before_it_sends_keeps_all_its_layers(gpu, fresh, monkeypatch, caplog):  # noqa: F811
    from sglang.srt.model_executor.model_runner_components.weight_exporter import WeightExporter

    import zoo.sglang

    monkeypatch.delattr(WeightExporter, "_weight_export_unsupported_reason")
    zoo.sglang.register()
    said = [one.getMessage() for one in caplog.records]
    assert not fresh and not zoo.sglang._registered
    assert len(said) == 2 and all("_weight_export_unsupported_reason" in one and "SGLang's own kernels are used" in one for one in said)


@pytest.mark.parametrize("served", [True, False])
def test_the_transfer_engine_publishes_only_what_zoo_has_not_packed(served, gpu, bf16, caplog, monkeypatch):
    from sglang.srt.model_executor.model_runner_components import remote_instance_weight_transporter as module
    from sglang.srt.runtime_context import get_parallel

    published = []
    model = torch.nn.Sequential(linear()[0] if served else torch.nn.Linear(2, 2))
    monkeypatch.setattr(module, "remote_instance_transfer_engine_enabled", lambda: True)
    monkeypatch.setattr(module, "register_memory_region", lambda model, engine: published.append(engine) or {})
    monkeypatch.setattr(module.RemoteInstanceWeightTransporter, "_register_to_engine_info_bootstrap", lambda self: published.append("info"))
    with get_parallel().override(tp_rank=0):
        one = module.RemoteInstanceWeightTransporter(get_model=lambda: model, gpu_id=0, engine="engine")
    one.maybe_register_and_publish_weight_info()
    assert published == ([] if served else ["engine", "info"]) and (one.weight_info is None) == served
    assert ("publishes no weights" in caplog.text) == served


def test_an_instance_that_receives_weights_keeps_sglangs_method_and_multiplies_what_it_received(gpu, bf16, monkeypatch):
    """SGLang calls no process_weights_after_loading then, so zoo has nothing to pack."""
    from sglang.srt.configs.load_config import LoadConfig, LoadFormat
    from sglang.srt.layers.linear import ReplicatedLinear
    from sglang.srt.layers.quantization import fp8
    from sglang.srt.model_loader import loader
    from sglang.srt.runtime_context import get_model

    tensors, numbers = quantised(torch.randn(128, 128, dtype=torch.float32) / 12, "fp8b128")

    def received(self, model, client, *more):
        for name, parameter in model.named_parameters():
            parameter.data.copy_(tensors[name.rpartition(".")[2]])

    @contextlib.contextmanager
    def connector(*_):
        yield types.SimpleNamespace()

    monkeypatch.setattr(loader, "create_remote_connector", connector)
    monkeypatch.setattr(loader, "get_connector_type", lambda client: loader.ConnectorType.INSTANCE)
    monkeypatch.setattr(loader.RemoteInstanceModelLoader, "load_model_from_remote_instance_by_nccl", received)
    monkeypatch.setattr(loader, "_get_quantization_config", lambda *_: config_of("fp8b128"))
    made = lambda config, load, quant: torch.nn.Sequential(ReplicatedLinear(128, 128, bias=False, quant_config=quant, prefix="proj"))  # noqa: E731
    monkeypatch.setattr(loader, "_initialize_model", made)
    settings = {
        "remote_instance_weight_loader_backend": "nccl",
        "remote_instance_weight_loader_seed_instance_ip": "127.0.0.1",
        "remote_instance_weight_loader_send_weights_group_ports": [1],
        "tp_rank": 0,
    }
    with get_model().override(load_format="remote_instance"):
        one = loader.RemoteInstanceModelLoader(LoadConfig(load_format=LoadFormat.REMOTE_INSTANCE, **settings))
        model = one.load_model(
            model_config=types.SimpleNamespace(dtype=torch.bfloat16), device_config=types.SimpleNamespace(device="cpu", gpu_id=0)
        )
    (layer,) = model
    given = []
    monkeypatch.setattr(layer.quant_method, "w8a8_block_fp8_linear", lambda **named: given.append(named) or named["input"])
    x = torch.randn(3, 128, dtype=torch.bfloat16)
    layer(x)
    assert fp8.Fp8LinearMethod is type(layer.quant_method) and not hasattr(layer, "zoo_about") and torch.equal(given[0]["input"], x)
    assert error(given[0]["weight"].float() * given[0]["weight_scale"].repeat_interleave(128, 0).repeat_interleave(128, 1), numbers) == 0
