"""`zoo doctor`: what this machine can do with zoo, and why not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from zoo.catalog import Zoo
from zoo.cli import collection

# the framework -> how it hands over fp8, fp4 and scales
_FRAMEWORKS = {
    "torch": "tensors, its current stream; fp8 and ue8m0 dtypes as they are",
    "jax": "arrays as inputs; outputs into zoo.empty(...), read back through DLPack",
    "cupy": "arrays, its current stream; zoo.view(array, 'e4m3') names what CuPy has no dtype for",
    "numba": "device arrays through __cuda_array_interface__; give stream=",
}
_NEEDED = ("cuda-bindings", "numpy", "ml_dtypes", "click")


@dataclass
class Finding:
    """One thing that was looked at. `state`: ok, BAD (zoo is damaged), no (not on this machine), - (not needed)."""

    state: str
    what: str
    words: str
    facts: dict[str, Any] = field(default_factory=dict)  # what the words say, for programs


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Say what will work here and what will not, and why.

    Exit status 0 if a kernel can run on a GPU of this machine, else 1. The emulator needs no GPU.
    """
    package = _package(context)
    sound = not any(one.state == "BAD" for one in package)
    devices = _devices(collection(context)) if sound else []
    usable = any(one.state == "ok" for one in devices if one.what != "driver")
    emulator = [_emulator(collection(context))] if sound else []
    emulated = any(one.state == "ok" for one in emulator)
    costs = [_costs(collection(context))] if sound else []
    findings = [*package, *devices, *costs, *emulator, *_frameworks()]
    if as_json:
        states = {"runs_on_a_gpu": usable, "runs_in_the_emulator": emulated, "sound": sound}
        click.echo(json.dumps({**states, "findings": [asdict(one) for one in findings]}, indent=1))
    else:
        from zoo.cli.text import paragraph

        for one in findings:
            click.echo(paragraph(f"{one.state:<5}{one.what:<14} {one.words}", hanging=20))
        refused = any(one.facts.get("costs_refused") for one in devices)
        click.echo("\n" + paragraph(_verdict(sound, usable, emulated, refused)))
    context.exit(0 if usable else 1)


def _verdict(sound: bool, usable: bool, emulated: bool, costs_refused: bool) -> str:
    from zoo.contract.costs import VARIABLE

    if not sound:
        return "The package is damaged; reinstall zoo, or in a checkout run build_cubins.py."
    if usable:
        return "Kernels run here. Try `zoo demo`; on a GPU that `zoo list` has no evidence of, `zoo first-run` (docs/blackwell.md)."
    if costs_refused:
        return f"No GEMM can run on a GPU here, because a file of costs is refused: run `zoo tune` again, or unset {VARIABLE}."
    if not emulated:
        return "No kernel can run here. What needs no GPU works: list, show, verify, export."
    return (
        "No kernel can run on a GPU here. The emulator runs them all without one: try `zoo demo`, or paste the call that "
        "`zoo show NAME` ends with. `zoo list`, `zoo verify` and `zoo export` need no GPU either."
    )


def _package(context: click.Context) -> list[Finding]:
    """zoo, what it needs, and its cubins."""
    import zoo as package

    version, python = package.__version__, platform.python_version()
    system = f"{platform.system()} {platform.machine()}"
    facts = {"version": version, "python": python, "system": system}
    found = [Finding("ok", "zoo", f"{version} on Python {python}, {system}", facts)]
    for name in _NEEDED:
        try:
            needed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return [*found, Finding("BAD", name, "not installed; pip install cubin-zoo brings it", {"version": None})]
        found.append(Finding("ok", name, needed, {"version": needed}))
    return [*found, *_cubins(collection(context))]


def _cubins(zoo: Zoo) -> list[Finding]:
    from zoo.cli.text import count
    from zoo.errors import ZooError
    from zoo.shipped.integrity import problems_of_files, verify_integrity

    try:
        results = list(verify_integrity(zoo.directory, zoo.manifest))
    except ZooError as error:
        return [Finding("BAD", "cubins", str(error), {"directory": str(zoo.directory)})]
    files = problems_of_files(results)
    found = [
        Finding("BAD", "cubins", f"{file}: {problem}", {"file": file, "problem": problem})
        for file, problems in files.items()
        for problem in problems
    ]
    damaged = sum(1 for problems in files.values() if problems)
    archs, sound = sorted({result.arch for result in results if result.arch}), len(files) - damaged
    facts = {"directory": str(zoo.directory), "sound": sound, "damaged": damaged, "archs": archs}
    words = f"{count(sound, 'sound cubin')}, for {', '.join(archs)}, in {zoo.directory}"
    return [*found, Finding("BAD" if damaged else "ok", "cubins", words, facts)]


def _devices(zoo: Zoo) -> list[Finding]:
    from zoo.errors import ZooError
    from zoo.runtime import driver
    from zoo.runtime.hardware import driver_version

    try:
        number = driver.device_count()
    except ZooError as error:
        return [Finding("no", "driver", str(error), {"version": None})]
    version = driver_version()
    return [Finding("ok", "driver", version, {"version": version}), *(_device(zoo, ordinal) for ordinal in range(number))]


def _device(zoo: Zoo, ordinal: int) -> Finding:
    from zoo.cli.text import count
    from zoo.contract.chips import MEMORY
    from zoo.contract.costs import file_in_use
    from zoo.contract.resolve import pick_arch
    from zoo.errors import ZooError
    from zoo.runtime import driver
    from zoo.runtime.costs import costs_of

    what = f"device {ordinal}"
    try:
        device = driver.device(ordinal)
    except ZooError as error:
        return Finding("no", what, str(error), {"ordinal": ordinal})
    kernels = zoo.find()
    archs = {kernel.name: pick_arch(kernel.archs, device.capability) for kernel in kernels}
    used = sorted({arch for arch in archs.values() if arch})
    fitting = sum(arch is not None for arch in archs.values())
    capability = "{}.{}".format(*device.capability)
    facts = {
        "ordinal": ordinal, "name": device.name, "capability": capability, "multiprocessors": device.multiprocessors,
        "kernels": fitting, "archs": used,
    }  # fmt: skip
    words = f"{device.name}, compute capability {capability}, {count(device.multiprocessors, 'multiprocessor')}"
    if not fitting:
        shipped = sorted({arch for kernel in kernels for arch in kernel.archs})
        return Finding("no", what, f"{words}: no cubin runs on it, the zoo ships {', '.join(shipped)}", facts)
    try:
        if (place := file_in_use()) is not None:
            costs_of(place, device.name, device.multiprocessors)
    except ZooError as error:
        return Finding("no", what, f"{words}: {error}", facts | {"costs_refused": True})
    words += f": {fitting} of {count(len(kernels), 'kernel')}, by {', '.join(used)}"
    if any(variant.tensor for kernel in kernels for variant in kernel.variants if variant.arch == archs[kernel.name]):
        tensor, memory = 100 // device.chip.tensor, 100 * device.chip.memory // MEMORY
        facts |= {"tensor": tensor, "memory": memory}
        which = "costs assume" if place is None else "costs of kernels that the file lacks assume"
        words += f"; {which} {tensor} % of an H200's multiplications and {memory} % of its memory bandwidth in a cycle"
    return Finding("ok", what, words, facts)


def _costs(zoo: Zoo) -> Finding:
    """The file of costs in force."""
    from zoo.cli.text import count
    from zoo.contract.costs import VARIABLE, file_in_use, read_costs
    from zoo.errors import ZooError

    place = file_in_use()
    if place is None:
        words = "those of the release, measured on an H200, predicted for other Hoppers and a B200"
        return Finding("-", "costs", f"{words}; {VARIABLE} names no file of `zoo tune`", {"file": None})
    facts: dict[str, Any] = {"file": str(place)}
    try:
        costs = read_costs(place)
    except ZooError as error:
        return Finding("no", "costs", str(error), facts)
    known = [kernel for name in costs.kernels if (kernel := zoo.manifest.kernel(name)) is not None]
    used = sum(any(costs.applied(kernel, arch) for arch in kernel.archs) for kernel in known)
    facts |= {"chip": costs.chip, "multiprocessors": costs.multiprocessors, "kernels": used, "stale": len(costs.kernels) - used}
    others = f"; {count(len(costs.kernels) - used, 'kernel')} of other cubins or costs not used: run `zoo tune` again"
    words = f"{count(used, 'kernel')} measured on {costs.chip}, by {place}"
    return Finding("ok", "costs", words + (others if len(costs.kernels) > used else ""), facts)


def _emulator(zoo: Zoo) -> Finding:
    """It runs the PTX that comes with the cubins, which another directory may lack."""
    from zoo.shipped import ptx

    there = (Path(zoo.directory) / ptx.FILE).is_file()
    words = "runs every kernel without a GPU, slowly: zoo.emulator" if there else f"cannot run here: {zoo.directory} has no {ptx.FILE}"
    return Finding("ok" if there else "no", "emulator", words)


def _frameworks() -> list[Finding]:
    found = []
    for name, words in _FRAMEWORKS.items():
        if importlib.util.find_spec(name) is None:
            found.append(Finding("-", name, "not installed; zoo does not need it", {"version": None}))
            continue
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # CuPy's wheels are called cupy-cuda13x
            version = "installed"
        found.append(Finding("ok", name, f"{version}: {words}", {"version": version}))
    return found
