"""Do the tests notice when the host code is wrong? Draws small changes by seed, runs the tests that should notice, lists what survives.

    python tools/mutate.py --count 200 --seed 1                    # 200 changes over everything that TESTS names
    python tools/mutate.py --only 'zoo/shipped/*' --seconds 1800   # as many as the quickest tests judge in half an hour, of some modules

Each change is one of: a comparison to its neighbour, a number by one, a truth turned round, `and` for `or`, an operator for another, two
arguments swapped, a returned value forgotten, a statement deleted. Left alone is what no caller can see: what a message or a `repr` says, and what
stands there for people and type checkers, which is annotations, docstrings, names of types, `__slots__`, `__all__`, `cast` and the `strict` of a `zip`.
A change is made in a copy of the tracked files, never in the checkout. It is judged by the quickest tests that should notice, and where these
do not, by those of the module's other users. A test that does not end in time has noticed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fnmatch
import importlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as tests/conftest.py has it

for _name in ("click", "hypothesis", "ml_dtypes", "numpy"):  # what tests import, before there are forks
    importlib.import_module(_name)
pytest = importlib.import_module("pytest")  # whose types mypy need not know

ROOT = Path(__file__).resolve().parents[1]

# module -> the fewest tests that should notice, then those of whoever uses it beside; the first pattern that fits counts
_CONTRACT = "tests/contract tests/hostile/test_limits_at_their_edges.py"
_ARRAYS = " ".join(
    (
        "tests/hostile/test_lying_arrays.py",
        *(f"tests/loader/test_{one}.py" for one in ("frameworks_on_the_cpu", "own_arrays", "launch_attributes")),
    )
)
_CALLS = " ".join(f"tests/loader/test_{one}.py" for one in ("dlpack_temporaries", "many_forms", "against_recorder", "driver_failures"))
_TABLES = " ".join(
    f"tests/builder/test_{one}.py"
    for one in ("table_expansion", "table_refusals", "include", "per_format", "scope_walk", "source_digests", "shared_builds")
)
_BUILDS = "tests/builder/test_build_runs.py tests/builder/test_build_failures.py"
TESTS = {
    "zoo/shipped/cubin_file.py": (
        "tests/integrity/test_cubin_file_edges.py tests/integrity/test_cubin_file.py tests/hostile/test_crafted_cubins.py",
    ),
    "zoo/shipped/integrity.py": (
        "tests/hostile/test_limits_at_their_edges.py tests/hostile/test_evidence_files.py tests/integrity/test_verify_integrity.py",
    ),
    "zoo/shipped/ptx.py": ("tests/hostile/test_ptx_archive.py",),
    "zoo/shipped/evidence.py": ("tests/cli/test_evidence.py tests/hostile/test_evidence_files.py", "tests/interruptions/test_records.py"),
    "zoo/shipped/places.py": ("tests/hostile/test_evidence_files.py",),
    "zoo/contract/files.py": ("tests/hostile/test_files.py tests/hostile/test_manifests.py",),
    "zoo/contract/*.py": (_CONTRACT, _TABLES, _ARRAYS, _CALLS, "tests/capi/test_parity.py"),
    "zoo/runtime/own_array.py": ("tests/loader/test_own_arrays.py", _ARRAYS, _CALLS),
    "zoo/runtime/*.py": (_ARRAYS, _CALLS),
    "zoo/catalog.py": ("tests/cli/test_catalogue.py tests/cli/test_selection.py tests/cli/test_digest.py", _ARRAYS, _CALLS),
    "zoo/capi/contract_header.py": ("tests/contract/test_schema.py tests/capi/test_shared_numbers.py",),
    "zoo/capi/folder.py": ("tests/interruptions/test_exports.py", "tests/capi/test_package.py"),
    "zoo/capi/*.py": (
        "tests/capi/test_exported_texts.py",
        "tests/capi/test_binding.py tests/capi/test_parity.py tests/capi/test_foreign_manifest.py tests/capi/test_package.py",
    ),
    "zoo/emulator/parser.py": (
        "tests/emulator/test_parsed_text.py",
        "tests/hostile/test_ptx_limits.py tests/emulator/test_core_instructions.py tests/emulator/test_core_machine.py",
    ),
    "zoo/emulator/barriers.py": (
        "tests/emulator/test_barrier_edges.py",
        "tests/emulator/test_core_findings.py tests/emulator/test_core_machine.py tests/emulator/test_core_order.py",
    ),
    "zoo/emulator/device.py": (
        "tests/emulator/test_device_edges.py",
        "tests/emulator/test_core_machine.py tests/emulator/test_launching.py",
    ),
    "zoo/reference/*.py": (
        " ".join(
            f"tests/reference/test_{one}.py"
            for one in ("refusals", "amax", "float32", "formats", "layouts", "scales", "swiglu", "dequantize")
        ),
        " ".join(f"tests/reference/test_{one}.py" for one in ("gemm", "groups", "mxfp8", "directions", "block_formats")),
    ),
    "zoo/cli/*_plot.py": ("tests/cli/test_drawn_plots.py tests/cli/test_drawn_text.py tests/cli/test_bench_plot.py",),
    "zoo/cli/bench.py": ("tests/cli/test_bench_arguments.py tests/cli/test_bench_plot.py tests/cli/test_demo_doctor_bench.py",),
    "zoo/cli/d[eo]*.py": ("tests/cli/test_demo_doctor_bench.py",),
    "zoo/cli/[rv]e*.py": ("tests/cli/test_evidence.py tests/cli/test_digest.py tests/cli/test_verify.py",),
    "zoo/cli/text.py": ("tests/cli/test_text.py tests/cli/test_documented_output.py tests/cli/test_width.py",),
    "zoo/cli/export.py": ("tests/cli/test_export.py tests/cli/test_digest.py",),
    "zoo/cli/*.py": (
        "tests/cli/test_documented_output.py tests/cli/test_catalogue.py tests/cli/test_selection.py tests/cli/test_show.py",
        "tests/cli/test_command.py tests/cli/test_digest.py tests/cli/test_width.py",
    ),
    "tools/builder/[bco]*.py": (_TABLES, _BUILDS),
    "tools/builder/*.py": (_TABLES, "tests/builder/test_shared_tables.py tests/builder/test_new_format.py", _BUILDS),
}

_COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip

_MOST_MEMORY = 16 << 30  # bytes of addresses of a test process

_EITHER_WAY = ("min", "max", "gcd", "lcm", "minimum", "maximum")  # functions to which the order of arguments is all one
_OF_TYPES = ("tuple", "list", "dict", "set", "type", "Callable", "Mapping", "Sequence", "Iterator")  # what is subscripted to name a type


Node: TypeAlias = ast.expr | ast.stmt  # both have a place in the text
Judges: TypeAlias = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Mutant:
    """`text` in place of what stands from `start` to `end` of a file, in bytes."""

    file: str
    line: int
    start: int
    end: int
    text: str
    was: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: `{_short(self.was)}` became `{_short(self.text)}`"

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) < 90 else f"{line[:87]}..."


def mutants(file: str, source: bytes) -> list[Mutant]:
    """Every change of this file that may be drawn."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(node: Node) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    found = []
    for node, changed in _changes(ast.parse(source)):
        start, end = place(node)
        was = source[start:end].decode()
        text = changed if isinstance(changed, str) else f"({ast.unparse(changed)})"
        found.append(Mutant(file, node.lineno, start, end, text, was))
    return found


def _changes(tree: ast.Module) -> Iterator[tuple[Node, ast.AST | str]]:
    """(a node, what may stand in its place)"""
    for node in _code(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield node, ast.Compare(node.left, [_COMPARISONS[type(node.ops[0])]()], node.comparators)
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield node, ast.Constant(not node.value)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield node, ast.Constant(node.value + 1)
            yield node, ast.BinOp(ast.Constant(node.value), ast.Sub(), ast.Constant(1))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, node.operand
        elif isinstance(node, ast.BoolOp):
            yield node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS and not _is_text(node):
            yield node, ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)
        elif isinstance(node, ast.Call) and len(node.args) >= 2 and not any(isinstance(one, ast.Starred) for one in node.args):
            if ast.dump(node.args[0]) != ast.dump(node.args[1]) and _called(node) not in _EITHER_WAY:
                yield node, ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
        elif isinstance(node, ast.Return) and node.value is not None and not _is_nothing(node.value):
            yield node, "return None"
        elif isinstance(node, (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Delete, ast.Continue, ast.Break)):
            yield node, "pass"


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that no caller can see."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns", "decorator_list") and not _for_readers(node, child):
                yield child
                yield from _code(child)


def _for_readers(parent: ast.AST, node: ast.AST) -> bool:
    """Is it there for people or a type checker alone?"""
    match node:
        case ast.JoinedStr() | ast.Expr(value=ast.Constant()) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.FunctionDef(name="__repr__") | ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
            return True
        case ast.Assign(value=ast.Subscript(value=ast.Name(id=called))):  # Pair = tuple[int, int]
            return called in _OF_TYPES
        case ast.Call(func=ast.Name(id="cast" | "TypeVar")):
            return True
        case ast.keyword(arg="strict"):
            return isinstance(parent, ast.Call) and _called(parent) == "zip"
    return False


def _called(node: ast.Call) -> str:
    """The name of the function, whatever it is looked up in."""
    return node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, (str, bytes))) for side in sides
    )


def _is_nothing(node: ast.expr) -> bool:
    """What a caller that asks for its truth cannot tell from None."""
    return isinstance(node, ast.Constant) and not node.value


def draw(root: Path, tests: Judges, seed: int, only: str = "*") -> Iterator[Mutant]:
    """Changes in an order that the seed says; a module is as likely as it has lines that can be changed."""
    files = sorted({path.relative_to(root).as_posix() for pattern in tests for path in root.glob(pattern)})
    every = [mutant for file in files if fnmatch.fnmatchcase(file, only) for mutant in mutants(file, (root / file).read_bytes())]
    random.Random(seed).shuffle(every)
    yield from every


def judges_of(file: str, tests: Judges) -> tuple[str, ...]:
    return next(named for pattern, named in tests.items() if fnmatch.fnmatchcase(file, pattern))


class Copy:
    """The tracked files of a checkout, in a folder where they may be broken."""

    def __init__(self, root: Path, folder: Path):
        self.root, self.folder = root, folder
        listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=root, capture_output=True, check=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / name, folder / name)
        self._usual: dict[str, float] = {}
        self._moment = int(time.time())

    def passes(self, tests: str) -> bool:
        began = time.monotonic()
        passed = self._run(tests, 1800)
        self._usual[tests] = time.monotonic() - began
        return passed

    def notice(self, mutant: Mutant, tests: str) -> bool:
        path = self.folder / mutant.file
        whole = path.read_bytes()
        self._write(path, mutant.apply(whole))
        try:
            return not self._run(tests, 3 * self._usual[tests] + 30)
        finally:
            self._write(path, whole)

    def _write(self, path: Path, text: bytes) -> None:
        """At a second of its own, by which Python tells whether compiled code is of this text."""
        self._moment += 1
        path.write_bytes(text)
        os.utime(path, (self._moment, self._moment))

    def _run(self, tests: str, seconds: float) -> bool:
        """In a fork, which has imported what tests need and no change is made in; it leads a process group of its own, so that what tests
        start and leave behind ends with them."""
        process, until = os.fork(), time.monotonic() + seconds
        if process == 0:
            _judge(self.folder, tests)
        ended, status = 0, 1
        try:
            while not ended and time.monotonic() < until:
                time.sleep(0.02)
                ended, status = os.waitpid(process, os.WNOHANG)
        finally:  # Ctrl-C, too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            if not ended:
                os.kill(process, signal.SIGKILL)  # it may not have made its group yet
                os.waitpid(process, 0)
        return bool(ended) and status == 0


def _judge(folder: Path, tests: str) -> NoReturn:
    """A limit of zoo's that a change took away must not take the memory of the machine."""
    status = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        for descriptor in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder)
        for name in [name for name in sys.modules if name.partition(".")[0] in ("zoo", "tools", "tests")]:
            del sys.modules[name]
        sys.path[:] = [str(folder), *(path for path in sys.path if ROOT not in (Path(path).resolve(), Path(path).resolve().parent))]
        status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests.split()]))
    finally:
        os._exit(status)


def survivors(copy: Copy, tests: Judges, drawn: Iterator[Mutant], count: int, seconds: float) -> tuple[list[Mutant], int]:
    """What no test noticed, of how many tried. All are judged by the quickest tests first; `seconds` is for these alone."""
    until, sound = time.monotonic() + seconds, dict[str, bool]()  # of judges: do they let pass what is unchanged?

    def noticed(mutant: Mutant, named: str) -> bool:
        if named not in sound:
            sound[named] = copy.passes(named)
            if not sound[named]:
                print(f"judges of nothing, for they fail as they are: {named}", file=sys.stderr)
        return sound[named] and copy.notice(mutant, named)

    tried, left = 0, []
    for mutant in drawn:
        if tried == count or time.monotonic() > until:
            break
        first = judges_of(mutant.file, tests)[0]
        seen = noticed(mutant, first)
        if sound[first]:
            tried += 1
            if not seen:  # told at once: an hour's run may be ended from outside
                left.append(mutant)
                print(f"change {tried} is for slower tests: {mutant}", file=sys.stderr, flush=True)
    print(f"{tried - len(left)} of {tried} were noticed by the quickest tests", flush=True)
    alive = []
    for mutant in left:
        others = judges_of(mutant.file, tests)[1:]
        if any(noticed(mutant, named) for named in others):
            continue
        if not all(sound[named] for named in others):
            tried -= 1  # nobody knows
            continue
        alive.append(mutant)
        print(mutant, flush=True)
    return alive, tried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="draw no more after so many (default: never); survivors meet other tests then"
    )
    parser.add_argument("--only", default="*", metavar="PATTERN", help="of the files that match, such as 'zoo/shipped/*'")
    parser.add_argument("--at-least", type=float, default=95.0, metavar="PERCENT", help="exit with 1 where fewer are noticed (default: 95)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(ROOT, Path(folder))
        alive, tried = survivors(copy, TESTS, draw(ROOT, TESTS, asked.seed, asked.only), asked.count, asked.seconds)
    share = 100 * (tried - len(alive)) / tried if tried else 0.0
    print(f"{tried - len(alive)} of {tried} changes were noticed ({share:.1f} %), seed {asked.seed}")
    for file, number in Counter(mutant.file for mutant in alive).most_common():
        print(f"  {number:3} survive in {file}")
    sys.exit(0 if tried and share >= asked.at_least else 1)


if __name__ == "__main__":
    main()
