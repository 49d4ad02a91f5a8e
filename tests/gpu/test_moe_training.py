"""A small model of two mixture-of-experts layers learns as well in FP8 as in bf16.

The text: each of 32 letters follows the two before it with fixed probabilities. So the loss is known without sampling: what the
model's predictions for all 1024 pairs lack of the truth, in nats. Noise is how far apart bf16 runs are that differ in nothing but
their seed, which decides the initial weights and the text.
"""

import os
import statistics

import pytest

torch = pytest.importorskip("torch")

from tests.gpu import moe_layer  # noqa: E402
from tests.gpu.test_moe_layer import blocks_one_late, in_torch  # noqa: E402
from zoo.catalog import Zoo  # noqa: E402
from zoo.packaged import packaged  # noqa: E402

ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
LETTERS, WIDTH, EXPERTS, HIDDEN, BATCH = 32, 256, 8, 128, 512
STEPS, EVERY, SEEDS = 300, 50, 4


def probabilities(device):
    """Of each letter after each pair of letters."""
    return torch.softmax(2 * torch.randn(LETTERS**2, LETTERS, generator=torch.Generator().manual_seed(0)), 1).to(device)


class Model(torch.nn.Module):
    def __init__(self, layer, numbers):
        super().__init__()
        self.layer = layer

        def normal(*shape, over):
            return torch.nn.Parameter(torch.randn(*shape, generator=numbers) / over**0.5)

        self.letters = normal(2, LETTERS, WIDTH // 2, over=1)
        shapes = ((EXPERTS, WIDTH), (EXPERTS, 2 * HIDDEN, WIDTH), (EXPERTS, WIDTH, HIDDEN))
        layers = [torch.nn.ParameterList(normal(*shape, over=shape[-1]) for shape in shapes) for _ in range(2)]
        self.layers = torch.nn.ModuleList(layers)
        self.head = normal(LETTERS, WIDTH, over=WIDTH)

    def forward(self, pairs):
        x = torch.cat((self.letters[0][pairs // LETTERS], self.letters[1][pairs % LETTERS]), 1)
        for parameters in self.layers:
            normed = torch.nn.functional.rms_norm(x, (WIDTH,)).to(torch.bfloat16)
            x = x + self.layer(normed, *parameters, 2).float()
        return torch.log_softmax(torch.nn.functional.rms_norm(x, (WIDTH,)) @ self.head.t(), 1)


def curve(layer, seed, device):
    """What is lacking after 0, EVERY, 2 EVERY .. STEPS steps."""
    numbers = torch.Generator().manual_seed(seed)
    model = Model(layer, numbers).to(device)
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


def fp8(monkeypatch):
    monkeypatch.setattr(moe_layer, "launch", ZOO.launch)
    return moe_layer.moe


@pytest.mark.gpu
def test_the_loss_in_fp8_is_within_the_noise_of_bf16(monkeypatch):
    in_bf16 = [curve(in_torch, seed, "cuda") for seed in range(SEEDS)]
    in_fp8 = [curve(fp8(monkeypatch), seed, "cuda") for seed in range(SEEDS)]
    monkeypatch.setattr(moe_layer, "columns", blocks_one_late(moe_layer.columns))
    with_a_mistake = curve(fp8(monkeypatch), 0, "cuda")

    bf16, fp8_mean = ([statistics.mean(values) for values in zip(*curves, strict=True)] for curves in (in_bf16, in_fp8))
    noise = [max(values) - min(values) for values in zip(*in_bf16, strict=True)]
    for line in zip(range(0, STEPS + 1, EVERY), bf16, noise, fp8_mean, with_a_mistake, strict=True):
        print("after {} steps bf16 {:.4f}, noise {:.4f}, fp8 {:.4f}, with a mistake {:.4f}".format(*line))

    def within_noise(losses):
        return all(abs(loss - theirs) <= apart for loss, theirs, apart in zip(losses[1:], bf16[1:], noise[1:], strict=True))

    assert bf16[-1] < 0.3 * bf16[0], "it does not learn"
    assert within_noise(fp8_mean)
    assert not within_noise(with_a_mistake), "the noise hides mistakes"
