"""build_cubins.py as a user runs it: what it writes, what it compiles again, what --check finds."""

import hashlib
import json
import os
import re
import shutil
import subprocess

import pytest

from build_cubins import PACKAGES
from tests.builder.build_trees import HEADER, ROOT, SOURCE, TABLE, edited, needs_nvcc, run_build, write_tree
from tools.builder.compiler import FLAGS, Compiler
from tools.builder.expand import expand
from tools.builder.table import read_tables
from zoo.contract.manifest import Manifest
from zoo.shipped import ptx
from zoo.shipped.integrity import verify_integrity

DYNAMIC = "namespace zoo {\nconstexpr int DYNAMIC_SHARED_BYTES = 4 * Variant::THREADS;\n}\n"
SMALL = edited(TABLE, ('["sm_90a", "sm_100f"]', '["sm_90a"]'))  # four variants


def files_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def compiled(said):
    return int(re.search(r"(\d+) compiled", said)[1])


@pytest.fixture(scope="module")
def built(shared_build, tmp_path_factory):
    """One build that the tests copy."""
    folder = tmp_path_factory.mktemp("built")
    shared_build("--source", write_tree(folder / "source", SMALL), "--output", folder / "cubins")
    return folder


@pytest.fixture
def place(built, tmp_path):
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def build(shared_build):
    """A build of the tree in a folder."""

    def run(folder, *arguments, status=0):
        return shared_build("--source", folder / "source", "--output", folder / "cubins", *arguments, status=status)

    return run


@needs_nvcc
def test_what_is_written_is_what_every_reader_accepts(built):
    manifest = Manifest(built / "cubins" / "manifest.json")
    kernel = manifest.kernel("quantize.mxfp8.rows")
    assert [variant.name for variant in kernel.variants] == ["once_t64", "once_t128", "twice_t64", "twice_t128"]
    assert manifest.compiler["nvcc"] == PACKAGES["nvidia-cuda-nvcc"]
    results = list(verify_integrity(built / "cubins", manifest))
    assert [result.problem for result in results] == [None] * 4
    assert sorted(files_of(built / "cubins")) == ["manifest.json", "ptx.tar.xz", *sorted(variant.file for variant in kernel.variants)]


@needs_nvcc
def test_threads_and_dynamic_shared_memory_are_what_the_source_says(build, tmp_path):
    held = "    extern __shared__ float held[];\n    held[threadIdx.x] = 1.f;\n    __syncthreads();\n    y[1] = held[count];\n"
    source = edited(SOURCE, ('extern "C"', f'{DYNAMIC}extern "C"'), ("    const int twice", f"{held}    const int twice"))
    write_tree(tmp_path / "source", SMALL, source)
    build(tmp_path)
    kernel = Manifest(tmp_path / "cubins/manifest.json").kernel("quantize.mxfp8.rows")
    assert [(one.threads, one.shared, one.static_shared) for one in kernel.variants] == [(64, 256, 0), (128, 512, 0)] * 2
    assert compiled(build(tmp_path)) == 0 and build(tmp_path, "--check"), "kept from the manifest, and found again from nothing"


@needs_nvcc
def test_cubins_are_those_of_one_step_and_texts_say_nothing_more(tmp_path):
    """What the build makes in two steps, with the size of shared memory asked in between."""
    source = edited(
        SOURCE,
        ('extern "C"', f'{DYNAMIC}extern "C"'),
        ("    const int twice", "    extern __shared__ float held[];\n    y[1] = held[count];\n    const int twice"),
    )
    folder = write_tree(tmp_path / "source", SMALL, source)
    compiler = Compiler(PACKAGES)
    (table,) = read_tables(folder)
    unit = expand(table)[0].unit()
    made = compiler.compiled(unit, "sm_90a", [folder])
    for kind, ours in (("-cubin", made.cubin), ("-ptx", made.text.ptx.encode())):
        command = [compiler.nvcc, "-x", "cu", kind, "-arch=sm_90a", *FLAGS, "-I.", "-o", tmp_path / "out", "-"]
        subprocess.run(command, input=unit.encode(), cwd=folder, check=True, capture_output=True)
        assert (tmp_path / "out").read_bytes() == ours
    assert made.text.dynamic_shared == 256


@needs_nvcc
def test_nothing_changed_compiles_nothing_and_touches_nothing(build, place):
    times = {path: path.stat().st_mtime_ns for path in (place / "cubins").rglob("*")}
    assert compiled(build(place)) == 0
    assert {path: path.stat().st_mtime_ns for path in (place / "cubins").rglob("*")} == times


@needs_nvcc
def test_a_changed_header_compiles_its_kernels_again(build, place):
    (place / "source/quantize/scale.cuh").write_text(edited(HEADER, ("2.f", "3.f")))
    before = files_of(place / "cubins")
    assert compiled(build(place)) == 4
    after = files_of(place / "cubins")
    assert all(before[name] != after[name] for name in before)


@needs_nvcc
def test_a_changed_constant_compiles_its_tile_alone(build, place):
    write_tree(place / "source", edited(SMALL, ("THREADS = 64", "THREADS = 96")))
    assert compiled(build(place)) == 2


@needs_nvcc
def test_a_changed_launch_compiles_nothing_but_is_checked(build, place):
    write_tree(place / "source", edited(SMALL, ('cost = "THREADS"', 'cost = "THREADS + 1"')))
    assert compiled(build(place)) == 0
    assert '"cost": "THREADS + 1"' in (place / "cubins/manifest.json").read_text()
    write_tree(place / "source", edited(SMALL, ("values = {", 'values = { count = "2 * count",')))
    assert compiled(build(place)) == 0
    assert '"value": "2 * count"' in (place / "cubins/manifest.json").read_text()


@needs_nvcc
def test_a_changed_signature_compiles_its_kernels_again(build, place):
    """The same bytes in the same places: what the cubins take is another quantity by its name."""
    before = {one.name: one.signature for one in Manifest(place / "cubins/manifest.json").kernel("quantize.mxfp8.rows").variants}
    write_tree(
        place / "source",
        edited(SMALL, ("int count", "int times"), ("values = {", 'values = { times = "count",')),
        edited(SOURCE, ("+ count", "+ times")),
    )
    assert compiled(build(place)) == 4
    after = {one.name: one.signature for one in Manifest(place / "cubins/manifest.json").kernel("quantize.mxfp8.rows").variants}
    assert before.keys() == after.keys() and before.items().isdisjoint(after.items())


@needs_nvcc
def test_a_damaged_cubin_is_built_again(build, place):
    path = place / "cubins/sm_90a/quantize_mxfp8_rows__once_t64.cubin"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert compiled(build(place)) == 1
    assert path.read_bytes() == good


@needs_nvcc
def test_the_archive_of_ptx_follows_its_cubins(build, place):
    archive = place / "cubins/ptx.tar.xz"
    good = ptx.read(archive)
    assert sorted(good) == [f"sm_90a/quantize_mxfp8_rows__{name}.ptx" for name in ("once_t128", "once_t64", "twice_t128", "twice_t64")]
    archive.write_bytes(ptx.pack({**good, "sm_90a/quantize_mxfp8_rows__once_t64.ptx": b"// another"}))
    assert "ptx.tar.xz: differs" in build(place, "--check", status=1)
    assert compiled(build(place)) == 0 and ptx.read(archive) == good, "made again, and no cubin with it"
    archive.unlink()
    assert compiled(build(place)) == 0 and ptx.read(archive) == good
    (place / "source/quantize/scale.cuh").write_text(edited(HEADER, ("2.f", "3.f")))
    assert compiled(build(place)) == 4
    assert all(ptx.read(archive)[name] != text for name, text in good.items())


@needs_nvcc
def test_another_compiler_builds_everything_again(build, place):
    manifest = place / "cubins/manifest.json"
    manifest.write_text(manifest.read_text().replace(PACKAGES["nvidia-cuda-nvcc"], "13.0.0"))
    assert compiled(build(place)) == 4


@needs_nvcc
def test_cubins_of_removed_variants_go_and_so_does_their_evidence(build, place):
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files_of(place / "cubins").items()}
    stays, goes = (digests[f"sm_90a/quantize_mxfp8_rows__once_{tile}.cubin"] for tile in ("t64", "t128"))
    evidence, seen = place / "cubins/evidence.json", {"gpu": {"device": "NVIDIA H200", "error": None}}
    evidence.write_text(json.dumps({stays: seen, goes: seen, "0" * 64: {}}))
    table = SMALL[: SMALL.rindex("[[variants.tiles]]")]
    write_tree(place / "source", table)
    assert "2 removed" in build(place)
    assert sorted(path.name for path in (place / "cubins/sm_90a").iterdir()) == [
        "quantize_mxfp8_rows__once_t64.cubin", "quantize_mxfp8_rows__twice_t64.cubin"]  # fmt: skip
    assert json.loads(evidence.read_text()) == {stays: seen}


@needs_nvcc
def test_another_folder_another_number_of_jobs_and_stray_variables_give_the_same_bytes(built, tmp_path):
    write_tree(tmp_path / "quite another" / "place" / "source", SMALL)
    environment = {**os.environ, "NVCC_APPEND_FLAGS": "-G", "CPLUS_INCLUDE_PATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    folder = tmp_path / "quite another" / "place"
    run_build("--source", folder / "source", "--output", folder / "cubins", "--jobs", "1", environment=environment)
    assert files_of(folder / "cubins") == files_of(built / "cubins")


@needs_nvcc
def test_check_passes_on_a_fresh_build_and_writes_nothing(place):
    """Every variant is compiled once more."""
    before = files_of(place)
    assert "4 variants: byte for byte" in run_build("--source", place / "source", "--output", place / "cubins", "--check")
    assert files_of(place) == before


@needs_nvcc
def test_check_names_every_file_that_differs(build, place):
    cubins = place / "cubins/sm_90a"
    altered, missing = (cubins / f"quantize_mxfp8_rows__{name}.cubin" for name in ("once_t64", "once_t128"))
    data = bytearray(altered.read_bytes())
    data[200] ^= 1
    altered.write_bytes(data)
    missing.unlink()
    (cubins / "stranger.cubin").write_bytes(b"x")
    manifest = place / "cubins/manifest.json"
    manifest.write_text(manifest.read_text().replace('"registers": ', '"registers": 1'))
    said = build(place, "--check", status=1)
    for path, words in ((altered, "differs"), (missing, "missing"), (cubins / "stranger.cubin", "no table has"), (manifest, "differs")):
        assert f"{path}: {words}" in said
    assert "4 files differ" in said


@needs_nvcc
def test_check_sees_a_change_of_the_source_that_nobody_built(build, place):
    (place / "source/quantize/scale.cuh").write_text(edited(HEADER, ("2.f", "3.f")))
    assert "6 files differ" in build(place, "--check", status=1)


@needs_nvcc
def test_a_check_of_a_share_compiles_whatever_changed(build, place):
    assert "(0 cubins compiled)" in build(place, "--check", "--share", "1000000000")
    (place / "source/quantize/scale.cuh").write_text(edited(HEADER, ("2.f", "3.f")))
    assert "6 files differ" in build(place, "--check", "--share", "1000000000", status=1)


@needs_nvcc
def test_a_part_can_be_built_alone_and_the_rest_later(build, tmp_path):
    write_tree(tmp_path / "source", TABLE)
    said = build(tmp_path, "--arch", "sm_100f", "--only", "quantize.mxfp8.rows twice_*")
    assert compiled(said) == 2 and "6 variants are out of date or not built yet, and not in the manifest" in said
    kernel = Manifest(tmp_path / "cubins/manifest.json").kernel("quantize.mxfp8.rows")
    assert [(variant.arch, variant.name) for variant in kernel.variants] == [("sm_100f", "twice_t64"), ("sm_100f", "twice_t128")]
    assert compiled(build(tmp_path)) == 6
    assert "8 variants: byte for byte" in build(tmp_path, "--check")


@needs_nvcc
def test_a_variant_left_out_of_date_is_built_by_the_next_full_build(build, place):
    (place / "source/quantize/scale.cuh").write_text(edited(HEADER, ("2.f", "3.f")))
    said = build(place, "--only", "* once_*")
    assert compiled(said) == 2 and "2 removed" in said and "2 variants are out of date or not built yet, and not in the manifest" in said
    assert [variant.name for variant in Manifest(place / "cubins/manifest.json").kernel("quantize.mxfp8.rows").variants] == [
        "once_t64",
        "once_t128",
    ]
    assert compiled(build(place)) == 2


@needs_nvcc
def test_an_old_cubin_is_never_started_by_a_new_table(build, place):
    """One constant changed, another variant built: the grid of the new table with the kernel of the old one would be wrong."""
    write_tree(place / "source", edited(SMALL, ("THREADS = 64", "THREADS = 96")))
    said = build(place, "--only", "* once_t128")
    assert compiled(said) == 0 and "2 variants are out of date" in said
    kernel = Manifest(place / "cubins/manifest.json").kernel("quantize.mxfp8.rows")
    assert [variant.name for variant in kernel.variants] == ["once_t128", "twice_t128"]
    assert all(result.problem is None for result in verify_integrity(place / "cubins", Manifest(place / "cubins/manifest.json")))


@needs_nvcc
def test_a_selection_of_nothing_says_what_there_is(build, place):
    assert "kernels: quantize.mxfp8.rows; archs: sm_90a" in build(place, "--only", "gemm.*", status=1)


@needs_nvcc
def test_ptx_is_written_beside_nothing_else(build, place):
    before = files_of(place / "cubins")
    build(place, "--ptx", place / "ptx")
    texts = files_of(place / "ptx")
    assert sorted(texts) == sorted(name.replace(".cubin", ".ptx") for name in before if name.endswith(".cubin"))
    for name, text in texts.items():
        assert f".entry {name.split('/')[1][:-4]}(".encode() in text and b".target sm_90a" in text
    assert files_of(place / "cubins") == before


@needs_nvcc
def test_only_the_projects_own_output_pins_the_manifest(built):
    text = (ROOT / "zoo/shipped/pins.py").read_text() if (ROOT / "zoo/shipped/pins.py").exists() else ""
    assert hashlib.sha256((built / "cubins/manifest.json").read_bytes()).hexdigest() not in text


def test_another_tree_needs_an_output(tmp_path):
    assert "--source needs --output" in run_build("--source", write_tree(tmp_path), status=2)


def test_check_takes_no_selection(tmp_path):
    assert "--check compares everything" in run_build("--check", "--arch", "sm_90a", status=2)
    assert "goes with --check" in run_build("--share", "4", status=2)


@needs_nvcc
def test_the_committed_test_zoo_is_what_its_sources_give():
    said = run_build("--source", ROOT / "tests/zoo_src", "--output", ROOT / "tests/zoo_cubins", "--check")
    assert "14 variants: byte for byte" in said


@needs_nvcc
def test_the_build_holds_for_a_source_that_names_nothing_else(build, tmp_path):
    """SOURCE itself, unedited, on both archs: what the failing cases differ from."""
    write_tree(tmp_path / "source", TABLE, SOURCE)
    assert compiled(build(tmp_path)) == 8
