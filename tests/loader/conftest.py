import shutil

import pytest

from tests import recorder


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("the stand-in for libcuda needs a C compiler")
    return recorder.build(tmp_path_factory.mktemp("recorder"))
