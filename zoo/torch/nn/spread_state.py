"""Checkpoints of experts that are spread over ranks, for any number of ranks: torch.distributed.checkpoint gets their tensors as DTensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from zoo.torch.nn.experts import Experts
from zoo.torch.nn.experts_parallel import Ranks


class SpreadState:
    """A model and its optimisers, as `dcp.save({"state": SpreadState(model, optimiser)})` and `dcp.load` of torch take them."""

    def __init__(self, model: torch.nn.Module, *optimisers: torch.optim.Optimizer):
        self.model, self.optimisers = model, optimisers
        self._ranks: dict[str, Ranks] = {}  # by name of a parameter or buffer of which each rank has its experts
        for name, layer in model.named_modules():
            if isinstance(layer, Experts) and layer.ranks is not None:
                of_experts = (f"{name}.{one}".lstrip(".") for one in layer.state_dict() if one.startswith(("gate_up.", "down.")))
                self._ranks |= dict.fromkeys(of_experts, layer.ranks)

    def state_dict(self) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        names = ("model", "optimisers")
        return self._mapped(dict(zip(names, get_state_dict(self.model, self.optimisers), strict=True)), _spread)  # type: ignore[no-any-return]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        from torch.distributed.checkpoint.state_dict import set_state_dict

        here = self._mapped(state, lambda one, ranks: one.to_local() if hasattr(one, "to_local") else one)
        set_state_dict(self.model, self.optimisers, model_state_dict=here["model"], optim_state_dict=here["optimisers"])

    def _mapped(self, one: Any, how: Callable[[torch.Tensor, Ranks], Any], ranks: Ranks | None = None) -> Any:
        """Dictionaries of the state, with another form of each rank's experts."""
        if isinstance(one, dict):
            return {name: self._mapped(value, how, ranks or self._ranks.get(name)) for name, value in one.items()}
        return how(one, ranks) if isinstance(one, torch.Tensor) and ranks is not None else one


def _spread(one: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    """In the memory of the rank's experts. A number of an optimiser, such as its step, stays as it is."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    if one.shape[:1] != (ranks.experts,):
        return one
    mesh = DeviceMesh.from_group(ranks.group, one.device.type)
    return DTensor.from_local(one, mesh, [Shard(0)], run_check=False)
