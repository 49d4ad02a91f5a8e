"""`zoo emulate PROGRAM`: what the launches of a CUDA host program break, and how the program ended."""

from __future__ import annotations

import ctypes
import re
import signal
from pathlib import Path
from typing import Any

import click

import zoo


def emulate_program(
    program: Path, arguments: tuple[str, ...], *, arch: str | None, schedules: int, seed: int, only: str | None, jobs: int | None, strict: bool,
    json_file: Path | None, sarif: Path | None, **of_kernels: Any,
) -> bool:  # fmt: skip
    """Whether it failed. `of_kernels`: options that a program decides by itself."""
    from zoo.cli.causes import severities, show_cause, write_json
    from zoo.cli.text import count, fact, printable
    from zoo.contract.archs import arch_of
    from zoo.emulator.errors import LaunchError
    from zoo.emulator.program import start
    from zoo.emulator.written import as_json, as_sarif

    decided = [name for name, value in of_kernels.items() if value]
    if decided:
        raise LaunchError(f"--{decided[0].replace('spec', 'args')} is for a file of PTX, and {program.name} is a program")
    result = start(program, arguments, arch=arch_of(arch) if arch else None, count=schedules, seed=seed, only=only, jobs=jobs or 1)
    for cause in result.causes:
        show_cause(cause, [("kernel", name) for name in dict.fromkeys(_readable(finding.kernel) for finding in cause.findings)])
    launches = [one for _, one in result.reports]
    kernels = len({(module, entry) for _, module, entry in result.seen.launches})
    executed = sum(one.warp_instructions for one in launches)
    launched = sum(one.count for schedule, one in result.reports if schedule == result.reports[0][0])
    words = f"{launched:,} launch{'' if launched == 1 else 'es'} of {count(kernels, 'kernel')}"
    words += f" on {result.seen.arch}" if result.seen.arch else ""
    click.echo(fact("emulated", f"{words}, {count(schedules if only is None else 1, 'schedule')}, {count(executed, 'warp instruction')}"))
    for sentence, times in result.seen.notes.items():
        click.echo(fact("note", printable(_readable(sentence)) + (f" ({times} times)" if times > 1 else "")))
    for sentence in result.seen.refusals:
        click.echo(fact("refused", printable(_readable(sentence))))
    if result.status:
        how = f"by {signal.Signals(-result.status).name}" if result.status < 0 else f"with status {result.status}"
        click.echo(fact("program", f"{program.name} ended {how}"))
    write_json(json_file, lambda: as_json(result, program=str(program), arch=result.seen.arch, ok=not result.failed(strict)))
    write_json(sarif, lambda: as_sarif(result, program, zoo.__version__))
    click.echo(fact("result", ", ".join(severities(result.causes)) or "no findings"))
    return result.failed(strict)


def _readable(text: str) -> str:
    """A text whose names of C++ are as they are in the source. They stay mangled where there is no C++ library."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return text
    demangle = library.__cxa_demangle
    demangle.restype = ctypes.c_void_p

    def plain(match: re.Match[str]) -> str:
        found = demangle(match[0].encode(), None, None, None)
        return ctypes.string_at(found).decode() if found else match[0]

    return re.sub(r"\b_Z\w+", plain, text)
