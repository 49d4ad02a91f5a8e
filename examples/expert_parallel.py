"""Experts spread over processes, each with its own experts and tokens: a layer that serves in FP8, and one that trains.

torchrun --nproc-per-node 2 examples/expert_parallel.py
"""

import os

import torch
from torch import distributed

import zoo.torch as zt

EXPERTS, TOP, HIDDEN, INNER, TOKENS = 8, 2, 256, 128, 64  # experts of all ranks, tokens of one


def in_float32(x, ids, weights, gate_up, down):
    """What all experts give, without quantisation."""
    y = torch.zeros_like(x, dtype=torch.float32)
    for expert in range(EXPERTS):
        gates, ups = (x.float() @ gate_up[expert].T).chunk(2, 1)
        share = (weights * (ids == expert)).sum(1, keepdim=True)
        y += share * ((torch.nn.functional.silu(gates) * ups) @ down[expert].T)
    return y


def main():
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if gpu else "gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    if EXPERTS % ranks:
        raise SystemExit(f"{ranks} ranks do not divide {EXPERTS} experts: start another number of processes")

    torch.manual_seed(0)  # the same experts everywhere, of which a rank keeps its own
    gate_up = torch.randn(EXPERTS, 2 * INNER, HIDDEN, device=device) / HIDDEN**0.5
    down = torch.randn(EXPERTS, HIDDEN, INNER, device=device) / INNER**0.5
    own = slice(rank * EXPERTS // ranks, (rank + 1) * EXPERTS // ranks)
    torch.manual_seed(rank + 1)
    x = torch.randn(TOKENS, HIDDEN, device=device, dtype=torch.bfloat16)
    logits, ids = torch.randn(TOKENS, EXPERTS, device=device).topk(TOP)
    weights = logits.softmax(1)

    layer = zt.nn.Experts.from_float(gate_up[own], down[own], "fp8b128", frozen=True, group=distributed.group.WORLD)
    y, expected = layer(x, ids, weights), in_float32(x, ids, weights, gate_up, down)
    error = (y.float() - expected).norm() / expected.norm()
    if rank == 0:
        print(f"{ranks} ranks serve {own.stop - own.start} experts each: error {error:.1%}, {layer.ranks.sent_bytes:,} bytes sent by one")

    trained = zt.nn.Experts.from_float(gate_up[own], down[own], "fp8b128", frozen=False, group=distributed.group.WORLD)
    optimiser, target = torch.optim.Adam(trained.parameters(), lr=1e-3), torch.randn_like(x)
    losses = []
    for _ in range(6):
        optimiser.zero_grad()
        loss = (trained(x, ids, weights).float() - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(f"{loss.item():.3f}")
    if rank == 0:
        print(f"training: {' '.join(losses)}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
