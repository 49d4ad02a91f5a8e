"""Writes what the documentation says of the kernels, from cubins/manifest.json and cubins/evidence.json.

python tools/generate_docs.py              README.md and docs/lab/quantize.md between their markers, docs/kernels/*.md, docs/benchmarks.md
python tools/generate_docs.py --check      exit 1 naming what is out of date
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.standing import standing_table  # noqa: E402
from zoo.benchmark.arguments import size_symbols  # noqa: E402
from zoo.cli.contract import argument_rows, launches, parameter_text  # noqa: E402
from zoo.cli.list_kernels import families
from zoo.contract.manifest import Kernel, Manifest  # noqa: E402
from zoo.shipped.evidence import Evidence, summary  # noqa: E402

KERNELS = "<!-- kernels: written by tools/generate_docs.py -->", "<!-- end of kernels -->"
STANDING = "<!-- table: written by tools/generate_docs.py -->", "<!-- end of table -->"
# What a copy takes on an H200, in microseconds; of some lengths it takes half as long again.
LAUNCH, TERABYTES_PER_SECOND, SLOW = 1.6, 4.25, 1.15
BENCHMARK_WORDS = """`zoo bench` of exactly the bytes that are shipped. Only variants of bf16 and e4m3 are here, the others' figures are in `cubins/evidence.json`. A dtype under "with" is that of an optional
argument that was given (`i32`: `index`); kernels with groups: how many, and how rows spread over them (`uniform`, `zipf`, `empty`: seven of eight have none).

GEMMs: the variant that the sizes chose when it was timed (rules may have changed since), and of `dense` the time of torch's FP8 product, with one scale for each whole operand, in the same run. Copies are replayed between, in which the chip rests:
many tokens take less time here than where product follows product ([their lab book](lab/fp8_gemm.md)): M = 4096, N = 2048, K = 7168 takes torch 81 us instead of 94, and zoo 94 instead of 100. `uniform` groups are even here. `u8`: with a workspace.

Others, as `tools/record_benchmarks.py` recorded them: the share of the bandwidth of the faster of the driver's copy and torch's `copy_` of as many bytes, replayed in turns with the kernel (every
input read once, every output written once, scales and padding included). Copies of some lengths are slow themselves: where one takes 15 % longer than 1.6 us + bytes / 4.25 TB/s, the kernel's own
bandwidth stands, which ends at about 4.35 TB/s. What the figures mean and what bounds them is in [the lab book](lab/quantize.md)."""
NOTE = "<!-- written by tools/generate_docs.py from the manifest and the evidence; do not edit -->"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where something is out of date")
    check = parser.parse_args().check
    wanted = pages(ROOT)
    stale = [path for path in sorted((ROOT / "docs" / "kernels").glob("*.md")) if path not in wanted]
    outdated = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if check:
        for path in outdated + stale:
            print(f"{path.relative_to(ROOT)} is out of date; run tools/generate_docs.py", file=sys.stderr)
        sys.exit(1 if outdated or stale else 0)
    for path in outdated:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path])
        print(f"wrote {path.relative_to(ROOT)}")
    for path in stale:
        path.unlink()
        print(f"removed {path.relative_to(ROOT)}")


def pages(root: Path) -> dict[Path, str]:
    """Every generated file and what it should hold."""
    directory = root / "cubins"
    manifest, evidence = Manifest(directory / "manifest.json"), Evidence(directory)
    kernels = [manifest.kernel(name) for name in manifest.names]
    made = {root / "docs" / "kernels" / f"{kernel.name}.md": kernel_page(kernel, evidence) for kernel in kernels}
    made[root / "docs" / "benchmarks.md"] = benchmark_page(kernels, evidence)
    made[root / "README.md"] = between(KERNELS, root / "README.md", kernel_list(kernels, evidence))
    book = root / "docs" / "lab" / "quantize.md"
    made[book] = between(STANDING, book, standing_table(kernels, evidence))
    return made


def between(markers: tuple[str, str], page: Path, text: str) -> str:
    begin, end = markers
    before, _, rest = page.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"{page.name} has lost its markers: {begin} and {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def kernel_list(kernels: list[Kernel], evidence: Evidence) -> str:
    """Kernels that differ in their formats only share a row, whose formats link to their pages."""
    rows = []
    for family, members in families(kernels).items():
        if family == members[0].name:
            family, pages = link(family, members[0]), ""
        else:
            family, pages = code(family), " ".join(link(kernel.fields["formats"], kernel) for kernel in members)
        for arch in dict.fromkeys(arch for kernel in members for arch in kernel.archs):
            variants = [variant for kernel in members for variant in kernel.variants if variant.arch == arch]
            rows.append((family, pages, arch, len(variants), summary(evidence, variants)))
            family = pages = ""
    return table(("kernels", "formats", "arch", "cubins", "seen of exactly these bytes"), rows)


def benchmark_page(kernels: list[Kernel], evidence: Evidence) -> str:
    """A table a kernel. The kernels' own pages have all figures."""
    parts = [f"{NOTE}\n# Benchmarks", BENCHMARK_WORDS]
    for kernel in kernels:
        timings = list(timings_of(kernel, evidence))
        if timings:
            made = product_table(kernel, timings) if kernel.fields["op"] == "gemm" else share_table(timings)
            parts.append(f"## {kernel.name}\n{', '.join(dict.fromkeys(one.machine for one in timings))}\n\n{made}")
    return "\n\n".join(parts) + "\n"


@dataclass(frozen=True)
class Timing:
    machine: str
    variant: str
    sizes: tuple[int, ...]
    settings: str
    figures: dict[str, float]

    @property
    def words(self) -> str:
        return " x ".join(map(str, self.sizes))


def timings_of(kernel: Kernel, evidence: Evidence) -> Iterator[Timing]:
    """Those of bf16 and e4m3."""
    for variant in kernel.variants:
        record = evidence.of(variant).get("benchmark")
        if record is None or {"f16", "f32", "e5m2"} & {dtype for name, dtype in variant.dtypes.items() if not name.startswith("scales")}:
            continue
        for words, figures in record["shapes"].items():
            pairs = dict(word.split("=") for word in words.split())
            sizes = tuple(int(pairs.pop(symbol)) for symbol in size_symbols(kernel) if symbol in pairs)
            settings = ", ".join(f"{value} {name}" if name == "groups" else value for name, value in pairs.items())
            yield Timing(f"{record['device']}, driver {record['driver']}", code(variant.name), sizes, settings, figures)


def share_table(timings: list[Timing]) -> str:
    """Variants down, sizes across."""
    sizes = {one.words: None for one in sorted(timings, key=lambda one: one.sizes)}
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for one in timings:
        rows.setdefault((one.variant, one.settings), {})[one.words] = share(one.figures)
    return table(("variant", "with", *sizes), [(*name, *(row.get(size, "") for size in sizes)) for name, row in rows.items()])


def product_table(kernel: Kernel, timings: list[Timing]) -> str:
    """Sizes down, what the variant that they choose reached across."""
    rows = []
    dense = kernel.fields["grouping"] == "dense"  # of groups torch would multiply all rows by one matrix
    for one in sorted(timings, key=lambda one: (one.settings, one.sizes)):
        microseconds, torch = one.figures["microseconds"], one.figures.get("torch_product_microseconds")
        rates = (f"{one.figures['operations'] / microseconds / 1e6:.0f}", f"{one.figures['bytes'] / microseconds / 1e6:.2f}")
        beside = ("", "") if torch is None else (f"{torch:.2f}", f"{microseconds / torch:.3f}")
        rows.append((one.words, one.settings, one.variant, f"{microseconds:.2f}", *rates, *(beside if dense else ())))
    header = (" x ".join(size_symbols(kernel)), "with", "variant", "us", "TFLOPS", "TB/s")
    return table(header + (("torch us", "of torch's time") if dense else ()), rows)


def share(figures: dict[str, float]) -> str:
    """Of the faster copy's bandwidth; where that copy was slow itself, the kernel's bandwidth."""
    microseconds, of_copy, megabytes = figures["microseconds"], figures["of_copy"], figures.get("bytes", 0) / 1e6
    if microseconds * of_copy > SLOW * (LAUNCH + megabytes / TERABYTES_PER_SECOND):
        return f"{megabytes / microseconds:.2f} TB/s"
    return f"{figures['of_copy']:.3f}"


def link(text: str, kernel: Kernel) -> str:
    return f"[{code(text)}](docs/kernels/{kernel.name}.md)"


def table(header: tuple[str, ...], rows: list[tuple]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`"


def kernel_page(kernel: Kernel, evidence: Evidence) -> str:
    parts = [f"{NOTE}\n# {kernel.name}", f"{kernel.summary}."]
    origin = f"Source: `src_cu/{kernel.source}`, table: `src_cu/{kernel.table}`."
    parts.append(f"Sizes: {', '.join(size_symbols(kernel))}, all chosen at run time. {origin}")
    rows = [(code(name), access, dtypes, meaning) for name, access, dtypes, meaning in argument_rows(kernel)]
    parts.append("## Arguments\n" + table(("name", "access", "dtype", "meaning"), rows))
    if kernel.options:
        options = [
            (code(name), ", ".join(map(code, option.values)), code(option.default), option.help) for name, option in kernel.options.items()
        ]
        parts.append("## Options\n" + table(("name", "values", "default", "meaning"), options))
    if kernel.constraints:
        lines = [f"- {words}: `{expression.text}`" for expression, words in kernel.constraints]
        if kernel.derived:
            lines.append("\nwith " + ", ".join(f"`{name} = {expression.text}`" for name, expression in kernel.derived))
        parts.append("## Constraints\n" + "\n".join(lines))
    if kernel.promises:
        promises = [f"- {name.replace('_', ' ')}: {'yes' if kept else 'no'}" for name, kept in kernel.promises.items()]
        parts.append("## Promises\n" + "\n".join(promises))
    for names, rule in launches(kernel):
        shape = [("threads", rule.threads), ("grid", rule.grid), ("cluster", rule.cluster), ("dynamic shared memory", rule.shared)]
        lines = [f"- {what}: `{', '.join(e.text for e in value) if isinstance(value, tuple) else value.text}`" for what, value in shape]
        lines.append(f"- programmatic stream serialization: {'yes' if rule.programmatic else 'no'}")
        block = [(one.offset, one.size, one.kind, code(parameter_text(one))) for one in rule.parameters]
        parts.append(f"## Launch\n{len(names)} variants a device family.\n\n" + "\n".join(lines))
        parts.append(f"The parameter block has {rule.parameter_bytes} bytes:\n\n" + table(("offset", "bytes", "kind", "value"), block))
    variants = [
        (one.arch, code(one.name), one.registers, one.static_shared, one.spill_stores + one.spill_loads, summary(evidence, [one]))
        for one in kernel.variants
    ]
    parts.append("## Variants\n" + table(("arch", "name", "registers", "shared", "spills", "seen"), variants))
    measured = [
        (one.arch, code(one.name), record["device"], size, figures["microseconds"], f"{figures['of_copy']:.3f}")
        for one in kernel.variants
        if (record := evidence.of(one).get("benchmark"))
        for size, figures in record["shapes"].items()
    ]
    if measured:
        words = "`of copy` is the share of the bandwidth of the faster copy of the same bytes, measured in the same run.\n\n"
        parts.append("## Measured\n" + words + table(("arch", "variant", "device", "sizes", "us", "of copy"), measured))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
