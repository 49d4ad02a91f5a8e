"""docs/kernels: a page for each kernel, and the list of all of them."""

from __future__ import annotations

from tools.documentation.text import NOTE, code, table
from zoo.benchmark.arguments import size_symbols
from zoo.benchmark.record import timings
from zoo.cli.contract import argument_rows, launches, parameter_text
from zoo.cli.list_kernels import families
from zoo.contract.manifest import Kernel
from zoo.shipped.evidence import Evidence, summary

INDEX_WORDS = """One page for each kernel: its arguments, constraints, options, launch, variants and recorded timings. `zoo show NAME` prints the same.

Kernels that differ in nothing but their format share a row. The last column says what has been seen of exactly the bytes that are shipped: evidence belongs to
a cubin's digest, so a rebuilt kernel starts with none, and `zoo verify --gpu --record` is how it is earned. [Quantising](../quantize.md) and [FP8 GEMM](../gemm.md) say which kernel is for what."""


def index_page(kernels: list[Kernel], evidence: Evidence) -> str:
    rows = []
    for name, members in families(kernels).items():
        if name == members[0].name:
            name, pages = _link(name, members[0]), ""
        else:
            name, pages = code(name), " ".join(_link(kernel.fields["formats"], kernel) for kernel in members)
        for arch in dict.fromkeys(arch for kernel in members for arch in kernel.archs):
            variants = [variant for kernel in members for variant in kernel.variants if variant.arch == arch]
            rows.append((name, pages, arch, len(variants), summary(evidence, variants)))
            name = pages = ""
    header = ("kernels", "formats", "arch", "cubins", "seen of exactly these bytes")
    return f"{NOTE}\n# The kernels\n\n{INDEX_WORDS}\n\n{table(header, rows)}\n"


def _link(text: str, kernel: Kernel) -> str:
    return f"[{code(text)}]({kernel.name}.md)"


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
        shape = {"grid": rule.grid, "cluster": rule.cluster}
        lines = [f"- {what}: `{', '.join(extent.text for extent in extents)}`" for what, extents in shape.items()]
        if rule.alone.text != "0":
            lines.append(f"- no other block shares its multiprocessor where: `{rule.alone.text}`")
        lines.append(f"- programmatic stream serialization: {'yes' if rule.programmatic else 'no'}")
        block = [(one.offset, one.size, one.kind, one.name, code(parameter_text(one))) for one in rule.parameters]
        parts.append(f"## Launch\nVariants that are launched this way: {', '.join(map(code, names))}.\n\n" + "\n".join(lines))
        parts.append(
            f"The parameter block has {rule.parameter_bytes} bytes:\n\n" + table(("offset", "bytes", "kind", "name", "value"), block)
        )
    variants = [
        (
            one.arch,
            code(one.name),
            one.threads,
            one.registers,
            one.static_shared + one.shared,
            one.spill_stores + one.spill_loads,
            summary(evidence, [one]),
        )
        for one in kernel.variants
    ]
    parts.append("## Variants\n" + table(("arch", "name", "threads", "registers", "shared", "spills", "seen"), variants))
    measured = [
        (one.arch, code(one.name), record["device"], size, figures["microseconds"], f"{figures['of_copy']:.3f}")
        for one in kernel.variants
        if (record := evidence.of(one).get("benchmark"))
        for size, figures in timings(evidence, kernel, one).items()
    ]
    if measured:
        words = "`of copy` is the share of the bandwidth of the faster copy of the same bytes, measured in the same run.\n\n"
        parts.append("## Measured\n" + words + table(("arch", "variant", "device", "sizes", "us", "of copy"), measured))
    return "\n\n".join(parts) + "\n"
