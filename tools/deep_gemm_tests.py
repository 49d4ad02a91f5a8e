"""Runs DeepGEMM's own tests on zoo's kernels: `python tools/deep_gemm_tests.py CHECKOUT` on a machine with a GPU, torch and zoo.

CHECKOUT is a clone of github.com/deepseek-ai/DeepGEMM, which is read and never built. Its tests import `deep_gemm`, which is zoo's here;
`deep_gemm.testing`, and casts of `deep_gemm.utils` that zoo lacks, are the checkout's own Python. A test draws its cases from a generator
`enumerate_...`; each case is run alone, so that one failure hides no other. Measurements are left out (DG_USE_NVIDIA_TOOLS=1).

The table has, for each test function, the cases that passed, or why it does not apply: the names that zoo lacks, or the test's own words.
Exits with 1 if a case failed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.util
import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import zoo.compat.deep_gemm.utils
from tools.clients.record import Seen, write
from zoo.compat.deep_gemm import finder


@dataclass
class Outcome:
    test: str
    cases: int = 0
    passed: int = 0
    lacks: str = ""  # why it does not apply
    failures: list[str] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a clone of DeepGEMM")
    parser.add_argument("--version", default="", help="the commit, where CHECKOUT is no clone")
    parser.add_argument("--only", default="", help="tests whose FILE::FUNCTION has this text")
    parser.add_argument("--most", type=int, help="at most so many cases of a test")
    parser.add_argument("--json", type=Path, help="writes the outcomes to this file")
    parser.add_argument("--record", type=Path, help="writes the counts to this file, such as docs/clients.json")
    given = parser.parse_args()
    os.environ["DG_USE_NVIDIA_TOOLS"] = "1"
    os.environ["ZOO_DEEP_GEMM_REAL"] = "0"
    provide(given.checkout)
    outcomes = list(run(given.checkout, given.only, given.most))
    version = given.version or commit_of(given.checkout)
    print(table(outcomes, version))
    if given.json:
        given.json.write_text(json.dumps({"commit": version, "tests": [asdict(one) for one in outcomes]}, indent=1) + "\n")
    if given.record:
        import torch

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        passed, failed = sum(one.passed for one in outcomes), sum(one.cases - one.passed for one in outcomes)
        lacks = Counter("zoo lacks it" if one.lacks.startswith("zoo has no") else "skips itself" for one in outcomes if one.lacks)
        write(Seen("DeepGEMM", version, "its own tests", device, passed, failed, dict(lacks)), given.record)
    return any(one.failures for one in outcomes)


def provide(checkout: Path) -> None:
    """`deep_gemm` and what its tests need beside it."""
    finder.provide()
    named = importlib.import_module("deep_gemm")
    folder = checkout / "deep_gemm"
    testing = loaded("deep_gemm.testing", folder / "testing" / "__init__.py")
    vars(named)["testing"] = testing
    theirs = loaded("_checkout_math", folder / "utils" / "math.py")
    for utils in (named.utils, importlib.import_module("deep_gemm.utils.math")):
        for name, value in vars(theirs).items():
            if callable(value) and name not in vars(utils) and not name.startswith("_"):
                vars(utils)[name] = value
    sys.path.insert(0, str(checkout / "tests"))


def loaded(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        sys.exit(f"{file}: expected a file of DeepGEMM; give the folder of its clone")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run(checkout: Path, only: str, most: int | None) -> Iterator[Outcome]:
    for file in sorted((checkout / "tests").glob("test_*.py")):
        tree = ast.parse(file.read_text())
        of_file = imported_names(tree)
        for function in tree.body:
            if not isinstance(function, ast.FunctionDef) or not function.name.startswith("test_"):
                continue
            outcome = Outcome(f"{file.name}::{function.name}")
            if only not in outcome.test:
                continue
            lacking = sorted(name for name in of_file | used_names(function) if not hasattr(sys.modules["deep_gemm"], name))
            if lacking:
                outcome.lacks = f"zoo has no {', '.join(lacking)}"
            else:
                run_cases(outcome, importlib.import_module(file.stem), function, most)
            print(f"{outcome.test}: {outcome.passed} of {outcome.cases}; {outcome.lacks}", file=sys.stderr, flush=True)
            yield outcome


def imported_names(tree: ast.Module) -> set[str]:
    """What a file imports of deep_gemm itself."""
    return {one.name for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "deep_gemm" for one in node.names}


def used_names(function: ast.AST) -> set[str]:
    """`deep_gemm.NAME` in a function, but for lambdas: what is only measured is not started."""
    names: set[str] = set()
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "deep_gemm":
            names.add(node.attr)
        names |= used_names(node)
    return names


def run_cases(outcome: Outcome, module: ModuleType, function: ast.FunctionDef, most: int | None) -> None:
    called = {node.func.id for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    source = next((name for name in sorted(called) if name.startswith("enumerate_") and not name.endswith("_variants")), None)
    cases = vars(module).get(source or "")
    seen = 0
    while most is None or seen < most:
        drawn: list[int] = []

        def one(*arguments: Any, wanted: int = seen, drawn: list[int] = drawn, **named: Any) -> Iterator[Any]:
            for index, case in enumerate(cases(*arguments, **named)):  # type: ignore[misc]
                if index == wanted:
                    drawn.append(index)
                    yield case
                    return

        if source:
            vars(module)[source] = one
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                vars(module)[function.name]()
            failure = ""
        except AttributeError as error:
            if "zoo has no kernel for it" in str(error):  # a name that the test puts together
                outcome.lacks = f"zoo has no {error.name}"
                return
            failure = f"case {seen}: {error}"
        except Exception as error:
            failure = f"case {seen}: {type(error).__name__}: {error}"
        finally:
            if source:
                vars(module)[source] = cases
        if source and not drawn:  # there are no more, whatever a test makes of no case
            break
        seen += 1
        outcome.cases += 1
        outcome.passed += not failure
        outcome.failures += [failure] if failure else []
        if not source:
            break
    if not outcome.cases:
        outcome.lacks = " ".join(said.getvalue().split()) or "no case for this GPU"


def commit_of(checkout: Path) -> str:
    if not (checkout / ".git").exists():  # git would name the commit of a folder around it
        return "unknown"
    done = subprocess.run(["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def table(outcomes: list[Outcome], commit: str) -> str:
    lines = [f"DeepGEMM {commit} on zoo {zoo.__version__}", "", "| test | passed | not applicable, or failed |", "|---|---|---|"]
    for one in outcomes:
        passed = f"{one.passed} of {one.cases}" if one.cases else ""
        notes = one.lacks or "; ".join(one.failures[:3]) + (f" and {len(one.failures) - 3} more" if len(one.failures) > 3 else "")
        lines.append(f"| `{one.test}` | {passed} | {notes.replace('|', '/')} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
