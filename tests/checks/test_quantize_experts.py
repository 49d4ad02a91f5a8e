"""The problems of cols.experts catch tiles that reach into the next matrix, and more. The 'kernel' is the reference."""

import pytest

from tests.checks.described import as_quantiser, options_of, quantiser, setting
from zoo import checks
from zoo.checks.quantize_experts import problems
from zoo.reference import FORMATS, block_format
from zoo.reference.quantize import quantize_cols


def kernel_and_variant(name):
    return quantiser(name, "cols", grouping="experts")


def check(name, **changes):
    execute = as_quantiser(lambda x, format, settings: [(quantize_cols(x, format, settings["layout"]), "")], **changes)
    return checks.check(*kernel_and_variant(name), execute)


@pytest.mark.parametrize("name", FORMATS)
def test_a_right_kernel_passes(name):
    outcome = check(name)
    assert outcome.error is None and outcome.checks > 60


def columns_past_the_end(buffers, after, format):
    """A tile of 64 columns of x, stored whole: it reaches into the next matrix of q."""
    elements = buffers["q"].laid.elements(after["q"])
    if elements.shape[0] > 1 and elements.shape[1] % 64 and elements.size:
        elements[1, 0] = 0


def rows_of_the_next_matrix(buffers, after, format):
    """The last block, where it is short, is made of the next matrix's first rows too."""
    elements = buffers["scales"].laid.elements(after["scales"])
    if buffers["x"].laid.shape[1] % format.block and elements.size:
        elements[0, 0, -1] ^= 1


def whole_chunks(buffers, after, format):
    laid = buffers["q"].laid
    if laid.shape[2] % 16 and 0 not in laid.shape:
        end = laid.offset + laid.shape[2]
        after["q"][end : end + -laid.shape[2] % 16] = 0


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("change", "words"),
    [(columns_past_the_end, "are wrong"), (rows_of_the_next_matrix, "are wrong"), (whole_chunks, "not the kernel's")],
)
def test_a_tile_that_reaches_too_far_is_caught(name, change, words):
    assert words in check(name, change=lambda buffers, after: change(buffers, after, FORMATS[name])).error


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "fp8b128"])
@pytest.mark.parametrize("chosen", [0, 1])
def test_an_option_that_a_launch_ignores_is_caught(name, chosen):
    ((option, values),) = options_of(name).items()
    assert "wrong" in check(name, change_settings=setting(**{option: values[chosen]})).error


def test_the_first_matrix_scale_for_all_is_caught():
    first = check("nvfp4", change_format=lambda format: block_format("nvfp4", tensor_scale=format.tensor_scale[:1]))
    assert "wrong" in first.error


@pytest.mark.parametrize("name", FORMATS)
def test_matrices_end_inside_tiles_and_others_follow(name):
    shapes = {problem.inputs["x"].values.shape for problem in problems(*kernel_and_variant(name))}
    assert any(E > 1 and N % 256 and K % 64 for E, N, K in shapes)
    assert {0, 1, 15, 31, 255} <= {N % 256 for _, N, _ in shapes}
