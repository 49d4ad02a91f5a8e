"""The problems of squares catch what kernels get wrong that serve both directions at once. The 'kernel' is the reference."""

from types import SimpleNamespace

import numpy
import pytest

from zoo import checks
from zoo.checks.quantize_squares import problems
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference import Fp8b128, Mxfp4, Mxfp8, Nvfp4
from zoo.reference.quantize import quantize_squares_both

LAYOUTS = {"layout": ("plain", "blocked")}
_ROUNDINGS = {"rounding": ("floor", "rceil")}
RULES = {"mxfp8": _ROUNDINGS, "mxfp4": _ROUNDINGS, "nvfp4": {}, "fp8b128": {"scaling": ("exact", "pow2")}}
OPTIONS = {name: rules if name == "fp8b128" else rules | LAYOUTS for name, rules in RULES.items()}
FORMATS = tuple(RULES)


def kernel(name):
    alignments = {"x": 16, "q": 16, "q_cols": 16, "scales": 1, "scales_cols": 1}
    if name == "nvfp4":
        alignments |= {"tensor_scale": 4}
    if name == "fp8b128":
        alignments |= {"scales": 4, "scales_cols": 4}
    arguments = {argument: SimpleNamespace(alignment=alignment) for argument, alignment in alignments.items()}
    options = {option: SimpleNamespace(values=values) for option, values in OPTIONS[name].items()}
    fields = {"op": "quantize", "formats": name, "direction": "squares"}
    return SimpleNamespace(fields=fields, arguments=arguments, options=options)


def variant(name, x="bf16"):
    return SimpleNamespace(dtypes={"x": x, "q": "e5m2"} if name == "mxfp8" else {"x": x}, options={})


def format_of(name, settings, buffers, after):
    if name == "mxfp8":
        return Mxfp8("e5m2", settings["rounding"])
    if name == "mxfp4":
        return Mxfp4(settings["rounding"])
    if name == "fp8b128":
        return Fp8b128(settings["scaling"] == "pow2")
    given = buffers["tensor_scale"].laid.elements(after["tensor_scale"]).view(numpy.float32)
    return Nvfp4(given if len(given) > 1 else given[0])


def same(value):
    return value


def executor(change_x=same, change_settings=same, change_format=same, change=lambda buffers, after: None):
    """The reference as a kernel, with one thing changed."""

    def execute(kernel, variant, buffers, settings):
        after = {name: buffer.image.copy() for name, buffer in buffers.items()}
        x = numpy.ascontiguousarray(buffers["x"].laid.elements(after["x"])).view(numpy_dtype(variant.dtypes["x"]))
        settings = change_settings(settings)
        format = change_format(format_of(kernel.fields["formats"], settings, buffers, after))
        results = quantize_squares_both(change_x(x), format, settings.get("layout", "plain"))
        for result, suffix in zip(results, ("", "_cols"), strict=True):
            for name, values in (("q", result.q), ("scales", result.scales)):
                if name + suffix in buffers and values.size:
                    elements = buffers[name + suffix].laid.elements(after[name + suffix])
                    elements[...] = values.view(elements.dtype).reshape(elements.shape)
        change(buffers, after)
        return after

    return execute


@pytest.mark.parametrize("name", FORMATS)
def test_a_right_kernel_passes(name):
    outcome = checks.check(kernel(name), variant(name), executor())
    assert outcome.error is None and outcome.checks > 60


def flushed(x):
    return numpy.where(numpy.abs(x.astype(numpy.float32)) < numpy.finfo(numpy.float32).tiny, x.dtype.type(0), x)


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
    assert "wrong" in checks.check(kernel(name), variant(name), executor(**mistake)).error


@pytest.mark.parametrize("name", FORMATS)
def test_a_store_past_the_end_of_a_transposed_row_is_caught(name):
    assert "not the kernel's" in checks.check(kernel(name), variant(name), executor(change=whole_chunks)).error


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("scales", ["scales", "scales_cols"])
def test_padding_of_blocked_scales_left_unwritten_is_caught(name, scales):
    assert "never written" in checks.check(kernel(name), variant(name), executor(change=padding_forgotten(scales))).error


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "fp8b128"])
@pytest.mark.parametrize("chosen", [0, 1])
def test_an_option_that_a_launch_ignores_is_caught(name, chosen):
    ((option, values),) = RULES[name].items()
    ignoring = executor(change_settings=lambda settings: {**settings, option: values[chosen]})
    assert "wrong" in checks.check(kernel(name), variant(name), ignoring).error


def test_the_first_matrix_scale_for_all_is_caught():
    first = executor(change_format=lambda format: Nvfp4(format.tensor_scale.reshape(-1)[0]))
    assert "wrong" in checks.check(kernel("nvfp4"), variant("nvfp4"), first).error


def test_squares_that_take_their_neighbours_magnitudes_are_caught():
    def blurred(x):
        """Each matrix as large as its largest number, everywhere."""
        return numpy.where(numpy.arange(x.shape[2]) == 0, x.max(initial=x.dtype.type(0)), x)

    assert "wrong" in checks.check(kernel("mxfp8"), variant("mxfp8"), executor(change_x=blurred)).error


@pytest.mark.parametrize("name", FORMATS)
def test_shapes_end_inside_every_unit_with_and_without_the_transpose(name):
    every = problems(kernel(name), variant(name))
    seen = {(problem.inputs["x"].values.shape[1] % 128, "q_cols" in problem.outputs) for problem in every}
    for transposed in (True, False):
        ends = {rows for rows, with_cols in seen if with_cols is transposed}
        assert {1, 7, 9, 15, 31, 127, 0} <= ends, transposed
