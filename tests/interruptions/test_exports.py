"""An export that is stopped, or comes after another: nothing of the other stays, nothing of the user goes, and what is half there does not build."""

import re
import shutil
import subprocess

import pytest

from tests.interruptions.stops import HOW, KILL, every_stop, files_of, hidden
from tests.recorder import ROOT
from zoo.capi import folder as export_folder
from zoo.capi.export import export
from zoo.capi.folder import LAST, LIST, replace
from zoo.contract.manifest import Manifest
from zoo.errors import ArgumentError

CUBINS = ROOT / "tests/zoo_cubins"
OWN = {
    "engine.c": "int own;\n",
    "cubins/mine.c": "int mine;\n",
    "cubins/mine.o": "mine",
    "build/CMakeCache.txt": "cmake",
    ".clang-format": "x",
    ".draft.1.new": "x",
}
needs_make = pytest.mark.skipif(shutil.which("cc") is None or shutil.which("make") is None, reason="no C compiler or no make")


def make(directory, kernels=("*",), archs=None):
    return export(directory, Manifest(CUBINS / "manifest.json"), CUBINS, kernels, archs)


def put(directory, files):
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def texts(edition: str, cubins) -> dict[str, str]:
    """An export's files, with so little in them that hundreds can be written."""
    names = ["zoo.h", "zoo.c", "cubins/cubins.h", *(f"cubins/{name}.c" for name in cubins), LAST, "example.c", "Makefile"]
    return {name: f"{edition} {name} {len(cubins)}\n" for name in names}


@pytest.mark.parametrize("how", HOW)
def test_an_export_that_is_stopped_at_any_operation_can_be_repeated(tmp_path, how):
    first, second = texts("first", ("a", "b", "c")), texts("second", ("b", "d"))
    directory, before, wanted = tmp_path / "package", tmp_path / "before", tmp_path / "wanted"
    replace(before, first)
    put(before, OWN)
    put(
        before, {f"{name}.o": "object" for name in ("zoo", "zoo_table", "cubins/a", "cubins/b")} | {"libzoo.a": "built", "example": "built"}
    )
    put(wanted, OWN)
    shutil.copytree(before, directory)
    replace(directory, second)
    new = files_of(directory)
    assert new == files_of(wanted) | {name: text.encode() for name, text in second.items()} | {LIST: new[LIST]}

    def prepare():
        shutil.rmtree(directory)
        shutil.copytree(before, directory)

    def check(_):
        left = files_of(directory)
        assert left.items() >= files_of(wanted).items(), "what the user put there stays"
        if LAST in left:  # it builds: of which export it may be, it is whole
            edition = first if left[LAST] == first[LAST].encode() else second
            assert all(left[name] == text.encode() for name, text in edition.items())
        if how != KILL:
            assert hidden(left) == hidden(files_of(wanted))
        replace(directory, second)
        assert files_of(directory) == new

    assert every_stop(how, prepare, lambda: replace(directory, second), check) > 20


@pytest.mark.parametrize("how", HOW)
def test_a_first_export_that_is_stopped_can_be_repeated(tmp_path, how):
    directory = tmp_path / "deep/er/package"

    def check(_):
        assert LAST not in files_of(tmp_path / "deep") or len(files_of(directory)) == 10
        replace(directory, texts("first", ("a", "b")))
        assert set(files_of(directory)) == {*texts("first", ("a", "b")), LIST}

    stops = every_stop(
        how, lambda: shutil.rmtree(tmp_path / "deep", ignore_errors=True), lambda: replace(directory, texts("first", ("a", "b"))), check
    )
    assert stops > 20


@needs_make
def test_make_after_a_second_export_gives_a_library_of_the_second_alone(tmp_path):
    """The kernels of the first were seven variants; the archive, its objects and the linked example must know none of them."""
    directory = tmp_path / "package"
    make(directory, ["gemm.fp8b128.dense", "gemm.mxfp4.m_grouped_masked"], ["sm_90a"])
    subprocess.run(["make", "-s", "-C", directory, "CFLAGS=-O0"], check=True)
    put(directory, OWN)
    make(directory, ["gemm.bf16_mxfp4.dense"])
    assert not list(directory.glob("*.o")) and [path.name for path in directory.glob("cubins/*.o")] == ["mine.o"]
    assert not (directory / "libzoo.a").exists() and not (directory / "example").exists()
    subprocess.run(["make", "-s", "-C", directory, "CFLAGS=-O0"], check=True)
    members = subprocess.run(["ar", "t", directory / "libzoo.a"], check=True, capture_output=True, text=True).stdout.split()
    cubins = {"sm_90a_gemm_bf16_mxfp4_dense__r8.o", "sm_100f_gemm_bf16_mxfp4_dense__r8.o"}
    assert set(members) == {"zoo.o", "zoo_table.o", *cubins} and len(members) == 4
    left = set(files_of(directory))
    assert not any("masked" in name or "fp8b128" in name for name in left)
    subprocess.run(["make", "-s", "-C", directory, "clean"], check=True)
    fresh = tmp_path / "fresh"
    make(fresh, ["gemm.bf16_mxfp4.dense"])
    put(fresh, OWN)
    assert files_of(directory) == files_of(fresh)


@needs_make
def test_an_archive_that_make_builds_again_holds_no_object_of_before(tmp_path):
    """Whoever lists the sources of the Makefile otherwise, or restores an old archive, must not keep its members."""
    make(tmp_path, ["gemm.bf16_mxfp4.dense"])
    (tmp_path / "stale.o").write_bytes(b"")
    subprocess.run(["ar", "rcs", tmp_path / "libzoo.a", tmp_path / "stale.o"], check=True)
    subprocess.run(["touch", "-d", "2001-01-01", tmp_path / "libzoo.a"], check=True)
    subprocess.run(["make", "-s", "-C", tmp_path, "CFLAGS=-O0", "libzoo.a"], check=True)
    members = subprocess.run(["ar", "t", tmp_path / "libzoo.a"], check=True, capture_output=True, text=True).stdout.split()
    assert "stale.o" not in members and "zoo.o" in members


def test_what_a_user_put_where_the_export_must_write_is_not_overwritten(tmp_path):
    make(tmp_path, ["gemm.bf16_mxfp4.dense"], ["sm_90a"])
    mine = tmp_path / "cubins/sm_100f_gemm_bf16_mxfp4_dense__r8.c"
    mine.write_text("int mine;\n")
    before = files_of(tmp_path)
    with pytest.raises(ArgumentError, match=r"r8\.c is not from an export; move it away, or choose another directory"):
        make(tmp_path, ["gemm.bf16_mxfp4.dense"])
    assert files_of(tmp_path) == before


def test_a_folder_in_the_place_of_a_file_is_refused_before_anything_is_touched(tmp_path):
    make(tmp_path, ["gemm.bf16_mxfp4.dense"])
    (tmp_path / "example.c").unlink()
    put(tmp_path, {"example.c/mine.c": "int mine;\n"})
    before = files_of(tmp_path)
    with pytest.raises(ArgumentError, match=r"example\.c is not from an export"):
        make(tmp_path, ["gemm.bf16_mxfp4.dense"])
    assert files_of(tmp_path) == before


def test_a_link_is_replaced_and_never_written_through(tmp_path):
    directory, other = tmp_path / "package", tmp_path / "other.c"
    make(directory, ["gemm.bf16_mxfp4.dense"])
    other.write_text("int other;\n")
    for name in ("zoo.c", LAST):
        (directory / name).unlink()
        (directory / name).symlink_to(other)
    make(directory, ["gemm.bf16_mxfp4.dense"])
    assert other.read_text() == "int other;\n" and not (directory / LAST).is_symlink() and not (directory / "zoo.c").is_symlink()


def test_a_folder_of_cubins_that_lies_elsewhere_is_refused(tmp_path):
    directory = tmp_path / "package"
    make(directory, ["gemm.bf16_mxfp4.dense"])
    (directory / "cubins").rename(tmp_path / "elsewhere")
    (directory / "cubins").symlink_to(tmp_path / "elsewhere")
    before = files_of(tmp_path / "elsewhere")
    with pytest.raises(ArgumentError, match="cubins is not from an export"):
        make(directory, ["gemm.bf16_mxfp4.dense"])
    assert files_of(tmp_path / "elsewhere") == before


@pytest.mark.parametrize(
    "name", ["../thesis.tex", "/etc/passwd", "thesis.tex", "cubins/../../thesis.c", "cubins/deep/er.c", "cubins/.hidden.c", "zoo.c\x00", "src/main.c", ""]
)  # fmt: skip
def test_a_forged_list_removes_nothing(tmp_path, name):
    """The list may have come with a clone of somebody's repository."""
    directory = tmp_path / "package"
    put(directory, {"thesis.tex": "years of work", "src/main.c": "int main;\n", LIST: f"# Written by `zoo export`\n{name}\n"})
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "thesis.c").write_text("years of work")
    before = files_of(tmp_path)
    with pytest.raises(ArgumentError, match=re.escape(f"{LIST} names")):
        make(directory)
    assert files_of(tmp_path) == before


def test_what_is_refused_leaves_the_export_before_as_it_is(tmp_path, monkeypatch):
    """Too many expressions are found while the tables are written: then nothing must be gone yet."""
    make(tmp_path, ["gemm.bf16_mxfp4.dense"])
    before = files_of(tmp_path)
    monkeypatch.setattr("zoo.capi.table.MOST_EXPRESSIONS", 3)
    with pytest.raises(Exception, match="more than 3"):
        make(tmp_path)
    assert files_of(tmp_path) == before


def test_two_exports_into_one_folder_take_turns(tmp_path, monkeypatch):
    """While one writes, another waits, so that the files of two are never mixed."""
    import fcntl
    import os

    held = []

    def try_to_hold(directory, names):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.append(directory)
        finally:
            os.close(descriptor)
        real(directory, names)

    real = export_folder._remove
    monkeypatch.setattr(export_folder, "_remove", try_to_hold)
    replace(tmp_path, texts("first", ("a",)))
    assert held == [tmp_path]
