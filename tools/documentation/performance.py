"""The generated tables of docs/performance.md: zoo beside other libraries, and every family beside what the chip can do."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from tools.documentation.comparison import COMMAND, PARTS, Comparison, kinds_of_tokens, percent
from tools.documentation.text import code, table
from zoo.benchmark.plot import BEST_SEEN
from zoo.benchmark.record import Timing, timings_of
from zoo.contract.manifest import Kernel
from zoo.shipped.evidence import Evidence

MIB = 2**20
FEW = 64  # rows of a matrix: up to so many, the weights' bytes decide
SLOW_COPY, COPY_LAUNCH, COPY_TERABYTES = (
    1.15,
    1.6,
    4.25,
)  # an H200's copies take 1.6 us + bytes / 4.25 TB/s; copies of some lengths are slower
PAGE = "other_libraries.md"
_INTRODUCTION = f"""`{COMMAND}` draws these problems by seed and checks each result before it times. "80 % faster" means that the other's time is
80 % longer than zoo's. [Performance](../performance.md#beside-other-libraries) lists the versions.

DeepGEMM pads contiguous groups to whole tiles. "Ends of groups" is its layout with the end of each group. "Rows not told" is zoo without
`expected_rows`. humming never promotes sums of FP8 and rounds some weights a second time. triton_kernels multiplies bf16 rows. Through an index,
zoo gathers rows that the others find in order."""
_LESSER = {"f16", "f32", "e5m2"}  # elements that few use; their figures are in `zoo bench --recorded`


def rivals_table(found: Comparison) -> str:
    """One GEMM beside other libraries; the page has all."""
    return "\n\n".join([*_beside(found, "dense"), _measured(found), f"[Groups and 4-bit weights](kernels/{PAGE})."])


def libraries_page(found: Comparison) -> str:
    """docs/kernels/other_libraries.md: every part of the record."""
    parts = [part for name in PARTS for part in (f"## {PARTS[name].title}", *_beside(found, name))]
    return "\n\n".join(["# How fast is zoo beside other libraries?", _INTRODUCTION, _measured(found), *parts]) + "\n"


def _beside(found: Comparison, name: str) -> list[str]:
    """A row for each band, rival and form of zoo's kernel."""
    ratios = found.ratios(name)
    bands, rows = [one.tokens for one in ratios], []
    for one in sorted(ratios, key=lambda one: bands.index(one.tokens)):
        same = one.rival not in found.less or (one.rival == "humming" and (name == "bf16 experts" or "never" in one.form))
        rival = one.rival + " (less work)" * (not same) + one.form.removeprefix("zoo").replace(", ", "; zoo ", 1)
        rows.append((kinds_of_tokens(one.tokens), rival, percent(one.mean), percent(one.worst)))
    head = (PARTS[name].words, "beside", "zoo is, geometric mean", "zoo is, worst case")
    when = found.earlier(name)
    return (
        [table(head, rows)] * bool(rows)
        + [when] * bool(when)
        + [f"{rival} has no time: {why}." for rival, why in found.refused(name).items()]
    )


def _measured(found: Comparison) -> str:
    return f"Measured on {found.machine}; {found.drawn}."


def quantiser_table(kernels: Iterable[Kernel], evidence: Evidence) -> str:
    """Share of a copy's bandwidth, all formats together."""
    named: dict[str, dict[str, list[Timing]]] = {}
    for kernel in kernels:
        if kernel.fields["op"] != "gemm":
            formats = kernel.fields.get("formats", "")
            name = kernel.name.replace(f".{formats}", ".*", 1) if formats else kernel.name
            if kernel.fields["op"] != "quantize":  # helpers: a row for all of a kind
                name, formats = f"{kernel.fields['op'].removeprefix('un')}.*", kernel.name
            named.setdefault(name, {})[formats] = list(_shown(kernel, evidence))
    rows = []
    for name, members in named.items():
        large = {formats: [_share(one) for one in timings if _is_large(one)] for formats, timings in members.items()}
        small = [_share(one) for timings in members.values() for one in timings if not _is_large(one)]
        every = [share for shares in large.values() for share in shares]
        if every:
            least = min(large, key=lambda formats: min(large[formats], default=9))
            worst = f"{min(every):.0%}" + (f", {least}" if len(large) > 1 else "")
            rows.append(
                (code(name), f"{statistics.geometric_mean(every):.0%}", worst, f"{statistics.geometric_mean(small):.0%}" if small else "")
            )
    return table(("kernels", "128 MiB and more", "its worst case", "below 128 MiB"), rows)


def limits_table(kernels: Iterable[Kernel], evidence: Evidence) -> str:
    """How near a GEMM is to the chip's limit: its arithmetic or its bandwidth, whichever takes longer. Kernels with packed weights share a row."""
    named: dict[str, dict[str, list[float]]] = {}
    for kernel in kernels:
        formats, extra = kernel.fields.get("formats", ""), kernel.fields.get("extra", "")
        if kernel.fields["op"] != "gemm" or extra.endswith("stored"):
            continue
        name = f"gemm.{formats.partition('_')[0] + '_*' if '_' in formats else formats}.{kernel.fields['grouping']}"
        for one in _least_settings(list(_shown(kernel, evidence))):
            if one.device in BEST_SEEN:
                column = ("more" if _rows(one) > FEW else "few") + extra.partition("_")[0]
                named.setdefault(name, {}).setdefault(column, []).append(_limit(one))
    columns = ("few", "more", "moreswiglu")
    rows = [
        (code(name), *(f"{statistics.geometric_mean(shares[column]):.0%}" if column in shares else "" for column in columns))
        for name, shares in named.items()
    ]
    return table(("kernel", f"up to {FEW} rows a matrix", "more rows", "more rows, SwiGLU"), rows)


def _shown(kernel: Kernel, evidence: Evidence) -> Iterable[Timing]:
    lesser = {
        variant.name for variant in kernel.variants if _LESSER & {dtype for name, dtype in variant.dtypes.items() if "scale" not in name}
    }
    return (one for one in timings_of(kernel, evidence) if one.variant not in lesser)


def _is_large(one: Timing) -> bool:
    return one.figures["bytes"] >= (32 if one.kernel.startswith("scales") else 128) * MIB


def _share(one: Timing) -> float:
    """Of the faster copy's bandwidth; of a usual copy's where that copy was slow itself."""
    usual = COPY_LAUNCH + one.figures["bytes"] / 1e6 / COPY_TERABYTES
    copy = one.microseconds * one.figures["of_copy"]
    return usual / one.microseconds if copy > SLOW_COPY * usual else one.figures["of_copy"]


def _least_settings(timings: Sequence[Timing]) -> list[Timing]:
    """Of the same kernel and sizes the calls that ask for least, and of these the fastest; groups count as sizes."""
    found: dict[tuple[object, ...], Timing] = {}
    for one in timings:
        if "a_block_scale" in one.settings or one.settings.get("promotion") == "never":
            continue
        key = (one.kernel, *one.sizes.values(), one.settings.get("groups"), one.settings.get("sizes"))
        if key not in found or (len(one.settings), one.microseconds) < (len(found[key].settings), found[key].microseconds):
            found[key] = one
    return list(found.values())


def _rows(one: Timing) -> float:
    """Rows that a matrix of weights is multiplied with; along K every group has all rows."""
    if "R" in one.sizes:
        return one.sizes["R"]
    return one.sizes["M"] / (1 if one.kernel.endswith("k_grouped") else int(one.settings.get("groups", 1)))


def _limit(one: Timing) -> float:
    teraflops, terabytes = BEST_SEEN[one.device]
    if one.kernel.startswith("gemm.bf16"):  # tensor cores multiply bf16 at half the rate of e4m3
        teraflops /= 2
    return max(one.teraflops / teraflops, one.terabytes_per_second / terabytes)
