"""tools/mutate.py must tell what tests notice from what they do not, and leave nothing changed."""

import ast
import random
import subprocess
from pathlib import Path

import pytest

from tools.mutate import TESTS, Judging, draw, judges_of, mutants, survivors

ROOT = Path(__file__).resolve().parents[2]
MODULE = b'''"""A text with 3 numbers."""

def larger(a: int, b: int) -> int:
    """The larger of 2."""
    if a > b:
        return a
    return b

def unheeded(a):
    return a + 7
'''
TEST = """from module import larger

def test_larger():
    assert larger(1, 2) == 2 and larger(3, 2) == 3
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Its tests need none of the plugins that this environment may have, which take longer to load than the tests to run."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    root = tmp_path / "toy"
    root.mkdir()
    (root / "module.py").write_bytes(MODULE)
    (root / "test_module.py").write_text(TEST)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    copy = tmp_path / "copy"
    copy.mkdir()
    return root, copy


def test_survivors_are_the_changes_that_no_test_sees(toy):
    root, folder = toy
    tests = {"module.py": ("test_module.py",)}
    alive, tried = survivors(Judging(root, folder, tests), draw(root, tests, 1), 100, 300)
    assert tried == len(mutants("module.py", MODULE)) == 7
    seen = {(mutant.was, mutant.text) for mutant in alive}
    assert seen == {
        ("a > b", "(a >= b)"), ("a + 7", "(a - 7)"), ("7", "(8)"), ("7", "(7 - 1)"), ("return a + 7", "return None"),
    }  # fmt: skip
    (copy,) = folder.iterdir()
    assert (copy / "module.py").read_bytes() == MODULE == (root / "module.py").read_bytes()


def test_a_seed_draws_the_same_changes_again(toy):
    root, _ = toy
    tests = {"module.py": ("test_module.py",)}
    assert list(draw(root, tests, 4)) == list(draw(root, tests, 4)) != list(draw(root, tests, 5))


def test_every_change_is_python_and_is_a_change():
    for file in ("zoo/shipped/ptx.py", "zoo/contract/files.py", "tools/mutate.py"):
        source = (ROOT / file).read_bytes()
        found = mutants(file, source)
        assert len(found) > 20
        unchanged = ast.dump(ast.parse(source))
        for mutant in random.Random(1).sample(found, min(len(found), 120)):  # of several hundred of one file
            assert ast.dump(ast.parse(mutant.apply(source))) != unchanged, mutant


UNSEEN = b"""
Pair = tuple[int, int]
_T = TypeVar("_T")
__slots__ = ("a", "b")
__all__ = ["a" if 1 < 2 else "b"]

class Thing:
    __slots__ = ("a",)
    def __repr__(self):
        return f"{self.a + 1}" if self.a > 3 else "small"

def pairs(a: int = None, b: "1 < 2" = None) -> None:
    zip(cast(int, a), max(a, b), strict=True)
"""


def test_what_no_caller_can_see_is_left_alone():
    assert {(mutant.was, mutant.text) for mutant in mutants("module.py", UNSEEN)} == {
        ("zip(cast(int, a), max(a, b), strict=True)", "pass"),
        ("zip(cast(int, a), max(a, b), strict=True)", "(zip(max(a, b), cast(int, a), strict=True))"),
    }


def test_who_uses_a_module_is_asked_where_its_own_tests_see_nothing(toy):
    root, folder = toy
    (root / "test_user.py").write_text("from module import unheeded\n\ndef test():\n    assert unheeded(1) == 8\n")
    tests = {"module.py": ("test_module.py", "test_user.py")}
    alive, tried = survivors(Judging(root, folder, tests), draw(root, tests, 1), 100, 300)
    assert tried == 7 and [(mutant.was, mutant.text) for mutant in alive] == [("a > b", "(a >= b)")]


def test_changes_that_the_tests_are_not_fit_to_judge_are_not_counted(toy, capsys):
    root, folder = toy
    (root / "test_module.py").write_text("def test():\n    assert False\n")
    tests = {"module.py": ("test_module.py",)}
    assert survivors(Judging(root, folder, tests), draw(root, tests, 1), 100, 300) == ([], 0)
    assert "fail as they are" in capsys.readouterr().err


def test_what_only_unfit_tests_could_still_notice_is_not_counted(toy):
    root, folder = toy
    (root / "test_user.py").write_text("def test():\n    assert False\n")
    quick, both = ({"module.py": named} for named in (("test_module.py",), ("test_module.py", "test_user.py")))
    alive, tried = survivors(Judging(root, folder, quick), draw(root, quick, 1), 100, 300)
    assert alive and survivors(Judging(root, folder, both), draw(root, both, 1), 100, 300) == ([], tried - len(alive))


def test_every_test_that_is_named_exists():
    for pattern, named in TESTS.items():
        assert list(ROOT.glob(pattern)), pattern
        assert all((ROOT / one).exists() for judges in named for one in judges.partition(" -k ")[0].split()), named
    assert judges_of("zoo/shipped/ptx.py", TESTS) == ("tests/hostile/test_ptx_archive.py",)
