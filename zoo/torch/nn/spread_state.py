"""Checkpoints of experts that are spread over ranks, for any number of ranks: torch.distributed.checkpoint gets their tensors as DTensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from zoo.errors import ArgumentError
from zoo.torch.nn.by_devices import is_spread
from zoo.torch.nn.experts import Experts
from zoo.torch.nn.experts_parallel import Ranks


class SpreadState:
    """A model and its optimisers, as `dcp.save({"state": SpreadState(model, optimiser)})` and `dcp.load` of torch take them."""

    def __init__(self, model: torch.nn.Module, *optimisers: torch.optim.Optimizer):
        self.model, self.optimisers = model, optimisers

    def state_dict(self) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        names = ("model", "optimisers")
        state = self._mapped(dict(zip(names, get_state_dict(self.model, self.optimisers), strict=True)), _spread)
        return {**state, "settings": {_matrix(name): layer.settings() for name, layer in self._experts().items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        from torch.distributed.checkpoint.state_dict import set_state_dict

        for name, layer in self._experts().items():
            try:
                layer.check_settings(_matrix(name), state["settings"][_matrix(name)])
            except ArgumentError as refusal:
                raise ArgumentError(f"{refusal}; if dcp.load read it, the weights are already the file's") from None
        here = self._mapped(state, lambda one, ranks: one.to_local() if is_spread(one) else one)
        set_state_dict(self.model, self.optimisers, model_state_dict=here["model"], optim_state_dict=here["optimisers"])

    def _mapped(self, state: dict[str, Any], how: Callable[[torch.Tensor, Ranks], Any]) -> dict[str, Any]:
        """The state, with another form of each rank's experts."""
        ranks = {name: layer.ranks for name, layer in self._experts().items()}

        def mapped(one: Any, of_name: Ranks | None = None) -> Any:
            if isinstance(one, dict):
                return {name: mapped(value, of_name or ranks.get(name)) for name, value in one.items()}
            return how(one, of_name) if isinstance(one, torch.Tensor) and of_name is not None else one

        return mapped(state)  # type: ignore[no-any-return]

    def _experts(self) -> dict[str, Experts]:
        """By name of a parameter or buffer. Wrappers such as torch.compile change names of modules, but not names of a state, so addresses
        match both."""
        from torch.distributed.checkpoint.state_dict import get_model_state_dict

        names = defaultdict(list)
        for name, one in get_model_state_dict(self.model).items():
            if isinstance(one, torch.Tensor):
                names[_address(one)].append(name)
        found: dict[str, Experts] = {}
        for prefix, layer in self.model.named_modules():
            for name, one in layer.state_dict().items() if isinstance(layer, Experts) else ():
                if name.startswith(("gate_up.", "down.")) and _here(one).numel():
                    who = f"SpreadState: {f'{prefix}.{name}'.lstrip('.')}"
                    if layer.ranks is not None and is_spread(one):
                        raise ArgumentError(
                            f"{who} is a DTensor already; pass the parameters of gate_up and down to fully_shard as ignored_params="
                        )
                    same = () if one.is_meta else names.get(_address(one), ())
                    if layer.ranks is not None and not same:
                        raise ArgumentError(f"{who}: the state of the model has no tensor in the memory of these experts")
                    found |= dict.fromkeys(same, layer)
        return found


def _matrix(name: str) -> str:
    """experts.down.weight -> experts.down"""
    return name.rpartition(".")[0]


def _here(one: Any) -> torch.Tensor:
    """The shard of this rank, or a whole tensor."""
    found: torch.Tensor = one.to_local() if is_spread(one) else one
    return found


def _address(one: Any) -> int:
    found: int = _here(one).data_ptr()
    return found


def _spread(one: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    """In the memory of the rank's experts. A number of an optimiser, such as its step, stays as it is."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    if one.shape[:1] != (ranks.experts,):
        return one
    mesh = DeviceMesh.from_group(ranks.group, one.device.type)
    return DTensor.from_local(one, mesh, [Shard(0)], run_check=False)
