"""`zoo first-run`: everything that runs on this GPU, checked and timed, in one file.

Kernels are checked in several processes at once, and then each product is timed alone. A variant that hangs or takes the GPU's context with it
is a line of the file, and the next one begins anew. The file is written after each kernel, and a run that was ended goes on where it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import textwrap
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import collection
from zoo.cli.completion import KernelName
from zoo.cli.shape import typed_sizes

if TYPE_CHECKING:
    from zoo.catalog import Zoo
    from zoo.cli.one_checker import Checker, Work
    from zoo.contract.manifest import Kernel, Variant
    from zoo.runtime.driver import Device

_MOST_SECONDS = 10_000_000  # operating systems count no further than some hundred years
_LOOK = 0.5  # seconds between two looks at processes that say nothing
_TAIL = 2000  # characters of what is wrong with a kernel
_TIMING = 4  # times as long as a check takes in all, by the number of processes
_LONG = ("gemm", "norm", "pack", "unpack")  # operations whose checks take longest
_SAME = ("digest", "device", "capability", "driver", "multiprocessors", "libraries", "shapes")  # of a run that goes on


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
    "--limit", type=click.FloatRange(min=1), default=180, show_default=True, callback=_finite,
    help="Seconds after which a problem or the timings of a product count as hanging.",
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

    A run that was ended goes on where it was, if FILE is still there and all else is as it was.

    Exit status: 0 all is right, 1 something is wrong.
    """
    from zoo.benchmark.shapes import usual_shapes
    from zoo.checks.gpu import OnGpu, runnable
    from zoo.cli.one_checker import Checker, Work
    from zoo.cli.one_timer import Timer
    from zoo.cli.selection import selected
    from zoo.cli.system import ended_in_order, warn_of_foreign_load
    from zoo.cli.text import Steps, count, fact
    from zoo.contract.files import refuse_unwritable
    from zoo.runtime import driver
    from zoo.runtime.clocks import Watch, management
    from zoo.runtime.hardware import describe

    refuse_unwritable(output)
    zoo = collection(context)
    opened = driver.device(device)
    hardware = describe(opened)
    variants = {kernel.name: those for kernel in selected(zoo, kernels) if (those := runnable(kernel, opened))}
    chosen = [zoo.kernel(name) for name in variants]
    if not chosen:
        raise click.ClickException(f"nothing of '{kernels}' runs on {opened.name}, compute capability {hardware.capability}")
    unsound = _unsound(zoo.directory, variants, chosen, opened.name)
    machine = {**asdict(hardware), "multiprocessors": opened.multiprocessors}
    watched = management(opened)
    found: dict[str, Any] = {"digest": zoo.digest, "finished": False, **machine, "libraries": _libraries(), "shapes": shapes}
    found |= {"limits": watched.limits() if watched else {}, "checks": {}, "timings": {}}
    load = warn_of_foreign_load(opened)
    click.echo(f"{opened.name}: {count(len(chosen), 'kernel')}; written to {output} as it goes")
    before, other = _before(output, found)
    if other:
        click.echo(fact("begins anew", f"{output} {other}; what it had is written over"))
    if before:
        found |= before
        kept = f"{count(len(found['checks']), 'check')} and {count(len(found['timings']), 'timing')}"
        click.echo(fact("goes on", f"{output} has {kept}; remove it to begin anew"))
    found["foreign_load_percent"] = max(load, found.get("foreign_load_percent", 0))
    products = [kernel for kernel in chosen if kernel.fields["op"] == "gemm"]
    sound = [variant for kernel in products for variant in variants[kernel.name] if variant.file not in unsound]
    if sound and "clusters" not in found:
        found["clusters"] = _clusters(zoo, sound[0], opened)
        if found["clusters"]:
            click.echo(_words_of_clusters(found["clusters"]))
    _write(output, found)
    unchecked = [kernel for kernel in chosen if kernel.name not in found["checks"]]
    untimed = [kernel for kernel in products if kernel.name not in found["timings"]]
    work = [
        Work(kernel, [kernel.variants.index(variant) for variant in variants[kernel.name] if variant.file not in unsound])
        for kernel in unchecked
    ]
    steps = Steps(len(work) + len(untimed), len(work) + _TIMING * len(untimed))
    checkers = [Checker(zoo.directory, OnGpu(device), limit) for _ in range(min(jobs, len(work)))]
    with (
        ended_in_order(),
        _told(output, found, chosen, products),
        contextlib.closing(Timer(zoo.directory, device, limit)) as timer,
        contextlib.closing(_checks(checkers, work)) as checks,
    ):
        steps.begin(f"checking {count(len(work), 'kernel')}, {jobs} at once")
        for done in checks:
            kernel = done.kernel
            found["checks"][kernel.name] = checked = _checked(done, variants[kernel.name], unsound, asdict(hardware))
            _write(output, found)
            state = "right" if checked["right"] else "WRONG"
            steps.end(fact(state, f"{kernel.name}: {count(len(variants[kernel.name]), 'variant')}, {checked['seconds']:.0f} s"))
            steps.begin(f"checking kernels, {jobs} at once")
            if untimed and not work:
                timer.begin()  # it loads torch while the last kernels are checked
        for kernel in untimed:
            steps.begin(f"timing {kernel.name}")
            with Watch(watched) as watch:
                hangs = found["checks"][kernel.name].get("hangs")
                timed = {"error": "its checks hang"} if hangs else timer.timed(kernel.name, shapes or _a_few(usual_shapes(kernel)))
            found["timings"][kernel.name] = {**timed, "chip": watch.summary()}
            _write(output, found)
            steps.end(f"\n{kernel.name}\n{_table(timed)}{_words_of_chip(watch.summary())}", _TIMING)
        found["finished"] = True
        _write(output, found)
    wrong = [kernel.name for kernel in chosen if not found["checks"][kernel.name]["right"]]
    for name in wrong:
        click.echo(fact("WRONG", f"{name}: {found['checks'][name]['said']}"), err=True)
    click.echo(
        fact("written", f"{output}: {len(chosen) - len(wrong)} of {count(len(chosen), 'kernel')} right. Please attach it to an issue")
    )
    context.exit(1 if wrong else 0)


def _unsound(directory: Path, variants: Mapping[str, Sequence[Variant]], kernels: Sequence[Kernel], device: str) -> dict[str, str]:
    """What is wrong with each file among those that this GPU runs. Where one is missing, all stops before it begins."""
    from zoo.cli.text import count, progress
    from zoo.shipped.integrity import file_problem

    ours = [(kernel, variant) for kernel in kernels for variant in variants[kernel.name]]
    wrong = dict[str, str]()
    with progress(ours, len(ours), "integrity") as each:
        for kernel, variant in each:
            if problem := file_problem(directory / variant.file, kernel, variant):
                wrong[variant.file] = problem
    missing = [file for file in wrong if not (directory / file).exists()]
    if missing:
        files = len({variant.file for _, variant in ours})
        words = f"{len(missing)} of the {count(files, 'cubin')} for {device} {'is' if len(missing) == 1 else 'are'} missing in {directory}"
        few = ", ".join(missing[:3]) + ", ..." * (len(missing) > 3)
        raise click.ClickException(f"{words}: {few}; reinstall zoo, or restore the folder in a checkout")
    return wrong


def _before(output: Path, found: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What an earlier run that was ended has seen of the same cubins on the same machine, or why the file that is there has nothing of it."""
    try:
        before = json.loads(output.read_bytes())
        if before["finished"]:
            return {}, "is of a run that was finished"
        others = [name for name in _SAME if before[name] != found[name]]
        if others:
            return {}, f"is of a run with another {', another '.join(others)}"
        checks, timings, load = before["checks"], before["timings"], before["foreign_load_percent"]
        if type(load) is not int or not all(isinstance(one, dict) for one in timings.values()):
            raise TypeError
        if not all(isinstance(one["right"], bool) and isinstance(one["said"], str) for one in checks.values()):
            raise TypeError
        return {name: before[name] for name in ("checks", "timings", "clusters", "foreign_load_percent") if name in before}, ""
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}, "is no file of a first run, or was edited"


@contextlib.contextmanager
def _told(output: Path, found: Mapping[str, Any], chosen: Sequence[Kernel], products: Sequence[Kernel]) -> Iterator[None]:
    """Whoever ends a run early has a file, and does not know it."""
    from zoo.cli.text import fact

    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        seen = f"{len(found['checks'])} of {len(chosen)} checks and {len(found['timings'])} of {len(products)} timings"
        click.echo(fact("stopped", f"{output} has {seen}. It may be attached to an issue as it is; the same command goes on"), err=True)
        raise


def _a_few(shapes: Sequence[list[int]]) -> list[list[int]]:
    """The first, the last, and two between: a first run should end while somebody waits."""
    last = len(shapes) - 1
    return [shapes[place] for place in sorted({round(last * third / 3) for third in range(4)})]


def _checks(checkers: Sequence[Checker], work: list[Work]) -> Generator[Work, None, None]:
    """All of the work, by so many processes at once, as it is done; it is taken out of the list as it begins. What takes longest begins first:
    operations whose reference does most, and of those kernels with the most variants."""
    work.sort(key=lambda one: (one.kernel.fields["op"] in _LONG, len(one.left)))
    try:
        yield from (work.pop(place) for place in reversed(range(len(work))) if not work[place].left)
        while work or any(checker.work for checker in checkers):
            for checker in checkers:
                if checker.work is None and work:
                    checker.begin(work.pop())
            busy = [checker for checker in checkers if checker.work is not None]
            connection.wait([checker.connection for checker in busy], _LOOK)
            for checker in busy:
                done = checker.look()
                if done is None:
                    continue
                if done.left:
                    work.append(done)  # in another process
                else:
                    yield done
    finally:
        for checker in checkers:  # all before the first is waited for: a driver may keep each for a while
            checker.kill()
        for checker in checkers:
            checker.close()


def _checked(done: Work, variants: Sequence[Variant], unsound: Mapping[str, str], machine: Mapping[str, str]) -> dict[str, Any]:
    """What the file says of a kernel."""
    from zoo.checks import Outcome
    from zoo.shipped.evidence import Evidence

    outcomes, wrong = dict[str, Outcome](), list[str]()
    with tempfile.TemporaryDirectory() as nothing_yet:
        evidence = Evidence(Path(nothing_yet))
    for variant in variants:
        number = done.kernel.variants.index(variant)
        outcome = done.outcomes[number] if number in done.outcomes else Outcome(0, unsound[variant.file])
        if outcome.error is not None:
            wrong.append(f"{variant.name}: {outcome.error}")
        before = outcomes.get(variant.sha256, Outcome(0, None))  # a cubin may be started under several names
        seen = outcomes[variant.sha256] = Outcome(before.checks + outcome.checks, before.error or outcome.error)
        if seen.checks:
            evidence.add(variant, "gpu", {**machine, "checks": seen.checks, "error": seen.error})
    records = {variant.sha256: record for variant in variants if (record := evidence.of(variant))}
    said = {"right": not wrong, "seconds": round(done.seconds, 1), "said": textwrap.shorten("; ".join(wrong), _TAIL), "evidence": records}
    return {**said, "hangs": True} if done.hangs else said


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


def _clusters(zoo: Zoo, variant: Variant, device: Device) -> dict[int, int]:
    from zoo.errors import DriverError
    from zoo.runtime.clusters import clusters_at_once

    try:
        return clusters_at_once(zoo.library, variant, device)
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
