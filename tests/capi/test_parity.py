"""C and Python read one contract: the same launch to the byte, the same refusal to the word."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.capi.package import ROOT, export_and_compile, make_directory, sanitizer_settings, sanitizers
from tests.capi.problems import RECORDER_DEVICES, SPOILERS, Maker, Problem
from tests.contract.entries import entry
from tests.recorder import Log, Run, environment
from zoo.contract.manifest import Kernel, Manifest
from zoo.contract.resolve import Launch

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
# Calls of each kernel at least, and of each variant: variants of a kernel are chosen and started by the same rules, and there are hundreds.
VALID, VALID_OF_A_VARIANT = 120, 12
SPOILED = 40  # of each way to spoil a call and each kernel


def _contract_directory(directory: Path) -> Path:
    made = entry()
    # clusters of two divide a grid only if it is even
    made["launches"]["default"]["grid"][0] = "round_up(min(sms, TILES), CLUSTER)"
    # when it fails with blocked scales, one of the names in it has no value
    made["constraints"].append({"expression": "scale_stride % 2 == 0 if layout.plain else K >= 64", "words": "scales come in pairs"})
    for variant in made["variants"]:
        variant["symbol"] += f"_{variant['arch']}"
    return make_directory(directory, {"gemm.mxfp8_mxfp4.dense": made})


_ZOOS = {"shipped": ROOT / "cubins", "tests": ROOT / "tests" / "zoo_cubins", "contract": None}


@pytest.fixture(scope="module", params=_ZOOS)
def zoo(request, tmp_path_factory):
    """A cubin directory's manifest and the caller built with it, with sanitizers where the compiler has them."""
    work = tmp_path_factory.mktemp(request.param)
    cubins = _ZOOS[request.param] or _contract_directory(work / "cubins")
    return Manifest(cubins / "manifest.json"), export_and_compile(cubins, work, flags=sanitizers())


def call(caller: Path, recorder: Path, problems: list[Problem], directory: Path) -> tuple[list[str], Log]:
    """What came of each problem, and what reached the driver."""
    text, log = directory / "problems", directory / "log"
    log.unlink(missing_ok=True)
    text.write_text("".join(problem.words() for problem in problems))
    settings = {**environment(recorder, log, RECORDER_DEVICES), **sanitizer_settings()}
    with text.open() as lines:
        process = subprocess.run([caller], stdin=lines, env=settings, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    answers = process.stdout.splitlines()
    assert len(answers) == len(problems)
    return answers, Run(log, process)


def compare(problems: list[Problem], answers: list[str], log: Log) -> Counter:
    """Holds C's answers against Python's; returns how often each outcome was seen."""
    launches, seen = iter(log.launches), Counter()
    for problem, answer in zip(problems, answers, strict=True):
        expected = problem.resolve()
        where = f"{problem.spoiled}\n{problem.words()}"
        if isinstance(expected, Launch):
            assert answer == f"ok {expected.variant.name} {int(expected.empty)}", where
            seen["empty" if expected.empty else "launched"] += 1
            if not expected.empty:
                _compare_launch(next(launches), expected, problem, where)
        else:
            assert answer == f"refused {type(expected).__name__} {expected}", where
            seen[type(expected).__name__] += 1
    assert next(launches, None) is None, "something was enqueued that Python refuses"
    assert log.faults == []
    return seen


def _compare_launch(found, expected: Launch, problem: Problem, where: str):
    rule = expected.variant.launch
    assert found.kernel == expected.variant.symbol, where
    assert found.device == problem.device, where
    assert (found.grid, found.threads, found.cluster, found.shared) == (
        expected.grid,
        expected.threads,
        expected.cluster,
        expected.shared,
    ), where
    assert found.programmatic == rule.programmatic, where
    assert found.block(rule) == expected.logical_block(), where


def _kernels(manifest: Manifest) -> list[Kernel]:
    return [manifest.kernel(name) for name in manifest.names]


def test_every_variant_is_launched_with_the_same_bytes(zoo, recorder, tmp_path):
    manifest, caller = zoo
    problems = []
    for kernel in _kernels(manifest):
        maker = Maker(kernel, seed=1)
        calls = max(VALID_OF_A_VARIANT, VALID // len(kernel.variants))
        for variant in kernel.variants:
            problems += [maker.launching(variant), *(maker.valid(variant) for _ in range(calls - 1))]
    answers, log = call(caller, recorder, problems, tmp_path)
    seen = compare(problems, answers, log)
    assert seen["launched"] > len(problems) // 2 and set(seen) <= {"launched", "empty"}
    started = {launch.kernel for launch in log.launches}
    assert started == {variant.symbol for kernel in _kernels(manifest) for variant in kernel.variants}


def test_what_python_refuses_c_refuses_with_the_same_words(zoo, recorder, tmp_path):
    manifest, caller = zoo
    problems, pick = [], random.Random(2)
    for kernel in _kernels(manifest):
        maker = Maker(kernel, seed=3)
        good = [maker.valid(pick.choice(kernel.variants)) for _ in range(SPOILED)]
        for how, spoil in SPOILERS.items():
            for problem in good:
                spoiled = spoil(pick, problem)
                if spoiled is not None:
                    problems.append(Problem(**{**spoiled.__dict__, "spoiled": how}))
    answers, log = call(caller, recorder, problems, tmp_path)
    seen = compare(problems, answers, log)
    assert {"ArgumentError", "ConstraintError", "VariantError", "ArchitectureError"} <= set(seen)
    refused = Counter(problem.spoiled for problem, answer in zip(problems, answers, strict=True) if answer.startswith("refused"))
    applied = {problem.spoiled for problem in problems}
    assert all(refused[how] >= 10 for how in applied), refused
