"""DeepGEMM's layouts of scales. zoo's products read scales in any layout, so a client may leave them as they are.

`mn-major, aligned`: a matrix (mn, k) whose mn is contiguous and whose columns begin at multiples of 16 bytes; several one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import torch

import zoo.torch  # noqa: F401 registers torch.ops.zoo
from zoo.compat.deep_gemm import real, settings
from zoo.compat.deep_gemm.scales import align, ceil_div, ue8m0_bytes
from zoo.contract.whole_numbers import whole
from zoo.errors import ArgumentError

__all__ = [
    "get_k_alignment_for_contiguous_layout", "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor", "get_m_alignment_for_contiguous_layout",
    "get_mk_alignment_for_contiguous_layout", "get_mn_major_tma_aligned_packed_ue8m0_tensor", "get_mn_major_tma_aligned_tensor",
    "get_theoretical_mk_alignment_for_contiguous_layout", "get_tma_aligned_size", "set_mk_alignment_for_contiguous_layout",
    "transform_sf_into_required_layout",
]  # fmt: skip


def get_tma_aligned_size(mn: int, element_size: int) -> int:
    """mn rounded up to whole 16 bytes."""
    return align(mn, 16 // element_size)


def get_mn_major_tma_aligned_tensor(sf: torch.Tensor) -> torch.Tensor:
    """f32 scales (mn, k), or (G, mn, k), mn-major and aligned; as they are where they already lie so."""
    _check("get_mn_major_tma_aligned_tensor", sf)
    *several, mn, k = sf.shape
    rows = get_tma_aligned_size(mn, 4)
    strides = (*([rows * k] if several else []), 1, rows)
    if sf.stride() == strides:
        return sf
    out = sf.new_empty((*several, k, rows)).mT[..., :mn, :]
    return out.copy_(sf)


def get_mn_major_tma_aligned_packed_ue8m0_tensor(sf: torch.Tensor, psum_layout: torch.Tensor | None = None) -> torch.Tensor:
    """f32 powers of two (mn, k), or (G, mn, k), to words of four bytes (mn, ceil(k / 4)), mn-major and aligned.

    Another number becomes byte 255, NaN, where DeepGEMM cuts its bits off. Gaps of `psum_layout` are packed as well.
    """
    _check("get_mn_major_tma_aligned_packed_ue8m0_tensor", sf)
    *several, mn, k = sf.shape
    words, rows = ceil_div(k, 4), get_tma_aligned_size(mn, 4)
    out = torch.empty((*several, words, rows), dtype=torch.int32, device=sf.device)
    if not several and sf.stride(1) == 1 and sf.stride(0) >= k and sf.data_ptr() % 16 == 0 and sf.numel():
        torch.ops.zoo.scales_ue8m0_words.out(sf, words=out[:, :mn])
    else:
        codes = torch.nn.functional.pad(ue8m0_bytes(sf), (0, 4 * words - k))
        out[..., :mn].copy_(codes.reshape(-1).view(torch.int32).view(*several, mn, words).mT)
    return out.mT[..., :mn, :]


def get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(
    sf: torch.Tensor, grouped_layout: torch.Tensor, ks_cpu: Sequence[int] | None, gran_k: int = 128, k_alignment: int = 128,
    use_psum_layout: bool = False,
) -> torch.Tensor:  # fmt: skip
    """f32 powers of two (blocks, mn) of groups along K to words (ceil of each group's blocks / 4, mn), the words of a group by itself.

    grouped_layout has the K of each group, or the ends of groups that begin at multiples of k_alignment. Without ks_cpu the result has as
    many words as there may be, and those behind the last group are 0.
    """
    name = "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor"
    _check(name, sf)
    if not isinstance(grouped_layout, torch.Tensor) or grouped_layout.dtype != torch.int32 or grouped_layout.dim() != 1 or sf.dim() != 2:
        got = grouped_layout.dtype if isinstance(grouped_layout, torch.Tensor) else f"a {type(grouped_layout).__name__}"
        raise ArgumentError(f"{name}: expected scales (blocks, mn) and torch.int32 (G,), got {tuple(sf.shape)} and {got}")
    whole(gran_k, f"{name}: gran_k", 1)
    try:
        sizes_cpu = [] if ks_cpu is None else [index(k) for k in ks_cpu]
    except TypeError:
        raise ArgumentError(f"{name}: ks_cpu: expected the K of each group, got {ks_cpu!r}") from None
    if not sizes_cpu and not use_psum_layout:
        raise ArgumentError(f"{name}: ks_cpu: expected the K of each group, got {ks_cpu!r}; only ends of groups go without")
    blocks, mn = sf.shape
    groups = grouped_layout.numel()
    if sum(ceil_div(k, gran_k) for k in sizes_cpu) > blocks:
        raise ArgumentError(f"{name}: ks_cpu: expected at most {blocks} blocks of {gran_k}, as sf has, got {sizes_cpu}")
    words = sum(ceil_div(k, 4 * gran_k) for k in sizes_cpu) if sizes_cpu else (blocks + 3 * groups) // 4
    sizes = grouped_layout
    if use_psum_layout:
        begins = (grouped_layout + (k_alignment - 1)) // k_alignment * k_alignment
        sizes = grouped_layout - torch.nn.functional.pad(begins[:-1], (1, 0))
    of_group = (sizes + (gran_k - 1)) // gran_k  # blocks
    ends, word_ends = of_group.cumsum(0), ((of_group + 3) // 4).cumsum(0)
    word = torch.arange(words, device=sf.device)
    group = torch.searchsorted(word_ends, word, right=True)
    known = group.clamp(max=groups - 1)
    first = (ends - of_group)[known] + 4 * (word - (word_ends - (of_group + 3) // 4)[known])
    block = first[:, None] + torch.arange(4, device=sf.device)
    inside = (block < ends[known][:, None].clamp(max=blocks)) & (group < groups)[:, None]
    codes = torch.nn.functional.pad(ue8m0_bytes(sf), (0, 0, 0, 1))  # and a row of zeros
    return codes[torch.where(inside, block, blocks)].transpose(1, 2).contiguous().view(torch.int32).view(words, mn)


def transform_sf_into_required_layout(
    sf: torch.Tensor, mn: int, k: int, recipe: tuple[int, ...], num_groups: int | None = None, is_sfa: bool | None = None,
    disable_ue8m0_cast: bool = False, psum_layout: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Scales as zoo's products read them: for 1 x 128 mn-major and aligned, for 128 x 128 and packed words as they are. Scales for other blocks
    are read by products of an installed DeepGEMM alone, which lays them out."""
    name = "transform_sf_into_required_layout"
    if not isinstance(recipe, tuple | list) or (len(recipe) == 3 and is_sfa is None) or len(recipe) not in (2, 3):
        raise ArgumentError(f"{name}: recipe: expected (M, N, K) with is_sfa, or (MN, K), got {recipe}")
    across = recipe[0] if len(recipe) == 2 or is_sfa else recipe[1]
    along = recipe[-1]
    if across not in (1, 128) or along != 128:
        psum = () if psum_layout is None else (psum_layout,)  # which older versions lack
        found: torch.Tensor = real.instead(name, f"recipe: zoo's products have scales for 1 x 128 and 128 x 128, got {across} x {along}")(
            sf, mn, k, recipe, num_groups, is_sfa, disable_ue8m0_cast, *psum
        )
        return found
    if not isinstance(sf, torch.Tensor) or sf.dtype not in (torch.float32, torch.int32):
        got = sf.dtype if isinstance(sf, torch.Tensor) else f"a {type(sf).__name__}"
        raise ArgumentError(f"{name}: sf: expected torch.float32 or words of torch.int32, got {got}")
    several = () if num_groups is None else (num_groups,)
    expected = (*several, ceil_div(mn, across), ceil_div(k, along * (4 if sf.dtype == torch.int32 else 1)))
    if tuple(sf.shape) != expected:
        raise ArgumentError(f"{name}: sf: expected {expected}, got {tuple(sf.shape)}")
    return get_mn_major_tma_aligned_tensor(sf) if across == 1 and sf.dtype == torch.float32 else sf


def _check(name: str, sf: torch.Tensor) -> None:
    if not isinstance(sf, torch.Tensor) or sf.dtype != torch.float32 or sf.dim() not in (2, 3):
        got = f"{sf.dtype} {tuple(sf.shape)}" if isinstance(sf, torch.Tensor) else f"a {type(sf).__name__}"
        raise ArgumentError(f"{name}: sf: expected torch.float32 scales (mn, k) or (G, mn, k), got {got}")


get_mk_alignment_for_contiguous_layout = settings.get_mk_alignment_for_contiguous_layout
set_mk_alignment_for_contiguous_layout = settings.set_mk_alignment_for_contiguous_layout
get_theoretical_mk_alignment_for_contiguous_layout = settings.get_theoretical_mk_alignment_for_contiguous_layout
get_m_alignment_for_contiguous_layout = settings.get_m_alignment_for_contiguous_layout
get_k_alignment_for_contiguous_layout = settings.get_k_alignment_for_contiguous_layout
