"""`cubins_of`: kernels that callers know by several names and that are started from the same cubins."""

import re

import pytest

from tests.builder.build_trees import TABLE, edited, needs_nvcc, run_build, write_tree
from zoo.contract.manifest import Manifest
from zoo.shipped.integrity import verify_integrity

OWNER = edited(TABLE, ('["sm_90a", "sm_100f"]', '["sm_90a"]'))
OTHER = edited(
    OWNER,
    ('name = "quantize.mxfp8.rows"', 'name = "quantize.mxfp4.rows"'),
    ("constants = { THREADS = 64 }", 'constants = { THREADS = 64 }\ncubins_of = "quantize.mxfp8.rows"'),
    ("constants = { THREADS = 128 }", 'constants = { THREADS = 128 }\ncubins_of = "quantize.mxfp8.rows"'),
    ("values = {", 'values = { count = "2 * count",'),
)


def tree_of(folder, other, owner=OWNER):
    write_tree(folder / "source", owner)
    (folder / "source/quantize/tables/other.toml").write_text(other)
    return "--source", folder / "source", "--output", folder / "cubins"


@needs_nvcc
def test_cubins_of_two_kernels_are_built_once_and_started_by_each_in_its_own_way(tmp_path):
    arguments = tree_of(tmp_path, OTHER)
    assert "8 variants, 4 cubins" in run_build(*arguments)
    manifest = Manifest(tmp_path / "cubins/manifest.json")
    one, other = (manifest.kernel(f"quantize.{format}.rows").variants for format in ("mxfp8", "mxfp4"))
    assert [(variant.file, variant.symbol, variant.sha256) for variant in one] == [
        (variant.file, variant.symbol, variant.sha256) for variant in other
    ]
    assert one[0].launch.parameters[2] != other[0].launch.parameters[2]
    assert len(list((tmp_path / "cubins/sm_90a").iterdir())) == 4
    assert [result.problem for result in verify_integrity(tmp_path / "cubins", manifest)] == [None] * 8
    assert re.search("0 compiled, 0 changed", run_build(*arguments)), "kept for both"
    assert not run_build(*arguments, "--check").count("differs")


@needs_nvcc
def test_a_signature_that_is_not_the_shared_cubins_is_refused(tmp_path):
    other = edited(OTHER, ("int count", "int times"), ("{ count =", "{ times ="))
    said = run_build(*tree_of(tmp_path, other), status=1)
    assert "quantize.mxfp4.rows once_t64 (sm_90a): its cubin is that of quantize.mxfp8.rows once_t64 (sm_90a)" in said
    assert "another signature" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('name = "t64"', 'name = "t63"'), "quantize.mxfp8.rows has no variant once_t63 for sm_90a, whose cubin it would be"),
        (("{ THREADS = 64 }", "{ THREADS = 32 }"), "its cubin is that of quantize.mxfp8.rows once_t64 (sm_90a), which has another source"),
        (("{ THREADS = 64 }", '{ THREADS = 64 }\npipeline = "other"'), "another pipeline, other constants or another signature"),
        (('cubins_of = "quantize.mxfp8.rows"', 'cubins_of = "quantize.nvfp4.rows"'), "quantize.nvfp4.rows has no variant once_t64"),
    ],
    ids=["no such variant", "other constants", "another pipeline", "no such kernel"],
)
@needs_nvcc
def test_what_the_owner_does_not_have_is_refused(change, words, tmp_path):
    assert words in run_build(*tree_of(tmp_path, edited(OTHER, change)), status=1)
