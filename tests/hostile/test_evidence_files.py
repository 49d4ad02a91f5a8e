"""Evidence that somebody forged is not shown as the release's, what a user records is theirs, and no record is lost or half written."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.recorder import ROOT
from zoo.contract.files import is_partial, remove_partials, write_file
from zoo.contract.manifest import Manifest
from zoo.errors import IntegrityError, ManifestError, ZooError
from zoo.shipped import evidence as evidence_module
from zoo.shipped import places
from zoo.shipped.evidence import Evidence, evidence_of, pin_text, recorder, summary
from zoo.shipped.evidence_pin import EVIDENCE_SHA256
from zoo.shipped.integrity import verify_integrity

ONE, TWO = (SimpleNamespace(sha256=digit * 64) for digit in "12")
PASSED = {"device": "NVIDIA B200", "driver": "580", "checks": 20, "error": None}


def write(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(records))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package as a wheel unpacks it, with evidence that its pin is of, and a folder for what the user records."""
    directory = shutil.copytree(ROOT / "tests/zoo_cubins", tmp_path / "site/zoo/cubins")
    write(directory / "evidence.json", {ONE.sha256: {"gpu": PASSED}})
    monkeypatch.setattr(places, "PACKAGE", tmp_path / "site/zoo")
    monkeypatch.setattr("zoo.shipped.evidence_pin.EVIDENCE_SHA256", pin_text((directory / "evidence.json").read_bytes()).split('"')[-2])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return directory


def test_the_evidence_of_this_checkout_is_the_pinned_one():
    assert EVIDENCE_SHA256 in pin_text((places.cubins_directory() / "evidence.json").read_bytes())
    evidence_of(places.cubins_directory())


def test_forged_evidence_is_not_shown_as_the_releases(installed):
    assert summary(evidence_of(installed), [ONE, TWO]) == "1 passed on NVIDIA B200, 1 never run on a GPU"
    write(installed / "evidence.json", {digest * 64: {"gpu": PASSED} for digest in "12"})
    with pytest.raises(IntegrityError, match="was edited: its sha256 is"):
        evidence_of(installed)


def test_verify_finds_forged_evidence(installed):
    manifest = Manifest(installed / "manifest.json")
    assert not any(result.problem for result in verify_integrity(installed, manifest))
    write(installed / "evidence.json", {})
    assert [result.file for result in verify_integrity(installed, manifest) if result.problem] == ["evidence.json"]


def test_removed_evidence_is_found_too(installed):
    (installed / "evidence.json").unlink()
    with pytest.raises(IntegrityError, match="was edited"):
        evidence_of(installed)


def test_what_a_user_records_is_a_file_of_their_own_and_shown_as_theirs(installed, tmp_path):
    before = (installed / "evidence.json").read_bytes()
    mine = recorder(installed)
    mine.refuse_unwritable()
    mine.add(TWO, "gpu", {**PASSED, "device": "NVIDIA H200"})
    mine.write()
    assert mine.path == tmp_path / "state/zoo/evidence.json" and mine.path.is_file()
    assert (installed / "evidence.json").read_bytes() == before
    assert summary(evidence_of(installed), [ONE, TWO]) == (
        "1 passed on NVIDIA B200, 1 never run on a GPU; by you: 1 passed on NVIDIA H200"
    )  # fmt: skip


def test_the_evidence_of_another_zoo_is_its_authors_word(tmp_path):
    write(tmp_path / "evidence.json", {ONE.sha256: {"gpu": PASSED}})
    assert summary(evidence_of(tmp_path), [ONE]) == "unpinned: 1 passed on NVIDIA B200"
    assert summary(evidence_of(tmp_path), [TWO]) == "never run on a GPU"


def test_evidence_goes_where_the_user_says(installed, tmp_path):
    chosen = recorder(installed, tmp_path / "chosen.json")
    chosen.add(ONE, "emulator", {"error": None})
    chosen.write()
    assert ONE.sha256 in json.loads((tmp_path / "chosen.json").read_text())


@pytest.mark.parametrize("device", ["\x1b[2J\x1b[31mNVIDIA", "NVIDIA\n2 passed on everything", "NVIDIA\u202e0022B", "\ud800", "\x9b2J"])
def test_control_characters_never_reach_the_terminal(tmp_path, device):
    write(tmp_path / "evidence.json", {ONE.sha256: {"gpu": {**PASSED, "device": device}}})
    assert summary(evidence_of(tmp_path), [ONE]).isprintable()
    raw = tmp_path / "raw"
    if device.isprintable() or "\n" in device or "\ud800" in device or "\x1b" in device:
        return
    raw.mkdir()
    (raw / "evidence.json").write_text((tmp_path / "evidence.json").read_text().encode().decode("unicode_escape"), "utf-8")
    assert summary(evidence_of(raw), [ONE]).isprintable()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400, "1" * 5000])
def test_numbers_that_are_none_are_refused(tmp_path, number):
    record = '{"%s": {"benchmark": {"device": "a", "shapes": {"M=1": {"microseconds": %s, "of_copy": 1}}}}}'
    (tmp_path / "evidence.json").write_text(record % ("1" * 64, number))
    with pytest.raises(ManifestError, match="malformed"):
        Evidence(tmp_path)


def test_a_number_past_all_floats_is_refused_wherever_it_stands(tmp_path):
    """It was read as infinity and written back as such, and then nothing could be read or recorded any more."""
    (tmp_path / "evidence.json").write_text('{"%s": {"gpu": {"device": "a", "error": null, "date": 1e999}}}' % ("1" * 64))
    with pytest.raises(ManifestError, match="malformed"):
        Evidence(tmp_path)


def test_evidence_may_have_16_mib_to_the_byte(tmp_path):
    path = tmp_path / "evidence.json"
    path.write_bytes(b"{}".ljust(16 << 20))
    assert Evidence(tmp_path).path == path
    path.write_bytes(b"{}".ljust((16 << 20) + 1))
    with pytest.raises(ManifestError, match="more than the 16,777,216 bytes"):
        Evidence(tmp_path)


def test_evidence_of_gigabytes_is_not_read(tmp_path):
    with open(tmp_path / "evidence.json", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ManifestError, match="more than the"):
        Evidence(tmp_path)


RECORD = """
import sys
from types import SimpleNamespace
from zoo.shipped.evidence import Evidence
evidence = Evidence(sys.argv[1])
print("read", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2]), int(sys.argv[2]) + 20):
    evidence.add(SimpleNamespace(sha256=f"{number:064x}"), "emulator", {"error": None})
    evidence.write()
"""


def processes_that_record(folder, count):
    started = [
        subprocess.Popen([sys.executable, "-c", RECORD, folder, str(1000 * n)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for n in range(count)
    ]
    for process in started:
        assert process.stdout.readline() == b"read\n"  # all have read the file before one writes
    return started


def test_two_that_record_at_once_lose_nothing(tmp_path):
    started = processes_that_record(tmp_path, 3)
    for process in started:
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert [process.wait(60) for process in started] == [0, 0, 0]
    assert len(json.loads((tmp_path / "evidence.json").read_text())) == 60
    assert [path.name for path in tmp_path.iterdir()] == ["evidence.json"]


def test_timings_of_two_sizes_recorded_at_once_are_both_kept(tmp_path):
    first, second = Evidence(tmp_path), Evidence(tmp_path)
    for evidence, size in ((first, "M=1"), (second, "M=2")):
        evidence.add(ONE, "benchmark", {"device": "NVIDIA H200", "shapes": {size: {"microseconds": 1.0, "of_copy": 1.0}}})
        evidence.write()
    assert set(Evidence(tmp_path).of(ONE)["benchmark"]["shapes"]) == {"M=1", "M=2"}
    other = Evidence(tmp_path)
    other.add(ONE, "benchmark", {"device": "NVIDIA B200", "shapes": {"M=4": {"microseconds": 1.0, "of_copy": 1.0}}})
    other.write()
    assert set(Evidence(tmp_path).of(ONE)["benchmark"]["shapes"]) == {"M=4"}, "figures of two devices are not mixed"


def test_what_a_killed_record_leaves_is_no_problem_and_is_removed_by_the_next(tmp_path):
    folder = shutil.copytree(ROOT / "tests/zoo_cubins", tmp_path / "zoo")
    for left in (folder / ".evidence.json.77.new", folder / "sm_90a" / ".a.cubin.78.new"):
        left.write_bytes(b"half of i")
        assert is_partial(left)
    assert not any(result.problem for result in verify_integrity(folder, Manifest(folder / "manifest.json")))
    evidence = Evidence(folder)
    evidence.add(ONE, "gpu", PASSED)
    evidence.write()
    assert not (folder / ".evidence.json.77.new").exists()


def test_what_a_killed_build_leaves_is_removed_by_the_next(tmp_path):
    (tmp_path / "sm_90a").mkdir()
    kept = tmp_path / "sm_90a" / "a.cubin"
    for path in (tmp_path / ".manifest.json.7.new", tmp_path / "sm_90a" / ".a.cubin.8.new", kept):
        path.write_bytes(b"half")
    remove_partials(tmp_path)
    assert [path for path in tmp_path.glob("**/*") if path.is_file()] == [kept]


def test_a_process_killed_at_any_moment_leaves_a_whole_file(tmp_path):
    write(tmp_path / "evidence.json", {})
    (process,) = processes_that_record(tmp_path, 1)
    process.stdin.write(b"\n")
    process.stdin.flush()
    while len((tmp_path / "evidence.json").read_bytes()) < 200:
        assert process.poll() is None or (tmp_path / "evidence.json").stat().st_size > 200
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    assert Evidence(tmp_path).of(SimpleNamespace(sha256=f"{0:064x}"))


def test_a_full_disk_leaves_the_old_file_whole(tmp_path):
    write(tmp_path / "evidence.json", {ONE.sha256: {"gpu": PASSED}})
    before = (tmp_path / "evidence.json").read_bytes()

    def little_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))

    process = subprocess.Popen(
        [sys.executable, "-c", RECORD, tmp_path, "0"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=little_room, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    _, said = process.communicate("\n", timeout=60)
    assert process.returncode == 1 and "ZooError: cannot write the evidence" in said
    kept = json.loads((tmp_path / "evidence.json").read_text())
    assert ONE.sha256 in kept and len((tmp_path / "evidence.json").read_bytes()) <= max(300, len(before))
    assert [path.name for path in tmp_path.iterdir()] == ["evidence.json"]


@pytest.mark.parametrize("place", ["/proc/zoo/evidence.json", "/sys/evidence.json"])
def test_a_folder_that_nobody_may_write_is_told_before_anything_runs(place):
    with pytest.raises(ZooError, match=r"cannot write the evidence .*--record-to"):
        Evidence(place, whose=evidence_module._OWN).refuse_unwritable()


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(path, b"new")
    assert path.read_bytes() == b"old" and [one.name for one in tmp_path.iterdir()] == ["file"]


def test_recording_in_a_checkout_moves_the_pin(tmp_path, monkeypatch):
    root = tmp_path / "checkout"
    (root / "zoo/shipped").mkdir(parents=True)
    (root / "build_cubins.py").touch()
    write(root / "cubins/evidence.json", {})
    monkeypatch.setattr(places, "PACKAGE", root / "zoo")
    evidence = recorder(root / "cubins")
    evidence.add(ONE, "gpu", PASSED)
    evidence.write()
    pinned = (root / "zoo/shipped/evidence_pin.py").read_text()
    assert pinned == pin_text((root / "cubins/evidence.json").read_bytes())
