"""An MoE layer like gpt-oss's, served with MXFP4 weights and FP8 tokens on Hopper.

    pip install . torch
    python examples/moe_serving.py

`from_checkpoint` packs the tensors once, as a checkpoint stores them: two codes in a byte, each up after its gate. The layer routes, quantises,
runs two grouped GEMMs and combines. The host never reads the routing, so a CUDA graph can replay the layer. A CPU computes the kernels' written rule.
"""

import torch

import zoo.torch as zt

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EXPERTS, TOP, K, GATES, LIMIT = 8, 2, 256, 192, 7.0  # experts, experts of a token, width of the model, gates of an expert
PREFIX = "model.layers.0.mlp.experts."


def checkpoint():
    """The layer's tensors by name, random here, and the numbers that they stand for."""
    tensors, numbers = {}, []
    for name, rows, columns in (("gate_up_proj", 2 * GATES, K), ("down_proj", K, GATES)):
        w = zt.quantize(torch.randn(EXPERTS, rows, columns, device=DEVICE) / columns**0.5, "mxfp4", layout="plain")
        bias = (torch.randn(EXPERTS, rows, device=DEVICE) / 4).bfloat16()
        tensors[f"{PREFIX}{name}_blocks"] = w.elements.view(torch.uint8).unflatten(2, (-1, 16))
        tensors[f"{PREFIX}{name}_scales"], tensors[f"{PREFIX}{name}_bias"] = w.scales.view(torch.uint8), bias
        numbers += [w.dequantize("f32"), bias.float()]
    return tensors, numbers


def route(x, router):
    """The experts of each token and their weights, by any router."""
    logits, ids = (x.float() @ router.t()).topk(TOP, sorted=False)
    return ids, logits.softmax(1)


def in_float32(x, ids, weights, w_in, up_bias, w_out, down_bias):
    """The same layer, every expert on every token, with the numbers that the codes stand for."""
    pairs = torch.einsum("tk,enk->ten", x.float(), w_in) + up_bias
    gate, up = pairs[..., ::2].clamp(max=LIMIT), pairs[..., 1::2].clamp(-LIMIT, LIMIT)
    h = (up + 1) * gate * torch.sigmoid(1.702 * gate)
    every = torch.einsum("tei,eki->tek", h, w_out) + down_bias
    return (every.gather(1, ids[..., None].expand(-1, -1, K)) * weights[..., None]).sum(1)


def main():
    torch.manual_seed(0)
    tensors, numbers = checkpoint()
    experts = zt.nn.Experts.from_checkpoint(tensors, PREFIX)  # or a file, or a folder of safetensors
    router, errors = torch.randn(EXPERTS, K, device=DEVICE), []
    print(f"tokens  relative error to float32, on {DEVICE}")
    for tokens in (1, 8, 100):
        x = torch.randn(tokens, K, device=DEVICE, dtype=torch.bfloat16)
        ids, weights = route(x, router)
        found, wanted = experts(x, ids, weights), in_float32(x, ids, weights, *numbers)
        errors.append(float((found - wanted).norm() / wanted.norm()))
        print(f"{tokens:6}  {100 * errors[-1]:.1f} %")
    return errors


if __name__ == "__main__":
    main()
