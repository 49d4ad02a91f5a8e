"""What a launch costs the host: `python tools/host_cost.py` on a machine with a GPU, torch and zoo.

Each figure is the median over rounds of back-to-back launches, few enough that the driver's queue never fills; differences
and ratios are taken within a round. `bare` is cuLaunchKernelEx through cuda-bindings with a configuration and a parameter
block that were packed before.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import torch

import zoo
from zoo.runtime import driver

LAUNCHES, ROUNDS = 200, 60
ROWS, COLUMNS = 128, 2048


def microseconds(enqueue) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for index in range(LAUNCHES):
        enqueue(index)
    return (time.perf_counter_ns() - start) / LAUNCHES / 1000


def arrays():
    x = torch.randn(ROWS, COLUMNS, device="cuda", dtype=torch.bfloat16)
    q = torch.empty(ROWS, COLUMNS, device="cuda", dtype=torch.float8_e4m3fn)
    scales = torch.empty(ROWS, COLUMNS // 32, device="cuda", dtype=torch.float8_e8m0fnu)
    return dict(x=x, q=q, scales=scales)


class Fresh:
    """Calls whose arrays lie where none of an earlier call did: windows that slide over three buffers."""

    def __init__(self):
        self.x = torch.randn(ROWS + LAUNCHES * ROUNDS, COLUMNS, device="cuda", dtype=torch.bfloat16)
        self.q = torch.empty(self.x.shape, device="cuda", dtype=torch.float8_e4m3fn)
        self.scales = torch.empty(self.x.shape[0], COLUMNS // 32, device="cuda", dtype=torch.float8_e8m0fnu)
        self.first = 0

    def prepare_round(self):
        windows = [slice(first, first + ROWS) for first in range(self.first, self.first + LAUNCHES)]
        self.calls = [dict(x=self.x[w], q=self.q[w], scales=self.scales[w]) for w in windows]
        self.first += LAUNCHES


def import_milliseconds(statement: str) -> float:
    """The fastest of several fresh interpreters: noise only ever adds."""
    code = f"import time, numpy; start = time.perf_counter(); {statement}; print(1000 * (time.perf_counter() - start))"
    return min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(9))


def main():
    name = "quantize.mxfp8.rows"
    sets = [arrays() for _ in range(8)]
    stream = torch.cuda.current_stream().cuda_stream
    plan = zoo.prepare(name, **sets[0])
    cuda = driver.bindings()
    config = plan._configure(stream)
    function, parameters = plan._function, plan._parameters
    a, b = torch.ones(16, device="cuda"), torch.ones(16, device="cuda")

    fresh = Fresh()
    rows = {
        "bare cuLaunchKernelEx": lambda index: cuda.cuLaunchKernelEx(config, function, parameters, 0),
        "plan(stream)": lambda index: plan(stream),
        "zoo.launch, same arrays": lambda index: zoo.launch(name, **sets[0]),
        "zoo.launch, new pointers": lambda index: zoo.launch(name, **sets[index % 8]),
        "zoo.launch, pointers never seen": lambda index: zoo.launch(name, **fresh.calls[index]),
        "zoo.launch, new pointers, stream=": lambda index: zoo.launch(name, stream=stream, **sets[index % 8]),
        "torch add_": lambda index: a.add_(b),
    }
    rounds = {label: [] for label in rows}
    for _ in range(ROUNDS):  # all take turns, so that a machine that slows down slows all of them
        fresh.prepare_round()
        for label, enqueue in rows.items():
            rounds[label].append(microseconds(enqueue))
    bare = rounds["bare cuLaunchKernelEx"]
    print(f"{'median of ' + str(ROUNDS) + ' rounds':36}{'us':>8}{'- bare':>8}{'/ bare':>8}")
    for label, times in rounds.items():
        differences = [time - other for time, other in zip(times, bare, strict=True)]
        ratios = [time / other for time, other in zip(times, bare, strict=True)]
        print(f"{label:36}" + "".join(f"{statistics.median(column):8.2f}" for column in (times, differences, ratios)))
    print(
        f"import zoo, above numpy: {import_milliseconds('import zoo'):.1f} ms; with zoo.launch looked up: {import_milliseconds('import zoo; zoo.launch'):.1f} ms"
    )


if __name__ == "__main__":
    main()
