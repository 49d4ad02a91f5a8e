"""Training steps that a CUDA graph replays: calls outside of the graph see what it has written."""

import copy

import pytest

torch = pytest.importorskip("torch")

from zoo.torch.nn import Experts, Linear  # noqa: E402

pytestmark = pytest.mark.gpu


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.experts = Linear(256, 256), Experts(4, 256, 128)

    def forward(self, x):
        ids = torch.stack((torch.arange(len(x), device=x.device) % 4, torch.arange(1, len(x) + 1, device=x.device) % 4), 1)
        return self.experts(self.linear(x), ids, torch.full(ids.shape, 0.5, device=x.device))


def test_a_call_after_replayed_steps_reads_old_weights():
    torch.manual_seed(0)
    model, x = Model().cuda(), torch.randn(128, 256, device="cuda", dtype=torch.bfloat16)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True, capturable=True)

    def step():
        optimiser.zero_grad(set_to_none=True)
        model(x).float().square().mean().backward()
        optimiser.step()

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    stream.synchronize()
    with torch.no_grad():
        before = model(x)  # keeps casts
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(3):
        graph.replay()
        with torch.no_grad():
            found, wanted = model(x), copy.deepcopy(model)(x)  # a copy casts for itself
        assert torch.equal(found, wanted) and not torch.equal(found, before)
        before = found
