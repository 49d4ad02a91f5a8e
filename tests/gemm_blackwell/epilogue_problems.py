"""Problems whose sums are exact in any order (exact_groups) and what gated units and quantisers of zoo.reference make of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import ml_dtypes
import numpy

from tests.gemm_blackwell.exact_groups import contiguous, masked
from zoo.checks.problem import Placed, Problem
from zoo.reference.block_formats import block_format
from zoo.reference.block_scaled_epilogues import Gates, made_of_sums, quantised
from zoo.reference.gemm import rounded

USUAL = Gates()


@dataclass(frozen=True)
class Epilogue:
    extra: str  # of the kernel's name
    gates: Gates = USUAL
    bias: str | None = "f32"
    scaled_rows: bool = True
    several: bool = True  # alpha and tensor scale: one for each group
    d: str = "f32"
    element: str = "e4m3"
    rounding: str = "floor"
    gap: int = 0

    @property
    def gated(self) -> bool:
        return self.extra.startswith("swiglu")

    @property
    def format(self) -> str | None:
        word = self.extra.split("_")[-1]
        return None if word == "swiglu" else word

    def settings(self) -> dict[str, str | float]:
        found: dict[str, str | float] = {}
        if self.gated:
            found |= {"gates": self.gates.order, "activation": self.gates.activation, "limit": float(self.gates.limit)}
        return found | ({"rounding": self.rounding} if self.format == "mxfp8" else {})


def of_matrix(format: str, M: int, N: int, K: int, epilogue: Epilogue) -> Problem:
    one = of_groups(format, N, K, (M,), replace(epilogue, several=False))
    rows = -(-M // 128) * 128
    inputs = {name: placed for name, placed in one.inputs.items() if name != "offsets"}
    inputs["b"] = replace(inputs["b"], values=inputs["b"].values[0], strides=inputs["b"].strides[1:])
    inputs["b_scale"] = replace(inputs["b_scale"], values=inputs["b_scale"].values[0])
    inputs["a_scale"] = replace(inputs["a_scale"], values=inputs["a_scale"].values[:rows])
    if "bias" in inputs:
        inputs["bias"] = replace(inputs["bias"], values=inputs["bias"].values[0])
    outputs = {name: replace(placed, untouched=None) for name, placed in one.outputs.items()}
    if "scales" in outputs:
        outputs["scales"] = replace(outputs["scales"], values=outputs["scales"].values[:rows])
    return Problem(one.name, inputs, outputs, one.settings)


def of_groups(format: str, N: int, K: int, sizes: tuple[int, ...], epilogue: Epilogue, nobody: int = 0) -> Problem:
    base = contiguous(format, N, K, sizes, nobody, gap=epilogue.gap)
    M, ends = sum(sizes) + nobody, numpy.cumsum(sizes)
    groups = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    return _made(base, [base.outputs["d"].values[rows] for rows in groups], groups, (M,), -(-M // 128) + len(sizes), epilogue)


def of_places(format: str, N: int, K: int, R: int, used: tuple[int, ...], epilogue: Epilogue) -> Problem:
    base = masked(format, N, K, R, used, gap=epilogue.gap)
    groups = [(group, slice(0, count)) for group, count in enumerate(used)]
    return _made(base, [base.outputs["d"].values[place] for place in groups], groups, (len(used), R), -(-R // 128), epilogue)


def _made(base: Problem, sums: list, places: list, rows: tuple[int, ...], row_tiles: int, epilogue: Epilogue) -> Problem:
    """`sums` of each group, which lie at `places` of an array with these `rows`; row_tiles of scales, of each place where rows are."""
    random = numpy.random.default_rng(len(sums) + rows[-1])
    G, N = len(sums), base.inputs["b"].values.shape[1]
    columns = N // 2 if epilogue.gated else N
    alpha = random.uniform(0.01, 0.05, G if epilogue.several else 1).astype(numpy.float32)
    bias = random.standard_normal((G, N)).astype(ml_dtypes.bfloat16 if epilogue.bias == "bf16" else numpy.float32)
    row_scale = random.uniform(0.1, 1, rows).astype(numpy.float32)
    tensor_scale = random.uniform(0.001, 0.1, G if epilogue.several else 1).astype(numpy.float32)
    inputs = dict(base.inputs) | {"alpha": Placed(alpha)}
    inputs |= {"bias": Placed(bias)} if epilogue.bias else {}
    inputs |= {"row_scale": Placed(row_scale)} if epilogue.scaled_rows else {}
    inputs |= {"tensor_scale": Placed(tensor_scale)} if epilogue.format == "nvfp4" else {}
    h = [
        made_of_sums(
            group_sums,
            epilogue.gates if epilogue.gated else None,
            alpha[index % len(alpha)],
            bias[index] if epilogue.bias else None,
            row_scale[place] if epilogue.scaled_rows else None,
        )
        for index, (group_sums, place) in enumerate(zip(sums, places, strict=True))
    ]
    nobody = numpy.ones(rows, bool)
    for place in places:
        nobody[place] = False
    if epilogue.format is None:
        values = numpy.zeros((*rows, columns), numpy.float32)
        for place, part in zip(places, h, strict=True):
            values[place] = part
        return Problem(base.name, inputs, {"d": _apart(rounded(values, epilogue.d), nobody, 8 * epilogue.gap)}, epilogue.settings())
    whole = -(-columns // (16 if epilogue.format == "nvfp4" else 32) // 4) * 4
    q = numpy.zeros((*rows, columns // 2), numpy.uint8)
    if epilogue.format == "mxfp8":
        q = numpy.zeros((*rows, columns), {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[epilogue.element])
    scales = numpy.zeros((*rows[:-1], row_tiles * 128, whole), numpy.uint8)
    ours = numpy.zeros(scales.shape, bool)
    begin = 0
    for index, (place, part) in enumerate(zip(places, h, strict=True)):
        own = {"tensor_scale": tensor_scale[index % len(tensor_scale)]} if epilogue.format == "nvfp4" else {"rounding": epilogue.rounding}
        made = quantised(
            part, block_format(epilogue.format, **({} if epilogue.format == "nvfp4" else {"element": epilogue.element}), **own)
        )
        q[place] = made.q
        tiles = -(-len(part) // 128) * 128
        at = (index, slice(0, tiles)) if len(rows) == 2 else slice(begin, begin + tiles)
        begin += tiles
        scales[at] = made.scales.view(numpy.uint8).reshape(tiles, whole)
        ours[at] = True
    outputs = {
        "q": replace(_apart(q, nobody, 16 * epilogue.gap), dtype="e2m1x2" if epilogue.format == "nvfp4" else None),
        "scales": Placed(scales, dtype="e4m3" if epilogue.format == "nvfp4" else "ue8m0", untouched=~ours),
    }
    return Problem(base.name, inputs, outputs, epilogue.settings())


def _apart(values: numpy.ndarray, nobody: numpy.ndarray, gap: int) -> Placed:
    row = values.shape[-1] + gap
    strides = (row, 1) if values.ndim == 2 else (values.shape[1] * row, row, 1)
    return Placed(values, strides, untouched=numpy.broadcast_to(nobody[..., None], values.shape))
