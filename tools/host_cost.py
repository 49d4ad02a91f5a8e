"""What a launch costs the host: `python tools/host_cost.py [--json FILE]` on a machine with a GPU, torch and zoo.

Each figure is the median over rounds of back-to-back launches, few enough that the driver's queue never fills; differences
and ratios are taken within a round. Before a row is timed it is run once through its shapes, for the rows before it have
filled the caches with theirs. `bare` is cuLaunchKernelEx through cuda-bindings with a configuration and a parameter block
that were packed before. Products of 4-bit weights are of one small matrix, or of four, so that the GPU keeps up. The JSON has
every round's figure.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import zoo
import zoo.torch
from zoo.runtime import driver

NAME = "quantize.mxfp8.rows"
LAUNCHES, ROUNDS, SHAPES = 192, 60, 64  # every row is launched LAUNCHES + SHAPES times between two waits for the GPU
ROWS, COLUMNS = 128, 2048
FOUR_BITS, WIDTH, GROUPS = "gemm.fp8_nvfp4", 1024, 4  # N and K of a matrix
EMPTY, MOST_OF_A_CALL = "torch.empty of q and scales", 1.15  # of a launch, beside torch.empty
Arrays = dict[str, torch.Tensor]


def microseconds(enqueue: Callable[[int], object]) -> float:
    torch.cuda.synchronize()
    for index in range(SHAPES):
        enqueue(index)
    start = time.perf_counter_ns()
    for index in range(SHAPES, SHAPES + LAUNCHES):
        enqueue(index)
    return (time.perf_counter_ns() - start) / LAUNCHES / 1000


def arrays(rows: int = ROWS) -> Arrays:
    x = torch.randn(rows, COLUMNS, device="cuda", dtype=torch.bfloat16)
    q = torch.empty(rows, COLUMNS, device="cuda", dtype=torch.float8_e4m3fn)
    scales = torch.empty(rows, COLUMNS // 32, device="cuda", dtype=torch.float8_e8m0fnu)
    return dict(x=x, q=q, scales=scales)


def four_bit_arrays(rows: int, groups: int = 0) -> Arrays:
    """Tokens, of groups as many of each, and weights of zeros."""
    rows *= max(groups, 1)
    a = torch.zeros(rows, WIDTH, device="cuda").to(torch.float8_e4m3fn)
    b = torch.zeros(*((groups,) if groups else ()), WIDTH // 64, WIDTH // 64, 2304, device="cuda", dtype=torch.uint8)
    d = torch.empty(rows, WIDTH, device="cuda", dtype=torch.bfloat16)
    given = dict(a=a, a_scale=torch.ones(rows, device="cuda"), b=b, d=d)
    ends = torch.arange(1, groups + 1, device="cuda", dtype=torch.int32) * (rows // max(groups, 1))
    return given | dict(offsets=ends) if groups else given


def parameters(given: Arrays) -> Arrays:
    return {name: torch.nn.Parameter(tensor, requires_grad=False) for name, tensor in given.items()}


class Fresh:
    """Calls whose arrays lie where none of an earlier call did: windows that slide over three buffers."""

    def __init__(self) -> None:
        self.count = LAUNCHES + SHAPES
        self.x = torch.randn(ROWS + self.count * ROUNDS, COLUMNS, device="cuda", dtype=torch.bfloat16)
        self.q = torch.empty(self.x.shape, device="cuda", dtype=torch.float8_e4m3fn)
        self.scales = torch.empty(self.x.shape[0], COLUMNS // 32, device="cuda", dtype=torch.float8_e8m0fnu)
        self.first = 0

    def prepare_round(self) -> None:
        windows = [slice(first, first + ROWS) for first in range(self.first, self.first + self.count)]
        self.calls = [dict(x=self.x[w], q=self.q[w], scales=self.scales[w]) for w in windows]
        self.first += self.count


def import_milliseconds(statement: str) -> float:
    """The fastest of several fresh interpreters: noise only ever adds."""
    code = f"import time, numpy; start = time.perf_counter(); {statement}; print(1000 * (time.perf_counter() - start))"
    return min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(9))


def on_gpu(given: Arrays, name: str = NAME) -> zoo.Plan:
    plan = zoo.prepare(name, **given)
    assert isinstance(plan, zoo.Plan)
    return plan


def rows_to_time(fresh: Fresh) -> dict[str, Callable[[int], object]]:
    one, parameter = arrays(), parameters(arrays())
    sets = [arrays() for _ in range(8)]
    many = [arrays(rows) for rows in range(ROWS - SHAPES + 1, ROWS + 1)]
    kinds = [parameters(given) if index % 2 else given for index, given in enumerate(many)]
    four = many[:: SHAPES // 4]
    stream = torch.cuda.current_stream().cuda_stream
    plan, *plans = (on_gpu(given) for given in (one, *many))
    plan(stream)
    cuda = driver.bindings()
    config, function, block = plan._configure(stream), plan._function, plan._parameters
    packed = [(each._configure(stream), each._function, each._parameters, 0) for each in plans]
    keep = [plan, *plans]  # whose memory the packed blocks are
    inputs = [{"x": given["x"]} for given in (one, *many)]
    product = torch.ops.zoo.gemm_fp8b128_dense.default
    operator, operator_out = torch.ops.zoo.quantize_mxfp8_rows.default, torch.ops.zoo.quantize_mxfp8_rows.out
    a, b = torch.ones(16, device="cuda"), torch.ones(16, device="cuda")
    tokens = zoo.torch.quantize(one["x"], "fp8b128")
    weights = zoo.torch.quantize(one["x"], "fp8b128", direction="squares").t()
    of_one, of_groups = f"{FOUR_BITS}.dense", f"{FOUR_BITS}.m_grouped_contiguous"
    one_of_four_bits, groups_of_four_bits = four_bit_arrays(SHAPES), four_bit_arrays(SHAPES // GROUPS, GROUPS)
    many_of_four_bits = [four_bit_arrays(rows) for rows in range(1, SHAPES + 1)]
    plan_of_one, plan_of_groups = on_gpu(one_of_four_bits, of_one), on_gpu(groups_of_four_bits, of_groups)
    return {
        "bare cuLaunchKernelEx": lambda index, keep=keep: cuda.cuLaunchKernelEx(config, function, block, 0),  # type: ignore[misc]
        "bare, 64 shapes in turn": lambda index, keep=keep: cuda.cuLaunchKernelEx(*packed[index % SHAPES]),  # type: ignore[misc]
        "plan(stream)": lambda index: plan(stream),
        "zoo.launch, same arrays": lambda index: zoo.launch(NAME, **one),
        "zoo.launch, same Parameters": lambda index: zoo.launch(NAME, **parameter),
        "zoo.launch, four shapes in turn": lambda index: zoo.launch(NAME, **four[index % 4]),
        "zoo.launch, 64 shapes in turn": lambda index: zoo.launch(NAME, **many[index % SHAPES]),
        "zoo.launch, 64, half Parameters": lambda index: zoo.launch(NAME, **kinds[index % SHAPES]),
        "zoo.launch, new pointers": lambda index: zoo.launch(NAME, **sets[index % 8]),
        "zoo.launch, pointers never seen": lambda index: zoo.launch(NAME, **fresh.calls[index]),
        "zoo.launch, new pointers, stream=": lambda index: zoo.launch(NAME, stream=stream, **sets[index % 8]),
        EMPTY: lambda index: (
            torch.empty((ROWS, COLUMNS), dtype=torch.float8_e4m3fn, device="cuda"),
            torch.empty((ROWS, COLUMNS // 32), dtype=torch.float8_e8m0fnu, device="cuda"),
        ),
        "zoo.call": lambda index: zoo.call(NAME, **inputs[0]),
        "zoo.call, 64 shapes in turn": lambda index: zoo.call(NAME, **inputs[1 + index % SHAPES]),
        "torch.ops.zoo": lambda index: operator(one["x"]),
        "torch.ops.zoo, out": lambda index: operator_out(one["x"], q=one["q"], scales=one["scales"]),
        "zoo.torch.Quantized of q and scales": lambda index: zoo.torch.Quantized(one["q"], one["scales"], "mxfp8"),
        "zoo.torch.quantize": lambda index: zoo.torch.quantize(one["x"], "mxfp8", layout="plain"),
        "a @ b of fp8b128": lambda index: tokens @ weights,
        "torch.ops.zoo.gemm_fp8b128_dense": lambda index: product(tokens.elements, tokens.scales, weights.elements, weights.scales),
        "4-bit weights, plan(stream)": lambda index: plan_of_one(stream),
        "4-bit weights, zoo.launch": lambda index: zoo.launch(of_one, **one_of_four_bits),
        "4-bit weights, zoo.launch, 64 shapes": lambda index: zoo.launch(of_one, **many_of_four_bits[index % SHAPES]),
        "4-bit groups, plan(stream)": lambda index: plan_of_groups(stream),
        "4-bit groups, zoo.launch": lambda index: zoo.launch(of_groups, **groups_of_four_bits),
        "torch add_": lambda index: a.add_(b),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="where every round's microseconds go, by row")
    arguments = parser.parse_args()
    fresh = Fresh()
    rows = rows_to_time(fresh)
    rounds: dict[str, list[float]] = {label: [] for label in rows}
    for _ in range(ROUNDS):  # all take turns, so that a machine that slows down slows all of them
        fresh.prepare_round()
        for label, enqueue in rows.items():
            rounds[label].append(microseconds(enqueue))
    if arguments.json:
        arguments.json.write_text(json.dumps(rounds))
    bare, same = rounds["bare cuLaunchKernelEx"], rounds["zoo.launch, same arrays"]
    print(f"{'median of ' + str(ROUNDS) + ' rounds':38}{'us':>8}{'- bare':>8}{'/ bare':>8}{'/ same':>8}")
    for label, times in rounds.items():
        differences = [time - other for time, other in zip(times, bare, strict=True)]
        ratios = [time / other for time, other in zip(times, bare, strict=True)]
        beside = [time / other for time, other in zip(times, same, strict=True)]
        print(f"{label:38}" + "".join(f"{statistics.median(column):8.2f}" for column in (times, differences, ratios, beside)))
    beyond = [(call - empty) / launch for call, empty, launch in zip(rounds["zoo.call"], rounds[EMPTY], same, strict=True)]
    print(f"(zoo.call - its outputs' torch.empty) / zoo.launch: {statistics.median(beyond):.2f}, which may be {MOST_OF_A_CALL}")
    print(
        f"import zoo, above numpy: {import_milliseconds('import zoo'):.1f} ms; "
        f"with zoo.launch looked up: {import_milliseconds('import zoo; zoo.launch'):.1f} ms"
    )


if __name__ == "__main__":
    main()
