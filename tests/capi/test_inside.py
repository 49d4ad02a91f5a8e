"""What no caller of the C library can bring about from outside: the library is compiled together with the program that tries it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.capi.entries import plain_entry
from tests.capi.package import HERE, compile_package, make_directory
from zoo.capi.export import export
from zoo.contract.manifest import Manifest

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
NAME = "quantize.mxfp8.rows"


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    work = tmp_path_factory.mktemp("inside")
    cubins = make_directory(work / "cubins", {NAME: plain_entry()})
    export(work / "package", Manifest(cubins / "manifest.json"), cubins, ["*"])
    (work / "package" / "zoo.c").rename(work / "package" / "inside.h")
    return compile_package(work / "package", work / "program", [HERE / "inside.c"])


def printed(program, scenario: str) -> list[str]:
    return subprocess.run([program, scenario], capture_output=True, text=True, timeout=60).stdout.splitlines()


@pytest.mark.parametrize("lock", ["handles", "process"])
def test_a_child_forked_while_another_thread_holds_a_lock_does_not_wait_for_it(inside, lock):
    assert printed(inside, lock) == ["ForkError", "child: 0"]


def test_a_digest_of_which_any_one_byte_differs_is_refused(inside):
    assert printed(inside, "digests") == ["whole: OK", "refused: 32"]
