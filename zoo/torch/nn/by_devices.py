"""A linear layer whose weight is a DTensor of torch, cut by columns or by rows: tensor parallelism.

    weight (N, K)   x (..., K)   y (..., N)   gradient of x
    Shard(0)        Replicate    Shard(-1)    Partial          columns of y on each device
    Shard(1)        Shard(-1)    Partial      Shard(-1)        a part of each sum on each device

ColwiseParallel and RowwiseParallel of torch give x, and redistribute y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from zoo.errors import ArgumentError


def is_spread(weight: Any) -> bool:
    return type(weight).__name__ == "DTensor"


def product_by_devices(
    x: torch.Tensor, weight: Any, bias: Any, multiply: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
) -> torch.Tensor:
    """multiply: the part of x, of the weight and of the bias that are on this device -> this device's part of y."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    last = Shard(x.dim() - 1)
    ways: dict[Any, Any] = {(Shard(0), Replicate()): (last, Partial()), (Shard(1), last): (Partial(), last)}
    placements = (*weight.placements, *(x.placements if isinstance(x, DTensor) else ("no DTensor",)))
    if placements not in ways:
        raise ArgumentError(
            f"a layer whose weight is a DTensor: weight {placements[0]} and x {', '.join(map(str, placements[1:]))}; expected Shard(0) and "
            f"Replicate, or Shard(1) and Shard(-1), on a mesh of one dimension: use ColwiseParallel or RowwiseParallel of torch"
        )
    of_y, of_dx = ways[placements]
    by_columns = of_y == last
    y = multiply(x.to_local(grad_placements=[of_dx]), weight.to_local(), bias.to_local() if by_columns and bias is not None else None)
    shape = torch.Size((*x.shape[:-1], weight.shape[0]))
    stride = torch.empty(shape, device="meta").stride()
    whole = DTensor.from_local(y, weight.device_mesh, [of_y], run_check=False, shape=shape, stride=stride)
    return whole if by_columns or bias is None else whole + bias
