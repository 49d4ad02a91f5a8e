"""Experts as checkpoints have them, and what a layer of them computes in float32."""

import torch

from tests.clients.weights import quantised

EXPERTS, TOP, HIDDEN, INTERMEDIATE = 4, 2, 256, 128


def weights_of(format, hidden=HIDDEN, intermediate=INTERMEDIATE):
    """Tensors of each expert by name, and the numbers of gates, ups and second matrices."""
    torch.manual_seed(3)
    shapes = {"gate_proj": (intermediate, hidden), "up_proj": (intermediate, hidden), "down_proj": (hidden, intermediate)}
    made = [
        {name: quantised(torch.randn(shape, dtype=torch.float32) / 12, format) for name, shape in shapes.items()} for _ in range(EXPERTS)
    ]
    return made, {name: torch.stack([one[name][1] for one in made]) for name in shapes}


def interleaved(made, name):
    """A tensor of all experts, in which each gate precedes its up, as in gpt-oss."""
    return torch.stack([torch.stack([one[part][0][name] for one in made]) for part in ("gate_proj", "up_proj")], dim=2).flatten(1, 2)


def routed(tokens=9, hidden=HIDDEN):
    x = torch.randn(tokens, hidden, dtype=torch.bfloat16)
    weights, ids = torch.randn(tokens, EXPERTS, dtype=torch.float32).softmax(1).topk(TOP)
    return x, weights, ids.to(torch.int32)


def in_float32(numbers, x, weights, ids, act, biases=None):
    """Ids of -1 add nothing."""
    biases = biases or {name: torch.zeros(one.shape[:2], dtype=torch.float32) for name, one in numbers.items()}
    total = torch.zeros(x.shape, dtype=torch.float32)
    for j in range(TOP):
        e, shares = ids[:, j].long().clamp(min=0), torch.where(ids[:, j] < 0, 0, weights[:, j])
        gate, up = (torch.einsum("tk,tnk->tn", x.float(), numbers[name][e]) + biases[name][e].float() for name in ("gate_proj", "up_proj"))
        total += shares[:, None] * (torch.einsum("ti,tki->tk", act(gate, up), numbers["down_proj"][e]) + biases["down_proj"][e].float())
    return total


def silu(gate, up):
    return torch.nn.functional.silu(gate) * up


def clamped(limit):
    return lambda gate, up: silu(gate.clamp(max=limit), up.clamp(-limit, limit))


def gpt_oss(gate, up):
    gate, up = gate.clamp(max=7), up.clamp(-7, 7)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)
