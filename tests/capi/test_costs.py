"""The C library reads a file of costs as Python does: the same choice, or the same refusal."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.capi.package import export_and_compile, make_directory, sanitizer_settings, sanitizers
from tests.capi.problems import Maker, Problem
from tests.contract.entries import entry
from tests.recorder import environment
from zoo.contract.costs import LARGEST_NUMBER, SCHEMA, Costs, as_measured, read_costs, refuse_other_chip, text_of, with_numbers
from zoo.contract.manifest import Kernel, Manifest
from zoo.contract.resolve import resolve
from zoo.errors import ConstraintError, IntegrityError

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
NAME, ARCH = "gemm.mxfp8_mxfp4.dense", "sm_90a"
WITHOUT_NUMBERS = "gemm.mxfp8_mxfp4.dense.swiglu"
CHIP, MULTIPROCESSORS = "Recorder 9.0", 132  # as the stand-in calls its first device
DAMAGES = 60


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The manifest of two kernels, and the caller. By the manifest, tile `small` of NAME is cheaper, and on an H20 `large` is."""
    work = tmp_path_factory.mktemp("costs")
    made, other = entry(NAME), entry(WITHOUT_NUMBERS)
    for variant in made["variants"]:
        small = variant["name"].endswith("_small")
        variant |= {"when": "1", "cost": "M * turn + call * turn * 4", "numbers": {"turn": 10 if small else 20, "call": 100}}
        variant |= {"tensor": {"turn": 8 if small else 4}, "rates": {"call": "memory"}}  # on an H20, turn is 32 and 23
        variant["symbol"] += f"_{variant['arch']}"
    for variant in other["variants"]:
        variant |= {"symbol": f"{variant['symbol']}_swiglu_{variant['arch']}", "file": variant["file"].replace(".cubin", "_swiglu.cubin")}
    cubins = make_directory(work / "cubins", {NAME: made, WITHOUT_NUMBERS: other})
    return Manifest(cubins / "manifest.json"), export_and_compile(cubins, work, flags=sanitizers())


@pytest.fixture(scope="module")
def package(exported):
    manifest, caller = exported
    return manifest.kernel(NAME), caller


def text_for(kernel: Kernel, chip: str = CHIP, multiprocessors: int = MULTIPROCESSORS) -> str:
    """A file by which `large` is cheaper."""
    numbers = {one.name: {"turn": 10 if one.name.endswith("_large") else 30, "call": 100} for one in kernel.variants if one.arch == ARCH}
    tuned = with_numbers(kernel, ARCH, numbers)
    return text_of(Costs(SCHEMA, chip, multiprocessors, {NAME: as_measured(tuned, ARCH)}))


def problem_of(kernel: Kernel) -> Problem:
    maker = Maker(kernel, seed=3)
    found = (maker.valid(kernel.variants[0]) for _ in range(1000))
    return next(one for one in found if one.device == 0 and one.variant is None and not one.resolve().empty)


def of_python(problem: Problem, file: Path) -> str:
    """`ok` and the variant, or `refused`."""
    kernel = problem.kernel
    try:
        costs = read_costs(file)
        refuse_other_chip(file, costs, CHIP, MULTIPROCESSORS)
    except IntegrityError as error:
        return f"refused {error}"
    values = {name: one.array() if hasattr(one, "array") else one for name, one in problem.arguments.items()}
    return f"ok {resolve(costs.applied(kernel, ARCH) or kernel, values, (9, 0), MULTIPROCESSORS).variant.name}"


def started(caller: Path, problem: Problem, recorder: Path, file: Path | str, devices: str = "9.0:132") -> subprocess.CompletedProcess[str]:
    settings = {**environment(recorder, devices=devices), **sanitizer_settings(), "ZOO_COSTS": str(file)}
    return subprocess.run([caller], input=problem.words(), env=settings, capture_output=True, text=True, timeout=60)


def of_c(caller: Path, problem: Problem, recorder: Path, file: Path | str, devices: str = "9.0:132") -> str:
    process = started(caller, problem, recorder, file, devices)
    assert process.returncode == 0, process.stderr
    if process.stdout.startswith("refused"):
        return process.stdout.strip().replace("refused IntegrityError", "refused")
    return process.stdout.rpartition(" ")[0]


CHANGED = {
    "nothing": ("", ""),
    "the digest of a cubin": ('"cubin": "', '"cubin": "f'),
    "the cost of a variant": ("M * turn + call", "M * turn - call"),
    "the name of a number": ('"turn"', '"turns"'),
    "the name of a variant": ("_large", "_huge"),
    "the name of the kernel": (NAME, "gemm.nothing"),
    "the schema": ('"schema": 1', '"schema": 2'),
    "a key": ('"cost"', '"costs"'),
    "a number of 0": ('"turn": 10', '"turn": 0'),
    "a number of 32 bits": ('"turn": 10', '"turn": 2147483648'),
    "the largest number": ('"call": 100', '"call": 2147483647'),
    "a number that is none": ('"turn": 10', '"turn": 1e1'),
    "a negative number": ('"turn": 10', '"turn": -10'),
    "a kernel twice": (f'"{NAME}"', f'"{NAME}": {{}}, "{NAME}"'),
    "a number twice": ('"turn": 10', '"turn": 10, "turn": 10'),
    "an escape": ("_large", "\\u005flarge"),
    "a letter beyond ASCII": ("Recorder", "Recörder"),
    "the end": ("}}\n", "}} \n\t"),
    "what follows the end": ("}}\n", "}}}"),
    "a comma too many": ('"call": 100}', '"call": 100,}'),
}


@pytest.mark.parametrize("what", CHANGED)
def test_c_takes_the_numbers_that_python_takes(package, recorder, tmp_path, what):
    """A library that read half of a damaged file would compare numbers of two chips."""
    kernel, caller = package
    old, new = CHANGED[what]
    text, file = text_for(kernel), tmp_path / "costs.json"
    file.write_text(text.replace(old, new, 1) if old else text)
    problem = problem_of(kernel)
    expected, found = of_python(problem, file), of_c(caller, problem, recorder, file)
    assert found == expected or (" is damaged" in found and " is damaged" in expected), (found, expected)
    stale = what in (
        "the digest of a cubin",
        "the cost of a variant",
        "the name of a number",
        "the name of a variant",
        "the name of the kernel",
    )
    sound = stale or what in ("nothing", "the largest number", "the end")
    assert expected.startswith("ok") == sound
    if sound and what != "the largest number":
        assert expected.endswith("_small" if stale else "_large")


def test_c_refuses_the_numbers_of_another_chip_in_pythons_words(package, recorder, tmp_path):
    kernel, caller = package
    problem, file = problem_of(kernel), tmp_path / "costs.json"
    for chip, multiprocessors in (("NVIDIA H20", MULTIPROCESSORS), (CHIP, 78)):
        file.write_text(text_for(kernel, chip, multiprocessors))
        found = of_c(caller, problem, recorder, file)
        assert found == of_python(problem, file)
        assert f"is of {chip} with {multiprocessors} multiprocessors, this GPU is {CHIP} with {MULTIPROCESSORS}" in found


def test_a_chip_has_its_numbers_unless_a_file_has_them(package, recorder, tmp_path):
    kernel, caller = package
    problem, file = problem_of(kernel), tmp_path / "costs.json"
    chip = "9.0:78@NVIDIA H20@1980000@2619000@6144"
    assert of_c(caller, problem, recorder, "").endswith("_small") and of_c(caller, problem, recorder, "", chip).endswith("_large")
    numbers = {one.name: {"turn": 10 if one.name.endswith("_small") else 30, "call": 100} for one in kernel.variants if one.arch == ARCH}
    tuned = with_numbers(kernel, ARCH, numbers)
    file.write_text(text_of(Costs(SCHEMA, "NVIDIA H20", 78, {NAME: as_measured(tuned, ARCH)})))
    assert of_c(caller, problem, recorder, file, chip).endswith("_small")
    file.write_text(file.read_text().replace('"cubin": "', '"cubin": "f', 1))
    assert of_c(caller, problem, recorder, file, chip).endswith("_large"), "a file of other cubins"


def test_a_kernel_without_numbers_runs_beside_the_file_of_another_chip(exported, recorder, tmp_path):
    manifest, caller = exported
    file, problem = tmp_path / "costs.json", problem_of(manifest.kernel(WITHOUT_NUMBERS))
    file.write_text(text_for(manifest.kernel(NAME), "NVIDIA H20"))
    assert of_c(caller, problem, recorder, file) == f"ok {problem.resolve().variant.name}"


def test_a_call_that_too_large_numbers_refuse_names_the_variable(package, recorder, tmp_path):
    kernel, caller = package
    problem, file = problem_of(kernel), tmp_path / "costs.json"
    file.write_text(re.sub(r'("turn"|"call"): [0-9]+', rf"\1: {LARGEST_NUMBER}", text_for(kernel)))
    with pytest.raises(ConstraintError, match="does not fit 64 bits; run `zoo tune` again, or unset ZOO_COSTS") as refusal:
        of_python(problem, file)
    assert str(refusal.value) in started(caller, problem, recorder, file).stdout


def test_c_and_python_agree_on_files_that_are_damaged_anywhere(package, recorder, tmp_path):
    kernel, caller = package
    text, problem, file, pick = text_for(kernel), problem_of(kernel), tmp_path / "costs.json", random.Random(5)
    seen = set()
    for _ in range(DAMAGES):
        at = pick.randrange(len(text))
        damaged = pick.choice((text[:at], text[:at] + text[at + 1 :], text[:at] + pick.choice('{}",:019ax ') + text[at + 1 :]))
        file.write_text(damaged)
        expected, found = of_python(problem, file), of_c(caller, problem, recorder, file)
        assert found.split()[0] == expected.split()[0] and (found == expected or expected.startswith("refused")), (damaged, found, expected)
        seen.add(found.split()[0])
    assert seen == {"ok", "refused"}


def test_what_is_no_regular_file_is_refused(package, recorder, tmp_path):
    kernel, caller = package
    problem = problem_of(kernel)
    for place in (tmp_path, tmp_path / "missing", Path("/dev/zero")):
        assert "cannot be read" in of_c(caller, problem, recorder, place)
        assert "cannot be read" in of_python(problem, place)
