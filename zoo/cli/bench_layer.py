"""`zoo bench layer`: where a whole layer's time goes, kernel by kernel, beside torch in bf16 and other libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zoo.benchmark.layer_models import MODELS, Model
from zoo.cli.text import cut
from zoo.contract.whole_numbers import LONGEST

if TYPE_CHECKING:
    from zoo.benchmark.layer_steps import Asked

_SIZES = {"linear": ("N,K", (7168, 2048)), "experts": ("E,TOP,K,I", (64, 8, 7168, 2048))}


def _numbers(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < 2**31 for part in parts):
        raise click.BadParameter(f"{cut(text, LONGEST)}: expected whole numbers above 0, separated by commas")
    return tuple(map(int, parts))


def _svg_file(context: click.Context, parameter: click.Parameter, file: Path | None) -> Path | None:
    if file is not None and file.suffix != ".svg":
        raise click.BadParameter(f"{cut(str(file), LONGEST)}: expected a file named *.svg")
    return file


@click.command("layer")
@click.argument("layer", metavar="LAYER", type=click.Choice([*_SIZES, *MODELS]))
@click.option(
    "--shape", metavar="N,K | E,TOP,K,I", callback=_numbers,
    help="linear: outputs and inputs. experts: how many, how many of a token, width of the model, gates of an expert.",
)  # fmt: skip
@click.option("--tokens", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--format", "format_", metavar="NAME", help="A format of zoo.torch.nn (default: the model's, or fp8b128).")
@click.option("--backward", is_flag=True, help="Forward and backward with all gradients; weights are cast in each step.")
@click.option("--device", default=0, show_default=True, help="The GPU.")
@click.option("--alone", is_flag=True, help="Time zoo alone.")
@click.option("--svg", "svg_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.svg", callback=_svg_file,
    help="Also draw the bars into a file.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    layer: str,
    shape: tuple[int, ...] | None,
    tokens: int,
    format_: str | None,
    backward: bool,
    device: int,
    alone: bool,
    svg_file: Path | None,
    as_json: bool,
) -> None:
    """Show where the time of a whole layer goes.

    LAYER is linear, experts or a model, whose layer of experts is timed: gpt-oss-20b, gpt-oss-120b, qwen3-235b or
    deepseek-v3. Routing and combining are part of it.

    The time is a CUDA graph's median. The bars are one traced replay: each kernel and each gap at its place. Results are checked against
    torch's bf16 layer, or for a model's own weights against float32.
    """
    from zoo.benchmark.layer_steps import check, see, steps
    from zoo.benchmark.rivals import torch_with_gpu
    from zoo.cli.layer_bars import as_svg, as_text
    from zoo.cli.text import count, paragraph, progress
    from zoo.contract.files import refuse_unwritable, write_file
    from zoo.errors import ZooError

    asked = _asked(layer, shape, tokens, format_, backward)
    if svg_file is not None:
        refuse_unwritable(svg_file)
    check(asked)
    torch = torch_with_gpu()
    if not 0 <= device < torch.cuda.device_count():
        raise ZooError(f"--device {device}: torch sees {count(torch.cuda.device_count(), 'GPU')}, counted from 0")
    torch.manual_seed(0)
    try:
        with torch.cuda.device(device):
            calls, refused = steps(torch, asked, f"cuda:{device}", alone)
            if "zoo" not in calls:
                raise ZooError(f"{asked}: {refused['zoo']}")
            with progress(list(calls), len(calls), "timing") as names:
                seen = [see(torch, name, calls[name], device) for name in names]
    except torch.cuda.OutOfMemoryError:
        raise ZooError(f"{asked}: does not fit into the GPU's memory; ask for fewer --tokens or a smaller layer") from None
    title = f"{asked}, {torch.cuda.get_device_name(device)}"
    if svg_file is not None:
        write_file(svg_file, as_svg(title, seen).encode())
        click.echo(f"drawn {svg_file}", err=True)
    if as_json:
        from dataclasses import asdict

        click.echo(json.dumps({"layer": title, "steps": [asdict(one) for one in seen], "refused": refused}, indent=1))
        return
    click.echo(as_text(title, seen))
    for name, why in refused.items():
        click.echo(paragraph(f"{name}: {why}"))


def _asked(layer: str, shape: tuple[int, ...] | None, tokens: int, format_: str | None, backward: bool) -> Asked:
    from zoo.benchmark.layer_steps import Asked

    if layer in MODELS:
        if shape is not None:
            raise click.UsageError(f"{layer} has sizes of its own: leave out --shape, or name `experts`")
        model = MODELS[layer]
        return Asked(tokens, format_ or ("fp8b128" if backward else model.format), backward, experts=model, model=layer)
    names, usual = _SIZES[layer]
    sizes = shape or usual
    if len(sizes) != len(usual):
        raise click.UsageError(f"--shape of {layer}: expected {names}, got {len(sizes)} numbers")
    if layer == "linear":
        return Asked(tokens, format_ or "fp8b128", backward, linear=(sizes[0], sizes[1]))
    experts, top_k, hidden, inner = sizes
    if top_k > experts:
        raise click.UsageError(f"--shape: a token has at most as many experts as there are, {experts}, got {top_k}")
    return Asked(tokens, format_ or "fp8b128", backward, experts=Model(experts, top_k, hidden, inner, format_ or "fp8b128"))
