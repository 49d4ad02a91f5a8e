"""The tables of docs/performance.md, one screen for each family."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from tools.documentation.dense_ratios import Ratios
from tools.documentation.standing import shares
from tools.documentation.text import code, table
from tools.documentation.timings import Timing, timings_of
from zoo.benchmark.plot import BEST_SEEN
from zoo.contract.formats import NAMES
from zoo.contract.manifest import Kernel
from zoo.shipped.evidence import Evidence

FOUR_BITS = ("fp8_nvfp4", "fp8_mxfp4", "bf16_nvfp4", "bf16_mxfp4")
SIZES = {"128 MiB and more": ("large",), "below 128 MiB": ("middle", "small")}


def quantiser_tables(kernels: Iterable[Kernel], evidence: Evidence) -> str:
    """Share of a copy's bandwidth: kernels down, formats across; those without a format in a table of their own."""
    with_format: dict[str, dict[str, Kernel]] = {}
    without = []
    for kernel in kernels:
        if kernel.fields["op"] == "gemm":
            continue
        if "formats" in kernel.fields:
            name = kernel.name.replace(kernel.fields["formats"], "*")
            with_format.setdefault(name, {})[kernel.fields["formats"]] = kernel
        else:
            without.append(kernel)
    parts, formats = [], [name for name in NAMES if any(name in members for members in with_format.values())]
    for size, kinds in SIZES.items():
        rows = [
            (code(name), *(_share_cell(members[one], evidence, kinds) if one in members else "" for one in formats))
            for name, members in with_format.items()
        ]
        parts.append(table((size, *formats), [row for row in rows if any(row[1:])]))
    rows = [(code(kernel.name), *(_share_cell(kernel, evidence, kinds) for kinds in SIZES.values())) for kernel in without]
    return "\n\n".join([*parts, table(("without a format", *SIZES), rows)])


def _share_cell(kernel: Kernel, evidence: Evidence, kinds: tuple[str, ...]) -> str:
    """All layouts and settings together."""
    return _mean([one for sizes in shares(kernel, evidence).values() for kind in kinds for one in sizes[kind]], min)


def dense_table(ratios: Ratios) -> str:
    rows = []
    for tokens in ratios.tokens:
        points = sorted(ratios.of_tokens(tokens), key=lambda one: one.ratio)
        ends = [f"{one.ratio:.2f} ({one.weights[0]} x {one.weights[1]})" for one in (points[0], points[-1])]
        rates = (f"{max(one.teraflops for one in points):.0f}", f"{max(one.terabytes_per_second for one in points):.2f}")
        rows.append((tokens, f"**{ratios.mean(tokens):.2f}**", *ends, *rates))
    return table(("tokens", "time / torch's, mean", "best (K x N)", "worst (K x N)", "most TFLOPS", "most TB/s"), rows)


def grouped_table(kernels: Iterable[Kernel], evidence: Evidence) -> str:
    """A row for each case: the plain product, and what rows through an index cost more."""
    by_name = {kernel.name: kernel for kernel in kernels}
    gathered = _by_sizes(by_name["gemm.fp8b128.m_grouped_gather"], evidence)
    rows = []
    for grouping in ("m_grouped_contiguous", "m_grouped_masked", "k_grouped"):
        for sizes, one in _by_sizes(by_name[f"gemm.fp8b128.{grouping}"], evidence).items():
            gather = gathered.get(sizes) if grouping == "m_grouped_contiguous" else None
            rows.append((code(grouping), *_case(one), *_rates(one), _over(gather, one)))
    return table(("groups", *_CASE, "us", "TFLOPS", "TB/s", "limit / time", "gathered, over this"), rows)


NOT_TIMED = "The cubins as they are now have not been timed."


def four_bit_dense_table(kernels: Iterable[Kernel], evidence: Evidence) -> str:
    """Over torch's FP8 product, format by format; a row has the matrices with which all of them were timed."""
    by_name = {kernel.name: kernel for kernel in kernels}
    beside: dict[str, dict[tuple[int, ...], float]] = {}
    for formats in FOUR_BITS:
        for sizes, one in _by_sizes(by_name[f"gemm.{formats}.dense"], evidence).items():
            if "torch_product_microseconds" in one.figures:
                beside.setdefault(formats, {})[sizes] = one.microseconds / one.figures["torch_product_microseconds"]
    everywhere = set.intersection(*(set(ratios) for ratios in beside.values())) if beside else set()
    rows = []
    for tokens in sorted({sizes[1] for sizes in everywhere}):
        members = [sizes for sizes in everywhere if sizes[1] == tokens]
        rows.append((tokens, len(members), *(_mean([ratios[sizes] for sizes in members], max) for ratios in beside.values())))
    return table(("tokens", "matrices", *map(code, beside)), rows) if rows else NOT_TIMED


def four_bit_grouped_table(kernels: Iterable[Kernel], evidence: Evidence) -> str:
    """A row for each case, and of each format its time, its share of the limit and what rows through an index cost more."""
    by_name = {kernel.name: kernel for kernel in kernels}
    cases: dict[tuple[str, ...], dict[str, tuple[str, ...]]] = {}
    for formats in FOUR_BITS:
        contiguous, gathered = (_by_sizes(by_name[f"gemm.{formats}.m_grouped_{how}"], evidence) for how in ("contiguous", "gather"))
        for sizes, one in contiguous.items():
            microseconds, *_, share = _rates(one)
            cases.setdefault(_case(one), {})[formats] = (microseconds, share, _over(gathered.get(sizes), one))
    timed = [formats for formats in FOUR_BITS if any(formats in case for case in cases.values())]
    rows = [(*words, *(cell for formats in timed for cell in case.get(formats, ("", "", "")))) for words, case in cases.items()]
    columns = (column for formats in timed for column in (f"{code(formats)}, us", "limit / time", "gathered, over this"))
    return table((*_CASE, *columns), rows) if rows else NOT_TIMED


def swiglu_table(kernels: Iterable[Kernel], evidence: Evidence) -> str:
    """The time of a product with SwiGLU over that of zoo's plain product of the same sizes."""
    by_name = {kernel.name: kernel for kernel in kernels}
    rows = []
    for grouping in ("dense", "m_grouped_contiguous", "m_grouped_masked"):
        plain, bf16, fp8 = (_by_sizes(by_name[f"gemm.fp8b128.{grouping}{extra}"], evidence) for extra in ("", ".swiglu", ".swiglu_fp8b128"))
        cases: dict[str, list[tuple[int, ...]]] = {}
        for sizes, one in plain.items():
            if all(sizes in found and found[sizes].device == one.device for found in (bf16, fp8)):
                cases.setdefault(_case(one)[0], []).append(sizes)
        for words, members in cases.items():
            overs = [[found[sizes].microseconds / plain[sizes].microseconds for sizes in members] for found in (bf16, fp8)]
            rows.append((code(grouping), words, *(_mean(over, max) for over in overs)))
    return table(("product", "rows", "`swiglu` / plain", "`swiglu_fp8b128` / plain"), rows)


_CASE = ("rows", "K x N")


def _over(other: Timing | None, one: Timing) -> str:
    """Of another kernel's time of the same sizes; times of two chips make no ratio."""
    return f"{other.microseconds / one.microseconds:.2f}" if other is not None and other.device == one.device else ""


def _case(one: Timing) -> tuple[str, str]:
    sizes, groups = one.sizes, one.settings.get("groups")
    if "R" in sizes:
        rows = f"{sizes['G']} places of {sizes['R']}"
    elif groups is None:
        rows = f"{sizes['M']}"
    elif one.sizes["K"] % int(groups) == 0 and "T" not in sizes and sizes["K"] > 16384:  # groups along K: M x N is what each one writes
        return f"{sizes['K']} in {groups} groups", f"M x N = {sizes['M']} x {sizes['N']}"
    else:
        rows = f"{sizes['M']} in {groups} groups"
    return rows, f"{sizes['K']} x {sizes['N']}"


def _rates(one: Timing) -> tuple[str, ...]:
    teraflops, terabytes_per_second = BEST_SEEN[one.device]
    limit = max(one.teraflops / teraflops, one.terabytes_per_second / terabytes_per_second)
    return f"{one.microseconds:.0f}", f"{one.teraflops:.0f}", f"{one.terabytes_per_second:.2f}", f"{limit:.2f}"


def _by_sizes(kernel: Kernel, evidence: Evidence) -> dict[tuple[int, ...], Timing]:
    """By groups, rows, K and N; of several settings of the same sizes those that ask for least, and of them the fastest. None of other sums than
    those that nobody asks for: never promoted, or under other scales."""
    found: dict[tuple[int, ...], Timing] = {}

    def asks(one: Timing) -> tuple[int, float]:
        return len(one.settings), one.microseconds

    for one in timings_of(kernel, evidence):
        if "a_block_scale" in one.settings or one.settings.get("promotion") == "never":
            continue
        groups = one.settings.get("groups", one.sizes.get("G", 1))
        sizes = (int(groups), one.sizes.get("M", one.sizes.get("R", 0)), one.sizes["K"], one.sizes["N"])
        if sizes not in found or asks(one) < asks(found[sizes]):
            found[sizes] = one
    return dict(sorted(found.items()))


def _mean(values: list[float], worst: Callable[[list[float]], float]) -> str:
    if not values:
        return ""
    return f"{statistics.geometric_mean(values):.2f} ({worst(values):.2f})" if len(values) > 1 else f"{values[0]:.2f}"
