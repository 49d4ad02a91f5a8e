"""`zoo first-run`: everything that runs on this GPU, checked and timed, in one file.

Each kernel is checked, and then timed, in a process of its own: a kernel that hangs or takes the GPU's context with it is a line of the
file, and the next one begins anew. The file is written after each of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import collection
from zoo.cli.completion import KernelName
from zoo.cli.shape import typed_sizes

if TYPE_CHECKING:
    from zoo.catalog import Zoo
    from zoo.contract.manifest import Kernel
    from zoo.runtime.driver import Device

_ENDING = 10  # seconds between being asked to end and being made to
_MOST_SECONDS = 10_000_000  # operating systems count no further than some hundred years
_TAIL = 2000  # characters of what a process said


def _finite(context: click.Context, parameter: click.Parameter, seconds: float) -> float:
    if not seconds <= _MOST_SECONDS:  # NaN is not, either
        raise click.BadParameter(f"{seconds}: expected a number of seconds, {_MOST_SECONDS:,} at most")
    return seconds


def _sizes(context: click.Context, parameter: click.Parameter, shapes: tuple[str, ...]) -> tuple[str, ...]:
    """As they are typed: who misspells one hears of it before the hour of checks, not after."""
    for shape in shapes:
        typed_sizes(shape)
    return shapes


@click.command("first-run")
@click.argument("kernels", default="*", type=KernelName())
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), default="first_run.json", show_default=True, help="The file."
)
@click.option("--device", default=0, show_default=True, help="The GPU.")
@click.option(
    "--jobs", type=click.IntRange(1), default=min(8, os.cpu_count() or 1), show_default=True, help="Processes that check a kernel."
)
@click.option(
    "--limit", type=click.FloatRange(min=1), default=900, show_default=True, callback=_finite,
    help="Seconds after which a kernel counts as hanging.",
)  # fmt: skip
@click.option(
    "--shape",
    "shapes",
    metavar="M,N,K",
    multiple=True,
    callback=_sizes,
    help="Time at these sizes alone; may be repeated. Left out: the usual ones.",
)
@click.pass_context
def command(context: click.Context, kernels: str, output: Path, device: int, jobs: int, limit: float, shapes: tuple[str, ...]) -> None:
    """Check and time everything on a GPU that is new to zoo, and write a file to attach to an issue.

    Every variant that this GPU runs is held against the reference; then every product is timed, with the variant that its sizes choose,
    beside the products of torch and other libraries that are installed. docs/blackwell.md says what is in the file.

    Exit status: 0 all is right, 1 something is wrong.
    """
    from zoo.checks.gpu import runnable
    from zoo.cli.selection import selected
    from zoo.cli.system import ended_in_order
    from zoo.cli.text import Steps, count, fact
    from zoo.contract.files import refuse_unwritable
    from zoo.runtime import driver
    from zoo.runtime.clocks import Watch, management
    from zoo.runtime.hardware import describe

    refuse_unwritable(output)
    zoo = collection(context)
    opened = driver.device(device)
    chosen = [kernel for kernel in selected(zoo, kernels) if runnable(kernel, opened)]
    if not chosen:
        raise click.ClickException(f"nothing of '{kernels}' runs on {opened.name}")
    machine = {**asdict(describe(opened)), "multiprocessors": opened.multiprocessors}
    found: dict[str, Any] = {"digest": zoo.digest, "finished": False, **machine, "libraries": _libraries(), "checks": {}, "timings": {}}
    watched = management(opened)
    found["limits"] = watched.limits() if watched else {}
    click.echo(f"{opened.name}: {count(len(chosen), 'kernel')}; written to {output} as it goes")
    products = [kernel for kernel in chosen if kernel.fields["op"] == "gemm"]
    if products:
        found["clusters"] = _clusters(zoo, products, opened)
        if found["clusters"]:
            click.echo(_words_of_clusters(found["clusters"]))
    _write(output, found)
    steps = Steps(len(chosen) + len(products))
    with ended_in_order(), _told(output, found, chosen, products), tempfile.TemporaryDirectory() as folder:
        for number, kernel in enumerate(chosen):
            steps.begin(f"checking {kernel.name}")
            checked = _checked(context.obj, kernel, device, jobs, limit, Path(folder) / f"{number}.json")
            found["checks"][kernel.name] = checked
            _write(output, found)
            state = "right" if checked["right"] else "WRONG"
            steps.end(fact(state, f"{kernel.name}: {count(len(runnable(kernel, opened)), 'variant')}, {checked['seconds']:.0f} s"))
        for kernel in products:
            steps.begin(f"timing {kernel.name}")
            with Watch(watched) as watch:
                timed = _timed(context.obj, kernel, device, limit, shapes)
            found["timings"][kernel.name] = {**timed, "chip": watch.summary()}
            _write(output, found)
            steps.end(f"\n{kernel.name}\n{_table(timed)}{_words_of_chip(watch.summary())}")
        found["finished"] = True
        _write(output, found)
    wrong = [name for name, checked in found["checks"].items() if not checked["right"]]
    for name in wrong:
        click.echo(fact("WRONG", f"{name}: {found['checks'][name]['said']}"), err=True)
    click.echo(
        fact("written", f"{output}: {len(chosen) - len(wrong)} of {count(len(chosen), 'kernel')} right. Please attach it to an issue")
    )
    context.exit(1 if wrong else 0)


@contextlib.contextmanager
def _told(output: Path, found: Mapping[str, Any], chosen: Sequence[Kernel], products: Sequence[Kernel]) -> Iterator[None]:
    """Whoever ends a run early has a file, and does not know it."""
    from zoo.cli.text import fact

    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        seen = f"{len(found['checks'])} of {len(chosen)} checks and {len(found['timings'])} of {len(products)} timings"
        click.echo(fact("stopped", f"{output} has {seen}. It may be attached to an issue as it is"), err=True)
        raise


def _checked(cubins: Path | None, kernel: Kernel, device: int, jobs: int, limit: float, evidence: Path) -> dict[str, Any]:
    given = ("verify", kernel.name, "--gpu", "--device", device, "--jobs", jobs, "--record-to", evidence)
    status, said, errors, seconds = _run(cubins, given, limit)
    seen = json.loads(evidence.read_text()) if evidence.exists() else {}
    return {"right": status == 0, "seconds": round(seconds, 1), "said": _tail(errors or said) if status else "", "evidence": seen}


def _timed(cubins: Path | None, kernel: Kernel, device: int, limit: float, shapes: Sequence[str]) -> dict[str, Any]:
    sizes = [part for shape in shapes for part in ("--shape", shape)]
    status, said, errors, _ = _run(cubins, ("bench", kernel.name, "--json", "--device", device, *sizes), limit)
    if status:
        return {"error": _tail(errors or said)}
    data: dict[str, Any] = json.loads(said)
    return data


def _run(cubins: Path | None, given: Sequence[object], limit: float) -> tuple[int, str, str, float]:
    """(exit status, standard output, standard error, seconds) of the command in a process of its own, which ends with this one."""
    command = [sys.executable, "-m", "zoo", *(("--cubins", str(cubins)) if cubins else ()), *map(str, given)]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        said, errors = process.communicate(timeout=limit)
        return process.returncode, said, errors, time.monotonic() - began
    except subprocess.TimeoutExpired:
        return 1, "", f"no end after {limit:.0f} s: it hangs, or needs a larger --limit", time.monotonic() - began
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """The process, and those that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_ENDING)


def _tail(text: str) -> str:
    return text.strip()[-_TAIL:]


def _write(output: Path, found: Mapping[str, Any]) -> None:
    """As a whole, or not at all."""
    from zoo.contract.files import write_file

    write_file(output, (json.dumps(found, indent=1) + "\n").encode())


def _libraries() -> dict[str, str | None]:
    import importlib.metadata

    found: dict[str, str | None] = {}
    for name in ("cubin-zoo", "torch", "nvidia-cublas", "nvidia-cublas-cu12", "cuda-bindings", "numpy"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def _clusters(zoo: Zoo, products: Sequence[Kernel], device: Device) -> dict[int, int]:
    from zoo.checks.gpu import runnable
    from zoo.errors import DriverError
    from zoo.runtime.clusters import clusters_at_once

    try:
        return clusters_at_once(zoo.library, runnable(products[0], device)[0], device)
    except DriverError as error:  # what is checked and timed next matters more
        click.echo(f"clusters were not counted: {error}", err=True)
        return {}


def _words_of_clusters(at_once: Mapping[int, int]) -> str:
    from zoo.cli.text import fact, listed

    return fact(
        "clusters", f"at once {listed([f'{count:,} of {size}' for size, count in at_once.items()])}, a multiprocessor for each block"
    )


def _words_of_chip(seen: Mapping[str, Mapping[str, float]]) -> str:
    units = {"clock_mhz": "MHz", "watts": "W", "celsius": "degrees"}
    return "".join(f"\n{seen[name]['least']:,.0f} to {seen[name]['most']:,.0f} {unit}" for name, unit in units.items() if name in seen)


def _table(timed: Mapping[str, Any]) -> str:
    from zoo.cli.text import table

    if "error" in timed:
        return f"not timed: {timed['error']}"
    rows, reasons = [], dict[str, None]()
    for one in timed["measurements"]:
        others = []
        for name, seen in one["rivals"].items():
            others.append("-" if isinstance(seen, str) else f"{seen / one['microseconds']:.2f}")
            if isinstance(seen, str):
                reasons[f"{name}: {seen}"] = None
        rows.append((*one["sizes"].values(), f"{one['microseconds']:.2f}", f"{one['teraflops']:.0f}", *others, one["variant"]))
    first = timed["measurements"][0]
    header = (*first["sizes"], "us", "TFLOPS", *(f"{name} / zoo" for name in first["rivals"]), "variant")
    return "\n".join([table(header, rows), *reasons])
