"""One training run. On a GPU a step is one CUDA graph: the products of small layers would otherwise wait for Python."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from tools.lab.language_model.model import Model, Sizes
from tools.lab.language_model.text import Batches, Text

BLOCK = 20  # steps between two looks at the losses
_UNEVENNESS = 0.01  # weight of the router's balance in the loss
_WARM_UP = 0.05  # of all steps


@dataclass(frozen=True)
class Plan:
    steps: int = 2000
    batch: int = 24
    rate: float = 6e-4
    validation_batches: int = 16
    graphs: bool = True


class Trainer:
    def __init__(self, precision: str, seed: int, sizes: Sizes, plan: Plan, text: Text, device: str):
        self.plan, self.step, self.seconds = plan, 0, 0.0
        self._sizes, self._precision = sizes, precision
        with torch.device(device):
            self.model = Model(sizes, precision)
            self._starts = torch.zeros(plan.batch, dtype=torch.int64)
            self._window = torch.arange(sizes.window + 1)
            self._rate, self._loss = torch.zeros(()), torch.zeros(())
            self._losses = torch.zeros(BLOCK)
        self.model.begin(seed)
        self._train, self._validation = text.train.to(device), text.validation.to(device)
        self._batches = Batches(text.train, plan.batch, sizes.window, seed)
        matrices = [one for one in self.model.parameters() if one.dim() > 1]
        vectors = [one for one in self.model.parameters() if one.dim() == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        graphs = device == "cuda" and plan.graphs
        self._optimiser = torch.optim.AdamW(groups, lr=self._rate, betas=(0.9, 0.95), fused=True, capturable=device == "cuda")
        self._run, self._measure = self._one_step, self._one_measurement
        self._prepare()
        if graphs:
            self._run, self._measure = self._captured(self._one_step), self._captured(self._one_measurement)
        self._forget()

    def block(self, steps: int) -> list[float]:
        """The losses of the next steps, at most BLOCK."""
        began = time.perf_counter()
        device = self._rate.device
        starts = self._batches.starts(steps).to(device)
        rates = torch.tensor([self._rate_of(step) for step in range(self.step, self.step + steps)]).to(device)
        for one in range(steps):
            self._starts.copy_(starts[one])
            self._rate.copy_(rates[one])
            self._run()
            self._losses[one].copy_(self._loss)
        found: list[float] = self._losses[:steps].tolist()  # waits for the GPU
        self.step += steps
        self.seconds += time.perf_counter() - began
        return found

    def validate(self) -> float:
        """The mean loss of windows at equal distances in the text that is held out."""
        count = self.plan.validation_batches * self.plan.batch
        starts = torch.linspace(0, len(self._validation) - self._sizes.window - 1, count).long().view(-1, self.plan.batch)
        total = 0.0
        for one in starts.to(self._rate.device):
            self._starts.copy_(one)
            self._measure()
            total += float(self._loss)
        return total / len(starts)

    def save(self, path: Path) -> None:
        """Weights, the optimiser, and the generator of batches. Nothing else is random."""
        torch.save({"about": self._about(), "step": self.step, "batches": self._batches.generator.get_state(), **self._tensors()}, path)

    def load(self, path: Path) -> None:
        """Writes in place, where graphs read."""
        saved = torch.load(path, map_location=self._rate.device, weights_only=True)
        if saved["about"] != self._about():
            raise ValueError(f"{path} is a checkpoint of {saved['about']}, not of {self._about()}")
        self.model.load_state_dict(saved["model"])
        for mine, theirs in zip(self._tensors()["optimiser"], saved["optimiser"], strict=True):
            for name, one in mine.items():
                one.copy_(theirs[name])
        self.step = saved["step"]
        self._batches.generator.set_state(saved["batches"].cpu())

    def _tensors(self) -> dict[str, Any]:
        states = [self._optimiser.state[one] for group in self._optimiser.param_groups for one in group["params"]]
        return {"model": self.model.state_dict(), "optimiser": [dict(one) for one in states]}

    def _about(self) -> dict[str, Any]:
        return {"precision": self._precision, **asdict(self._sizes), "steps": self.plan.steps, "batch": self.plan.batch}

    def _rate_of(self, step: int) -> float:
        """Rises linearly, then falls as a cosine to a tenth."""
        warm_up = max(round(_WARM_UP * self.plan.steps), 1)
        if step < warm_up:
            return self.plan.rate * (step + 1) / warm_up
        return self.plan.rate * (0.55 + 0.45 * math.cos(math.pi * (step - warm_up) / max(self.plan.steps - warm_up, 1)))

    def _one_step(self) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        with self._autocast():
            loss, load = self.model(self._train[self._starts[:, None] + self._window].long())
        (loss + _UNEVENNESS * load).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimiser.step()
        self._loss.copy_(loss.detach())

    @torch.no_grad()
    def _one_measurement(self) -> None:
        with self._autocast():
            loss, _ = self.model(self._validation[self._starts[:, None] + self._window].long())
        self._loss.copy_(loss)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self._rate.device.type, torch.bfloat16, cache_enabled=False)  # a graph must cast each time

    def _prepare(self) -> None:
        """Loads kernels and makes the optimiser's state. The rate is 0, so no weight changes."""
        if self._rate.device.type == "cpu":
            self._one_step()
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._one_step()
                self._one_measurement()
        torch.cuda.current_stream().wait_stream(side)

    def _captured(self, run: Callable[[], None]) -> Callable[[], None]:
        self._optimiser.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph.replay

    def _forget(self) -> None:
        for state in self._tensors()["optimiser"]:
            for one in state.values():
                one.zero_()
