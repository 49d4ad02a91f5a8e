"""A layer of experts in float64, and how far roundings of its operands move it.

Each number of an operand is off by a relative error that the operand's quantiser makes. Errors of different numbers are independent, so their
squares add, weighted by the squares of the derivatives. `MARGIN` is room for a sum of few numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

MARGIN = 1.25
BF16 = 2.0**-8 / 7**0.5  # root mean square of a rounding to bf16, relative
FP4_AS_FP8 = 0.021  # of an NVFP4 weight's product with its scale, in e4m3: docs/four_bit_weights.md


@dataclass(frozen=True)
class Problem:
    x: torch.Tensor  # (T, K)
    ids: torch.Tensor  # (T, top_k), different ones for each token
    weights: torch.Tensor
    gate: torch.Tensor  # (E, I, K)
    up: torch.Tensor
    down: torch.Tensor  # (E, K, I)
    gate_bias: torch.Tensor | None = None
    up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None
    activation: str = "silu"
    limit: float | None = None

    def gate_up(self, gates: str) -> torch.Tensor:
        return joined(self.gate, self.up, gates)

    def biases(self, gates: str) -> dict[str, torch.Tensor]:
        if self.down_bias is None:
            return {}
        return {"gate_up_bias": joined(self.gate_bias, self.up_bias, gates), "down_bias": self.down_bias}

    def with_numbers(self, gate_up: torch.Tensor, down: torch.Tensor, gates: str) -> Problem:
        gate, up = parted(gate_up, gates)
        return replace(self, gate=gate, up=up, down=down)


def joined(gate: torch.Tensor, up: torch.Tensor, gates: str) -> torch.Tensor:
    return torch.stack((gate, up), 1 if gates == "halves" else 2).flatten(1, 2)


def parted(rows: torch.Tensor, gates: str) -> tuple[torch.Tensor, torch.Tensor]:
    return rows.unflatten(1, (2, -1) if gates == "halves" else (-1, 2)).unbind(1 if gates == "halves" else 2)


def problem(
    tokens: int = 20, experts: int = 4, hidden: int = 128, intermediate: int = 128, top_k: int = 2, seed: int = 0, **model
) -> Problem:
    """Expert 1 has no token, some choices are dropped."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random)

    ids = torch.rand((tokens, experts - 1), generator=random).argsort(1)[:, :top_k]
    ids += ids >= 1
    ids[:5, 0] = -1
    gate, up = (normal(experts, intermediate, hidden) / hidden**0.5 for _ in range(2))
    down = normal(experts, hidden, intermediate) / intermediate**0.5
    biases = {}
    if model.get("activation", "silu") == "gpt_oss":
        sizes = {"gate_bias": intermediate, "up_bias": intermediate, "down_bias": hidden}
        biases = {name: normal(experts, size) / 2 for name, size in sizes.items()}
    weights = torch.rand((tokens, top_k), generator=random) + 0.1
    return Problem(normal(tokens, hidden).bfloat16(), ids, weights, gate, up, down, **biases, **model)


def in_float64(p: Problem) -> torch.Tensor:
    return _layer(p)[0]


def deviation(p: Problem, token: float, h: float, weight: float = 0.0) -> float:
    """The norm of the result's error, by the relative errors of the numbers of x, of h and of the weights."""
    return float(_layer(p, (token, h, weight))[1].sum() ** 0.5)


def _layer(p: Problem, errors: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> tuple[torch.Tensor, torch.Tensor]:
    """The result and the variance of each of its numbers. Every expert multiplies every token."""
    token, h_error, weight = errors
    gate, up, down, x = (one.double() for one in (p.gate, p.up, p.down, p.x))
    g, u = (x @ one.mT for one in (gate, up))  # (E, T, I)
    if p.gate_bias is not None:
        g, u = g + p.gate_bias.double()[:, None], u + p.up_bias.double()[:, None]
    kept_g, kept_u = torch.ones_like(g), torch.ones_like(u)
    if p.limit is not None:
        kept_g, kept_u = (g <= p.limit).double(), (u.abs() <= p.limit).double()
        g, u = g.clamp(max=p.limit), u.clamp(-p.limit, p.limit)
    slope, added = (1.702, 1) if p.activation == "gpt_oss" else (1, 0)
    sigmoid = torch.sigmoid(slope * g)
    h = g * sigmoid * (u + added)
    d = h @ down.mT if p.down_bias is None else h @ down.mT + p.down_bias.double()[:, None]
    kept = p.ids >= 0
    shares, chosen = torch.where(kept, p.weights.double(), 0)[..., None], (p.ids.clamp(min=0), torch.arange(len(x))[:, None])
    y = (shares * d[chosen]).sum(1)
    if not any(errors):
        return y, torch.zeros_like(y)
    by_g, by_u = kept_g * sigmoid * (1 + slope * g * (1 - sigmoid)) * (u + added), kept_u * g * sigmoid
    of_sums = token**2 + weight**2
    of_h = (by_g**2 * (x**2 @ (gate**2).mT) + by_u**2 * (x**2 @ (up**2).mT)) * of_sums + h**2 * (h_error**2 + weight**2)
    of_d = of_h @ (down**2).mT + d**2 * BF16**2
    return y, (shares**2 * of_d[chosen]).sum(1) + y**2 * BF16**2


def mutants(p: Problem) -> dict[str, Problem]:
    """Layers with one mistake each."""
    found = {
        "gates and ups swapped": replace(p, gate=p.up, up=p.gate),
        "routing weights left out": replace(p, weights=torch.ones_like(p.weights)),
        "routing weights of the other choice": replace(p, weights=p.weights.flip(1)),
        "the next expert": replace(p, ids=torch.where(p.ids < 0, -1, (p.ids + 1) % len(p.gate))),
        "second matrices of the next expert": replace(p, down=p.down.roll(1, 0)),
        "dropped choices kept": replace(p, ids=p.ids.clamp(min=0)),
        "rows of the next token": replace(p, x=p.x.roll(1, 0)),
    }
    if p.gate_bias is not None:
        found["first bias left out"] = replace(p, gate_bias=0 * p.gate_bias, up_bias=0 * p.up_bias)
        found["second bias left out"] = replace(p, down_bias=0 * p.down_bias)
        found["biases of gates and ups swapped"] = replace(p, gate_bias=p.up_bias, up_bias=p.gate_bias)
    if p.limit is not None:
        found["no limit"] = replace(p, limit=None)
    if p.activation == "gpt_oss":
        found["silu"] = replace(p, activation="silu")
    return found
