"""`zoo verify`: is every cubin what the manifest says, and does it compute what it promises?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zoo.cli import collection
from zoo.cli.completion import KernelName

if TYPE_CHECKING:
    from zoo.catalog import Zoo
    from zoo.checks import Outcome
    from zoo.contract.manifest import Kernel, Variant
    from zoo.shipped.evidence import Evidence


@click.command("verify")
@click.argument("kernels", default="*", type=KernelName())
@click.option("--gpu", is_flag=True, help="Also run each variant that this GPU runs, against the numpy reference.")
@click.option("--emulate", is_flag=True, help="Also run each variant in the emulator, against the numpy reference.")
@click.option("--schedules", type=click.IntRange(1), help="With --emulate: under so many schedules.  [default: 1]")
@click.option("--jobs", type=click.IntRange(1), help="With --gpu or --emulate: in so many processes.  [default: 1]")
@click.option("--record", is_flag=True, help="With --gpu or --emulate: write what was seen to a file of evidence.")
@click.option("--record-to", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.json", help="Record, to this file.")
@click.option("--digest", metavar="SHA256", help="Fail unless `zoo digest` gives this.")
@click.option("--device", default=0, show_default=True, help="The GPU of --gpu.")
@click.pass_context
def command(
    context: click.Context,
    kernels: str,
    gpu: bool,
    emulate: bool,
    schedules: int | None,
    jobs: int | None,
    record: bool,
    record_to: Path | None,
    digest: str | None,
    device: int,
) -> None:
    """Check every cubin against the manifest; no GPU is needed.

    KERNELS is a name, a part of names such as swiglu, or a pattern such as 'quantize.*.rows'.

    Always checked are a cubin's digest, size, ELF, arch, symbol, parameters and resources.

    With --gpu the kernels run as well, and their numbers are held against the reference bit for bit, with poisoned outputs
    and guard bytes around every array.

    With --emulate they run without a GPU, from the PTX of every arch, on the smaller problems, and whatever the emulator
    finds wrong is a failure. A variant takes about 3 seconds a schedule.

    Most of the time goes into the reference, on the CPU: --jobs helps.
    """
    record = record or record_to is not None
    if record and not gpu and not emulate:
        raise click.UsageError("--record writes what was seen of running kernels: give --gpu or --emulate too")
    if schedules and not emulate:
        raise click.UsageError("--schedules belongs to --emulate")
    if jobs and not gpu and not emulate:
        raise click.UsageError("--jobs belongs to --gpu and --emulate")
    from zoo.cli.selection import selected
    from zoo.shipped.evidence import recorder

    zoo = collection(context, digest)
    chosen = selected(zoo, kernels)
    sound = _integrity(zoo, chosen)
    evidence = None
    if record and sound:
        evidence = recorder(zoo.directory, record_to)
        evidence.refuse_unwritable()
        if evidence.path.parent == zoo.directory:
            evidence.keep_only(variant for name in zoo.manifest.names for variant in zoo.kernel(name).variants)
    if (gpu or emulate) and not sound:
        click.echo("not run    any kernel: the cubins must be sound first", err=True)
    right = sound
    if sound and gpu:
        right &= _on_gpu(zoo, chosen, device, jobs or 1, evidence)
    if sound and emulate:
        right &= _emulated(zoo, chosen, schedules or 1, jobs or 1, evidence)
    context.exit(0 if right else 1)


def _integrity(zoo: Zoo, kernels: Sequence[Kernel]) -> bool:
    """Of files that no kernel knows a check of all kernels says so, too."""
    from zoo.cli.text import count, fact, progress
    from zoo.shipped.integrity import problems_of_files, verify_integrity

    names, every = {kernel.name for kernel in kernels}, zoo.manifest.names
    expected = sum(len(zoo.kernel(name).variants) for name in every)
    failures, sizes = [], {}
    with progress(verify_integrity(zoo.directory, zoo.manifest), expected, "integrity") as results:
        for result in results:
            if result.kernel not in names and not (result.kernel is None and len(names) == len(every)):
                continue
            if result.problem is not None:
                failures.append(result)
            elif result.kernel is not None:
                sizes[result.file] = (zoo.directory / result.file).stat().st_size
    wrong = [(file, problem) for file, problems in problems_of_files(failures).items() for problem in problems]
    for file, problem in wrong:
        click.echo(fact("FAILED", f"{file}: {problem}"), err=True)
    state = "as the manifest says" if not wrong else f"as the manifest says, {len(wrong)} not"
    click.echo(fact("integrity", f"{count(len(sizes), 'cubin')}, {count(sum(sizes.values()), 'byte')}: {state}"))
    if zoo.digest is None:
        click.echo(
            fact("unpinned", "nothing says whose manifest this is: keep what `zoo digest` prints elsewhere, and give it as --digest")
        )
    return not failures


def _on_gpu(zoo: Zoo, kernels: Sequence[Kernel], ordinal: int, jobs: int, evidence: Evidence | None) -> bool:
    from dataclasses import asdict

    from zoo.checks.gpu import OnGpu, runnable
    from zoo.checks.processes import outcomes
    from zoo.cli.recording import kept
    from zoo.cli.text import count, fact, progress
    from zoo.runtime import driver
    from zoo.runtime.hardware import describe

    device = driver.device(ordinal)
    machine = asdict(describe(device))
    work = [(kernel, variant) for kernel in kernels for variant in runnable(kernel, device)]
    ran = 0
    failures: dict[int, str] = {}
    of_cubins: dict[str, Outcome] = {}
    with kept(evidence if work else None), progress(outcomes(zoo, work, OnGpu(ordinal), jobs), len(work), "gpu") as items:
        for number, outcome in items:
            kernel, variant = work[number]
            ran += outcome.checks
            if outcome.error is not None:
                failures[number] = f"{kernel.name} {variant.name}: {outcome.error}"
            if evidence is not None:
                seen = _of_cubin(of_cubins, variant, outcome)
                evidence.add(variant, "gpu", {**machine, "checks": seen.checks, "error": seen.error})
    for number in sorted(failures):
        click.echo(fact("FAILED", failures[number]), err=True)
    state = "all right" if not failures else f"{count(len(failures), 'variant')} wrong"
    if work:
        click.echo(fact("gpu", f"{device.name}: {count(len(work), 'variant')}, {count(ran, 'problem')} on two poisons each: {state}"))
    for kernel in kernels:
        others = [arch for arch in kernel.archs if arch not in {variant.arch for one, variant in work if one is kernel}]
        if others:
            click.echo(fact("not run", f"{kernel.name} for {', '.join(others)}: this GPU does not run them"))
    if not work:
        click.echo(fact("FAILED", f"nothing here runs on {device.name}, compute capability {machine['capability']}"), err=True)
    return bool(work) and not failures


def _emulated(zoo: Zoo, kernels: Sequence[Kernel], schedules: int, jobs: int, evidence: Evidence | None) -> bool:
    from zoo.checks.emulated import MOST_ELEMENTS, Emulation
    from zoo.checks.processes import outcomes
    from zoo.cli.recording import kept
    from zoo.cli.text import count, fact, progress

    work = [(kernel, variant) for kernel in kernels for variant in kernel.variants]
    ran = left_out = 0
    failures: dict[int, str] = {}
    of_cubins: dict[str, Outcome] = {}
    with kept(evidence), progress(outcomes(zoo, work, Emulation(schedules), jobs), len(work), "emulator") as items:
        for number, outcome in items:
            kernel, variant = work[number]
            ran += outcome.checks
            left_out += outcome.left_out
            if outcome.error is not None:
                failures[number] = f"{kernel.name} {variant.name} ({variant.arch}): {outcome.error}"
            if evidence is not None:
                seen = _of_cubin(of_cubins, variant, outcome)
                evidence.add(variant, "emulator", {"checks": seen.checks, "schedules": schedules, "error": seen.error})
    for number in sorted(failures):
        click.echo(fact("FAILED", failures[number]), err=True)
    state = "all right" if not failures else f"{count(len(failures), 'variant')} wrong"
    each = count(schedules, "schedule")
    click.echo(fact("emulator", f"{count(len(work), 'variant')}, {count(ran, 'problem')} under {each} each: {state}"))
    if left_out:
        click.echo(
            fact(
                "not run",
                f"{count(left_out, 'problem')} of more than {MOST_ELEMENTS:,} elements, which {'needs' if left_out == 1 else 'need'} a GPU",
            )
        )
    return not failures


def _of_cubin(seen: dict[str, Outcome], variant: Variant, outcome: Outcome) -> Outcome:
    """What has been seen of the variant's cubin, which may be started under several names, each of them checked."""
    from zoo.checks import Outcome

    before = seen.get(variant.sha256, Outcome(0, None))
    seen[variant.sha256] = Outcome(before.checks + outcome.checks, before.error or outcome.error)
    return seen[variant.sha256]
