"""`zoo demo`: the main job in one command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from zoo.cli import collection

if TYPE_CHECKING:
    import numpy

    from zoo.catalog import Zoo
    from zoo.contract.manifest import Kernel
    from zoo.runtime.driver import Device

    Matrix = numpy.ndarray[Any, Any]

_NAME = "quantize.mxfp8.rows"
_LARGE, _SMALL = (8192, 7168), (128, 1024)  # without a GPU the emulator runs the kernel, on a size it does at once
_SHOWN = 6  # elements


@click.command("demo")
@click.option("--device", default=0, show_default=True, help="The GPU.")
@click.pass_context
def command(context: click.Context, device: int) -> None:
    """Quantise a matrix to MXFP8 and check every bit.

    Without a GPU the emulator runs the kernel, on a smaller matrix, and a product for Blackwell, from the PTX that belongs to the cubins.
    """
    from zoo.contract.resolve import pick_arch
    from zoo.errors import DriverError
    from zoo.runtime import driver

    zoo = collection(context)
    kernel = zoo.kernel(_NAME)
    _refuse_other_arguments(kernel)
    try:
        opened = driver.device(device)
    except DriverError as error:
        context.exit(_without_gpu(zoo, kernel, str(error)))
    if pick_arch(kernel.archs, opened.capability) is None:
        capability = "{}.{}".format(*opened.capability)
        reason = f"{opened.name} has compute capability {capability}, the zoo ships {', '.join(kernel.archs)}"
        context.exit(_without_gpu(zoo, kernel, reason))
    context.exit(_on_gpu(zoo, kernel, opened))


def _refuse_other_arguments(kernel: Kernel) -> None:
    """Another zoo may have another kernel of this name: nothing that this command says would be true of that."""
    from zoo.benchmark.arguments import resolve_without_device
    from zoo.contract.array import Array
    from zoo.errors import ZooError

    rows, columns = _LARGE
    shapes = {"x": ("bf16", _LARGE), "q": ("e4m3", _LARGE), "scales": ("ue8m0", (rows, columns // _block()))}
    arguments = {name: Array(index << 32, dtype, shape, (shape[1], 1)) for index, (name, (dtype, shape)) in enumerate(shapes.items(), 1)}
    try:
        resolve_without_device(kernel, arguments)
    except ZooError as error:
        raise click.ClickException(f"this zoo's {_NAME} is not the kernel that the demo is about; {error}") from None


def _matrix(shape: tuple[int, int]) -> Matrix:
    import ml_dtypes
    import numpy

    matrix: Matrix = numpy.random.default_rng(0).standard_normal(shape, numpy.float32).astype(ml_dtypes.bfloat16)
    return matrix


def _on_gpu(zoo: Zoo, kernel: Kernel, device: Device) -> int:
    from zoo.benchmark.graphs import Replay
    from zoo.cli.text import count, fact
    from zoo.runtime.device_array import empty, to_device
    from zoo.runtime.hardware import describe
    from zoo.runtime.streams import stream

    machine = describe(device)
    click.echo(fact("device", f"{machine.device}, compute capability {machine.capability}, driver {machine.driver}"))
    x = _matrix(_LARGE)
    rows, columns = x.shape
    inputs = to_device(x, device.ordinal)
    q, scales = empty(x.shape, "e4m3", device.ordinal), empty((rows, columns // 32), "ue8m0", device.ordinal)
    own = stream(device.ordinal)
    plan: Any = zoo.prepare(_NAME, stream=own, x=inputs, q=q, scales=scales)
    plan(own)
    own.synchronize()
    launch = plan.launch
    click.echo(fact("kernel", f"{kernel.name} {launch.variant.name} ({launch.variant.arch}), from {launch.variant.file}"))
    click.echo(
        fact(
            "launch",
            f"grid {_times(launch.grid)}, {count(launch.threads, 'thread')}, {count(launch.variant.registers, 'register')} a thread",
        )
    )
    click.echo(fact("job", f"{rows} x {columns} bf16 to e4m3 and one ue8m0 scale for every {_block()} elements of a row"))

    got_q, got_scales = q.numpy(), scales.numpy()
    wrong = _compare(x, got_q, got_scales)

    with device.current():
        replay = Replay([plan] * 20, own.handle)
        replay.microseconds()  # the first replay pays for the upload of the graph
        microseconds = replay.microseconds()
        replay.close()
    moved = inputs.nbytes + q.nbytes + scales.nbytes
    speed = f"{microseconds:.1f} us, {moved / microseconds / 1e3:,.0f} GB/s read and written"
    click.echo(fact("time", f"{speed}, in a graph of 20; `zoo bench` measures properly"))
    _values(x, got_q, got_scales, f"the kernel's result ({device.name})")
    if not wrong:
        _next("`zoo verify --gpu` checks every kernel on this GPU, `zoo bench quantize.mxfp8.rows` says how fast this one is.")
    return 1 if wrong else 0


def _next(besides: str) -> None:
    from zoo.cli.text import paragraph

    click.echo("\n" + paragraph(f"Next: `zoo list` shows all kernels, `zoo show {_NAME}` ends with a call to paste into Python. {besides}"))


def _without_gpu(zoo: Zoo, kernel: Kernel, reason: str) -> int:
    from zoo.cli import demo_product
    from zoo.cli.text import count, fact
    from zoo.shipped.integrity import problems_of_files, verify_integrity

    click.echo(fact("no GPU", f"emulated instead: {reason}"))
    files = problems_of_files(verify_integrity(zoo.directory, zoo.manifest))
    damaged = {file: problems for file, problems in files.items() if problems}
    for file, problems in damaged.items():
        for problem in problems:
            click.echo(fact("FAILED", f"{file}: {problem}"), err=True)
    click.echo(fact("integrity", f"{len(files) - len(damaged)} of {count(len(files), 'cubin')} as the manifest says"))
    if damaged:
        return 1
    x = _matrix(_SMALL)
    click.echo(fact("job", f"{x.shape[0]} x {x.shape[1]} bf16 to e4m3, a smaller matrix than on a GPU; `zoo verify --emulate` does more"))
    outcomes = [_emulated(zoo, kernel, arch, x) for arch in kernel.archs]
    right = demo_product.shown(zoo)
    _, q, scales = outcomes[0]
    _values(x, q, scales, f"the result (emulated {kernel.archs[0]})")
    if not right or any(wrong for wrong, *_ in outcomes):
        return 1
    _next("Both run without a GPU, and so does `zoo verify --emulate`; `zoo doctor` says what this machine lacks for a GPU.")
    return 0


def _emulated(zoo: Zoo, kernel: Kernel, arch: str, x: Matrix) -> tuple[int, Matrix, Matrix]:
    """(bytes that are wrong or findings, q, scales) of the kernel for one arch."""
    import time

    from zoo import emulator
    from zoo.cli.text import count, fact

    make_device: Any = emulator.Device
    device = make_device(arch=arch)
    q, scales = device.empty(x.shape, "e4m3"), device.empty((x.shape[0], x.shape[1] // _block()), "ue8m0")
    plan: Any = zoo.prepare(_NAME, x=device.array(x), q=q, scales=scales)
    start = time.perf_counter()
    report = plan()
    seconds = time.perf_counter() - start
    click.echo(
        fact(arch, f"{count(report.warp_instructions, 'warp instruction')} of its PTX in {seconds:.1f} s, grid {_times(plan.launch.grid)}")
    )
    got_q, got_scales = q.numpy(), scales.numpy()
    wrong = _compare(x, got_q, got_scales)
    if not report.ok:
        click.echo(fact("FAILED", str(report)), err=True)
    return wrong + len(report.findings) + (not report.completed), got_q, got_scales


def _compare(x: Matrix, q: Matrix, scales: Matrix) -> int:
    """How many bytes differ from the reference; said, too."""
    import numpy

    from zoo.cli.text import count, fact
    from zoo.reference.mxfp8 import quantize_mxfp8_rows

    expected_q, expected_scales = quantize_mxfp8_rows(x)
    wrong = int((q.view(numpy.uint8) != expected_q.view(numpy.uint8)).sum())
    wrong += int((scales.view(numpy.uint8) != expected_scales.view(numpy.uint8)).sum())
    total = q.size + scales.size
    click.echo(
        fact("check", f"{count(total, 'byte')} against the numpy reference: {'every bit equal' if not wrong else f'{wrong:,} WRONG'}")
    )
    return wrong


def _values(x: Matrix, q: Matrix, scales: Matrix, title: str) -> None:
    import numpy

    from zoo.cli.text import paragraph, table
    from zoo.reference.mxfp8 import dequantize_mxfp8_rows

    back = dequantize_mxfp8_rows(q[:1], scales[:1])
    scale = scales[0, 0]
    codes = q.view(numpy.uint8)
    rows = [
        (
            f"[0, {column}]",
            f"{float(x[0, column]):+.6f}",
            f"0x{codes[0, column]:02x}",
            f"{float(q[0, column]):+g}",
            f"{float(back[0, column]):+.6f}",
        )
        for column in range(_SHOWN)
    ]
    byte = int(scale.view(numpy.uint8))
    click.echo("\n" + paragraph(f"{title}; the first block's scale is byte {byte} = 2^{byte - 127}"))
    click.echo(table(("at", "x", "byte", "q", "q * scale"), rows, indent=2))


def _block() -> int:
    from zoo.reference.mxfp8 import BLOCK

    return BLOCK


def _times(extents: tuple[int, ...]) -> str:
    return " x ".join(map(str, extents))
