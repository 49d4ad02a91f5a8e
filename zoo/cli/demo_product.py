"""What `zoo demo` shows without a GPU besides quantising: a block-scaled product for Blackwell, a chip that few have, emulated."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from zoo.catalog import Zoo

NAME, _QUANTISER = "gemm.mxfp8.dense", "quantize.mxfp8.rows"
_ARCH, _SIZES = "sm_100f", (16, 64, 256)  # M, N, K


def shown(zoo: Zoo) -> bool:
    """Quantises two matrices, multiplies them, and says whether every bit is as it should be. A zoo without these kernels shows nothing."""
    import ml_dtypes
    import numpy

    from zoo import emulator
    from zoo.cli.text import count, fact
    from zoo.reference.block_scaled_gemm import KINDS, gemm_block_scaled
    from zoo.reference.layouts import blocked_shape, from_blocked

    if not {NAME, _QUANTISER} <= set(zoo.manifest.names) or _ARCH not in zoo.kernel(NAME).archs:
        return True
    make_device: Any = emulator.Device
    device, (M, N, K) = make_device(arch=_ARCH, arithmetic="hw"), _SIZES
    blocks = K // KINDS["mxfp8"].block
    random = numpy.random.default_rng(1)

    def quantised(rows: int) -> tuple[Any, Any]:
        x = device.array(random.standard_normal((rows, K)).astype(ml_dtypes.bfloat16))
        q, scales = device.empty((rows, K), "e4m3"), device.empty(blocked_shape(rows, blocks), "ue8m0")
        zoo.launch(_QUANTISER, x=x, q=q, scales=scales, layout="blocked")
        return q, scales

    (a, a_scale), (b, b_scale) = quantised(M), quantised(N)
    d = device.empty((M, N), "f32")
    plan: Any = zoo.prepare(NAME, a=a, a_scale=a_scale, b=b, b_scale=b_scale, d=d)
    start = time.perf_counter()
    report = plan()
    seconds = time.perf_counter() - start
    plain = (from_blocked(scales.numpy(), rows, blocks) for scales, rows in ((a_scale, M), (b_scale, N)))
    expected = gemm_block_scaled(a.numpy(), next(plain), b.numpy(), next(plain), "mxfp8")
    wrong = int((d.numpy().view(numpy.uint32) != expected.view(numpy.uint32)).sum())
    click.echo(fact("product", f"{NAME} {plan.launch.variant.name} ({_ARCH}), {M} x {N} x {K}, emulated in {seconds:.1f} s"))
    state = "every bit equal" if not wrong else f"{wrong:,} WRONG"
    click.echo(fact("check", f"{count(M * N, 'number')} against the numpy reference: {state}"))
    if not report.ok:
        click.echo(fact("FAILED", str(report)), err=True)
    return report.ok and not wrong
