"""What only a GPU can do wrong to layers that train: streams, tensors that hooks move to the CPU and back, numbers that are not finite."""

import copy

import pytest

torch = pytest.importorskip("torch")

from tests.torch.nn.expert_layers import problem  # noqa: E402
from zoo.torch.nn import Experts, GroupedLinear, Linear  # noqa: E402

pytestmark = pytest.mark.gpu
MODELS = [{}, {"activation": "gpt_oss", "limit": 7.0}]


def experts(**model):
    p = problem(tokens=70, hidden=256, intermediate=128, top_k=2, **model)
    layer = Experts.from_float(p.gate_up("halves"), p.down, **p.biases("halves"), activation=p.activation, limit=p.limit)
    return layer.cuda(), p.x.cuda(), p.ids.cuda(), p.weights.cuda()


def gradients(layer, x, *more, dy=None):
    x = x.detach().clone().requires_grad_()
    y = layer(x, *more)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to("cuda", y.dtype) if dy is None else dy
    return torch.autograd.grad(y, (x, *layer.parameters()), dy)


def equal(some, others):
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def test_a_second_stream_reads_a_weight_that_the_first_has_yet_to_cast():
    torch.manual_seed(0)
    layer, x = Linear(1024, 1024, device="cuda"), torch.randn(256, 1024, device="cuda")
    with torch.no_grad():
        wanted = copy.deepcopy(layer)(x)
        torch.cuda.synchronize()
        first, second = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(first):
            torch.cuda._sleep(400_000_000)  # some 0.2 s, in front of the cast
            early = layer(x)
        with torch.cuda.stream(second):
            late = layer(x)
        torch.cuda.synchronize()
    assert torch.equal(early, wanted) and torch.equal(late, wanted)


@pytest.mark.parametrize("rows", [9, 64, 300])
def test_tensors_that_come_back_from_the_cpu_without_their_gaps(rows):
    torch.manual_seed(0)
    ends = torch.tensor([rows // 3, rows], dtype=torch.int32, device="cuda")
    layers = [(Linear(256, 128, device="cuda"), ()), (GroupedLinear(2, 256, 128, device="cuda"), (ends,))]
    x = torch.randn(rows, 256, device="cuda")
    for layer, more in layers:
        wanted = gradients(layer, x, *more)
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            assert equal(gradients(layer, x, *more), wanted)


@pytest.mark.parametrize("model", MODELS, ids=["silu", "gpt_oss"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_tokens_that_are_not_bf16_do_not_train(dtype, model):
    layer, x, ids, weights = experts(**model)
    dy = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).bfloat16().cuda()
    of_x, *wanted = gradients(layer, x, ids, weights, dy=dy)
    found_x, *found = gradients(layer, x.to(dtype), ids, weights, dy=dy.to(dtype))
    assert found_x.dtype == dtype and torch.equal(found_x.bfloat16(), of_x) and equal(found, wanted)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("model", MODELS, ids=["silu", "gpt_oss"])
def test_a_gradient_that_is_not_finite_reaches_other_tokens_or_experts(model, bad):
    layer, x, ids, weights = experts(**model)
    dy = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).bfloat16().cuda()
    of_x, *wanted = gradients(layer, x, ids, weights, dy=dy)
    dy[7, 3] = bad
    spoilt_x, *spoilt = gradients(layer, x, ids, weights, dy=dy)
    others = [token for token in range(70) if token != 7]
    untouched = [expert for expert in range(4) if expert not in ids[7].tolist()]
    assert torch.equal(spoilt_x[others], of_x[others])
    assert untouched and equal([one[untouched] for one in spoilt], [one[untouched] for one in wanted])


def test_a_weight_that_was_frozen_just_now_is_whole_when_it_is_read():
    torch.manual_seed(0)
    x = torch.randn(8, 8192, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        for _ in range(10):
            layer = Linear(8192, 8192, False, device="cuda", dtype=torch.bfloat16)
            wanted = layer(x)
            torch.cuda.synchronize()
            layer._kept.clear()
            assert torch.equal(layer.freeze()(x), wanted)
