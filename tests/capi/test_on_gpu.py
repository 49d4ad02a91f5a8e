"""The C library on the real driver: the reference's bytes, under capture too."""

from __future__ import annotations

import shutil
import subprocess

import ml_dtypes
import numpy
import pytest

from tests.capi.package import HERE, ROOT, export_and_compile
from zoo.reference.mxfp8 import quantize_mxfp8_rows

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")]


@pytest.fixture(scope="module")
def quantize(tmp_path_factory):
    return export_and_compile(ROOT / "cubins", tmp_path_factory.mktemp("on_gpu"), HERE / "on_gpu.c")


@pytest.mark.parametrize("layout", ["plain", "blocked"])
@pytest.mark.parametrize(("element", "rounding"), [("e4m3", "floor"), ("e5m2", "rceil")])
def test_c_gives_the_references_bytes_and_a_graph_replays_them(quantize, tmp_path, element, rounding, layout):
    m, k = 257, 1056
    x = (numpy.random.default_rng(5).standard_normal((m, k)) * numpy.exp2(numpy.arange(k) % 40 - 20)).astype(ml_dtypes.bfloat16)
    x.tofile(tmp_path / "x")
    words = [quantize, tmp_path / "x", m, k, element, rounding, layout, tmp_path / "q", tmp_path / "scales"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    q, scales = quantize_mxfp8_rows(x, element=element, rounding=rounding, layout=layout)
    numpy.testing.assert_array_equal(numpy.fromfile(tmp_path / "q", numpy.uint8), q.view(numpy.uint8).ravel())
    numpy.testing.assert_array_equal(numpy.fromfile(tmp_path / "scales", numpy.uint8), scales.view(numpy.uint8).ravel())


def test_the_exported_example_finds_its_results_right(tmp_path):
    from zoo.capi.export import export
    from zoo.packaged import packaged

    export(tmp_path / "package", packaged.manifest, packaged.directory, ["quantize.mxfp8.rows"])
    subprocess.run(["make", "-s", "-j4", "-C", tmp_path / "package"], check=True)
    done = subprocess.run([tmp_path / "package" / "example"], capture_output=True, text=True)
    assert done.returncode == 0 and "all scales and elements are right: 0 wrong of 307200" in done.stdout, done.stdout + done.stderr
