"""Builds that compile only what no other test of this run has compiled."""

from functools import partial

import pytest

from tests.builder.build_trees import run_build


@pytest.fixture(scope="session")
def shared_build(folder_of_the_run):
    """run_build, for tests of what a build does with cubins. Whoever tests the compiling itself takes run_build."""
    folder = folder_of_the_run / "compiled variants"
    folder.mkdir(exist_ok=True)
    return partial(run_build, shared=folder)
