"""How much a product multiplies."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from zoo.benchmark.arguments import Described
from zoo.contract.manifest import Kernel


def product_sizes(kernel: Kernel, arrays: Mapping[str, Described]) -> tuple[int, int, int] | None:
    """(M, N, K) of one product with as much arithmetic as all groups have; None for what is no product. All rows of places count."""
    if kernel.fields["op"] != "gemm":
        return None
    a = arrays["a"]
    rows = arrays["index"].shape if "index" in arrays else a.shape[:-1]
    if arrays["b"].dtype == "u8":  # rows of tiles: only the result says how many columns there are, half as many of gates and ups
        result = arrays["d"] if "d" in arrays else arrays["q"]
        columns = result.shape[-1] * (2 if kernel.fields.get("extra", "").startswith("swiglu") else 1)
    else:
        columns = arrays["b"].shape[-2]
    return prod(rows), columns, a.shape[-1] * (2 if a.dtype == "e2m1x2" else 1)


def operations(kernel: Kernel, arrays: Mapping[str, Described]) -> int:
    """Multiplications and additions; 0 for what is no product."""
    return 2 * prod(product_sizes(kernel, arrays) or (0,))
