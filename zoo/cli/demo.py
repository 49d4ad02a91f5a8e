"""`zoo demo`: products in FP8 and NVFP4 beside float32, on both archs, and what this machine would run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import collection

if TYPE_CHECKING:
    import numpy

    from zoo.catalog import Zoo
    from zoo.cli.demo_products import Product
    from zoo.runtime.driver import Device

    Matrix = numpy.ndarray[Any, Any]

_SMALL = (16, 64, 512)  # M, N, K: what the emulator multiplies at once
_LARGE = (64, 4096, 4096)


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
    right = _emulated(zoo)
    right &= _on_this_machine(zoo, device)
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
    click.echo(paragraph(f"Error: beside float32, root mean square. Checked against the rule in numpy, in {seconds:.1f} s in all."))
    if right:
        click.echo("\n" + picture(drawn))
    return right


def _on_this_machine(zoo: Zoo, ordinal: int) -> bool:
    from zoo.cli.demo_products import products_of
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
    archs = [arch for kernel in kernels if (arch := pick_arch(kernel.archs, device.capability))]
    click.echo(
        "\n"
        + fact("GPU", f"{device.name}, compute capability {'{}.{}'.format(*device.capability)}: {len(archs)} of {len(kernels)} kernels run")
    )
    right = [_on_gpu(zoo, product, device) for product in products_of(archs[0])] if archs else []
    return all(right)


def _on_gpu(zoo: Zoo, product: Product, device: Device) -> bool:
    """The same product on larger matrices: its error, and its time beside that of torch's own kernel for the same work."""
    from zoo.benchmark.measure import measure
    from zoo.benchmark.rivals import RIVALS
    from zoo.cli.text import fact
    from zoo.runtime.device_array import empty, to_device

    M, N, K = _LARGE
    a, b, expected = _matrices(_LARGE)
    with device.current():
        call = product.call(zoo, to_device(a, device.ordinal), to_device(b, device.ordinal), lambda x: to_device(x, device.ordinal))
        d = empty((M, N), "bf16", device.ordinal)
        zoo.launch(product.name, d=d, **call)
        error = _error(d.numpy(), expected)
    words = f"{product.title}, {product.name}, {M}, {N}, {K}: error {100 * error:.1f} %"
    rivals = {name: rival for name, rival in RIVALS.items() if not rival.less}
    seen = measure(zoo, product.name, product.sizes(_LARGE), {}, None, device.ordinal, None, rivals)
    words += f", {seen.microseconds:.1f} us, {seen.teraflops:.0f} TFLOPS"
    for name, other in seen.rivals.items():
        if isinstance(other, float):
            words += f"; {name} {other:.1f} us"
    right = error < product.most_error
    click.echo(fact("", words if right else f"{words}: WRONG"))
    return right
