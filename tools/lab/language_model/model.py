"""The model: a decoder whose linear layers and experts are torch's in bf16, or zoo's in FP8. All parameters have equal names and are float32.

tokens -> embedding + position -> [RMSNorm, attention, add; RMSNorm, router, experts, add] x layers -> RMSNorm -> logits

Embedding, norms, router and logits are torch's in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from tools.lab.language_model.text import VOCABULARY

PRECISIONS = ("bf16", "fp8")


@dataclass(frozen=True)
class Sizes:
    layers: int = 6
    width: int = 1024
    heads: int = 8
    experts: int = 8
    top_k: int = 2
    inner: int = 1024  # gates of an expert
    window: int = 512  # bytes that a token can see


class Model(torch.nn.Module):
    def __init__(self, sizes: Sizes, precision: str):
        super().__init__()
        self.embedding = torch.nn.Parameter(torch.empty(VOCABULARY, sizes.width))
        self.position = torch.nn.Parameter(torch.empty(sizes.window, sizes.width))
        self.layers = torch.nn.ModuleList(_Layer(sizes, precision) for _ in range(sizes.layers))
        self.norm = torch.nn.RMSNorm(sizes.width)
        self.logits = torch.nn.Linear(sizes.width, VOCABULARY, bias=False)

    def forward(self, windows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss of predicting each next byte of windows (B, S + 1), and how unevenly the router loads the experts (1: evenly)."""
        letters = windows[:, :-1, None] == torch.arange(VOCABULARY, device=windows.device)
        x = letters.bfloat16() @ self.embedding + self.position  # a product, whose gradient has a fixed order and waits for nothing
        loads = []
        for layer in self.layers:
            x, load = layer(x)
            loads.append(load)
        logits = self.logits(self.norm(x)).float()
        return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()), torch.stack(loads).mean()

    @torch.no_grad()
    def begin(self, seed: int) -> None:
        """Equal numbers for equal seeds, whatever the precision."""
        device = self.position.device
        generator = torch.Generator(device).manual_seed(seed)
        for name, one in self.named_parameters():
            if one.dim() == 1:
                one.fill_(1)
            else:
                into_the_sum = name.endswith(("out.weight", "down.weight"))
                one.normal_(0, 0.02 / (2 * len(self.layers)) ** 0.5 if into_the_sum else 0.02, generator=generator)


class _Layer(torch.nn.Module):
    def __init__(self, sizes: Sizes, precision: str):
        super().__init__()
        linear, experts = _layers_of(precision)
        self.heads, self.top_k = sizes.heads, sizes.top_k
        self.before_attention, self.before_experts = torch.nn.RMSNorm(sizes.width), torch.nn.RMSNorm(sizes.width)
        self.qkv = linear(sizes.width, 3 * sizes.width, bias=False)
        self.out = linear(sizes.width, sizes.width, bias=False)
        self.router = torch.nn.Linear(sizes.width, sizes.experts, bias=False)
        self.experts = experts(sizes.experts, sizes.width, sizes.inner)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = self.qkv(self.before_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        rows = self.before_experts(x).flatten(0, 1)
        with torch.autocast(x.device.type, enabled=False):
            shares = self.router(rows.float()).softmax(1)
        ids = shares.detach().topk(self.top_k).indices
        chosen = (ids[..., None] == torch.arange(shares.shape[1], device=ids.device)).float()  # (T, top_k, E)
        weights = (shares[:, None] * chosen).sum(2)
        x = x + self.experts(rows, ids, weights / weights.sum(1, keepdim=True)).view(x.shape)
        load = shares.shape[1] * (chosen.mean((0, 1)) * shares.mean(0)).sum()
        return x, load


class _Weights(torch.nn.Module):
    def __init__(self, *shape: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(shape))


class Bf16Experts(torch.nn.Module):
    """The layer of zoo.torch.nn.Experts by torch's grouped product. Nothing waits for the host, and all sums have a fixed order."""

    def __init__(self, experts: int, hidden: int, intermediate: int):
        super().__init__()
        self.gate_up, self.down = _Weights(experts, 2 * intermediate, hidden), _Weights(experts, hidden, intermediate)

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        (tokens, top_k), experts = ids.shape, self.down.weight.shape[0]
        order = ids.flatten().argsort(stable=True)
        inverse = order.argsort()
        ends = (ids.flatten() == torch.arange(experts, device=x.device)[:, None]).sum(1).cumsum(0).int()
        rows = _Rows.apply(x.bfloat16(), order, inverse, top_k)
        gate, up = torch._grouped_mm(rows, self.gate_up.weight.bfloat16().mT, offs=ends).chunk(2, dim=1)
        d = torch._grouped_mm(functional.silu(gate) * up, self.down.weight.bfloat16().mT, offs=ends)
        by_token = _Rows.apply(d, inverse, order, 1).view(tokens, top_k, -1)
        return (by_token * weights[..., None].bfloat16()).sum(1)


class _Rows(torch.autograd.Function):
    """x[order // times]. The gradient gathers too, where torch's own would add atomically."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, order: torch.Tensor, inverse: torch.Tensor, times: int) -> torch.Tensor:
        ctx.save_for_backward(inverse)
        ctx.times = times
        return x[order // times]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (inverse,) = ctx.saved_tensors
        dx = gradients[0][inverse]
        return dx if ctx.times == 1 else dx.unflatten(0, (-1, ctx.times)).sum(1), None, None, None


def _layers_of(precision: str) -> tuple[Any, Any]:
    if precision == "bf16":
        return torch.nn.Linear, Bf16Experts
    import zoo.torch

    return zoo.torch.nn.Linear, zoo.torch.nn.Experts
