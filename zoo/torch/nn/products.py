"""Products of layers with gradients: quantise, multiply, and the two products of the backward pass, as one function of autograd.

x, weight -> y         saved: x by columns in 8 or 4 bits, and the weight
dy        -> dx, dw    an input that needs no gradient costs nothing; dw may be added to weight.grad: gradients.py
"""

from __future__ import annotations

import math
from typing import Any

import torch

from zoo.errors import ArgumentError
from zoo.torch.nn.formats import TRAINING, Columns, Format, format_of, held_parts
from zoo.torch.nn.gradients import dtype_of, gradient, onto
from zoo.torch.nn.kept import Kept, made, original, selective
from zoo.torch.nn.transforms import refuse_batch, refuse_transforms
from zoo.torch.operators import refuse_what_is_not_dense
from zoo.torch.quantized import Quantized

NUMBERS = (torch.bfloat16, torch.float16, torch.float32)


def product(
    x: torch.Tensor,
    weight: torch.Tensor | Quantized,
    format: str,
    *,
    bias: torch.Tensor | None = None,
    features: tuple[int, int] | None = None,
    kept: Kept | None = None,
    dtype: torch.dtype | None = None,
    adds: bool = False,
    promotion: str = "never",
) -> torch.Tensor:
    """x (..., K) times a weight (N, K) transposed: (..., N), in `dtype`, by default autocast's or x's.

    weight: the master weight, quantised here, or what `Format.constant` made of one.
    features: N and K of a frozen weight, which may have been filled up. kept: the forms of this weight that an earlier call has made.
    adds: a gradient of the weight is added to an existing weight.grad by its GEMM.
    promotion: of FP8 tokens and 4-bit weights, "never" or "regular".
    """
    if not isinstance(x, torch.Tensor) or x.dim() == 0:
        raise ArgumentError(f"product: x: expected a tensor (..., K), got {_shown(x)}")
    refuse_what_is_not_dense(f"a layer in {format}", "x", x)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])  # numel() of a shape would fix the number of rows of an exported program
    y = _product(rows, weight, format, None, bias, features, kept, dtype, adds, promotion)
    if x.dim() == 2:
        return y
    found: torch.Tensor = torch.ops.aten._unsafe_view(y, [*x.shape[:-1], y.shape[-1]])  # no view, which FSDP2's hooks would lose in place
    return found


def grouped_product(
    x: torch.Tensor,
    weight: torch.Tensor | Quantized,
    offsets: torch.Tensor,
    format: str,
    *,
    bias: torch.Tensor | None = None,
    features: tuple[int, int] | None = None,
    kept: Kept | None = None,
    dtype: torch.dtype | None = None,
    adds: bool = False,
    promotion: str = "never",
) -> torch.Tensor:
    """Rows of each group of x (M, K) times its matrix of a weight (G, N, K) transposed: (M, N). `offsets` (G,) int32 are the groups' end rows.

    Rows after the last offset give zeros, here and in the gradient of x.
    """
    check_groups(x, weight, offsets)
    return _product(x, weight, format, offsets, bias, features, kept, dtype, adds, promotion)


def check_groups(x: torch.Tensor, weight: torch.Tensor | Quantized, offsets: torch.Tensor) -> None:
    if not isinstance(x, torch.Tensor) or x.dim() != 2:
        raise ArgumentError(f"grouped_product: x: expected a matrix (M, K), got {_shown(x)}")
    refuse_what_is_not_dense("grouped_product", "x", x)
    if not isinstance(offsets, torch.Tensor) or offsets.dtype != torch.int32 or offsets.shape != weight.shape[:1]:
        raise ArgumentError(
            f"grouped_product: offsets: expected torch.int32 {tuple(weight.shape[:1])}, a group's end row, got {_shown(offsets)}"
        )


def _product(
    x: torch.Tensor,
    weight: torch.Tensor | Quantized,
    format: str,
    groups: torch.Tensor | None,
    bias: torch.Tensor | None,
    features: tuple[int, int] | None,
    kept: Kept | None,
    dtype: torch.dtype | None,
    adds: bool,
    promotion: str,
) -> torch.Tensor:
    form = format_of(format)
    refuse_transforms(f"a layer in {format}", x, weight if isinstance(weight, torch.Tensor) else None, bias)
    if x.device.type != "meta" and torch.is_autocast_enabled(x.device.type):
        dtype = dtype or torch.get_autocast_dtype(x.device.type)
        x = x.to(dtype)
    dtype = dtype or x.dtype
    frozen, master = (weight, None) if isinstance(weight, Quantized) else (None, weight)
    size, width = features if features is not None and master is None else weight.shape[-2:]
    _check(form, x, weight, (size, width), master, bias, dtype)
    parts = (None,) * 4 if frozen is None else (frozen.elements, frozen.scales, frozen.tensor_scale, _about(frozen))
    held = None
    if torch.compiler.is_compiling():
        held, kept, adds = None if kept is None else kept.held_forms(form, master), None, False
    elif x.is_cuda and torch.cuda.is_current_stream_capturing() and (kept is None or not kept.held):
        kept = None  # a graph casts each time that it runs
    elif kept is None:
        kept = Kept()
    given = (x, master, bias, groups, *parts, size, kept, format, dtype, adds, promotion, *held_parts(held))
    if not (torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, master, bias))):
        x, bias = (one.detach() if one is not None and one.requires_grad else one for one in (x, bias))
        return _forward(None, x, master, bias, *given[3:])  # the weight itself, by which its casts are kept
    if not form.trains:
        raise ArgumentError(f"format '{format}' has no gradients: call it under torch.no_grad(), or train in {' or '.join(TRAINING)}")
    found: torch.Tensor = _with_gradients(*given)
    return found


def _with_gradients(*given: Any) -> torch.Tensor:
    found: torch.Tensor = _Product.apply(*given)
    return found


torch.compiler.allow_in_graph(_with_gradients)  # as a whole: the compiler of torch 2.6 mixes up what a function of autograd saves


def exporting() -> bool:
    """An exported program has no backward pass, and takes any number of rows only without what such a pass reads."""
    return hasattr(torch.compiler, "is_exporting") and torch.compiler.is_exporting()


def _about(weight: Quantized) -> tuple[Any, ...]:
    return weight.format, weight.squares, weight.layout, weight.packed_shape


def _whole(elements: Any, scales: Any, tensor_scale: Any, about: tuple[Any, ...]) -> Quantized:
    format, squares, layout, packed_shape = about
    return Quantized(elements, scales, format, squares=squares, layout=layout, tensor_scale=tensor_scale, packed_shape=packed_shape)


def _forward(
    ctx: Any,
    x: torch.Tensor,
    master: torch.Tensor | None,
    bias: torch.Tensor | None,
    groups: torch.Tensor | None,
    elements: torch.Tensor | None,
    scales: torch.Tensor | None,
    tensor_scale: torch.Tensor | None,
    about: Any,
    size: int,
    kept: Kept | None,
    format: str,
    dtype: torch.dtype,
    adds: bool,
    promotion: str,
    *held: torch.Tensor | None,
) -> torch.Tensor:
    """The product. What the backward pass needs is saved in ctx, if there is one."""
    ctx = None if exporting() else ctx
    form = format_of(format)
    needs_x, needs_weight = (False, False) if ctx is None else ctx.needs_input_grad[:2]
    columns: tuple[torch.Tensor | None, ...] = (None,) * 4
    saved = (elements, scales, tensor_scale)
    if x.shape[0] == 0:
        y = x.new_empty((0, size), dtype=dtype)
    else:
        filled = form.filled(x)
        if master is None:
            read, back = _whole(elements, scales, tensor_scale, about), None
        elif held:
            read, back = form.held(*held)
        else:
            read, back = made(form, master.detach(), needs_x) if kept is None else kept(form, master, needs_x)
        if needs_weight:
            a, columns = form.rows_and_columns(filled, groups)
        else:
            a = form.rows(filled, groups)
        y = _multiplied(form, a, read, x.shape[0], size, dtype, groups, bias, master is None, promotion)
        if back is not None and kept is None:
            saved, about = (back.elements, back.scales, back.tensor_scale), _about(back)
    if ctx is not None:
        ctx.of_master, ctx.kept, ctx.about, ctx.format = master is not None, kept, about, format
        ctx.sizes = size, x.shape[1], () if master is None else tuple(master.shape)
        ctx.original = original(master) if master is not None and kept is not None and needs_x else None
        ctx.adds_to = master if adds else None  # itself: saved tensors of a checkpoint are copies without a gradient
        of_weight = None if master is None else dtype_of(master) if adds else master.dtype
        ctx.dtypes = x.dtype, of_weight, None if bias is None else bias.dtype
        ctx.save_for_backward(groups, master if kept is not None and needs_x else None, *saved, *columns)
    return y


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> torch.Tensor:
        return _forward(ctx, *given)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise ArgumentError(
                f"a layer in {ctx.format} has no second derivative; leave out create_graph=True, or use torch.nn.Linear here"
            )
        refuse_batch(f"the gradient of a layer in {ctx.format}", dy)
        groups, master, elements, scales, tensor_scale, *saved = ctx.saved_tensors  # which may be read once
        weight = elements, scales, tensor_scale
        size, width, shape = ctx.sizes
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        x_dtype, weight_dtype, bias_dtype = ctx.dtypes
        form, dx, dw, db = format_of(ctx.format), None, None, None
        count = dy.shape[0]
        if count == 0:
            dx = dy.new_empty((0, width), dtype=x_dtype) if needs_x else None
            dw = dy.new_zeros(shape, dtype=weight_dtype) if needs_weight and onto(ctx.adds_to, form) is None else None
        else:
            filled = form.filled(dy)
            a, columns = None, None
            if needs_x and needs_weight:
                a, columns = form.rows_and_columns(filled, groups)
            elif needs_x:
                a = form.rows(filled, groups)
            elif needs_weight:
                columns = form.columns(filled, groups) if groups is not None else form.rows_and_columns(filled)[1]
            if a is not None:
                back = _back(ctx, form, master, weight)
                dx = _multiplied(form, a, back, count, width, x_dtype, groups, None, False)
            if columns is not None:
                dw = gradient(form, columns, Columns(*saved), weight_dtype, ctx.adds_to)
                dw = None if dw is None else (dw if groups is not None else dw[0])[..., :size, :width]
        if needs_bias:
            db = (dy.sum(0) if groups is None else _sums(dy, groups)).to(bias_dtype)
        return dx, dw, db, *(None,) * (len(ctx.needs_input_grad) - 3)


def _back(ctx: Any, form: Format, master: torch.Tensor | None, weight: tuple[Any, Any, Any]) -> Quantized:
    """The weight as the gradient of x reads it."""
    if not ctx.of_master:
        return form.transposed(_whole(*weight, ctx.about))
    back = _whole(*weight, ctx.about) if ctx.kept is None or master is None else ctx.kept(form, ctx.original(master), True)[1]
    assert back is not None
    return back


def _multiplied(
    form: Format,
    a: Quantized | torch.Tensor,
    weight: Quantized,
    count: int,
    size: int,
    dtype: torch.dtype,
    groups: torch.Tensor | None,
    bias: torch.Tensor | None,
    constant: bool,
    promotion: str = "never",
) -> torch.Tensor:
    """Rows times the weight, without the columns that it was filled up with."""
    columns = weight.shape[-2]
    if bias is not None and columns != size:
        bias = torch.nn.functional.pad(bias, (0, columns - size))
    later = bias if groups is not None and form.tokens == "fp8b128" else None  # whose grouped product adds none
    returned = groups is not None and _keeps_results(groups)
    out = None if groups is None or returned else weight.scales.new_zeros((count, columns), dtype=dtype)
    y = form.multiply(a, weight, dtype, groups, None if later is not None else bias, out, constant, promotion)
    if groups is not None and returned:
        y = torch.where((torch.arange(count, device=y.device) < groups[-1])[:, None], y, 0)
    if later is not None and groups is not None:
        y = with_bias_of_groups(y, later, groups)
    return y if columns == size else y[:, :size].contiguous()


def _keeps_results(groups: torch.Tensor) -> bool:
    """Whether what an operator writes may be lost: selective checkpoints repeat no writes, and compiled ones (torch 2.13) read zeros before them."""
    return torch.compiler.is_compiling() or type(groups) is not torch.Tensor or selective()


def with_bias_of_groups(y: torch.Tensor, bias: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """y plus the bias (G, N) of each row's group. Rows after the last are as they were."""
    check_bias(bias, (groups.shape[0], y.shape[1]))
    return y + torch.nn.functional.pad(bias, (0, 0, 0, 1))[_groups_of(y.shape[0], groups)].to(y.dtype)


def _groups_of(count: int, groups: torch.Tensor) -> torch.Tensor:
    """The group of each row; of rows after the last, the number of groups."""
    return torch.searchsorted(groups, torch.arange(count, dtype=torch.int32, device=groups.device), right=True)


def _sums(dy: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Of the rows of each group, in a fixed order. 0 * NaN would reach all groups, so numbers that are not finite are counted apart."""
    member = torch.arange(groups.shape[0], device=dy.device)[:, None] == _groups_of(dy.shape[0], groups)
    member, finite = member.to(dy.dtype), dy.isfinite()
    return torch.where(member @ (~finite).to(dy.dtype) > 0, torch.nan, member @ torch.where(finite, dy, 0))


def check_bias(bias: torch.Tensor | None, shape: tuple[int, ...]) -> None:
    """torch would broadcast a bias of another shape, or read past its last group."""
    if bias is not None and bias.shape != shape:
        raise ArgumentError(f"a layer: bias: expected {shape}, got {tuple(bias.shape)}")


def _check(
    form: Format,
    x: torch.Tensor,
    weight: torch.Tensor | Quantized,
    features: tuple[int, int],
    master: torch.Tensor | None,
    bias: torch.Tensor | None,
    dtype: torch.dtype,
) -> None:
    size, width = features
    groups = tuple(weight.shape[:-2])
    if dtype not in NUMBERS or x.dtype not in NUMBERS:
        raise ArgumentError(f"a layer in {form.name}: x: expected bf16, f16 or f32, got {x.dtype}, for a result in {dtype}")
    if master is not None and master.dtype not in NUMBERS:
        raise ArgumentError(
            f"a layer in {form.name}: weight: expected bf16, f16 or f32, got {master.dtype}; a quantised weight has its scales"
        )
    if x.shape[-1] != width:
        raise ArgumentError(
            f"a layer in {form.name}: x: expected (..., {width}), as its weight {(*groups, size, width)}, got {tuple(x.shape)}"
        )
    check_bias(bias, (*groups, size))
    for name, one in (("weight", weight), ("bias", bias)):
        if one is not None and one.device != x.device:
            raise ArgumentError(f"a layer in {form.name}: {name}: is on {one.device}, x on {x.device}; move one of them")
    for name, one in (("x", x), ("weight", master)):
        if type(one).__name__ == "DTensor":
            raise ArgumentError(
                f"a layer in {form.name}: {name}: is a DTensor, which no kernel reads; pass its local part, or use fully_shard"
            )


def _shown(given: object) -> str:
    return f"{given.dtype} {tuple(given.shape)}" if isinstance(given, torch.Tensor) else f"a {type(given).__name__}"
