"""A layer of experts spread over processes: what one call costs, what it sends, and which share of its time is the exchange.

    torchrun --nproc-per-node 2 examples/expert_parallel.py

With two parts of the tokens, the exchange of one hides behind the products of the other. A CPU's times say nothing about a GPU.
"""

import os
import time

import torch
from torch import distributed

import zoo.torch as zt

GPU = torch.cuda.is_available()
# experts of all ranks, experts of a token, width of the model, gates of an expert, tokens of a rank
EXPERTS, TOP, K, GATES, TOKENS = (64, 8, 7168, 2048, (128, 8192)) if GPU else (8, 2, 256, 128, (64,))
PARTS = {1: {}, 2: {"parts": 2, "multiprocessors": 116 if GPU else None}}  # an H200 has 132: the others are NCCL's


def milliseconds(call, calls=10 if GPU else 1):
    """Of one call, on the slowest rank."""
    call()
    distributed.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    if GPU:
        torch.cuda.synchronize()
    took = torch.tensor((time.perf_counter() - begin) / calls * 1000, device="cuda" if GPU else "cpu")
    distributed.all_reduce(took, distributed.ReduceOp.MAX)
    return took.item()


@torch.no_grad()
def serve(layer, x, ids, weights):
    layer(x, ids, weights)


def train(layer, x, ids, weights):
    layer(x, ids, weights).sum().backward()


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")
    if GPU:
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if GPU else "gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    here, group = EXPERTS // ranks, distributed.group.WORLD
    torch.manual_seed(rank)
    both = torch.randn(here, 2 * GATES, K, device=device) / K**0.5, torch.randn(here, K, GATES, device=device) / GATES**0.5
    if rank == 0:
        print(f"{ranks} ranks on {device.type}: {here} experts each, {K} x {GATES}, {TOP} of {EXPERTS} for each token")
        print("call   tokens a rank   parts   layer, ms   sent a rank, MB   of bf16   exchange exposed")
    for name, call, frozen in (("serve", serve, True), ("train", train, False)):
        options = {}, *({"group": group, **one} for one in PARTS.values())
        alone, *spread = (zt.nn.Experts.from_float(*both, "fp8b128", frozen, **one) for one in options)
        for tokens in TOKENS:
            x = torch.randn(tokens, K, device=device, dtype=torch.bfloat16, requires_grad=not frozen)
            logits, ids = torch.randn(tokens, EXPERTS, device=device).topk(TOP)
            weights = logits.softmax(1)
            in_bf16 = 2 * K * int((ids // here != rank).sum()) * (2 if frozen else 4)  # there and back, of gradients too
            local = milliseconds(lambda call=call, given=(alone, x, ids % here, weights): call(*given))  # as many rows, no exchange
            for parts, layer in zip(PARTS, spread, strict=True):
                before = layer.ranks.sent_bytes
                call(layer, x, ids, weights)
                sent = torch.tensor([layer.ranks.sent_bytes - before, in_bf16], device=device)
                distributed.all_reduce(sent)
                a_rank, share = sent[0].item() / ranks / 1e6, sent[0].item() / sent[1].item()
                whole = milliseconds(lambda call=call, given=(layer, x, ids, weights): call(*given))
                if rank == 0:
                    print(f"{name}  {tokens:14}  {parts:6}  {whole:10.2f}  {a_rank:16.3f}  {share:8.2f}  {1 - local / whole:17.2f}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
