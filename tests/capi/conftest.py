from __future__ import annotations

import shutil

import pytest

from tests.recorder import build


@pytest.fixture(scope="session")
def recorder(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    return build(tmp_path_factory.mktemp("recorder"))
