"""Names, patterns, folders and words of a command line that were made to harm: each a short refusal, soon, without what a terminal obeys."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

import zoo
from tests.recorder import ROOT

LONG = {"brackets": "[" * 10**6, "stars": "*a" * 10**5 + "b", "letters": "a" * 10**7, "questions": "?" * 10**6}
ESCAPES = "\x1b]0;title\x07\x1b[31m\r\u202eno"


def refused(function, kind=zoo.ZooError) -> str:
    before = time.process_time()
    with pytest.raises(kind) as caught:
        function()
    assert len(str(caught.value)) < 1000 and time.process_time() - before < 3
    return str(caught.value)


@pytest.mark.parametrize("what", LONG)
def test_a_name_without_end_is_refused_soon_and_in_few_words(what):
    zoo.find("quantize.amax")  # the manifest is read once
    for function in (zoo.find, zoo.load, zoo.kernel):
        refused(lambda function=function: function(LONG[what]), zoo.UnknownKernelError)


@pytest.mark.parametrize("given", [3, None, [], b"quantize", 1.5])
def test_what_is_no_text_names_no_kernel(given):
    for function in (zoo.find, zoo.load, zoo.kernel, zoo.shapes):
        assert "a kernel's name is a text" in refused(lambda function=function: function(given), zoo.UnknownKernelError)


@pytest.mark.parametrize("given", [3, None, "a\0b", "\ud800", []])
def test_what_is_no_path_is_no_zoo(given):
    assert "expected the path of a directory" in refused(lambda: zoo.Zoo(given))


def run(*words: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run([sys.executable, "-m", "zoo", *words], capture_output=True, text=True, env=environment, timeout=timeout)


@pytest.mark.parametrize("words", [("show",), ("list",), ("verify",), ("list", "--op"), ("list", "--arch"), ("export", "to", "--select")])
def test_a_word_that_takes_the_square_of_its_length_is_refused_soon(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = run(*words, "[" * 100_000)
    assert ran.returncode in (1, 2) and "Traceback" not in ran.stderr and len(ran.stderr) < 1000
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [(), ("show",), ("list", "--op"), ("list", "--arch"), ("bench", "quantize.amax", "--set")])
def test_a_refusal_quotes_nothing_that_a_terminal_obeys(words):
    given = f"layout={ESCAPES}" if words and words[-1] == "--set" else ESCAPES
    ran = run(*words, given)
    assert ran.returncode in (1, 2) and "Traceback" not in ran.stderr
    assert all(letter.isprintable() or letter == "\n" for letter in ran.stderr)


@pytest.mark.parametrize("limit", ["nan", "inf", "1e400", "1e12", "-1", "0", "x"])
def test_a_limit_of_no_seconds_is_refused_before_anything_runs(limit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = run("first-run", "--limit", limit)
    assert ran.returncode == 2 and "--limit" in ran.stderr and "Traceback" not in ran.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [("first-run", "-o"), ("bench", "quantize.amax", "--plot")])
def test_a_file_that_cannot_be_written_is_told_before_the_gpu_is_asked(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = run(*words, "none/there.svg")
    assert ran.returncode == 1 and "none/there.svg: No such file or directory" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_a_record_to_no_name_is_refused_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = run("verify", "quantize.amax", "--emulate", "--record-to", "")
    assert ran.returncode == 1 and "--record-to" in ran.stderr
    assert not list(tmp_path.iterdir())
