"""The compiler that the tests of the build share hands out what nvcc has made of the same sources, and of no others."""

import itertools

import pytest

from build_cubins import PACKAGES
from tests.builder.build_trees import needs_nvcc, write_tree
from tests.builder.shared_builds import SharedCompiler
from tools.builder import BuildError
from tools.builder.compiler import Compiled, Compiler, Text


@pytest.fixture
def counted(monkeypatch):
    """A compiler whose every result is another."""
    numbers = itertools.count()
    monkeypatch.setattr(Compiler, "text", lambda *_: Text(str(next(numbers)), 0))
    monkeypatch.setattr(Compiler, "compiled", lambda *asked: Compiled(Text("", 0), b"%d" % next(numbers), 0, 0))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


@needs_nvcc
def test_the_same_sources_are_compiled_once_wherever_they_lie(counted, folder, tmp_path):
    roots = [[write_tree(tmp_path / name)] for name in ("one", "two")]
    first, second = SharedCompiler(folder, PACKAGES), SharedCompiler(folder, PACKAGES)
    assert first.text("unit", "sm_90a", roots[0]) == second.text("unit", "sm_90a", roots[1]) == Text("0", 0)
    assert first.compiled("unit", "sm_90a", roots[0]) == second.compiled("unit", "sm_90a", roots[1]) == Compiled(Text("", 0), b"1", 0, 0)
    assert len(list(folder.iterdir())) == 2


@needs_nvcc
def test_whatever_nvcc_may_see_compiles_again(counted, folder, tmp_path):
    one, two = write_tree(tmp_path / "one"), write_tree(tmp_path / "two")

    def made(unit="unit", arch="sm_90a", roots=(one, two), **packages):
        compiler = SharedCompiler(folder, PACKAGES)
        compiler.record = compiler.record | packages
        return compiler.text(unit, arch, list(roots)).ptx

    seen = [made(), made("another unit"), made(arch="sm_100f"), made(roots=[one]), made(flags=["-G"]), made(nvcc="13.6")]
    for header in (one / "quantize/scale.cuh", two / "quantize/scale.cuh"):
        header.write_text(header.read_text() + "// changed\n")
        seen.append(made())
    (one / "common/scale.cuh").write_text("// new")
    seen.append(made())
    assert seen == [str(number) for number in range(9)] and made() == "8"


@needs_nvcc
def test_what_does_not_compile_is_tried_again(monkeypatch, folder, tmp_path):
    tried = []

    def refuse(*asked):
        tried.append(asked)
        raise BuildError("no")

    monkeypatch.setattr(Compiler, "compiled", refuse)
    compiler = SharedCompiler(folder, PACKAGES)
    for _ in range(2):
        with pytest.raises(BuildError, match="no"):
            compiler.compiled("unit", "sm_90a", [write_tree(tmp_path / "one")])
    assert len(tried) == 2 and not list(folder.iterdir())
