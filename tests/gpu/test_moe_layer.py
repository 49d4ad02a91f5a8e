"""The layer of moe_layer.py, which docs/gemm.md shows: its outputs and gradients beside the same layer in float32.

How far FP8 may be away. e4m3 rounds by at most 2^-4 of the power of two below a number. Evenly spread errors have a mean square of
2^-8 / 3, mantissas between 1 and 2 one of 7 / 3: a quantised operand is off by DELTA = 2^-4 / sqrt(7) = 0.0236 of itself, as root mean
square. A sum of K products whose signs are independent grows as sqrt(K), and so does the sum of their errors: a product of two quantised
matrices is off by sqrt(2) DELTA, whatever K is. Errors add up in squares, so what counts is how many roundings lie on the way:

    h       x, w_in                                                            2
    act     gate and up, each as far off as h (silu(g) / g bends little)       2 * 2 = 4
    y       act, its own rounding, w_out                                       6, and so the shares' gradient and the router's
    dh      dy, w_out, and up or gate; silu'(gate) in the one half             2 + 2 + 1 = 5
    dx      dh, its own rounding, w_in                                         7
    dw_in   dh, its own rounding, x                                            7
    dw_out  dy, act, its own rounding                                          6

bf16 between the steps, 2^-9, is lost in that. The bound is 1.25 of it: mantissas are not quite even (the largest of each block has 1.75),
and mean squares over a few hundred tokens are some way from the expected ones.
"""

import math
import os

import pytest

torch = pytest.importorskip("torch")

from tests.gpu import moe_by_reference, moe_layer  # noqa: E402
from zoo.catalog import Zoo  # noqa: E402
from zoo.packaged import packaged  # noqa: E402

ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
DELTA = 2**-4 / math.sqrt(7)
ROUNDINGS = {"y": 6, "dx": 7, "d_router": 6, "dw_in": 7, "dw_out": 6}
MARGIN = 1.25


@pytest.fixture(params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """Where it runs; on the host zoo.reference answers the launches."""
    if request.param == "host":
        monkeypatch.setattr(moe_layer, "launch", moe_by_reference.launch)
        return "cpu"
    monkeypatch.setattr(moe_layer, "launch", ZOO.launch)
    return "cuda"


def in_torch(x, router, w_in, w_out, top_k):
    """The same layer of torch's own operations, every token by every expert."""
    shares, experts = torch.softmax(x.float() @ router.t(), dim=1).topk(top_k)
    shares = x.new_zeros(len(x), len(w_in)).scatter(1, experts, (shares / shares.sum(1, keepdim=True)).to(x.dtype))
    gate, up = torch.einsum("tk,enk->etn", x, w_in.to(x.dtype)).chunk(2, dim=2)
    y = torch.einsum("etf,ekf->etk", torch.nn.functional.silu(gate) * up, w_out.to(x.dtype))
    return (y * shares.t()[..., None]).sum(0)


def operands(device, T=768, E=5, K=256, F=384, seed=0):
    """x, router, w_in, w_out, dy. Neighbouring scales differ: a row's blocks and the squares of weights are 1, 2 or 4 times as large as
    others. One expert gets no token."""
    numbers = torch.Generator().manual_seed(seed)

    def normal(*shape, unit):
        blocks = [-(-extent // size) for extent, size in zip(shape, unit, strict=True)]
        factors = 2.0 ** torch.randint(0, 3, blocks, generator=numbers)
        for axis, size in enumerate(unit):
            factors = factors.repeat_interleave(size, axis)
        return torch.randn(*shape, generator=numbers) * factors[tuple(map(slice, shape))]

    x, dy = normal(T, K, unit=(1, 128)), normal(T, K, unit=(1, 128))
    router = torch.randn(E, K, generator=numbers) / K**0.5
    x[:, 0], router[1, 0] = 8, -8  # nobody's favourite
    w_in = normal(E, 2 * F, K, unit=(1, 128, 128)) / (5 * K) ** 0.5
    w_out = normal(E, K, F, unit=(1, 128, 128)) / (5 * F) ** 0.5
    return [x.to(device, torch.bfloat16), *(one.to(device) for one in (router, w_in, w_out)), dy.to(device, torch.bfloat16)]


def results(layer, device, dtype, **sizes):
    x, router, w_in, w_out, dy = operands(device, **sizes)
    parameters = [x.to(dtype).requires_grad_(), router.requires_grad_(), w_in.requires_grad_(), w_out.requires_grad_()]
    y = layer(*parameters, 2)
    gradients = torch.autograd.grad(y, parameters, dy.to(dtype))
    return {name: found.double() for name, found in zip(ROUNDINGS, (y.detach(), *gradients), strict=True)}


def errors(device, **sizes):
    """name -> root mean square of the difference to float32, over that of the result and the bound."""
    expected = results(in_torch, device, torch.float32, **sizes)
    found = results(moe_layer.moe, device, torch.bfloat16, **sizes)
    off = {name: float((found[name] - expected[name]).norm() / expected[name].norm()) for name in expected}
    print({name: f"{error:.4f} of {math.sqrt(ROUNDINGS[name]) * DELTA:.4f}" for name, error in off.items()})
    return {name: error / (MARGIN * math.sqrt(ROUNDINGS[name]) * DELTA) for name, error in off.items()}


@pytest.mark.parametrize("sizes", [{}, {"T": 773, "K": 272, "F": 144, "E": 7}], ids=["whole blocks", "short blocks"])
def test_outputs_and_gradients_are_as_near_to_float32_as_e4m3_is(device, sizes):
    for name, error in errors(device, **sizes).items():
        assert error <= 1, name
        assert error > 0.5, f"{name}: nearer than quantised operands can be, was it them?"


def test_one_expert_of_them_has_no_token():
    x, router, *_ = operands("cpu")
    assert not ((x.float() @ router.t()).topk(2)[1] == 1).any()


def scales_not_transposed(squares):
    def broken(w):
        (q, scales), (q_cols, scales_cols) = squares(w)
        return (q, scales), (q_cols, scales.reshape(scales_cols.shape))

    return broken


def ups_as_gates(rows):
    def broken(kernel, x, *sizes, **more):
        return rows(kernel, x.flip(1) if kernel == "swiglu" else x, *sizes, **more)

    return broken


def neighbours_scales(rows):
    def broken(*arguments, **more):
        q, scales = rows(*arguments, **more)
        return q, scales.roll(1, 0)

    return broken


def dispatch_backwards(rows):
    return lambda *arguments, **more: rows(*arguments, **more | ({"index": more["index"].flip(0)} if "index" in more else {}))


def blocks_one_late(columns):
    def broken(x, offsets):
        q, scales, ends = columns(x, offsets)
        return q, scales.t().roll(1, 0).t(), ends

    return broken


@pytest.mark.parametrize(
    ("function", "mistake", "seen_in"),
    [
        ("squares", scales_not_transposed, {"dx", "dw_in"}),
        ("rows", ups_as_gates, {"y", "d_router"}),
        ("rows", neighbours_scales, set(ROUNDINGS)),
        ("rows", dispatch_backwards, set(ROUNDINGS)),
        ("columns", blocks_one_late, {"dw_in", "dw_out"}),
    ],
)
def test_a_layer_with_a_mistake_is_out_of_the_bound(device, monkeypatch, function, mistake, seen_in):
    monkeypatch.setattr(moe_layer, function, mistake(getattr(moe_layer, function)))
    off = errors(device, T=192)
    assert {name for name in off if off[name] > 1.5} >= seen_in, off


def test_the_layer_is_short_enough_to_copy():
    with open(moe_layer.__file__) as file:
        assert sum(bool(line.strip()) for line in file) <= 60


@pytest.mark.gpu
def test_nothing_of_a_step_waits_for_the_gpu():
    x, router, w_in, w_out, dy = operands("cuda", T=773)
    parameters = [one.requires_grad_() for one in (x, router, w_in, w_out)]
    torch.autograd.grad(moe_layer.moe(*parameters, 2), parameters, dy)  # loads
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.autograd.grad(moe_layer.moe(*parameters, 2), parameters, dy)
    finally:
        torch.cuda.set_sync_debug_mode("default")
