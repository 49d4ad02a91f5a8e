"""C and Python read one contract: the same launch to the byte, the same refusal to the word."""

from __future__ import annotations

import contextlib
import math
import random
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.capi.package import ROOT, export_and_compile, make_directory, sanitizer_settings, sanitizers
from tests.capi.problems import DEVICES, RECORDER_DEVICES, SPOILERS, Maker, Problem, Tensor
from tests.contract.entries import entry
from tests.mistaken_layouts import MISTAKES, Mistake
from tests.recorder import Log, Run, environment
from zoo.contract.array import contiguous_strides
from zoo.contract.dtypes import DTYPES
from zoo.contract.manifest import Form, Kernel, Manifest
from zoo.contract.resolve import Launch
from zoo.errors import ArgumentError, ConstraintError, ExpressionError

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
# Calls of each kernel at least, and of each variant. Variants of a kernel are chosen and started by the same rules, and there are a thousand.
VALID, VALID_OF_A_VARIANT = 16, 3
VALID_OF_FEW = 48  # of each kernel of a zoo of a few
SPOILED, SPOILED_OF_FEW = 5, 40  # of each way to spoil a call and each kernel, of a zoo of many kernels and of a few
ASKED = 6  # calls for which the bytes of each output are asked, in four ways


def _contract_directory(directory: Path) -> Path:
    made = entry()
    # clusters of two divide a grid only if it is even
    made["launches"]["default"]["grid"][0] = "round_up(min(sms, TILES), CLUSTER)"
    made["promises"]["c_may_be_d"] = True
    # when it fails with blocked scales, one of the names in it has no value
    made["constraints"].append({"expression": "scale_stride % 2 == 0 if layout.plain else K >= 64", "words": "scales come in pairs"})
    for variant in made["variants"]:
        if variant["arch"] == "sm_90a" and variant["dtypes"]["a"] == "e4m3":
            variant["dtypes"]["c"] = "f32"  # one arch has fewer dtypes of it
        if variant["arch"] == "sm_100f" and variant["dtypes"]["d"] == "f32":
            del variant["dtypes"]["a"]  # a cubin for any
        variant["symbol"] += f"_{variant['arch']}"
    return make_directory(directory, {"gemm.mxfp8_mxfp4.dense": made})


_ZOOS = {"shipped": ROOT / "cubins", "tests": ROOT / "tests" / "zoo_cubins", "contract": None}


@pytest.fixture(scope="module", params=_ZOOS)
def zoo(request, tmp_path_factory):
    """A cubin directory's manifest and the caller built with it, with sanitizers where the compiler has them."""
    work = tmp_path_factory.mktemp(request.param)
    cubins = _ZOOS[request.param] or _contract_directory(work / "cubins")
    return Manifest(cubins / "manifest.json"), export_and_compile(cubins, work, flags=sanitizers())


def call(caller: Path, recorder: Path, problems: list[Problem], directory: Path) -> tuple[list[str], Log]:
    """What came of each problem, and what reached the driver."""
    text, log = directory / "problems", directory / "log"
    log.unlink(missing_ok=True)
    text.write_text("".join(problem.words() for problem in problems))
    settings = {**environment(recorder, log, RECORDER_DEVICES), **sanitizer_settings()}
    with text.open() as lines:
        process = subprocess.run([caller], stdin=lines, env=settings, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    answers = process.stdout.splitlines()
    assert len(answers) == len(problems)
    return answers, Run(log, process)


def compare(problems: list[Problem], answers: list[str], log: Log) -> Counter:
    """Holds C's answers against Python's; returns how often each outcome was seen."""
    launches, seen = iter(log.launches), Counter()
    for problem, answer in zip(problems, answers, strict=True):
        expected = problem.resolve()
        where = f"{problem.spoiled}\n{problem.words()}"
        if isinstance(expected, Launch):
            assert answer == f"ok {expected.variant.name} {int(expected.empty)}", where
            seen["empty" if expected.empty else "launched"] += 1
            if not expected.empty:
                _compare_launch(next(launches), expected, problem, where)
        else:
            assert answer == f"refused {type(expected).__name__} {expected}", where
            seen[type(expected).__name__] += 1
    assert next(launches, None) is None, "something was enqueued that Python refuses"
    assert log.faults == []
    return seen


def _compare_launch(found, expected: Launch, problem: Problem, where: str):
    rule = expected.variant.launch
    assert found.kernel == expected.variant.symbol, where
    assert found.device == problem.device, where
    assert (found.grid, found.threads, found.cluster, found.shared) == (
        expected.grid,
        expected.threads,
        expected.cluster,
        expected.shared,
    ), where
    assert found.programmatic == rule.programmatic, where
    assert found.block(rule) == expected.logical_block(), where


def _kernels(manifest: Manifest) -> list[Kernel]:
    return [manifest.kernel(name) for name in manifest.names]


def _are_few(manifest: Manifest) -> bool:
    return len(manifest.names) <= 20


def test_every_variant_is_launched_with_the_same_bytes(zoo, recorder, tmp_path):
    manifest, caller = zoo
    problems = []
    for kernel in _kernels(manifest):
        maker = Maker(kernel, seed=1)
        calls = max(VALID_OF_A_VARIANT, (VALID_OF_FEW if _are_few(manifest) else VALID) // len(kernel.variants))
        for variant in kernel.variants:
            problems += maker.launching(variant, calls)
    answers, log = call(caller, recorder, problems, tmp_path)
    seen = compare(problems, answers, log)
    assert seen["launched"] > len(problems) // 2 and set(seen) <= {"launched", "empty"}
    started = {launch.kernel for launch in log.launches}
    assert started == {variant.symbol for kernel in _kernels(manifest) for variant in kernel.variants}


def test_a_limit_of_multiprocessors_starts_the_same_grids_and_is_refused_with_the_same_words(zoo, recorder, tmp_path):
    manifest, caller = zoo
    problems, limits = [], random.Random(6)
    for kernel in _kernels(manifest):
        maker = Maker(kernel, seed=5)
        for _ in range(VALID_OF_FEW if _are_few(manifest) else SPOILED):
            problem = maker.valid(limits.choice(kernel.variants))
            problems.append(replace(problem, limit=limits.choice((-1, 0, 3, 4, 5, 6, 33, 77, 78, 131, 132, 148, 149, 10**6))))
    answers, log = call(caller, recorder, problems, tmp_path)
    seen = compare(problems, answers, log)
    assert seen["launched"] > len(problems) // 4 and seen["ArgumentError"] > len(problems) // 10


def test_what_python_refuses_c_refuses_with_the_same_words(zoo, recorder, tmp_path):
    manifest, caller = zoo
    problems, pick = [], random.Random(2)
    for kernel in _kernels(manifest):
        maker = Maker(kernel, seed=3)
        good = [maker.valid(pick.choice(kernel.variants)) for _ in range(SPOILED_OF_FEW if _are_few(manifest) else SPOILED)]
        for how, spoil in SPOILERS.items():
            for problem in good:
                spoiled = spoil(pick, problem)
                if spoiled is not None:
                    problems.append(replace(spoiled, spoiled=how))
    answers, log = call(caller, recorder, problems, tmp_path)
    seen = compare(problems, answers, log)
    assert {"ArgumentError", "ConstraintError", "VariantError", "ArchitectureError"} <= set(seen)
    refused = Counter(problem.spoiled for problem, answer in zip(problems, answers, strict=True) if answer.startswith("refused"))
    applied = {problem.spoiled for problem in problems}
    assert all(refused[how] >= 10 for how in applied), refused


def test_an_operand_of_another_layout_is_refused_with_the_name_of_its_maker(zoo, recorder, tmp_path):
    manifest, caller = zoo
    mistakes = [one for one in MISTAKES if one.kernel in manifest.names]
    if not mistakes:
        pytest.skip("a zoo without these kernels")
    problems = [_of_shapes(manifest.kernel(one.kernel), one, spoilt) for one in mistakes for spoilt in (False, True)]
    answers, log = call(caller, recorder, problems, tmp_path)
    assert compare(problems, answers, log)["launched"] == len(mistakes)
    for mistake, answer in zip(mistakes, answers[1::2], strict=True):
        assert answer.startswith("refused") and mistake.maker in answer, (mistake.hazard, answer)


def _of_shapes(kernel: Kernel, mistake: Mistake, spoilt: bool) -> Problem:
    device = 0 if kernel.archs[0].startswith("sm_90") else 1
    arguments = {
        name: Tensor((1 + place) << 40, DTYPES[dtype].dlpack, tuple(shape), None, (2, device))
        for place, (name, (dtype, *shape)) in enumerate((mistake.inputs(spoilt) | mistake.outputs).items())
    }
    return Problem(kernel, device, arguments | {name: value for name, value in mistake.settings.items() if name in kernel.options})


def _flags(problem: Problem, name: str) -> dict[str, int]:
    """What expressions read of options and of which arrays there are, if this one is; arrays of several forms have one dtype."""
    kernel, values = problem.kernel, {}
    for option, each in kernel.options.items():
        chosen = problem.arguments.get(option) or each.default
        values |= {f"{option}.{value}": int(value == chosen) for value in each.values}
    for other, argument in kernel.arguments.items():
        values[f"{other}.present"] = int(not argument.optional or other == name or problem.arguments.get(other) is not None)
        values |= {f"{other}.{dtype}": 1 for dtype in argument.dtypes[:1]}
    return values


def _form(problem: Problem, name: str) -> Form:
    flags = _flags(problem, name)
    return next(form for form in problem.kernel.arguments[name].forms if form.when.evaluate(flags))


# Where padding, packed bytes or rows of experts end, only the caller can say, and of the tests' own zoo how many CTAs there are.
_READS_PADDED = re.compile(
    r"(dequantize|unpack)\.(mx|nv)fp4\.|scales\.unblocked|gemm\.(fp8|bf16)_(mx|nv)fp4\..*swiglu|gemm\.fp8b128\.dense who$"
    r"|experts\.(route|combine\.backward) "
)


def _only_itself_says(problem: Problem, name: str) -> set[str]:
    """The extents of an output that follow from nothing else that the call has."""
    kernel, known = problem.kernel, {"sms": DEVICES[problem.device][1], **_flags(problem, name)}
    for other, argument in kernel.arguments.items():
        tensor = problem.arguments.get(other)
        if argument.kind == "scalar":
            known[other] = argument.default if tensor is None else tensor
        elif other != name and isinstance(tensor, Tensor):
            form, array = _form(problem, other), tensor.array()
            pairs = (*zip(form.shape, array.shape, strict=True), *zip(form.strides or (), array.strides, strict=form.strides is not None))
            known |= {expression.text: value for expression, value in pairs if expression.names == (expression.text,)}
    for derived, expression in kernel.derived:
        with contextlib.suppress(ExpressionError):  # one that says which of two it reads may need one of them only
            known[derived] = expression.evaluate(known)
    return {each for expression in _form(problem, name).shape for each in expression.names if "." not in each} - known.keys()


def _contiguous(problem: Problem, name: str, dtypes: list[str]) -> str:
    """What Python has to say of the call if the output is made contiguous: its bytes, or why it may not be so, whichever of `dtypes` it has."""
    shape, answers = problem.arguments[name].shape, []
    mn_major = problem.arguments.get("layout") == "mn_major" or problem.kernel.name == "scales.mn_major"
    strides = contiguous_strides(shape, columns=True) if mn_major and "scales" in problem.kernel.name + name and len(shape) > 1 else None
    for dtype in dtypes:
        made = Tensor(2**60, DTYPES[dtype].dlpack, shape, strides, (2, problem.device))
        answer = problem.change(**{name: made}).resolve()
        if not isinstance(answer, (ArgumentError, ConstraintError)):
            return f"bytes {math.prod(shape) * DTYPES[dtype].bytes}"
        answers.append(f"refused {type(answer).__name__} {answer}")
    return answers[0]


def _span(tensor: Tensor) -> int:
    itemsize = next(each.bytes for each in DTYPES.values() if each.dlpack == tensor.dtype)
    if 0 in tensor.shape:
        return 0
    if tensor.strides is None:
        return math.prod(tensor.shape) * itemsize
    return (sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True)) + 1) * itemsize


def test_the_bytes_of_every_output_are_told_before_it_is_made(zoo, recorder, tmp_path):
    manifest, caller = zoo
    asked, expected = [], []
    outputs = [(kernel, name) for kernel in _kernels(manifest) for name, a in kernel.arguments.items() if a.kind == "array" and a.written]
    for kernel, name in outputs:
        maker, found = Maker(kernel, seed=6), 0
        while found < ASKED:
            problem = maker.valid(maker.random.choice(kernel.variants))
            if name not in problem.arguments:  # an optional one
                continue
            found += 1
            rest = {other: value for other, value in problem.arguments.items() if other != name}
            made = {other for other, a in kernel.arguments.items() if a.kind == "array" and a.written and not a.optional}
            given, dtypes = problem.arguments[name], kernel.arguments[name].dtypes
            usual = [dtype for dtype in dtypes if DTYPES[dtype].bytes == DTYPES[dtypes[0]].bytes]
            its = [dtype for dtype in dtypes if DTYPES[dtype].dlpack == given.dtype]
            if not its:  # bytes are taken for the first that they can be
                its = [dtype for dtype in dtypes if 8 * DTYPES[dtype].bytes == given.dtype[1]][:1]
            for way, arguments, answer in (
                ("all but it", rest, _contiguous(problem, name, usual)),
                ("inputs alone", {other: value for other, value in rest.items() if other not in made}, _contiguous(problem, name, usual)),
                ("with its dtype", {**rest, name: replace(given, address=0, offset=0, shape=(), strides=None)}, _contiguous(problem, name, its)),
                ("with its shape", {**rest, name: replace(given, address=0, offset=0)}, f"bytes {_span(given)}"),
            ):  # fmt: skip
                question = replace(problem, arguments=arguments, mode=f"bytes:{name}", spoiled=way)
                unsaid = _only_itself_says(question, name) if way != "with its shape" else set()
                asked.append((kernel.name, name, question))
                expected.append(sorted(unsaid) or answer)
    answers, log = call(caller, recorder, [question for *_, question in asked], tmp_path)
    answered = set()
    for (kernel, name, question), answer, wanted in zip(asked, answers, expected, strict=True):
        where = f"{question.spoiled}\n{question.words()}"
        if isinstance(wanted, list):
            begins = [f"refused ArgumentError {kernel}: {name}: its extents depend on {symbol}, which nothing says" for symbol in wanted]
            assert answer.startswith(tuple(begins)), f"{where}{answer}"
        else:
            assert answer == wanted, where
        if answer.startswith("bytes"):
            answered.add((kernel, name, question.spoiled))
    assert log.launches == [] and log.faults == []
    assert {(kernel.name, name) for kernel, name in outputs} == {
        (kernel, name) for kernel, name, way in answered if way == "with its shape"
    }
    told = {(kernel, name) for kernel, name, way in answered if way == "inputs alone"}
    unsaid = {(kernel, name) for (kernel, name, _), wanted in zip(asked, expected, strict=True) if isinstance(wanted, list)}
    assert told | unsaid == {(kernel.name, name) for kernel, name in outputs}
    assert all(_READS_PADDED.match(" ".join(output)) for output in unsaid - told), unsaid - told
    both = unsaid & told  # a bias says what packed weights do not, and optional arrays of experts say their sizes
    assert all(kernel.startswith(("gemm.fp8_", "gemm.bf16_", "experts.")) for kernel, _ in both), both
