"""What no caller of the C library can bring about from outside: the library is compiled together with the program that tries it."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess

import pytest

from tests.capi.entries import plain_entry
from tests.capi.package import HERE, compile_package, make_directory, sanitizers
from zoo.capi.export import export
from zoo.contract.chips import chip_of
from zoo.contract.manifest import Manifest
from zoo.contract.schema import RATES

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
NAME = "quantize.mxfp8.rows"


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    work = tmp_path_factory.mktemp("inside")
    cubins = make_directory(work / "cubins", {NAME: plain_entry()})
    export(work / "package", Manifest(cubins / "manifest.json"), cubins, ["*"])
    (work / "package" / "zoo.c").rename(work / "package" / "inside.h")
    return compile_package(work / "package", work / "program", [HERE / "inside.c"], sanitizers())


def printed(program, scenario: str) -> list[str]:
    return subprocess.run([program, scenario], capture_output=True, text=True, timeout=60).stdout.splitlines()


@pytest.mark.parametrize("lock", ["handles", "process"])
def test_a_child_forked_while_another_thread_holds_a_lock_does_not_wait_for_it(inside, lock):
    assert printed(inside, lock) == ["ForkError", "child: 0"]


def test_a_digest_of_which_any_one_byte_differs_is_refused(inside):
    assert printed(inside, "digests") == ["whole: OK", "refused: 32"]


NAMES = [
    "NVIDIA H20",
    "NVIDIA H20-3e",
    "NVIDIA H200",
    "NVIDIA H100 PCIe",
    "NVIDIA GH200 480GB",
    "nvidia h20",
    "NVIDIA H20 MIG 1g.12gb",
    "of tomorrow",
]
CLOCKS = [0, 1, 1_755_000, 1_980_000, 2_619_000, 3_201_000, 2**31 - 1]
BITS = [0, 1, 384, 5120, 6144, 8192, 2**31 - 1]


def test_c_and_python_have_the_same_numbers_on_any_chip(inside):
    """A chip that nobody has seen, or a driver that says nonsense, would make both choose different tiles, or overflow in C."""
    pick, lines, expected = random.Random(8), [], []
    chips = [
        (name, pick.choice((1, 16, 78, 114, 132, 1000)), *rates) for name in NAMES for rates in itertools.product(CLOCKS, CLOCKS, BITS)
    ]
    for name, multiprocessors, *rates in chips:
        number, tensor = (pick.choice((0, 1, 26, 100, 4494, 48123274, 2**31 - 1)) for _ in range(2))
        chip = chip_of(name, multiprocessors, *rates)
        numbers = (chip.time(number, tensor), *(chip.rate(number, rate) for rate in RATES))
        expected.append(" ".join(map(str, (chip.tensor, chip.memory, *numbers))))
        lines.append("@".join(map(str, (name, multiprocessors, *rates, number, tensor))))
    run = subprocess.run([inside, "chips"], input="\n".join(lines), capture_output=True, text=True, timeout=60)
    assert run.stderr == ""
    found = run.stdout.splitlines()
    assert [one for one in zip(lines, found, expected, strict=True) if one[1] != one[2]] == []
