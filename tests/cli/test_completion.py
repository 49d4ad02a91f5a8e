"""What the shell completes is what commands take, and a line that is being typed is never refused."""

import os
import subprocess

import pytest

from tests.cli.conftest import COMMAND
from tests.recorder import ROOT
from tests.small_zoo import small_zoo
from zoo.cli import main
from zoo.contract.matching import matching
from zoo.packaged import packaged


def completed(line):
    """The words offered for the last word of a line that begins with zoo."""
    words = line.split(" ")
    environment = {**os.environ, "_ZOO_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(COMMAND, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return [one.partition(",")[2] for one in done.stdout.splitlines() if one]


@pytest.mark.parametrize("command", ["list", "show", "verify", "bench", "first-run", "export /tmp/x --select"])
def test_kernels_are_completed_by_their_beginning_or_by_a_part(command):
    assert completed(f"zoo {command} gemm.fp8b128.d") == [name for name in packaged.manifest.names if name.startswith("gemm.fp8b128.d")]
    assert completed(f"zoo {command} amax") == matching("amax", packaged.manifest.names)
    assert completed(f"zoo {command} no_such_kernel") == []


def test_commands_options_and_archs_are_completed():
    assert completed("zoo ") == main.list_commands(None)
    assert completed("zoo sh") == ["show"] and "--evidence" in completed("zoo list --")
    assert completed("zoo list --arch h") == ["hopper", "h100", "h200"] and completed("zoo export x --arch sm_9") == ["sm_90a"]


def test_kernels_are_those_of_the_zoo_that_is_worked_on(tmp_path):
    small = small_zoo(tmp_path / "small", "scales.mn_major")
    assert completed(f"zoo --cubins {small} show ") == ["scales.mn_major"]


@pytest.mark.parametrize("line", ["zoo nonsense x", "zoo --cubins /nowhere show g", "zoo --cubins / show g", "zoo show a b c"])
def test_a_line_that_is_wrong_is_completed_by_nothing(line):
    completed(line)


def test_words_of_names_variants_and_settings_are_completed():
    assert completed("zoo list --op un") == ["unpack"] and "mxfp8" in completed("zoo list --formats mx")
    kernel = packaged.kernel("gemm.fp8b128.dense")
    assert completed("zoo bench gemm.fp8b128.dense --variant ") == list(dict.fromkeys(one.name for one in kernel.variants))
    assert completed("zoo bench gemm.fp8b128.dense --set d=") == ["d=bf16", "d=f16", "d=f32"]
    assert completed("zoo bench gemm.nonsense --set d=") == completed("zoo bench --variant ") == []
