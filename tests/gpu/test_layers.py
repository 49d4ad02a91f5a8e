"""Layers of zoo.torch.nn on a GPU beside the same layers on the CPU, which computes by the written rule.

A sum in another order differs in its last bit, which moves a rounding to bf16 or e4m3 now and then. `NEAR` bounds the norm of all that.
"""

import copy

import pytest

torch = pytest.importorskip("torch")

from tests.torch.nn.expert_layers import problem  # noqa: E402
from zoo.torch.nn import Experts, GroupedLinear, Linear  # noqa: E402
from zoo.torch.nn.formats import on_gpu as formats_on  # noqa: E402

pytestmark = pytest.mark.gpu
NEAR = 2.0**-8
MODELS = [{}, {"activation": "gpt_oss", "limit": 7.0}]


def near(found, wanted):
    assert found.isfinite().all()
    assert (found.cpu().double() - wanted.double()).norm() <= NEAR * wanted.double().norm()


def on_gpu(layer):
    return copy.deepcopy(layer).cuda()


def served(p, format, model):
    if format == "fp8b128" and model:
        pytest.skip("fp8b128 serves silu")
    return Experts.from_float(p.gate_up("halves"), p.down, format, True, **p.biases("halves"), activation=p.activation, limit=p.limit)


def gradients(layer, device, *inputs):
    given = [one.detach().to(device).requires_grad_(one.is_floating_point()) for one in inputs]
    y = layer(*given)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(5)).to(device, y.dtype)
    wanted = [one for one in (*given, *layer.parameters()) if one.requires_grad]
    return [y.detach(), *torch.autograd.grad(y, wanted, dy)]


@pytest.mark.parametrize("model", MODELS, ids=["silu", "gpt_oss"])
@pytest.mark.parametrize("tokens", [1, 7, 300])
@pytest.mark.parametrize("format", ["fp8b128", "fp8_mxfp4", "fp8_nvfp4", "bf16_mxfp4", "bf16_nvfp4"])
def test_frozen_experts_give_other_numbers_than_the_cpu(format, tokens, model):
    if format not in formats_on(torch.cuda.get_device_capability()):
        pytest.skip(f"this GPU does not multiply {format}")
    p = problem(tokens=tokens, experts=8, hidden=512, intermediate=384, top_k=3, **model)
    layer = served(p, format, model)
    with torch.no_grad():
        near(on_gpu(layer)(p.x.cuda(), p.ids.cuda(), p.weights.cuda()), layer(p.x, p.ids, p.weights))


@pytest.mark.parametrize("model", MODELS, ids=["silu", "gpt_oss"])
@pytest.mark.parametrize("gates", ["halves", "interleaved"])
def test_gradients_of_experts_differ_from_the_cpu(gates, model):
    p = problem(tokens=300, experts=8, hidden=512, intermediate=384, top_k=3, **model)
    layer = Experts.from_float(p.gate_up(gates), p.down, gates=gates, **p.biases(gates), activation=p.activation, limit=p.limit)
    for found, wanted in zip(
        gradients(on_gpu(layer), "cuda", p.x, p.ids, p.weights), gradients(layer, "cpu", p.x, p.ids, p.weights), strict=True
    ):
        near(found, wanted)


@pytest.mark.parametrize("rows", [1, 130, 512])
def test_gradients_of_linear_layers_differ_from_the_cpu(rows):
    torch.manual_seed(3)
    x, offsets = torch.randn(rows, 384).bfloat16(), torch.tensor([rows // 3, rows // 3, rows], dtype=torch.int32)
    for layer, given in ((Linear(384, 256, dtype=torch.bfloat16), (x,)), (GroupedLinear(3, 384, 256, dtype=torch.bfloat16), (x, offsets))):
        for found, wanted in zip(gradients(on_gpu(layer), "cuda", *given), gradients(layer, "cpu", *given), strict=True):
            near(found, wanted)


def test_a_step_captured_in_a_graph_gives_other_bits():
    p = problem(tokens=256, experts=8, hidden=512, intermediate=384, top_k=2)
    layer = on_gpu(Experts.from_float(p.gate_up("halves"), p.down))
    given = [p.x.cuda(), p.ids.cuda(), p.weights.cuda()]
    wanted = gradients(layer, "cuda", *given)
    x, weights = given[0].clone().requires_grad_(), given[2].clone().requires_grad_()
    dy = torch.randn(x.shape, generator=torch.Generator().manual_seed(5)).to(x)
    stream = torch.cuda.Stream()

    def step():
        y = layer(x, given[1], weights)
        return [y.detach(), *torch.autograd.grad(y, (x, weights, *layer.parameters()), dy)]

    with torch.cuda.stream(stream):
        step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    for one in found:
        one.fill_(float("nan"))
    graph.replay()
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_a_step_waits_for_the_gpu():
    p = problem(tokens=773, experts=8, hidden=512, intermediate=384, top_k=2)
    layer = on_gpu(Experts.from_float(p.gate_up("halves"), p.down))
    given = [p.x.cuda().requires_grad_(), p.ids.cuda(), p.weights.cuda().requires_grad_()]
    wanted = (given[0], given[2], *layer.parameters())
    dy = torch.randn_like(given[0])
    torch.autograd.grad(layer(*given), wanted, dy)  # loads
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.autograd.grad(layer(*given), wanted, dy)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_compiled_layers_give_other_numbers():
    p = problem(tokens=256, experts=8, hidden=512, intermediate=384, top_k=2)
    layer = on_gpu(Experts.from_float(p.gate_up("halves"), p.down))
    given = [p.x.cuda(), p.ids.cuda(), p.weights.cuda()]
    wanted = gradients(layer, "cuda", *given)
    for one, other in zip(gradients(torch.compile(layer, fullgraph=True), "cuda", *given), wanted, strict=True):
        near(one, other.cpu())  # the compiler adds up and rounds elsewhere
