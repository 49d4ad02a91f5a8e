"""An MoE layer trained forward and backward in FP8, beside the same layer in float32.

    pip install . torch
    python examples/moe_training.py

`zoo.torch.nn.Experts` keeps master weights in float32, quantises them once a step, and has gradients for tokens, weights and routing weights.
A CPU computes the kernels' written rule.
"""

import torch

import zoo.torch as zt

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
T, EXPERTS, TOP, K, GATES = 96, 4, 2, 128, 128  # tokens, experts, experts of a token, width of the model, gates of an expert


class InFloat32(torch.nn.Module):
    """Every expert on every token."""

    def __init__(self, gate_up, down):
        super().__init__()
        self.gate_up, self.down = torch.nn.Parameter(gate_up.clone()), torch.nn.Parameter(down.clone())

    def forward(self, x, ids, weights):
        gate, up = torch.einsum("tk,enk->ten", x.float(), self.gate_up).chunk(2, dim=2)
        every = torch.einsum("tei,eki->tek", torch.nn.functional.silu(gate) * up, self.down)
        return (every.gather(1, ids[..., None].expand(-1, -1, K)) * weights[..., None]).sum(1)


def layer(experts, x, router):
    logits, ids = (x.float() @ router.t()).topk(TOP, sorted=False)
    return experts(x, ids, logits.softmax(1))


def main():
    random, losses = torch.Generator().manual_seed(0), {}
    shapes = (EXPERTS, K), (EXPERTS, 2 * GATES, K), (EXPERTS, K, GATES)  # router, gates and ups, second matrices
    teacher, start = ([torch.randn(one, generator=random).to(DEVICE) / one[-1] ** 0.5 for one in shapes] for _ in range(2))
    x = torch.randn(T, K, generator=random).to(DEVICE, torch.bfloat16)
    with torch.no_grad():
        wanted = layer(InFloat32(*teacher[1:]), x, teacher[0])
    print(f"on {DEVICE}: loss before each step, over the mean square of the output that the layer learns")
    for name, experts in (("FP8", zt.nn.Experts.from_float(*start[1:], "fp8b128")), ("float32", InFloat32(*start[1:]))):
        router, losses[name] = start[0].clone().requires_grad_(), []
        optimiser = torch.optim.Adam([router, *experts.parameters()], lr=3e-3)
        for _ in range(6):
            loss = (layer(experts, x, router) - wanted).square().mean() / wanted.square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses[name].append(loss.item())
        print(f"{name:8}", *(f"{one:.4f}" for one in losses[name]))
    return losses


if __name__ == "__main__":
    main()
