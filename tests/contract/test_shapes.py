"""What `zoo.call` makes, and what `zoo.launch` forgives: from the manifest alone, without a driver."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

import zoo
from tests.contract.entries import entry
from zoo.benchmark.arguments import resolve_without_device
from zoo.contract import trial
from zoo.contract.array import Array, contiguous_strides
from zoo.contract.manifest import parse_kernel
from zoo.contract.shapes import forgiven, made, settle, sizes


def array(dtype: str, *shape: int, strides: tuple[int, ...] | None = None) -> Array:
    return Array(256, dtype, shape, strides or contiguous_strides(shape))


def test_outputs_have_the_shapes_that_the_manifest_says():
    found = zoo.shapes("quantize.fp8b128.rows", x=((100, 7168), "bf16"))
    assert found["q"] == ((100, 7168), "e4m3", (7168, 1), "write")
    assert found["scales"] == ((100, 56), "f32", (56, 1), "write")


def test_scales_with_m_contiguous_come_as_the_view_that_products_read():
    found = zoo.shapes("quantize.fp8b128.rows", x=((102, 7168), "bf16"), layout="mn_major")["scales"]
    assert found.shape == (102, 56) and found.strides == (1, 104)  # rows of the (56, 102) begin at multiples of 16 bytes


def test_a_pitch_that_the_kernel_refuses_is_rounded_up():
    assert zoo.shapes("quantize.fp8b128.cols", x=((100, 512), "bf16"))["q"].strides == (112, 1)
    assert zoo.shapes("quantize.fp8b128.cols", x=((112, 512), "bf16"))["q"].strides == (112, 1)
    assert zoo.shapes("pack.mxfp4", q=((5, 80), "u8"))["packed"].strides == (128, 1)


def test_workspaces_are_made_although_a_launch_may_do_without():
    inputs = dict(a=((10, 512), "e4m3"), a_scale=((10, 4), "f32"), b=((2, 256, 512), "e4m3"), b_scale=((2, 2, 4), "f32"))
    found = zoo.shapes("gemm.fp8b128.m_grouped_gather", **inputs, index=((20,), "i32"), offsets=((2,), "i32"))
    assert found["workspace"].access == "workspace" and found["d"].shape == (20, 256)


def test_optional_outputs_are_made_where_asked_for_alone():
    x = ((256, 512), "bf16")
    assert set(zoo.shapes("quantize.mxfp8.squares", x=x)) == {"q", "scales"}
    found = zoo.shapes("quantize.mxfp8.squares", x=x, q_cols=True, scales_cols=True)
    assert found["q_cols"].shape == (512, 256)


def test_an_open_dtype_is_the_first_unless_said():
    inputs = dict(a=((10, 512), "e4m3"), a_scale=((10, 4), "f32"), b=((256, 512), "e4m3"), b_scale=((2, 4), "f32"))
    assert zoo.shapes("gemm.fp8b128.dense", **inputs)["d"].dtype == "bf16"
    assert zoo.shapes("gemm.fp8b128.dense", **inputs, d="f32")["d"].dtype == "f32"
    with pytest.raises(zoo.ArgumentError, match=r"d: expected an array, or one of its dtypes: bf16, f16 or f32; got 'e4m3'"):
        zoo.shapes("gemm.fp8b128.dense", **inputs, d="e4m3")


@pytest.mark.parametrize(("format", "bytes"), [("nvfp4", 2304), ("mxfp4", 2176)])
def test_rows_of_packed_weights_are_asked_for_unless_an_optional_input_tells_them(format, bytes):
    inputs = dict(a=((5, 2, 64), "e4m3"), b=((2, 2, bytes), "u8"))
    inputs |= {} if format == "nvfp4" else dict(b_row_scale=((128,), "ue8m0"))
    with pytest.raises(zoo.ArgumentError, match=r"d: no input tells N of its shape \(M, N\); pass N="):
        zoo.shapes(f"gemm.fp8_{format}.dense", **inputs)
    assert zoo.shapes(f"gemm.fp8_{format}.dense", **inputs, N=72)["d"].shape == (5, 72)
    assert zoo.shapes(f"gemm.fp8_{format}.dense", **inputs, bias=((72,), "f32"))["d"].shape == (5, 72)


def test_a_size_that_no_input_tells_is_asked_for_by_its_symbol():
    with pytest.raises(zoo.ArgumentError, match=r"scales: no input tells M of its shape \(M, C\); pass M="):
        zoo.shapes("scales.unblocked", blocked=((1, 2, 32, 16), "u8"))
    assert zoo.shapes("scales.unblocked", blocked=((1, 2, 32, 16), "u8"), M=100, C=7)["scales"].shape == (100, 7)
    with pytest.raises(zoo.ArgumentError, match="M: expected a whole number"):
        zoo.shapes("scales.unblocked", blocked=((1, 2, 32, 16), "u8"), M=True, C=7)
    with pytest.raises(zoo.ArgumentError, match="no argument is named 'M'"):
        zoo.shapes("quantize.mxfp8.rows", x=((4, 64), "bf16"), M=4)


def test_two_codes_a_byte_make_an_even_row_unless_said():
    inputs = dict(q=((10, 32), "u8"), scales=((10, 4), "e4m3"), tensor_scale=((1,), "f32"))
    assert zoo.shapes("dequantize.nvfp4.rows", **inputs)["out"].shape == (10, 64)
    assert zoo.shapes("dequantize.nvfp4.rows", **inputs, C=63)["out"].shape == (10, 63)


def test_what_a_kernel_adds_to_must_be_given():
    inputs: dict[str, Any] = dict(a=((128, 256), "e4m3"), a_scale=((128, 3), "f32"), b=((64, 256), "e4m3"), b_scale=((64, 3), "f32"))
    found = zoo.shapes("gemm.fp8b128.k_grouped", **inputs, offsets=((1,), "i32"))
    assert found["d"].shape == (1, 128, 64)
    with pytest.raises(zoo.ArgumentError, match="d: missing; the kernel adds to what is there"):
        zoo.shapes("gemm.fp8b128.k_grouped", **inputs, offsets=((1,), "i32"), accumulate="yes")


def test_every_kernel_but_those_of_padded_scales_packed_weights_and_routed_rows_tells_its_sizes():
    asks = {kernel.name for kernel in zoo.find() if sizes(kernel)}
    products = tuple(f"gemm.{tokens}_{weights}." for tokens in ("fp8", "bf16") for weights in ("nvfp4", "mxfp4"))
    assert all(name.startswith(("scales.unblocked", "dequantize.", "unpack.", "experts.", *products)) for name in asks)


@pytest.mark.parametrize("kernel", zoo.find(), ids=lambda kernel: kernel.name)
def test_strides_of_what_is_made_are_found_for_each_kernel(kernel):
    """No output is left without a stride that its own kernel takes: tests/torch runs each call; here, that none needs an input's."""
    for argument in kernel.arguments.values():
        if argument.written and argument.kind == "array":
            for form in argument.forms:
                symbols = {stride.text for stride in form.strides or () if stride.names == (stride.text,)}
                inputs = {s.text for a in kernel.arguments.values() if not a.written for f in a.forms for s in f.strides or ()}
                assert not symbols & inputs


# what a launch forgives


def test_a_matrix_stands_for_a_batch_of_one_and_comes_back_without_it():
    kernel = zoo.kernel("quantize.fp8b128.squares")
    call = settle(kernel, {"x": array("bf16", 256, 512)})
    assert call.arrays["x"].shape == (1, 256, 512)
    assert call.made["q"].shape == (1, 256, 512) and call.made["q"].returned()[0] == (256, 512)
    batch = settle(kernel, {"x": array("bf16", 1, 256, 512)})
    assert batch.made["q"].returned()[0] == (1, 256, 512)


@pytest.mark.parametrize("groups", [1, 2])
def test_numbers_of_one_group_given_for_two_are_refused_in_the_shape_that_was_given(groups):
    """A dimension put before them would be told of as if the caller had written it."""
    kernel = zoo.kernel("gemm.fp8_nvfp4.m_grouped_contiguous.swiglu")
    given = {
        "a": array("e4m3", 64, 2, 64), "b": array("u8", groups, 4, 2, 2, 1152), "offsets": array("i32", groups), "d": array("bf16", 64, 128),
        "alpha": array("f32", 2),
    }  # fmt: skip
    if groups == 1:
        assert settle(kernel, given).arrays["alpha"].shape == forgiven(kernel, given)["alpha"].shape == (1, 2)
        return
    assert forgiven(kernel, given)["alpha"].shape == (2,)
    words = r"alpha: expected 2 dimensions \(G, ALPHAS\), got 1; what the sums are multiplied by next$"
    with pytest.raises(zoo.ArgumentError, match=words):
        settle(kernel, given)
    with pytest.raises(zoo.ArgumentError, match=words):
        resolve_without_device(kernel, forgiven(kernel, given))


@pytest.mark.parametrize(("layout", "right", "wrong"), [("plain", (56, 1), (1, 56)), ("mn_major", (1, 56), (56, 1))])
def test_scales_of_as_many_rows_as_blocks_are_told_apart_by_their_strides(layout, right, wrong):
    kernel = zoo.kernel("dequantize.fp8b128.rows")
    given = {"q": array("e4m3", 56, 7168), "out": replace(array("f32", 56, 7168), address=1 << 30), "layout": layout}
    scales = {strides: replace(array("f32", 56, 56, strides=strides), address=1 << 29) for strides in (right, wrong)}
    resolve_without_device(kernel, forgiven(kernel, given | {"scales": scales[right]}))
    with pytest.raises(zoo.ConstraintError, match="rows of plain scales, or the columns of mn_major ones"):
        resolve_without_device(kernel, forgiven(kernel, given | {"scales": scales[wrong]}))


@pytest.mark.parametrize("strides", [(300, 1), (1, 4)], ids=["mn_major", "plain"])
def test_scales_with_blocks_first_are_refused_where_they_are_not_square(strides):
    """A square matrix of them would be taken for one with rows first."""
    kernel = zoo.kernel("gemm.fp8b128.dense")
    given = {
        "a": array("e4m3", 300, 512), "a_scale": array("f32", 4, 300, strides=strides), "b": array("e4m3", 128, 512),
        "b_scale": array("f32", 1, 4), "d": array("bf16", 300, 128),
    }  # fmt: skip
    words = r"a_scale: expected \(300, 4\) = \(M, ceil_div\(K, 128\)\), got \(4, 300\)"
    with pytest.raises(zoo.ArgumentError, match=words):
        resolve_without_device(kernel, forgiven(kernel, given))


def test_columns_of_one_block_or_of_one_matrix_may_lie_at_any_distance():
    """Strides over one element are free, so that no rule may ask anything of them."""
    for name, x, shape in (("rows", (300, 128), (300, 1)), ("cols", (128, 304), (304, 1)), ("cols.experts", (1, 256, 304), (1, 304, 2))):
        kernel = zoo.kernel(f"quantize.fp8b128.{name}")
        found = zoo.shapes(kernel.name, x=(x, "bf16"), layout="mn_major")["scales"]
        assert found.shape == shape and found.strides[-2] == 1


def test_an_input_that_is_a_pair_has_the_strides_that_its_layout_asks_for():
    inputs = dict(q=((102, 7168), "e4m3"), scales=((102, 56), "f32"))
    assert zoo.shapes("dequantize.fp8b128.rows", **inputs, layout="mn_major")["out"].shape == (102, 7168)


def test_a_transposed_input_matrix_is_not_forgiven():
    kernel = zoo.kernel("quantize.fp8b128.rows")
    given = {"x": array("bf16", 256, 512, strides=(1, 256)), "q": array("e4m3", 256, 512), "scales": array("f32", 256, 4)}
    assert forgiven(kernel, given)["x"].strides == (1, 256)


def test_symbolic_extents_are_no_numbers_to_check():
    class Traced:  # what torch traces: it multiplies, and is no int
        def __init__(self, text: str):
            self.text = text

        def __mul__(self, other: object) -> Traced:
            return Traced(f"({self.text} * {other})")

        __rmul__ = __mul__

    x = Array(0, "bf16", (Traced("m"), 512), (512, 1))  # type: ignore[arg-type]
    q = made(zoo.kernel("quantize.fp8b128.rows"), {"x": x})["q"]
    assert isinstance(q.shape[0], Traced) and q.strides == (512, 1)


@pytest.mark.parametrize(
    ("shape", "dtype", "strides", "rule", "apart"),
    [
        ((5, 33), "e4m3", ["s", "1"], "s % 16 == 0", True), ((5, 32), "e4m3", ["s", "1"], "s % 16 == 0", False),
        ((5, 9), "bf16", ["s", "1"], "s % 8 == 0", True), ((5, 8), "bf16", ["s", "1"], "s % 8 == 0", False),
        ((2, 5, 33), "e4m3", ["t", "s", "1"], "s % 16 == 0", True), ((2, 5, 33), "e4m3", ["s", "33", "1"], "s % 16 == 0", False),
        ((5, 33), "e4m3", ["s", "1"], "s > 16", False), ((5, 33), "e4m3", ["2 * s", "1"], "s % 16 == 0", False),
        ((5, 33), "e4m3", None, "K % 16 == 0", False), ((33,), "e4m3", ["s"], "s % 16 == 0", False), ((5, 33), "u9", ["s", "1"], "s % 16 == 0", False),
    ],
)  # fmt: skip
def test_rows_are_moved_apart_where_a_rule_asks_for_their_distance_alone(shape, dtype, strides, rule, apart):
    made = entry()
    made["arguments"][0]["forms"] = [{"when": "1", "shape": ["M", "N", "K"][-len(shape) :], "strides": strides}]
    made["constraints"] = [{"expression": rule, "words": "a rule"}]
    assert trial._may_be_apart(parse_kernel("gemm.mxfp8_mxfp4.dense", made), "a", array(dtype, *shape)) is apart


@pytest.mark.parametrize(
    ("dtype", "shape", "strides"),
    [
        ("e4m3", (2, 5, 33), (240, 48, 1)),
        ("bf16", (5, 9), (16, 1)),
        ("f32", (3, 5), (8, 1)),
        ("u8", (3, 16), (16, 1)),
        ("u8", (3, 17), (32, 1)),
    ],
)
def test_rows_that_are_moved_apart_start_at_the_next_16_bytes(dtype, shape, strides):
    assert trial._apart(array(dtype, *shape)) == array(dtype, *shape, strides=strides)


@pytest.mark.parametrize(
    ("one", "size"),
    [
        (array("bf16", 3, 4, strides=(10, 1)), 48), (array("e4m3", 0, 4), 4), (array("e4m3", 4, 0, strides=(5, 1)), 16), (array("u9", 2), 32),
        (array("e4m3", 3, 4, strides=(-10, 1)), 4), (array("f32"), 4), (array("e4m3", 3, 4, strides=(0, 1)), 4),
    ],
)  # fmt: skip
def test_an_array_on_trial_has_the_bytes_that_it_reaches(one, size):
    assert trial._bytes(one) == size


def test_a_call_is_tried_with_its_rows_apart_where_they_may_be_moved_alone():
    made = entry()
    made["constraints"] = [{"expression": "a_stride % 16 == 0", "words": "rows must start at multiples of 16 bytes"}]
    kernel = parse_kernel("gemm.mxfp8_mxfp4.dense", made)
    given = {"a": array("e4m3", 5, 34), "b": array("e2m1x2", 64, 17), "scale": array("ue8m0", 5, 1), "d": array("bf16", 5, 64)}
    call = settle(kernel, given)
    assert trial.fitting(kernel, call, ["a"]).arrays == {**call.arrays, "a": array("e4m3", 5, 34, strides=(48, 1))}
    with pytest.raises(zoo.ConstraintError, match="rows must start at multiples of 16 bytes"):
        trial.fitting(kernel, call, ["b", "d"])
    good = settle(kernel, {**given, "a": array("e4m3", 5, 34, strides=(64, 1))})
    assert trial.fitting(kernel, good, ["a"]) is good


@pytest.mark.parametrize(("sms", "refused"), [(132, False), (131, True), (133, True)])
def test_a_rule_about_multiprocessors_is_tried_on_as_many_as_an_h100_has(sms, refused):
    """On a machine of none or of billions, a call that every machine takes would be refused before it is made."""
    made = entry()
    made["constraints"] = [{"expression": f"sms == {sms}", "words": "a rule"}]
    kernel = parse_kernel("gemm.mxfp8_mxfp4.dense", made)
    given = {"a": array("e4m3", 5, 32), "b": array("e2m1x2", 64, 16), "scale": array("ue8m0", 5, 1), "d": array("bf16", 5, 64)}
    call = settle(kernel, given)
    with pytest.raises(zoo.ConstraintError, match="a rule") if refused else contextlib.nullcontext():
        trial.check(kernel, call)


@pytest.mark.parametrize(
    ("rules", "stride"),
    [
        (["K % 7 == 0"], 60),  # says nothing of the stride
        (["K % 7 == 0", "d_stride % 4 == 0"], 60),
        (["K % 32 == 0", "d_stride % 8 == 0"], 64),
        (["d_stride > 64"], 60),  # no multiple is asked for
        (["(d_stride + P) % 4 == 0"], 64),  # nobody knows P yet
        ([], 60),
    ],
)
def test_rows_are_padded_for_rules_of_their_own_stride_alone(rules, stride):
    """Others may be refused later or unknown yet: to pad for them would take a view away that products read."""
    made = entry()
    made["constraints"] = [{"expression": rule, "words": "a rule"} for rule in rules]
    made["arguments"].append({**made["arguments"][3], "name": "e", "forms": [{"when": "1", "shape": ["P"], "strides": None}]})
    kernel = parse_kernel("gemm.mxfp8_mxfp4.dense", made)
    given = {"a": array("e4m3", 5, 32), "b": array("e2m1x2", 60, 16), "scale": array("ue8m0", 5, 1)}
    assert settle(kernel, given).made["d"].strides == (stride, 1)


def test_a_whole_number_that_fits_its_dtype_is_taken_and_any_number_where_one_is_no_whole_number():
    kernel = parse_kernel("gemm.mxfp8_mxfp4.dense", entry())
    given = {"a": array("e4m3", 5, 32), "b": array("e2m1x2", 64, 16), "scale": array("ue8m0", 5, 1)}
    for splits in (-(2**31), 2**31 - 1):
        assert settle(kernel, {**given, "splits": splits, "alpha": 0.5}).others == {"splits": splits, "alpha": 0.5}
    for splits in (-(2**31) - 1, 2**31, 0.5):
        with pytest.raises(zoo.ArgumentError, match=r"gemm.mxfp8_mxfp4.dense: splits: expected a whole number"):
            settle(kernel, {**given, "splits": splits})
    with pytest.raises(zoo.ArgumentError, match=r"alpha: expected a number \(f32\), got an array"):
        settle(kernel, {**given, "alpha": array("f32", 1)})


def test_an_output_of_one_dtype_is_asked_for_in_that_one():
    kernel = parse_kernel("gemm.mxfp8_mxfp4.dense", entry())
    given = {"a": array("e4m3", 5, 32), "b": array("e2m1x2", 64, 16), "scale": array("ue8m0", 5, 1)}
    with pytest.raises(zoo.ArgumentError, match=r"scratch: expected an array, or one of its dtypes: u8; got 'f32'"):
        settle(kernel, {**given, "scratch": "f32"})
