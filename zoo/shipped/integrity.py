"""Is every cubin exactly what the manifest says? Needs no GPU and no driver."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from zoo.contract import limits
from zoo.contract.dtypes import DTYPES
from zoo.contract.expressions import Expression
from zoo.contract.files import LARGEST_CUBIN, is_partial, read_file
from zoo.contract.manifest import Kernel, Manifest, Variant
from zoo.contract.schema import PARAMETERS
from zoo.errors import ExpressionError, IntegrityError
from zoo.shipped import evidence, ptx
from zoo.shipped.cubin_file import CubinKernel, read_cubin

MACHINE_CODE = "sass.json"  # what the build has counted in the cubins' code; of zoo nothing reads it


@dataclass(frozen=True)
class Result:
    """Of one file. `problem` is None where all is as it should be."""

    file: str
    kernel: str | None  # None: a file that the manifest does not know
    variant: str | None
    arch: str | None
    problem: str | None


def problems_of_files(results: Iterable[Result]) -> dict[str, tuple[str, ...]]:
    """What is wrong with each cubin, and with each file that is none: each problem once, where several variants are one file."""
    found: dict[str, dict[str, None]] = {}
    for result in results:
        said = found.setdefault(result.file, {})
        if result.problem is not None:
            said[result.problem] = None
    return {file: tuple(said) for file, said in found.items()}


def verify_integrity(directory: Path, manifest: Manifest) -> Iterator[Result]:
    """Checks every cubin below `directory` against `manifest`, in the manifest's order, then what else lies there."""
    kernels = manifest.kernels
    owners = {variant.sha256: (kernel, variant) for kernel in kernels for variant in kernel.variants}
    known = set()
    for kernel in kernels:
        for variant in kernel.variants:
            known.add(variant.file)
            problem = file_problem(directory / variant.file, kernel, variant, owners)
            yield Result(variant.file, kernel.name, variant.name, variant.arch, problem)
    if manifest.ptx_sha256 is not None:
        known.add(ptx.FILE)
        wrong = ptx.problem(directory, manifest)
        if wrong is not None:
            yield Result(ptx.FILE, None, None, None, wrong)
    wrong = evidence.problem(directory)
    if wrong is not None:
        yield Result(evidence.FILE, None, None, None, wrong)
    for path in sorted(directory.glob("**/*")):
        file = path.relative_to(directory).as_posix()
        if not path.is_dir() and file not in known and file not in ("manifest.json", evidence.FILE, MACHINE_CODE) and not is_partial(path):
            yield Result(file, None, None, None, "the manifest does not know this file; remove it, or run build_cubins.py")


def check_bytes(kernel: Kernel, variant: Variant, data: bytes, owners: Mapping[str, tuple[Kernel, Variant]] | None = None) -> None:
    """Raises IntegrityError unless `data` is, byte for byte, the cubin that the manifest means."""
    if hashlib.sha256(data).hexdigest() == variant.sha256:
        if len(data) != variant.bytes:
            raise IntegrityError(f"has the right digest but {len(data)} bytes, the manifest says {variant.bytes}: the manifest was edited")
        return
    raise IntegrityError(_difference(variant, data, owners or {}))


def file_problem(path: Path, kernel: Kernel, variant: Variant, owners: Mapping[str, tuple[Kernel, Variant]] | None = None) -> str | None:
    """What is wrong with the cubin of a variant, or None."""
    try:
        data = read_file(path, LARGEST_CUBIN)
    except FileNotFoundError:
        return "missing; reinstall zoo or run build_cubins.py"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    try:
        check_bytes(kernel, variant, data, owners)
        found = disagreements(kernel, variant, data)
    except IntegrityError as error:
        return str(error)
    return "; ".join(found) or None


def _difference(variant: Variant, data: bytes, owners: Mapping[str, tuple[Kernel, Variant]]) -> str:
    digest = hashlib.sha256(data).hexdigest()
    if digest in owners:
        kernel, other = owners[digest]
        return f"holds the bytes of {kernel.name} {other.name} ({other.arch}); files were swapped"
    missing = variant.bytes - len(data)
    if missing > 0:
        return f"truncated: {missing} of {variant.bytes} bytes are missing; reinstall zoo"
    if missing < 0:
        return f"{-missing} bytes longer than the {variant.bytes} it was built with; reinstall zoo"
    return f"altered: its sha256 is {digest}, the manifest says {variant.sha256}; reinstall zoo"


def disagreements(kernel: Kernel, variant: Variant, data: bytes) -> list[str]:
    """What the cubin itself says otherwise than the manifest, and what no kernel of zoo may have."""
    cubin = read_cubin(data)
    if cubin.arch != variant.arch:
        return [f"is for {cubin.arch}, the manifest says {variant.arch}"]
    if tuple(cubin.kernels) != (variant.symbol,):
        return [f"defines {', '.join(cubin.kernels) or 'no kernel'}, the manifest says {variant.symbol} alone"]
    compiled = cubin.kernels[variant.symbol]
    problems = _parameter_problems(variant, compiled)
    for what in ("registers", "static_shared", "stack"):
        found, said = getattr(compiled, what), getattr(variant, what)
        if found != said:
            problems.append(f"has {what} = {found}, the manifest says {said}")
    if compiled.stack:
        problems.append(f"uses {compiled.stack} bytes of stack a thread in local memory; keep arrays in registers or in shared memory")
    if variant.spill_stores or variant.spill_loads:
        problems.append(f"spills registers: {variant.spill_stores} bytes stored, {variant.spill_loads} loaded")
    return problems + _launch_problems(kernel, variant, compiled)


def _parameter_problems(variant: Variant, compiled: CubinKernel) -> list[str]:
    """The parameters, one by one. ptxas aligns on the address in the constant bank, which is only 16-byte aligned on
    sm_90: a tensor map's offset there differs from that in the block, which counts from 0."""
    said, found = variant.launch.parameters, compiled.parameters
    if len(said) != len(found):
        return [f"the kernel takes {len(found)} parameters, the table lists {len(said)}"]
    end, problems = compiled.parameter_base, []
    for index, (parameter, real) in enumerate(zip(said, found, strict=True)):
        _, alignment = PARAMETERS[parameter.kind]
        start = -(-end // alignment) * alignment
        end = start + parameter.size
        expected = (start - compiled.parameter_base, parameter.size)
        if (real.offset, real.size) != expected:
            problems.append(
                f"parameter {index} ({parameter.kind} '{parameter.name}') has {parameter.size} bytes at offset {expected[0]} by the table, "
                f"{real.size} bytes at {real.offset} in the kernel"
            )
            break  # the ones behind it only follow
    if not problems and end - compiled.parameter_base != compiled.parameter_bytes:
        by_table = end - compiled.parameter_base
        problems.append(f"the parameter block has {by_table} bytes by the table, {compiled.parameter_bytes} in the kernel")
    return problems


def _launch_problems(kernel: Kernel, variant: Variant, compiled: CubinKernel) -> list[str]:
    """How it is started; of clusters, where the variant's constants alone decide."""
    values, threads = known_values(kernel, variant), variant.threads
    problems = []
    if compiled.threads != (threads, 1, 1):
        problems.append(f"started with {threads} threads, compiled for {_times(compiled.threads) if compiled.threads else 'any number'}")
    registers = -(-compiled.registers // 8) * 8 * (-(-threads // 32) * 32)
    if registers > limits.REGISTERS:
        problems.append(f"{threads} threads of {compiled.registers} registers need {registers}, a CTA has {limits.REGISTERS}")
    total = compiled.static_shared + variant.shared
    if total > limits.SHARED:
        problems.append(f"{total} bytes of shared memory ({compiled.static_shared} static), the limit is {limits.SHARED}")
    rule = variant.launch
    cluster = tuple(extent for extent in (_known(extent, values) for extent in rule.cluster) if extent is not None)
    if len(cluster) == len(rule.cluster):
        if not all(extent >= 1 for extent in cluster) or _product(cluster) > limits.CLUSTER:
            problems.append(f"a cluster of {_times(cluster)} CTAs, expected 1 to {limits.CLUSTER}")
        if compiled.cluster and compiled.cluster != cluster:
            problems.append(f"started in clusters of {_times(cluster)}, compiled for {_times(compiled.cluster)}")
    return problems


def known_values(kernel: Kernel, variant: Variant) -> dict[str, int]:
    """What expressions read that does not depend on the call: constants, and flags of what the variant fixes."""
    values = dict(variant.symbols)
    for name, chosen in variant.options.items():
        values.update({f"{name}.{value}": int(chosen == value) for value in kernel.options[name].values})
    for name, argument in kernel.arguments.items():
        if argument.kind == "array" and (name in variant.dtypes or len(argument.dtypes) == 1):
            dtype = variant.dtypes.get(name, argument.dtypes[0])
            values.update({f"{name}.{other}": int(other == dtype) for other in argument.dtypes})
            values[f"{name}.itemsize"] = DTYPES[dtype].bytes
    return values


def _known(expression: Expression, values: Mapping[str, int]) -> int | None:
    """Its value if `values` decide it."""
    if not set(expression.names) <= set(values):
        return None
    try:
        return expression.evaluate(values)
    except ExpressionError as error:
        raise IntegrityError(str(error)) from None


def _product(extents: Iterable[int]) -> int:
    total = 1
    for extent in extents:
        total *= extent
    return total


def _times(extents: Iterable[int]) -> str:
    return "x".join(map(str, extents))
