"""What is made of block-scaled products of rows taken through an index, in the emulator, against float64 without zoo.reference.

Sums are exact (test_gather). Gates are 128 and more, so that each is its own silu and its sigmoid is 1, to the bit: what a gated unit makes
is one product, rounded once. tests/gemm_blackwell/which.py says how to run more.
"""

import ml_dtypes
import numpy
import pytest

from tests.gemm_blackwell.exact_groups import BLOCKS, E2M1, blocked, pack
from tests.gemm_blackwell.runs import wrong
from tests.gemm_blackwell.test_gather import gathered
from tests.gemm_blackwell.which import ZOO
from zoo.checks.problem import Placed, Problem

LIMIT = 5000.0
MADE = [kernel for kernel in ZOO.find("gemm.*.m_grouped_gather.*", arch="sm_100f") if kernel.fields["formats"] in BLOCKS]
TILES = [(kernel, tile) for kernel in MADE for tile in ("t128", "few128")]


def of_tiles(gated=False):
    found = [(kernel, tile) for kernel, tile in TILES if not gated or kernel.fields["extra"].startswith("swiglu")]
    return pytest.mark.parametrize(("kernel", "tile"), found, ids=[f"{kernel.name} {tile}" for kernel, tile in found])


def unit(gates, ups, activation):
    """Gates of 128 and more with as many ups, in float64."""
    if activation != "silu":
        gates, ups = numpy.minimum(gates, LIMIT), numpy.clip(ups, -LIMIT, LIMIT)
    assert (gates >= 128).all()
    return gates * (ups + (activation == "gpt_oss"))


def mxfp8(h, rounding):
    """Elements and plain scale bytes of h, as of quantize.mxfp8.rows."""
    blocks = h.astype(numpy.float64).reshape(len(h), -1, 32)
    largest = abs(blocks).max(2)
    exponents = numpy.floor(numpy.log2(largest)) - 8 if rounding == "floor" else numpy.ceil(numpy.log2(largest / 448))
    elements = numpy.clip(blocks / numpy.exp2(exponents)[..., None], -448, 448).astype(ml_dtypes.float8_e4m3fn)
    return elements.reshape(h.shape), (exponents + 127).astype(numpy.uint8)


def nvfp4(h, tensor_scale):
    blocks = h.astype(numpy.float64).reshape(len(h), -1, 16)
    relative = numpy.clip(abs(blocks).max(2) / 6 / tensor_scale, 2.0**-6, 448)
    scales = relative.astype(numpy.float32).astype(ml_dtypes.float8_e4m3fn)
    scaled = blocks / (scales.astype(numpy.float64) * tensor_scale)[..., None]
    middles = (E2M1[:7] + E2M1[1:8]) / 2
    assert not numpy.isin(abs(scaled), middles).any()  # which of two neighbours is nearest is never open
    codes = numpy.searchsorted(middles, abs(scaled)) + 8 * numpy.signbit(scaled)
    return pack(codes.astype(numpy.uint8).reshape(h.shape)), scales.view(numpy.uint8)


def made(kernel, columns, K, T, sizes, gates, activation, nobody=3, rounding="floor"):
    """A tenth of the rows takes none, every second of them by an index past the end; the row that is NaN is nobody's."""
    formats, extra = kernel.fields["formats"], kernel.fields["extra"]
    gated, result = extra.startswith("swiglu"), extra.removeprefix("swiglu").removeprefix("_")
    random, N = numpy.random.default_rng(columns + K), columns * (2 if gated else 1)
    base = gathered(formats, N, K, T, sizes, nobody, gap=1)
    sums, G, M = base.outputs["d"].values.astype(numpy.float64), len(sizes), sum(sizes) + nobody
    index = base.inputs["index"].values
    index[numpy.flatnonzero(index < 0)[::2]] = T
    owner = numpy.append(numpy.repeat(numpy.arange(G), sizes), [-1] * nobody)
    factors = {"alpha": random.choice([0.5, 1], G), "row_scale": random.choice([0.25, 0.5, 1, 2], M)}
    bias = random.integers(-8, 9, (G, N)) + 0.375 + 2.0**-11  # so that no block is zero, and nothing lies between two e2m1
    if gated:
        bias[:, slice(0, columns) if gates == "halves" else slice(0, N, 2)] += 4096
    h = numpy.zeros((M, columns), numpy.float32)
    for group in range(G):
        rows = owner == group
        values = (sums[rows] * factors["alpha"][group] + bias[group]).astype(numpy.float32).astype(numpy.float64)
        if gated:
            halves = (values[:, :columns], values[:, columns:]) if gates == "halves" else (values[:, ::2], values[:, 1::2])
            values = unit(*halves, activation)
        h[rows] = values.astype(numpy.float32) * factors["row_scale"][rows, None]
    inputs = base.inputs | {name: Placed(values.astype(numpy.float32)) for name, values in {**factors, "bias": bias}.items()}
    settings = {"gates": gates, "activation": activation, "limit": LIMIT} if gated else {}
    nobodys = (owner < 0)[:, None]
    if not result:
        d = Placed(h, (columns + 8, 1), untouched=numpy.broadcast_to(nobodys, h.shape))
        return Problem(base.name, inputs, {"d": d}, settings)
    tensor_scale = 2.0**12
    own = h[: sum(sizes)]
    q, scales = mxfp8(own, rounding) if result == "mxfp8" else nvfp4(own, tensor_scale)
    if result == "mxfp8":
        settings["rounding"] = rounding
    else:
        inputs["tensor_scale"] = Placed(numpy.array([tensor_scale], numpy.float32))
    tiles = [blocked(part, padding=0) for part in numpy.split(scales, numpy.cumsum(sizes)[:-1])]
    all_scales = numpy.zeros((-(-M // 128) * 128 + 128 * G, -(-scales.shape[1] // 4) * 4), numpy.uint8)
    of_groups = sum(map(len, tiles))
    all_scales.reshape(-1)[:of_groups] = numpy.concatenate(tiles)
    behind = (numpy.arange(all_scales.size) >= of_groups).reshape(all_scales.shape)
    all_q = numpy.concatenate([q, numpy.zeros((nobody, q.shape[1]), q.dtype)])
    outputs = {
        "q": Placed(all_q, (all_q.shape[1] + 16, 1), {"nvfp4": "e2m1x2"}.get(result), untouched=numpy.broadcast_to(nobodys, all_q.shape)),
        "scales": Placed(all_scales, dtype={"mxfp8": "ue8m0", "nvfp4": "e4m3"}[result], untouched=behind),
    }
    return Problem(base.name, inputs, outputs, settings)


def fails(kernel, tile, problem):
    return wrong(f"m_grouped_gather.{kernel.fields['extra']}", kernel.fields["formats"], tile, problem)


@of_tiles()
def test_groups_end_within_a_tile_and_every_row_is_made_of_the_row_it_takes(kernel, tile):
    """Gates and ups alternate; columns a little over a tile; scales of each group in tiles of its own."""
    assert fails(kernel, tile, made(kernel, 160, 96, 23, (0, 5, 0, 130, 1, 0), "interleaved", "gpt_oss", rounding="rceil")) is None


@of_tiles(gated=True)
def test_gates_and_ups_in_halves_come_in_boxes_of_their_own(kernel, tile):
    assert fails(kernel, tile, made(kernel, 256, 64, 9, (3, 33), "halves", "deepseek_v4")) is None
