"""A small model of two mixture-of-experts layers learns as well in FP8 as in bf16.

The text: each of 32 letters follows the two before it with fixed probabilities. So the loss is known without sampling: what the
model's predictions for all 1024 pairs lack of the truth, in nats. Noise is how far apart bf16 runs are that differ in nothing but
their seed, which decides the initial weights and the text.
"""

import statistics

import pytest

torch = pytest.importorskip("torch")

from zoo.torch.nn import Experts, experts_training  # noqa: E402

LETTERS, WIDTH, EXPERTS, HIDDEN, BATCH = 32, 256, 8, 128, 512
STEPS, EVERY, SEEDS = 300, 50, 4


def probabilities(device):
    """Of each letter after each pair of letters."""
    return torch.softmax(2 * torch.randn(LETTERS**2, LETTERS, generator=torch.Generator().manual_seed(0)), 1).to(device)


class InTorch(torch.nn.Module):
    """Every token by every expert, in bf16."""

    def __init__(self, experts, width, hidden):
        super().__init__()
        self.gate_up = torch.nn.Parameter(torch.empty(experts, 2 * hidden, width))
        self.down = torch.nn.Parameter(torch.empty(experts, width, hidden))

    def forward(self, x, ids, weights):
        shares = x.new_zeros(len(x), len(self.down)).scatter(1, ids, weights.to(x.dtype))
        gate, up = torch.einsum("tk,enk->etn", x, self.gate_up.to(x.dtype)).chunk(2, dim=2)
        y = torch.einsum("etf,ekf->etk", torch.nn.functional.silu(gate) * up, self.down.to(x.dtype))
        return (y * shares.t()[..., None]).sum(0)


class Model(torch.nn.Module):
    def __init__(self, make, numbers):
        super().__init__()
        self.layers = torch.nn.ModuleList(make(EXPERTS, WIDTH, HIDDEN) for _ in range(2))
        self.routers = torch.nn.ParameterList(torch.empty(EXPERTS, WIDTH) for _ in self.layers)
        self.letters = torch.nn.Parameter(torch.empty(2, LETTERS, WIDTH // 2))
        self.head = torch.nn.Parameter(torch.empty(LETTERS, WIDTH))
        for name, one in self.named_parameters():
            with torch.no_grad():
                one.copy_(torch.randn(one.shape, generator=numbers) / (1 if name == "letters" else one.shape[-1] ** 0.5))

    def forward(self, pairs):
        x = torch.cat((self.letters[0][pairs // LETTERS], self.letters[1][pairs % LETTERS]), 1)
        for router, layer in zip(self.routers, self.layers, strict=True):
            normed = torch.nn.functional.rms_norm(x, (WIDTH,)).to(torch.bfloat16)
            shares, ids = torch.softmax(normed.float() @ router.t(), dim=1).topk(2)
            x = x + layer(normed, ids, shares / shares.sum(1, keepdim=True)).float()
        return torch.log_softmax(torch.nn.functional.rms_norm(x, (WIDTH,)) @ self.head.t(), 1)


def curve(make, seed, device):
    """What is lacking after 0, EVERY, 2 EVERY .. STEPS steps."""
    numbers = torch.Generator().manual_seed(seed)
    model = Model(make, numbers).to(device)
    truth, seen = probabilities(device), []
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    text = torch.Generator(device).manual_seed(seed)
    for step in range(STEPS + 1):
        if step % EVERY == 0:
            with torch.no_grad():
                lacking = (truth * (truth.log() - model(torch.arange(LETTERS**2, device=device)))).sum(1).mean()
            seen.append(lacking)
        pairs = torch.randint(LETTERS**2, (BATCH,), generator=text, device=device)
        following = torch.multinomial(truth[pairs], 1, generator=text)
        optimiser.zero_grad()
        (-model(pairs).gather(1, following).mean()).backward()
        optimiser.step()
    return [float(one) for one in seen]


@pytest.mark.gpu
def test_the_loss_in_fp8_is_within_the_noise_of_bf16(monkeypatch):
    in_bf16 = [curve(InTorch, seed, "cuda") for seed in range(SEEDS)]
    in_fp8 = [curve(Experts, seed, "cuda") for seed in range(SEEDS)]
    columns = experts_training._columns
    monkeypatch.setattr(experts_training, "_columns", lambda elements, scales, ends: columns(elements, scales.roll(1, 1), ends))
    with_a_mistake = curve(Experts, 0, "cuda")

    bf16, fp8_mean = ([statistics.mean(values) for values in zip(*curves, strict=True)] for curves in (in_bf16, in_fp8))
    noise = [max(values) - min(values) for values in zip(*in_bf16, strict=True)]
    for line in zip(range(0, STEPS + 1, EVERY), bf16, noise, fp8_mean, with_a_mistake, strict=True):
        print("after {} steps bf16 {:.4f}, noise {:.4f}, fp8 {:.4f}, with a mistake {:.4f}".format(*line))

    def within_noise(losses):
        return all(abs(loss - theirs) <= apart for loss, theirs, apart in zip(losses[1:], bf16[1:], noise[1:], strict=True))

    assert bf16[-1] < 0.3 * bf16[0], "it does not learn"
    assert within_noise(fp8_mean)
    assert not within_noise(with_a_mistake), "the noise hides mistakes"
