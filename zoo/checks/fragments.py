"""Problems for 4-bit weights in the order of register fragments, both ways; every answer is that of zoo.reference.fragments, to the byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass
from itertools import product

import ml_dtypes
import numpy

from zoo.checks.problem import Later, NoChecks, Placed, Problem, values_of
from zoo.checks.remembered import remembered
from zoo.contract.formats import FORMATS
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.fragments import pack_mxfp4, pack_nvfp4, unpack_mxfp4, unpack_nvfp4

# Matrices, rows, columns: around 8, 16 and 64 rows, chunks of 64 columns and the last half of one, groups of 4, what a CTA's warps take at
# once (2048 columns), and what waits in registers (4096, 8192); experts of gpt-oss and of DeepSeek.
_SHAPES = (
    (1, 8, 32), (1, 16, 64), (2, 24, 96), (1, 64, 128), (3, 72, 32), (1, 80, 320), (2, 56, 288), (1, 8, 2080), (1, 16, 2048), (1, 8, 4096),
    (1, 8, 4128), (1, 16, 8192), (1, 8, 8224), (1, 8, 16_640), (1, 136, 224), (9, 8, 64), (0, 64, 128), (2, 0, 64),
    (1, 5760, 2880), (2, 576, 7168), (3, 528, 1536), (1, 64, 29_568),
)  # fmt: skip


# Variants pack and unpack the same matrices.
_packed_nvfp4, _packed_mxfp4 = remembered(megabytes=64)(pack_nvfp4), remembered(megabytes=64)(pack_mxfp4)
_unpacked_nvfp4, _unpacked_mxfp4 = remembered(megabytes=64)(unpack_nvfp4), remembered(megabytes=64)(unpack_mxfp4)


@dataclass(frozen=True)
class Order:
    """What the packer is told."""

    gates: str
    tokens: str


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    formats, unpacks = kernel.fields["formats"], kernel.fields["op"] == "unpack"
    make = {"nvfp4": _nvfp4, "mxfp4": _mxfp4}.get(formats)
    if make is None:
        raise NoChecks(kernel, f"packing {formats}", "add its problems to zoo/checks/fragments.py")
    random, block = numpy.random.default_rng(50), FORMATS[formats].block
    assert block is not None, "formats of two elements a byte have blocks"
    for gates, tokens in product(values_of(kernel, "gates"), values_of(kernel, "tokens")):
        for shape in _SHAPES:
            if gates == "plain" or shape[1] % 16 == 0:
                for kind, q, scales in _weights(random, shape, block):
                    for gap in (0, 1) if kind == "any" and q.size < 50_000 else (0,):
                        words = f"{kind} weights, {' x '.join(map(str, shape))}, {gates}, for {tokens}" + ", rows further apart" * gap
                        yield make(words, q, scales, Order(gates, tokens), gap, unpacks)


def _weights(random: numpy.random.Generator, shape: tuple[int, int, int], block: int) -> Iterator[tuple[str, numpy.ndarray, numpy.ndarray]]:
    matrices, rows, columns = shape
    q = random.integers(0, 256, (matrices, rows, columns // 2), numpy.uint8)
    of_scales = matrices, rows, columns // block
    yield "any", q, random.integers(0, 256, of_scales, numpy.uint8)
    yield "usual", q, random.integers(110, 126, of_scales, numpy.uint8)
    if q.size > 200_000:
        return
    # Blocks and rows of zeros of both signs, scales that are no numbers, scales far apart.
    q, scales = q.copy(), random.choice(numpy.array([0, 1, 100, 116, 117, 126, 127, 128, 254, 255], numpy.uint8), of_scales)
    pieces = q.reshape(matrices, rows, columns // block, block // 2)
    pieces[random.random(pieces.shape[:3]) < 0.5] &= 0x88
    q[:, ::3] &= 0x88
    scales[:, 1::5] = 255
    yield "special", q, scales


def _strides(shape: tuple[int, ...], gap: int) -> tuple[int, ...]:
    row = shape[2] + gap
    return shape[1] * row + gap, row, 1


def _matrices(q: numpy.ndarray, scales: numpy.ndarray, gap: int) -> dict[str, Placed]:
    return {"q": Placed(q, _strides(q.shape, 8 * gap), "e2m1x2"), "scales": Placed(scales, _strides(scales.shape, 3 * gap))}


def _nvfp4(words: str, q: numpy.ndarray, scales: numpy.ndarray, order: Order, gap: int, unpacks: bool) -> Problem:
    e4m3, (_, rows, half) = scales.view(ml_dtypes.float8_e4m3fn), q.shape
    if not unpacks:
        return Problem(words, _matrices(q, e4m3, gap), Later(lambda: {"b": Placed(_packed_nvfp4(q, e4m3, *astuple(order)))}), asdict(order))
    b = _packed_nvfp4(q, e4m3, *astuple(order))
    return Problem(
        words, {"b": Placed(b)}, Later(lambda: _matrices(*_unpacked_nvfp4(b, rows, 2 * half, *astuple(order)), gap)), asdict(order)
    )


def packs_mxfp4(words: str, q: numpy.ndarray, scales: numpy.ndarray, order: Order, gap: int = 0) -> Problem:
    ue8m0 = scales.view(ml_dtypes.float8_e8m0fnu)

    def packed() -> dict[str, Placed]:
        made = _packed_mxfp4(q, ue8m0, *astuple(order))
        counts = {} if gap else {"rounded": Placed(made.rounded)}  # an optional result
        return {"b": Placed(made.b), "row_scale": Placed(made.row_scale), **counts}

    return Problem(words, _matrices(q, ue8m0, gap), Later(packed), asdict(order))


def _mxfp4(words: str, q: numpy.ndarray, scales: numpy.ndarray, order: Order, gap: int, unpacks: bool) -> Problem:
    if not unpacks:
        return packs_mxfp4(words, q, scales, order, gap)
    made, (_, rows, half) = _packed_mxfp4(q, scales.view(ml_dtypes.float8_e8m0fnu), *astuple(order)), q.shape
    inputs = {"b": Placed(made.b), "row_scale": Placed(made.row_scale)}
    return Problem(
        words,
        inputs,
        Later(lambda: _matrices(*_unpacked_mxfp4(made.b, made.row_scale, rows, 2 * half, *astuple(order)), gap)),
        asdict(order),
    )
