"""The bf16 layer that zoo's is timed beside is right: a rival that drops or doubles a gradient would be fast and worthless."""

import pytest

torch = pytest.importorskip("torch")

from zoo.benchmark.torch_experts import experts, gpt_oss, silu  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no grouped products")
T, E, TOP, K, INNER = 24, 5, 3, 64, 32


def drawn(*shape, over=1):
    return (torch.randn(*shape) / over**0.5).bfloat16()


def plain(x, ids, weights, gate_up, down, activation, biases):
    """Expert by expert, in f64."""
    y = torch.zeros(T, K, dtype=torch.float64)
    for expert in range(E):
        token, choice = (ids == expert).nonzero(as_tuple=True)
        first, second = (0, 0) if biases is None else (one[expert].double() for one in biases)
        d = activation(x[token] @ gate_up[expert].t() + first) @ down[expert].t() + second
        y = y.index_add(0, token, d * weights[token, choice, None])
    return y


@pytest.mark.parametrize("activation", [silu, gpt_oss])
def test_output_and_all_gradients_are_those_of_a_loop_over_experts(activation):
    torch.manual_seed(0)
    x, gate_up, down, dy = drawn(T, K), drawn(E, 2 * INNER, K, over=K), drawn(E, K, INNER, over=INNER), drawn(T, K)
    scores = torch.randn(T, E)
    scores[:, 1] = -9  # an expert without tokens
    weights, ids = scores.topk(TOP)
    given = [x, weights.softmax(1), gate_up, down]
    biases = (drawn(E, 2 * INNER), drawn(E, K)) if activation is gpt_oss else None

    def run(layer, dtype):
        x, weights, gate_up, down = leaves = [one.to(dtype or one.dtype).requires_grad_() for one in given]
        y = layer(x, ids, weights, gate_up, down, activation, biases)
        return y, *torch.autograd.grad(y, leaves, dy.to(y.dtype))

    for found, exact in zip(run(experts, None), run(plain, torch.float64), strict=True):
        assert (found.double() - exact).norm() < 0.015 * exact.norm()
