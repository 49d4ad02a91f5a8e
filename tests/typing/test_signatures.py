"""zoo/__init__.pyi says of every kernel what the manifest says, and a type checker believes it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import zoo
from tools.generate_stubs import STUB, stub
from zoo.contract.manifest import Manifest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("program.py")


def test_the_signatures_are_of_the_manifest_and_of_what_zoo_exports():
    assert STUB.read_text() == stub(Manifest(ROOT / "cubins" / "manifest.json")), "run tools/generate_stubs.py"


def test_no_export_is_unknown_to_an_editor():
    declared = set()
    for statement in ast.parse(STUB.read_text()).body:
        if isinstance(statement, ast.ImportFrom):
            declared |= {alias.asname for alias in statement.names}
        elif isinstance(statement, ast.FunctionDef):
            declared.add(statement.name)
        elif isinstance(statement, ast.AnnAssign):
            declared.add(statement.target.id)
    assert set(zoo.__all__) == {name for name in declared if name and (name == "__version__" or not name.startswith("_"))}


def test_a_misspelt_kernel_argument_or_option_is_an_error_and_a_right_call_is_not(tmp_path):
    pytest.importorskip("mypy", reason="mypy is of the dev extra")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", "--hide-error-context"]
    command += ["--config-file=", f"--cache-dir={tmp_path}", str(PROGRAM)]
    result = subprocess.run(command, cwd=tmp_path, env=os.environ | {"MYPYPATH": str(ROOT)}, capture_output=True, text=True)
    refused = {int(line) for line in re.findall(r"program\.py:(\d+): error", result.stdout)}
    lines = PROGRAM.read_text().splitlines()
    assert refused == {number for number, line in enumerate(lines, 1) if line.endswith("# refused")}, "\n".join(
        re.findall(".*error.*", result.stdout)
    )
