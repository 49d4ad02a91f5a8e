"""docs/benchmarks.md: a table of recorded timings for each kernel. The kernels' own pages have the other dtypes, too."""

from __future__ import annotations

from tools.documentation.text import NOTE, code, table
from tools.documentation.timings import COPY_LAUNCH, COPY_TERABYTES_PER_SECOND, SLOW_COPY, Timing, timings_of
from zoo.benchmark.arguments import size_symbols
from zoo.contract.manifest import Kernel
from zoo.shipped.evidence import Evidence

WORDS = """Every figure here was measured by `zoo bench` with exactly the bytes that are shipped. [How fast](performance.md) is the same in one screen.

The tables hold variants of bf16 and e4m3; the figures of other dtypes are on the [kernels' pages](kernels/README.md) and in `cubins/evidence.json`. The column "with" names the options, the dtypes of
optional arguments that were given (`i32`: `index`; `u8`: a workspace), the number of groups, and how the rows spread over the groups: `uniform`, `zipf`, or `empty`, where seven of eight groups have no rows.

**GEMMs.** The variant is the one that the cost rules chose when the timing was taken; the rules may have changed since. For `dense`, "torch us" is the time of torch's FP8 product in the same run, which has one scale for each
whole operand. `zoo bench` replays copies between the products, and the chip rests during a copy, so large products take less time here than in a row of products ([where the GEMMs stand](lab/fp8_gemm.md)):
for M = 4096, N = 2048, K = 7168 torch takes 81 us here and 94 in a row, zoo 94 here and 100 in a row. Groups called `uniform` have equal sizes in this table.

**All other kernels.** The figure is the share of the bandwidth of a copy of as many bytes, replayed in turns with the kernel: the faster of the driver's copy and torch's `copy_`. The bytes are every input read once and every output
written once, scales and padding included. Copies of some lengths are slow themselves. Where a copy takes 15 % longer than 1.6 us + bytes / 4.25 TB/s, the table gives the kernel's own bandwidth in TB/s instead;
the most that has been seen is about 4.35 TB/s. [Where the quantisers stand](lab/quantize.md) says what bounds them."""


def benchmark_page(kernels: list[Kernel], evidence: Evidence) -> str:
    parts = [f"{NOTE}\n# Benchmarks", WORDS]
    for kernel in kernels:
        timings = list(timings_of(kernel, evidence))
        if timings:
            made = _product_table(kernel, timings) if kernel.fields["op"] == "gemm" else _share_table(timings)
            parts.append(f"## {kernel.name}\n{', '.join(dict.fromkeys(one.machine for one in timings))}\n\n{made}")
    return "\n\n".join(parts) + "\n"


def _share_table(timings: list[Timing]) -> str:
    """Variants down, sizes across."""
    sizes = {one.size_words: None for one in sorted(timings, key=lambda one: tuple(one.sizes.values()))}
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for one in timings:
        rows.setdefault((code(one.variant), one.setting_words), {})[one.size_words] = _share(one)
    return table(("variant", "with", *sizes), [(*name, *(row.get(size, "") for size in sizes)) for name, row in rows.items()])


def _product_table(kernel: Kernel, timings: list[Timing]) -> str:
    """Sizes down, what the variant that they choose reached across."""
    rows = []
    dense = kernel.fields["grouping"] == "dense"  # of groups torch would multiply all rows by one matrix
    for one in sorted(timings, key=lambda one: (one.setting_words, tuple(one.sizes.values()))):
        torch = one.figures.get("torch_product_microseconds")
        beside = ("", "") if torch is None else (f"{torch:.2f}", f"{one.microseconds / torch:.3f}")
        figures = (f"{one.microseconds:.2f}", f"{one.teraflops:.0f}", f"{one.terabytes_per_second:.2f}", *(beside if dense else ()))
        rows.append((one.size_words, one.setting_words, code(one.variant), *figures))
    header = (" x ".join(size_symbols(kernel)), "with", "variant", "us", "TFLOPS", "TB/s")
    return table(header + (("torch us", "of torch's time") if dense else ()), rows)


def _share(timing: Timing) -> str:
    """Of the faster copy's bandwidth; where that copy was slow itself, the kernel's bandwidth."""
    of_copy, megabytes = timing.figures["of_copy"], timing.figures.get("bytes", 0) / 1e6
    if timing.microseconds * of_copy > SLOW_COPY * (COPY_LAUNCH + megabytes / COPY_TERABYTES_PER_SECOND):
        return f"{timing.terabytes_per_second:.2f} TB/s"
    return f"{of_copy:.3f}"
