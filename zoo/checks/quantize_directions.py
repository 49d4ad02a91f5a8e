"""Problems for quantisation along M and along both dimensions at once; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, product

import numpy

from zoo.checks.block_inputs import hazards, spread
from zoo.checks.problem import Placed, Problem
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.amax import tensor_amax
from zoo.reference.block_formats import BlockFormat, Fp8b128, Mxfp4, Mxfp8, Nvfp4, nvfp4_tensor_scale
from zoo.reference.layouts import blocked_shape
from zoo.reference.quantize import Quantized, quantize_both, quantize_cols
from zoo.reference.scales import mn_major_stride
from zoo.reference.small_floats import ELEMENTS

# Around 16 bytes of a row of q, blocks along M, tiles of 128 or 256 x 64 or 128, tiles of blocked scales.
_COLS_SHAPES = (
    (1, 8), (15, 16), (16, 24), (17, 40), (31, 32), (32, 56), (33, 64), (63, 72), (64, 8), (65, 136), (96, 120), (127, 128),
    (128, 136), (129, 72), (129, 200), (160, 192), (255, 264), (257, 56), (1023, 96), (1025, 152), (1152, 64), (2100, 328),
    (3, 4104), (16389, 8),
)  # fmt: skip
_BOTH_SHAPES = (
    (1, 32), (15, 64), (16, 96), (17, 32), (31, 160), (32, 128), (33, 288), (64, 64), (65, 160), (127, 192), (128, 128), (129, 96),
    (129, 992), (160, 64), (255, 96), (257, 32), (1023, 64), (1025, 160), (1152, 64), (2100, 352), (3, 4128), (16389, 32),
)  # fmt: skip
# Half of what the copy engine stores, and short blocks along K.
_BOTH_HALVES = {
    "nvfp4": ((1, 16), (17, 16), (33, 48), (5, 144), (130, 272)),
    "fp8b128": ((1, 16), (3, 16), (31, 48), (33, 144), (130, 272)),
}
_TENSOR_SCALES = (1.0, 0.3, 1e-45, 2.0**-128, 3.4e38, numpy.inf, numpy.nan, 0.0)


@dataclass(frozen=True)
class Rules:
    """What a format is made with: the element, and what a call may choose."""

    kind: type
    element: str
    choices: tuple[dict[str, str], ...]

    def format(self, choice: dict[str, str], tensor_scale: numpy.ndarray | None) -> BlockFormat:
        if self.kind is Mxfp8:
            return Mxfp8(self.element, choice["rounding"])
        if self.kind is Mxfp4:
            return Mxfp4(choice["rounding"])
        return Nvfp4(tensor_scale) if self.kind is Nvfp4 else Fp8b128(choice["scaling"] == "pow2")


_ROUNDINGS = ({"rounding": "floor"}, {"rounding": "rceil"})
_SCALINGS = ({"scaling": "exact"}, {"scaling": "pow2"})


def rules(kernel: Kernel, variant: Variant) -> Rules:
    match kernel.fields["formats"]:
        case "mxfp8":
            return Rules(Mxfp8, variant.dtypes.get("q") or variant.dtypes["q_rows"], _ROUNDINGS)
        case "mxfp4":
            return Rules(Mxfp4, "e2m1", _ROUNDINGS)
        case "nvfp4":
            return Rules(Nvfp4, "e2m1", ({},))
        case "fp8b128":
            return Rules(Fp8b128, "e4m3", _SCALINGS)
    raise NotImplementedError(f"{kernel.name}: zoo/checks/quantize_directions.py does not know this format")


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    both, own = kernel.fields["direction"] == "both", rules(kernel, variant)

    def problem(name: str, x: numpy.ndarray, choice: dict[str, str], layout: str, gap=0, tensor_scale=None) -> Problem:
        given = scale_of_tensor(x) if tensor_scale is None else numpy.array([tensor_scale], numpy.float32)
        format = own.format(choice, given)
        inputs = {"x": Placed(x, (x.shape[1] + gap * 16 // x.dtype.itemsize, 1))}
        if own.kind is Nvfp4:
            inputs["tensor_scale"] = Placed(given)
        if both:
            along_k, along_m = quantize_both(x, format, layout)
            outputs = placed(along_k, ("q_rows", "scales_rows"), x.shape, format, layout, gap)
            outputs |= placed(along_m, ("q_cols", "scales_cols"), x.shape[::-1], format, layout, gap)
        else:
            outputs = placed(quantize_cols(x, format, layout), ("q", "scales"), x.shape[::-1], format, layout, gap)
        settings = {"layout": layout, **choice}
        return Problem(", ".join((name, *settings.values())), inputs, outputs, settings)

    dtype, block, random = variant.dtypes["x"], own.kind.block, numpy.random.default_rng(21)
    layouts, choices = kernel.options["layout"].values, cycle(own.choices)
    shapes = (*_BOTH_SHAPES, *_BOTH_HALVES.get(kernel.fields["formats"], ())) if both else _COLS_SHAPES
    for shape in shapes:
        x = numpy.ascontiguousarray(spread(shape[::-1], dtype, block, random).T)
        choice = next(choices)
        yield from (problem(f"shape {shape[0]} x {shape[1]}", x, choice, layout) for layout in layouts)
    for shape in ((129, 992), (3, 32), (129, 96), (200, 416), (256, 64)):
        x, choice = spread(shape, dtype, block, random), next(choices)
        yield from (problem(f"strided rows, {shape[0]} x {shape[1]}", x, choice, layout, gap=3) for layout in layouts)
    yield from (problem("no rows", spread((0, 256), dtype, block, random), next(choices), layout) for layout in layouts)
    for name, blocks in hazards(dtype, block, ELEMENTS[own.element].dtype):  # a row of blocks there is a column here
        every = numpy.resize(blocks, (-(-len(blocks) // 32) * 32, blocks.shape[1]))
        for choice, layout in product(own.choices, layouts):
            yield problem(name, numpy.ascontiguousarray(every.T), choice, layout)
    for tensor_scale in _TENSOR_SCALES if own.kind is Nvfp4 else ():
        x = numpy.ascontiguousarray(spread((48, 272), dtype, block, random).T)
        yield from (problem(f"tensor scale {tensor_scale:g}", x, {}, layout, tensor_scale=tensor_scale) for layout in layouts)


def scale_of_tensor(x: numpy.ndarray) -> numpy.ndarray:
    """NVFP4's scale for what is finite in x."""
    with numpy.errstate(invalid="ignore"):
        finite = numpy.where(numpy.isfinite(x.astype(numpy.float32)), x, x.dtype.type(0))
    return nvfp4_tensor_scale(tensor_amax(finite)).reshape(1)


def placed(
    result: Quantized, names: tuple[str, str], shape: tuple[int, int], format: BlockFormat, layout: str, gap: int
) -> dict[str, Placed]:
    """Elements and scales of a matrix of this shape, blocks along its rows; the rows of q start at multiples of 16 bytes."""
    rows, columns = shape
    blocks = -(-columns // format.block)
    q = Placed(result.q, (-(-result.q.shape[1] // 16) * 16 + 16 * gap, 1), "e2m1x2" if format.packed else None)
    if layout == "blocked":
        return {names[0]: q, names[1]: Placed(result.scales.reshape(blocked_shape(rows, blocks)))}
    stride = mn_major_stride(rows) + 4 * gap if layout == "mn_major" else blocks + gap
    return {names[0]: q, names[1]: Placed(result.scales, (stride, 1))}
