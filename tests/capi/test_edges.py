"""C against Python where real kernels seldom go: the edges of 64 bits, of tensor maps, and the choice among archs."""

from __future__ import annotations

import random
import shutil

import pytest

from tests.capi.entries import EXTREMES, MAP_NUMBERS, expression_entry, map_entry, plain_entry, random_expression
from tests.capi.package import export_and_compile, make_directory, sanitizers
from tests.capi.problems import DEVICES, Maker, Problem, Tensor
from tests.capi.test_parity import call, compare
from zoo.contract.manifest import Manifest
from zoo.contract.resolve import pick_arch

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
NAME = "quantize.mxfp8.rows"


def _operators() -> list[str]:
    binary = ("+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or")
    functions = ("min", "max", "ceil_div", "round_up")
    return [f"a {operator} b" for operator in binary] + [f"{name}(a, b)" for name in functions] + ["-a", "not a", "a if b else c"]


def test_every_operator_and_random_expressions_agree(recorder, tmp_path):
    pick = random.Random(4)
    expressions = list(dict.fromkeys(_operators() + [random_expression(pick, pick.choice((1, 2, 3, 4))) for _ in range(120)]))
    cubins = make_directory(tmp_path / "cubins", {NAME: expression_entry(expressions)})
    kernel = Manifest(cubins / "manifest.json").kernel(NAME)
    problems = []
    for index, expression in enumerate(expressions):
        pairs = (
            [(a, b) for a in EXTREMES for b in EXTREMES] if index < len(_operators()) else [(pick.choice(EXTREMES),) * 2 for _ in range(10)]
        )
        if index >= len(_operators()):
            pairs += [(pick.choice(EXTREMES), pick.randrange(-300, 300)) for _ in range(20)]
        for a, b in pairs:
            values = {"a": a, "b": b, "c": pick.choice(EXTREMES), "e": f"v{index}"}
            problems.append(Problem(kernel, 0, values, spoiled=expression))
    caller = export_and_compile(cubins, tmp_path, flags=sanitizers())
    answers, log = call(caller, recorder, problems, tmp_path)
    seen = compare(problems, answers, log)
    assert seen["launched"] > 4000 and seen["ConstraintError"] > 200
    refused = " ".join(answer for answer in answers if answer.startswith("refused"))
    assert "does not fit 64 bits" in refused and "divides by zero" in refused


# of each number of a map: values that most maps take, then those at and beyond the limits
_MAP_VALUES = {
    "d": ((128, 256, 64, 1, 2**32), (0, -1, 3, 130, 2**32 + 1)),
    "s": ((128, 4096, 32, 0, 2**40 - 32), (16, 8, 2**40, -32)),
    "b": ((64, 32, 16, 8, 128), (0, 1, 4, 256, 257, 3)),
    "e": ((1, 1, 2, 8), (0, 9, -1)),
}


def test_every_kind_of_tensor_map_is_encoded_or_refused_alike(recorder, tmp_path):
    pick = random.Random(5)
    cubins = make_directory(tmp_path / "cubins", {NAME: map_entry()})
    kernel = Manifest(cubins / "manifest.json").kernel(NAME)
    problems = []
    for value in kernel.options["t"].values:
        for _ in range(30):
            odd = pick.choice((0, 0, 0.1, 0.3))
            numbers = {name: pick.choice(_MAP_VALUES[name[0]][pick.random() < odd]) for name in MAP_NUMBERS}
            address = 2**33 + pick.choice((0, 0, 0, 32, 16, 8))
            x = Tensor(address, (1, 8, 1), (1024,), None, (2, 0))
            problems.append(Problem(kernel, 0, {**numbers, "x": x, "t": value}, spoiled=str(kernel.variants[int(value[1:])].launch)))
    answers, log = call(export_and_compile(cubins, tmp_path, flags=sanitizers()), recorder, problems, tmp_path)
    seen = compare(problems, answers, log)
    assert seen["launched"] > 1000 and seen["ConstraintError"] > 1000
    refused = " ".join(answers)
    reasons = (
        "the address", "elements, expected 1 to 2^32", "the stride of", "of the box has", "element stride", "cannot be swizzled", "of swizzle",
        "a multiple of 128 elements and a box of 128", "an even number", "expected a multiple of 16", "cannot be filled with NaN",
    )  # fmt: skip
    for words in reasons:
        assert words in refused, words


def test_the_same_arch_is_chosen_on_every_device(recorder, tmp_path):
    archs = ("sm_100f", "sm_90a", "sm_103f", "sm_100a", "sm_120f")
    entry = plain_entry(archs)
    for variant in entry["variants"]:
        variant["symbol"] = f"kernel_{variant['arch']}"
    cubins = make_directory(tmp_path / "cubins", {NAME: entry})
    kernel = Manifest(cubins / "manifest.json").kernel(NAME)
    makers = [Maker(kernel, seed) for seed in range(60)]
    problems = [maker.valid(variant) for maker in makers for variant in kernel.variants if variant.arch != "sm_120f"]
    answers, log = call(export_and_compile(cubins, tmp_path), recorder, problems, tmp_path)
    seen = compare(problems, answers, log)
    started = {(launch.device, launch.kernel.removeprefix("kernel_")) for launch in log.launches}
    assert seen["launched"] > 100 and started == {(0, "sm_90a"), (1, "sm_100a"), (2, "sm_103f"), (4, "sm_90a"), (5, "sm_90a")}
    assert [pick_arch(archs, capability) for capability, _ in DEVICES] == ["sm_90a", "sm_100a", "sm_103f", None, "sm_90a", "sm_90a"]
