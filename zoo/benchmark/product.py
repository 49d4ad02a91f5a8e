"""What a GEMM multiplies: formats, grouping and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from zoo.benchmark.arguments import Described
from zoo.contract.manifest import Kernel


@dataclass(frozen=True)
class Product:
    """D (M, N) = A (M, K) B (N, K)^T. Groups share K and N; M counts the rows of all groups."""

    formats: str
    grouping: str
    M: int
    N: int
    K: int
    ends: tuple[int, ...] = ()  # the row after each group's last row; empty for one matrix
    epilogue: str = ""  # what follows the product, such as swiglu
    used: tuple[int, ...] = ()  # how many rows of each masked group are multiplied; empty where all are

    @property
    def operations(self) -> int:
        return 2 * self.M * self.N * self.K


def product_of(kernel: Kernel, arrays: Mapping[str, Described]) -> Product | None:
    """The product of all groups together; None for other kernels. Every row of a masked group counts."""
    if kernel.fields["op"] != "gemm":
        return None
    a, b, grouping, epilogue = arrays["a"], arrays["b"], kernel.fields.get("grouping", ""), kernel.fields.get("extra", "")
    rows = 2 if grouping == "m_grouped_masked" else 1  # axes before the columns; columns of some layouts have several axes
    if b.dtype == "u8":  # packed rows: only the result tells how many columns there are, half as many of gates and ups
        result = arrays["d"] if "d" in arrays else arrays["q"]
        N = prod(result.shape[rows:]) * (2 if epilogue.startswith("swiglu") else 1)
    else:
        N = prod(b.shape[0 if grouping in ("dense", "k_grouped") else 1 : -1])
    ends: tuple[int, ...] = ()
    if grouping == "m_grouped_masked":
        ends = tuple(a.shape[1] * (group + 1) for group in range(a.shape[0]))
    elif "offsets" in arrays and arrays["offsets"].content is not None:
        ends = tuple(arrays["offsets"].content.tolist())
    M = arrays["index"].shape[0] if "index" in arrays else prod(a.shape[:rows])
    K = prod(a.shape[rows:]) * (2 if a.dtype == "e2m1x2" else 1)
    return Product(kernel.fields.get("formats", ""), grouping, M, N, K, ends, epilogue)
