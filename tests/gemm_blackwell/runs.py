"""A problem, run in the emulator by one tile of a kernel."""

from __future__ import annotations

from tests.gemm_blackwell.which import SCHEDULES, ZOO
from zoo.checks.emulated import executor
from zoo.checks.problem import POISONS, Placed, Problem, difference


def wrong(grouping: str, format: str, tile: str, problem: Problem, schedules: int = SCHEDULES or 1) -> str | None:
    """What a product of that grouping gets wrong, in words."""
    kernel = ZOO.kernel(f"gemm.{format}.{grouping}")
    dtypes = {name: dtype_of(problem.inputs[name]) for name in ("a", "b")}
    variant = next(
        v for v in kernel.variants if v.name == tile and all(dtypes.get(name, dtype) == dtype for name, dtype in v.dtypes.items())
    )
    return difference(problem, kernel, variant, executor(ZOO, schedules), POISONS[:1])


def dtype_of(placed: Placed) -> str:
    return placed.dtype or {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}[placed.values.dtype.name]
