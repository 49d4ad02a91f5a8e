"""Do the tests notice when the host code is wrong? Draws small changes by seed, runs the tests that should notice, lists what survives.

    python tools/mutate.py --count 200 --seed 1                    # 200 changes over everything that TESTS names
    python tools/mutate.py --only 'zoo/shipped/*' --seconds 1800   # as many as can be judged in half an hour, of some modules
    python tools/mutate.py --jobs 32 --verdicts FILE               # on many cores; again with the same FILE, only what was not noticed is judged

Each change is one of: a comparison to its neighbour, a number by one, a truth turned round, `and` for `or`, an operator for another, two
arguments swapped, a returned value forgotten, a statement deleted. Left alone is what no caller can see: what a message or a `repr` says, and what
stands there for people and type checkers, which is annotations, docstrings, names and variables of types, `__slots__`, `__all__`, `cast` and the `strict` of a `zip`.
A change is made in a copy of the tracked files, never in the checkout. It is judged by the quickest tests that should notice, and where these
do not, by those of the module's other users. Tests judge only if they pass as they are and at least one of them runs: those of torch and JAX judge where
these are installed. A test that does not end in three times its usual time and half a minute has noticed; it is judged again where verdicts are kept.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fnmatch
import gc
import importlib
import json
import multiprocessing
import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as tests/conftest.py has it

for _name in ("click", "hypothesis", "ml_dtypes", "numpy"):  # what tests import, before there are forks
    importlib.import_module(_name)
pytest = importlib.import_module("pytest")  # whose types mypy need not know
hypothesis = importlib.import_module("hypothesis")

ROOT = Path(__file__).resolve().parents[1]

# module -> the fewest tests that should notice, then those of whoever uses it beside; the first pattern that fits counts
_CONTRACT = "tests/contract tests/hostile/test_limits_at_their_edges.py"
_ARRAYS = " ".join(
    (
        "tests/hostile/test_lying_arrays.py",
        *(f"tests/loader/test_{one}.py" for one in ("frameworks_on_the_cpu", "own_arrays", "launch_attributes")),
    )
)
_RETURNING = "tests/loader/test_calls.py tests/contract/test_shapes.py tests/hostile/test_lying_calls.py"
_CALLS = " ".join(f"tests/loader/test_{one}.py" for one in ("dlpack_temporaries", "many_forms", "against_recorder", "driver_failures"))
_TABLES = " ".join(
    f"tests/builder/test_{one}.py"
    for one in ("table_expansion", "table_refusals", "include", "per_format", "scope_walk", "source_digests", "shared_builds")
)
_WHAT_RULES_WRITE = "tests/reference/test_kernels.py"
_SHARED_REST = "tests/reference/test_shared_rest.py"
_WHAT_IS_CHECKED = "tests/checks/test_what_is_checked.py"
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
    "zoo/shipped/verified.py": ("tests/loader/test_loading.py", _CALLS),
    "zoo/contract/files.py": ("tests/hostile/test_files.py tests/hostile/test_manifests.py",),
    "zoo/contract/entries.py": ("tests/contract/test_entries.py",),
    "zoo/contract/manifest.py": ("tests/hostile/test_manifests.py", _CONTRACT, _TABLES, _ARRAYS),
    "zoo/contract/own_array.py": ("tests/loader/test_own_arrays.py", _ARRAYS, _CALLS),
    "zoo/contract/*.py": (_CONTRACT, _TABLES, _ARRAYS, _CALLS, "tests/capi/test_parity.py"),
    "zoo/calls.py": (_RETURNING, _ARRAYS, "tests/torch/test_operators.py", "tests/jax/test_calls.py"),
    "zoo/runtime/allocation.py": (_RETURNING, _ARRAYS, _CALLS, "tests/torch/test_operators.py"),
    "zoo/torch/*.py": (
        "tests/torch/test_operators.py tests/torch/test_quantized.py",
        " ".join(f"tests/torch/test_{one}.py" for one in ("hostile_checkpoints", "lying_matrices", "four_bits")),
        "tests/checkpoints",
    ),
    "zoo/jax/interruptions.py": ("tests/jax/test_interruptions.py",),
    "zoo/jax/*.py": ("tests/jax/test_call_frame.py tests/jax/test_calls.py tests/jax/test_linear.py", "tests/jax/test_several_devices.py"),
    "zoo/runtime/tensor_map_encoder.py": ("tests/loader/test_tensor_map_encoder.py", _ARRAYS, _CALLS),
    "zoo/runtime/streams.py": ("tests/loader/test_streams.py", _ARRAYS, _CALLS),
    "zoo/runtime/library.py": ("tests/loader/test_loading.py", _ARRAYS, _CALLS),
    "zoo/runtime/plan.py": ("tests/loader/test_loading.py", _ARRAYS, _CALLS),
    "zoo/runtime/dlpack.py": ("tests/loader/test_dlpack_capsules.py", _ARRAYS, _CALLS),
    "zoo/runtime/arrays.py": ("tests/loader/test_described_arrays.py", _ARRAYS, _CALLS),
    "zoo/runtime/*.py": (_ARRAYS, _CALLS),
    "zoo/catalog.py": (
        "tests/cli/test_catalogue.py tests/cli/test_selection.py tests/cli/test_digest.py tests/loader/test_loading.py",
        _ARRAYS,
        _CALLS,
    ),
    "zoo/capi/contract_header.py": ("tests/contract/test_schema.py tests/capi/test_shared_numbers.py",),
    "zoo/capi/folder.py": (
        "tests/interruptions/test_exports.py tests/capi/test_exported_texts.py",
        "tests/capi/test_package.py",
    ),
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
    "zoo/emulator/frames.py": ("tests/emulator/test_calls.py", "tests/emulator/test_calls_in_cuda.py"),
    "zoo/emulator/device.py": (
        "tests/emulator/test_device_edges.py",
        "tests/emulator/test_core_machine.py tests/emulator/test_launching.py",
    ),
    "zoo/reference/kernels/shared_rest.py": (_SHARED_REST, f"{_WHAT_RULES_WRITE} -k gemm.fp8b128"),
    "zoo/reference/kernels/*.py": ("tests/reference/test_kernels.py tests/hostile/test_rules_of_hostile_numbers.py",),
    "zoo/reference/f*_*.py": (
        "tests/reference/test_four_bit_weights.py tests/reference/test_four_bit_gemm.py tests/reference/test_fragments.py",
        "tests/reference/test_kernels.py",
    ),
    "zoo/reference/fragment_scales.py": ("tests/reference/test_fragments.py", "tests/reference/test_kernels.py"),
    "zoo/reference/fragment_words.py": ("tests/reference/test_fragments.py", "tests/reference/test_kernels.py"),
    "zoo/reference/fragments.py": ("tests/reference/test_fragments.py", "tests/reference/test_kernels.py"),
    "zoo/reference/*_scaled_*.py": (
        "tests/reference/test_block_scaled_gemm.py tests/reference/test_block_scaled_epilogues.py",
        "tests/checks/test_block_scaled_checks.py",
    ),
    "zoo/reference/gemm*.py": (
        "tests/reference/test_gemm_edges.py tests/reference/test_gemm_powers_of_two.py",
        "tests/reference/test_gemm.py tests/checks/test_gemm_checks.py",
    ),
    "zoo/reference/requantize.py": (
        "tests/reference/test_requantize.py",
        f"{_WHAT_RULES_WRITE} -k requantize",
    ),
    "zoo/reference/pack.py": ("tests/reference/test_pack.py", "tests/reference/test_torchao_block_formats.py"),
    "zoo/reference/swiglu_backward.py": ("tests/reference/test_swiglu_backward.py",),
    "zoo/reference/*.py": (
        " ".join(
            f"tests/reference/test_{one}.py"
            for one in ("refusals", "amax", "float32", "formats", "layouts", "scales", "swiglu", "dequantize")
        ),
        " ".join(f"tests/reference/test_{one}.py" for one in ("gemm", "groups", "mxfp8", "directions", "block_formats")),
    ),
    "zoo/checks/pr*.py": (
        "tests/checks/test_processes.py tests/checks/test_block_format_checks.py tests/checks/test_checks_catch_mistakes.py",
        "tests/checks/test_emulated_checks.py",
    ),
    "zoo/checks/gemm_swiglu.py": (f"{_WHAT_IS_CHECKED} -k 'gemm.fp8b128 and swiglu'", "tests/checks/test_gemm_swiglu_checks.py"),
    "zoo/checks/gemm_four_bit_gated.py": (
        f"{_WHAT_IS_CHECKED} -k 'swiglu and (bf16_mxfp4 or fp8_nvfp4)'",
        "tests/checks/test_gemm_checks.py tests/checks/test_four_bit_gated_pairs.py",
    ),
    "zoo/checks/pairs.py": ("tests/checks/test_four_bit_gated_pairs.py", f"{_WHAT_IS_CHECKED} -k 'swiglu and bf16_mxfp4'"),
    "zoo/checks/gemm_four_bit.py": (
        f"{_WHAT_IS_CHECKED} -k 'gemm.bf16 or gemm.fp8_'",
        "tests/checks/test_gemm_checks.py",
        f"{_WHAT_RULES_WRITE} -k fp4",
    ),
    "zoo/checks/gemm*.py": (f"{_WHAT_IS_CHECKED} -k gemm.fp8b128", "tests/checks/test_gemm_checks.py"),
    "zoo/checks/block_inputs.py": (f"{_WHAT_IS_CHECKED} -k quantize",),
    "zoo/checks/block_s*.py": (
        f"{_WHAT_IS_CHECKED} -k 'gemm.mx or gemm.nv or gemm.block'",
        "tests/checks/test_block_scaled_checks.py",
        f"{_WHAT_RULES_WRITE} -k gemm",
    ),
    **{
        f"zoo/checks/quantize_{module}.py": (
            f"{_WHAT_IS_CHECKED} -k 'quantize and ({kernels})'",
            " ".join(f"tests/checks/test_quantize_{one}.py" for one in ("directions", "experts", "groups", "squares")),
            "tests/checks/test_swiglu_checks.py tests/checks/test_checks_catch_mistakes.py",
        )
        for module, kernels in {
            "column_groups": "cols.m_grouped",
            "directions": "both or cols",
            "experts": "cols.experts",
            "groups": "rows.m_grouped",
            "rows": "rows and not grouped",
            "squares": "squares",
            "swiglu": "rows.swiglu",
            "tokens": "fp8token",
        }.items()
    },
    "zoo/checks/quantize_swiglu_backward.py": (f"{_WHAT_IS_CHECKED} -k swiglu_backward", "tests/checks/test_swiglu_backward_checks.py"),
    "zoo/checks/quantize_grouped_both.py": (f"{_WHAT_IS_CHECKED} -k both.m_grouped", "tests/checks/test_grouped_both_checks.py"),
    "zoo/cli/*_plot.py": ("tests/cli/test_drawn_plots.py tests/cli/test_drawn_text.py tests/cli/test_bench_plot.py",),
    "zoo/cli/bench.py": ("tests/cli/test_bench_arguments.py tests/cli/test_bench_plot.py tests/cli/test_doctor_bench.py",),
    "zoo/cli/d[eo]*.py": ("tests/cli/test_demo.py tests/cli/test_doctor_bench.py",),
    "zoo/cli/[rv]e*.py": ("tests/cli/test_evidence.py tests/cli/test_digest.py tests/cli/test_verify.py",),
    "zoo/cli/text.py": ("tests/cli/test_text.py tests/cli/test_documented_output.py tests/cli/test_width.py",),
    "zoo/cli/first_run.py": ("tests/cli/test_first_run_steps.py", "tests/cli/test_first_run.py"),
    "zoo/cli/one_checker.py": ("tests/cli/test_one_checker.py",),
    "zoo/checks/remembered.py": ("tests/checks/test_remembered.py",),
    "zoo/cli/system.py": ("tests/interruptions/test_records.py",),
    "zoo/cli/export.py": ("tests/cli/test_export.py tests/cli/test_digest.py",),
    "zoo/cli/contract.py": ("tests/cli/test_show.py",),
    "zoo/cli/*.py": (
        "tests/cli/test_documented_output.py tests/cli/test_catalogue.py tests/cli/test_selection.py tests/cli/test_show.py",
        "tests/cli/test_command.py tests/cli/test_digest.py tests/cli/test_width.py",
    ),
    "tools/builder/sass.py": ("tests/builder/test_counted_code.py", "tests/builder/test_machine_code.py", _BUILDS),
    "tools/builder/build.py": ("tests/builder/test_build_steps.py", _BUILDS, _TABLES),
    "tools/builder/compiler.py": ("tests/builder/test_build_steps.py", _BUILDS, _TABLES),
    "tools/builder/costs.py": ("tests/builder/test_costs.py tests/contract/test_measured_costs.py", _TABLES),
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
_SAID = ".said_by_judges"  # in a copy: what its last tests wrote

_EITHER_WAY = (
    "min",
    "max",
    "gcd",
    "lcm",
    "minimum",
    "maximum",
    "fused_multiply_add",
)  # functions to which the order of arguments is all one
_OF_TYPES = ("tuple", "list", "dict", "set", "type", "Callable", "Mapping", "Sequence", "Iterator")  # what is subscripted to name a type


Node: TypeAlias = ast.expr | ast.stmt  # both have a place in the text
Judges: TypeAlias = dict[str, tuple[str, ...]]
Verdict: TypeAlias = Literal["passed", "failed", "late"]


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
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
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


def _names(root: Path) -> Iterator[str]:
    """The files that git would track; where there is no git, all that are not hidden."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=root, capture_output=True, check=True).stdout
        yield from filter(None, listed.decode().split("\0"))
    else:
        names = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
        yield from (name.as_posix() for name in names if not any(part[0] == "." or part == "__pycache__" for part in name.parts))


class Copy:
    """The tracked files of a checkout, in a folder where they may be broken."""

    def __init__(self, root: Path, folder: Path):
        self.root, self.folder = root, folder
        for name in _names(root):
            if (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / name, folder / name)
        self._moment = int(time.time())

    def usual(self, tests: str) -> float | None:
        """The seconds that these tests take; None where they do not pass as they are, twice: a busy machine may fail one once."""
        for _ in range(2):
            began = time.monotonic()
            if self._run(tests, 1800) == "passed":
                return time.monotonic() - began
            for line in (self.folder / _SAID).read_text(errors="replace").splitlines():
                if line.startswith(("FAILED", "ERROR")):
                    print(line, file=sys.stderr, flush=True)
        return None

    def judge(self, mutant: Mutant, tests: str, seconds: float) -> Verdict:
        """What came of the tests in so many seconds."""
        path = self.folder / mutant.file
        whole = path.read_bytes()
        self._write(path, mutant.apply(whole))
        try:
            return self._run(tests, seconds)
        finally:
            self._write(path, whole)

    def _write(self, path: Path, text: bytes) -> None:
        """At a second of its own, by which Python tells whether compiled code is of this text."""
        self._moment += 1
        path.write_bytes(text)
        os.utime(path, (self._moment, self._moment))

    def _run(self, tests: str, seconds: float) -> Verdict:
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
        return "late" if not ended else "passed" if status == 0 else "failed"


class _Passes:
    """Counts the tests that passed: where all are skipped, nothing was looked at."""

    count = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.count += report.when == "call" and report.passed


def _judge(folder: Path, tests: str) -> NoReturn:
    """A limit of zoo's that a change took away must not take the memory of the machine."""
    status = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        said = os.open(folder / _SAID, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for descriptor in (1, 2):
            os.dup2(said, descriptor)
        os.chdir(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join((str(folder), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))))
        for name in [name for name in sys.modules if name.partition(".")[0] in ("zoo", "tools", "tests")]:
            del sys.modules[name]
        sys.path[:] = [str(folder), *(path for path in sys.path if ROOT not in (Path(path).resolve(), Path(path).resolve().parent))]
        hypothesis.settings.register_profile("judge", deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck))
        hypothesis.settings.load_profile("judge")  # neither chance nor a busy machine is to be a verdict
        passes = _Passes()
        status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *shlex.split(tests)], plugins=[passes])) or int(not passes.count)
    finally:
        os._exit(status)


# A worker is a process with a copy of its own.
_copy: Copy


def _begin(root: Path, folder: Path) -> None:
    global _copy
    gc.freeze()  # what the parent holds is not this process's to look through, which pytest does again and again at its end
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who gives out the work
    _copy = Copy(root, Path(tempfile.mkdtemp(dir=folder)))


def _usual(tests: str) -> float | None:
    return _copy.usual(tests)


def _verdict(mutant: Mutant, tests: str, seconds: float) -> Verdict:
    return _copy.judge(mutant, tests, seconds)


class Judging:
    """Who judges what, on `jobs` workers. `verdicts` is a file of what was seen before, and of what is seen now."""

    def __init__(self, root: Path, folder: Path, tests: Judges, jobs: int = 1, verdicts: Path | None = None):
        self.tests, self.jobs, self.verdicts = tests, jobs, verdicts
        fork = multiprocessing.get_context("fork")  # what is imported already is there in each
        self.workers = ProcessPoolExecutor(jobs, mp_context=fork, initializer=_begin, initargs=(root, folder))
        self.usual: dict[str, float | None] = {}  # of judges: the seconds that they take, None if they judge nothing
        self.noticed_before = self._noticed_before()

    def _noticed_before(self) -> set[str]:
        """Late ones are not among them: that may have been the machine."""
        lines = self.verdicts.read_text().splitlines() if self.verdicts is not None and self.verdicts.exists() else []
        return {key for key, verdict, _ in map(json.loads, lines) if verdict == "failed"}

    def _keep(self, mutant: Mutant, verdict: Verdict, named: str) -> None:
        if self.verdicts is not None:
            with self.verdicts.open("a") as file:
                file.write(json.dumps([_key(mutant), verdict, named]) + "\n")

    def round(self, mutants: list[Mutant], place: int, until: float = float("inf")) -> tuple[list[Mutant], list[Mutant]]:
        """Those that their judges at this place let pass, and those that nobody could judge before `until`."""
        waiting = [mutant for mutant in mutants if _key(mutant) not in self.noticed_before]
        running: dict[Future[Any], Mutant | str] = {}
        left, unjudged = [], []
        while waiting or running:
            while waiting and len(running) < self.jobs and (task := self._next(waiting, place, running)) is not None:
                if time.monotonic() > until:
                    break
                future, what = task
                running[future] = what
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                what = running.pop(future)
                if isinstance(what, str):
                    self.usual[what] = future.result()
                    if future.result() is None:
                        print(
                            f"judges of nothing, for they fail as they are, or all of them are skipped: {what}", file=sys.stderr, flush=True
                        )
                        hopeless = [one for one in waiting if self._judges(one, place) == what]
                        unjudged += hopeless
                        waiting = [one for one in waiting if one not in hopeless]
                else:
                    self._keep(what, future.result(), self._judges(what, place))
                    if future.result() == "passed":
                        left.append(what)
                        if place == 0:  # told at once: an hour's run may be ended from outside
                            print(f"for slower tests: {what}", file=sys.stderr, flush=True)
        return left, unjudged + waiting

    def _next(self, waiting: list[Mutant], place: int, running: dict[Future[Any], Mutant | str]) -> tuple[Future[Any], Mutant | str] | None:
        """The first that can be begun: a change whose judges are known to be fit, or the question whether they are."""
        for mutant in waiting:
            named = self._judges(mutant, place)
            if named not in self.usual:
                if named in running.values():
                    continue
                return self.workers.submit(_usual, named), named
            usual = self.usual[named]
            waiting.remove(mutant)
            assert usual is not None  # else it would not wait
            return self.workers.submit(_verdict, mutant, named, 3 * usual + 30), mutant
        return None

    def _judges(self, mutant: Mutant, place: int) -> str:
        return judges_of(mutant.file, self.tests)[place]


def _key(mutant: Mutant) -> str:
    return f"{mutant.file} {mutant.start} {mutant.end} {mutant.text}"


def survivors(judging: Judging, drawn: Iterator[Mutant], count: int, seconds: float) -> tuple[list[Mutant], int]:
    """What no test noticed, of how many tried. All are judged by the quickest tests first; `seconds` is for these alone."""
    every = list(islice(drawn, count))
    order = {mutant: place for place, mutant in enumerate(every)}
    left, unjudged = judging.round(every, 0, time.monotonic() + seconds)
    tried = len(every) - len(unjudged)
    print(f"{tried - len(left)} of {tried} were noticed by the quickest tests", flush=True)
    place = 1
    alive: list[Mutant] = []
    unknown: set[Mutant] = set()
    while left:
        further = [mutant for mutant in left if len(judges_of(mutant.file, judging.tests)) > place]
        alive += [mutant for mutant in left if mutant not in further]
        left, unfit = judging.round(further, place)
        unknown |= {*unfit}  # noticed by none so far, and not by all asked
        left += unfit
        place += 1
    nobody_knows = [mutant for mutant in alive if mutant in unknown]
    alive = sorted((mutant for mutant in alive if mutant not in unknown), key=order.__getitem__)
    for mutant in alive:
        print(mutant, flush=True)
    return alive, tried - len(nobody_knows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="begin no more after so many (default: never); survivors meet other tests then"
    )
    parser.add_argument("--only", default="*", metavar="PATTERN", help="of the files that match, such as 'zoo/shipped/*'")
    parser.add_argument("--at-least", type=float, default=95.0, metavar="PERCENT", help="exit with 1 where fewer are noticed (default: 95)")
    parser.add_argument("--jobs", type=int, default=1, help="changes that are judged at a time, each in a copy of its own (default: 1)")
    parser.add_argument("--verdicts", type=Path, metavar="FILE", help="kept there; what a run before noticed is not judged again")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        judging = Judging(ROOT, Path(folder), TESTS, asked.jobs, asked.verdicts)
        alive, tried = survivors(judging, draw(ROOT, TESTS, asked.seed, asked.only), asked.count, asked.seconds)
        judging.workers.shutdown()
    share = 100 * (tried - len(alive)) / tried if tried else 0.0
    print(f"{tried - len(alive)} of {tried} changes were noticed ({share:.1f} %), seed {asked.seed}")
    for file, number in Counter(mutant.file for mutant in alive).most_common():
        print(f"  {number:3} survive in {file}")
    sys.exit(0 if tried and share >= asked.at_least else 1)


if __name__ == "__main__":
    main()
