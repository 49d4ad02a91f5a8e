"""The problems of the directions cols and both catch what kernels that transpose get wrong. The 'kernel' is the reference."""

from types import SimpleNamespace

import numpy
import pytest

from zoo import checks
from zoo.checks.quantize_directions import problems, rules
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference import quantize_cols, quantize_rows

ARGUMENTS = {"x": 16, "tensor_scale": 4, "q": 16, "scales": 4, "q_rows": 16, "scales_rows": 4, "q_cols": 16, "scales_cols": 4}
LAYOUTS = ("plain", "blocked")


def kernel(direction, formats="mxfp8", layouts=LAYOUTS):
    arguments = {name: SimpleNamespace(alignment=alignment) for name, alignment in ARGUMENTS.items()}
    fields, options = {"op": "quantize", "formats": formats, "direction": direction}, {"layout": SimpleNamespace(values=layouts)}
    return SimpleNamespace(name=f"quantize.{formats}.{direction}", fields=fields, options=options, arguments=arguments)


def variant(direction, x="bf16", element="e4m3"):
    outputs = ("q",) if direction == "cols" else ("q_rows", "q_cols")
    return SimpleNamespace(dtypes={"x": x, **dict.fromkeys(outputs, element)}, options={})


def right(kernel, variant, buffers, settings):
    after = {name: buffer.image.copy() for name, buffer in buffers.items()}
    x = numpy.ascontiguousarray(buffers["x"].laid.elements(after["x"])).view(numpy_dtype(variant.dtypes["x"]))
    given = buffers["tensor_scale"].laid.elements(after["tensor_scale"]) if "tensor_scale" in buffers else numpy.zeros(1, numpy.uint32)
    format = rules(kernel, variant).format(settings, given.view(numpy.float32))
    for quantize, suffixes in ((quantize_cols, ("", "_cols")), (quantize_rows, ("_rows",))):
        for suffix in suffixes:
            if f"q{suffix}" in buffers:
                result = quantize(x, format, settings["layout"])
                for name, values in (("q", result.q), ("scales", result.scales)):
                    laid = buffers[name + suffix].laid
                    if values.size:
                        elements = laid.elements(after[name + suffix])
                        elements[...] = values.view(elements.dtype).reshape(laid.shape)
    return after


@pytest.mark.parametrize("direction", ["cols", "both"])
@pytest.mark.parametrize(("x", "element"), [("bf16", "e4m3"), ("f16", "e5m2"), ("f32", "e4m3")])
def test_a_right_kernel_passes(direction, x, element):
    outcome = checks.check(kernel(direction), variant(direction, x, element), right)
    assert outcome.error is None and outcome.checks > 25


@pytest.mark.parametrize("direction", ["cols", "both"])
@pytest.mark.parametrize(("formats", "layouts"), [("mxfp4", LAYOUTS), ("nvfp4", LAYOUTS), ("fp8b128", ("plain", "mn_major"))])
def test_a_right_kernel_of_another_format_passes(direction, formats, layouts):
    outcome = checks.check(kernel(direction, formats, layouts), variant(direction), right, most_elements=100_000)
    assert outcome.error is None and outcome.checks > 25


def whole_chunks(buffers, after, name):
    """Stores 16 bytes at a time, as the copy engine does, where M ends inside them."""
    laid = buffers[name].laid
    columns, rows = laid.shape
    if rows % 16 and columns:
        end = laid.offset + rows
        after[name][end : end + 16 - rows % 16] = 0


def short_block_from_a_whole_one(buffers, after, name):
    """The last block's scale, where it is short, is that of a block of zeros."""
    laid = buffers[name].laid
    if buffers["x"].laid.shape[0] % 32 and laid.shape[0]:
        elements = laid.elements(after[name])
        elements[0, (buffers["x"].laid.shape[0] - 1) // 32] ^= 1


def padding_forgotten(buffers, after, name):
    """The padding rows of blocked scales, past K, keep what was there."""
    columns = buffers["x"].laid.shape[1]
    laid = buffers[name].laid
    if columns % 128 and 0 not in buffers["x"].laid.shape:
        laid.elements(after[name])[-1, -1] = laid.elements(buffers[name].image)[-1, -1]


@pytest.mark.parametrize("direction", ["cols", "both"])
@pytest.mark.parametrize(
    ("change", "of", "layout", "words"),
    [
        (whole_chunks, "q", "plain", "not the kernel's"),
        (short_block_from_a_whole_one, "scales", "plain", "are wrong"),
        (padding_forgotten, "scales", "blocked", "never written"),
    ],
)
def test_a_mistake_of_transposing_kernels_is_caught(direction, change, of, layout, words):
    name = of if direction == "cols" else f"{of}_cols"

    def wrong(kernel, variant, buffers, settings):
        after = right(kernel, variant, buffers, settings)
        change(buffers, after, name)
        return after

    outcome = checks.check(kernel(direction, layouts=(layout,)), variant(direction), wrong)
    assert outcome.error is not None and words in outcome.error


def test_results_of_rows_and_cols_exchanged_are_caught():
    def exchanged(kernel, variant, buffers, settings):
        after = right(kernel, variant, buffers, settings)
        rows, cols = buffers["q_rows"].laid, buffers["q_cols"].laid
        if 0 not in rows.shape:  # the elements of the other direction's blocks, in the right place
            rows.elements(after["q_rows"])[...] = cols.elements(after["q_cols"]).T.copy()
        return after

    outcome = checks.check(kernel("both"), variant("both"), exchanged)
    assert outcome.error is not None and "q_rows" in outcome.error


@pytest.mark.parametrize("direction", ["cols", "both"])
def test_every_remainder_of_the_16_byte_stores_and_of_the_blocks_has_a_size(direction):
    rows = {problem.inputs["x"].values.shape[0] for problem in problems(kernel(direction), variant(direction))}
    assert {1, 15} <= {size % 16 for size in rows} and {0, 1, 31} <= {size % 32 for size in rows}
    assert any(size > 1024 and size % 256 for size in rows)
