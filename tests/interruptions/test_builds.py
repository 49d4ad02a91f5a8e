"""A build that is stopped at any operation: the old zoo stays, or the next build makes the new one."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from build_cubins import PACKAGES
from tests.builder.build_trees import needs_nvcc
from tests.interruptions.compilers import builds
from tests.interruptions.stops import FULL, HOW, KILL, every_stop, files_of, hidden, stopping
from tests.recorder import ROOT
from tools.builder import sass
from tools.builder.build import Selection
from tools.builder.compiler import Compiler
from zoo.contract.manifest import Manifest
from zoo.shipped import places
from zoo.shipped.evidence import pin_text
from zoo.shipped.integrity import verify_integrity


def sound(root) -> bool:
    """Whether `zoo verify` passes."""
    cubins = root / "cubins"
    pinned = (root / "zoo/shipped/pins.py").read_text().split('"')[-2]
    if hashlib.sha256((cubins / "manifest.json").read_bytes()).hexdigest() != pinned:
        return False
    return not any(result.problem for result in verify_integrity(cubins, Manifest(cubins / "manifest.json")))


_SAID: dict[tuple, subprocess.CompletedProcess] = {}


def said_before(command, **settings):
    """What nvdisasm says of a file with the same bytes: asked once, for a build is repeated a hundred times. It writes nothing itself."""
    *asked, file = command
    key = (*asked, Path(file).read_bytes())
    if key not in _SAID:
        _SAID[key] = subprocess.run(command, **settings)
    return _SAID[key]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with an older build and what was seen of its cubins, and the build of its changed sources."""
    root = tmp_path / "checkout"
    (root / "zoo/shipped").mkdir(parents=True)
    (root / "build_cubins.py").touch()
    monkeypatch.setattr(places, "PACKAGE", root / "zoo")
    monkeypatch.setattr(sass, "subprocess", SimpleNamespace(run=said_before))
    older, newer = builds(tmp_path, root)
    older.run(Selection())
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(root.glob("cubins/*/*.cubin"))]
    assert len(digests) == 6
    evidence = json.dumps({digest: {"gpu": {"device": "NVIDIA H200", "error": None}} for digest in digests}).encode()
    (root / "cubins/evidence.json").write_bytes(evidence)
    pin = root / "zoo/shipped/evidence_pin.py"
    pin.write_text(pin_text(evidence))
    monkeypatch.setattr("zoo.shipped.evidence_pin.EVIDENCE_SHA256", None)
    assert sound(root)
    return root, newer


@pytest.mark.parametrize("how", HOW)
def test_a_build_that_is_stopped_at_any_operation_is_repaired_by_the_next(checkout, tmp_path, how):
    root, build = checkout
    shutil.copytree(root, tmp_path / "old")
    old = files_of(root)
    build.run(Selection())
    new = files_of(root)
    assert sound(root) and not hidden(new) and not (root / "cubins/sm_100f").exists()
    assert sum(name.endswith(".cubin") for name in new) == 1 and json.loads(new["cubins/evidence.json"]) == {}

    def prepare():
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "old", root)

    def check(disk):
        left = files_of(root)
        if how != KILL:
            assert not hidden(left), "temporary files stay behind"
        if how == FULL and disk.stopped != "replace":
            assert disk.renamed in (0, 5, 7), (
                "the cubin, the PTX, the manifest, the report on machine code and its pin, then the evidence and its pin: all or none"
            )
        if not disk.renamed:
            assert {name: data for name, data in left.items() if name not in hidden(left)} == old and sound(root)
        build.run(Selection())
        assert files_of(root) == new and not (root / "cubins/sm_100f").exists()

    stops = every_stop(how, prepare, lambda: build.run(Selection()), check)
    assert stops > (15 if how == FULL else 22)


def test_a_full_disk_names_the_file_that_did_not_fit(checkout):
    root, build = checkout
    named = set()
    for number in range(4, 22):
        with stopping(number, FULL), pytest.raises(OSError, match="No space left on device") as caught:
            build.run(Selection())
        named.add(caught.value.filename.removeprefix(f"{root}/"))
    files = ("sm_90a/gemm_bf16_mxfp4_dense__r8.cubin", "ptx.tar.xz", "manifest.json", "sass.json")
    assert named == {*(f"cubins/{file}" for file in files), "zoo/shipped/pins.py"}


def test_only_what_a_process_left_is_taken_for_left_over(checkout):
    """A hidden file that merely ends alike is somebody's own: it stays, and `zoo verify` names it."""
    root, build = checkout
    left, own = root / "cubins/sm_90a/.a.cubin.8.new", [root / f"cubins/{name}" for name in (".draft.new", ".7.new.txt", "notes.7.new")]
    for path in (left, *own):
        path.write_text("mine")
    build.run(Selection())
    assert not left.exists() and all(path.exists() for path in own) and not sound(root)


PROGRAM = """
import os, sys
from pathlib import Path
_, root, slow, source, output = sys.argv
sys.path.insert(0, root)
import build_cubins
from tools.builder.compiler import Compiler

real = Compiler.__init__
def with_a_compiler_that_takes_long(self, packages):
    real(self, packages)
    self.nvcc = Path(slow)

Compiler.__init__ = with_a_compiler_that_takes_long
sys.argv[1:] = ["--source", source, "--output", output, "--jobs", "2"]
with build_cubins.refusals_in_words(), build_cubins.ended_in_order():
    build_cubins.main()
"""


@needs_nvcc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_build_that_is_ended_leaves_no_compiler_running_and_compiles_no_more(tmp_path, number):
    """Twelve variants wait for two compilers that never end."""
    assert Compiler(PACKAGES)
    slow, started, scratch = tmp_path / "nvcc", tmp_path / "started", tmp_path / "scratch"
    slow.write_text(
        f'#!/bin/sh\ncase "$1" in --version) echo V{PACKAGES["nvidia-cuda-nvcc"]}; exit;; esac\n'
        f'echo half > "$TMPDIR/tmpxft_half"\necho $$ >> {started}\nsleep 60 & echo $! >> {started}\nwait\n'
    )
    slow.chmod(0o755)
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, ROOT, slow, ROOT / "tests/zoo_src", tmp_path / "cubins"],
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(scratch)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    while not started.exists() or len(started.read_text().split()) < 4:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    process.send_signal(number)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == (1 if number == signal.SIGINT else 128 + number) and "Traceback" not in said, said
    pids = started.read_text().split()
    assert len(pids) == 4, "no other was started"
    deadline = time.monotonic() + 5
    while any(running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not list(scratch.iterdir()) and not (tmp_path / "cubins").exists()


def running(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
