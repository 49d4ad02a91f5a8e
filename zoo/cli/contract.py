"""A kernel's manifest entry as text and as plain data."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from zoo.benchmark.arguments import size_meanings, size_symbols
from zoo.cli.text import paragraph, table
from zoo.contract.expressions import Expression
from zoo.contract.manifest import Argument, Form, Kernel, LaunchRule, Parameter, Variant
from zoo.shipped.evidence import Evidence, summary


def as_text(kernel: Kernel, evidence: Evidence) -> str:
    """All of it."""
    return "\n\n".join((title(kernel), arguments_text(kernel), parameters_text(kernel), variants_text(kernel, evidence), origin(kernel)))


def title(kernel: Kernel) -> str:
    return f"{kernel.name}\n{paragraph(kernel.summary, indent=2)}"


def arguments_text(kernel: Kernel) -> str:
    """What a caller gives, what it means, and what the kernel asks and promises."""
    meanings = size_meanings(kernel)
    sections = [paragraph(f"sizes  {meanings or ', '.join(size_symbols(kernel))}", hanging=7)]
    sections.append("arguments\n" + table(("name", "access", "dtype", "meaning"), list(argument_rows(kernel)), indent=2))
    if kernel.options:
        rows = [(name, option.default, f"{' | '.join(option.values)}; {option.help}") for name, option in kernel.options.items()]
        sections.append("options\n" + table(("name", "default", "values"), rows, indent=2))
    if kernel.constraints:
        lines = [paragraph(f"{words} ({expression.text})", indent=2, hanging=2) for expression, words in kernel.constraints]
        sections.append("constraints\n" + "\n".join(lines))
    if kernel.promises:
        lines = [f"  {'yes' if kept else 'no ':<4}{name.replace('_', ' ')}" for name, kept in kernel.promises.items()]
        sections.append("promises\n" + "\n".join(lines))
    return "\n\n".join(sections)


def parameters_text(kernel: Kernel) -> str:
    """How a launch follows from the sizes: grid, cluster and the parameter block."""
    sections = []
    if kernel.derived:
        lines = [paragraph(f"{name} = {expression.text}", indent=2, hanging=2) for name, expression in kernel.derived]
        sections.append("derived\n" + "\n".join(lines))
    rules = launches(kernel)
    for names, rule in rules:
        head = paragraph(f"launch of {', '.join(names)}", hanging=10) if len(rules) > 1 else "launch"
        sections.append(f"{head}\n{launch_text(rule)}")
    return "\n\n".join(sections)


def variants_text(kernel: Kernel, evidence: Evidence) -> str:
    """Each arch's tiles, their resources, and what has been seen of their cubins."""
    sections = [f"variants, named {name_pattern(kernel)}"]
    for arch in kernel.archs:
        variants = [variant for variant in kernel.variants if variant.arch == arch]
        sections.append(f"{paragraph(f'{arch}: {summary(evidence, variants)}', hanging=2)}\n{variant_table(kernel, variants)}")
    return "\n\n".join(sections)


def origin(kernel: Kernel) -> str:
    return f"source {kernel.source}\ntable  {kernel.table}\nin src_cu or your own tree; tiles may name other sources"


def argument_rows(kernel: Kernel) -> Iterable[tuple[str, str, str, str]]:
    """(name, access, dtype, meaning) of each argument."""
    for argument in kernel.arguments.values():
        parts = form_texts(argument)
        if argument.optional:
            parts.append("may be left out")
        elif argument.default is not None:
            parts.append(f"default {argument.default}")
        if argument.alignment > 1 and argument.kind == "array":
            parts.append(f"aligned to {argument.alignment} bytes")
        if argument.help:
            parts.append(argument.help)
        yield argument.name, argument.access, " ".join(argument.dtypes), "; ".join(parts)


def form_texts(argument: Argument, strides: bool = True) -> list[str]:
    """The shapes that an array may have, with when each holds where there are several."""
    return [_form_text(form, len(argument.forms) > 1, strides) for form in argument.forms]


def _form_text(form: Form, several: bool, strides: bool) -> str:
    text = f"({', '.join(extent.text for extent in form.shape)}{',' if len(form.shape) == 1 else ''})"
    if strides and form.strides is not None:
        text += f" strides ({', '.join(stride.text for stride in form.strides)})"
    return f"{text} if {form.when.text}" if several else text


def launches(kernel: Kernel) -> Collection[tuple[list[str], LaunchRule]]:
    """Each distinct launch rule with the tiles' variants that use it."""
    rules: dict[int, tuple[list[str], LaunchRule]] = {}
    for variant in kernel.variants:
        names, _ = rules.setdefault(id(variant.launch), ([], variant.launch))
        if variant.name not in names:
            names.append(variant.name)
    return rules.values()


def launch_text(rule: LaunchRule) -> str:
    lines = [_extents("grid     ", rule.grid)]
    if any(extent.text != "1" for extent in rule.cluster):
        lines.append(_extents("cluster  ", rule.cluster))
    if rule.alone.text != "0":
        lines.append(paragraph(f"alone     where {rule.alone.text}: no other block shares its multiprocessor", indent=2, hanging=10))
    if rule.programmatic:
        lines.append("  programmatic stream serialization")
    rows = [(one.offset, one.size, one.kind, one.name, parameter_text(one)) for one in rule.parameters]
    lines.append(table(("offset", "bytes", "kind", "name", f"parameter block, {rule.parameter_bytes} bytes"), rows, indent=2))
    return "\n".join(lines)


def _extents(label: str, extents: Iterable[Expression]) -> str:
    return paragraph(f"{label}{', '.join(extent.text for extent in extents)}", indent=2, hanging=len(label))


def parameter_text(parameter: Parameter) -> str:
    if parameter.value is not None:
        return parameter.value.text
    if parameter.recipe is None:
        return str(parameter.argument)
    recipe = parameter.recipe

    def all_of(expressions: Iterable[Expression]) -> str:
        return f"({', '.join(expression.text for expression in expressions)})"

    return (
        f"{parameter.argument} as {recipe.dtype}: dims {all_of(recipe.dims)}, strides {all_of(recipe.strides)}, box {all_of(recipe.box)}, "
        f"swizzle {recipe.swizzle}, L2 promotion {recipe.l2_promotion}, fill {recipe.fill}"
    )


def variant_table(kernel: Kernel, variants: list[Variant]) -> str:
    """One row a tile: its variants differ in dtypes and options only."""
    tiles: dict[str, list[Variant]] = {}
    for variant in variants:
        tiles.setdefault(tile_name(kernel, variant), []).append(variant)
    rows, notes = [], []
    for tile, members in tiles.items():
        constants = ", ".join(f"{name} = {value}" for name, value in members[0].constants.items())
        when = "" if members[0].when.text == "1" else f"; when {members[0].when.text}"
        spills = [one.spill_stores + one.spill_loads for one in members]
        shared = [one.static_shared + one.shared for one in members]
        resources = ([one.threads for one in members], [one.registers for one in members], shared, [one.stack for one in members], spills)
        rows.append((tile, len(members), *map(_range, resources)))
        notes.append(paragraph(f"{tile}: {constants}{when}", indent=2, hanging=2))
    return "\n".join((table(("tile", "cubins", "threads", "registers", "shared", "stack", "spills"), rows, indent=2), *notes))


def tile_name(kernel: Kernel, variant: Variant) -> str:
    """A variant's name less its dtypes and options."""
    dtypes = [dtype for name, dtype in variant.dtypes.items() if kernel.arguments[name].compiled]
    return variant.name.removeprefix("_".join((*dtypes, *variant.options.values()))).removeprefix("_")


def name_pattern(kernel: Kernel) -> str:
    """How variants are named: `<x>_<q>_<layout>_<tile>`."""
    several = [argument.name for argument in kernel.arguments.values() if len(argument.dtypes) > 1 and argument.compiled]
    compiled = [name for name, option in kernel.options.items() if option.compiled]
    return "_".join(f"<{part}>" for part in (*several, *compiled, "tile"))


def _range(numbers: list[int]) -> str:
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least}-{most}"


def as_data(kernel: Kernel, evidence: Evidence) -> dict[str, Any]:
    """Everything `as_text` says, for programs."""
    return {
        "name": kernel.name,
        "fields": kernel.fields,
        "summary": kernel.summary,
        "sizes": size_symbols(kernel),
        "promises": kernel.promises,
        "options": {
            name: {"values": list(o.values), "default": o.default, "compiled": o.compiled, "help": o.help}
            for name, o in kernel.options.items()
        },
        "arguments": [_argument_data(argument) for argument in kernel.arguments.values()],
        "derived": {name: expression.text for name, expression in kernel.derived},
        "constraints": [{"expression": expression.text, "words": words} for expression, words in kernel.constraints],
        "launches": [{"variants": names, **_launch_data(rule)} for names, rule in launches(kernel)],
        "variants": [_variant_data(variant, evidence) for variant in kernel.variants],
        "table": kernel.table,
        "source": kernel.source,
    }


def _texts(expressions: Iterable[Expression] | None) -> list[str] | None:
    return None if expressions is None else [expression.text for expression in expressions]


def _argument_data(argument: Argument) -> dict[str, Any]:
    plain = ("name", "kind", "access", "alignment", "optional", "default", "help")
    forms = [{"when": form.when.text, "shape": _texts(form.shape), "strides": _texts(form.strides)} for form in argument.forms]
    return {name: getattr(argument, name) for name in plain} | {"dtypes": list(argument.dtypes), "forms": forms}


def _launch_data(rule: LaunchRule) -> dict[str, Any]:
    parameters = [
        {"name": one.name, "offset": one.offset, "size": one.size, "kind": one.kind, "meaning": parameter_text(one)}
        for one in rule.parameters
    ]
    return {
        "grid": _texts(rule.grid),
        "cluster": _texts(rule.cluster),
        "alone": rule.alone.text,
        "programmatic": rule.programmatic,
        "parameter_bytes": rule.parameter_bytes,
        "parameters": parameters,
    }


def _variant_data(variant: Variant, evidence: Evidence) -> dict[str, Any]:
    plain = (
        "name", "arch", "dtypes", "options", "constants", "file", "bytes", "sha256", "source_sha256", "symbol", "signature",
        "threads", "registers", "static_shared", "shared", "stack", "spill_stores", "spill_loads",
    )  # fmt: skip
    texts = {"when": variant.when.text, "cost": variant.cost.text}
    return {name: getattr(variant, name) for name in plain} | texts | {"evidence": evidence.of(variant)}
