"""`zoo first-run`: everything that runs on this GPU, checked and timed, in one file.

Each kernel is checked in a process of its own, several at once, and then each product is timed alone. A kernel that hangs or takes the GPU's
context with it is a line of the file, and the next one begins anew. The file is written after each of them.
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
from collections import deque
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
_LOOK = 0.05  # seconds between two looks at processes
_TAIL = 2000  # characters of what a process said
_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}  # of numpy, beside other kernels' checks


def _finite(context: click.Context, parameter: click.Parameter, seconds: float) -> float:
    if not seconds <= _MOST_SECONDS:  # NaN is not, either
        raise click.BadParameter(f"{seconds}: expected a number of seconds, {_MOST_SECONDS:,} at most")
    return seconds


def _sizes(context: click.Context, parameter: click.Parameter, shapes: tuple[str, ...]) -> list[list[int]]:
    return [typed_sizes(shape) for shape in shapes]


@click.command("first-run")
@click.argument("kernels", default="*", type=KernelName())
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), default="first_run.json", show_default=True, help="The file."
)
@click.option("--device", default=0, show_default=True, help="The GPU.")
@click.option(
    "--jobs", type=click.IntRange(1), default=min(16, os.cpu_count() or 1), show_default=True, help="Kernels that are checked at once."
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
    help="Time at these sizes alone; may be repeated. Left out: four of the usual ones.",
)
@click.pass_context
def command(context: click.Context, kernels: str, output: Path, device: int, jobs: int, limit: float, shapes: list[list[int]]) -> None:
    """Check and time everything on a GPU that is new to zoo, and write a file to attach to an issue.

    Every variant that this GPU runs is held against the reference; then every product is timed, with the variant that its sizes choose,
    beside the products of torch and other libraries that are installed. docs/blackwell.md says what is in the file.

    Exit status: 0 all is right, 1 something is wrong.
    """
    from zoo.benchmark.shapes import usual_shapes
    from zoo.checks.gpu import runnable
    from zoo.cli.one_timer import Timer
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
    with ended_in_order(), _told(output, found, chosen, products), contextlib.closing(Timer(zoo.directory, device, limit)) as timer:
        steps.begin(f"checking {count(len(chosen), 'kernel')}, {jobs} at once")
        for kernel, checked in _checks(context.obj, chosen, device, jobs, limit):
            found["checks"][kernel.name] = checked
            _write(output, found)
            state = "right" if checked["right"] else "WRONG"
            steps.end(fact(state, f"{kernel.name}: {count(len(runnable(kernel, opened)), 'variant')}, {checked['seconds']:.0f} s"))
            steps.begin(f"checking kernels, {jobs} at once")
        for kernel in products:
            steps.begin(f"timing {kernel.name}")
            with Watch(watched) as watch:
                timed = timer.timed(kernel.name, shapes or _a_few(usual_shapes(kernel)))
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


def _a_few(shapes: Sequence[list[int]]) -> list[list[int]]:
    """The first, the last, and two between: a first run should end while somebody waits."""
    last = len(shapes) - 1
    return [shapes[place] for place in sorted({round(last * third / 3) for third in range(4)})]


def _checks(
    cubins: Path | None, kernels: Sequence[Kernel], device: int, jobs: int, limit: float
) -> Iterator[tuple[Kernel, dict[str, Any]]]:
    """What was seen of each kernel, so many at once, as they finish. Those with the most variants begin first, for they take longest."""
    waiting, running = deque(sorted(kernels, key=lambda kernel: -len(kernel.variants))), list[_Check]()
    with tempfile.TemporaryDirectory() as folder:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(_Check(cubins, waiting.popleft(), device, Path(folder)))
                for check in [one for one in running if one.over(limit)]:
                    running.remove(check)
                    yield check.kernel, check.seen(limit)
                time.sleep(_LOOK)
        finally:
            for check in running:
                _end(check.process)


class _Check:
    """`zoo verify --gpu` of one kernel, in a process of its own."""

    def __init__(self, cubins: Path | None, kernel: Kernel, device: int, folder: Path):
        self.kernel = kernel
        self._said, self._errors, self._evidence = (folder / f"{kernel.name}.{what}" for what in ("said", "errors", "json"))
        given = ("verify", kernel.name, "--gpu", "--device", str(device), "--record-to", str(self._evidence))
        command = [sys.executable, "-m", "zoo", *(("--cubins", str(cubins)) if cubins else ()), *given]
        self._began = time.monotonic()
        with self._said.open("w") as said, self._errors.open("w") as errors:
            environment = os.environ | _ONE_THREAD
            self.process = subprocess.Popen(command, stdout=said, stderr=errors, env=environment, start_new_session=True)

    def over(self, limit: float) -> bool:
        return self.process.poll() is not None or time.monotonic() - self._began > limit

    def seen(self, limit: float) -> dict[str, Any]:
        status, seconds = self.process.poll(), time.monotonic() - self._began
        if status is None:
            _end(self.process)
            said = f"no end after {limit:.0f} s: it hangs, or needs a larger --limit"
        else:
            said = (self._errors.read_text(errors="replace") or self._said.read_text(errors="replace")) if status else ""
        evidence = json.loads(self._evidence.read_text()) if self._evidence.exists() else {}
        return {"right": status == 0, "seconds": round(seconds, 1), "said": said.strip()[-_TAIL:], "evidence": evidence}


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process, and those that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_ENDING)


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
