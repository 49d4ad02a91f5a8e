"""DeepGEMM's products by zoo: right numbers for every layout that clients pass, and nothing written that no group owns."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import zoo
import zoo.compat.deep_gemm as deep_gemm
from tests.torch.compat.operands import DEVICE, assert_product, ints, normal, numbers, tokens, untouched, weights
from zoo.compat.deep_gemm import products, settings
from zoo.compat.deep_gemm.start import overlap, starter
from zoo.errors import ArgumentError, ZooError


@pytest.fixture(autouse=True)
def as_they_were(monkeypatch):
    for name in ("alignment", "compile_mode", "fill"):
        monkeypatch.setattr(settings, name, getattr(settings, name))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_product_is_that_of_float32(dtype):
    a, b, d = tokens(5, 320), weights(200, 320), untouched(5, 200, dtype=dtype)
    assert deep_gemm.fp8_gemm_nt(a, b, d) is None
    assert_product(d, numbers(a), numbers(b))


def test_scales_in_any_layout_give_the_same_bits():
    (q, scales), b = deep_gemm.per_token_cast_to_fp8(normal(6, 640), use_ue8m0=True), weights(128, 640)
    words = deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales)
    wide = torch.zeros(6, 12, device=DEVICE)[:, 1:11:2]  # at an address that is no multiple of 16, every other one
    layouts = {
        "rows": scales,
        "mn-major": deep_gemm.get_mn_major_tma_aligned_tensor(scales),
        "odd address": wide.copy_(scales),
        "packed": words,
        "packed, rows": words.contiguous(),
    }
    found = {name: untouched(6, 128) for name in layouts}
    for name, one in layouts.items():
        deep_gemm.fp8_gemm_nt((q, one), b, found[name])
    assert all(torch.equal(d, found["rows"]) for d in found.values())
    assert_product(found["rows"], numbers((q, scales)), numbers(b))


def test_transposed_views_are_the_same_product():
    a, b, exact = tokens(8, 256), weights(64, 256), untouched(8, 64)
    deep_gemm.fp8_gemm_nt(a, b, exact)
    turned_a, turned_b = (a[0].T, a[1].T), (b[0].T, b[1].T)
    for name, x, y in (("nn", a, turned_b), ("tn", turned_a, turned_b), ("tt", turned_a, b)):
        d = untouched(8, 64)
        getattr(deep_gemm, f"fp8_gemm_{name}")(x, y, d)
        assert torch.equal(d, exact), name


@pytest.mark.parametrize("n", [64, 256])  # 256: a square, which its transpose fits as well
def test_a_matrix_whose_k_is_not_contiguous_is_refused_and_never_misread(n):
    q, scales = weights(n, 256)
    with pytest.raises(ZooError, match="rows of b"):
        deep_gemm.fp8_gemm_nn(tokens(8, 256), (q.view(torch.uint8).T.contiguous().view(q.dtype), scales.T), untouched(8, n))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("in_place", [True, False])
def test_c_is_added_also_where_it_is_d(dtype, in_place):
    a, b, c = tokens(70, 256), weights(72, 256), normal(70, 72, seed=5).to(dtype)
    before, d = c.clone(), c if in_place else untouched(70, 72, dtype=dtype)
    deep_gemm.fp8_gemm_nt(a, b, d, c=c)
    assert_product(d, numbers(a), numbers(b), before.float())
    assert in_place or torch.equal(c, before)


def test_c_that_overlaps_d_is_read_before_it_is_written():
    a, b, memory = tokens(16, 128), weights(64, 128), normal(17, 64, seed=6)
    c, d = memory[1:], memory[:16]
    before = c.clone()
    deep_gemm.fp8_gemm_nt(a, b, d, c=c)
    assert_product(d, numbers(a), numbers(b), before.float())


@pytest.mark.parametrize("where", ["d itself", "view of d", "memory of d", "another dtype", "elsewhere"])
def test_a_kernel_gets_a_c_in_the_memory_that_it_writes_only_where_c_is_d(where, monkeypatch):
    memory, started = normal(17, 64), []
    d = memory[:16]
    c = {
        "d itself": d,
        "view of d": d.view(16, 64),
        "memory of d": memory[1:],
        "another dtype": d.view(torch.float16),
        "elsewhere": normal(16, 64),
    }
    monkeypatch.setattr(products, "starter", lambda d: lambda kernel, **arguments: started.append(arguments))
    deep_gemm.fp8_gemm_nt(tokens(16, 128), weights(64, 128), d, c=c[where])
    (given,) = started
    copied = where in ("memory of d", "another dtype")
    assert torch.equal(given["c"], c[where]) and given["d"] is d and (given["c"] is c[where]) != copied  # nothing is copied without need
    assert not copied or not overlap(given["c"], d)


def test_tensors_of_a_gpu_go_the_short_way():
    assert starter(SimpleNamespace(is_cuda=True)) == zoo.launch and starter(SimpleNamespace(is_cuda=False)) != zoo.launch


@pytest.mark.parametrize(("m", "k"), [(0, 256), (3, 0)])
def test_nothing_to_multiply_gives_zeros_or_c(m, k):
    e4m3 = torch.float8_e4m3fn
    a = torch.empty(m, k, dtype=e4m3, device=DEVICE), torch.empty(m, k // 128, device=DEVICE)
    b = torch.empty(64, k, dtype=e4m3, device=DEVICE), torch.ones(1, k // 128, device=DEVICE)
    d, c = untouched(m, 64), normal(m, 64)
    deep_gemm.fp8_gemm_nt(a, b, d)
    assert not d.any()
    deep_gemm.fp8_gemm_nt(a, b, d, c=c)
    assert torch.equal(d, c)
    deep_gemm.fp8_gemm_nt(a, b, c, c=c)
    assert torch.equal(d, c)


def padded_groups(sizes: list[int], order: list[int], alignment: int = 128):
    """m_indices with groups that begin at multiples of `alignment`, and -1 between them."""
    layout = []
    for group, size in zip(order, sizes, strict=True):
        layout += [group] * size + [-1] * (-size % alignment)
    return ints(*layout)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_padding_rows_of_zeros_become_zeros_as_clients_sum_over_them(order):
    layout = padded_groups([5, 0, 130], order)
    a, b = tokens(len(layout), 128), weights(3, 64, 128)
    a[0].view(torch.uint8)[layout < 0] = 0
    d = untouched(len(layout), 64)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, layout)
    for group in range(3):
        assert_product(d[layout == group], numbers(a)[layout == group], numbers(b)[group])
    assert not d[layout < 0].any()


def test_a_block_of_padding_alone_is_not_written():
    layout = torch.cat([padded_groups([5], [0]), ints(*[-1] * 128)])
    a, b, d = tokens(256, 128), weights(1, 64, 128), untouched(256, 64)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, layout)
    assert bool((d[128:] == 77).all()) and not bool((d[:128] == 77).all(1).any())


@pytest.mark.parametrize("how", ["skip", "unaligned"])
def test_padding_is_left_alone_where_the_program_says_so(how):
    if how == "skip":
        settings.fill = False
    else:
        deep_gemm.set_mk_alignment_for_contiguous_layout(1)
    layout = ints(-1, 1, 1, -1, 0, -1, -1)
    a, b, d = tokens(7, 128), weights(2, 64, 128), untouched(7, 64)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, layout)
    assert bool((d[layout < 0] == 77).all())
    assert_product(d[1:3], numbers(a)[1:3], numbers(b)[1])


def test_rows_in_no_multiple_of_the_alignment_are_filled_alike():
    layout = padded_groups([5, 3], [1, 0])[:140]
    a, b, d = tokens(140, 128), weights(2, 64, 128), untouched(140, 64)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, grouped_layout=layout)
    assert_product(d[:128], numbers(a)[:128], numbers(b)[1])
    assert_product(d[128:], numbers(a)[128:], numbers(b)[0])


def test_the_older_name_m_indices_is_taken():
    a, b, d = tokens(3, 128), weights(1, 64, 128), untouched(3, 64)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, m_indices=ints(0, 0, 0))
    assert_product(d, numbers(a), numbers(b)[0])


@pytest.mark.parametrize("zeros", [True, False])
def test_psum_layout_begins_groups_at_the_alignment(zeros):
    ends, a, b = ints(5, 128, 128 + 3), tokens(256, 128), weights(3, 64, 128)
    a[0].view(torch.uint8)[5:128] = 0
    a[0].view(torch.uint8)[131:] = 0
    d = untouched(256, 64)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, ends, use_psum_layout=True, ensure_zero_padding=zeros)
    assert_product(d[:5], numbers(a)[:5], numbers(b)[0])
    assert_product(d[128:131], numbers(a)[128:131], numbers(b)[2])
    if zeros and DEVICE == "cpu":
        assert not d[5:128].any() and not d[131:].any()


def test_psum_ends_never_reach_behind_the_last_row():
    a, b, d = tokens(100, 128), weights(1, 64, 128), untouched(100, 64)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, ints(100), use_psum_layout=True)
    assert_product(d, numbers(a), numbers(b)[0])


def test_grouped_weights_as_transposed_views():
    a, b, d, exact = tokens(3, 256), weights(2, 64, 256), untouched(3, 64), untouched(3, 64)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, exact, ints(0, 0, 1))
    deep_gemm.m_grouped_fp8_gemm_nn_contiguous(a, (b[0].mT, b[1].mT), d, ints(0, 0, 1))
    assert torch.equal(d, exact)


def test_masked_writes_used_rows_only():
    parts = [tokens(9, 256, seed=seed) for seed in range(3)]
    a, b = (torch.stack([q for q, _ in parts]), torch.stack([scales for _, scales in parts])), weights(3, 64, 256)
    a[0].view(torch.uint8)[0, 4:] = 0x7F  # NaN in rows that nobody uses
    d = untouched(3, 9, 64)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(a, b, d, ints(4, 0, 9), 5)
    for group, rows in enumerate((4, 0, 9)):
        assert_product(d[group, :rows], numbers(a)[group, :rows], numbers(b)[group])
        assert bool((d[group, rows:] == 77).all())


def test_packed_scales_of_slots():
    parts = [deep_gemm.per_token_cast_to_fp8(normal(5, 640, seed=seed), use_ue8m0=True) for seed in range(2)]
    a, b = (torch.stack([q for q, _ in parts]), torch.stack([scales for _, scales in parts])), weights(2, 64, 640)
    d, exact = untouched(2, 5, 64), untouched(2, 5, 64)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(a, b, exact, ints(5, 2), 5)
    packed = deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(a[1])
    deep_gemm.fp8_m_grouped_gemm_nt_masked((a[0], packed), b, d, ints(5, 2), 5)
    assert torch.equal(d, exact)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("packed", [False, True])
def test_heads_are_multiplied_where_they_are(dtype, packed):
    q, scales = deep_gemm.per_token_cast_to_fp8(normal(5 * 3, 320), use_ue8m0=packed)
    a, b = (q.view(5, 3, 320), scales.view(5, 3, 3)), weights(3, 72, 320)
    memory = untouched(5, 4, 72, dtype=dtype)
    d = memory[:, :3]
    given = (a[0], deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales).contiguous().view(5, 3, 1)) if packed else a
    assert deep_gemm.fp8_einsum("bhr,hdr->bhd", given, b, d) is None
    for head in range(3):
        assert_product(d[:, head], numbers((a[0][:, head], a[1][:, head])), numbers(b)[head])
    assert bool((memory[:, 3] == 77).all())


@pytest.mark.parametrize("in_place", [False, True])
def test_heads_add_c(in_place):
    (q, scales), b = tokens(4 * 2, 256), weights(2, 64, 256)
    c = normal(4, 2, 64).float()
    before, d = c.clone(), c if in_place else untouched(4, 2, 64, dtype=torch.float32)
    deep_gemm.fp8_einsum("bhr,hdr->bhd", (q.view(4, 2, 256), scales.view(4, 2, 2)), b, d, c)
    for head in range(2):
        assert_product(d[:, head], numbers((q[head::2], scales[head::2])), numbers(b)[head], before[:, head])


def test_no_token_gives_nothing():
    d = untouched(0, 2, 64)
    a = tokens(3, 256)[0][:0].view(0, 2, 256), torch.empty(0, 2, 2, device=DEVICE)
    deep_gemm.fp8_einsum("bhr,hdr->bhd", a, weights(2, 64, 256), d)


HEADS = {
    "another expression": (lambda a, b, d: ("bhd,hdr->bhr", a, b, d), "bhr,hdr->bhd"),
    "a of two axes": (lambda a, b, d: ("bhr,hdr->bhd", (a[0][:, 0], a[1][:, 0]), b, d), "a: expected three axes"),
    "one matrix of b": (lambda a, b, d: ("bhr,hdr->bhd", a, (b[0][0], b[1][0]), d), "b: expected"),
    "d of other heads": (lambda a, b, d: ("bhr,hdr->bhd", a, b, d[:, :1]), "as many heads"),
    "b of fewer heads with c": (lambda a, b, d: ("bhr,hdr->bhd", a, (b[0][:1], b[1][:1]), d, torch.zeros_like(d)), "as many heads"),
    "b of more heads with c": (
        lambda a, b, d: ("bhr,hdr->bhd", a, tuple(torch.cat([one, one]) for one in b), d, torch.zeros_like(d)),
        "as many heads",
    ),
    "scales of fewer heads": (lambda a, b, d: ("bhr,hdr->bhd", a, (b[0], b[1][:1]), d, torch.zeros_like(d)), "as many heads"),
    "c of more heads": (lambda a, b, d: ("bhr,hdr->bhd", a, b, d, torch.zeros(4, 3, 64, device=DEVICE)), "c: expected the shape of d"),
    "a number for c": (lambda a, b, d: ("bhr,hdr->bhd", a, b, d, 1.0), "c: expected three axes, got a float"),
    "no d": (lambda a, b, d: ("bhr,hdr->bhd", a, b, None), "d: expected three axes, got a NoneType"),
    "a tensor for a pair": (lambda a, b, d: ("bhr,hdr->bhd", a[0], b, d), "a: expected a pair"),
}


@pytest.mark.parametrize("case", HEADS)
def test_a_wrong_call_of_heads_is_refused(case, monkeypatch):
    monkeypatch.setenv("ZOO_DEEP_GEMM_REAL", "0")
    make, words = HEADS[case]
    q, scales = tokens(4 * 2, 256)
    d = untouched(4, 2, 64)
    with pytest.raises(ArgumentError, match=words):
        deep_gemm.fp8_einsum(*make((q.view(4, 2, 256), scales.view(4, 2, 2)), weights(2, 64, 256), d))
    assert bool((d == 77).all())


def test_compile_mode_starts_nothing_so_that_a_warm_up_of_all_sizes_is_free():
    deep_gemm.set_compile_mode(1)
    a, b, d = tokens(3, 128), weights(64, 128), untouched(3, 64)
    deep_gemm.fp8_gemm_nt(a, b, d)
    assert deep_gemm.get_compile_mode() == 1 and bool((d == 77).all())


def test_products_are_part_of_compiled_functions():
    a, b = tokens(4, 128), weights(64, 128)

    @torch.compile(fullgraph=True, backend="eager")
    def layer(q, scales, w, w_scales, c):
        d = torch.empty(q.shape[0], w.shape[0], dtype=torch.bfloat16, device=q.device)
        deep_gemm.fp8_gemm_nt((q, scales), (w, w_scales), d, c=c)
        return d

    c = normal(4, 64)
    assert_product(layer(*a, *b, c), numbers(a), numbers(b), c.float())


REFUSED = {
    "a tensor for a pair": (lambda a, b, d: (a[0], b, d), "a: expected a pair"),
    "a list of one": (lambda a, b, d: (a, [b[0]], d), "b: expected a pair"),
    "scales that are no tensor": (lambda a, b, d: ((a[0], 1.0), b, d), "a"),
    "bf16 elements": (lambda a, b, d: ((a[0].bfloat16(), a[1]), b, d), "float8_e4m3fn"),
    "4-bit elements": (lambda a, b, d: (a, (b[0].view(torch.int8), b[1]), d), "float8_e4m3fn"),
    "scales in f64": (lambda a, b, d: ((a[0], a[1].double()), b, d), "a_scale"),
    "scales of another matrix": (lambda a, b, d: ((a[0], a[1][:, :1]), b, d), "a_scale"),
    "too few scales of b": (lambda a, b, d: (a, (b[0], b[1][:1]), d), "b_scale"),
    "words of another K": (lambda a, b, d: ((a[0], torch.ones(4, 2, dtype=torch.int32, device=DEVICE)), b, d), "a's scales"),
    "another K of b": (lambda a, b, d: (a, (b[0][:, :128], b[1]), d), "b"),
    "d of another shape": (lambda a, b, d: (a, b, d[:3]), "d"),
    "no d": (lambda a, b, d: (a, b, None), "d: expected a tensor"),
    "d in integers": (lambda a, b, d: (a, b, d.int()), "d"),
    "c of another shape": (lambda a, b, d: (a, b, d, d[:1].clone()), "c"),
    "a number for c": (lambda a, b, d: (a, b, d, 1.0), "c: expected the shape of d, .*got a float"),
    "a recipe of 32": (lambda a, b, d: (a, b, d, None, (1, 1, 32)), "1 x 128"),
    "a recipe of two numbers": (lambda a, b, d: (a, b, d, None, (1, 128)), r"got the recipe \(1, 128\)"),
    "a recipe of four numbers": (lambda a, b, d: (a, b, d, None, (1, 128, 128, 1)), "got the recipe"),
    "a number for a recipe": (lambda a, b, d: (a, b, d, None, 128), "got the recipe 128"),
    "both recipes": (lambda a, b, d: (a, b, d, None, (1, 128, 128), (1, 128), (128, 128)), "either recipe"),
    "half of a recipe": (lambda a, b, d: (a, b, d, None, None, (1, 128)), "both of recipe_a"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_call_is_refused_in_a_sentence_and_writes_nothing(case, monkeypatch):
    monkeypatch.setenv("ZOO_DEEP_GEMM_REAL", "0")
    make, words = REFUSED[case]
    a, b, d = tokens(4, 256), weights(256, 256), untouched(4, 256)
    with pytest.raises(ArgumentError, match=words):
        deep_gemm.fp8_gemm_nt(*make(a, b, d))
    assert bool((d == 77).all())


GROUPED = {
    "m_indices of 64 bits": (lambda a, b, d, layout: (a, b, d, layout.long()), "m_indices"),
    "m_indices of another length": (lambda a, b, d, layout: (a, b, d, layout[:2]), "m_indices"),
    "no layout": (lambda a, b, d, layout: (a, b, d), "grouped_layout"),
    "scales of b for rows": (lambda a, b, d, layout: (a, (b[0], torch.ones(2, 64, 1, dtype=torch.int32, device=DEVICE)), d, layout), "1 x 128"),
    "one matrix of b": (lambda a, b, d, layout: (a, (b[0][0], b[1][0]), d, layout), "b: expected"),
}  # fmt: skip


@pytest.mark.parametrize("case", GROUPED)
def test_a_wrong_grouped_call_is_refused(case):
    make, words = GROUPED[case]
    a, b, d = tokens(3, 128), weights(2, 64, 128), untouched(3, 64)
    with pytest.raises(ArgumentError, match=words):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(*make(a, b, d, ints(0, 0, 1)))
    assert bool((d == 77).all())


def test_two_layouts_are_refused_as_one_would_be_ignored():
    a, b, d = tokens(3, 128), weights(2, 64, 128), untouched(3, 64)
    with pytest.raises(ArgumentError, match="another name of grouped_layout"):
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, ints(0, 0, 1), m_indices=ints(1, 1, 1))
    assert bool((d == 77).all())


MASKED = {
    "a list of rows": (dict(masked_m=[3, 5]), "masked_m: expected a tensor of torch.int32, got a list"),
    "rows of 64 bits": (dict(masked_m=torch.tensor([3, 5], device=DEVICE)), "rows"),
    "nothing expected": (dict(expected_m=None), "expected_m: expected a number of rows, got None"),
    "words expected": (dict(expected_m="many"), "expected_m"),
}


@pytest.mark.parametrize("case", MASKED)
def test_a_wrong_masked_call_is_refused(case):
    changes, words = MASKED[case]
    q, scales = tokens(2 * 8, 128)
    call = dict(
        a=(q.view(2, 8, 128), scales.view(2, 8, 1)), b=weights(2, 64, 128), d=untouched(2, 8, 64), masked_m=ints(3, 5), expected_m=4
    )
    with pytest.raises(ArgumentError, match=words):
        deep_gemm.m_grouped_fp8_gemm_nt_masked(**{**call, **changes})
    assert bool((call["d"] == 77).all())
