"""`zoo tune`: measures the tiles of kernels on this GPU, and writes the costs by which calls choose among them."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zoo.cli import collection
from zoo.cli.completion import KernelName

if TYPE_CHECKING:
    from zoo.benchmark.tune import Timer
    from zoo.contract.costs import MeasuredVariant
    from zoo.contract.manifest import Kernel
    from zoo.runtime.driver import Device

_SECONDS, _MOST_SECONDS = 240.0, 285.0  # of all kernels together: the seconds that they share, and after which no call begins


@click.command("tune")
@click.argument("kernels", type=KernelName(), default="*")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("zoo_costs.json"), show_default=True,
              help="The file. Other kernels that it already has for this GPU stay.")  # fmt: skip
@click.option("--device", default=0, show_default=True, help="The GPU.")
@click.pass_context
def command(context: click.Context, kernels: str, output: Path, device: int) -> None:
    """Measure on this GPU which tiles are fast.

    The costs by which calls choose a variant were measured on an H200. This command times the variants of GEMMs on calls that a seed
    draws, and writes numbers for this GPU to a file. The environment variable ZOO_COSTS names the file to the loaders of Python and C.
    All kernels together take less than five minutes.
    """
    from zoo.benchmark.tune import GraphTimer
    from zoo.cli.selection import selected
    from zoo.cli.system import warn_of_foreign_load
    from zoo.contract.costs import VARIABLE
    from zoo.contract.files import refuse_unwritable
    from zoo.runtime import driver
    from zoo.runtime.costs import kernel_on

    os.environ.pop(VARIABLE, None)  # what is measured does not depend on what was measured before
    refuse_unwritable(output)
    zoo = collection(context)
    chosen = selected(zoo, kernels)
    opened = driver.device(device)
    warn_of_foreign_load(opened)
    _tune([kernel_on(kernel, opened) for kernel in chosen], opened, GraphTimer(zoo, opened), output)


def _tune(kernels: list[Kernel], device: Device, timer: Timer, output: Path) -> None:
    from zoo.benchmark.tune import shares, tune
    from zoo.cli.system import ended_in_order, undisturbed
    from zoo.cli.text import Steps, count, fact, listed
    from zoo.contract.costs import SCHEMA, VARIABLE, Costs, as_measured, text_of, tunable
    from zoo.contract.files import write_file
    from zoo.contract.resolve import pick_arch
    from zoo.errors import DriverError

    archs = {kernel.name: pick_arch(kernel.archs, device.capability) or "" for kernel in kernels}
    chosen = [kernel for kernel in kernels if len(tunable(kernel, archs[kernel.name])) > 1]
    if not chosen:
        raise click.ClickException(f"none of these kernels has a choice of measured tiles on {device.name}")
    found = _kept(output, device)
    steps, written, missed, end = Steps(len(chosen)), -1, list[str](), time.monotonic() + _MOST_SECONDS
    try:
        with ended_in_order():
            tiles = [len(tunable(kernel, archs[kernel.name])) for kernel in chosen]
            for kernel, seconds in zip(chosen, shares(tiles, _SECONDS), strict=True):
                left = end - time.monotonic()
                if left < 0:
                    missed.append(kernel.name)
                    continue
                steps.begin(f"tuning {kernel.name}")
                try:
                    seen = tune(kernel, device, timer, seconds, left)
                except DriverError as error:
                    steps.end(fact("failed", f"{kernel.name}: {error}"))
                    continue
                if seen is None:
                    steps.end(fact("no calls", f"{kernel.name}: too few drawn calls with a choice of variants were timed"))
                    continue
                found.pop(kernel.name, None)  # the shipped numbers, unless the new ones are better
                if seen.better:
                    found[kernel.name] = as_measured(seen.kernel, archs[kernel.name])
                with undisturbed():
                    write_file(output, text_of(Costs(SCHEMA, device.name, device.multiprocessors, found)).encode("ascii"))
                written = len(found)  # a full disk keeps the file of the kernel before
                failed = f"; {count(seen.failed, 'call')} failed" if seen.failed else ""
                loss = f"choices {100 * seen.lost:.1f} % slower than the fastest, {100 * seen.lost_before:.1f} % as shipped{failed}"
                steps.end(fact("tuned" if seen.better else "as shipped", f"{kernel.name}: {count(seen.calls, 'call')}; {loss}"))
    finally:
        if missed:
            click.echo(fact("no time", f"for {count(len(missed), 'kernel')}, whose numbers stay: {listed(missed)}"))
        if written >= 0:
            click.echo(fact("written", f"{output}: {count(written, 'kernel')}. Use it:"))
            click.echo(f"export {VARIABLE}={shlex.quote(str(output.absolute()))}")


def _kept(output: Path, device: Device) -> dict[str, dict[str, MeasuredVariant]]:
    """What the file has already, which must be of this chip."""
    from zoo.contract.costs import read_costs, refuse_other_chip

    if not output.exists():
        return {}
    advice = "delete the file, or choose another --output"
    costs = read_costs(output, advice)
    refuse_other_chip(output, costs, device.name, device.multiprocessors, advice)
    return dict(costs.kernels)
