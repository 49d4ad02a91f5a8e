"""Weights as checkpoints have them, and what they stand for."""

import torch

import zoo.torch as zt


def quantised(weight, format):
    """Tensors by the end of their names, and the numbers of the weight in float32."""
    if format == "fp8b128":
        made = zt.quantize(weight, "fp8b128", direction="squares")
        tensors = {"weight": made.elements, "weight_scale_inv": made.scales}
    elif format in ("mxfp4", "mxfp8"):
        made = zt.quantize(weight, format, layout="plain", rounding="rceil")
        elements = made.elements if format == "mxfp8" else made.elements.view(torch.uint8)
        tensors = {"weight": elements, "weight_scale": made.scales.view(torch.uint8)}
    else:
        made = zt.quantize(weight, "nvfp4", layout="plain", tensor_scale=torch.tensor([0.004], dtype=torch.float32))
        tensors = {
            "weight": made.elements.view(torch.uint8),
            "weight_scale": made.scales,
            "weight_scale_2": made.tensor_scale.reshape(()),
            "input_scale": torch.tensor(0.01, dtype=torch.float32),
        }
    return tensors, made.dequantize(torch.float32)


def in_compressed_tensors(tensors):
    """The same weight under compressed-tensors' names, whose last scale of NVFP4 divides."""
    if tensors["weight"].dtype == torch.float8_e4m3fn:
        return {name.removesuffix("_inv"): one for name, one in tensors.items()}
    names = {"weight": "weight_packed", "weight_scale_2": "weight_global_scale", "input_scale": "input_global_scale"}
    return {names.get(name, name): one.reciprocal() if name in ("weight_scale_2", "input_scale") else one for name, one in tensors.items()}


def error(found, exact):
    return ((found.float() - exact).norm() / exact.norm()).item()
