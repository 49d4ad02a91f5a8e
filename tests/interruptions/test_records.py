"""A record that is stopped: what was seen until then is kept, and the next record understands what it finds."""

import contextlib
import json
import shutil
import signal
import time
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tests.interruptions.stops import CONTROL_C, FULL, HOW, KILL, every_stop, files_of, hidden, stopping
from tests.small_zoo import small_zoo
from zoo.benchmark import measure
from zoo.benchmark.measure import Measurement
from zoo.catalog import Zoo
from zoo.cli import main
from zoo.cli.recording import kept
from zoo.cli.system import ended_in_order
from zoo.runtime import driver, hardware
from zoo.shipped import places
from zoo.shipped.evidence import Evidence, pin_text, recorder

NAME = "quantize.mxfp8.rows"
PASSED = {"device": "NVIDIA H200", "checks": 1, "error": None}
ONE, TWO, THREE = (SimpleNamespace(sha256=digit * 64) for digit in "123")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    root = tmp_path / "checkout"
    (root / "zoo/shipped").mkdir(parents=True)
    (root / "cubins").mkdir()
    (root / "build_cubins.py").touch()
    monkeypatch.setattr(places, "PACKAGE", root / "zoo")
    record(root, ONE)
    return root


def record(root, variant):
    evidence = recorder(root / "cubins")
    evidence.refuse_unwritable()
    with kept(evidence):
        evidence.add(variant, "gpu", PASSED)


def pinned(root) -> bool:
    evidence = (root / "cubins/evidence.json").read_bytes()
    return (root / "zoo/shipped/evidence_pin.py").read_text() == pin_text(evidence)


@pytest.mark.parametrize("how", HOW)
def test_a_record_that_is_stopped_at_any_operation_loses_nothing_that_was_recorded_before(checkout, tmp_path, how):
    shutil.copytree(checkout, tmp_path / "old")
    old = files_of(checkout)

    def prepare():
        shutil.rmtree(checkout)
        shutil.copytree(tmp_path / "old", checkout)

    def check(disk):
        left = files_of(checkout)
        assert how == KILL or len(hidden(left)) <= (how == CONTROL_C), "only Ctrl-C at the very moment of removing it leaves a file"
        if not disk.renamed:
            assert left.items() >= old.items() and pinned(checkout)
        seen = {*json.loads(left["cubins/evidence.json"])}
        assert seen in ({ONE.sha256}, {ONE.sha256, TWO.sha256})
        record(checkout, THREE)
        after = files_of(checkout)
        assert {*json.loads(after["cubins/evidence.json"])} == seen | {THREE.sha256}
        assert pinned(checkout) and not hidden(after)

    assert every_stop(how, prepare, lambda: record(checkout, TWO), check) > (8 if how == FULL else 10)


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_while_the_record_is_written_waits_until_it_is(checkout, monkeypatch, number, ends):
    """It came too late to stop the run, whose hour would be lost."""
    evidence, written = recorder(checkout / "cubins"), []

    def write():
        signal.raise_signal(number)
        real()
        written.append(number)

    real = evidence.write
    monkeypatch.setattr(evidence, "write", write)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ends), ended_in_order(), kept(evidence):
        evidence.add(TWO, "gpu", PASSED)
    assert written == [number] and set(json.loads((checkout / "cubins/evidence.json").read_text())) == {ONE.sha256, TWO.sha256}
    assert signal.getsignal(signal.SIGINT) is before and pinned(checkout)


def test_a_sigterm_that_c_code_drops_ends_the_work_all_the_same():
    """Extension modules forget exceptions of the Python code they call, as numpy.random does while it is imported."""
    cleaned = []

    def work():
        with contextlib.suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        try:
            for _ in range(600):
                time.sleep(0.1)
        finally:  # no second exception disturbs those who tidy up
            try:
                raise FileNotFoundError
            except FileNotFoundError:
                time.sleep(0.8)
            cleaned.append(True)

    with pytest.raises(SystemExit) as ended, ended_in_order():
        work()
    assert ended.value.code == 128 + signal.SIGTERM and cleaned
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_sigterm_while_another_exit_is_handled_is_not_forgotten():
    """That one may be dropped, and the work go on."""

    def work():
        try:
            raise SystemExit(3)
        except SystemExit:
            signal.raise_signal(signal.SIGTERM)
            time.sleep(0.8)
        for _ in range(600):
            time.sleep(0.1)

    with pytest.raises(SystemExit) as ended, ended_in_order():
        work()
    assert ended.value.code == 128 + signal.SIGTERM


def test_a_second_ctrl_c_does_not_disturb_what_follows_the_first():
    """An impatient user would lose the words that say where the work is kept, and see a traceback instead."""
    before, followed = signal.getsignal(signal.SIGINT), []

    def work():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            followed.append("the work is kept")

    with pytest.raises(KeyboardInterrupt), ended_in_order():
        work()
    assert followed and signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_ends_work_that_went_on_after_the_first():
    def work():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it went on")

    with pytest.raises(KeyboardInterrupt), ended_in_order():
        work()


def test_a_program_in_the_background_stays_deaf_to_ctrl_c():
    """`nohup` and `&` of a script have it ignored: the terminal's Ctrl-C is for another program."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ended_in_order():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def on_a_gpu(tmp_path, monkeypatch):
    """`zoo bench` with a GPU that takes a microsecond for everything, until it is stopped at the third size."""
    folder = small_zoo(tmp_path / "small", NAME, lambda variant: variant["name"] == "bf16_e4m3_plain_t256")
    monkeypatch.setattr(driver, "device", lambda ordinal: None)
    monkeypatch.setattr(hardware, "describe", lambda device: hardware.Hardware("NVIDIA H200", "9.0", "580"))
    ends: dict = {}
    sizes = []

    def measured(zoo, name, size, *others):
        sizes.append(size)
        if len(sizes) == 3:
            raise ends["by"]
        return Measurement("bf16_e4m3_plain_t256", 1.0, 100, 1.0, None, True)

    monkeypatch.setattr(measure, "measure", measured)
    return folder, ends


@pytest.mark.parametrize("by", [KeyboardInterrupt(), SystemExit(143)], ids=["Ctrl-C", "SIGTERM"])
def test_a_benchmark_that_is_interrupted_keeps_the_sizes_that_it_has_timed(on_a_gpu, by):
    folder, ends = on_a_gpu
    ends["by"] = by
    shapes = [word for rows in (64, 128, 256, 512) for word in ("--shape", f"{rows},64")]
    result = CliRunner().invoke(main, ["--cubins", str(folder), "bench", NAME, *shapes, "--record"])
    assert result.exit_code == (1 if isinstance(by, KeyboardInterrupt) else 143) and "recorded" in result.output
    (variant,) = (one for one in Zoo(folder).kernel(NAME).variants if one.arch == "sm_90a")
    assert set(Evidence(folder).of(variant)["benchmark"]["shapes"]) == {"M=64 K=64", "M=128 K=64"}
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["evidence.json", "manifest.json", "ptx.tar.xz"]


def test_a_full_disk_of_an_interrupted_record_is_told_and_leaves_the_old_evidence(on_a_gpu):
    """The record is written while Ctrl-C is on its way out: what fails then must not be taken for the end of the run."""
    folder, ends = on_a_gpu
    ends["by"] = KeyboardInterrupt()
    (folder / "evidence.json").write_text("{}\n")
    with stopping(3, FULL):
        result = CliRunner().invoke(main, ["--cubins", str(folder), "bench", NAME, *(3 * ["--shape", "64,64"]), "--record"])
    assert result.exit_code == 1 and "cannot write the evidence" in result.output and "No space left" in result.output
    assert (folder / "evidence.json").read_text() == "{}\n"
