"""The raw instructions as PTX through the whole emulator, against what a real GPU gave: fragments, operand order, rounding, all at once."""

import pathlib

import numpy
import pytest

from tests.emulator.hardware import cases, instructions, vectors_file
from tests.emulator.hardware.instructions import APPROXIMATE, ELEMENTWISE, MATRIX
from tests.emulator.hardware.run_on_gpu import APPROXIMATE_STEP, KEPT_ROWS, TILES
from zoo.emulator import Device, Module

FOLDER = pathlib.Path(__file__).parent / "hardware" / "vectors"
VECTORS = vectors_file.load(FOLDER / "sm_90.npz")
APPROXIMATE_RESULTS = numpy.load(FOLDER / "sm_90_approximate.npz")

# How far the GPU's approximations lie from correctly rounded values, in units of the last place of the result.
# lg2 and tanh are bounded absolutely and relative to 2^-11, so near 1 and near saturation they are many units off.
UNITS_OFF = {"ex2": 2, "rcp": 1, "rsqrt": 1, "sqrt": 1, "lg2": 36, "tanh": 118}


@pytest.fixture(scope="module")
def module(compiler, tmp_path_factory):
    source = tmp_path_factory.mktemp("raw") / "instructions.cu"
    source.write_text(instructions.cuda_source())
    return Module(compiler.ptx(source, "sm_90a"))


@pytest.mark.parametrize("scheduling", ["issue", "last"])
@pytest.mark.parametrize("m", MATRIX, ids=lambda m: m.name)
def test_matrix_kernel_gives_the_bits_of_the_gpu(module, m, scheduling):
    name = "normal" if m.result != "s32" else "bits"
    a, b, c = cases.matrix_inputs(m, name, TILES[m.family])
    gpu = Device(arch="sm_90a", scheduling=scheduling, arithmetic="hw")
    inputs = [gpu.alloc(numpy.ascontiguousarray(cases.packed(m, x, w)[:1])) for x, w in ((a, "a"), (b, "b"))]
    inputs.append(gpu.alloc(c[:1]))
    d = gpu.alloc(c[:1].nbytes)
    report = gpu.launch(module, m.name, 1, 32 if m.family == "mma" else 128, params=[*inputs, d])
    assert report.ok, report
    seen = gpu.read(d, c[:1].shape, numpy.uint32)[0, :KEPT_ROWS].reshape(-1)
    numpy.testing.assert_array_equal(seen, VECTORS[f"{m.name}/{name}"].rows)


@pytest.mark.parametrize("e", ELEMENTWISE, ids=lambda e: e.mnemonic)
def test_elementwise_kernel_gives_the_bits_of_the_gpu(module, e):
    inputs = cases.elementwise_inputs(e)
    entry = VECTORS[e.mnemonic]
    # blocks where something happens: the first, a middle one, and the last, which holds negative NaN in the sorted domains
    for block in (0, len(entry.blocks) // 2 - 1, len(entry.blocks) - 1):
        part = slice(block * vectors_file.BLOCK, (block + 1) * vectors_file.BLOCK)
        gpu = Device(arch="sm_90a", scheduling="issue")
        sources = [gpu.alloc(numpy.ascontiguousarray(x[part])) for x in inputs]
        size = {"h": 2, "r": 4, "l": 8}[e.output]
        out = gpu.alloc(vectors_file.BLOCK * size)
        report = gpu.launch(module, e.name, 1, 256, params=[*sources, out, vectors_file.BLOCK])
        assert report.ok, report
        seen = gpu.read(out, vectors_file.BLOCK, f"u{size}")
        assert vectors_file.block_digests(seen)[0] == entry.blocks[block], f"block {block}: first outputs {[hex(int(v)) for v in seen[:4]]}"


def order_of(bits):
    """f32 patterns as integers in the order of their values, so that neighbours differ by 1."""
    signed = bits.view(numpy.int32).astype(numpy.int64)
    return numpy.where(signed < 0, -(1 << 31) - signed, signed)


@pytest.mark.parametrize("e", APPROXIMATE, ids=lambda e: e.mnemonic)
def test_approximate_functions_are_as_near_to_the_gpu_as_it_is_to_the_exact_value(module, e):
    inputs = numpy.ascontiguousarray(cases.elementwise_inputs(e)[0][::APPROXIMATE_STEP])
    expected = APPROXIMATE_RESULTS[e.name]
    assert expected.shape == inputs.shape
    gpu = Device(arch="sm_90a", scheduling="issue")
    out = gpu.alloc(inputs.nbytes)
    report = gpu.launch(module, e.name, 1, 256, params=[gpu.alloc(inputs), out, inputs.size])
    assert report.ok, report
    seen = gpu.read(out, inputs.shape, numpy.uint32)
    special = ~numpy.isfinite(expected.view(numpy.float32))
    numpy.testing.assert_array_equal(seen[special], expected[special])
    distance = numpy.abs(order_of(seen) - order_of(expected))[~special]
    assert distance.max() <= UNITS_OFF[e.mnemonic.split(".")[0]]
