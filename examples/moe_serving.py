"""An MoE layer like gpt-oss's, served with MXFP4 weights and FP8 tokens on Hopper.

    pip install . torch
    python examples/moe_serving.py

`pack` runs once, on tensors as the checkpoint stores them: two codes in a byte, each up after its gate. `serve` runs for each
batch: route, quantise, two grouped GEMMs, combine. The host never reads the routing, so a CUDA graph can replay the layer.
A CPU computes the kernels' written rule.
"""

import torch

import zoo.torch as zt

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ops, LIMIT = torch.ops.zoo, 7.0
EXPERTS, TOP, K, GATES = 8, 2, 256, 192  # experts, experts of a token, width of the model, gates of an expert


def checkpoint():
    """The layer's quantised weights and its biases, random here."""
    w_in, w_out = torch.randn(EXPERTS, 2 * GATES, K, device=DEVICE) / K**0.5, torch.randn(EXPERTS, K, GATES, device=DEVICE) / GATES**0.5
    up_bias, down_bias = torch.randn(EXPERTS, 2 * GATES, device=DEVICE) / 4, torch.randn(EXPERTS, K, device=DEVICE) / 4
    return *(zt.quantize(w, "mxfp4", layout="plain") for w in (w_in, w_out)), up_bias, down_bias


def pack(w_in, w_out):
    pairs = {"q": w_in.elements.unflatten(1, (GATES, 2)), "scales": w_in.scales.unflatten(1, (GATES, 2))}  # gate, up, gate, up ...
    return ops.pack_mxfp4_fragments(**pairs, gates="interleaved"), ops.pack_mxfp4_fragments(w_out.elements, w_out.scales)


def route(x, router):
    """The routing weight and the token of each row, the last row of each expert, and the rows of each token."""
    logits, experts = (x.float() @ router.t()).topk(TOP)
    experts, order = experts.flatten().sort(stable=True)
    offsets = torch.searchsorted(experts, torch.arange(EXPERTS, device=x.device), right=True, out_int32=True)
    return logits.softmax(1).flatten()[order], (order // TOP).int(), offsets, order.argsort().view(-1, TOP)


def serve(x, router, packed_in, packed_out, up_bias, down_bias):
    row_scale, index, offsets, place = route(x, router)
    a, a_scale = ops.quantize_fp8token_rows(x, order="fragments")
    h, h_scale = ops.gemm_fp8_mxfp4_m_grouped_gather_swiglu_fp8b128(
        a, *packed_in, index, offsets, a_scale=a_scale, bias=up_bias.unflatten(1, (GATES, 2)),
        gates="interleaved", activation="gpt_oss", limit=LIMIT, order="fragments",
    )  # fmt: skip
    y = ops.gemm_fp8_mxfp4_m_grouped_contiguous(h, *packed_out, offsets, a_block_scale=h_scale, bias=down_bias, row_scale=row_scale, N=K)
    return y[place].sum(1)


def in_float32(x, router, w_in, w_out, up_bias, down_bias):
    """The same layer, every expert on every token, with the numbers that the codes stand for."""
    logits, experts = (x.float() @ router.t()).topk(TOP)
    pairs = torch.einsum("tk,enk->ten", x.float(), w_in.dequantize("f32")) + up_bias
    gate, up = pairs[..., ::2].clamp(max=LIMIT), pairs[..., 1::2].clamp(-LIMIT, LIMIT)
    h = (up + 1) * gate * torch.sigmoid(1.702 * gate)
    every = torch.einsum("tei,eki->tek", h, w_out.dequantize("f32")) + down_bias
    return (every.gather(1, experts[..., None].expand(-1, -1, K)) * logits.softmax(1)[..., None]).sum(1)


def main():
    torch.manual_seed(0)
    w_in, w_out, *biases = checkpoint()
    packed, router, errors = pack(w_in, w_out), torch.randn(EXPERTS, K, device=DEVICE), []
    print(f"tokens  relative error to float32, on {DEVICE}")
    for tokens in (1, 8, 100):
        x = torch.randn(tokens, K, device=DEVICE, dtype=torch.bfloat16)
        found, wanted = serve(x, router, *packed, *biases), in_float32(x, router, w_in, w_out, *biases)
        errors.append(float((found - wanted).norm() / wanted.norm()))
        print(f"{tokens:6}  {100 * errors[-1]:.1f} %")
    return errors


if __name__ == "__main__":
    main()
