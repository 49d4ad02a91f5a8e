"""Random calls of the C library under ASan and UBSan, and from several threads under TSan; and that these would see a mistake.

ZOO_FUZZ_SECONDS=3600 pytest tests/capi/test_sanitizers.py -k random     for an hour, seed after seed
ZOO_FUZZ_SEED=123 pytest tests/capi/test_sanitizers.py -k random         one seed again
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import time
from pathlib import Path

import pytest

from tests.capi.entries import demanding_entry
from tests.capi.package import ADDRESSES, HERE, THREADS, compile_package, make_directory, needed_sanitizer
from tests.capi.problems import RECORDER_DEVICES, Maker
from tests.contract.entries import entry
from tests.recorder import Run, program
from zoo.capi.export import export
from zoo.contract.manifest import Manifest

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
# sanitizer: its flags, its settings, and how many threads make how many calls each
SANITIZERS = {
    "addresses": (ADDRESSES, {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}, 2, 6000),
    "threads": (THREADS, {"TSAN_OPTIONS": "halt_on_error=1"}, 4, 1500),
}
GOOD_CALLS = 120  # of each kernel, which are changed at random


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """An exported folder of two kernels, and beside it a file of good calls of them."""
    work = tmp_path_factory.mktemp("soak")
    grouped = entry()
    grouped["launches"]["default"]["grid"][0] = "round_up(min(sms, TILES), CLUSTER)"  # clusters of two divide a grid only if it is even
    for variant in grouped["variants"]:
        variant["symbol"] += f"_{variant['arch']}"
    cubins = make_directory(work / "cubins", {"gemm.mxfp8_mxfp4.dense": grouped, "quantize.mxfp8.rows": demanding_entry()})
    manifest, pick = Manifest(cubins / "manifest.json"), random.Random(7)
    made = [(Maker(kernel, seed=8), kernel) for kernel in map(manifest.kernel, manifest.names)]
    problems = [maker.valid(pick.choice(kernel.variants)) for maker, kernel in made for _ in range(GOOD_CALLS)]
    (work / "calls").write_text("".join(problem.words() for problem in problems))
    export(work / "package", manifest, cubins, ["*"])
    return work / "package"


def build(package: Path, program: Path, sanitizer: str) -> Path:
    flags, settings, *_ = SANITIZERS[sanitizer]
    return compile_package(package, program, [HERE / "soak.c"], needed_sanitizer(flags, settings))


def soak(built: Path, package: Path, recorder: Path, sanitizer: str, seed: int, share: int = 1) -> Run:
    _, settings, threads, calls = SANITIZERS[sanitizer]
    command = [built, package.parent / "calls", seed, threads, calls // share]
    return program(recorder, command, devices=RECORDER_DEVICES, check=False, timeout=300, **settings)


def seeds():
    """The one seed of every run, or that of ZOO_FUZZ_SEED, or new ones for ZOO_FUZZ_SECONDS."""
    seconds = float(os.environ.get("ZOO_FUZZ_SECONDS", 0))
    if not seconds:
        return [int(os.environ.get("ZOO_FUZZ_SEED", 1))]
    until = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < until, itertools.count(random.SystemRandom().randrange(1 << 40)))


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_random_calls_do_nothing_that_a_sanitizer_sees(package, recorder, tmp_path, sanitizer):
    built, tried = build(package, tmp_path / "program", sanitizer), 0
    for seed in seeds():
        run = soak(built, package, recorder, sanitizer, seed)
        assert run.returncode == 0, f"ZOO_FUZZ_SEED={seed}\n{run.stderr[-8000:]}"
        assert run.faults == [], seed
        succeeded, refused = (int(word) for word in run.stdout.split() if word.isdigit())
        assert succeeded > 1000 and refused > 1000
        tried += succeeded + refused
    print(f"{sanitizer}: {tried:,} calls")


MISTAKES = {
    "an array that is too short": ("addresses", "int64_t stack[ZOO_MOST_STACK];", "int64_t stack[2];", "index 2 out of bounds"),
    "a plan freed and still found": (
        "addresses",
        "remove_object(handle, PLAN_HANDLE)",
        "find_object(handle, PLAN_HANDLE)",
        "heap-use-after-free",
    ),
    "a plan that is not freed": ("addresses", "    free(plan);\n", "    plan->empty = true;\n", "LeakSanitizer"),
    "a product that overflows": (
        "addresses",
        "if (__builtin_mul_overflow(step, array->shape[axis] > 1 ? array->shape[axis] : 1, &step)) step = INT64_MAX;",
        "step *= array->shape[axis] > 1 ? array->shape[axis] : 1;",
        "signed integer overflow",
    ),
    "no lock around loading": (
        "threads",
        "        pthread_mutex_lock(&process_lock);\n        if (!*slot",
        "        if (!*slot",
        "data race|unlock of an unlocked mutex",
    ),
    "no lock around handles": ("threads", "pthread_mutex_lock(&handles_lock);", "", "data race|unlock of an unlocked mutex"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_c_library_is_seen(package, recorder, tmp_path, mistake):
    sanitizer, right, wrong, words = MISTAKES[mistake]
    shutil.copytree(package, tmp_path / "package")
    source = tmp_path / "package" / "zoo.c"
    text = source.read_text()
    assert right in text
    source.write_text(text.replace(right, wrong))
    run = soak(build(tmp_path / "package", tmp_path / "program", sanitizer), package, recorder, sanitizer, seed=1, share=4)
    assert run.returncode != 0 and any(word in run.stderr for word in words.split("|")), run.stdout + run.stderr
