"""The problems of the directions cols and both catch what kernels that transpose get wrong. The 'kernel' is the reference."""

import pytest

from tests.checks.described import as_quantiser, quantiser
from zoo import checks
from zoo.checks.quantize_directions import problems
from zoo.reference import quantize_cols, quantize_rows


def described(direction, format="mxfp8", layouts=None, **dtypes):
    return quantiser(format, direction, layouts, dtypes)


def quantize(x, format, settings):
    """All that a kernel of either direction may have; what it has no arrays for is not written."""
    along_m = quantize_cols(x, format, settings["layout"])
    rows = [(quantize_rows(x, format, settings["layout"]), "_rows")] if x.shape[1] % format.block == 0 or format.short_last_block else []
    return [(along_m, ""), (along_m, "_cols"), *rows]


right = as_quantiser(quantize)


@pytest.mark.parametrize("direction", ["cols", "both"])
@pytest.mark.parametrize(("x", "element"), [("bf16", "e4m3"), ("f16", "e5m2"), ("f32", "e4m3")])
def test_a_right_kernel_passes(direction, x, element):
    outputs = ("q",) if direction == "cols" else ("q_rows", "q_cols")
    outcome = checks.check(*described(direction, x=x, **dict.fromkeys(outputs, element)), right)
    assert outcome.error is None and outcome.checks > 25


@pytest.mark.parametrize("direction", ["cols", "both"])
@pytest.mark.parametrize("format", ["mxfp4", "nvfp4", "fp8b128"])
def test_a_right_kernel_of_another_format_passes(direction, format):
    outcome = checks.check(*described(direction, format), right, most_elements=100_000)
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

    outcome = checks.check(*described(direction, layouts=(layout,)), wrong)
    assert outcome.error is not None and words in outcome.error


def test_results_of_rows_and_cols_exchanged_are_caught():
    def exchanged(kernel, variant, buffers, settings):
        after = right(kernel, variant, buffers, settings)
        rows, cols = buffers["q_rows"].laid, buffers["q_cols"].laid
        if 0 not in rows.shape:  # the elements of the other direction's blocks, in the right place
            rows.elements(after["q_rows"])[...] = cols.elements(after["q_cols"]).T.copy()
        return after

    outcome = checks.check(*described("both"), exchanged)
    assert outcome.error is not None and "q_rows" in outcome.error


@pytest.mark.parametrize("direction", ["cols", "both"])
def test_every_remainder_of_the_16_byte_stores_and_of_the_blocks_has_a_size(direction):
    rows = {problem.inputs["x"].values.shape[0] for problem in problems(*described(direction))}
    assert {1, 15} <= {size % 16 for size in rows} and {0, 1, 31} <= {size % 32 for size in rows}
    assert any(size > 1024 and size % 256 for size in rows)
