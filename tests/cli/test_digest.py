"""A zoo held to a digest that is kept elsewhere, records that go where they belong, and a run that is ended keeps what it saw."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND
from tests.recorder import ROOT
from tests.small_zoo import small_zoo
from zoo.catalog import Zoo
from zoo.errors import ArgumentError, ManifestError
from zoo.packaged import packaged

NAME = "quantize.mxfp8.rows"
QUICK = "scales.blocked"  # one variant an arch, which the emulator soon has run
OTHERS = ROOT / "tests/zoo_cubins"


def test_digest_is_what_a_zoo_can_be_held_to(zoo_command):
    digest = zoo_command("--cubins", OTHERS, "digest").output.strip()
    assert Zoo(OTHERS, digest=digest).manifest.names
    result = zoo_command("--cubins", OTHERS, "verify", "--digest", digest)
    assert result.exit_code == 0 and "unpinned" not in result.output
    assert zoo_command("digest").output.strip() == packaged.digest


@pytest.mark.parametrize("where", [("--cubins", OTHERS), ()], ids=["another zoo", "the packaged one"])
def test_a_zoo_of_another_digest_is_refused(zoo_command, where):
    result = zoo_command(*where, "verify", "--digest", "0" * 64)
    assert result.exit_code == 1 and "was edited: its sha256 is" in result.output
    with pytest.raises(ManifestError, match="its sha256 is"):
        Zoo(OTHERS, digest="0" * 64).find()


def test_one_changed_letter_of_a_manifest_is_another_digest(tmp_path):
    digest = Zoo(OTHERS).manifest.sha256
    folder = shutil.copytree(OTHERS, tmp_path / "zoo")
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace("M", "m", 1))
    with pytest.raises(ManifestError, match="its sha256 is"):
        Zoo(folder, digest=digest).find()


@pytest.mark.parametrize("digest", ["", "0" * 63, "0" * 65, "G" * 64, b"0" * 64, 7])
def test_what_is_no_digest_is_refused_at_once(digest):
    with pytest.raises(ArgumentError, match="zoo digest"):
        Zoo(OTHERS, digest=digest)


def test_verify_says_that_nothing_pins_another_zoo(zoo_command):
    assert "unpinned" in zoo_command("--cubins", OTHERS, "verify").output
    assert "unpinned" not in zoo_command("verify", NAME).output


@pytest.fixture
def site(tmp_path):
    """An installed package with two variants, and evidence as it was released."""
    shutil.copytree(ROOT / "zoo", tmp_path / "site/zoo", ignore=shutil.ignore_patterns("__pycache__", "cubins"))
    folder = small_zoo(tmp_path / "site/zoo/cubins", QUICK)
    (folder / "evidence.json").write_text("{}\n")
    from hashlib import sha256

    shipped = tmp_path / "site/zoo/shipped"
    (shipped / "pins.py").write_text(f'MANIFEST_SHA256 = "{sha256((folder / "manifest.json").read_bytes()).hexdigest()}"\n')
    (shipped / "evidence_pin.py").write_text(f'EVIDENCE_SHA256 = "{sha256((folder / "evidence.json").read_bytes()).hexdigest()}"\n')
    return tmp_path / "site"


def environment(site, tmp_path):
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(site), "XDG_STATE_HOME": str(tmp_path / "state")}


def catches(process, number):
    """Whether a process has a handler for a signal."""
    (mask,) = (line.split()[1] for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return int(mask, 16) >> number - 1 & 1


def run(site, tmp_path, *arguments):
    command = [*COMMAND, *arguments]
    return subprocess.run(command, env=environment(site, tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=200)


def test_records_of_an_installed_zoo_are_the_users_own_and_survive_a_sigterm(site, tmp_path):
    """The file that came with the package stays as it was released."""
    released = site / "zoo/cubins/evidence.json"
    process = subprocess.Popen(
        [*COMMAND, "verify", "--emulate", "--record", "--schedules", "500"],
        env=environment(site, tmp_path), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    while not catches(process.pid, signal.SIGTERM):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM and "recorded" in said and "Traceback" not in said
    assert (tmp_path / "state/zoo/evidence.json").is_file()

    result = run(site, tmp_path, "verify", "--emulate", "--record")
    assert result.returncode == 0, result.stderr
    assert released.read_text() == "{}\n"
    own = json.loads((tmp_path / "state/zoo/evidence.json").read_text())
    assert len(own) == 2 and all(record["emulator"]["error"] is None for record in own.values())
    listed = run(site, tmp_path, "list", "--evidence")
    assert "by you: 1 passed in the emulator" in listed.stdout

    released.write_text(json.dumps({digest: {"gpu": {"device": "NVIDIA B200", "error": None}} for digest in own}))
    forged = run(site, tmp_path, "list", "--evidence")
    assert forged.returncode == 1 and "B200" not in forged.stdout and "was edited" in forged.stderr
    assert run(site, tmp_path, "verify").returncode == 1


@pytest.mark.parametrize("command", [("verify", "--emulate"), ("bench", NAME)], ids=["verify", "bench"])
def test_a_place_that_cannot_be_written_is_told_before_anything_runs(zoo_command, command):
    started = time.monotonic()
    result = zoo_command(*command, "--record-to", "/proc/zoo/evidence.json")
    assert result.exit_code == 1 and "cannot write the evidence" in result.output and time.monotonic() - started < 60


def test_record_to_writes_the_file_that_is_named(zoo_command, tmp_path):
    folder = small_zoo(tmp_path / "small", QUICK)
    result = zoo_command("--cubins", folder, "verify", "--emulate", "--record-to", tmp_path / "mine.json")
    assert result.exit_code == 0, result.output
    assert len(json.loads((tmp_path / "mine.json").read_text())) == 2 and not (folder / "evidence.json").exists()
