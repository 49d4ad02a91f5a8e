"""`zoo tune`: measures the tiles of kernels on this GPU, and writes the costs by which calls choose among them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zoo.cli import collection
from zoo.cli.completion import KernelName

if TYPE_CHECKING:
    from zoo.benchmark.tune import Timer
    from zoo.catalog import Zoo
    from zoo.contract.costs import Costs, MeasuredVariant
    from zoo.contract.manifest import Kernel
    from zoo.runtime.driver import Device

_SECONDS = 270.0  # of all kernels together


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
    from zoo.contract.costs import VARIABLE
    from zoo.contract.files import refuse_unwritable
    from zoo.runtime import driver

    os.environ.pop(VARIABLE, None)  # what is measured does not depend on what was measured before
    refuse_unwritable(output)
    zoo = collection(context)
    opened = driver.device(device)
    _tune(zoo, selected(zoo, kernels), opened, GraphTimer(zoo, opened), output)


def _tune(zoo: Zoo, kernels: list[Kernel], device: Device, timer: Timer, output: Path) -> None:
    from zoo.benchmark.tune import shares, tune
    from zoo.cli.system import ended_in_order, undisturbed
    from zoo.cli.text import Steps, count, fact
    from zoo.contract.costs import SCHEMA, VARIABLE, Costs, as_measured, text_of, tunable
    from zoo.contract.files import write_file
    from zoo.contract.resolve import pick_arch

    archs = {kernel.name: pick_arch(kernel.archs, device.capability) or "" for kernel in kernels}
    chosen = [kernel for kernel in kernels if len(tunable(kernel, archs[kernel.name])) > 1]
    if not chosen:
        raise click.ClickException(f"none of these kernels has a choice of measured tiles on {device.name}")
    found = _kept(zoo, output, device)
    steps, done = Steps(len(chosen)), 0
    try:
        with ended_in_order():
            tiles = [len(tunable(kernel, archs[kernel.name])) for kernel in chosen]
            for kernel, seconds in zip(chosen, shares(tiles, _SECONDS), strict=True):
                steps.begin(f"tuning {kernel.name}")
                seen = tune(kernel, device, timer, seconds)
                if seen is None:
                    steps.end(fact("no calls", f"{kernel.name}: no drawn call has a choice of variants"))
                    continue
                found[kernel.name] = as_measured(seen.kernel, archs[kernel.name])
                done += 1
                loss = f"choices {100 * seen.lost:.1f} % slower than the fastest, {100 * seen.lost_before:.1f} % before"
                steps.end(fact("tuned", f"{kernel.name}: {count(seen.calls, 'call')}; {loss}"))
    finally:
        if done:
            with undisturbed():
                write_file(output, text_of(Costs(SCHEMA, device.name, device.multiprocessors, found)).encode("ascii"))
            click.echo(fact("written", f"{output}: {count(len(found), 'kernel')}. Use it: export {VARIABLE}={output.absolute()}"))


def _kept(zoo: Zoo, output: Path, device: Device) -> dict[str, dict[str, MeasuredVariant]]:
    """What the file has already for this chip and these cubins."""
    from zoo.contract.costs import read_costs, refuse_other_chip
    from zoo.contract.resolve import pick_arch

    if not output.exists():
        return {}
    costs: Costs = read_costs(output)
    refuse_other_chip(output, costs, device.name, device.multiprocessors)
    known = [kernel for name in costs.kernels if (kernel := zoo.manifest.kernel(name)) is not None]
    arch = {kernel.name: pick_arch(kernel.archs, device.capability) or "" for kernel in known}
    return {kernel.name: costs.kernels[kernel.name] for kernel in known if costs.applied(kernel, arch[kernel.name]) is not None}
