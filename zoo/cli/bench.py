"""`zoo bench`: how fast a kernel is, beside a copy of the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.benchmark.groups import DISTRIBUTIONS, Groups
from zoo.cli import collection

if TYPE_CHECKING:
    from zoo.benchmark.measure import Measurement
    from zoo.contract.manifest import Kernel
    from zoo.runtime.hardware import Hardware

    Measured = Sequence[tuple[Mapping[str, str | int], Measurement]]  # sizes and settings, and what was seen

_TERMINAL = "-"


def _shape(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> list[list[int]]:
    try:
        return [[int(part) for part in text.split(",")] for text in texts]
    except ValueError:
        raise click.BadParameter(f"{', '.join(texts)}: expected whole numbers between commas, such as 8192,7168") from None


def _settings(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if any(not separator or not name or not value for name, separator, value in pairs):
        raise click.BadParameter(f"{', '.join(texts)}: expected NAME=VALUE, such as layout=blocked")
    return {name: value for name, _, value in pairs}


def _plot_file(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    if text is not None and text != _TERMINAL and not text.endswith(".svg"):
        raise click.BadParameter(f"{text}: a plot goes to the terminal (--plot alone, after the kernel's name) or into a file named *.svg")
    return text


@click.command("bench")
@click.argument("kernels")
@click.option(
    "--shape", "shapes", metavar="M,K", multiple=True, callback=_shape,
    help="The sizes, in the order `zoo show` names them; may be repeated. Left out: the usual ones.",
)  # fmt: skip
@click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True, callback=_settings,
    help="An option, a scalar or an argument's dtype, which includes an optional one: layout=blocked, x=f32, index=i32.",
)  # fmt: skip
@click.option(
    "--groups", "counts", type=click.IntRange(1), multiple=True,
    help="How many groups, for kernels with offsets (default: 64); may be repeated.",
)  # fmt: skip
@click.option(
    "--sizes", "distributions", type=click.Choice(DISTRIBUTIONS), multiple=True,
    help="How rows spread over groups: evenly, like 1 / rank, or all in one of eight; may be repeated.",
)  # fmt: skip
@click.option("--variant", help="Pin a variant instead of the one the sizes choose.")
@click.option("--device", default=0, show_default=True, help="The GPU.")
@click.option("--beside", is_flag=True, help="Time cuBLASLt and torch's scaled_mm as well, where they multiply the same formats.")
@click.option("--record", is_flag=True, help="Write the ratios to a file of evidence.")
@click.option("--record-to", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.json", help="Record, to this file.")
@click.option(
    "--plot", "plot_file", metavar="[FILE.svg]", is_flag=False, flag_value=_TERMINAL, callback=_plot_file,
    help="Draw it, torch's points beside the kernel's: on the terminal, or into an SVG file. A product as a roofline, TFLOPS over operations "
    "a byte; other kernels as bandwidth over bytes.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    context: click.Context,
    kernels: str,
    shapes: list[list[int]],
    settings: dict[str, str],
    counts: tuple[int, ...],
    distributions: tuple[str, ...],
    variant: str | None,
    device: int,
    beside: bool,
    record: bool,
    record_to: Path | None,
    plot_file: str | None,
    as_json: bool,
) -> None:
    """Time kernels on the GPU.

    KERNELS is a name; a part of names or a pattern times each kernel it means. With --json a name gives one object, anything
    else a list of them.

    Calls are replayed from a CUDA graph over buffers larger than the L2 cache, in turns with copies of the same bytes;
    figures are medians. `of copy` is the share of the faster copy's bandwidth. Of a product, `tw us` is the time of torch's
    FP8 product of the same sizes, which has one scale for each whole operand; with --beside, `cuBLASLt us` and `torch scaled_mm us` are
    of products with the same scales as the kernel's.
    """
    from zoo.benchmark.measure import measure
    from zoo.benchmark.record import record as add_record
    from zoo.benchmark.record import words_of
    from zoo.benchmark.rivals import RIVALS
    from zoo.cli.recording import kept
    from zoo.cli.selection import selected
    from zoo.cli.text import progress
    from zoo.contract.files import refuse_unwritable
    from zoo.contract.nearest import a_few
    from zoo.runtime import driver
    from zoo.runtime.hardware import describe
    from zoo.shipped.evidence import recorder

    if as_json and plot_file == _TERMINAL:
        raise click.UsageError("--json and a plot do not go to one terminal: name a file, --plot FILE.svg")
    zoo = collection(context)
    chosen = selected(zoo, kernels)
    if plot_file is not None and len(chosen) > 1:
        raise click.UsageError(f"a plot is of one kernel, '{kernels}' means {a_few([kernel.name for kernel in chosen])}")
    # Before the device is opened: what is wrong with a call is wrong anywhere.
    calls = {kernel.name: _calls(kernel, shapes, settings, counts, distributions, variant) for kernel in chosen}
    evidence = recorder(zoo.directory, record_to) if record or record_to is not None else None
    if evidence is not None:
        evidence.refuse_unwritable()
    if plot_file not in (None, _TERMINAL):
        refuse_unwritable(Path(plot_file))
    machine = describe(driver.device(device))
    found: list[dict[str, Any]] = []
    with kept(evidence, err=True):
        for number, kernel in enumerate(chosen):
            measured: list[tuple[dict[str, str | int], Measurement]] = []
            try:
                with progress(calls[kernel.name], len(calls[kernel.name]), kernel.name) as steps:
                    for sizes, groups in steps:
                        seen = measure(zoo, kernel.name, sizes, settings, variant, device, groups, RIVALS if beside else {})
                        measured.append((words_of(kernel, sizes, settings, groups), seen))
            finally:
                if evidence is not None:
                    add_record(evidence, kernel, machine, measured)
            if as_json:
                found.append(_as_data(kernel, settings, machine, measured))
            else:
                head = f"{'' if number == 0 else chr(10)}{kernel.name}\n" if len(chosen) > 1 else ""
                click.echo(head + _as_text(machine, measured))
            if plot_file is not None:
                _draw(plot_file, kernel.name, machine.device, [seen for _, seen in measured])
    if as_json:
        click.echo(json.dumps(found[0] if kernels == chosen[0].name else found, indent=1))


def _calls(
    kernel: Kernel,
    shapes: list[list[int]],
    settings: dict[str, str],
    counts: tuple[int, ...],
    distributions: tuple[str, ...],
    variant: str | None,
) -> list[tuple[dict[str, int], Groups | None]]:
    """The sizes and groups to time a kernel at; a call that the loader would not take is refused."""
    from zoo.benchmark.arguments import check_call, named_sizes
    from zoo.benchmark.shapes import usual_shapes
    from zoo.contract.nearest import suggestion

    if (counts or distributions) and "offsets" not in kernel.arguments:
        raise click.UsageError(f"{kernel.name} has no offsets: leave out --groups and --sizes")
    names = list(dict.fromkeys(one.name for one in kernel.variants))
    if variant is not None and variant not in names:
        known = suggestion(variant, names, f"`zoo show {kernel.name} --variants` shows all {len(names)}")
        raise click.ClickException(f"{kernel.name}: variant '{variant}' does not exist; {known}")
    grouped = [Groups(number, distribution) for number in counts or (64,) for distribution in distributions or ("uniform",)]
    sizes = [named_sizes(kernel, numbers) for numbers in shapes or usual_shapes(kernel)]
    calls = [(one, groups) for groups in (grouped if "offsets" in kernel.arguments else [None]) for one in sizes]
    for one, groups in calls:
        check_call(kernel, one, settings, variant, groups)
    return calls


def _as_data(kernel: Kernel, settings: dict[str, str], machine: Hardware, measured: Measured) -> dict[str, Any]:
    from dataclasses import asdict

    rows = [
        {
            "sizes": sizes,
            **asdict(seen),
            "gigabytes_per_second": seen.gigabytes_per_second,
            "of_copy": seen.of_copy,
            "teraflops": seen.teraflops,
        }
        for sizes, seen in measured
    ]
    return {"kernel": kernel.name, "settings": settings, **asdict(machine), "measurements": rows}


def _draw(file: str, name: str, device: str, measured: Sequence[Measurement]) -> None:
    from zoo.benchmark.plot import plot
    from zoo.cli.svg_plot import as_svg
    from zoo.cli.terminal_plot import as_text
    from zoo.contract.files import write_file

    drawn = plot(name, device, measured)
    if file == _TERMINAL:
        click.echo("\n" + as_text(drawn))
    else:
        write_file(Path(file), as_svg(drawn).encode())
        click.echo(f"drawn {file}", err=True)


def _as_text(machine: Hardware, measured: Measured) -> str:
    from zoo.cli.text import table

    product = any(seen.operations for _, seen in measured)
    rows = []
    for sizes, seen in measured:
        tw = "-" if seen.torch_product_microseconds is None else f"{seen.torch_product_microseconds:.2f}"
        arithmetic = (f"{seen.teraflops:.0f}", tw) if product else ()
        torch = "-" if seen.torch_microseconds is None else f"{seen.torch_microseconds:.2f}"
        speed = (f"{seen.microseconds:.2f}", f"{seen.gigabytes_per_second:.0f}")
        copies = (f"{seen.copy_microseconds:.2f}", torch, f"{100 * seen.of_copy:.1f}%")
        timed = ["-" if isinstance(time, str) else f"{time:.2f}" for time in seen.rivals.values()]
        rows.append((*sizes.values(), *speed, *arithmetic, *timed, *copies, seen.variant))
    others = [f"{name} us" for name in measured[0][1].rivals]
    header = (
        *measured[0][0],
        "us",
        "GB/s",
        *(("TFLOPS", "tw us") if product else ()),
        *others,
        "copy us",
        "torch us",
        "of copy",
        "variant",
    )
    lines = [f"{machine.device}, driver {machine.driver}", table(header, rows)]
    reasons = {f"{name}: {why}": None for _, seen in measured for name, why in seen.rivals.items() if isinstance(why, str)}
    lines += reasons
    for sizes, seen in measured:
        if not seen.past_cache:
            lines.append(f"{', '.join(f'{name} = {value}' for name, value in sizes.items())}: so small that the L2 cache holds all buffers")
    return "\n".join(lines)
