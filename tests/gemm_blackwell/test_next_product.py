"""A product whose result is quantised, and the product that takes it, as one program: what the first leaves unwritten (rows of places
that nobody uses, rows after the last offset, tiles of scales after those of all groups) may be any bytes for the second."""

import ml_dtypes
import numpy
import pytest

from tests.gemm_blackwell.named import named
from tests.gemm_blackwell.which import ZOO
from zoo.contract.array import Pointer
from zoo.emulator import Device

K, COLUMNS, N = 64, 128, 24  # of the first product; its result's columns, an odd number of tiles of NVFP4's scales to a line; of the second
GROUPINGS = {
    "m_grouped_gather": "m_grouped_contiguous",
    "m_grouped_contiguous": "m_grouped_contiguous",
    "m_grouped_masked": "m_grouped_masked",
}
SIZES, ROOM = (0, 2, 131, 0, 3, 0), 140  # groups; rows of a place, or of the result


def chain(formats: str, first: str, second: str, leftover: int | None):
    """(d of the rows there are, the second report's findings). leftover: the byte that q and scales hold before; None: nobody wrote any"""
    device, random = Device("sm_100f", seed=5, arithmetic="hw", multiprocessors=3), numpy.random.default_rng(7)
    nvfp4, G, ends = formats == "nvfp4", len(SIZES), numpy.cumsum(SIZES).astype(numpy.int32)
    per_byte, block, scale = (2, 16, "e4m3") if nvfp4 else (1, 32, "ue8m0")
    element = "e2m1x2" if nvfp4 else "e4m3"
    masked, gathered = first == "m_grouped_masked", first == "m_grouped_gather"
    leading = (G, ROOM) if masked else (ROOM,)

    def array(values: numpy.ndarray, dtype: str) -> Pointer:
        strides = tuple(int(numpy.prod(values.shape[axis + 1 :])) for axis in range(values.ndim))
        return Pointer(device.alloc(values), values.shape, dtype, strides, device)

    def elements(*shape: int) -> Pointer:
        codes = random.integers(0, 16, shape) | random.integers(0, 16, shape) << 4 if nvfp4 else random.integers(0x28, 0x40, shape)
        return array(codes.astype(numpy.uint8), element)

    def tiles(columns: int, rows: int | None = None) -> tuple[int, ...]:
        whole = -(-columns // 4) * 4
        if rows is None and not masked:
            return (-(-ROOM // 128) * 128 + 128 * G, whole)
        return (G, -(-(rows or ROOM) // 128) * 128, whole)

    def scales(*shape: int) -> Pointer:
        powers = numpy.ldexp(1.0, random.integers(-2, 1, shape))
        return array(powers.astype(ml_dtypes.float8_e4m3fn if nvfp4 else ml_dtypes.float8_e8m0fnu).view(numpy.uint8), scale)

    def result(shape: tuple[int, ...], dtype: str) -> Pointer:
        found = array(numpy.full(shape, leftover or 0, numpy.uint8), dtype)
        if leftover is not None:
            return found
        size = int(numpy.prod(shape))
        return Pointer(device.alloc(size), found.shape, dtype, found.strides, device)

    groups = {"rows": device.array(numpy.asarray(SIZES, numpy.int32))} if masked else {"offsets": device.array(ends)}
    q, q_scales = result((*leading, COLUMNS // per_byte), element), result(tiles(COLUMNS // block), scale)
    more = {"tensor_scale": device.array(numpy.asarray([0.25], numpy.float32))} if nvfp4 else {}
    if gathered:
        more["index"] = device.array(random.integers(-1, 9, ROOM).astype(numpy.int32))
    a = {"a": elements(9, K // per_byte), "a_scale": scales(9, K // block)} if gathered else {
        "a": elements(*leading, K // per_byte), "a_scale": scales(*tiles(K // block))
    }  # fmt: skip
    b = {"b": elements(G, 2 * COLUMNS, K // per_byte), "b_scale": scales(*tiles(K // block, 2 * COLUMNS))}
    made = f"swiglu_{'nvfp4' if nvfp4 else 'mxfp8'}"
    gated = f"gemm.{formats}.{first}.{made}"
    arguments = named(gated, {**a, **b, "q": q, "scales": q_scales}, gates="interleaved")
    ZOO.launch(gated, **arguments, gates="interleaved", **groups, **more)
    weights = {"b": elements(G, N, COLUMNS // per_byte), "b_scale": scales(*tiles(COLUMNS // block, N))}
    d = device.empty((*leading, N), "f32")
    plain = f"gemm.{formats}.{GROUPINGS[first]}"
    operands = named(plain, {"a": q, "a_scale": q_scales, **weights})
    report = ZOO.prepare(plain, variant=second, **operands, d=d, **groups)()
    there = numpy.arange(ROOM) < (numpy.asarray(SIZES)[:, None] if masked else ends[-1])
    return device.read(d.address, (*leading, N), numpy.float32)[there], report.findings


@pytest.mark.parametrize("first", GROUPINGS)
@pytest.mark.parametrize(("formats", "second"), [("mxfp8", "t256_w256"), ("nvfp4", "few128")])
def test_bytes_that_a_quantised_result_leaves_harm_nothing_in_the_next_product(formats, first, second):
    (zeros, nothing), (all_ones, nothing_either) = (chain(formats, first, second, leftover) for leftover in (0, 0xFF))
    assert nothing == nothing_either == []
    assert numpy.isfinite(zeros).all() and len(numpy.unique(zeros)) > 100
    numpy.testing.assert_array_equal(all_ones.view(numpy.uint32), zeros.view(numpy.uint32))


def test_the_emulator_wants_them_written_all_the_same():
    """As docs/emulator.md says of copies: what a box holds must have been written, used or not."""
    _, findings = chain("nvfp4", "m_grouped_masked", "few128", None)
    assert {finding.kind for finding in findings} == {"uninitialised-global"}
