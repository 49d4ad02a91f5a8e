"""Steps of training, zoo's and torch's: forward and backward, all gradients, on weights that both share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zoo.benchmark.layer_models import Model


def with_gradients(torch: Any, forward: Callable[[Any], Any], x: Any, others: Sequence[Any], dy: Any) -> tuple[Any, ...]:
    """The output and all gradients. The output keeps no graph alive, which a capture on another stream would meet."""
    y = forward(x)
    return y.detach(), *torch.autograd.grad(y, (x, *others), dy)


class Trained:
    """One case of training: weights that zoo and torch share, tokens, their experts and the gradient of the output."""

    names = ("y", "dx", "d_weights", "d_gate_up", "d_down")

    def __init__(self, torch: Any, model: Model, count: int, distribution: str, device: str, format: str = "fp8b128"):
        from zoo.torch.nn import Experts

        E, K, inner = model.experts, model.hidden, model.inner

        def normal(*shape: int, over: int = 1) -> Any:
            return torch.empty(shape, device=device, dtype=torch.bfloat16).normal_(std=over**-0.5)

        self.torch = torch
        gate_up, down = normal(E, 2 * inner, K, over=K), normal(E, K, inner, over=inner)
        self.beside = (gate_up.requires_grad_(), down.requires_grad_())
        # zoo's fastest path has whole blocks of gates and of ups, or pairs
        self.pairs = inner % 128 != 0
        self.layer = Experts.from_float(self.as_ours(gate_up), down, format, gates="interleaved" if self.pairs else "halves")
        self.parameters = (self.layer.gate_up.weight, self.layer.down.weight)
        self.x, self.dy = normal(count, K).requires_grad_(), normal(count, K)
        found = router_scores(torch, count, E, distribution, device).topk(model.top_k)
        self.ids, self.weights = found.indices, found.values.softmax(1).requires_grad_()

    def as_ours(self, gate_up: Any) -> Any:
        """Rows of gates and ups, or their gradients, in zoo's order."""
        return gate_up.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2) if self.pairs else gate_up

    def zoo(self) -> tuple[Any, ...]:
        return self._run(lambda x: self.layer(x, self.ids, self.weights), self.parameters)

    def zoo_casting(self) -> tuple[Any, ...]:
        self.changed()
        return self.zoo()

    def changed(self) -> None:
        """As an optimiser would: the weights are cast again."""
        for one in self.parameters:
            self.torch.autograd.graph.increment_version(one)

    def rival(self, experts: Callable[..., Any]) -> tuple[Any, ...]:
        return self._run(lambda x: experts(x, self.ids, self.weights, *self.beside), self.beside)

    def _run(self, forward: Callable[[Any], Any], parameters: Sequence[Any]) -> tuple[Any, ...]:
        return with_gradients(self.torch, forward, self.x, (self.weights, *parameters), self.dy)

    def errors(self, found: Sequence[Any], expected: Sequence[Any]) -> dict[str, float]:
        y, dx, d_weights, d_gate_up, d_down = expected
        return errors(self.names, found, (y, dx, d_weights, self.as_ours(d_gate_up), d_down))

    def exact(self, rows: Any) -> Any:
        """These rows of y in f32."""
        torch, (gate_up, down) = self.torch, self.beside
        y = torch.zeros(len(rows), down.shape[1], device=rows.device)
        with torch.no_grad():
            for expert in self.ids[rows].unique().tolist():
                mine, choice = (self.ids[rows] == expert).nonzero(as_tuple=True)
                gate, up = (self.x[rows[mine]].float() @ gate_up[expert].float().t()).chunk(2, 1)
                part = torch.nn.functional.silu(gate) * up @ down[expert].float().t()
                y.index_add_(0, mine, part * self.weights[rows[mine], choice][:, None])
        return y


def router_scores(torch: Any, count: int, experts: int, distribution: str, device: str) -> Any:
    """Gumbel noise, whose largest are a draw without repetition: every expert as likely, or as 1 / rank."""
    noise = -(-torch.rand(count, experts, device=device).clamp(min=1e-20).log()).log()
    return noise if distribution == "uniform" else noise - torch.arange(1, experts + 1, device=device).log()


def relative(found: Any, expected: Any) -> float:
    """The root mean square of the difference over that of what is expected."""
    squares = [0.0, 0.0]
    rows = max(2**26 // max(found.shape[-1], 1), 1)
    for ours, theirs in zip(found.reshape(-1, found.shape[-1]).split(rows), expected.reshape(-1, found.shape[-1]).split(rows), strict=True):
        squares[0] += float((ours.float() - theirs.float()).square().sum())
        squares[1] += float(theirs.float().square().sum())
    return float((squares[0] / squares[1]) ** 0.5)


def errors(names: Sequence[str], found: Sequence[Any], expected: Sequence[Any]) -> dict[str, float]:
    return {name: round(relative(ours, theirs), 5) for name, ours, theirs in zip(names, found, expected, strict=True)}
