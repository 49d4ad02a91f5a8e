"""Problems of some variants for NVIDIA's compute-sanitizer: arrays end where their memory ends, and only what may be read is written.

    compute-sanitizer --report-api-errors no --tool memcheck python tools/sanitize.py 'gemm.fp8b128.dense t128*'

Those of `zoo verify --gpu`, whose guard bytes would hide the first byte past an array and whose poison would count as written; which
alone sees what is written between the rows of an array, or into rows of nobody.
memcheck, initcheck and synccheck take the bytes that are shipped. racecheck takes an arrival at a barrier to speak for the arriving
thread alone: ask it about a build in which all threads arrive (docs/lab/fp8_gemm_correctness.md).
Ends with 1 where a result is wrong; what the sanitizer says is its own to report.
"""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from zoo import checks
from zoo.catalog import Zoo
from zoo.checks.gpu import run, runnable
from zoo.checks.problem import FEW_MULTIPROCESSORS, GUARD, POISONS, Buffer, Laid, number_of_multiprocessors
from zoo.contract.manifest import Kernel, Variant
from zoo.runtime import driver
from zoo.runtime.arrays import ptr
from zoo.shipped.places import cubins_directory


@click.command()
@click.argument("patterns", nargs=-1, required=True)
@click.option("--most-elements", default=2_000_000, show_default=True, help="Of a problem's inputs: larger ones are left out.")
@click.option("--cubins", type=click.Path(exists=True), help="Another folder than the packaged one.")
def command(patterns: tuple[str, ...], most_elements: int, cubins: str | None) -> None:
    """PATTERNS are of kernels, or 'kernel variant'."""
    zoo = Zoo(cubins or cubins_directory())
    device = driver.device(0)
    work = [
        (kernel, variant)
        for kernel in zoo.find("*")
        for variant in runnable(kernel, device)
        if any(fnmatch.fnmatchcase(f"{kernel.name} {variant.name}", pattern if " " in pattern else f"{pattern} *") for pattern in patterns)
    ]
    if not work:
        raise click.ClickException(f"nothing that matches {' or '.join(patterns)} runs on {device.name}")
    ran = left_out = wrong = 0
    for kernel, variant in work:
        outcome = checks.check(kernel, variant, Exactly(zoo, device), most_elements, POISONS[:1], exactly=False)
        ran, left_out, wrong = ran + outcome.checks, left_out + outcome.left_out, wrong + (outcome.error is not None)
        if outcome.error is not None:
            click.echo(f"WRONG {kernel.name} {variant.name}: {outcome.error}")
    click.echo(
        f"{device.name}: {len(work)} variants, {ran} problems as if on {FEW_MULTIPROCESSORS} multiprocessors, {left_out} left out, {wrong} variants wrong"
    )
    sys.exit(wrong > 0)


class Exactly:
    """An executor whose arrays have no byte of memory more than they reach over."""

    def __init__(self, zoo: Zoo, device: driver.Device):
        self.zoo, self.device = zoo, device

    def __call__(
        self,
        kernel: Kernel,
        variant: Variant,
        buffers: Mapping[str, Buffer],
        settings: Mapping[str, Any],
    ) -> dict[str, numpy.ndarray]:
        cuda = driver.bindings()
        with self.device.current():
            places = {name: _allocated(buffer.laid) for name, buffer in buffers.items()}
            for name, buffer in buffers.items():
                for first, end in _runs(buffer.laid) if buffer.given else ():
                    host = buffer.image[first:end]
                    driver.check(cuda.cuMemcpyHtoD(places[name] + first, host.ctypes.data, host.nbytes), "copying to the device")
            arrays = {
                name: ptr(places[name] + buffer.laid.offset, buffer.laid.shape, buffer.laid.dtype, buffer.laid.strides, self.device.ordinal)
                for name, buffer in buffers.items()
            }
            run(self.zoo, self.device, number_of_multiprocessors(), kernel, variant, {**arrays, **settings})
            after = {name: buffer.image.copy() for name, buffer in buffers.items()}
            for name, buffer in buffers.items():
                for first, end in _runs(buffer.laid):
                    host = after[name][first:end]
                    driver.check(cuda.cuMemcpyDtoH(host.ctypes.data, places[name] + first, host.nbytes), "copying to the host")
                driver.check(cuda.cuMemFree(places[name] + buffer.laid.offset), "freeing")
        return after


def _allocated(laid: Laid) -> int:
    """Where the image would begin, were there more of it than the array."""
    address = driver.check(driver.bindings().cuMemAlloc(max(1, laid.bytes - laid.offset - GUARD)), "allocating")
    return int(address) - laid.offset


def _runs(laid: Laid) -> list[tuple[int, int]]:
    """Where bytes of elements begin and end in the image, one run after the other."""
    edges = numpy.flatnonzero(numpy.diff(laid.owned.astype(numpy.int8), prepend=0, append=0))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


if __name__ == "__main__":
    command()
