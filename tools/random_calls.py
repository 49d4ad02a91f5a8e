"""Random calls of every kernel that quantises, dequantises or rearranges scales, on this machine's GPU, against zoo.reference.

    python tools/random_calls.py 'quantize.*' --seconds 60 --seed 1 --cubins DIRECTORY

The emulator's run of the same is tests/emulator/test_random_quantisers.py.
"""

from __future__ import annotations

import time

import click
import numpy

from zoo.catalog import Zoo
from zoo.checks.gpu import executor, runnable
from zoo.checks.problem import difference
from zoo.checks.sampled import ByNumbers, can_sample, sample
from zoo.errors import VariantError
from zoo.runtime import driver
from zoo.shipped.places import cubins_directory


@click.command()
@click.argument("pattern", default="*")
@click.option("--seconds", default=60, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--cubins", type=click.Path(exists=True), help="Another folder than the packaged one.")
def command(pattern: str, seconds: int, seed: int, cubins: str | None) -> None:
    zoo = Zoo(cubins or cubins_directory())
    device = driver.device(0)
    work = [(kernel, variant) for kernel in zoo.find(pattern) if can_sample(kernel) for variant in runnable(kernel, device)]
    if not work:
        raise click.ClickException(f"nothing that matches '{pattern}' runs on {device.name}")
    execute, calls, end = executor(zoo), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        random = numpy.random.default_rng((seed, calls))
        kernel, variant = work[random.integers(len(work))]
        problem = sample(kernel, variant, ByNumbers(random))
        try:
            wrong = difference(problem, kernel, variant, execute)
        except VariantError:
            wrong = None  # sizes that this variant does not take; another one does
        if wrong is not None:
            raise click.ClickException(f"seed {seed}, call {calls}: {kernel.name} {variant.name}: {problem.name}: {wrong}")
        calls += 1
    click.echo(f"{device.name}: {calls} calls of {len(work)} variants: all right")


if __name__ == "__main__":
    command()
