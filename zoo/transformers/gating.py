"""How a class of experts turns gates and ups into h, found by running its own `_apply_gate` on random numbers.

Names of architectures decide nothing: a class whose function equals no activation of zoo's kernels stays with transformers.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import torch

_SCALES = (1.0, 8.0, 64.0, 512.0, 4096.0)  # of rows: a limit of any usual size cuts some numbers of some rows, and leaves others
_ROWS, _COLUMNS = 32 * len(_SCALES), 16
_CLOSE = 1e-5  # relative to the largest result of a row; f32 rounds at 6e-8


class Gate(NamedTuple):
    activation: str
    limit: float | None
    gates: str  # halves, interleaved: the order of rows of the first matrix


Numbers = tuple[tuple[str, float | None], ...]
NAMES = (
    "limit",
    "alpha",
    "swiglu_limit",
    "swiglu_alpha",
    "gate_softcap",
    "up_softcap",
)  # attributes that `_apply_gate` of transformers' experts reads


@cache
def gate_of(experts: type[Any], act: Any, numbers: Numbers) -> Gate | None:
    """act: `act_fn` if it is a function, the class of a module, or None. numbers: attributes of the experts by name. None: no activation of zoo."""
    apply = getattr(experts, "_apply_gate", None)
    if apply is None:
        return None
    with torch.device("cpu"), torch.no_grad():  # a model may be being made on another
        given = torch.randn(_ROWS, _COLUMNS, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
        given *= torch.tensor(_SCALES, dtype=torch.float32).repeat_interleave(_ROWS // len(_SCALES))[:, None]
        try:
            if inspect.isclass(act) and _has_numbers(act):
                return None
            act_fn = act() if inspect.isclass(act) else act
            found = apply(types.SimpleNamespace(**dict(numbers), **({} if act is None else {"act_fn": act_fn})), given.clone())
        except Exception:  # of code that nobody here wrote, and which needs more than a gate has
            return None
        if not isinstance(found, torch.Tensor) or found.shape != (_ROWS, _COLUMNS // 2):
            return None
        for gate in _candidates(numbers):
            wanted = _applied(gate, given)
            if ((found.float() - wanted).abs().amax(1) <= _CLOSE * wanted.abs().amax(1)).all():
                return gate
    return None


def _has_numbers(act: type[Any]) -> bool:
    """Whether two activations of a class may differ."""
    given = inspect.signature(act).parameters.values()
    return act is not torch.nn.SiLU and any(one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in given)


def _candidates(numbers: Numbers) -> Iterator[Gate]:
    limits = sorted({float(one) for name, one in numbers if one is not None and one > 0})
    for gates in ("halves", "interleaved"):
        yield Gate("silu", None, gates)
        for limit in limits:
            yield Gate("deepseek_v4", limit, gates)
            yield Gate("gpt_oss", limit, gates)
        yield Gate("gpt_oss", None, gates)


def _applied(how: Gate, given: torch.Tensor) -> torch.Tensor:
    gate, up = given.chunk(2, 1) if how.gates == "halves" else (given[:, ::2], given[:, 1::2])
    if how.limit is not None:
        gate, up = gate.clamp(max=how.limit), up.clamp(-how.limit, how.limit)
    slope, added = (1.702, 1) if how.activation == "gpt_oss" else (1, 0)
    return gate * torch.sigmoid(slope * gate) * (up + added)
