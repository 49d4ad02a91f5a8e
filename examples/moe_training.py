"""An MoE layer trained forward and backward in FP8, beside the same layer in float32.

    pip install . torch
    python examples/moe_training.py

`Experts` multiplies rows by the matrix of their expert. Each of its three GEMMs contracts another axis, so each operand is quantised
along the axis that its GEMM contracts. torch does the rest. A CPU computes the kernels' written rule.
"""

import torch

import zoo.torch as zt

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ops, POW2 = torch.ops.zoo, {"scaling": "pow2"}  # Blackwell needs power-of-two scales
T, EXPERTS, TOP, K, GATES = 96, 4, 2, 128, 64  # tokens, experts, experts of a token, width of the model, gates of an expert


def by_rows(x, w, offsets):
    """The rows of each group times w (E, N, K) of their expert: (M, K) to (M, N)."""
    b = zt.quantize(w, "fp8b128", direction="squares", **POW2)
    return zt.matmul(zt.quantize(x, "fp8b128", **POW2), b.t(), groups=offsets)


def columns(x, offsets):
    """x quantised along its columns. Each group is padded with zeros. The GEMM expects one more row of scales for each group."""
    q, scales, _, ends = ops.quantize_fp8b128_cols_m_grouped_padded(x, offsets, layout="mn_major", **POW2)
    return q, torch.nn.functional.pad(scales.t(), (0, 0, 0, len(offsets))), ends


class Experts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, offsets):
        ctx.save_for_backward(x, w, offsets)
        return by_rows(x, w, offsets)

    @staticmethod
    def backward(ctx, dy):
        x, w, offsets = ctx.saved_tensors
        (*a, ends), (*b, _) = columns(dy, offsets), columns(x, offsets)
        return by_rows(dy, w.mT.contiguous(), offsets), ops.gemm_fp8b128_k_grouped(*a, *b, ends, d="f32"), None


def in_float32(x, w, offsets):
    rows = x.float().split(offsets.diff(prepend=offsets.new_zeros(1)).tolist())
    return torch.cat([some @ matrix.t() for some, matrix in zip(rows, w, strict=True)])


def layer(experts, x, router, w_in, w_out):
    logits, chosen = (x.float() @ router.t()).topk(TOP)
    groups, order = chosen.flatten().sort(stable=True)
    offsets = torch.searchsorted(groups, torch.arange(EXPERTS, device=x.device), right=True, out_int32=True)
    gate, up = experts(x[order // TOP], w_in, offsets).chunk(2, dim=1)
    y = experts(torch.nn.functional.silu(gate) * up, w_out, offsets)
    return (y[order.argsort()].view(T, TOP, K) * logits.softmax(1)[..., None]).sum(1)


def main():
    random, losses = torch.Generator().manual_seed(0), {}
    shapes = (EXPERTS, K), (EXPERTS, 2 * GATES, K), (EXPERTS, K, GATES)  # router, gates and ups, second matrices
    teacher, start = ([torch.randn(one, generator=random).to(DEVICE) / one[-1] ** 0.5 for one in shapes] for _ in range(2))
    x = torch.randn(T, K, generator=random).to(DEVICE, torch.bfloat16)
    wanted = layer(in_float32, x, *teacher)
    print(f"on {DEVICE}: loss before each step, over the mean square of the output that the layer learns")
    for name, experts in (("FP8", Experts.apply), ("float32", in_float32)):
        student = [one.clone().requires_grad_() for one in start]
        optimiser, losses[name] = torch.optim.Adam(student, lr=3e-3), []
        for _ in range(6):
            loss = (layer(experts, x, *student) - wanted).square().mean() / wanted.square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses[name].append(loss.item())
        print(f"{name:8}", *(f"{one:.4f}" for one in losses[name]))
    return losses


if __name__ == "__main__":
    main()
