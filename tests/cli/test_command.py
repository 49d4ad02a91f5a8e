"""What all commands share: quick to start, one line an error, exit codes for scripts."""

import os
import shlex
import subprocess
import sys

import pytest

from tests.cli.conftest import COMMAND
from tests.recorder import ROOT


def test_help_imports_neither_numpy_nor_the_driver():
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from zoo.cli import main\n"
        "result = CliRunner().invoke(main, ['--help'])\n"
        "assert result.exit_code == 0 and 'verify' in result.output, result.output\n"
        "print([name for name in ('numpy', 'ml_dtypes', 'cuda', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_refusal_is_one_line_without_a_traceback(zoo_command, tmp_path):
    result = zoo_command("--cubins", tmp_path, "list")
    assert result.exit_code == 1
    assert result.output.startswith("Error: cannot read the manifest") and result.output.count("\n") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["--help"], ["show", "quantize.mxfp8.rows"]])
def test_a_full_disk_is_one_line_and_status_1(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, *arguments], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr == "Error: standard output: No space left on device\n"


def test_a_reader_that_had_enough_is_no_failure_in_words():
    done = subprocess.run(
        f"{shlex.join(COMMAND)} show quantize.mxfp8.rows | head -c 1", shell=True, cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == "q" and done.stderr == ""


@pytest.mark.parametrize("arguments", ["list --json", "list --all", "show '*' --json", "show quantize.mxfp8.rows --json"])
def test_a_reader_that_had_enough_makes_no_failure_of_what_only_prints(arguments):
    command = f"set -o pipefail; {shlex.join(COMMAND)} {arguments} | head -n 1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and done.stdout


@pytest.mark.parametrize("arguments", [("export", "/dev/null/x"), ("export", "/proc/nowhere/x")])
def test_a_place_that_cannot_be_written_is_one_line(zoo_command, arguments):
    result = zoo_command(*arguments)
    assert result.exit_code == 1 and result.exception.__class__ is SystemExit
    assert result.output.startswith(f"Error: {os.path.dirname(arguments[1])}") and result.output.count("\n") == 1


@pytest.mark.parametrize("command", [("list",), ("list", "--json"), ("show", "quantize.mxfp8.rows"), ("verify", "--gpu")])
def test_broken_evidence_is_one_line(zoo_command, cubins, command):
    (cubins / "evidence.json").write_text('{"x": 1}')
    result = zoo_command("--cubins", cubins, *command)
    if command[0] != "verify":  # that one needs a GPU before it reads evidence
        assert "the evidence" in result.output and "is malformed" in result.output and result.output.count("\n") == 1
    assert result.exit_code == 1 and result.exception.__class__ is SystemExit


def test_misuse_exits_2(zoo_command):
    assert zoo_command("lsit").exit_code == 2
    assert zoo_command("verify", "--record").exit_code == 2
    assert zoo_command("verify", "--schedules", "3").exit_code == 2
    assert zoo_command("show").exit_code == 2
    assert zoo_command("bench", "quantize.mxfp8.rows", "--shape", "8192,k").exit_code == 2
    assert zoo_command("bench", "quantize.mxfp8.rows", "--set", "layout").exit_code == 2
