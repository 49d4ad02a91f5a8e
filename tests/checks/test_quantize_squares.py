"""The problems of squares catch what kernels get wrong that serve both directions at once. The 'kernel' is the reference."""

import numpy
import pytest

from tests.checks.described import as_quantiser, flushed, options_of, quantiser, setting
from zoo import checks
from zoo.checks.quantize_squares import problems
from zoo.reference import FORMATS, block_format
from zoo.reference.quantize import quantize_squares_both


def kernel_and_variant(name):
    layouts = () if name == "fp8b128" else None  # its tables have no such option
    return quantiser(name, "squares", layouts, {"q": "e5m2"} if name == "mxfp8" else {})


def executor(**changes):
    def quantize(x, format, settings):
        return zip(quantize_squares_both(x, format, settings.get("layout", "plain")), ("", "_cols"), strict=True)

    return as_quantiser(quantize, **changes)


def check(name, **changes):
    return checks.check(*kernel_and_variant(name), executor(**changes))


@pytest.mark.parametrize("name", FORMATS)
def test_a_right_kernel_passes(name):
    outcome = check(name)
    assert outcome.error is None and outcome.checks > 60


def last_bit_of(name, index):
    def change(buffers, after):
        if name in buffers and 0 not in buffers[name].laid.shape:
            buffers[name].laid.elements(after[name])[index] ^= 1

    return change


def whole_chunks(buffers, after):
    """Stores 16 bytes of a transposed row where fewer are its own."""
    if "q_cols" in buffers and 0 not in buffers["q_cols"].laid.shape:
        laid = buffers["q_cols"].laid
        length = laid.shape[2]
        end = laid.offset + length
        after["q_cols"][end : end + -length % 16] = 0


def other_directions_elements(buffers, after):
    """Where matrices are quadratic: not transposed at all."""
    if "q_cols" in buffers and buffers["q"].laid.shape == buffers["q_cols"].laid.shape and 0 not in buffers["q"].laid.shape:
        buffers["q_cols"].laid.elements(after["q_cols"])[...] = buffers["q"].laid.elements(after["q"])


def first_matrix_twice(buffers, after):
    elements = buffers["q"].laid.elements(after["q"])
    if elements.shape[0] > 1 and elements.size:
        elements[1] = elements[0]


def padding_forgotten(name):
    def change(buffers, after):
        if name in buffers:
            laid = buffers[name].laid
            before = laid.elements(buffers[name].image)
            if before.size and before.shape[1] % 128 == 0 and laid.elements(after[name])[-1, -1, -1] == 0:
                laid.elements(after[name])[-1, -1, -1] = before[-1, -1, -1]

    return change


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "mistake",
    [
        {"change_x": flushed},
        {"change": last_bit_of("q", (-1, -1, -1))},
        {"change": last_bit_of("q_cols", (-1, -1, -1))},
        {"change": last_bit_of("scales", (0, 0, 0))},
        {"change": last_bit_of("scales_cols", (0, 0, 0))},
        {"change": first_matrix_twice},
        {"change": other_directions_elements},
    ],
    ids=["flush to zero", "element", "transposed element", "scale", "transposed scale", "first matrix twice", "not transposed"],
)
def test_a_slightly_wrong_kernel_is_caught(name, mistake):
    assert "wrong" in check(name, **mistake).error


@pytest.mark.parametrize("name", FORMATS)
def test_a_store_past_the_end_of_a_transposed_row_is_caught(name):
    assert "not the kernel's" in check(name, change=whole_chunks).error


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("scales", ["scales", "scales_cols"])
def test_padding_of_blocked_scales_left_unwritten_is_caught(name, scales):
    assert "never written" in check(name, change=padding_forgotten(scales)).error


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "fp8b128"])
@pytest.mark.parametrize("chosen", [0, 1])
def test_an_option_that_a_launch_ignores_is_caught(name, chosen):
    ((option, values),) = options_of(name).items()
    assert "wrong" in check(name, change_settings=setting(**{option: values[chosen]})).error


def test_the_first_matrix_scale_for_all_is_caught():
    first = check("nvfp4", change_format=lambda format: block_format("nvfp4", tensor_scale=format.tensor_scale.reshape(-1)[0]))
    assert "wrong" in first.error


def test_squares_that_take_their_neighbours_magnitudes_are_caught():
    def blurred(x):
        """Each matrix as large as its largest number, everywhere."""
        return numpy.where(numpy.arange(x.shape[2]) == 0, x.max(initial=x.dtype.type(0)), x)

    assert "wrong" in check("mxfp8", change_x=blurred).error


@pytest.mark.parametrize("name", FORMATS)
def test_shapes_end_inside_every_unit_with_and_without_the_transpose(name):
    every = problems(*kernel_and_variant(name))
    seen = {(problem.inputs["x"].values.shape[1] % 128, "q_cols" in problem.outputs) for problem in every}
    for transposed in (True, False):
        ends = {rows for rows, with_cols in seen if with_cols is transposed}
        assert {1, 7, 9, 15, 31, 127, 0} <= ends, transposed
