"""How the recorded figures of quantisers and their helpers stand against the bars: the table of docs/lab/quantize.md."""

from __future__ import annotations

import fnmatch
import statistics
from collections import defaultdict

from tools.documentation.text import code, table
from zoo.benchmark.record import timings
from zoo.contract.manifest import Kernel
from zoo.shipped.evidence import Evidence

MIB = 2**20
# Share of the copy wanted at the large sizes, and at 8192 x 2048. The first pattern counts.
BARS = (
    ("scales.*", 0.80, None),
    ("dequantize.*", None, None),
    ("quantize.amax*", 0.97, 0.90),
    ("*pack.*", 0.90, 0.90),
    ("*.m_grouped_*", 0.95, 0.92),
    ("*.swiglu", 0.97, 0.93),
    ("*.both", 0.97, 0.93),
    ("*.rows*", 1.00, 0.97),
    ("*", 0.97, 0.95),
)
WORDS = """bf16 to e4m3 or e2m1. A cell has the geometric mean, the worst figure in parentheses, and the bar where it is missed. A figure is the share of the bandwidth of the faster copy of as many bytes. Where that copy is slow itself, it is
the share of 4.2 TB/s (from 128 MiB in and out on) or of 1.6 us + bytes / 4.25 TB/s (smaller sizes where the copy takes 15 % longer than that). "Large" begins at 128 MiB, for scales at 32 MiB. "Smaller" are M = 128, 512 and 2048, and scales and weights below
these limits. Of groups there are 8, 64 and 256, with uniform, Zipf and mostly empty sizes: all nine combinations at the smallest size, three at the others."""


def standing_table(kernels: list[Kernel], evidence: Evidence) -> str:
    rows = []
    for kernel in kernels:
        if kernel.fields["op"] == "gemm":
            continue
        _, *bars = next(bar for bar in BARS if fnmatch.fnmatchcase(kernel.name, bar[0]))
        for setting, sizes in shares(kernel, evidence).items():
            cells = [_cell(sizes[kind], bar) for kind, bar in zip(("large", "middle", "small"), (*bars, None), strict=True)]
            rows.append((code(kernel.name), setting, *cells))
    header = ("kernel", "with", "large", "8192 x 2048", "smaller")
    return f"{WORDS}\n\n{table(header, rows)}"


def shares(kernel: Kernel, evidence: Evidence) -> dict[str, dict[str, list[float]]]:
    """setting -> kind of size -> shares."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for variant in kernel.variants:
        of_elements = {dtype for name, dtype in variant.dtypes.items() if not name.startswith("scales")}
        if {"f16", "f32", "e5m2"} & of_elements:
            continue
        for words, figures in timings(evidence, kernel, variant).items():
            pairs = dict(word.split("=") for word in words.split())
            setting = ", ".join(
                _setting(name, value) for name, value in pairs.items() if not value.isdigit() and name not in ("sizes", "scales_cols")
            )
            large = figures["bytes"] >= (32 if kernel.fields["op"] == "scales" else 128) * MIB
            middle = pairs.get("M") == "8192" and (pairs.get("K") == "2048" or pairs.get("COLUMNS") == "4096")
            found[setting]["large" if large else "middle" if middle else "small"].append(_share(figures))
    return found


def _setting(name: str, value: str) -> str:
    return {"layout": value, "gates": value, "q_cols": "and the transpose", "tensor_scale": "tensor scale"}.get(name, name)


def _share(figures: dict[str, float]) -> float:
    took, megabytes = figures["microseconds"], figures["bytes"] / 1e6
    fair, slow = (megabytes / 4.2, 1) if figures["bytes"] >= 128 * MIB else (1.6 + megabytes / 4.25, 1.15)
    return fair / took if took * figures["of_copy"] > slow * fair else figures["of_copy"]


def _cell(shares: list[float], bar: float | None) -> str:
    if not shares:
        return ""
    mean = statistics.geometric_mean(shares)
    return f"{mean:.3f} ({min(shares):.3f})" + (f" bar {bar:.2f}" if bar and round(mean, 3) < bar else "")
