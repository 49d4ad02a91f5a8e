"""Casts and layouts: DeepGEMM's numbers, bit for bit, and the strides that its clients assert."""

from __future__ import annotations

import pytest
import torch

import zoo.compat.deep_gemm as deep_gemm
from tests.torch.compat.operands import DEVICE, ints, normal
from zoo.errors import ArgumentError


def same_bits(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.shape == y.shape and torch.equal(x.view(torch.uint8), y.view(torch.uint8))


def by_hand(x: torch.Tensor, rows: int, columns: int, powers: bool):
    """Block by block, in Python: e4m3(x * (1 / scale)) with scale = max |x| / 448, or the power of two at or above it."""
    x = x.float()
    scales = torch.empty(-(-x.shape[0] // rows), -(-x.shape[1] // columns), device=x.device)
    q = torch.empty_like(x)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            place = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
            scale = x[place].abs().max() / 448.0
            if powers:
                mantissa, exponent = torch.frexp(scale)
                scale = torch.ldexp(torch.ones_like(scale), exponent - int(mantissa == 0.5))
            scales[i, j], q[place] = scale, x[place] * (1.0 / scale)
    return q.to(torch.float8_e4m3fn), scales


@pytest.mark.parametrize("powers", [False, True])
@pytest.mark.parametrize("k", [256, 208, 200])  # whole blocks, a short one, and rows that no kernel takes
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_casts_give_the_numbers_of_the_formula(powers, k, dtype):
    x = normal(9, k).to(dtype)
    for cast, rows in ((deep_gemm.per_token_cast_to_fp8, 1), (deep_gemm.per_block_cast_to_fp8, 128)):
        (q, scales), (exact, exact_scales) = cast(x, powers), by_hand(x, rows, 128, powers)
        assert torch.equal(scales, exact_scales) and same_bits(q, exact) and q.is_contiguous()
    q, scales = deep_gemm.per_channel_cast_to_fp8(normal(256, 24).to(dtype), powers)
    exact, exact_scales = by_hand(normal(256, 24).to(dtype), 128, 1, powers)
    assert torch.equal(scales, exact_scales) and same_bits(q, exact)


def test_blocks_of_32_and_other_axes():
    x = normal(64, 96)
    for cast, block in ((deep_gemm.per_token_cast_to_fp8, (1, 32)), (deep_gemm.per_block_cast_to_fp8, (32, 32))):
        (q, scales), (exact, exact_scales) = cast(x, True, 32), by_hand(x, *block, True)
        assert torch.equal(scales, exact_scales) and same_bits(q, exact)
    q, scales = deep_gemm.per_custom_dims_cast_to_fp8(x, (0,), False)
    exact, exact_scales = by_hand(x, 1, 96, False)
    assert torch.equal(scales, exact_scales[:, 0]) and same_bits(q, exact)


@pytest.mark.parametrize("gran_k", [128, 64])  # by the kernel, and by torch
def test_zeros_tiny_numbers_and_nan_stay_what_they_are(gran_k):
    x = torch.zeros(4, 128, device=DEVICE)
    x[1], x[2], x[3] = 1e-6, 1e-6 * torch.arange(128), 2.0
    x[3, 5] = float("nan")
    q, scales = deep_gemm.per_token_cast_to_fp8(x, False, gran_k)
    numbers = q.float() * scales.repeat_interleave(gran_k, 1)
    assert not q[0].float().any() and bool(scales.isfinite()[:3].all())
    assert torch.allclose(numbers[1:3], x[1:3], rtol=2.0**-4, atol=0)  # e4m3 has three bits
    assert bool(numbers[3, :gran_k].isnan().all())


def test_packed_scales_have_the_first_block_in_the_lowest_byte():
    x = torch.zeros(1, 512, device=DEVICE)
    for block in range(4):
        x[0, 128 * block] = 448.0 * 2.0**block
    _, words = deep_gemm.per_token_cast_to_fp8(x, True, use_packed_ue8m0=True)
    assert words.tolist() == [[(127 | 128 << 8 | 129 << 16 | 130 << 24) - (1 << 32)]]  # the highest bit is the sign
    assert deep_gemm.unpack_ue8m0_from_int(words).tolist() == [[1.0, 2.0, 4.0, 8.0]]


def test_powers_of_two_are_rounded_up_and_never_packed_cut():
    assert deep_gemm.ceil_to_ue8m0(torch.tensor([1.0, 1.0000001, 3.0, 0.75])).tolist() == [1.0, 2.0, 4.0, 1.0]
    assert deep_gemm.pack_ue8m0_to_int(torch.tensor([[3.0, 1.0, 0.0, 0.0]])).tolist() == [[255 | 127 << 8]]
    with pytest.raises(ArgumentError, match="multiple of 4"):
        deep_gemm.pack_ue8m0_to_int(torch.ones(2, 3))


def scales_of(*shape: int, transposed: bool = False) -> torch.Tensor:
    x = deep_gemm.ceil_to_ue8m0(normal(*shape).float() + 0.01)
    return x.mT.contiguous().mT if transposed else x


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(8, 4), (9, 5), (2, 8, 4), (3, 9, 5), (1, 1), (2, 5, 1)])
def test_layouts_have_the_numbers_and_strides_that_clients_assert(shape, transposed):
    sf = scales_of(*shape, transposed=transposed)
    *several, mn, k = shape
    rows, words = -(-mn // 4) * 4, -(-k // 4)
    found = deep_gemm.get_mn_major_tma_aligned_tensor(sf)
    assert torch.equal(found, sf) and found.stride()[-2:] == (1, rows) and (not several or found.stride(0) == rows * k)
    assert deep_gemm.get_mn_major_tma_aligned_tensor(found).data_ptr() == found.data_ptr()

    packed = deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(sf)
    assert packed.shape == (*several, mn, words) and packed.stride()[-2:] == (1, rows) and (not several or packed.stride(0) == rows * words)
    exponents = torch.nn.functional.pad(sf.log2().int() + 127, (0, 4 * words - k)).unflatten(-1, (words, 4)).cpu()
    assert torch.equal(packed.cpu(), (exponents << torch.tensor([0, 8, 16, 24], dtype=torch.int32)).sum(-1).int())


def test_scales_at_an_odd_address_are_packed_as_well():
    sf = torch.ones(4 * 9 + 1, device=DEVICE)[1:].view(9, 4)
    assert deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(sf).unique().tolist() == [0x7F7F7F7F]


@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 4)])
def test_what_is_no_power_of_two_becomes_nan_and_not_another_scale(shape):
    sf = torch.full(shape, 3.0, device=DEVICE)
    assert bool((deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(sf) == -1).all())  # all bytes 255


@pytest.mark.parametrize("how", ["sizes", "ends", "ends without sizes"])
def test_words_of_groups_do_not_mix_groups(how):
    sizes = [5 * 128, 0, 128, 4 * 128]
    sf = scales_of(10, 8)
    begins = [0, 640, 640, 768]
    if how == "sizes":
        found = deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(sf, ints(*sizes), sizes, 128, 128)
    else:
        ends = ints(*(begin + size for begin, size in zip(begins, sizes, strict=True)))
        ks = sizes if how == "ends" else None
        found = deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(sf, ends, ks, 128, 128, use_psum_layout=True)
    expected = [
        deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(sf[first : first + size].T).T
        for first, size in ((0, 5), (5, 1), (6, 4))
    ]  # fmt: skip
    assert torch.equal(found[:4], torch.cat(expected)) and not found[4:].any()
    assert found.shape == (4 if how != "ends without sizes" else 5, 8)


def test_required_layouts_are_checked_against_the_matrix():
    sf = scales_of(9, 3)
    found = deep_gemm.transform_sf_into_required_layout(sf, 9, 300, (1, 128, 128), is_sfa=True)
    assert torch.equal(found, sf) and found.stride() == (1, 12)
    squares = scales_of(2, 4, 3)
    assert deep_gemm.transform_sf_into_required_layout(squares, 500, 300, (128, 128), num_groups=2) is squares
    for words, call in {
        "sf: expected": (sf, 9, 900, (1, 128)),
        "recipe: zoo": (sf, 9, 96, (1, 32)),
        "with is_sfa": (sf, 9, 300, (1, 128, 128)),
        "sf: expected torch.float32": (sf.double(), 9, 300, (1, 128)),
    }.items():
        with pytest.raises(ArgumentError, match=words):
            deep_gemm.transform_sf_into_required_layout(*call)


@pytest.mark.parametrize("cast", ["per_token_cast_to_fp8", "per_channel_cast_to_fp8", "per_block_cast_to_fp8"])
@pytest.mark.parametrize("shape", [(0, 256), (128, 0)])
def test_a_rank_without_tokens_casts_no_rows(cast, shape):
    q, scales = getattr(deep_gemm, cast)(torch.zeros(shape, dtype=torch.bfloat16), False)
    blocks = {"per_token_cast_to_fp8": (1, 128), "per_channel_cast_to_fp8": (128, 1), "per_block_cast_to_fp8": (128, 128)}[cast]
    assert q.shape == shape and scales.shape == tuple(-(-extent // block) for extent, block in zip(shape, blocks, strict=True))


def test_an_axis_from_the_end_is_that_axis_and_not_none():
    x = normal(6, 32)
    for axis in (0, 1):
        q, scales = deep_gemm.per_custom_dims_cast_to_fp8(x, (axis - 2,), False)
        exact, wanted = deep_gemm.per_custom_dims_cast_to_fp8(x, (axis,), False)
        assert scales.shape == (x.shape[axis],) and same_bits(q, exact) and same_bits(scales, wanted)


def test_ends_behind_the_last_scale_read_no_scale_behind_it():
    """An index outside of a tensor would stop the GPU."""
    found = deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(
        scales_of(3, 8), ints(128, 128 * 9), None, use_psum_layout=True
    )
    exact = deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(
        scales_of(3, 8), ints(128, 128 * 3), None, use_psum_layout=True
    )
    assert torch.equal(found, exact)


def test_no_block_is_packed_to_no_word():
    assert deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(torch.ones(5, 0, device=DEVICE)).shape == (5, 0)


WRONG = {
    "blocks of no element": (lambda x: deep_gemm.per_token_cast_to_fp8(x, False, 0), "gran_k: expected a whole number of 1"),
    "blocks of words": (lambda x: deep_gemm.per_block_cast_to_fp8(x, False, "a"), "gran_k"),
    "columns of no block": (lambda x: deep_gemm.per_channel_cast_to_fp8(x, False, -1), "gran_k"),
    "an axis that is not there": (lambda x: deep_gemm.per_custom_dims_cast_to_fp8(x, (2,), False), "dims: expected axes of x, which has 2"),
    "a number for axes": (lambda x: deep_gemm.per_custom_dims_cast_to_fp8(x, 0, False), "dims: expected axes"),
    "f32 for words": (lambda x: deep_gemm.unpack_ue8m0_from_int(x.float()), "words of torch.int32, got torch.float32"),
    "words of 64 bits": (lambda x: deep_gemm.unpack_ue8m0_from_int(x.long()), "words of torch.int32"),
    "no scales": (lambda x: deep_gemm.pack_ue8m0_to_int(None), "got a NoneType"),
    "no recipe": (lambda x: deep_gemm.transform_sf_into_required_layout(x.float(), 6, 32, None), "recipe: expected"),
    "no scales of a recipe": (lambda x: deep_gemm.transform_sf_into_required_layout(None, 6, 32, (1, 128)), "sf: expected"),
    "a list of sizes": (
        lambda x: deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(x.float(), [128], [128]), "and a list",
    ),
    "more blocks than scales": (
        lambda x: deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(x.float(), ints(128, 768), [128, 768]), "at most 6 blocks",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_cast_or_layout_is_refused_in_a_sentence(case):
    call, words = WRONG[case]
    with pytest.raises(ArgumentError, match=words):
        call(normal(6, 32))
