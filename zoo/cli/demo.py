"""`zoo demo`: the main job in one command."""

from __future__ import annotations

import click

from zoo.cli import collection

_NAME = "quantize.mxfp8.rows"
_LARGE, _SMALL = (8192, 7168), (512, 7168)  # without a GPU the reference works, on a size it does at once
_SHOWN = 6  # elements


@click.command("demo")
@click.option("--device", default=0, show_default=True, help="The GPU.")
@click.pass_context
def command(context: click.Context, device: int):
    """Quantise a matrix to MXFP8 and check every bit.

    Without a GPU: checks that the cubins are sound and shows what the numpy reference computes; no kernel runs.
    """
    from zoo import driver
    from zoo.errors import DriverError
    from zoo.resolve import pick_arch

    zoo = collection(context)
    kernel = zoo.kernel(_NAME)
    try:
        opened = driver.device(device)
    except DriverError as error:
        context.exit(_without_gpu(zoo, kernel, str(error)))
    if pick_arch(kernel.archs, opened.capability) is None:
        capability = "{}.{}".format(*opened.capability)
        reason = f"{opened.name} has compute capability {capability}, the zoo ships {', '.join(kernel.archs)}"
        context.exit(_without_gpu(zoo, kernel, reason))
    context.exit(_on_gpu(zoo, kernel, opened))


def _matrix(shape: tuple[int, int]):
    import ml_dtypes
    import numpy

    return numpy.random.default_rng(0).standard_normal(shape, numpy.float32).astype(ml_dtypes.bfloat16)


def _on_gpu(zoo, kernel, device) -> int:
    import numpy

    from zoo.benchmark.graphs import Replay
    from zoo.cli.text import fact
    from zoo.device_array import empty, to_device
    from zoo.machine import describe
    from zoo.reference.mxfp8 import quantize_mxfp8_rows
    from zoo.streams import stream

    machine = describe(device)
    click.echo(fact("device", f"{machine.device}, compute capability {machine.capability}, driver {machine.driver}"))
    x = _matrix(_LARGE)
    rows, columns = x.shape
    inputs = to_device(x, device.ordinal)
    q, scales = empty(x.shape, "e4m3", device.ordinal), empty((rows, columns // 32), "ue8m0", device.ordinal)
    own = stream(device.ordinal)
    plan = zoo.prepare(_NAME, stream=own, x=inputs, q=q, scales=scales)
    plan(own)
    own.synchronize()
    launch = plan.launch
    click.echo(fact("kernel", f"{kernel.name} {launch.variant.name} ({launch.variant.arch}), from {launch.variant.file}"))
    click.echo(fact("launch", f"grid {_times(launch.grid)}, {launch.threads} threads, {launch.variant.registers} registers a thread"))
    click.echo(fact("job", f"{rows} x {columns} bf16 to e4m3 and one ue8m0 scale for every {_block()} elements of a row"))

    expected_q, expected_scales = quantize_mxfp8_rows(x)
    got_q, got_scales = q.numpy(), scales.numpy()
    wrong = int((got_q.view(numpy.uint8) != expected_q.view(numpy.uint8)).sum())
    wrong += int((got_scales.view(numpy.uint8) != expected_scales.view(numpy.uint8)).sum())
    total = got_q.size + got_scales.size
    click.echo(fact("check", f"{total:,} bytes against the numpy reference: {'every bit equal' if not wrong else f'{wrong:,} WRONG'}"))

    with device.current():
        replay = Replay([plan] * 20, own.handle)
        replay.microseconds()  # the first replay pays for the upload of the graph
        microseconds = replay.microseconds()
        replay.close()
    moved = inputs.nbytes + q.nbytes + scales.nbytes
    speed = f"{microseconds:.1f} us, {moved / microseconds / 1e3:,.0f} GB/s read and written"
    click.echo(fact("time", f"{speed}, in a graph of 20; `zoo bench` measures properly"))
    _values(x, got_q, got_scales, f"the kernel's result ({device.name})")
    return 1 if wrong else 0


def _without_gpu(zoo, kernel, reason: str) -> int:
    from zoo.cli.text import fact
    from zoo.integrity import verify_integrity
    from zoo.reference.mxfp8 import quantize_mxfp8_rows

    click.echo(fact("no GPU", f"no kernel ran: {reason}"))
    results = list(verify_integrity(zoo.directory, zoo.manifest))
    problems = [result for result in results if result.problem is not None]
    for result in problems:
        click.echo(fact("FAILED", f"{result.file}: {result.problem}"), err=True)
    click.echo(fact("integrity", f"{len(results) - len(problems)} of {len(results)} cubins are what the manifest says"))
    x = _matrix(_SMALL)
    q, scales = quantize_mxfp8_rows(x)
    click.echo(fact("reference", f"{x.shape[0]} x {x.shape[1]} bf16 to e4m3 by zoo.reference, in numpy on the CPU"))
    click.echo(fact("kernel", f"{kernel.name} would do it on {', '.join(kernel.archs)}, to the same bits; `zoo show {kernel.name}` says more"))
    _values(x, q, scales, "the numpy reference's result")
    return 1 if problems else 0


def _values(x, q, scales, title: str):
    import numpy

    from zoo.cli.text import table
    from zoo.reference.mxfp8 import dequantize_mxfp8_rows

    back = dequantize_mxfp8_rows(q[:1], scales[:1])
    scale = scales[0, 0]
    codes = q.view(numpy.uint8)
    rows = [
        (f"[0, {column}]", f"{float(x[0, column]):+.6f}", f"0x{codes[0, column]:02x}", f"{float(q[0, column]):+g}", f"{float(back[0, column]):+.6f}")
        for column in range(_SHOWN)
    ]
    click.echo(f"\n{title}; the first block's scale is byte {int(scale.view(numpy.uint8))} = 2^{int(scale.view(numpy.uint8)) - 127}")
    click.echo(table(("at", "x", "byte", "q", "q * scale"), rows, indent=2))


def _block() -> int:
    from zoo.reference.mxfp8 import BLOCK

    return BLOCK


def _times(extents) -> str:
    return " x ".join(map(str, extents))
