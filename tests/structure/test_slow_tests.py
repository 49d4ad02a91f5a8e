"""tests/slow.txt names tests that exist: a name that is no test would hide nothing and stay for ever."""

import ast

from tests.recorder import ROOT


def names_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {f"{path}::{node.name}" for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_slow_test_is_a_test():
    names = (ROOT / "tests/slow.txt").read_text().split()
    assert names == sorted(set(names))
    assert not [name for name in names if name not in names_of(name.partition("::")[0])]
