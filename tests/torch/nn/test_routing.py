"""Routing and combining, beside loops over choices."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from zoo.errors import ArgumentError  # noqa: E402
from zoo.torch.nn.routing import combine, gather, route  # noqa: E402

NAN = float("nan")


def by_loops(ids, weights, experts, first):
    """offsets, index, rows, row_weights, choice by choice."""
    rows, index, row_weights, offsets = torch.full(ids.shape, -1), [], [], []
    for expert in range(first, first + experts):
        for token, chosen in enumerate(ids.tolist()):
            for choice, id in enumerate(chosen):
                if id == expert:
                    rows[token, choice] = len(index)
                    index.append(token)
                    row_weights.append(float(weights[token, choice]))
        offsets.append(len(index))
    rest = ids.numel() - len(index)
    return offsets, index + [-1] * rest, rows.tolist(), row_weights + [0.0] * rest


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("tokens", "top_k", "experts", "first"), [(0, 2, 3, 0), (1, 1, 1, 0), (30, 3, 5, 0), (30, 3, 4, 2), (7, 4, 40, 0)])
def test_rows_of_an_expert_are_in_the_order_of_tokens_and_choices(dtype, tokens, top_k, experts, first):
    random = torch.Generator().manual_seed(tokens)
    ids = torch.randint(-1, experts + first + 2, (tokens, top_k), generator=random, dtype=dtype)
    weights = torch.rand(tokens, top_k, generator=random)
    found = route(ids, weights, experts, first)
    assert [one.tolist() for one in found] == list(by_loops(ids, weights, experts, first))
    assert {one.dtype for one in found[:3]} == {torch.int32}


def test_ids_of_64_bits_do_not_wrap_round():
    ids = torch.tensor([[2**32, -(2**63), 2**63 - 1, 1]])
    assert route(ids, torch.ones(1, 4), 2).rows.tolist() == [[-1, -1, -1, 0]]


def test_nan_in_rows_of_no_token_reaches_no_sum():
    d = torch.full((4, 8), NAN, dtype=torch.bfloat16)
    d[1] = 2
    rows = torch.tensor([[1, -1], [-1, -1]], dtype=torch.int32)
    weights = torch.tensor([[0.5, NAN], [1.0, 1.0]])
    assert combine(d, rows, weights).tolist() == [[1.0] * 8, [0.0] * 8]


def test_a_sum_is_rounded_once():
    """256 + 1 + 1 is 258 in f32, and 256 where each sum is rounded to bf16."""
    d = torch.tensor([[256.0], [1.0], [1.0]], dtype=torch.bfloat16).expand(3, 8).contiguous()
    rows = torch.tensor([[0, 1]], dtype=torch.int32)
    assert combine(d, rows, None, d[2:]).tolist() == [[258.0] * 8]


def test_gradients_of_a_sum_are_those_of_its_formula():
    random = torch.Generator().manual_seed(0)
    d, residual = (torch.randn(count, 16, generator=random).bfloat16().requires_grad_() for count in (7, 4))
    weights = torch.rand(4, 2, generator=random).requires_grad_()
    rows = torch.tensor([[0, 3], [1, -1], [2, 5], [-1, -1]], dtype=torch.int32)
    dy = torch.randn(4, 16, generator=random).bfloat16()
    found = torch.autograd.grad(combine(d, rows, weights, residual), (d, weights, residual), dy)
    d64, weights64, residual64 = (one.detach().double().requires_grad_() for one in (d, weights, residual))
    kept = torch.where(rows < 0, 0, 1).double()
    y = (d64[rows.clamp(min=0)] * (kept * weights64)[..., None]).sum(1) + residual64
    wanted = torch.autograd.grad(y, (d64, weights64, residual64), dy.double())
    assert torch.equal(found[0], wanted[0].bfloat16()) and torch.equal(found[2], dy)
    assert torch.allclose(found[1].double(), wanted[1], rtol=1e-5, atol=1e-5)  # f32 sums of 16 products
    assert not found[0][[4, 6]].any() and found[1][1, 1] == 0


def test_gathered_rows_give_their_gradients_back():
    x = torch.randn(5, 8).bfloat16().requires_grad_()
    ids = torch.tensor([[0, 1], [1, -1], [2, 0], [-1, -1], [1, 2]])
    routing = route(ids, torch.ones(5, 2), 3)
    (gradient,) = torch.autograd.grad(gather(x, routing), x, torch.ones(10, 8, dtype=torch.bfloat16))
    assert gradient.tolist() == [[float(count)] * 8 for count in (2, 1, 2, 0, 2)]


def test_a_second_derivative_is_a_sentence():
    d = torch.ones(2, 8, dtype=torch.bfloat16, requires_grad=True)
    y = combine(d, torch.tensor([[0, 1]], dtype=torch.int32))
    with pytest.raises(ArgumentError, match="no second derivative"):
        torch.autograd.grad(y.sum(), d, create_graph=True)
