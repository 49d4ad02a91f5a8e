"""`zoo demo`: products in FP8 and NVFP4 beside float32, on both archs, and what this machine would run."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import collection

if TYPE_CHECKING:
    import numpy

    from zoo.catalog import Zoo

    Matrix = numpy.ndarray[Any, Any]

_SMALL = (16, 64, 512)  # M, N, K: what the emulator multiplies at once
_LARGE = (64, 4096, 4096)
_TORCH = "torch block-wise"  # of RIVALS, its kernel for the same work


@click.command("demo")
@click.option("--device", default=0, show_default=True, help="The GPU.")
@click.pass_context
def command(context: click.Context, device: int) -> None:
    """Multiply in FP8 and NVFP4, beside float32, in under 10 seconds.

    The emulator runs the kernels of Hopper and of Blackwell; each result is held against the written rule, bit for bit. A GPU that
    zoo has kernels for multiplies larger matrices besides, and is timed.

    Exit status: 0 all is right, 1 a bit or an error is wrong.
    """
    from zoo.cli.demo_products import products_of

    zoo = collection(context)
    missing = {name for arch in ("sm_90a", "sm_100f") for one in products_of(arch) for name in one.kernels} - set(zoo.manifest.names)
    if missing:
        raise click.ClickException(f"this zoo has no {min(missing)}, which the demo runs")
    with _meanwhile(zoo, device) as found:
        right = _emulated(zoo)
        right &= _on_this_machine(zoo, device, found)
    if right:
        from zoo.cli.text import paragraph

        click.echo(
            "\n" + paragraph("Next: `zoo list` shows all kernels, `zoo show gemm.fp8b128.dense` ends with a call to paste into Python.")
        )
    context.exit(0 if right else 1)


def _matrices(sizes: tuple[int, int, int]) -> tuple[Matrix, Matrix, Matrix]:
    """Random A and B in bf16, and their product in float32."""
    import ml_dtypes
    import numpy

    M, N, K = sizes
    random = numpy.random.default_rng(0)
    a, b = (random.standard_normal((rows, K), numpy.float32).astype(ml_dtypes.bfloat16) for rows in (M, N))
    return a, b, a.astype(numpy.float32) @ b.astype(numpy.float32).T


def _error(got: Matrix, expected: Matrix) -> float:
    """Of the whole result: the root mean square of what is wrong over that of what is right."""
    import numpy

    return float(numpy.linalg.norm(got.astype(numpy.float32) - expected) / numpy.linalg.norm(expected))


def _emulated(zoo: Zoo) -> bool:
    from zoo import emulator
    from zoo.cli.demo_products import bits_are_right, products_of
    from zoo.cli.pipeline_picture import picture
    from zoo.cli.text import paragraph, table
    from zoo.contract.archs import family_of

    M, N, K = _SMALL
    a, b, expected = _matrices(_SMALL)
    head = f"D = A B^T of bf16 matrices, quantised and multiplied in 8 and 4 bits. M, N, K = {M}, {N}, {K}."
    click.echo(paragraph(head))
    click.echo()
    right, rows, drawn = True, [], []
    began = time.perf_counter()
    for arch in ("sm_90a", "sm_100f"):
        device = emulator.Device(arch, arithmetic="hw")
        for product in products_of(arch):
            call = product.call(zoo, device.array(a), device.array(b), device.array)
            d = device.empty((M, N), "f32")
            plan: Any = zoo.prepare(product.name, d=d, **call)
            report = plan()
            exact = report.ok and bits_are_right(zoo.kernel(product.name), call, d.numpy(), arch)
            right &= exact
            state = "bit for bit" if exact else "WRONG" if report.ok else "FAILED"
            rows.append(
                (family_of(arch), product.title, product.name, f"{product.bits:.2f}", f"{100 * _error(d.numpy(), expected):.1f} %", state)
            )
            if not report.ok:
                click.echo(str(report), err=True)
            if product.drawn:
                drawn.append((family_of(arch), plan.launch, report))
    click.echo(table(("emulated", "A x B", "kernel", "bits of B", "error", "checked"), rows))
    seconds = time.perf_counter() - began
    click.echo(paragraph(f"Errors are beside float32, root mean square. Checked against the rule in numpy, in {seconds:.1f} s in all."))
    if right:
        click.echo("\n" + picture(drawn))
    return right


@contextlib.contextmanager
def _meanwhile(zoo: Zoo, ordinal: int) -> Iterator[Future[list[tuple[str, bool]]] | None]:
    """What the GPU at hand does, in a process of its own while the emulator works: importing torch takes as long. None without a GPU."""
    from zoo.checks.processes import deaf_to_interrupts
    from zoo.contract.resolve import pick_arch
    from zoo.errors import DriverError
    from zoo.runtime import driver

    try:
        capability = driver.device(ordinal).capability
    except DriverError:  # which `_on_this_machine` says
        yield None
        return
    arch = next((arch for kernel in zoo.find() if (arch := pick_arch(kernel.archs, capability))), None)
    if arch is None:
        yield None
        return
    spawn = multiprocessing.get_context("spawn")  # a fork would share the driver that was opened here
    with ProcessPoolExecutor(1, spawn) as pool:
        with deaf_to_interrupts():
            found = pool.submit(_on_gpu, zoo.directory, arch, ordinal)
        yield found


def _on_this_machine(zoo: Zoo, ordinal: int, found: Future[list[tuple[str, bool]]] | None) -> bool:
    from zoo.cli.text import fact
    from zoo.contract.resolve import pick_arch
    from zoo.errors import DriverError
    from zoo.runtime import driver

    try:
        device = driver.device(ordinal)
    except DriverError as error:
        click.echo("\n" + fact("no GPU", f"{error}. `zoo doctor` says what this machine lacks"))
        return True
    kernels = zoo.find()
    run = sum(pick_arch(kernel.archs, device.capability) is not None for kernel in kernels)
    capability = "{}.{}".format(*device.capability)
    click.echo("\n" + fact("GPU", f"{device.name}, compute capability {capability}: {run} of {len(kernels)} kernels run"))
    results = found.result() if found is not None else []
    for words, right in results:
        click.echo(fact("", words if right else f"{words}: WRONG"))
    return all(right for _, right in results)


def _on_gpu(directory: Path, arch: str, ordinal: int) -> list[tuple[str, bool]]:
    """The same products on larger matrices: error, and time beside that of torch's own kernel for the same work; and whether each is right."""
    from zoo.benchmark.measure import measure
    from zoo.benchmark.rivals import RIVALS
    from zoo.catalog import Zoo
    from zoo.cli.demo_products import products_of
    from zoo.runtime import driver
    from zoo.runtime.device_array import empty, to_device

    threading.Thread(target=_import_torch, daemon=True).start()  # takes seconds; the rivals wait for it
    zoo, (M, N, K), results = Zoo(directory), _LARGE, list[tuple[str, bool]]()
    a, b, expected = _matrices(_LARGE)
    for product in products_of(arch):
        with driver.device(ordinal).current():
            call = product.call(zoo, to_device(a, ordinal), to_device(b, ordinal), lambda x: to_device(x, ordinal))
            d = empty((M, N), "bf16", ordinal)
            zoo.launch(product.name, d=d, **call)
            error = _error(d.numpy(), expected)
        words = f"{product.title}, {product.name}, {M}, {N}, {K}: error {100 * error:.1f} %"
        rivals = {_TORCH: RIVALS[_TORCH]} if product.drawn else {}  # torch multiplies FP8 by FP8 alone
        seen = measure(zoo, product.name, product.sizes(_LARGE), {}, None, ordinal, None, rivals)
        words += f", {seen.microseconds:.1f} us, {seen.teraflops:.0f} TFLOPS"
        for name, other in seen.rivals.items():
            if isinstance(other, float):
                words += f"; {name} {other:.1f} us"
        results.append((words, error < product.most_error))
    return results


def _import_torch() -> None:
    with contextlib.suppress(Exception):  # the rivals say why there is none
        import torch  # noqa: F401
