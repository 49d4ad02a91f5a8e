"""Products with scales for 1 x 128 of both operands: what is accumulated, and which memory a group reads."""

from __future__ import annotations

import pytest
import torch

import zoo.compat.deep_gemm as deep_gemm
from tests.torch.compat.operands import DEVICE, assert_product, ints, normal, numbers, tokens, untouched
from zoo.errors import ArgumentError


@pytest.mark.parametrize("recipe", [{"recipe": (1, 1, 128)}, {"recipe_a": (1, 128), "recipe_b": (1, 128)}, {}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scales_for_rows_of_b_are_not_taken_for_squares(recipe, dtype):
    a, b, d = tokens(24, 320), tokens(40, 320, seed=3), untouched(24, 40, dtype=dtype)
    deep_gemm.fp8_gemm_nt(a, b, d, **recipe)
    assert_product(d, numbers(a), numbers(b))


@pytest.mark.parametrize("in_place", [True, False])
def test_c_is_added_once(in_place):
    a, b, c = tokens(24, 256), tokens(40, 256, seed=3), normal(24, 40, seed=4).float()
    before, d = c.clone(), c if in_place else untouched(24, 40, dtype=torch.float32)
    deep_gemm.fp8_gemm_nt(a, b, d, c=c, recipe=(1, 1, 128))
    assert_product(d, numbers(a), numbers(b), before)
    assert in_place or torch.equal(c, before)


@pytest.mark.parametrize("k", [256, 640])  # 256: one word a row
def test_packed_scales_of_both(k):
    a, b = (deep_gemm.per_token_cast_to_fp8(normal(rows, k), use_ue8m0=True) for rows in (24, 40))
    d, exact = untouched(24, 40, dtype=torch.float32), untouched(24, 40, dtype=torch.float32)
    deep_gemm.fp8_gemm_nt(a, b, exact)
    packed = deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor
    deep_gemm.fp8_gemm_nt((a[0], packed(a[1])), (b[0], packed(b[1])), d)
    assert torch.equal(d, exact)


SIZES = [256, 0, 128, 16]
M, N = 24, 40


def columns(rows: int, seed: int):
    """A matrix (K, rows) quantised along K for each group: elements (K, rows), scales (blocks, rows), and its float32."""
    x = normal(sum(SIZES), rows, seed=seed)
    q, scales, exact = [], [], []
    for part in x.split(SIZES):
        if len(part):
            filled = torch.nn.functional.pad(part, (0, 0, 0, -len(part) % 128))
            codes, of_blocks = deep_gemm.per_channel_cast_to_fp8(filled, use_ue8m0=False)
            q.append(codes[: len(part)])
            scales.append(of_blocks)
            exact.append((codes.float() * of_blocks.repeat_interleave(128, 0))[: len(part)])
    return torch.cat([one.view(torch.uint8) for one in q]).view(torch.float8_e4m3fn), torch.cat(scales), torch.cat(exact)


def flat(q: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.T.flatten() for part in q.view(torch.uint8).split(SIZES)]).view(torch.float8_e4m3fn)


@pytest.mark.parametrize("layout", ["nt", "tn"])
@pytest.mark.parametrize("added", ["nothing", "c", "d"])
def test_each_group_reads_its_own_blocks(layout, added):
    (qa, sa, a), (qb, sb, b) = columns(M, 1), columns(N, 2)
    c = None if added == "nothing" else normal(4, M, N, seed=3).float()
    before = torch.zeros(4, M, N, device=DEVICE) if c is None else c.clone()
    d = c if added == "d" else untouched(4, M, N, dtype=torch.float32)
    if layout == "nt":
        deep_gemm.k_grouped_fp8_gemm_nt_contiguous((flat(qa), sa.T), (flat(qb), sb.T), d, SIZES, ints(*SIZES), c)
    else:
        deep_gemm.k_grouped_fp8_gemm_tn_contiguous((qa, sa), (qb, sb), d, SIZES, ints(*SIZES), c)
    for group, (x, y) in enumerate(zip(a.split(SIZES), b.split(SIZES), strict=True)):
        assert_product(d[group], x.T, y.T, before[group])
    assert c is None or added == "d" or torch.equal(c, before)


@pytest.mark.parametrize("ks", [None, []])
def test_ends_of_aligned_groups_need_no_sizes_on_the_host(ks):
    real = [130, 0, 5]
    x, y = (torch.zeros(512, rows, dtype=torch.bfloat16, device=DEVICE) for rows in (M, N))
    for first, size in ((0, 130), (256, 5)):
        x[first : first + size], y[first : first + size] = normal(size, M), normal(size, N)
    (qa, sa), (qb, sb) = (deep_gemm.per_channel_cast_to_fp8(one[:384], use_ue8m0=False) for one in (x, y))
    qa, qb = (torch.cat([q.view(torch.uint8), q.new_zeros(128, q.shape[1]).view(torch.uint8)]).view(q.dtype) for q in (qa, qb))
    d = untouched(3, M, N, dtype=torch.float32)
    deep_gemm.k_grouped_fp8_gemm_tn_contiguous((qa, sa), (qb, sb), d, ks, ints(130, 256, 256 + 5), use_psum_layout=True)
    for group, (first, size) in enumerate(zip((0, 256, 256), real, strict=True)):
        those, blocks = slice(first, first + size), slice(first // 128, first // 128 + -(-size // 128))
        spread = [s[blocks].repeat_interleave(128, 0)[:size] for s in (sa, sb)]
        assert_product(d[group], (qa[those].float() * spread[0]).T, (qb[those].float() * spread[1]).T)


REFUSED = {
    "no sizes on the host": (dict(ks_cpu=None), "ks_cpu"),
    "sizes of other groups": (dict(ks_cpu=[256, 144]), "ks_cpu"),
    "a size that no row of 16 bytes has": (dict(ks_cpu=[250, 6, 128, 16]), "ks_cpu"),
    "more elements than sizes": (dict(ks_cpu=[256, 0, 128, 0]), "a: expected"),
    "sizes in 64 bits": (dict(grouped_layout=torch.tensor(SIZES)), "grouped_layout"),
    "c of another dtype": (dict(c=torch.zeros(4, M, N, dtype=torch.bfloat16, device=DEVICE)), "c: expected"),
    "a recipe of 32": (dict(recipe=(1, 1, 32)), "1 x 128"),
    "d of one matrix": (dict(d=torch.zeros(M, N, device=DEVICE)), "d: expected"),
    "rows of all groups side by side": (
        dict(a=(torch.zeros(M, 400, device=DEVICE).to(torch.float8_e4m3fn), torch.ones(M, 4, device=DEVICE))),
        "a: expected",
    ),
    "scales of fewer blocks": (dict(a=(torch.zeros(400 * M, device=DEVICE).to(torch.float8_e4m3fn), torch.ones(M, 3))), "a's scales"),
    "bf16 elements": (dict(a=(torch.zeros(400 * M, dtype=torch.bfloat16), torch.ones(M, 4))), "float8_e4m3fn"),
    "no pair": (dict(b=7), "b: expected a pair"),
    "sizes in words": (dict(ks_cpu="many"), "ks_cpu"),
    "sizes that are not whole": (dict(ks_cpu=[256.0, 0.0, 128.0, 16.0]), "ks_cpu"),
    "no recipe": (dict(recipe=None), r"recipe \(1, 1, 128\), got None"),
    "a number for c": (dict(c=1.0), "c: expected .*got a float"),
    "no d": (dict(d=None), "d: expected .*got a NoneType"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_call_is_refused_in_a_sentence(case, monkeypatch):
    monkeypatch.setenv("ZOO_DEEP_GEMM_REAL", "0")
    changes, words = REFUSED[case]
    zeros = [torch.zeros(sum(SIZES) * rows, device=DEVICE).to(torch.float8_e4m3fn) for rows in (M, N)]
    call = dict(
        a=(zeros[0], torch.ones(M, 4, device=DEVICE)), b=(zeros[1], torch.ones(N, 4, device=DEVICE)),
        d=untouched(4, M, N, dtype=torch.float32), ks_cpu=SIZES, grouped_layout=ints(*SIZES),
    )  # fmt: skip
    with pytest.raises(ArgumentError, match=words):
        deep_gemm.k_grouped_fp8_gemm_nt_contiguous(**{**call, **changes})
