"""What a launch asks of the driver beside grid and block: clusters, large shared memory and programmatic starts, against a stand-in that
refuses each until it is allowed."""

from __future__ import annotations

import json
import shutil

import pytest

from tests import recorder
from zoo.contract.array import Array, contiguous_strides
from zoo.contract.resolve import resolve
from zoo.packaged import packaged

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for libcuda needs a C compiler")
NAME = "gemm.fp8b128.dense"
SHAPES = {
    "a": ((8, 1024), "e4m3"),
    "a_scale": ((8, 8), "f32"),
    "b": ((256, 1024), "e4m3"),
    "b_scale": ((2, 8), "f32"),
    "d": ((8, 256), "bf16"),
}


VARIANTS = ["t128", "few8_w64_split4", "few8_w64", "few16_w64_4_stages"]


def test_each_variants_cluster_shared_memory_and_programmatic_start_reach_the_driver(library):
    snippet = f"""
import zoo
arguments = {{name: zoo.empty(shape, dtype) for name, (shape, dtype) in {SHAPES}.items()}}
for variant in {VARIANTS}:
    zoo.launch({NAME!r}, variant=variant, **arguments)
"""
    run = recorder.python(library, snippet)
    places = {name: (1 + place) << 30 for place, name in enumerate(SHAPES)}
    arrays = {name: Array(places[name], dtype, shape, contiguous_strides(shape)) for name, (shape, dtype) in SHAPES.items()}
    wanted = [resolve(packaged.kernel(NAME), arrays, (9, 0), 132, variant) for variant in VARIANTS]
    assert run.faults == []
    assert [(one.kernel, one.grid, one.threads, one.cluster, one.shared, one.programmatic) for one in run.launches] == [
        (one.variant.symbol, one.grid, one.threads, one.cluster, one.shared, one.variant.launch.programmatic) for one in wanted
    ]
    assert len({one.cluster for one in wanted}) > 1 and {one.shared > 48 << 10 for one in wanted} == {True, False}
    assert all(one.variant.launch.programmatic for one in wanted)


@pytest.fixture
def of_sixteen(tmp_path):
    """The test kernels, of which one now wants clusters of 16 CTAs, and all the shared memory that the device can give."""
    folder = tmp_path / "cubins"
    shutil.copytree(recorder.ROOT / "tests" / "zoo_cubins", folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    for variant in manifest["kernels"]["gemm.fp8b128.dense"]["variants"]:
        if variant["name"] == "bf16_m128_pair":
            variant["constants"]["CLUSTER"] = 16
            variant["shared"] = 232448 - variant["static_shared"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_cluster_beyond_the_portable_eight_is_allowed_before_it_is_launched(library, of_sixteen):
    """And all of a multiprocessor's shared memory; and a kernel that does not start early does not say so."""
    run = recorder.python(
        library,
        f"""
import zoo
from zoo.catalog import Zoo
a, b = (zoo.view(zoo.empty((2048, 64), "u8"), "e4m3") for _ in range(2))
Zoo({str(of_sixteen)!r}).launch(
    "gemm.fp8b128.dense", variant="bf16_m128_pair", a=a, b=b, d=zoo.empty((2048, 2048), "bf16"), who=zoo.empty((1024,), "i32"), shift=0
)
""",
    )
    (launch,) = run.launches
    assert (launch.cluster, launch.grid, launch.programmatic, run.faults) == ((16, 1, 1), (128, 1, 1), False, [])
    assert launch.shared == 232448 - 1024
