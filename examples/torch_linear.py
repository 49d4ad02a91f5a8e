"""FP8 linear layers in torch: every `torch.nn.Linear` of a model becomes a layer with quantised weights.

    pip install . torch
    python examples/torch_linear.py

Weights have a scale for each 128 x 128 elements, and tokens have a scale for each 1 x 128. A CPU computes the kernels' written
rule. `torch.compile`, `state_dict` and `module.to(device)` work, because elements and scales are buffers.
"""

import copy

import torch

import zoo.torch as zt

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def quantize(x, direction):
    return zt.quantize(x, "fp8b128", direction=direction, scaling="pow2")  # Blackwell needs power-of-two scales


class FP8Linear(torch.nn.Module):
    def __init__(self, linear):
        super().__init__()
        w = quantize(linear.weight.detach(), "squares")
        self.register_buffer("elements", w.elements)
        self.register_buffer("scales", w.scales)
        self.bias = linear.bias

    def forward(self, x):
        w = zt.Quantized(self.elements, self.scales, "fp8b128", squares=True)
        y = zt.matmul(quantize(x.flatten(0, -2), "rows"), w.t()).unflatten(0, x.shape[:-1])
        return y if self.bias is None else y + self.bias


def quantised(model):
    """A copy of the model in which FP8 layers replace all linear layers."""
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.Linear):
                setattr(module, name, FP8Linear(child))
    return model


def bytes_of(model):
    return sum(one.nbytes for one in (*model.parameters(), *model.buffers()))


def main():
    torch.manual_seed(0)
    layers = torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512)
    exact = torch.nn.Sequential(*layers).to(DEVICE)
    in_bf16 = copy.deepcopy(exact).to(torch.bfloat16)
    x = torch.randn(4, 16, 512, device=DEVICE)  # batch, sequence, width
    errors = {}
    print(f"on {DEVICE}     bytes  relative error to float32")
    with torch.no_grad():
        wanted = exact(x)
        for name, model in (("bf16", in_bf16), ("fp8b128", quantised(in_bf16))):
            found = model(x.to(torch.bfloat16)).float()
            errors[name] = float((found - wanted).norm() / wanted.norm())
            print(f"{name:8} {bytes_of(model):9}  {100 * errors[name]:.1f} %")
    return errors


if __name__ == "__main__":
    main()
