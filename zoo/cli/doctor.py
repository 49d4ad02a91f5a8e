"""`zoo doctor`: what this machine can do with zoo, and why not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform

import click

from zoo.cli import collection

# the framework -> how it hands over fp8, fp4 and scales
_FRAMEWORKS = {
    "torch": "tensors, its current stream; fp8 and ue8m0 dtypes as they are",
    "jax": "arrays as inputs; outputs into zoo.empty(...), read back through DLPack",
    "cupy": "arrays, its current stream; zoo.view(array, 'e4m3') names what CuPy has no dtype for",
    "numba": "device arrays through __cuda_array_interface__; give stream=",
}


@click.command("doctor")
@click.pass_context
def command(context: click.Context):
    """Say what will work here and what will not, and why.

    Exit status 0 if a kernel can run on this machine, else 1.
    """
    package = _package(context)
    devices = _devices(context) if package else False
    _frameworks()
    if package and devices:
        click.echo("\nKernels run here. Try `zoo demo`.")
    elif package:
        click.echo("\nNo kernel can run here. What needs no GPU works: list, show, verify, export.")
    else:
        click.echo("\nThe package is damaged; reinstall zoo, or in a checkout run build_cubins.py.")
    context.exit(0 if package and devices else 1)


def _say(state: str, what: str, words: str):
    from zoo.cli.text import paragraph

    click.echo(paragraph(f"{state:<5}{what:<14} {words}", hanging=20))


def _package(context: click.Context) -> bool:
    import zoo as package
    from zoo.errors import ZooError
    from zoo.shipped.integrity import verify_integrity

    _say("ok", "zoo", f"{package.__version__} on Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    for name in ("cuda-bindings", "numpy", "ml_dtypes", "click"):
        try:
            _say("ok", name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            _say("BAD", name, "not installed; pip install cubin-zoo brings it")
            return False
    zoo = collection(context)
    try:
        results = list(verify_integrity(zoo.directory, zoo.manifest))
    except ZooError as error:
        _say("BAD", "cubins", str(error))
        return False
    problems = [result for result in results if result.problem is not None]
    for result in problems:
        _say("BAD", "cubins", f"{result.file}: {result.problem}")
    archs = sorted({result.arch for result in results if result.arch})
    _say("ok" if not problems else "BAD", "cubins", f"{len(results) - len(problems)} sound, for {', '.join(archs)}, in {zoo.directory}")
    return not problems


def _devices(context: click.Context) -> bool:
    from zoo.errors import ZooError
    from zoo.runtime import driver
    from zoo.runtime.hardware import driver_version

    try:
        count = driver.device_count()
    except ZooError as error:
        _say("no", "driver", str(error))
        return False
    _say("ok", "driver", driver_version())
    return any([_device(context, ordinal) for ordinal in range(count)])  # a list: every device is described


def _device(context: click.Context, ordinal: int) -> bool:
    from zoo.contract.resolve import pick_arch
    from zoo.errors import ZooError
    from zoo.runtime import driver

    zoo = collection(context)
    try:
        device = driver.device(ordinal)
    except ZooError as error:
        _say("no", f"device {ordinal}", str(error))
        return False
    kernels = zoo.find()
    archs = {kernel.name: pick_arch(kernel.archs, device.capability) for kernel in kernels}
    fitting = [name for name, arch in archs.items() if arch]
    what = f"{device.name}, compute capability {device.capability[0]}.{device.capability[1]}, {device.multiprocessors} multiprocessors"
    if not fitting:
        shipped = sorted({arch for kernel in kernels for arch in kernel.archs})
        _say("no", f"device {ordinal}", f"{what}: no cubin runs on it, the zoo ships {', '.join(shipped)}")
        return False
    used = ", ".join(sorted({arch for arch in archs.values() if arch}))
    _say("ok", f"device {ordinal}", f"{what}: {len(fitting)} of {len(kernels)} kernels, by {used}")
    return True


def _frameworks():
    for name, words in _FRAMEWORKS.items():
        if importlib.util.find_spec(name) is None:
            _say("-", name, "not installed; zoo does not need it")
            continue
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # CuPy's wheels are called cupy-cuda13x
            version = "installed"
        _say("ok", name, f"{version}: {words}")
