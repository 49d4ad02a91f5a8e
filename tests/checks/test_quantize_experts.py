"""The problems of cols.experts catch tiles that reach into the next matrix, and more. The 'kernel' is the reference."""

from types import SimpleNamespace

import numpy
import pytest

from zoo import checks
from zoo.checks.quantize_directions import rules
from zoo.checks.quantize_experts import problems
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference.quantize import quantize_cols

_ROUNDINGS = {"rounding": ("floor", "rceil")}
RULES = {"mxfp8": _ROUNDINGS, "mxfp4": _ROUNDINGS, "nvfp4": {}, "fp8b128": {"scaling": ("exact", "pow2")}}
FORMATS = tuple(RULES)


def kernel(name):
    alignments = {"x": 16, "q": 16, "scales": 4 if name == "fp8b128" else 1} | ({"tensor_scale": 4} if name == "nvfp4" else {})
    layouts = ("plain", "mn_major" if name == "fp8b128" else "blocked")
    options = {option: SimpleNamespace(values=values) for option, values in (RULES[name] | {"layout": layouts}).items()}
    fields = {"op": "quantize", "formats": name, "direction": "cols", "grouping": "experts"}
    arguments = {argument: SimpleNamespace(alignment=alignment) for argument, alignment in alignments.items()}
    return SimpleNamespace(fields=fields, arguments=arguments, options=options)


def variant(name, x="bf16"):
    return SimpleNamespace(dtypes={"x": x, "q": "e4m3"} if name == "mxfp8" else {"x": x}, options={})


def executor(change=lambda buffers, after, format: None, change_settings=lambda settings: settings, one_scale=False):
    """The reference as a kernel, with one thing changed."""

    def execute(kernel, variant, buffers, settings):
        after = {name: buffer.image.copy() for name, buffer in buffers.items()}
        x = numpy.ascontiguousarray(buffers["x"].laid.elements(after["x"])).view(numpy_dtype(variant.dtypes["x"]))
        given = None
        if "tensor_scale" in buffers:
            given = buffers["tensor_scale"].laid.elements(after["tensor_scale"]).view(numpy.float32)
        settings = change_settings(settings)
        format = rules(kernel, variant).format(settings, given[:1] if one_scale else given)
        result = quantize_cols(x, format, settings["layout"])
        for name, values in (("q", result.q), ("scales", result.scales)):
            if values.size:
                elements = buffers[name].laid.elements(after[name])
                elements[...] = values.view(elements.dtype).reshape(elements.shape)
        change(buffers, after, format)
        return after

    return execute


@pytest.mark.parametrize("name", FORMATS)
def test_a_right_kernel_passes(name):
    outcome = checks.check(kernel(name), variant(name), executor())
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
    assert words in checks.check(kernel(name), variant(name), executor(change)).error


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "fp8b128"])
@pytest.mark.parametrize("chosen", [0, 1])
def test_an_option_that_a_launch_ignores_is_caught(name, chosen):
    ((option, values),) = RULES[name].items()
    ignoring = executor(change_settings=lambda settings: {**settings, option: values[chosen]})
    assert "wrong" in checks.check(kernel(name), variant(name), ignoring).error


def test_the_first_matrix_scale_for_all_is_caught():
    assert "wrong" in checks.check(kernel("nvfp4"), variant("nvfp4"), executor(one_scale=True)).error


@pytest.mark.parametrize("name", FORMATS)
def test_matrices_end_inside_tiles_and_others_follow(name):
    shapes = {problem.inputs["x"].values.shape for problem in problems(kernel(name), variant(name))}
    assert any(E > 1 and N % 256 and K % 64 for E, N, K in shapes)
    assert {0, 1, 15, 31, 255} <= {N % 256 for _, N, _ in shapes}
