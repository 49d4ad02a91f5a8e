"""DeepGEMM's products of FP8 matrices: dense, and with a matrix of B for each group of rows or each head.

Layouts are DeepGEMM's: `nt` means A (M, K) and B (N, K), both with K contiguous. An operand is a pair (elements, scales). Results are
written into d; nothing is returned. `compiled_dims` and `disable_ue8m0_cast` have no effect: no kernel of zoo is compiled for sizes, and
kernels read f32 and ue8m0 scales alike.
"""

from __future__ import annotations

from typing import Any

import torch

from zoo.compat.deep_gemm import real, settings
from zoo.compat.deep_gemm.scales import unpacked
from zoo.compat.deep_gemm.start import compiling, overlap, refuse_pairs, same, starter
from zoo.compat.deep_gemm.weight_gradients import both_by_rows
from zoo.errors import ArgumentError

Pair = tuple[torch.Tensor, torch.Tensor]
Recipe = tuple[int, int, int] | None
Part = tuple[int, int] | None

_E4M3 = torch.float8_e4m3fn
_WORDS = torch.int32
_ROWS, _SQUARES = (1, 128), (128, 128)
_HEADS = "bhr,hdr->bhd"


def fp8_fp4_gemm_nt(
    a: Pair, b: Pair, d: torch.Tensor, c: torch.Tensor | None = None, recipe: Recipe = None, recipe_a: Part = None, recipe_b: Part = None,
    compiled_dims: str = "nk", disable_ue8m0_cast: bool = False,
) -> None:  # fmt: skip
    """d (M, N) = a (M, K) b (N, K)^T + c. Scales of b are for 128 x 128, or for 1 x 128 (weight gradients: `recipe=(1, 1, 128)`)."""
    if settings.compile_mode:
        return
    try:
        (x, x_scale), (w, w_scale) = a, b
        rows, blocks = w_scale.shape
        packed = x_scale.dtype == _WORDS
        lacks = _lacks(x, w, recipe, recipe_a, recipe_b)
    except (TypeError, ValueError, AttributeError):
        refuse_pairs("fp8_gemm_nt", a, b)
    if lacks:
        real.instead("fp8_fp4_gemm_nt", lacks)(a, b, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast)
        return
    if c is not None and (not isinstance(c, torch.Tensor) or c.shape != d.shape):
        got = tuple(c.shape) if isinstance(c, torch.Tensor) else f"a {type(c).__name__}"
        raise ArgumentError(f"fp8_gemm_nt: c: expected the shape of d, {tuple(d.shape)}, got {got}")
    if blocks == 0:
        _nothing_to_multiply(x, w, d, c)
        return
    if rows == len(w) != 0:  # N is a multiple of 8, so 1 x 128 and 128 x 128 never have equally many scales
        both_by_rows(x, x_scale, w, w_scale, d, c)
        return
    if packed:
        x_scale = unpacked("fp8_gemm_nt: a's scales", x_scale, *x.shape)
    if c is None:
        starter(d)("gemm.fp8b128.dense", a=x, a_scale=x_scale, b=w, b_scale=w_scale, d=d)
    else:
        c = c.clone() if overlap(c, d) and not _in_place(c, d) else c  # the kernel reads c while other tiles of d are written
        starter(d)("gemm.fp8b128.dense", a=x, a_scale=x_scale, b=w, b_scale=w_scale, c=c, d=d)


def fp8_fp4_gemm_nn(
    a: Pair, b: Pair, d: torch.Tensor, c: torch.Tensor | None = None, recipe: Recipe = None, recipe_a: Part = None, recipe_b: Part = None,
    compiled_dims: str = "nk", disable_ue8m0_cast: bool = False,
) -> None:  # fmt: skip
    """b is (K, N): a transposed view whose K is contiguous."""
    fp8_fp4_gemm_nt(a, _transposed(b), d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast)


def fp8_fp4_gemm_tn(
    a: Pair, b: Pair, d: torch.Tensor, c: torch.Tensor | None = None, recipe: Recipe = None, recipe_a: Part = None, recipe_b: Part = None,
    compiled_dims: str = "mn", disable_ue8m0_cast: bool = False,
) -> None:  # fmt: skip
    """a is (K, M) and b is (K, N): transposed views whose K is contiguous."""
    fp8_fp4_gemm_nt(_transposed(a), _transposed(b), d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast)


def fp8_fp4_gemm_tt(
    a: Pair, b: Pair, d: torch.Tensor, c: torch.Tensor | None = None, recipe: Recipe = None, recipe_a: Part = None, recipe_b: Part = None,
    compiled_dims: str = "mn", disable_ue8m0_cast: bool = False,
) -> None:  # fmt: skip
    """a is (K, M): a transposed view whose K is contiguous."""
    fp8_fp4_gemm_nt(_transposed(a), b, d, c, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast)


def m_grouped_fp8_fp4_gemm_nt_contiguous(
    a: Pair, b: Pair, d: torch.Tensor, grouped_layout: torch.Tensor | None = None, recipe: Recipe = None, recipe_a: Part = None,
    recipe_b: Part = None, compiled_dims: str = "nk", disable_ue8m0_cast: bool = False, use_psum_layout: bool = False,
    ensure_zero_padding: bool = True, expected_m_for_psum_layout: int | None = None, *, m_indices: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """d (M, N): each row of a (M, K) times its matrix of b (G, N, K)^T.

    grouped_layout (M,) is the group of each row, -1 for padding; the rows of a group are neighbours. With use_psum_layout it is (G,), the
    end row of each group, and groups begin at multiples of the alignment. `m_indices` is an older name of grouped_layout.
    """
    if settings.compile_mode:
        return
    name = "m_grouped_fp8_gemm_nt_contiguous"
    try:
        (x, x_scale), (w, w_scale) = a, b
        packed = x_scale.dtype == _WORDS, w_scale.dtype == _WORDS
        lacks = _lacks(x, w, recipe, recipe_a, recipe_b)
    except (TypeError, ValueError, AttributeError):
        refuse_pairs(name, a, b)
    layout = grouped_layout if m_indices is None else m_indices
    if lacks:
        real.instead("m_grouped_fp8_fp4_gemm_nt_contiguous", lacks)(
            a, b, d, layout, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, use_psum_layout, ensure_zero_padding,
            expected_m_for_psum_layout,
        )  # fmt: skip
        return
    if not isinstance(layout, torch.Tensor):
        raise ArgumentError(f"{name}: grouped_layout: expected a tensor of torch.int32, got a {type(layout).__name__}")
    if grouped_layout is not None and m_indices is not None:
        raise ArgumentError(f"{name}: m_indices is another name of grouped_layout; give one of them")
    x_scale = _scales(name, x_scale, x, w, packed)
    groups = {"offsets": _ends(layout, x, ensure_zero_padding)} if use_psum_layout else {"m_indices": _filled(layout)}
    starter(d)("gemm.fp8b128.m_grouped_contiguous", a=x, a_scale=x_scale, b=w, b_scale=w_scale, d=d, **groups)


def m_grouped_fp8_fp4_gemm_nn_contiguous(
    a: Pair, b: Pair, d: torch.Tensor, grouped_layout: torch.Tensor | None = None, recipe: Recipe = None, recipe_a: Part = None,
    recipe_b: Part = None, compiled_dims: str = "nk", disable_ue8m0_cast: bool = False, use_psum_layout: bool = False,
    ensure_zero_padding: bool = True, *, m_indices: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """b is (G, K, N): transposed views whose K is contiguous."""
    m_grouped_fp8_fp4_gemm_nt_contiguous(
        a, _transposed(b), d, grouped_layout, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast, use_psum_layout,
        ensure_zero_padding, m_indices=m_indices,
    )  # fmt: skip


def m_grouped_fp8_fp4_gemm_nt_masked(
    a: Pair, b: Pair, d: torch.Tensor, masked_m: torch.Tensor, expected_m: int, recipe: Recipe = None, recipe_a: Part = None,
    recipe_b: Part = None, compiled_dims: str = "nk", disable_ue8m0_cast: bool = False,
) -> None:  # fmt: skip
    """d (G, R, N): the first masked_m[g] rows of a (G, R, K) times b (G, N, K)^T. Other rows of d are not written."""
    if settings.compile_mode:
        return
    name = "m_grouped_fp8_gemm_nt_masked"
    try:
        (x, x_scale), (w, w_scale) = a, b
        packed = x_scale.dtype == _WORDS, w_scale.dtype == _WORDS
        lacks = _lacks(x, w, recipe, recipe_a, recipe_b)
    except (TypeError, ValueError, AttributeError):
        refuse_pairs(name, a, b)
    if lacks:
        real.instead("m_grouped_fp8_fp4_gemm_nt_masked", lacks)(
            a, b, d, masked_m, expected_m, recipe, recipe_a, recipe_b, compiled_dims, disable_ue8m0_cast
        )
        return
    x_scale = _scales(name, x_scale, x, w, packed)
    if not isinstance(masked_m, torch.Tensor):
        raise ArgumentError(f"{name}: masked_m: expected a tensor of torch.int32, got a {type(masked_m).__name__}")
    try:
        expected = int(expected_m)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name}: expected_m: expected a number of rows, got {expected_m!r}") from None
    starter(d)("gemm.fp8b128.m_grouped_masked", a=x, a_scale=x_scale, b=w, b_scale=w_scale, d=d, rows=masked_m, expected_rows=expected)


def fp8_einsum(
    expr: str, a: Pair, b: Pair, d: torch.Tensor, c: torch.Tensor | None = None, recipe: Recipe = (1, 128, 128)
) -> None:  # fmt: skip
    """For "bhr,hdr->bhd": d (B, H, D) = a (B, H, R) b (H, D, R)^T + c for each head H. Tokens and heads of a and d have any strides.

    Without c, one product serves all heads on Hopper. Otherwise each head is a product of its own.
    """
    if settings.compile_mode:
        return
    try:
        (x, x_scale), (w, w_scale) = a, b
        packed = x_scale.dtype == _WORDS, w_scale.dtype == _WORDS
        lacks = _lacks(x, w, recipe, None, None) if expr == _HEADS else f"expr is {_HEADS!r}, got {expr!r}"
    except (TypeError, ValueError, AttributeError):
        refuse_pairs("fp8_einsum", a, b)
    if lacks:
        real.instead("fp8_einsum", lacks)(expr, a, b, d, c, recipe)
        return
    for name, one in (("a", x), ("a's scales", x_scale), ("b", w), ("d", d), ("c", d if c is None else c)):
        if not isinstance(one, torch.Tensor) or one.dim() != 3:
            got = tuple(one.shape) if isinstance(one, torch.Tensor) else f"a {type(one).__name__}"
            raise ArgumentError(f"fp8_einsum: {name}: expected three axes, got {got}")
    if not x.shape[1] == x_scale.shape[1] == len(w) == len(w_scale) == d.shape[1]:  # the launches below go by the heads of b
        heads = x.shape[1], x_scale.shape[1], len(w), len(w_scale), d.shape[1]
        raise ArgumentError(f"fp8_einsum: expected as many heads H in a (B, H, R), b (H, D, R), their scales and d (B, H, D), got {heads}")
    if c is not None and c.shape != d.shape:
        raise ArgumentError(f"fp8_einsum: c: expected the shape of d, {tuple(d.shape)}, got {tuple(c.shape)}")
    if c is None and (not x.is_cuda or torch.cuda.get_device_capability(x.device)[0] == 9):
        x = x.transpose(0, 1)
        x_scale = _scales("fp8_einsum", x_scale.transpose(0, 1), x, w, packed)
        rows = torch.full((len(x),), x.shape[1], dtype=torch.int32, device=x.device)
        starter(d)("gemm.fp8b128.m_grouped_masked", a=x, a_scale=x_scale, b=w, b_scale=w_scale, rows=rows, d=d.transpose(0, 1))
        return
    for head in range(len(w)):
        added = None if c is None else c[:, head]
        fp8_fp4_gemm_nt((x[:, head], x_scale[:, head]), (w[head], w_scale[head]), d[:, head], added)


fp8_gemm_nt, fp8_gemm_nn, fp8_gemm_tn, fp8_gemm_tt = fp8_fp4_gemm_nt, fp8_fp4_gemm_nn, fp8_fp4_gemm_tn, fp8_fp4_gemm_tt
m_grouped_fp8_gemm_nt_contiguous = m_grouped_fp8_fp4_gemm_nt_contiguous
m_grouped_fp8_gemm_nn_contiguous = m_grouped_fp8_fp4_gemm_nn_contiguous
m_grouped_fp8_gemm_nt_masked = fp8_m_grouped_gemm_nt_masked = m_grouped_fp8_fp4_gemm_nt_masked


def _transposed(operand: Any) -> Any:
    """Elements and scales as views. What is no pair of tensors is refused behind this."""
    if isinstance(operand, tuple | list) and all(isinstance(one, torch.Tensor) and one.dim() > 1 for one in operand):
        return tuple(one.mT for one in operand)
    return operand


def _lacks(a: torch.Tensor, b: torch.Tensor, recipe: Recipe, recipe_a: Part, recipe_b: Part) -> str | None:
    """What these operands need that zoo has no kernel for, or nothing."""
    if a.dtype != _E4M3 or b.dtype != _E4M3:
        return f"operands are torch.float8_e4m3fn, got {a.dtype} and {b.dtype}"
    if recipe_a is None and recipe_b is None and (recipe is None or recipe == (1, 128, 128) or recipe == (1, 1, 128)):
        return None
    if (recipe is None) == (recipe_a is None or recipe_b is None) or (recipe is not None and (recipe_a, recipe_b) != (None, None)):
        return "give either recipe or both of recipe_a and recipe_b"
    parts = (recipe_a, recipe_b)
    if recipe is not None and isinstance(recipe, tuple | list) and len(recipe) == 3:
        parts = (recipe[0], recipe[2]), (recipe[1], recipe[2])
    of_a, of_b = (tuple(one) if isinstance(one, tuple | list) else one for one in parts)
    if of_a == _ROWS and of_b in (_ROWS, _SQUARES):
        return None
    got = f"recipes {recipe_a} and {recipe_b}" if recipe is None else f"the recipe {recipe}"
    return f"scales are for 1 x 128 of a and for 128 x 128 or 1 x 128 of b, as in (1, 128, 128), got {got}"


def _in_place(c: torch.Tensor, d: torch.Tensor) -> bool:
    """Whether a kernel takes d for c. An operator of a compiled function, whose arguments torch may copy, does not."""
    return not compiling() and same(c, d)


def _nothing_to_multiply(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None) -> None:
    """K = 0, which no kernel takes."""
    expected = (a.shape[0], b.shape[0])
    if tuple(d.shape) != expected:
        raise ArgumentError(f"fp8_gemm_nt: d: expected {expected} = (M, N), got {tuple(d.shape)}")
    if c is None:
        d.zero_()
    elif not overlap(c, d):
        d.copy_(c)


def _scales(name: str, a_scale: torch.Tensor, a: torch.Tensor, b: torch.Tensor, packed: tuple[bool, bool]) -> torch.Tensor:
    """Those of a, as grouped products read them. One matrix of b is refused here: indices of other groups would lead outside of it."""
    if b.dim() != 3:
        raise ArgumentError(f"{name}: b: expected (G, N, K), got {tuple(b.shape)}")
    if packed[1]:
        raise ArgumentError(
            f"{name}: b's scales: packed words are scales for 1 x 128, which grouped products of zoo do not read; "
            "pass scales for 128 x 128 of b, (G, ceil_div(N, 128), ceil_div(K, 128))"
        )
    return unpacked(f"{name}: a's scales", a_scale, *a.shape[-2:]) if packed[0] else a_scale


def _filled(groups: torch.Tensor) -> torch.Tensor:
    """-1 of a padding row becomes the group of the aligned block's first row, whose tile computes it in DeepGEMM: rows of zeros stay zeros.
    A block that begins with -1 is not written. The CPU and the GPU do the same."""
    rows, most = groups.shape[0] if groups.dim() == 1 else 0, settings.alignment
    if not settings.fill or rows == 0 or most == 1:
        return groups
    if rows % most == 0:
        blocks = groups.view(-1, most) if groups.is_contiguous() else groups.reshape(-1, most)
        return torch.where(blocks < 0, blocks[:, :1], blocks).view(-1)
    first = groups[::most].repeat_interleave(most)[:rows]
    return torch.where(groups < 0, first, groups)


def _ends(ends: torch.Tensor, a: torch.Tensor, padded: bool) -> torch.Tensor:
    """The end row of each group. zoo's groups begin where the one before ends, so the gap before a group is computed with it.
    Outside Hopper, where DeepGEMM promises zeros behind each group, groups end at the alignment."""
    if not padded or settings.alignment == 1 or (a.is_cuda and torch.cuda.get_device_capability(a.device)[0] == 9):
        return ends
    return ((ends + (settings.alignment - 1)) // settings.alignment * settings.alignment).clamp(max=a.shape[0])
