"""Mixture-of-experts weights exactly as published checkpoints hold them: names, dtypes, shapes, conventions; small, and of random numbers.

A checkpoint is a mapping from a tensor's name to (the dtype that safetensors calls it by, its array). `numbers` of a kind says what its tensors stand
for, in float64, by the formula that its publisher gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from zoo.reference import block_format, nvfp4_tensor_scale, quantize_rows
from zoo.reference.small_floats import E2M1, E4M3, decode, decode_e8m0

# As test_published.py says: of a number in e4m3, of a product of e2m1 and e4m3 in e4m3; and how far above what they predict is allowed.
DELTA, RHO, MARGIN = 2.0**-4 / 7**0.5, 0.021, 1.25

Tensor = tuple[str, np.ndarray]
LAYER = 3


@dataclass(frozen=True)
class Sizes:
    experts: int = 5
    hidden: int = 288  # not a multiple of 64, as gpt-oss's 2880 is not one of 128
    intermediate: int = 96


@dataclass(frozen=True)
class Numbers:
    """What a layer's experts are: matrices (E, N, K) and biases (E, N), in float64."""

    gate: np.ndarray
    up: np.ndarray
    down: np.ndarray
    gate_bias: np.ndarray
    up_bias: np.ndarray
    down_bias: np.ndarray


def weights(random: np.random.Generator, experts: int, rows: int, columns: int) -> np.ndarray:
    """Normal numbers whose neighbouring blocks of 32 are 1, 2 or 4 times as large as others: a scale in another's place shows."""
    factors = np.exp2(random.integers(0, 3, (experts, rows, -(-columns // 32))))
    values = random.standard_normal((experts, rows, columns)) * np.repeat(factors, 32, axis=2)[..., :columns]
    return np.asarray(values / np.sqrt(7 * columns), np.float32)


def mxfp4(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    made = quantize_rows(values, block_format("mxfp4"))
    return made.q, made.scales.view(np.uint8)


def nvfp4(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.float32]:
    """(codes, e4m3 scales, the scale of the tensor)."""
    tensor_scale = nvfp4_tensor_scale(np.abs(values).max())
    made = quantize_rows(values, block_format("nvfp4", tensor_scale=tensor_scale))
    return made.q, made.scales, np.float32(tensor_scale)


def bf16(values: np.ndarray) -> np.ndarray:
    return values.astype(ml_dtypes.bfloat16)


def codes(q: np.ndarray) -> np.ndarray:
    """Bytes -> magnitudes with signs: the low nibble is the even column."""
    q = np.asarray(q).view(np.uint8)
    return decode(np.stack((q & 15, q >> 4), axis=-1).reshape(*q.shape[:-1], -1), E2M1).astype(np.float64)


class GptOss:
    """openai/gpt-oss: all experts in one tensor, even rows of gate_up_proj are gates; bias; MXFP4."""

    activation, limit, top_k, routing = "gpt_oss", 7.0, 4, "softmax of the chosen"
    prefix = f"model.layers.{LAYER}.mlp.experts."

    def make(self, random: np.random.Generator, sizes: Sizes) -> dict[str, Tensor]:
        E, K, F = sizes.experts, sizes.hidden, sizes.intermediate
        made: dict[str, Tensor] = {}
        for name, rows, columns in (("gate_up_proj", 2 * F, K), ("down_proj", K, F)):
            q, scales = mxfp4(weights(random, E, rows, columns) * (4 if rows == 2 * F else 1))
            made[f"{self.prefix}{name}_blocks"] = "U8", q.reshape(E, rows, columns // 32, 16)
            made[f"{self.prefix}{name}_scales"] = "U8", scales
            made[f"{self.prefix}{name}_bias"] = "BF16", bf16(random.standard_normal((E, rows)))
        return made

    def numbers(self, tensors: Mapping[str, np.ndarray], experts: int) -> Numbers:
        found = {}
        for name in ("gate_up_proj", "down_proj"):
            blocks = tensors[f"{self.prefix}{name}_blocks"]
            values = codes(blocks) * np.exp2(tensors[f"{self.prefix}{name}_scales"].astype(np.float64) - 127)[..., None]
            found[name] = values.reshape(*blocks.shape[:2], -1)
        bias = tensors[f"{self.prefix}gate_up_proj_bias"].astype(np.float64)
        both = found["gate_up_proj"]
        down_bias = tensors[f"{self.prefix}down_proj_bias"].astype(np.float64)
        return Numbers(both[:, 0::2], both[:, 1::2], found["down_proj"], bias[:, 0::2], bias[:, 1::2], down_bias)


class _OneByOne:
    """A tensor for each expert and matrix, no biases."""

    limit, top_k, routing = 0.0, 2, "shares of all"
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    prefix = f"model.layers.{LAYER}.mlp.experts."

    def make(self, random: np.random.Generator, sizes: Sizes) -> dict[str, Tensor]:
        K, F = sizes.hidden, sizes.intermediate
        made: dict[str, Tensor] = {}
        for expert in range(sizes.experts):
            first = weights(random, 2, F, K)  # gate and up, which a checkpoint scales alike
            for name, values in zip(self.names, (*first, weights(random, 1, K, F)[0]), strict=True):
                largest = np.abs(first if name != self.names[2] else values).max()
                made |= {f"{self.prefix}{expert}.{name}.{part}": tensor for part, tensor in self.matrix(values, largest).items()}
        return made

    def numbers(self, tensors: Mapping[str, np.ndarray], experts: int) -> Numbers:
        found = [np.stack([self.values(tensors, f"{self.prefix}{expert}.{name}.") for expert in range(experts)]) for name in self.names]
        none = [np.zeros(matrix.shape[:2]) for matrix in found]
        return Numbers(*found, *none)

    def matrix(self, values: np.ndarray, largest: np.float32) -> dict[str, Tensor]:
        raise NotImplementedError

    def values(self, tensors: Mapping[str, np.ndarray], prefix: str) -> np.ndarray:
        raise NotImplementedError


class ModelOpt(_OneByOne):
    """NVIDIA ModelOpt's NVFP4: float32 scales are multipliers, amax / 2688."""

    activation = "silu"

    def matrix(self, values: np.ndarray, largest: np.float32) -> dict[str, Tensor]:
        tensor_scale = nvfp4_tensor_scale(largest)
        made = quantize_rows(values, block_format("nvfp4", tensor_scale=tensor_scale))
        scalar = np.array(tensor_scale, np.float32)
        return {
            "weight": ("U8", made.q),
            "weight_scale": ("F8_E4M3", made.scales),
            "weight_scale_2": ("F32", scalar),
            "input_scale": ("F32", np.array(6.0 / 2688, np.float32)),
        }

    def values(self, tensors: Mapping[str, np.ndarray], prefix: str) -> np.ndarray:
        scales = decode(tensors[f"{prefix}weight_scale"], E4M3).astype(np.float64)
        return np.asarray(codes(tensors[f"{prefix}weight"]) * np.repeat(scales, 16, axis=1) * float(tensors[f"{prefix}weight_scale_2"]))


class CompressedTensors(_OneByOne):
    """llm-compressor's NVFP4: float32 scales are divisors, 2688 / amax."""

    activation = "silu"

    def matrix(self, values: np.ndarray, largest: np.float32) -> dict[str, Tensor]:
        divisor = np.float32(2688) / largest
        made = quantize_rows(values, block_format("nvfp4", tensor_scale=np.float32(1) / divisor))
        return {
            "weight_packed": ("U8", made.q),
            "weight_scale": ("F8_E4M3", made.scales),
            "weight_global_scale": ("F32", np.array([divisor], np.float32)),
            "input_global_scale": ("F32", np.array([2688 / 6.0], np.float32)),
        }

    def values(self, tensors: Mapping[str, np.ndarray], prefix: str) -> np.ndarray:
        scales = decode(tensors[f"{prefix}weight_scale"], E4M3).astype(np.float64) / float(tensors[f"{prefix}weight_global_scale"][0])
        return np.asarray(codes(tensors[f"{prefix}weight_packed"]) * np.repeat(scales, 16, axis=1))


class DeepSeekV4(_OneByOne):
    """DeepSeek-V4: bytes are i8, scales ue8m0; w1 gates, w3 ups, w2 down; clamped SwiGLU."""

    activation, limit = "deepseek_v4", 10.0
    names = ("w1", "w3", "w2")
    prefix = f"layers.{LAYER}.ffn.experts."

    def matrix(self, values: np.ndarray, largest: np.float32) -> dict[str, Tensor]:
        q, scales = mxfp4(values * 3)
        return {"weight": ("I8", q.view(np.int8)), "scale": ("F8_E8M0", scales.view(ml_dtypes.float8_e8m0fnu))}

    def values(self, tensors: Mapping[str, np.ndarray], prefix: str) -> np.ndarray:
        return np.asarray(
            codes(tensors[f"{prefix}weight"]) * np.repeat(decode_e8m0(tensors[f"{prefix}scale"]).astype(np.float64), 32, axis=1)
        )


KINDS = {"gpt-oss": GptOss(), "ModelOpt": ModelOpt(), "compressed-tensors": CompressedTensors(), "DeepSeek-V4": DeepSeekV4()}
