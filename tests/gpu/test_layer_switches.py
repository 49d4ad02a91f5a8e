"""Switches of layers on a GPU: gradients that GEMMs add, casts that a CUDA graph reads, products in bf16, counts without waiting."""

import copy

import pytest

torch = pytest.importorskip("torch")

from tests.gpu.test_training_graphs import Model  # noqa: E402
from zoo.torch.nn import Experts, GroupedLinear, Linear, count_overflows  # noqa: E402

pytestmark = pytest.mark.gpu
WIDTH, ROWS = 512, 768


def linear(dtype):
    layer = Linear(WIDTH, 2 * WIDTH, False, device="cuda", dtype=dtype)
    return layer, lambda one, x: one(x)


def grouped(dtype):
    layer, ends = GroupedLinear(3, WIDTH, WIDTH, False, device="cuda", dtype=dtype), torch.tensor([300, 300, 700], device="cuda").int()
    return layer, lambda one, x: one(x, ends)


def experts(dtype):
    layer, random = Experts(4, WIDTH, 256, device="cuda", dtype=dtype), torch.Generator("cuda").manual_seed(1)
    ids = torch.rand((ROWS, 3), generator=random, device="cuda").argsort(1)[:, :2]  # expert 3 has no token
    weights = torch.rand((ROWS, 2), generator=random, device="cuda")
    return layer, lambda one, x: one(x, ids, weights)


KINDS = {"linear": linear, "grouped": grouped, "experts": experts}
every_kind = pytest.mark.parametrize("kind", KINDS)


def batch(seed):
    return torch.randn(ROWS, WIDTH, generator=torch.Generator("cuda").manual_seed(seed), device="cuda", dtype=torch.bfloat16)


def backward(layer, run, seed):
    run(layer, batch(seed)).float().square().mean().backward()


def gradients(layer):
    return [one.grad for one in layer.parameters()]


@every_kind
def test_gradients_that_gemms_add_are_those_of_autograd(kind):
    for dtype in (torch.float32, torch.bfloat16):
        layer, run = KINDS[kind](dtype)
        other = copy.deepcopy(layer)
        layer.add_gradients = True
        for seed in range(3):
            for one in (layer, other):
                backward(one, run, seed)
        for found, expected in zip(gradients(layer), gradients(other), strict=True):
            allowed = 2.0**-22 if dtype == torch.float32 else 2.0**-7
            assert (found.float() - expected.float()).norm() <= allowed * expected.float().norm() and expected.any()


@every_kind
def test_a_graph_reads_casts_that_follow_the_optimiser(kind):
    layer, run = KINDS[kind](torch.bfloat16)
    layer.hold_casts, other, x = True, copy.deepcopy(layer), batch(0)
    optimisers = [torch.optim.SGD(one.parameters(), lr=1.0) for one in (layer, other)]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        run(layer, x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        y = run(layer, x)
    seen = []
    for _ in range(2):
        graph.replay()
        with torch.no_grad():
            assert torch.equal(y, run(other, x))
        seen.append(y.clone())
        for one, optimiser in zip((layer, other), optimisers, strict=True):
            for parameter in one.parameters():
                parameter.grad = torch.full_like(parameter, 0.25)
            optimiser.step()
    assert not torch.equal(*seen)


def test_a_graph_that_steps_casts_into_held_memory():
    torch.manual_seed(0)
    model, x = Model().cuda(), batch(0)[:128, :256]
    for one in (model.linear, model.experts):
        one.hold_casts = one.add_gradients = True
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True, capturable=True)

    def step():
        for part in x.chunk(2):  # two micro-batches
            model(part).float().square().mean().backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=False)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    with torch.no_grad():
        before = model(x)
        for _ in range(3):
            graph.replay()
            found, wanted = model(x), copy.deepcopy(model)(x)  # a copy casts for itself
            assert torch.equal(found, wanted) and not torch.equal(found, before)
            before = found


@every_kind
def test_products_in_bf16_are_near_those_of_the_format(kind):
    layer, run = KINDS[kind](torch.float32)
    x, found = batch(0), []
    for on in (False, True):
        layer.in_bf16 = on
        layer.zero_grad()
        y = run(layer, x.clone().requires_grad_())
        y.float().square().mean().backward()
        found.append([y.detach().float(), *gradients(layer)])
    for fp8, bf16 in zip(*found, strict=True):
        assert bf16.isfinite().all() and 0.001 < (fp8 - bf16).norm() / bf16.norm() < 0.2


@every_kind
def test_counting_overflows_waits_for_no_device(kind):
    layer, run = KINDS[kind](torch.bfloat16)
    counts = count_overflows(layer)
    backward(layer, run, 0)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for factor in (1.0, torch.inf):
            (run(layer, batch(1)) * factor).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert counts.calls[""] == {"x": 0, "y": 0, "dy": 1} and counts.largest[""]["x"] > 3
