"""Processes that are killed at moments drawn by seed, while they do nothing but write."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.interruptions.compilers import builds
from tests.interruptions.programs import AGAIN, KERNELS
from tests.interruptions.stops import files_of, hidden
from tests.recorder import ROOT
from tools.builder.build import Selection
from zoo.contract.manifest import Manifest
from zoo.shipped.evidence import Evidence
from zoo.shipped.integrity import verify_integrity


def killed(what: str, folder, number: signal.Signals, seed: int):
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.interruptions.programs", what, folder], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    time.sleep(random.Random(seed).uniform(0, 0.1))
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode in (-number, 128 + number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("what", AGAIN)
def test_what_is_left_when_a_process_is_killed_is_understood_by_the_next(tmp_path, what, number):
    killed(what, tmp_path, number, seed=int(number))
    if what == "export":
        AGAIN[what](tmp_path, 1)
        AGAIN[what](tmp_path / "fresh", 1)
        assert files_of(tmp_path / "package") == files_of(tmp_path / "fresh/package")
        assert len(KERNELS[1]) == 2 and not hidden(files_of(tmp_path / "package"))
    elif what == "record":
        before = json.loads((tmp_path / "evidence.json").read_text())
        assert set(before) == {f"{turn:064x}" for turn in range(len(before))}, "one after the other, and none lost"
        evidence = Evidence(tmp_path)
        evidence.write()
        assert list(files_of(tmp_path)) == ["evidence.json"] and json.loads((tmp_path / "evidence.json").read_text()) == before
    else:
        shutil.rmtree(tmp_path / "1")
        shutil.rmtree(tmp_path / "2")
        _, newer = builds(tmp_path, tmp_path / "checkout")
        newer.run(Selection())
        cubins = tmp_path / "checkout/cubins"
        assert not hidden(files_of(tmp_path / "checkout"))
        assert [result.problem for result in verify_integrity(cubins, Manifest(cubins / "manifest.json"))] == [None]
