"""The rule of every kernel, by name and on numpy arrays, against what `zoo verify` expects of a GPU, and against the emulator."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy
import pytest

import zoo
from zoo import checks
from zoo.checks.emulated import executor
from zoo.checks.problem import POISONS, Buffer, Problem, difference
from zoo.contract.manifest import Kernel, Variant
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.packaged import packaged
from zoo.reference.kernels import Machine, run

KERNELS = {kernel.name: kernel for kernel in zoo.find()}
_FEW = 3  # multiprocessors, as the checks have it
_MOST_ELEMENTS = 20_000
_PROBLEMS = 8  # of each kernel and arch


def _machine(variant: Variant, multiprocessors: int) -> Machine:
    return Machine((int(variant.arch[3:-2]), int(variant.arch[-2])), multiprocessors)


def by_the_rule(
    kernel: Kernel, variant: Variant, buffers: Mapping[str, Buffer], settings: Mapping[str, Any], multiprocessors: int = _FEW
) -> dict[str, numpy.ndarray]:
    """An executor: the buffers' bytes after the rule has written into them."""
    images = {name: buffer.image.copy() for name, buffer in buffers.items()}
    arguments = {}
    for name, buffer in buffers.items():
        elements = buffer.laid.elements(images[name])
        assert numpy.shares_memory(elements, images[name]) or not elements.size
        array = elements.view(numpy_dtype(buffer.laid.dtype))
        arguments[name] = zoo.view(array, buffer.laid.dtype) if buffer.laid.dtype != "u8" else array
    run(kernel, {**arguments, **settings}, _machine(variant, multiprocessors), variant.name)
    return images


def smallest(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    """Problems of this variant with few elements, the smallest first; some of each hazard come early in every list."""
    found = [problem for problem in checks.problems(kernel, variant) if problem.elements <= _MOST_ELEMENTS]
    every = max(1, len(found) // _PROBLEMS)
    yield from sorted(found[::every], key=lambda problem: problem.elements)


# Groups of these are those of other operands, and their numbers those of one matrix.
_LIKE_OTHERS = re.compile(r"gemm\.(fp8_mxfp4|bf16_nvfp4)\.m_grouped_\w+\.swiglu.*")


@pytest.mark.parametrize("name", [name for name in KERNELS if not _LIKE_OTHERS.fullmatch(name)])
def test_the_rule_writes_what_zoo_verify_expects_and_nothing_else(name: str) -> None:
    kernel = KERNELS[name]
    for arch in kernel.archs:
        ran = 0
        for variant in [one for one in kernel.variants if one.arch == arch]:
            for problem in smallest(kernel, variant):
                try:
                    wrong = difference(problem, kernel, variant, by_the_rule, POISONS[:1])
                except zoo.VariantError:
                    continue
                assert wrong is None, f"{variant.name} of {arch}: {problem.name}: {wrong}"
                ran += 1
            if ran:
                break
        assert ran, f"no problem of {name} for {arch} ran"


@pytest.mark.parametrize("name", ["quantize.nvfp4.cols.m_grouped_contiguous", "gemm.mxfp8.k_grouped", "scales.blocked"])
def test_a_rule_that_writes_nothing_or_too_much_is_found(name: str) -> None:
    kernel = KERNELS[name]
    variant = kernel.variants[0]
    with_results = (one for one in smallest(kernel, variant) if all(placed.before is None for placed in one.outputs.values()))
    problem = next(one for one in with_results if all(placed.values.size for placed in one.outputs.values()))

    def nothing(
        kernel: Kernel, variant: Variant, buffers: Mapping[str, Buffer], settings: Mapping[str, Any], **more: int
    ) -> dict[str, numpy.ndarray]:
        return {name: buffer.image for name, buffer in buffers.items()}

    def too_much(
        kernel: Kernel, variant: Variant, buffers: Mapping[str, Buffer], settings: Mapping[str, Any], **more: int
    ) -> dict[str, numpy.ndarray]:
        images = by_the_rule(kernel, variant, buffers, settings, **more)
        written = next(iter(problem.outputs))
        images[written][buffers[written].laid.offset - 1] ^= 1
        return images

    assert difference(problem, kernel, variant, nothing, POISONS[:1]) is not None
    assert difference(problem, kernel, variant, too_much, POISONS[:1]) is not None


def test_rows_that_name_their_group_are_those_that_offsets_cut() -> None:
    random = numpy.random.default_rng(3)
    a, b = (random.integers(0, 120, shape, dtype=numpy.uint8).view(numpy_dtype("e4m3")) for shape in ((9, 128), (3, 16, 128)))
    inputs = {"a": a, "a_scale": random.random((9, 1), numpy.float32), "b": b, "b_scale": random.random((3, 1, 1), numpy.float32)}
    found = []
    for groups in ({"offsets": numpy.int32([3, 3, 8])}, {"m_indices": numpy.int32([0, 0, 0, 2, 2, 2, 2, 2, -1])}):
        d = numpy.full((9, 16), 7, numpy.float32)
        run("gemm.fp8b128.m_grouped_contiguous", {**inputs, **groups, "d": d})
        found.append(d)
    numpy.testing.assert_array_equal(*found)
    assert (found[0][8] == 7).all() and (found[0][:8] != 7).any()


def test_a_group_that_b_has_not_is_refused_and_not_left_out() -> None:
    a, b = (numpy.zeros(shape, numpy_dtype("e4m3")) for shape in ((2, 128), (3, 16, 128)))
    given = {"a": a, "a_scale": numpy.ones((2, 1), numpy.float32), "b": b, "b_scale": numpy.ones((3, 1, 1), numpy.float32)}
    with pytest.raises(zoo.ArgumentError, match="from 0 to 2 or -1, got 3"):
        run("gemm.fp8b128.m_grouped_contiguous", {**given, "m_indices": numpy.int32([0, 3]), "d": numpy.zeros((2, 16), numpy.float32)})


@pytest.mark.parametrize(("scale", "shape"), [("a_scale", (0,)), ("a_block_scale", (0, 2))])
def test_an_index_into_no_rows_gives_rows_of_zeros_under_scales_of_none(scale: str, shape: tuple[int, ...]) -> None:
    random = numpy.random.default_rng(4)
    given = {"a": numpy.zeros((0, 3, 64), numpy_dtype("e4m3")), scale: numpy.zeros(shape, numpy.float32)}
    given |= {"b": random.integers(0, 256, (1, 16, 96), dtype=numpy.uint8), "offsets": numpy.int32([2])}
    given["b_scale"] = numpy.full((1, 16, 12), 0x38, numpy.uint8).view(numpy_dtype("e4m3"))
    d = numpy.full((3, 16), 7, numpy.float32)
    run("gemm.fp8_nvfp4.m_grouped_gather.stored", {**given, "index": numpy.int32([0, -1, 5]), "d": d})
    assert (d[:2] == 0).all() and (d[2] == 7).all()


_DRAWN = [
    (str(kernel), int(seed))
    for seed, kernel in enumerate(numpy.random.default_rng(19).choice(sorted(KERNELS), 8, replace=False))
]  # fmt: skip


class _InTheEmulator:
    """An executor that keeps what it was given and what came of it."""

    def __call__(self, kernel: Kernel, variant: Variant, buffers: Mapping[str, Buffer], *settings: Any, **more: int) -> Any:
        self.given, self.more, self.after = buffers, more, executor(packaged)(kernel, variant, buffers, *settings, **more)
        return self.after


@pytest.mark.parametrize(("name", "seed"), _DRAWN)
def test_the_rule_of_a_kernel_drawn_at_random_is_what_the_emulator_does(name: str, seed: int) -> None:
    kernel, random, emulator = KERNELS[name], numpy.random.default_rng(seed), _InTheEmulator()
    for number in random.permutation(len(kernel.variants)):
        variant = kernel.variants[number]
        fitting = [problem for problem in checks.problems(kernel, variant) if 0 < problem.elements <= _MOST_ELEMENTS]
        for problem in [fitting[place] for place in random.permutation(len(fitting))]:
            try:
                assert difference(problem, kernel, variant, emulator, POISONS[:1]) is None
            except zoo.VariantError:
                continue
            ruled = by_the_rule(kernel, variant, emulator.given, problem.settings, **emulator.more)
            for output in problem.outputs:
                assert numpy.array_equal(emulator.after[output], ruled[output]), f"{problem.name}: {output}"
            return
    pytest.fail(f"{name} has no small problem that a variant takes")


def test_a_call_that_a_gpu_would_refuse_is_refused_in_the_same_words() -> None:
    x, q = numpy.ones((4, 100), numpy.float32), numpy.zeros((4, 100), numpy.uint8)
    with pytest.raises(zoo.ConstraintError, match=r"quantize\.mxfp8\.rows: K must be a multiple of 32 .*K = 100"):
        run("quantize.mxfp8.rows", {"x": x, "q": zoo.view(q, "e4m3"), "scales": numpy.zeros((4, 4), numpy.uint8)})
    with pytest.raises(zoo.ArgumentError, match=r"q: missing"):
        run("quantize.fp8b128.rows", {"x": x, "scales": numpy.zeros((4, 1), numpy.float32)})
    with pytest.raises(zoo.ArgumentError, match="q: expected e4m3 or e5m2, got u8; bytes could be either"):
        run("quantize.mxfp8.rows", {"x": numpy.ones((4, 64), numpy.float32), "q": q, "scales": numpy.zeros((4, 2), numpy.uint8)})


def test_a_view_of_half_elements_is_refused() -> None:
    odd = numpy.lib.stride_tricks.as_strided(numpy.zeros(100, numpy.float32), (2, 16), (66, 4))
    with pytest.raises(zoo.ArgumentError, match="no whole number of elements apart"):
        run("quantize.amax", {"x": odd, "amax": numpy.zeros(1, numpy.float32), "workspace": numpy.zeros(2, numpy.int32)})


def test_the_machine_decides_how_k_is_shared() -> None:
    """The same call, with the multiprocessors of an H200 and with three: other variants, other orders of addition, both by the rule."""
    random = numpy.random.default_rng(0)
    M, N, K = 4, 512, 4096
    a, b = (random.standard_normal((rows, K)).astype(numpy_dtype("e4m3")) for rows in (M, N))
    a_scale = numpy.exp2(random.uniform(-8, 8, (M, K // 128))).astype(numpy.float32)
    b_scale = numpy.exp2(random.uniform(-8, 8, (N // 128, K // 128))).astype(numpy.float32)
    found = []
    for machine in (None, Machine((9, 0), _FEW), Machine((9, 0), _FEW)):
        d = numpy.zeros((M, N), numpy.float32)
        run("gemm.fp8b128.dense", {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale, "d": d}, machine)
        found.append(d)
    assert numpy.array_equal(found[1], found[2])
    assert not numpy.array_equal(found[0], found[1])
    assert numpy.allclose(found[0], found[1], rtol=0.01, atol=abs(found[0]).max() / 100)
