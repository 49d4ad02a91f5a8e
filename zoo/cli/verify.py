"""`zoo verify`: is every cubin what the manifest says, and does it compute what it promises?"""

from __future__ import annotations

import fnmatch
from contextlib import contextmanager

import click

from zoo.cli import collection


@click.command("verify")
@click.argument("pattern", default="*")
@click.option("--gpu", is_flag=True, help="Also run each variant that this GPU runs, against the numpy reference.")
@click.option("--emulate", is_flag=True, help="Also run each variant in the emulator, against the numpy reference.")
@click.option("--schedules", type=click.IntRange(1), help="With --emulate: under so many schedules.  [default: 1]")
@click.option("--jobs", type=click.IntRange(1), help="With --gpu or --emulate: in so many processes.  [default: 1]")
@click.option("--record", is_flag=True, help="With --gpu or --emulate: write what was seen to evidence.json.")
@click.option("--device", default=0, show_default=True, help="The GPU of --gpu.")
@click.pass_context
def command(
    context: click.Context, pattern: str, gpu: bool, emulate: bool, schedules: int | None, jobs: int | None, record: bool, device: int
):
    """Check every cubin against the manifest; no GPU is needed.

    PATTERN selects kernels by name, such as 'quantize.*'.

    \b
    Always:    digest, size, ELF, arch, symbol, parameters, resources.
    --gpu:     numbers bit for bit against the reference, with poisoned
               outputs and guard bytes around every array.
    --emulate: the same without a GPU, from the PTX of every arch, on the
               smaller problems; and whatever the emulator finds wrong.
               About 3 seconds a variant and schedule.

    Most of the time goes into the reference, on the CPU: --jobs helps.
    """
    if record and not gpu and not emulate:
        raise click.UsageError("--record writes what was seen of running kernels: give --gpu or --emulate too")
    if schedules and not emulate:
        raise click.UsageError("--schedules belongs to --emulate")
    if jobs and not gpu and not emulate:
        raise click.UsageError("--jobs belongs to --gpu and --emulate")
    zoo = collection(context)
    if not zoo.find(pattern):
        raise click.ClickException(f"no kernel matches '{pattern}'; the zoo holds {', '.join(zoo.manifest.names)}")
    sound = _integrity(zoo, pattern)
    if (gpu or emulate) and not sound:
        click.echo("not run    any kernel: the cubins must be sound first", err=True)
    right = sound
    if sound and gpu:
        right &= _on_gpu(zoo, pattern, device, jobs or 1, record)
    if sound and emulate:
        right &= _emulated(zoo, pattern, schedules or 1, jobs or 1, record)
    context.exit(0 if right else 1)


def _integrity(zoo, pattern: str) -> bool:
    from zoo.cli.text import fact, progress
    from zoo.shipped.integrity import verify_integrity

    expected = sum(len(zoo.kernel(name).variants) for name in zoo.manifest.names)
    failures, files, size = [], 0, 0
    with progress(verify_integrity(zoo.directory, zoo.manifest), expected, "integrity") as results:
        for result in results:
            if result.kernel is None and pattern != "*" or result.kernel and not fnmatch.fnmatchcase(result.kernel, pattern):
                continue
            if result.problem is not None:
                failures.append(result)
            elif result.kernel is not None:
                files += 1
                size += (zoo.directory / result.file).stat().st_size
    for failure in failures:
        click.echo(fact("FAILED", f"{failure.file}: {failure.problem}"), err=True)
    state = "as the manifest says" if not failures else f"as the manifest says, {len(failures)} not"
    click.echo(fact("integrity", f"{files} cubins, {size:,} bytes: {state}"))
    return not failures


def _on_gpu(zoo, pattern: str, ordinal: int, jobs: int, record: bool) -> bool:
    from dataclasses import asdict

    from zoo.checks.gpu import OnGpu, runnable
    from zoo.checks.processes import outcomes
    from zoo.cli.text import fact, progress
    from zoo.runtime import driver
    from zoo.runtime.hardware import describe
    from zoo.shipped.evidence import Evidence

    device = driver.device(ordinal)
    machine = asdict(describe(device))
    kernels = zoo.find(pattern)
    work = [(kernel, variant) for kernel in kernels for variant in runnable(kernel, device)]
    evidence = Evidence(zoo.directory)
    ran, failures = 0, {}
    with _kept(zoo, evidence, record and bool(work)), progress(outcomes(zoo, work, OnGpu(ordinal), jobs), len(work), "gpu") as items:
        for number, outcome in items:
            kernel, variant = work[number]
            ran += outcome.checks
            if outcome.error is not None:
                failures[number] = f"{kernel.name} {variant.name}: {outcome.error}"
            evidence.add(variant, "gpu", {**machine, "checks": outcome.checks, "error": outcome.error})
    for number in sorted(failures):
        click.echo(fact("FAILED", failures[number]), err=True)
    state = "all right" if not failures else f"{len(failures)} variants wrong"
    if work:
        click.echo(fact("gpu", f"{device.name}: {len(work)} variants, {ran} problems on two poisons each: {state}"))
    for kernel in kernels:
        others = [arch for arch in kernel.archs if arch not in {variant.arch for one, variant in work if one is kernel}]
        if others:
            click.echo(fact("not run", f"{kernel.name} for {', '.join(others)}: this GPU does not run them"))
    if not work:
        click.echo(fact("FAILED", f"nothing here runs on {device.name}, compute capability {machine['capability']}"), err=True)
    return bool(work) and not failures


def _emulated(zoo, pattern: str, schedules: int, jobs: int, record: bool) -> bool:
    from zoo.checks.emulated import MOST_ELEMENTS, Emulation
    from zoo.checks.processes import outcomes
    from zoo.cli.text import fact, progress
    from zoo.shipped.evidence import Evidence

    work = [(kernel, variant) for kernel in zoo.find(pattern) for variant in kernel.variants]
    evidence = Evidence(zoo.directory)
    ran, left_out, failures = 0, 0, {}
    with _kept(zoo, evidence, record), progress(outcomes(zoo, work, Emulation(schedules), jobs), len(work), "emulator") as items:
        for number, outcome in items:
            kernel, variant = work[number]
            ran += outcome.checks
            left_out += outcome.left_out
            if outcome.error is not None:
                failures[number] = f"{kernel.name} {variant.name} ({variant.arch}): {outcome.error}"
            evidence.add(variant, "emulator", {"checks": outcome.checks, "schedules": schedules, "error": outcome.error})
    for number in sorted(failures):
        click.echo(fact("FAILED", failures[number]), err=True)
    state = "all right" if not failures else f"{len(failures)} variants wrong"
    each = "1 schedule" if schedules == 1 else f"{schedules} schedules"
    click.echo(fact("emulator", f"{len(work)} variants, {ran} problems under {each} each: {state}"))
    if left_out:
        click.echo(fact("not run", f"{left_out} problems of more than {MOST_ELEMENTS:,} elements, which need a GPU"))
    return not failures


@contextmanager
def _kept(zoo, evidence, record: bool):
    """Writes what was seen, also of a run that is interrupted: it may have taken an hour."""
    from zoo.cli.text import fact

    try:
        yield
    finally:
        if record:
            evidence.keep_only(variant for name in zoo.manifest.names for variant in zoo.kernel(name).variants)
            evidence.write()
            click.echo(fact("recorded", str(evidence.path)))
