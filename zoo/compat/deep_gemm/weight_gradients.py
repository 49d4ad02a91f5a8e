"""Products whose operands both have scales for 1 x 128 along K: weight gradients, by `gemm.fp8b128.k_grouped`.

Accumulation happens in d: if c is another tensor, d becomes a copy of c first.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import torch

from zoo.compat.deep_gemm import real, settings
from zoo.compat.deep_gemm.scales import BLOCK, align, by_blocks, ceil_div
from zoo.compat.deep_gemm.start import overlap, refuse_pairs, same, starter
from zoo.errors import ArgumentError

Pair = tuple[torch.Tensor, torch.Tensor]
_KERNEL = "gemm.fp8b128.k_grouped"


def both_by_rows(
    a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, d: torch.Tensor, c: torch.Tensor | None
) -> None:
    """d (M, N) = a (M, K) b (N, K)^T + c, as one group."""
    k = a.shape[-1]
    blocks = ceil_div(k, BLOCK)
    _multiply(
        a, by_blocks("fp8_gemm_nt: a's scales", a_scale, a.shape[0], blocks, 1),
        b, by_blocks("fp8_gemm_nt: b's scales", b_scale, b.shape[0], blocks, 1),
        torch.full((1,), k, dtype=torch.int32, device=a.device), d.unsqueeze(0), _accumulates("fp8_gemm_nt", d, c),
    )  # fmt: skip


def k_grouped_fp8_gemm_nt_contiguous(
    a: Pair, b: Pair, d: torch.Tensor, ks_cpu: Sequence[int] | None, grouped_layout: torch.Tensor, c: torch.Tensor | None = None,
    recipe: tuple[int, int, int] = (1, 1, 128), compiled_dims: str = "mn", use_psum_layout: bool = False,
) -> None:  # fmt: skip
    """d (G, M, N) = a_g b_g^T + c for each group, from blocks a_g (M, K_g) and b_g (N, K_g) that lie one after the other in flat memory.

    Scales are (M, blocks) and (N, blocks), the groups' blocks of 128 one after the other. Each group is a launch.
    """
    name = "k_grouped_fp8_gemm_nt_contiguous"
    if settings.compile_mode:
        return
    try:
        (x, x_scale), (w, w_scale) = a, b
        fits = x.dtype == w.dtype == torch.float8_e4m3fn and x_scale.dim() == w_scale.dim() == 2
    except (TypeError, ValueError, AttributeError):
        refuse_pairs(name, a, b)
    if not _of_rows(recipe):
        real.instead(name, f"scales are for 1 x 128, recipe (1, 1, 128), got {recipe}")(
            a, b, d, ks_cpu, grouped_layout, c, recipe, compiled_dims, use_psum_layout
        )
        return
    groups, m, n = _shape(name, d, fits)
    try:
        sizes = [] if use_psum_layout or ks_cpu is None else [index(k) for k in ks_cpu]
    except TypeError:
        sizes = []
    if not sizes:
        raise ArgumentError(f"{name}: ks_cpu: expected the sizes of the groups, which each are a matrix of their own, got {ks_cpu!r}")
    if len(sizes) != groups or any(k < 0 or k % 16 for k in sizes):
        raise ArgumentError(f"{name}: ks_cpu: expected {groups} multiples of 16, one for each group of d, got {sizes}")
    _check_sizes(name, grouped_layout, groups)
    for which, operand, rows in (("a", x, m), ("b", w, n)):
        flat = operand.dim() == 1 or (groups == 1 and operand.shape == (rows, sizes[0]))
        if operand.numel() != sum(sizes) * rows or not flat or not operand.is_contiguous():
            raise ArgumentError(
                f"{name}: {which}: expected ({sum(sizes) * rows},) contiguous elements, one block ({rows}, K) for each group, "
                f"got {tuple(operand.shape)}"
            )
    accumulate = _accumulates(name, d, c)
    blocks = sum(ceil_div(k, BLOCK) for k in sizes)
    x, w = x.reshape(-1), w.reshape(-1)
    x_scale = by_blocks(f"{name}: a's scales", x_scale, m, blocks, 1)
    w_scale = by_blocks(f"{name}: b's scales", w_scale, n, blocks, 1)
    end = block = 0
    for group, k in enumerate(sizes):
        if k:
            those = slice(block, block + ceil_div(k, BLOCK) + 1)
            _multiply(
                x[end * m : (end + k) * m].view(m, k), x_scale[:, those], w[end * n : (end + k) * n].view(n, k), w_scale[:, those],
                grouped_layout[group : group + 1], d[group : group + 1], accumulate,
            )  # fmt: skip
        elif not accumulate:
            d[group].zero_()
        end, block = end + k, block + ceil_div(k, BLOCK)


def k_grouped_fp8_gemm_tn_contiguous(
    a: Pair, b: Pair, d: torch.Tensor, ks_cpu: Sequence[int] | None, grouped_layout: torch.Tensor, c: torch.Tensor | None = None,
    recipe: tuple[int, int, int] = (1, 1, 128), compiled_dims: str = "mn", use_psum_layout: bool = False,
) -> None:  # fmt: skip
    """d (G, M, N) = a_g^T b_g + c for each group of rows of a (K, M) and b (K, N), in one launch. Both are transposed by a copy.

    Scales are (blocks, M) and (blocks, N). grouped_layout has the size of each group; with use_psum_layout the end of each group, where
    groups begin at multiples of 128 and rows between groups are zeros. ks_cpu is not read.
    """
    name = "k_grouped_fp8_gemm_tn_contiguous"
    if settings.compile_mode:
        return
    try:
        (x, x_scale), (w, w_scale) = a, b
        fits = x.dtype == w.dtype == torch.float8_e4m3fn and x_scale.dim() == w_scale.dim() == 2
    except (TypeError, ValueError, AttributeError):
        refuse_pairs(name, a, b)
    lacks = None if _of_rows(recipe) else f"scales are for 1 x 128, recipe (1, 1, 128), got {recipe}"
    if use_psum_layout and settings.alignment != BLOCK:
        lacks = f"groups begin at multiples of 128, got an alignment of {settings.alignment}"
    if lacks:
        real.instead(name, lacks)(a, b, d, ks_cpu, grouped_layout, c, recipe, compiled_dims, use_psum_layout)
        return
    groups, m, n = _shape(name, d, fits)
    _check_sizes(name, grouped_layout, groups)
    for which, operand, columns in (("a", x, m), ("b", w, n)):
        if operand.dim() != 2 or operand.shape[1] != columns or operand.shape[0] != x.shape[0]:
            raise ArgumentError(f"{name}: {which}: expected (K, {columns}), the same K for a and b, got {tuple(operand.shape)}")
    if use_psum_layout:
        ends = ((grouped_layout + (BLOCK - 1)) // BLOCK * BLOCK).clamp(max=x.shape[0])
    else:
        ends = grouped_layout.cumsum(0, dtype=torch.int32)
    blocks = ceil_div(x.shape[0], BLOCK) + groups  # at most: each group may begin a block
    _multiply(
        _k_contiguous(x), _room(f"{name}: a's scales", x_scale, m, blocks), _k_contiguous(w), _room(f"{name}: b's scales", w_scale, n, blocks),
        ends, d, _accumulates(name, d, c),
    )  # fmt: skip


def _multiply(
    a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, ends: torch.Tensor, d: torch.Tensor, accumulate: bool
) -> None:
    starter(d)(_KERNEL, a=a, a_scale=a_scale, b=b, b_scale=b_scale, offsets=ends, d=d, accumulate="yes" if accumulate else "no")


def _accumulates(name: str, d: torch.Tensor, c: torch.Tensor | None) -> bool:
    """Whether the product is added to d, which then holds c."""
    if c is None:
        return False
    if not isinstance(c, torch.Tensor) or c.dtype != d.dtype or c.shape != d.shape:
        got = f"{c.dtype} {tuple(c.shape)}" if isinstance(c, torch.Tensor) else f"a {type(c).__name__}"
        raise ArgumentError(f"{name}: c: expected {d.dtype} {tuple(d.shape)} as d, got {got}")
    if not same(c, d):
        d.copy_(c.clone() if overlap(c, d) else c)
    return True


def _shape(name: str, d: torch.Tensor, operands_fit: bool) -> tuple[int, int, int]:
    if not operands_fit:
        raise ArgumentError(f"{name}: a, b: expected torch.float8_e4m3fn and a matrix of scales each")
    if not isinstance(d, torch.Tensor) or d.dim() != 3:
        got = tuple(d.shape) if isinstance(d, torch.Tensor) else f"a {type(d).__name__}"
        raise ArgumentError(f"{name}: d: expected (G, M, N), got {got}")
    groups, m, n = d.shape
    return groups, m, n


def _of_rows(recipe: object) -> bool:
    return isinstance(recipe, tuple | list) and tuple(recipe) == (1, 1, 128)


def _check_sizes(name: str, sizes: torch.Tensor, groups: int) -> None:
    if not isinstance(sizes, torch.Tensor) or sizes.dtype != torch.int32 or tuple(sizes.shape) != (groups,):
        got = f"{sizes.dtype} {tuple(sizes.shape)}" if isinstance(sizes, torch.Tensor) else f"a {type(sizes).__name__}"
        raise ArgumentError(f"{name}: grouped_layout: expected torch.int32 ({groups},), one for each group of d, got {got}")


def _k_contiguous(x: torch.Tensor) -> torch.Tensor:
    """(columns, K) of (K, columns), rows at multiples of 16 bytes."""
    k, columns = x.shape
    room = x.new_empty((columns, align(k, 16)))[:, :k]
    room.copy_(x.t())
    return room


def _room(name: str, scales: torch.Tensor, rows: int, blocks: int) -> torch.Tensor:
    """Scales (some blocks, rows) as the first of as many blocks as the kernel may ask for, (rows, blocks) with contiguous rows."""
    if scales.dtype != torch.float32 or scales.dim() != 2 or scales.shape[1] != rows or scales.shape[0] > blocks:
        raise ArgumentError(
            f"{name}: expected torch.float32 (blocks, {rows}), at most {blocks} blocks, got {scales.dtype} {tuple(scales.shape)}"
        )
    room = scales.new_empty((blocks, align(rows, 16)))[:, :rows]
    room[: scales.shape[0]].copy_(scales)
    return room.t()
