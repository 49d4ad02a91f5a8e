"""Imports that run in a circle or upwards: such files can only be understood, tested and moved together.

An arrow is any import of a file, also inside a function or for types alone. A string that is the name of another package's module counts too,
because importlib takes such strings.
"""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "build_cubins"

# What each package at the bottom may import.
BELOW = {
    "zoo.errors": set(),
    "zoo.contract": {"zoo.errors"},
    "zoo.shipped": {"zoo.errors", "zoo.contract"},
    "zoo.runtime": {"zoo.errors", "zoo.contract", "zoo.shipped"},
    "zoo.emulator": {"zoo.errors", "zoo.contract", "zoo.shipped"},
}


@cache
def files():
    """Module -> the modules that it imports."""
    paths = (*ROOT.glob("zoo/**/*.py"), *ROOT.glob("tools/**/*.py"), ROOT / f"{SCRIPT}.py")
    dotted = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths}
    names = {path: name.removesuffix(".__init__") for path, name in dotted.items()}
    known = set(names.values())
    return {names[path]: imported(path.read_text(), name.rpartition(".")[0], known) for path, name in dotted.items()}


def imported(text, package, known):
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(filter(None, (above, node.module)))
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name if name in known else base for name in names}
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value and part_of(node.value) != part_of(package)
        ):
            found.add(node.value)
    return found & known


def packages():
    """The same between the parts of zoo: `zoo.contract.array` belongs to `zoo.contract`."""
    arrows = {}
    for name, others in files().items():
        if name.startswith("zoo"):
            part = part_of(name)
            arrows.setdefault(part, set()).update(other for other in map(part_of, others) if other != part)
    return arrows


def part_of(name):
    return ".".join(name.split(".")[:2])


def circle(arrows):
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.mark.parametrize("arrows", [files, packages])
def test_no_import_runs_in_a_circle(arrows):
    assert circle(arrows()) == []


def test_the_bottom_imports_nothing_from_above():
    arrows = packages()
    assert {part: arrows[part] - allowed for part, allowed in BELOW.items() if arrows[part] - allowed} == {}


def test_no_file_imports_the_root_script_and_zoo_imports_no_tool():
    up = {(name, other) for name, others in files().items() for other in others if other == SCRIPT}
    up |= {(name, other) for name, others in files().items() for other in others if name.startswith("zoo") and other.startswith("tools")}
    assert up == set()


def test_imports_are_seen_wherever_they_are_written():
    known = {"zoo", "zoo.a", "zoo.a.b", "zoo.c", "zoo.d", "zoo.e"}
    for text, package, found in (
        ("import zoo.c, os", "zoo", {"zoo.c"}),
        ("def f():\n    from zoo import c, other", "zoo.a", {"zoo", "zoo.c"}),
        ("if TYPE_CHECKING:\n    from zoo.d import Name", "zoo.a", {"zoo.d"}),
        ("from . import b\nfrom .b import Name", "zoo.a", {"zoo.a.b"}),
        ("from .. import c\nfrom ..d import Name", "zoo.a", {"zoo.c", "zoo.d"}),
        ("load('zoo.e'), load('zoo.a.b')", "zoo.a", {"zoo.e"}),
    ):
        assert imported(text, package, known) == found
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


def test_the_written_rules_are_there_after_import_zoo():
    program = "import sys, zoo; assert 'zoo.reference' not in sys.modules; zoo.reference.kernels.run"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
