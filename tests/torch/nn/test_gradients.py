"""Products of layers and their gradients, beside float64 within the bound of the operands' roundings; mutants of the layer are outside it."""

from __future__ import annotations

import pytest
import torch

import zoo
import zoo.torch as zt
from zoo.torch.nn import formats
from zoo.torch.nn.formats import FORMATS, TRAINING
from zoo.torch.nn.products import grouped_product, product

ENDS = (10, 10, 25, 44)  # of four groups, one without rows; rows 44 to 47 belong to none
OPTIONS = {"fp8b128": {"scaling": "pow2"}, "mxfp8": {"rounding": "rceil"}, "nvfp4": {}}
ACCUMULATION = 2.0**-11  # of the sum of |a b|: what the tensor cores' sums may lose, docs/gemm.md


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1000 * seed + sum(shape))).to(dtype)


def rounding(x: torch.Tensor, format: str, direction: str, groups: list[slice] | None = None) -> torch.Tensor:
    """How far each element is off once it is quantised, by zoo.torch.quantize and apart from what layers do."""
    if groups is not None:
        off = torch.zeros_like(x, dtype=torch.float64)
        for some in groups:
            off[some] = rounding(x[some].contiguous(), format, direction)
        return off
    if not x.numel():
        return x.double()
    filled = torch.nn.functional.pad(x, (0, -x.shape[-1] % 32, 0, -x.shape[-2] % 32))
    made = zt.quantize(filled, format, direction=direction, **OPTIONS[format]).dequantize("f32")
    return (made.double() - filled.double())[..., : x.shape[-2], : x.shape[-1]].abs()


def bound(a: torch.Tensor, off_a: torch.Tensor, b: torch.Tensor, off_b: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    """Of a b^T, whose operands are off by so much and whose result is rounded to bf16 or f32."""
    a, b = a.double().abs(), b.double().abs()
    return off_a @ b.mT + (a + off_a) @ off_b.mT + ACCUMULATION * ((a + off_a) @ (b + off_b).mT) + d.double().abs() / 128


def groups_of(count: int, grouped: bool) -> list[slice]:
    if not grouped:
        return [slice(0, count)]
    return [slice(start, end) for start, end in zip((0, *ENDS), ENDS, strict=False)]


def check(format: str, grouped: bool, width: int, size: int, dtype: torch.dtype) -> None:
    count, rows = 48, groups_of(48, grouped)
    x, w, bias = normal(count, width, dtype=dtype), normal(len(rows), size, width), normal(len(rows), size)
    dy = normal(count, size, dtype=dtype, seed=1)
    for one in (x, w, bias):
        one.requires_grad_()
    if grouped:
        y = grouped_product(x, w, torch.tensor(ENDS, dtype=torch.int32), format, bias=bias)
        y.backward(dy)
    else:
        y = product(x, w[0], format, bias=bias[0])
        y.backward(dy)
    assert y.dtype == x.grad.dtype == dtype and w.grad.dtype == torch.float32
    x64, w64, dy64 = x.detach().double(), w.detach().double(), dy.double()
    off_w = [rounding(one, format, "squares") for one in w.detach()]
    off_x, off_dy = (rounding(one.detach(), format, "rows", rows) for one in (x, dy))
    cols_x, cols_dy = (rounding(one.detach(), format, "cols", rows) for one in (x, dy))
    for g, some in enumerate(rows):
        b = bias.detach()[g].double()
        within(y[some], x64[some] @ w64[g].t() + b, bound(x64[some], off_x[some], w64[g], off_w[g], y[some]))
        within(x.grad[some], dy64[some] @ w64[g], bound(dy64[some], off_dy[some], w64[g].t(), off_w[g].t(), x.grad[some]))
        within(w.grad[g], dy64[some].t() @ x64[some], bound(dy64[some].t(), cols_dy[some].t(), x64[some].t(), cols_x[some].t(), w.grad[g]))
        within(bias.grad[g], dy64[some].sum(0), dy64[some].abs().sum(0) / 128)
    if grouped:
        assert not y[ENDS[-1] :].any() and not x.grad[ENDS[-1] :].any()


def within(found: torch.Tensor, exact: torch.Tensor, limit: torch.Tensor) -> None:
    assert ((found.detach().double() - exact).abs() <= limit + 1e-6).all()


@pytest.mark.parametrize("grouped", [False, True], ids=["linear", "grouped"])
@pytest.mark.parametrize("format", TRAINING)
def test_a_product_and_its_gradients_are_off_by_the_roundings_of_their_operands_alone(format, grouped):
    check(format, grouped, 256, 128, torch.bfloat16)


@pytest.mark.parametrize("grouped", [False, True], ids=["linear", "grouped"])
@pytest.mark.parametrize("format", TRAINING)
def test_extents_that_no_block_divides_are_filled_up(format, grouped):
    check(format, grouped, 100, 36, torch.float32)


def without_scale(columns: formats.Columns) -> formats.Columns:
    scales = columns.scales
    if scales.dtype == torch.float32:
        return columns._replace(scales=torch.ones_like(scales))  # with their strides
    return columns._replace(scales=torch.full_like(scales.view(torch.uint8), 127).view(scales.dtype))


def of_the_weight_itself(right):
    return lambda self, weight: (right(self, weight)[0],) * 2


def columns_without_scales(right):
    return lambda self, *given: (lambda rows, columns: (rows, without_scale(columns)))(*right(self, *given))


def transposed_result(right):
    return lambda self, dy, x, dtype: right(self, x, dy, dtype)


def swapped(right):
    return lambda self, weight: right(self, weight)[::-1]


def without_first_row(right):
    return lambda self, x, *more: right(self, torch.cat([x[1:], x[:1]]), *more)


MUTANTS = {
    "dx by the weight that is not transposed": ("both_ways", of_the_weight_itself),
    "both weights swapped": ("both_ways", swapped),
    "columns without scales": ("rows_and_columns", columns_without_scales),
    "dw transposed": ("weight_gradient", transposed_result),
    "rows one too far": ("rows_and_columns", without_first_row),
}


@pytest.mark.parametrize("grouped", [False, True], ids=["linear", "grouped"])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_of_the_layer_is_outside_the_bound(monkeypatch, mutant, grouped):
    name, change = MUTANTS[mutant]
    monkeypatch.setattr(formats.Format, name, change(getattr(formats.Format, name)))
    with pytest.raises(AssertionError):
        check("fp8b128", grouped, 128, 128, torch.bfloat16)


@pytest.mark.parametrize("format", FORMATS)
def test_a_frozen_weight_gives_what_its_numbers_give(format):
    form, x, w = FORMATS[format], normal(2, 24, 96, dtype=torch.bfloat16), normal(40, 96)
    frozen = form.frozen(w)
    found = product(x, frozen, format, features=(40, 96))
    numbers = form.numbers(frozen, torch.float32)[:40, :96]
    assert found.shape == (2, 24, 40) and found.dtype == torch.bfloat16
    tokens = {"fp8b128": 0.03, "mxfp8": 0.03, "fp8token": 0.03, "nvfp4": 0.12, "mxfp4": 0.16, "bf16": 0.005}[form.tokens]  # roundings of x
    exact = x.float() @ numbers.t()
    # mxfp4 weights become e4m3 for fp8 tokens without a rounding, nvfp4 with one of 2.1 % (docs/four_bit_weights.md)
    assert (found.float() - exact).norm() / exact.norm() < tokens + (0.025 if format == "fp8_nvfp4" else 0)


@pytest.mark.parametrize("grouped", [False, True], ids=["linear", "grouped"])
@pytest.mark.parametrize("format", TRAINING)
def test_the_input_of_a_frozen_weight_has_its_gradient(format, grouped):
    form, ends = FORMATS[format], torch.tensor(ENDS, dtype=torch.int32)
    w, dy = normal(4, 64, 128), normal(48, 64)
    x = normal(48, 128).requires_grad_()
    frozen = form.frozen(w if grouped else w[0])
    (grouped_product(x, frozen, ends, format) if grouped else product(x, frozen, format)).backward(dy)
    numbers = form.numbers(frozen, torch.float32)
    exact = dy[10:25] @ (numbers[2] if grouped else numbers)
    # roundings of dy, and of a weight whose other direction is quantised once more
    assert (x.grad[10:25] - exact).norm() / exact.norm() < {"fp8b128": 0.03, "mxfp8": 0.045, "nvfp4": 0.2}[format]


@pytest.mark.parametrize("format", ["mxfp8", "nvfp4"])
def test_one_read_of_groups_gives_what_two_reads_give(format):
    form, ends = FORMATS[format], torch.tensor(ENDS, dtype=torch.int32)
    x = normal(48, 160, dtype=torch.bfloat16)

    def parts(rows, columns):
        assert (rows.layout, rows.offsets is ends, rows.format) == ("blocked", True, form.tokens)
        found = (rows.elements[: ENDS[-1]], rows.scales, rows.tensor_scale, *columns)
        return [one.view(torch.uint8) for one in found if one is not None]

    once, twice = parts(*form.rows_and_columns(x, ends)), parts(form.rows(x, ends), form.columns(x, ends))
    assert len(once) == (7 if format == "nvfp4" else 5)
    assert all(torch.equal(one, other) for one, other in zip(once, twice, strict=True))


@pytest.mark.parametrize("format", TRAINING)
def test_rows_of_no_group_reach_nothing_even_if_they_are_nan(format):
    ends = torch.tensor(ENDS, dtype=torch.int32)
    x, w, bias, dy = normal(48, 64), normal(4, 32, 64), normal(4, 32), normal(48, 32, seed=1)
    found = []
    for rest in (0.0, float("nan")):
        x[44:], dy[44:] = rest, rest
        inputs = [one.clone().requires_grad_() for one in (x, w, bias)]
        y = grouped_product(inputs[0], inputs[1], ends, format, bias=inputs[2])
        y.backward(dy)
        found.append([y.detach(), *(one.grad for one in inputs)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert not found[0][2][1].any() and not found[0][3][1].any()  # the group without rows


@pytest.mark.parametrize("grouped", [False, True], ids=["linear", "grouped"])
def test_the_same_step_has_the_same_bits(grouped):
    found = []
    for _ in range(2):
        x, w, bias = (one.requires_grad_() for one in (normal(48, 64), normal(4, 32, 64), normal(4, 32)))
        ends = torch.tensor(ENDS, dtype=torch.int32)
        y = grouped_product(x, w, ends, "fp8b128", bias=bias) if grouped else product(x, w[0], "fp8b128", bias=bias[0])
        y.backward(normal(48, 32, seed=1))
        found.append([y.detach(), x.grad, w.grad, bias.grad])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_product_is_written_into_a_tensor_and_rows_of_no_group_are_left():
    ends = torch.tensor(ENDS, dtype=torch.int32)
    a, b = zt.quantize(normal(48, 128), "fp8b128"), zt.quantize(normal(4, 128, 128), "fp8b128", direction="squares").t()
    out = torch.full((48, 128), 7.0)
    assert zt.matmul(a, b, groups=ends, out=out) is out
    assert torch.equal(out[:44], zt.matmul(a, b, groups=ends, dtype="f32")[:44]) and (out[44:] == 7).all()


@pytest.mark.parametrize("format", TRAINING)
def test_a_nan_stays_in_its_row_and_its_group(format):
    x, w = normal(48, 64), normal(4, 32, 64)
    x[12, 3] = float("nan")
    x, w = x.requires_grad_(), w.requires_grad_()
    y = grouped_product(x, w, torch.tensor(ENDS, dtype=torch.int32), format)
    y.nan_to_num().sum().backward()
    clean = torch.arange(48) != 12
    if format != "nvfp4":  # whose e2m1 has no NaN, and whose tensor scale spans the group
        assert y[12].isnan().all()
    assert not y[:10].isnan().any() and not y[25:].isnan().any() and (format == "nvfp4" or not y[clean].isnan().any())
    assert not x.grad.isnan().any() and not w.grad[[0, 1, 3]].isnan().any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("format", TRAINING)
def test_a_gradient_that_is_not_finite_stays_in_its_group(format, bad):
    w, bias = (one.requires_grad_() for one in (normal(4, 32, 64), normal(4, 32)))
    dy, found = normal(48, 32, seed=1), []
    for element in (1.0, bad):
        dy[12, 3] = element
        y = grouped_product(normal(48, 64), w, torch.tensor(ENDS, dtype=torch.int32), format, bias=bias)
        found.append(torch.autograd.grad(y, (w, bias), dy))
    (of_w, of_bias), (spoilt_w, spoilt_bias) = found
    assert torch.equal(spoilt_w[[0, 1, 3]], of_w[[0, 1, 3]]) and torch.equal(spoilt_bias[[0, 1, 3]], of_bias[[0, 1, 3]])
    assert torch.equal(spoilt_bias[2, 4:], of_bias[2, 4:]) and not spoilt_bias[2, 3].isfinite()


@pytest.mark.parametrize("grouped", [False, True], ids=["linear", "grouped"])
@pytest.mark.parametrize("format", TRAINING)
def test_saved_tensors_that_were_copied_give_the_same_gradients(format, grouped):
    """Hooks that save on the CPU keep no strides: 9 rows of x are 9 columns, 16 bytes apart, and their scales are mn_major."""
    x, w, ends = normal(9, 64), normal(2, 32, 64), torch.tensor([2, 9], dtype=torch.int32)
    found = []
    for copied in (torch.Tensor.detach, lambda one: torch.empty(one.shape, dtype=one.dtype).copy_(one)):
        inputs = [one.clone().requires_grad_() for one in (x, w if grouped else w[0])]
        with torch.autograd.graph.saved_tensors_hooks(copied, lambda one: one):
            y = grouped_product(*inputs, ends, format) if grouped else product(*inputs, format)
        found.append(torch.autograd.grad(y, inputs, normal(9, 32, seed=1)))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("format", TRAINING)
def test_no_row_and_one_row_have_gradients(format, count):
    x, w, bias = (one.requires_grad_() for one in (normal(count, 2, 48), normal(40, 48), normal(40)))
    y = product(x, w, format, bias=bias)
    y.sum().backward()
    assert y.shape == (count, 2, 40) and x.grad.shape == x.shape
    with torch.autocast("cpu", torch.bfloat16):
        assert product(x, w, format, bias=bias).dtype == torch.bfloat16
    assert bool(w.grad.any()) == bool(bias.grad.any()) == bool(count)
    g = normal(3, 40, 48).requires_grad_()
    grouped_product(x.detach()[:, 0], g, torch.tensor([0, 0, count], dtype=torch.int32), format).sum().backward()
    assert bool(g.grad.any()) == bool(count) and not g.grad[:2].any()


def test_what_needs_no_gradient_costs_no_kernel(monkeypatch):
    called = []
    for name in ("both_ways", "squares", "columns", "rows_and_columns", "weight_gradient"):
        right = getattr(formats.Format, name)
        monkeypatch.setattr(formats.Format, name, lambda *given, _name=name, _right=right: (called.append(_name), _right(*given))[1])
    x, w = normal(16, 64), normal(32, 64)
    product(x, w, "fp8b128")
    assert called == ["squares"]
    called.clear()
    product(x.clone().requires_grad_(), w, "fp8b128").sum().backward()  # a weight that does not train
    assert called == ["both_ways"]
    called.clear()
    product(x, w.clone().requires_grad_(), "fp8b128").sum().backward()  # a first layer
    assert called == ["squares", "rows_and_columns", "rows_and_columns", "weight_gradient"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_each_gradient_has_the_dtype_of_its_tensor(dtype):
    x, w, bias = normal(8, 32, dtype=torch.bfloat16), normal(16, 32, dtype=dtype), normal(16, dtype=dtype)
    inputs = [one.requires_grad_() for one in (x, w, bias)]
    y = product(x, w, "fp8b128", bias=bias)
    y.sum().backward()
    assert y.dtype == torch.bfloat16 and all(one.grad.dtype == one.dtype for one in inputs)


def test_tensors_that_kernels_cannot_read_are_copied():
    x, w = normal(48, 64), normal(64, 64)
    wide = torch.cat([x, x], 1)
    flat = torch.cat([torch.zeros(1), w.flatten()])  # as in a flat parameter of FSDP: 4 bytes behind a multiple of 16
    assert torch.equal(product(wide[:, :64], flat[1:].view(64, 64).t(), "fp8b128"), product(x, w.t().contiguous(), "fp8b128"))
    y = product(x.requires_grad_(), w, "fp8b128")
    y.sum().backward()  # whose gradient has strides of 0
    assert x.grad.isfinite().all()


def ragged(x: torch.Tensor) -> torch.Tensor:
    return torch.nested.nested_tensor([x[:16], x[16:]], layout=torch.jagged)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, w, _: product(x, w, "fp9"), "no format 'fp9' of layers; there are fp8b128, "),
        (lambda x, w, _: product(x.double(), w, "mxfp8"), "x: expected bf16, f16 or f32, got torch.float64"),
        (lambda x, w, _: product(x[:, :32], w[0], "mxfp8"), r"x: expected \(..., 64\), as its weight \(32, 64\), got \(48, 32\)"),
        (lambda x, w, _: product(x, w[0].to(torch.float8_e4m3fn), "mxfp8"), "weight: expected bf16, f16 or f32, got torch.float8_e4m3fn"),
        (lambda x, w, _: product(x.to("meta"), w[0], "mxfp8"), "weight: is on cpu, x on meta; move one of them"),
        (lambda x, w, _: product(x, w[0], "fp8b128", bias=x[0, :1]), r"bias: expected \(32,\), got \(1,\)"),
        (lambda x, w, o: grouped_product(x, w, o, "fp8b128", bias=x[:3, :32]), r"bias: expected \(4, 32\), got \(3, 32\)"),
        (lambda x, w, o: grouped_product(x, w, o.long(), "mxfp8"), r"offsets: expected torch.int32 \(4,\), a group's end row, got torch.int64 \(4,\)"),
        (lambda x, w, o: grouped_product(x[None], w, o, "mxfp8"), r"x: expected a matrix \(M, K\), got torch.float32 \(1, 48, 64\)"),
        (lambda x, w, _: product(x.to_sparse(), w[0], "mxfp8"), r"x: expected a dense tensor, got torch\.sparse_coo"),
        (lambda x, w, _: product(ragged(x), w[0], "mxfp8"), r"x: expected a dense tensor, got a nested one; .* \.values\(\) are the rows"),
        (lambda x, w, o: grouped_product(x.to_sparse(), w, o, "mxfp8"), r"x: expected a dense tensor, got torch\.sparse_coo"),
        (lambda x, w, _: product(x.requires_grad_(), w[0], "mxfp4"), "format 'mxfp4' has no gradients: .* train in fp8b128 or mxfp8 or nvfp4"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_was_expected(call, words):
    with pytest.raises(zoo.ZooError, match=words):
        call(normal(48, 64), normal(4, 32, 64), torch.tensor(ENDS, dtype=torch.int32))


def test_second_derivatives_are_refused_rather_than_zero():
    x = normal(16, 64).requires_grad_()
    with pytest.raises(zoo.ArgumentError, match="has no second derivative; leave out create_graph=True"):
        torch.autograd.grad(product(x, normal(32, 64), "fp8b128").square().sum(), x, create_graph=True)
