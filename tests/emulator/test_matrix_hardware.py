"""The emulator's values against what a real GPU computed from raw instructions, bit for bit.

The vectors come from tests/emulator/hardware/run_on_gpu.py.
"""

import pathlib

import numpy
import pytest

from tests.emulator.hardware import cases, replay, vectors_file
from tests.emulator.hardware.instructions import ELEMENTWISE, MATRIX
from tests.emulator.hardware.run_on_gpu import KEPT_ROWS, TILES
from zoo.emulator import arithmetic, number_formats

VECTORS = vectors_file.load(pathlib.Path(__file__).parent / "hardware" / "vectors" / "sm_90.npz")


def classes_of(m):
    return cases.MATRIX_CLASSES if m.result != "s32" else ("bits",)


def matrix_entry(m, name):
    """(inputs, recorded entry); the inputs must be the ones that were recorded."""
    a, b, c = cases.matrix_inputs(m, name, TILES[m.family])
    entry = VECTORS[f"{m.name}/{name}"]
    digest = vectors_file.digest([cases.packed(m, a, "a"), cases.packed(m, b, "b"), c])
    assert digest == entry.inputs, "the input generator has changed: record new vectors on a GPU, or undo the change"
    return (a, b, c), entry


def test_the_vectors_cover_every_instruction_of_the_tables():
    expected = {f"{m.name}/{name}" for m in MATRIX for name in classes_of(m)} | {e.mnemonic for e in ELEMENTWISE}
    assert set(VECTORS) == expected


@pytest.mark.parametrize("m", MATRIX, ids=lambda m: m.name)
def test_matrix_instruction_gives_the_bits_of_the_gpu(m):
    different = []
    for name in classes_of(m):
        inputs, entry = matrix_entry(m, name)
        d = replay.matrix(m, *inputs)
        rows = d[0, :KEPT_ROWS].reshape(-1)
        if (rows != entry.rows).any():
            at = int(numpy.argmax(rows != entry.rows))
            different.append(f"{name}: element {at} of the first tile is {rows[at]:#x}, the GPU gave {entry.rows[at]:#x}")
        elif (vectors_file.block_digests(d) != entry.blocks).any():
            different.append(f"{name}: blocks {numpy.flatnonzero(vectors_file.block_digests(d) != entry.blocks)} differ")
    assert not different, "\n".join(different)


@pytest.mark.parametrize("e", ELEMENTWISE, ids=lambda e: e.mnemonic)
def test_elementwise_instruction_gives_the_bits_of_the_gpu(e):
    inputs = cases.elementwise_inputs(e)
    entry = VECTORS[e.mnemonic]
    assert vectors_file.digest(inputs) == entry.inputs, "the input generator has changed: record new vectors on a GPU, or undo the change"
    blocks = vectors_file.block_digests(replay.elementwise(e, inputs))
    wrong = numpy.flatnonzero(blocks != entry.blocks)
    assert not wrong.size, f"outputs {wrong[0] * vectors_file.BLOCK} .. differ, {wrong.size} of {blocks.size} blocks"


def changed(rule_name, **fields):
    rule = getattr(arithmetic, rule_name)
    values = {"fraction_bits": rule.fraction_bits, "result": rule.result} | fields
    return arithmetic.SumRule(**values)


@pytest.mark.parametrize(
    ("rule", "other", "instruction"),
    [
        ("WIDE_F32", {"fraction_bits": 24}, "wgmma_k16_f32_bf16_bf16"),
        ("WIDE_F32", {"fraction_bits": 26}, "wgmma_k16_f32_bf16_bf16"),
        ("WIDE_F16", {"fraction_bits": 24}, "wgmma_k16_f16_f16_f16"),
        ("WIDE_F16", {"fraction_bits": 26}, "wgmma_k16_f16_f16_f16"),
        ("HOPPER_FP8_F32", {"fraction_bits": 12}, "wgmma_k32_f32_e4m3_e4m3"),
        ("HOPPER_FP8_F32", {"fraction_bits": 14}, "wgmma_k32_f32_e4m3_e4m3"),
        ("HOPPER_FP8_F32", {"result": "f32"}, "wgmma_k32_f32_e4m3_e4m3"),
        ("HOPPER_FP8_F16", {"fraction_bits": 14}, "wgmma_k32_f16_e4m3_e4m3"),
    ],
)
def test_the_vectors_tell_a_neighbouring_rule_apart(monkeypatch, rule, other, instruction):
    """A rule one bit off, or without the short result, must not pass: otherwise the vectors prove nothing about it."""
    monkeypatch.setattr(arithmetic, rule, changed(rule, **other))
    m = next(m for m in MATRIX if m.name == instruction)
    caught = []
    for name in classes_of(m):
        inputs, entry = matrix_entry(m, name)
        if (vectors_file.block_digests(replay.matrix(m, *inputs)) != entry.blocks).any():
            caught.append(name)
    assert caught


@pytest.mark.parametrize("change", ["zero factors keep an exponent", "subnormal factors are normalised"])
def test_the_vectors_tell_another_exponent_rule_apart(monkeypatch, change):
    original = arithmetic._exponent_table

    def table(format):
        values = number_formats.decode_table(format)
        if change == "zero factors keep an exponent":
            return numpy.where(values == 0, -126, original(format)).astype(numpy.int16)
        with numpy.errstate(invalid="ignore"):
            normalised = numpy.frexp(values)[1] - 1
        return numpy.where(values == 0, original(format), normalised).astype(numpy.int16)

    monkeypatch.setattr(arithmetic, "_exponent_table", table)
    m = next(m for m in MATRIX if m.name == "wgmma_k16_f32_bf16_bf16")
    (a, b, c), entry = matrix_entry(m, "extreme")
    assert (vectors_file.block_digests(replay.matrix(m, a, b, c)) != entry.blocks).any()


def test_the_vectors_tell_exact_sums_apart():
    m = next(m for m in MATRIX if m.name == "wgmma_k32_f32_e4m3_e4m3")
    (a, b, c), entry = matrix_entry(m, "normal")
    exact = numpy.stack(
        [
            arithmetic.exact_sum(arithmetic.operand(number_formats.E4M3, a[t]), arithmetic.operand(number_formats.E4M3, b[t]), c[t], "f32")
            for t in range(len(a))
        ]
    )
    assert (vectors_file.block_digests(exact) != entry.blocks).all()
