"""A small network trained in FP8 with master weights, beside float32, then frozen for inference.

    pip install . torch     # in a checkout of zoo
    python examples/train_linear.py

`zoo.torch.quantize_` turns each `torch.nn.Linear` into an FP8 layer. Forward and backward products are FP8, and the optimiser updates
float32 weights. A CPU computes the kernels' written rule.
"""

import copy

import torch

import zoo.torch as zt

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDTH, HIDDEN, OUTPUTS, ROWS, STEPS, BATCHES = 128, 256, 64, 64, 10, 2


def network():
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, HIDDEN), torch.nn.GELU(), torch.nn.Linear(HIDDEN, OUTPUTS)).to(DEVICE)


def train(model, x, wanted):
    """The mean loss of each step. Gradients of two batches add up; the weights are cast to FP8 once a step."""
    optimiser, losses = torch.optim.AdamW(model.parameters(), lr=5e-3), []
    for _ in range(STEPS):
        total = 0.0
        for rows, target in zip(x, wanted, strict=True):
            with torch.autocast(DEVICE, torch.bfloat16, enabled=isinstance(model[0], zt.nn.Linear)):
                found = model(rows)
            loss = (found.float() - target).square().mean() / target.square().mean() / BATCHES
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(total)
    return losses


def main():
    torch.manual_seed(0)
    teacher, student = network(), network()
    x = torch.randn(BATCHES, ROWS, WIDTH, device=DEVICE)
    with torch.no_grad():
        wanted = teacher(x)
    in_fp8 = copy.deepcopy(student)
    zt.quantize_(in_fp8, "fp8b128", frozen=False)

    print(f"on {DEVICE}: loss of each step, over the mean square of the output that the network learns")
    for name, model in (("FP8", in_fp8), ("float32", student)):
        print(f"{name:8}", *(f"{loss:.4f}" for loss in train(model, x, wanted)))

    with torch.no_grad():
        before = in_fp8(x)
        print(zt.quantize_(in_fp8, "fp8b128"))  # freezes what has been trained
        error = (in_fp8(x) - before).norm() / before.norm()
    print(f"frozen layers are off by {100 * error:.2f} %")


if __name__ == "__main__":
    main()
