"""`zoo trace`: one CTA of a GEMM as a picture on a small clock. Which unit is busy how long, and what do the others wait for?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import collection
from zoo.cli.completion import KernelName, VariantName
from zoo.cli.shape import typed_sizes

if TYPE_CHECKING:
    from zoo.clock.lanes import Row
    from zoo.clock.prediction import Prediction
    from zoo.contract.manifest import Kernel

_SECONDS_BETWEEN = 0.2  # two looks at the progress bar


def _shape(context: click.Context, parameter: click.Parameter, text: str) -> list[int]:
    return typed_sizes(text)


def _svg_file(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and path.suffix != ".svg":
        raise click.BadParameter(f"{path}: a picture goes into a file named *.svg")
    return path


@click.command("trace")
@click.argument("kernel", type=KernelName())
@click.option("--shape", metavar="M,N,K", required=True, callback=_shape, help="The sizes in the order M, N, K, as `zoo show` names them.")
@click.option("--arch", help="The GPU, such as hopper or b200.  [default: hopper, where the kernel has it]")
@click.option("--groups", type=click.IntRange(1), help="For kernels with offsets: how many groups.  [default: 64]")
@click.option("--variant", metavar="TEXT", type=VariantName(), help="Pin a variant instead of the one the sizes choose.")
@click.option(
    "--svg", "svg_file", type=click.Path(dir_okay=False, path_type=Path), callback=_svg_file, metavar="FILE.svg",
    help="Draw the picture into a file.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON: busy times, and every span.")
@click.pass_context
def command(
    context: click.Context,
    kernel: str,
    shape: list[int],
    arch: str | None,
    groups: int | None,
    variant: str | None,
    svg_file: Path | None,
    as_json: bool,
) -> None:
    """Predict when the units and warps of one CTA are busy, without a GPU.

    The emulator runs up to three tiles of a CTA, or of a cluster. A clock then gives each event a time, from latencies and rates
    of the GPU (zoo/clock/*.toml). The launch is extrapolated from one and three tiles.

    Compare structures with it. Its times are not measurements: docs/lab/clock.md says how far they were from an H200's. Nothing
    for Blackwell was held to a GPU.
    """
    from zoo.benchmark.arguments import named_sizes, takes_groups
    from zoo.benchmark.groups import Groups
    from zoo.cli.selection import refuse_unknown_variant
    from zoo.cli.text import progress
    from zoo.cli.trace_picture import text
    from zoo.cli.trace_svg import svg
    from zoo.clock.chip import chip_for
    from zoo.clock.lanes import rows
    from zoo.clock.prediction import lengths, predicted
    from zoo.clock.recorded import call_of, record
    from zoo.contract.archs import CHIPS
    from zoo.contract.files import refuse_unwritable, write_file

    zoo = collection(context)
    found = zoo.kernel(kernel)
    if groups is not None and not takes_groups(found):
        raise click.UsageError(f"{kernel} has no offsets: leave out --groups")
    refuse_unknown_variant(found, variant)
    if svg_file is not None:
        refuse_unwritable(svg_file)
    chosen = _arch(found, arch)
    chip = chip_for(chosen)
    if arch is not None and arch.lower() in set(CHIPS[chosen]) - {chip.name.lower()}:
        click.echo(f"zoo has no figures of the {arch.upper()}: the prediction is for the {chip.name}", err=True)
    call = call_of(zoo, found, named_sizes(found, shape), chosen, chip, variant, Groups(groups or 64) if takes_groups(found) else None)
    with progress(lengths(call), len(lengths(call)), "") as steps:
        recordings = [record(call, tiles, _watch(steps)) for tiles in steps]
    prediction = predicted(call, recordings)
    drawn = rows(prediction)
    if svg_file is not None:
        write_file(svg_file, svg(prediction, drawn).encode())
        click.echo(f"drawn {svg_file}", err=True)
    click.echo(json.dumps(_as_data(prediction, drawn), indent=1) if as_json else text(prediction, drawn))


def _watch(steps: Any) -> Callable[[int, int, int], None] | None:
    """Says on the progress bar how far the emulator is."""
    if steps.hidden:
        return None
    shown = [0.0]

    def watch(done: int, of: int, executed: int) -> None:
        if time.monotonic() - shown[0] > _SECONDS_BETWEEN:
            shown[0] = time.monotonic()
            steps.label = f"{executed:,} warp instructions"
            steps.render_progress()

    return watch


def _arch(kernel: Kernel, written: str | None) -> str:
    from zoo.cli.selection import refuse_unknown_arch
    from zoo.contract.archs import arch_of

    if written is None:
        return "sm_90a" if "sm_90a" in kernel.archs else kernel.archs[0]
    refuse_unknown_arch(written, [kernel])
    return arch_of(written)


def _as_data(prediction: Prediction, rows: list[Row]) -> dict[str, Any]:
    """Times in microseconds."""
    call, chip = prediction.call, prediction.chip
    return {
        "kernel": call.kernel.name,
        "sizes": dict(call.sizes),
        "groups": call.groups.count if call.groups else None,
        "variant": call.launch.variant.name,
        "chip": chip.name,
        "held_to_measured_times": chip.held_to_measured_times,
        "microseconds": prediction.microseconds,
        "tiles": {"traced": prediction.traced, "of_a_cta": call.turns, "extrapolated_from": prediction.lengths},
        "from_memory": prediction.from_memory,
        "traced_microseconds": prediction.replay.cycles / chip.clock,
        "numbers": {name: {"value": getattr(chip, name), "source": source} for name, source in chip.sources.items()},
        "rows": [
            {
                "name": row.name,
                "unit": row.unit,
                "busy": row.busy / chip.clock,
                "spans": [[span.start / chip.clock, span.end / chip.clock, span.what] for span in row.spans],
            }
            for row in rows
        ],
    }
