"""`zoo bench`: how fast a kernel is, beside a copy of the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from zoo.benchmark.groups import DISTRIBUTIONS, Groups
from zoo.cli import collection
from zoo.cli.completion import KernelName, Setting, VariantName
from zoo.cli.shape import typed_sizes
from zoo.cli.text import cut
from zoo.contract.whole_numbers import LONGEST

if TYPE_CHECKING:
    from zoo.benchmark.measure import Measurement
    from zoo.contract.manifest import Kernel
    from zoo.runtime.hardware import Hardware

    Measured = Sequence[tuple[Mapping[str, str | int], Measurement]]  # sizes and settings, and what was seen

_TERMINAL = "-"


def _shape(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> list[list[int]]:
    return [typed_sizes(text) for text in texts]


def _settings(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if any(not separator or not name or not value for name, separator, value in pairs):
        raise click.BadParameter(f"{cut(', '.join(texts), LONGEST)}: expected NAME=VALUE, such as layout=blocked")
    return {name: value for name, _, value in pairs}


def _plot_file(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    if text is not None and text != _TERMINAL and not text.endswith(".svg"):
        raise click.BadParameter(
            f"{cut(text, LONGEST)}: a plot goes to the terminal (--plot alone, after the kernel's name) or into a file named *.svg"
        )
    return text


@click.command("bench")
@click.argument("kernels", type=KernelName(), required=False)
@click.option(
    "--shape", "shapes", metavar="M,N,K", multiple=True, callback=_shape,
    help="The sizes in the order M, N, K, as `zoo show` names them; may be repeated. Left out: the usual ones.",
)  # fmt: skip
@click.option(
    "--set", "settings", metavar="NAME=VALUE", type=Setting(), multiple=True, callback=_settings,
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
@click.option("--variant", metavar="TEXT", type=VariantName(), help="Pin a variant instead of the one the sizes choose.")
@click.option("--device", default=0, show_default=True, help="The GPU.")
@click.option("--alone", is_flag=True, help="Time no other library's products beside a GEMM.")
@click.option(
    "--recorded", is_flag=True,
    help="Print the timings that are shipped with the cubins and start nothing. Without KERNELS: all of them.",
)  # fmt: skip
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
    kernels: str | None,
    shapes: list[list[int]],
    settings: dict[str, str],
    counts: tuple[int, ...],
    distributions: tuple[str, ...],
    variant: str | None,
    device: int,
    alone: bool,
    recorded: bool,
    record: bool,
    record_to: Path | None,
    plot_file: str | None,
    as_json: bool,
) -> None:
    """Time kernels on the GPU.

    KERNELS is a name; a part of names or a pattern times each kernel it means. With --json a name gives one object, anything
    else a list of them.

    Calls are replayed from a CUDA graph over buffers larger than the L2 cache, in turns with copies of the same bytes;
    figures are medians. `of copy` is the share of the faster copy's bandwidth.

    A GEMM is timed beside the products of torch, DeepGEMM, triton_kernels and humming that can be imported, on random
    operands of the same sizes. Each result is checked first. zoo is `82% faster` where the other's time is 82 % longer.

    `zoo bench layer` times whole layers of zoo.torch.nn; `zoo bench layer --help` has its options.
    """
    from zoo.benchmark.measure import measure
    from zoo.benchmark.record import record as add_record
    from zoo.benchmark.record import words_of
    from zoo.benchmark.rivals import RIVALS
    from zoo.cli.recorded import recorded_tables
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
    if recorded:
        _refuse_options_of_a_run(context)
        click.echo(recorded_tables(zoo, kernels or "*", as_json))
        return
    if kernels is None:
        raise click.UsageError("name the kernels to time: `zoo list` shows them, `zoo bench --recorded` prints what was timed before")
    chosen = selected(zoo, kernels)
    if plot_file is not None and len(chosen) > 1:
        raise click.UsageError(f"a plot is of one kernel, '{kernels}' means {a_few([kernel.name for kernel in chosen])}")
    # Before the device is opened: what is wrong with a call is wrong anywhere.
    calls = {kernel.name: calls_of(kernel, shapes, settings, counts, distributions, variant) for kernel in chosen}
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
            label = kernel.name if len(chosen) == 1 else f"{number + 1} of {len(chosen)}, {kernel.name}"
            try:
                with progress(calls[kernel.name], len(calls[kernel.name]), label) as steps:
                    for sizes, groups in steps:
                        seen = measure(zoo, kernel.name, sizes, settings, variant, device, groups, {} if alone else RIVALS)
                        measured.append((words_of(kernel, sizes, settings, groups), seen))
            finally:
                if evidence is not None:
                    add_record(evidence, kernel, machine, measured)
            if as_json:
                found.append(as_data(kernel, settings, machine, measured))
            else:
                head = f"{'' if number == 0 else chr(10)}{kernel.name}\n" if len(chosen) > 1 else ""
                click.echo(head + _as_text(kernel, settings, machine, measured))
            if plot_file is not None:
                _draw(plot_file, kernel.name, machine.device, [seen for _, seen in measured])
    if as_json:
        click.echo(json.dumps(found[0] if kernels == chosen[0].name else found, indent=1))


def _refuse_options_of_a_run(context: click.Context) -> None:
    """Or whoever asks for a size or a plot takes what is printed for it."""
    typed = [
        one.opts[0]
        for one in context.command.params
        if isinstance(one, click.Option)
        and one.name not in ("recorded", "as_json")
        and context.get_parameter_source(str(one.name)) is not ParameterSource.DEFAULT
    ]
    if typed:
        raise click.UsageError(f"--recorded prints all timings of the kernels: leave out {', '.join(typed)}")


def calls_of(
    kernel: Kernel,
    shapes: Sequence[Sequence[int]],
    settings: Mapping[str, str] = MappingProxyType({}),
    counts: tuple[int, ...] = (),
    distributions: tuple[str, ...] = (),
    variant: str | None = None,
) -> list[tuple[dict[str, int], Groups | None]]:
    """The sizes and groups to time a kernel at; a call that the loader would not take is refused."""
    from zoo.benchmark.arguments import check_call, named_sizes, takes_groups
    from zoo.benchmark.shapes import usual_shapes
    from zoo.cli.selection import refuse_unknown_variant

    if (counts or distributions) and not takes_groups(kernel):
        raise click.UsageError(f"{kernel.name} has no offsets: leave out --groups and --sizes")
    refuse_unknown_variant(kernel, variant)
    grouped = [Groups(number, distribution) for number in counts or (64,) for distribution in distributions or ("uniform",)]
    sizes = [named_sizes(kernel, numbers) for numbers in shapes or usual_shapes(kernel)]
    calls = [(one, groups) for groups in (grouped if takes_groups(kernel) else [None]) for one in sizes]
    for one, groups in calls:
        check_call(kernel, one, settings, variant, groups)
    return calls


def as_data(kernel: Kernel, settings: dict[str, str], machine: Hardware, measured: Measured) -> dict[str, Any]:
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


def _of_products(measured: Measured) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """A row for zoo and one for each other library that has a time. zoo is 82% faster where the other's time is 82 % longer."""
    rows: list[tuple[object, ...]] = []
    for sizes, seen in measured:
        rows.append((*sizes.values(), f"zoo {seen.variant}", f"{seen.microseconds:.2f}", f"{seen.teraflops:.0f}", ""))
        for name, time in seen.rivals.items():
            if isinstance(time, float):
                share = time / seen.microseconds
                faster = f"{100 * share - 100:.0f}% faster" if share >= 1 else f"{100 / share - 100:.0f}% slower"
                rows.append((*("" for _ in sizes), name, f"{time:.2f}", f"{seen.operations / time / 1e6:.0f}", faster))
    return (*measured[0][0], "who", "us", "TFLOPS", "zoo is"), rows


def _of_copies(measured: Measured) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """A row for each size, beside copies of as many bytes."""
    rows: list[tuple[object, ...]] = []
    for sizes, seen in measured:
        torch = "-" if seen.torch_microseconds is None else f"{seen.torch_microseconds:.2f}"
        copies = (f"{seen.copy_microseconds:.2f}", torch, f"{100 * seen.of_copy:.1f}%")
        rows.append((*sizes.values(), f"{seen.microseconds:.2f}", f"{seen.gigabytes_per_second:.0f}", *copies, seen.variant))
    return (*measured[0][0], "us", "GB/s", "copy us", "torch us", "of copy", "variant"), rows


def _as_text(kernel: Kernel, settings: Mapping[str, str], machine: Hardware, measured: Measured) -> str:
    from zoo.benchmark.rivals import other_job
    from zoo.cli.text import table

    header, rows = (_of_products if any(seen.operations for _, seen in measured) else _of_copies)(measured)
    lines = [f"{machine.device}, driver {machine.driver}", table(header, rows)]
    timed = [name for name in measured[0][1].rivals if any(isinstance(seen.rivals[name], float) for _, seen in measured)]
    lines += [f"{name} {how}" for name in timed if (how := other_job(name, kernel.fields.get("formats", ""), settings))]
    reasons: dict[str, dict[str, None]] = {}
    for _, seen in measured:
        for name, why in seen.rivals.items():
            if isinstance(why, str):
                reasons.setdefault(why, {})[name] = None
    lines += [f"{', '.join(names)}: {why}" for why, names in reasons.items()]
    for sizes, seen in measured:
        if not seen.past_cache:
            lines.append(f"{', '.join(f'{name} = {value}' for name, value in sizes.items())}: so small that the L2 cache holds all buffers")
    return "\n".join(lines)
