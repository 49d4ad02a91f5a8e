"""Nothing is wider than the terminal, and one of a thing is said to be one."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios

import pytest

from tests.cli.conftest import COMMAND
from tests.recorder import ROOT
from zoo.cli import text as text_module
from zoo.cli.text import Steps, columns, count, cut, listed, table
from zoo.packaged import packaged

SEVERAL = "*.m_grouped_contiguous*"  # the longest names
WIDTHS = (60, 80, 120)


def too_wide(text, width):
    """Lines past the width that could have been broken: those of one word beside their indent cannot."""
    return [line for line in text.splitlines() if len(line) > width and len(line.split()) > 1]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("list", "--all"),
        ("list", "--evidence"),
        ("list", SEVERAL),
        ("show", "*"),
        ("show", "quantize.*.rows"),
        ("show", "gemm.*.dense.swiglu_stored", "--arguments", "--parameters", "--variants"),
        ("show", "gemm.fp8b128.dense", "--shape", "64,4096,7168"),
        ("verify",),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_the_terminal(zoo_command, monkeypatch, arguments, width):
    monkeypatch.setenv("COLUMNS", str(width))
    result = zoo_command(*arguments)
    assert result.exit_code == (1 if arguments == ("doctor",) and "No kernel" in result.output else 0), result.output
    assert too_wide(result.output, width) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_no_help_is_wider_than_the_terminal(width):
    """In a process of its own: a command under test is given 80 columns for its help, whatever the terminal has."""
    program = (
        "from zoo.cli import main\n"
        "for command in ([], *([name] for name in main.list_commands(None))):\n"
        "    main([*command, '--help'], prog_name='zoo', standalone_mode=False)"
    )
    environment = {**os.environ, "COLUMNS": str(width)}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("Usage: zoo") == 14, done.stderr
    assert too_wide(done.stdout, width) == []


def on_a_terminal(arguments, columns):
    """What a process prints on stderr where that is a terminal of so many columns and the output a pipe; and its status."""
    screen, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("COLUMNS", None)
    done = subprocess.run([*COMMAND, *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    pieces = []
    try:
        while piece := os.read(screen, 4096):
            pieces.append(piece)
    except OSError:  # how Linux says that nobody holds the other end any more
        pass
    os.close(screen)
    return b"".join(pieces).decode().replace("\r\n", "\n"), done.returncode


@pytest.mark.parametrize("columns", [60, 90])
@pytest.mark.parametrize(
    ("arguments", "status", "first"),
    [
        (["show", "gemm_fp8"], 1, "Error: no kernel is named 'gemm_fp8'; "),
        (["list", "--formats", "mxfp"], 1, "Error: no kernel has --formats mxfp; did you mean "),
        (["lits"], 2, "Usage: zoo [OPTIONS] COMMAND [ARGS]..."),
        (["--cubinz", "some_directory/of_a_long_name/and_one_more", "list"], 2, "Usage: zoo [OPTIONS] COMMAND [ARGS]..."),
        (["export", "/dev/null/a_directory_that_cannot_be/because_the_first_part_is_no_directory"], 1, "Error:"),
    ],
    ids=lambda value: " ".join(value)[:20] if isinstance(value, list) else None,
)
def test_no_refusal_is_wider_than_the_terminal_or_says_less_there(arguments, status, first, columns):
    text, exit_status = on_a_terminal(arguments, columns)
    piped = subprocess.run([*COMMAND, *arguments], cwd=ROOT, env={**os.environ, "COLUMNS": "40"}, capture_output=True, text=True)
    assert exit_status == piped.returncode == status
    assert text.startswith(first) and too_wide(text, columns) == []
    assert text.split() == piped.stderr.split() and text.endswith("\n") and not text.endswith("\n\n")
    assert piped.stderr.splitlines()[-1].startswith("Error: ")  # all of it in one line


def test_a_table_whose_words_fit_no_columns_becomes_paragraphs(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = table(("tile", "registers", "shared"), [("a_tile_with_a_long_name_of_its_own", 64, 0), ("b", 1, 2)], indent=2)
    assert text == "  a_tile_with_a_long_name_of_its_own:\n    registers 64, shared 0\n  b: registers 1, shared 2"


def test_a_pipe_is_80_columns(zoo_command, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    piped = zoo_command("list").output
    monkeypatch.setenv("COLUMNS", "80")
    assert zoo_command("list").output == piped and 70 < max(map(len, piped.splitlines())) <= 80


def test_one_of_a_thing_is_said_to_be_one(zoo_command, cubins):
    outputs = [zoo_command("--cubins", cubins, "list", "scales", *more).output for more in ((), ("--evidence",), ("--arch", "sm_90a"))]
    outputs += [zoo_command("list", "scales.mn_major", "--arch", "sm_90a").output, zoo_command("show", "scales.mn_major").output]
    outputs += [zoo_command("verify", "scales.mn_major").output]
    assert "1 kernel, 1 cubin, " in outputs[3] and "1 cubin: " in " ".join(outputs[4].split()) and "2 cubins" in outputs[5]
    for text in outputs:
        assert not re.search(r"\b1 (kernels|cubins|variants|bytes|problems|files)\b", text), text
        assert not re.search(r"\b([02-9]|\d\d+) (kernel|cubin|variant|byte|problem|file)\b", text), text


@pytest.mark.parametrize(("number", "words"), [(0, "0 cubins"), (1, "1 cubin"), (2, "2 cubins"), (12345, "12,345 cubins")])
def test_counts(number, words):
    assert count(number, "cubin") == words


def test_lists_of_words():
    assert [listed(list("abc")[:size]) for size in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_a_cut_text_keeps_its_size_and_says_that_it_is_cut():
    assert cut("as it is", 8) == "as it is" and cut("one, two", 7) == "one..." and len(cut("x" * 100, 31)) == 31


@pytest.mark.parametrize("width", [50, 60, 80])
def test_a_table_narrows_its_widest_columns_and_breaks_no_word(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [
        ("a first cell of many words", "and a second that is longer still", 12345, "the last one/of/all-with-a-path goes on and on"),
        ("b", "c", 6, "d"),
    ]
    for text in (table(("first", "second", "number", "last"), rows, indent=2), columns(rows)):
        assert max(map(len, text.splitlines())) <= width
        for cell in rows[0]:
            for word in str(cell).split():
                assert word in text.split()


def test_nothing_is_a_table_of_nothing():
    assert columns([]) == "" and table(("a", "b"), []) == "a  b"


def test_the_widest_names_are_still_whole(zoo_command, monkeypatch):
    for width in (40, 60, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = zoo_command("list", "--all").output.partition("\n\n")[0].splitlines()
        listed_names = [line.split()[0].removesuffix(":") for line in lines if not line.startswith((" ", "kernels"))]
        assert listed_names == list(packaged.manifest.names)


def test_long_steps_tell_how_long_the_rest_takes(monkeypatch, capsys):
    clock = iter([0.0, 30.0, 900.0])
    monkeypatch.setattr(text_module.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    steps = Steps(4)
    steps.begin("a")
    steps.end("a is right")
    steps.begin("b")
    steps.end("b is right")
    steps.begin("c" * 80)
    shown = capsys.readouterr()
    assert shown.out == "a is right\nb is right\n"
    drawn = [line for line in shown.err.split("\r\033[K") if line]
    assert drawn[0] == "1 of 4: a" and drawn[1] == "2 of 4, about 90 s left: b" and drawn[2].startswith("3 of 4, about 15 min left: ccc")
    assert max(map(len, drawn)) < 60


def test_steps_that_weigh_more_count_for_more_of_the_time_and_for_one_step(monkeypatch, capsys):
    clock = iter([0.0, 10.0, 50.0])
    monkeypatch.setattr(text_module.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    steps = Steps(3, weights=9)
    steps.end("a")
    steps.begin("b")
    steps.end("b", weight=4)
    steps.begin("c")
    drawn = [line for line in capsys.readouterr().err.split("\r\033[K") if line]
    assert drawn == ["2 of 3, about 80 s left: b", "3 of 3, about 40 s left: c"]


def test_long_steps_say_nothing_of_themselves_in_a_pipe(capsys):
    steps = Steps(2)
    steps.begin("a")
    steps.end("a is right")
    assert capsys.readouterr() == ("a is right\n", "")
