"""docs/kernels: a page for each family and epilogue, and the list of them. `zoo show NAME` has the rest of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tools.documentation.text import NOTE, code, table
from zoo.cli.contract import form_texts
from zoo.cli.in_short import in_short_together, short_formats
from zoo.contract.archs import family_of
from zoo.contract.manifest import Kernel
from zoo.shipped.evidence import Evidence, summary

INDEX_WORDS = """A page lists the kernels that share formats and epilogue, with arguments, options and rules. `zoo show NAME` prints one kernel with a
call to paste. `--arguments`, `--parameters` and `--variants` print the rest of its contract, and `zoo bench --recorded NAME` prints its timings.
[Choose a kernel](../choose_a_kernel.md) has the kernel for each task.

The last column counts what has been seen of exactly the cubins that are shipped. `zoo verify --gpu --record` adds to it."""
_GEMMS = {"fp8b128": "fp8b128", "fp8_": "four_bit_weights", "bf16_": "four_bit_weights"}  # how formats begin -> family
_LACKING = {"extra": "no epilogue", "gradient": "forward"}  # of a kernel without the field
_EXTRAS = {"mxfp8": "quantised", "nvfp4": "quantised"}


def kernel_pages(kernels: Iterable[Kernel], evidence: Evidence) -> dict[str, str]:
    """file name -> text; README.md is the list."""
    pages: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        pages.setdefault(_page(kernel), []).append(kernel)
    rows = []
    for name, members in pages.items():
        archs = dict.fromkeys(arch for kernel in members for arch in kernel.archs)
        for number, arch in enumerate(archs):
            files = {one.file: one for kernel in members for one in kernel.variants if one.arch == arch}
            head = ("", "") if number else (f"[{name}]({name}.md)", len(members))
            rows.append((*head, family_of(arch), len(files), summary(evidence, files.values())))
    index = table(("page", "kernels", "chip", "cubins", "seen"), rows)
    made = {f"{name}.md": _text(name, members) for name, members in pages.items()}
    return made | {"README.md": f"{NOTE}\n# The kernels\n\n{INDEX_WORDS}\n\n{index}\n"}


def _page(kernel: Kernel) -> str:
    op, extra = kernel.fields["op"], kernel.fields.get("extra", "")
    if op == "gemm":
        formats = kernel.fields["formats"]
        family = next((family for begin, family in _GEMMS.items() if formats.startswith(begin)), "block_scaled")
        plain, _, result = extra.removesuffix("stored").strip("_").partition("_")
        parts = [plain, result] if family != "block_scaled" else [_EXTRAS.get(plain, plain), _EXTRAS.get(result, result)]
        return ".".join(filter(None, ("gemm", family, *parts)))
    if op in ("pack", "unpack", "dequantize", "experts", "norm"):
        return {"unpack": "pack"}.get(op, op)
    if op in ("scales", "requantize"):
        return "scales"
    return f"{op}.{extra or kernel.fields.get('direction', '')}"


def _text(name: str, members: Sequence[Kernel]) -> str:
    parts = [f"{NOTE}\n# {name}", table(("kernels", "what", "groupings"), _names(members))]
    of = _Who(members)
    arguments = [row for argument in dict.fromkeys(one for kernel in members for one in kernel.arguments) for row in of.argument(argument)]
    parts.append("## Arguments\n" + table(("name", "dtypes and shape", "meaning", "kernels"), arguments))
    options = [row for option in dict.fromkeys(one for kernel in members for one in kernel.options) for row in of.option(option)]
    if options:
        parts.append("## Options\n" + table(("name", "values, the default first", "meaning", "kernels"), options))
    rules = of.lines(lambda kernel: [words for _, words in kernel.constraints])
    rules += of.lines(lambda kernel: [f"{'' if kept else 'not '}{name.replace('_', ' ')}" for name, kept in kernel.promises.items()])
    return "\n\n".join([*parts, "## Rules and promises\n" + "\n".join(rules)]) + "\n"


def _names(members: Sequence[Kernel]) -> list[tuple[str, str, str]]:
    """A line for kernels that differ in formats and groupings alone."""
    found: dict[str, list[Kernel]] = {}
    for kernel in members:
        words = kernel.name.split(".")
        for field in ("formats", "grouping"):
            if kernel.fields.get(field) in words and len(_values(members, field)) > 1:
                words[words.index(kernel.fields[field])] = "*"
        found.setdefault(".".join(words), []).append(kernel)
    rows = []
    for name, ones in found.items():
        groupings = dict.fromkeys(kernel.fields["grouping"] for kernel in ones if "grouping" in kernel.fields)
        rows.append((code(ones[0].name if len(ones) == 1 else name), in_short_together(ones), ", ".join(groupings)))
    return rows


class _Who:
    """Which of a page's kernels something is true of, in few words; nothing where it is true of all."""

    def __init__(self, members: Sequence[Kernel]):
        self._members = members

    def argument(self, name: str) -> Iterable[tuple[str, str, str, str]]:
        holders = [kernel for kernel in self._members if name in kernel.arguments]

        def entry(kernel: Kernel) -> tuple[str, str]:
            one = kernel.arguments[name]
            shape = " or ".join(form_texts(one, strides=False)) if one.kind == "array" else ""
            left_out = ", or left out" if one.optional else f", default {one.default}" if one.default is not None else ""
            return " ".join(one.dtypes) + (f" {code(shape)}" if shape else "") + left_out, one.help or ""

        return self._rows(name, holders, entry)

    def option(self, name: str) -> Iterable[tuple[str, str, str, str]]:
        holders = [kernel for kernel in self._members if name in kernel.options]

        def entry(kernel: Kernel) -> tuple[str, str]:
            option = kernel.options[name]
            return ", ".join(sorted(option.values, key=lambda value: value != option.default)), option.help

        return self._rows(name, holders, entry)

    def lines(self, of: Callable[[Kernel], list[str]]) -> list[str]:
        found: dict[str, list[Kernel]] = {}
        for kernel in self._members:
            for words in of(kernel):
                found.setdefault(words, []).append(kernel)
        return [f"- {words}" + (f" ({who})" if (who := self.words(ones)) else "") for words, ones in found.items()]

    def _rows(self, name: str, holders: list[Kernel], entry: Callable[[Kernel], tuple[str, str]]) -> Iterable[tuple[str, str, str, str]]:
        """A row for each kind of this argument; its meaning is said where it changes."""
        kinds: dict[tuple[str, str], list[Kernel]] = {}
        for kernel in holders:
            kinds.setdefault(entry(kernel), []).append(kernel)
        said = None
        meanings = list(dict.fromkeys(meaning for _, meaning in kinds))
        for number, ((first, meaning), ones) in enumerate(sorted(kinds.items(), key=lambda one: meanings.index(one[0][1]))):
            yield code(name) if number == 0 else "", first, meaning if meaning != said else "", self.words(ones)
            said = meaning

    def words(self, ones: list[Kernel]) -> str:
        """`fp8b128 mxfp8, dense`: the formats and groupings that these have and others lack; names where that is not enough."""
        if len(ones) == len(self._members):
            return ""
        chosen, kept = self._members, []
        for field in ("op", "direction", "arrangement", "step", "gradient", "extra", "formats", "grouping"):
            mine, others = _values(ones, field), _values(chosen, field)
            if mine != others:
                kept.append(
                    short_formats(mine) if field == "formats" else ", ".join(one or _LACKING.get(field, f"no {field}") for one in mine)
                )
                chosen = [kernel for kernel in chosen if kernel.fields.get(field, "") in mine]
        if len(chosen) == len(ones):
            return "; ".join(kept)
        return f"{len(ones)} of {len(self._members)}"


def _values(kernels: Iterable[Kernel], field: str) -> list[str]:
    return list(dict.fromkeys(kernel.fields.get(field, "") for kernel in kernels))
