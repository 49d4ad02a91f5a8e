"""`zoo emulate`: do any PTX kernel, or all that a program launches, keep the rules of the PTX manual, and what do they compute?"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import zoo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OUTPUT = click.Path(dir_okay=False, path_type=Path)
_LARGEST_FILE = 1 << 27
_SECONDS_BETWEEN = 0.2  # two looks at the progress bar, while no cluster ends


class Extent(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """X, X,Y or X,Y,Z."""

    name = "X[,Y,Z]"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = value.replace("x", ",").split(",")
        if not 1 <= len(parts) <= 3 or not all(part.isascii() and part.isdigit() and 0 < len(part) < 11 and int(part) for part in parts):
            self.fail(f"{value!r} is not of the form X, X,Y or X,Y,Z with positive numbers")
        return tuple(map(int, parts))


def _program(name: object) -> Path | None:
    """The program that a word of the command line names, by its path or on PATH. PTX is no program."""
    if not isinstance(name, str):
        return None
    for path in filter(None, (name, shutil.which(name))):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            with open(path, "rb") as file:
                if file.read(4).startswith((b"\x7fELF", b"#!")):
                    return Path(path).absolute()
    return None


class _Command(click.Command):
    """What follows a program is the program's, even what looks like an option."""

    def parse_args(self, context: click.Context, words: list[str]) -> list[str]:
        context.allow_interspersed_args = False
        options, _, _ = self.make_parser(context).parse_args(list(words))
        context.allow_interspersed_args = _program(options.get("file")) is None
        return super().parse_args(context, words)


@click.command("emulate", cls=_Command)
@click.argument("file", required=False, metavar="[FILE.ptx | PROGRAM]")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
@click.option("--triton", metavar="MODULE:FUNCTION", help="Compile this Triton kernel instead of reading a file.")
@click.option("--cute", metavar="MODULE:FUNCTION", help="Compile this host function of CuTe DSL, and run what it launches.")
@click.option("--entry", metavar="NAME", help="The kernel, where the file has several.")
@click.option("--grid", type=Extent(), help="CTAs.")
@click.option("--block", type=Extent(), help="Threads of a CTA.")
@click.option("--cluster", type=Extent(), help="CTAs of a cluster.")
@click.option("--shared", type=click.IntRange(0), default=0, metavar="BYTES", help="Dynamic shared memory.")
@click.option("--stack", type=click.IntRange(1, 512 << 10), metavar="BYTES", help="Stack of a thread.  [default: 1024]")
@click.option("--cooperative", is_flag=True, help="A cooperative launch: CTAs may wait for each other.")
@click.option("--programmatic", is_flag=True, help="A launch that may begin early: griddepcontrol.wait comes before global memory.")
@click.option("--args", "spec", type=_FILE, metavar="SPEC.toml|.npz", help="The arguments.")
@click.option("--schedules", type=click.IntRange(1, 10_000), default=2, show_default=True, help="Orders of asynchronous work to try.")
@click.option("--seed", type=click.IntRange(0, 2**32), default=0, show_default=True, help="Of the orders that are drawn at random.")
@click.option("--only", metavar="SCHEDULE", help="Run one order: last, issue or random:SEED.")
@click.option("--jobs", type=click.IntRange(1), help="Processes: for orders, then for CTAs that do not talk.  [default: 1]")
@click.option("--arch", help="The GPU.  [default: the file's target; sm_90a]")
@click.option("--strict", is_flag=True, help="Fail on warnings and notes, too.")
@click.option("--save", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Write each array to DIR/NAME.npy.")
@click.option("--json", "json_file", type=_OUTPUT, metavar="FILE", help="Write the result as JSON.")
@click.option("--sarif", type=_OUTPUT, metavar="FILE", help="Write the findings as SARIF.")
def command(
    file: str | None, arguments: tuple[str, ...], triton: str | None, cute: str | None, spec: Path | None, strict: bool, save: Path | None,
    json_file: Path | None, sarif: Path | None, **options: Any,
) -> None:  # fmt: skip
    """Run a kernel of FILE.ptx, or a CUDA program, without a GPU, and report what breaks the rules of PTX.

    SPEC.toml has a table [[args]] for each parameter. A PROGRAM is compiled with nvcc -cudart shared; the options of its kernels are its own. See
    docs/emulator.md.

    Exit status: 0 no error, 1 an error, a wrong value, a run that does not end or PTX that is refused, 2 the command was misused.
    """
    if [file, triton, cute].count(None) != 2:
        raise click.UsageError("give a file of PTX, a program, --triton MODULE:FUNCTION or --cute MODULE:FUNCTION")
    program = _program(file)
    from zoo.emulator.arguments import read
    from zoo.emulator.errors import EmulatorError, LaunchError

    try:
        if program is not None:
            from zoo.cli.emulate_program import emulate_program

            failed = emulate_program(program, arguments, spec=spec, save=save, strict=strict, json_file=json_file, sarif=sarif, **options)
        else:
            ptx = _existing(file)
            if arguments:
                raise LaunchError(f"unexpected {' '.join(arguments)}: {file} is no program, which could have arguments")
            given, tables = read(spec, texts=ptx is None) if spec is not None else ([], {})
            unknown = set(tables) - ({"triton"} if triton else set())
            if unknown:
                raise LaunchError(f"the table [{sorted(unknown)[0]}] of the arguments is unknown")
            ran = _ran_cute(cute, given, **options) if cute else _ran(ptx, triton, given, tables, **options)
            failed = _shown(ran, ptx or triton or cute, strict, save, json_file, sarif)
    except LaunchError as error:
        raise click.UsageError(str(error)) from None
    except EmulatorError as error:
        raise click.ClickException(str(error)) from None
    raise click.exceptions.Exit(1 if failed else 0)


def _existing(file: str | None) -> Path | None:
    from zoo.emulator.errors import LaunchError

    if file is None:
        return None
    if not Path(file).is_file():
        raise LaunchError(f"there is no file {file!r}, and no program of that name")
    return Path(file)


class _Ran(NamedTuple):
    """What was run, in words and as data."""

    what: str
    about: dict[str, Any]
    arguments: list[Any]
    result: Any


def _ran(
    file: Path | None,
    triton: str | None,
    arguments: list[Any],
    tables: dict[str, Any],
    *,
    entry: str | None,
    grid: tuple[int, ...] | None,
    block: tuple[int, ...] | None,
    cluster: tuple[int, ...] | None,
    shared: int,
    cooperative: bool,
    programmatic: bool,
    stack: int | None,
    arch: str | None,
    **schedules: Any,
) -> _Ran:
    from zoo.contract.archs import arch_of
    from zoo.emulator import Module
    from zoo.emulator.check import arch_for, run
    from zoo.emulator.errors import LaunchError

    if grid is None:
        raise LaunchError("--grid is missing")
    scratch: Sequence[int] = ()
    if triton is not None:
        for option, value in (("block", block), ("cluster", cluster), ("shared", shared)):
            if value:
                raise LaunchError(f"--{option} is not for --triton: Triton decides, by num_warps and num_ctas of the table [triton]")
        text, arguments, launch = _triton(triton, arguments, tables.get("triton", {}), arch or "sm_90a", grid)
        block, cluster, shared, grid, scratch = launch
    else:
        assert file is not None
        text = _text(file)
    module = Module(text, whole=False)
    entry = _chosen(module.entries, entry)
    if block is None:
        exact = module.functions[entry].directives.get("reqntid")
        if exact is None:
            raise LaunchError("--block is missing")
        block = tuple(exact)
    arch = arch_of(arch) if arch else arch_for(module.target)
    with _watched(**schedules) as how:
        result = run(
            module, entry, grid, block, arguments,
            cluster=cluster, shared_bytes=shared, arch=arch, scratch=scratch, cooperative=cooperative, programmatic=programmatic,
            stack_bytes=stack, **how,
        )  # fmt: skip
    about = {"entry": entry, "target": module.target, "arch": arch, "grid": grid, "block": block}
    return _Ran(f"{entry} on {arch}, grid {_extent(grid)}, block {_extent(block)}", about, arguments, result)


def _ran_cute(
    name: str, arguments: list[Any], *, arch: str | None, schedules: int, seed: int, only: str | None, jobs: int | None, **of_kernels: Any
) -> _Ran:
    from zoo.cli.text import count
    from zoo.contract.archs import arch_of
    from zoo.emulator.check import arch_for, under_schedules
    from zoo.emulator.errors import LaunchError

    decided = [option for option, value in of_kernels.items() if value]
    if decided:
        raise LaunchError(f"--{decided[0]} is not for --cute: the host function decides")
    try:
        from zoo.emulator.cute import host_of

        host = host_of(name, arguments, arch_of(arch) if arch else "sm_90a")
    except ImportError as error:
        raise LaunchError(f"--cute needs CuTe DSL: pip install nvidia-cutlass-dsl ({error})") from None
    arch = arch_for(host.module.target)
    with _watched(schedules, seed, only, jobs) as how:
        result = under_schedules(host.launches, arguments, arch, **how)
    launches = len(result.reports) // (schedules if only is None else 1)
    words = f"{launches} launch{'' if launches == 1 else 'es'} of {count(len({report.kernel for _, report in result.reports}), 'kernel')}"
    return _Ran(f"{name} on {arch}, {words}", {"function": name, "target": host.module.target, "arch": arch}, arguments, result)


def _shown(ran: _Ran, source: object, strict: bool, save: Path | None, json_file: Path | None, sarif: Path | None) -> bool:
    from zoo.cli.causes import severities, show_cause, write_json
    from zoo.cli.text import count, fact, printable
    from zoo.emulator.written import as_json, as_sarif

    result = ran.result
    for cause in result.causes:
        show_cause(cause)
    executed = sum(report.warp_instructions for _, report in result.reports)
    schedules = count(len({schedule for schedule, _ in result.reports}), "schedule")
    click.echo(fact("emulated", f"{printable(ran.what)}, {schedules}, {count(executed, 'warp instruction')}"))
    for sentence in dict.fromkeys(report.together for _, report in result.reports if report.together):
        click.echo(fact("together", f"one process for each order: {printable(sentence)}"))
    for argument in (leaf for one in ran.arguments for leaf in one.leaves()):
        if argument.show:
            click.echo(f"{argument.name} =\n{result.arrays[argument.name]}")
    for line in (line for schedule, report in result.reports if schedule == result.reports[0][0] for line in report.printed):
        click.echo(fact("printf", printable(line.rstrip("\n"))))
    for line in result.wrong:
        click.echo(fact("WRONG", line))
    if save is not None:
        _save(save, result.arrays)
    write_json(json_file, lambda: as_json(result, **ran.about, ok=not result.failed(strict)))
    write_json(sarif, lambda: as_sarif(result, source, zoo.__version__))
    words = severities(result.causes)
    words += [f"wrong values in {count(len(result.wrong), 'place')}"] if result.wrong else []
    click.echo(fact("result", ", ".join(words) or "no findings"))
    return bool(result.failed(strict))


def _text(file: Path) -> str:
    from zoo.emulator.errors import EmulatorError

    if file.stat().st_size > _LARGEST_FILE:
        raise EmulatorError(f"{file} has more than {_LARGEST_FILE:,} bytes")
    try:
        text = file.read_text()
    except UnicodeDecodeError:
        raise EmulatorError(f"{file} is no text; cuobjdump -ptx writes the PTX of a binary") from None
    if ".version" not in text and ".target" not in text:
        raise EmulatorError(f"{file} is no PTX, which begins with .version; nvcc -ptx writes the PTX of CUDA source")
    return text


def _chosen(entries: list[str], entry: str | None) -> str:
    from zoo.contract.nearest import suggestion
    from zoo.emulator.errors import LaunchError

    some = ", ".join(entries[:8]) + (f" and {len(entries) - 8} more" if len(entries) > 8 else "")
    if not entries:
        raise LaunchError("the file has no entry")
    if entry is None:
        if len(entries) > 1:
            raise LaunchError(f"the file has {len(entries)} entries, name one by --entry: {some}")
        return entries[0]
    if entry not in entries:
        raise LaunchError(f"no entry is named {entry!r}; {suggestion(entry, entries, f'there are {some}')}")
    return entry


def _triton(name: str, arguments: list[Any], options: dict[str, Any], arch: str, grid: tuple[int, ...]) -> tuple[str, list[Any], Any]:
    from zoo.contract.archs import arch_of
    from zoo.emulator.errors import LaunchError

    try:
        from zoo.emulator.triton import compiled, function_of, launch_of

        kernel, passed = compiled(function_of(name), arguments, arch_of(arch), options)
    except ImportError as error:
        raise LaunchError(f"--triton needs Triton: pip install triton ({error})") from None
    text, *launch = launch_of(kernel, grid)
    block, cluster, shared, whole_grid, scratch = launch
    return text, passed, ((block,), cluster, shared, whole_grid, scratch)


@contextmanager
def _watched(schedules: int, seed: int, only: str | None, jobs: int | None) -> Iterator[dict[str, Any]]:
    """How under_schedules runs, with a progress bar."""
    from zoo.cli.text import progress

    with _Watched(progress, schedules if only is None else 1) as watch:
        yield {"count": schedules, "seed": seed, "only": only, "watch": watch, "jobs": jobs or 1}


class _Watched(AbstractContextManager["Callable[[str, int, int, int], None] | None"]):
    """A progress bar of all runs; nothing where stderr is no terminal."""

    def __init__(self, progress: Callable[..., Any], schedules: int):
        self._bar = progress(None, schedules * 1000, "emulated")
        self._schedule, self._number, self._at, self._next = "", -1, 0, 0.0

    def __enter__(self) -> Callable[[str, int, int, int], None] | None:
        self._bar.__enter__()
        return None if self._bar.hidden else self._advance

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__(*error)

    def _advance(self, schedule: str, done: int, of: int, executed: int) -> None:
        if schedule != self._schedule:
            self._schedule, self._number = schedule, self._number + 1
        at = self._number * 1000 + done * 1000 // of
        if at == self._at and time.monotonic() < self._next:
            return
        self._bar.label = f"{schedule}: {done:,} of {of:,} clusters, {executed:,} instructions"
        self._bar.update(at - self._at)
        if at == self._at:
            self._bar.render_progress()
        self._at, self._next = at, time.monotonic() + _SECONDS_BETWEEN


def _save(folder: Path, arrays: dict[str, Any]) -> None:
    import numpy

    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        small = array.dtype.kind not in "biuf" or array.dtype.name not in numpy.sctypeDict
        numpy.save(folder / f"{name}.npy", array.astype(numpy.float32) if small else array)


def _extent(extent: tuple[int, ...]) -> str:
    whole = (*extent, 1, 1)[:3]
    return " x ".join(str(one) for number, one in enumerate(whole) if number == 0 or set(whole[number:]) != {1})
