"""The command run in this process (`zoo`), and in others: without a GPU, and against the stand-in driver."""

import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from tests.recorder import ROOT, build, program
from zoo.shipped.places import cubins_directory

COMMAND = [sys.executable, "-c", "from zoo.cli import main; main(prog_name='zoo')"]


@pytest.fixture
def zoo_command():
    def run(*arguments):
        from zoo.cli import main

        return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="zoo")

    return run


@pytest.fixture
def without_gpu(tmp_path):
    """The command in a process that sees no GPU. `package`: where to import zoo from."""

    def run(*arguments, package=ROOT):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(package)}
        command = [*COMMAND, *map(str, arguments)]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    return run


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler: the stand-in driver cannot be built")
    return build(tmp_path_factory.mktemp("recorder"))


@pytest.fixture
def with_stand_in(stand_in):
    def run(*arguments, **settings):
        return program(stand_in, [*COMMAND, *map(str, arguments)], check=False, **settings)

    return run


@pytest.fixture
def cubins(tmp_path):
    """A copy of the packaged cubins to tamper with."""
    copy = tmp_path / "cubins"
    shutil.copytree(cubins_directory(), copy)
    (copy / "evidence.json").unlink(missing_ok=True)
    return copy
