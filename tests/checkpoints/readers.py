"""From tensors as checkpoints name them to what pack.*.fragments takes: docs/four_bit_weights.md in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Matrices:
    """Of all experts: what is packed, and what belongs to the product."""

    format: str
    q: np.ndarray  # (E, N, K / 2)
    scales: np.ndarray  # (E, N, K / 16 or K / 32)
    gates: str = "plain"
    alpha: np.ndarray | None = None  # (E,) multipliers
    bias: np.ndarray | None = None  # (E, N)


def gpt_oss(tensors: Mapping[str, np.ndarray], prefix: str, experts: int) -> tuple[Matrices, Matrices]:
    def matrices(name: str, gates: str) -> Matrices:
        blocks = tensors[f"{prefix}{name}_blocks"]
        q = blocks.reshape(*blocks.shape[:2], -1)  # (E, N, K / 32, 16) as it lies
        return Matrices("mxfp4", q, tensors[f"{prefix}{name}_scales"], gates, bias=tensors[f"{prefix}{name}_bias"].astype(np.float32))

    return matrices("gate_up_proj", "interleaved"), matrices("down_proj", "plain")


def modelopt(tensors: Mapping[str, np.ndarray], prefix: str, experts: int) -> tuple[Matrices, Matrices]:
    def alpha(names: tuple[str, ...]) -> np.ndarray:
        return _shared([[tensors[f"{prefix}{expert}.{name}.weight_scale_2"] for name in names] for expert in range(experts)])

    return _nvfp4(tensors, prefix, experts, "weight", alpha)


def compressed_tensors(tensors: Mapping[str, np.ndarray], prefix: str, experts: int) -> tuple[Matrices, Matrices]:
    def alpha(names: tuple[str, ...]) -> np.ndarray:
        divisors = [[tensors[f"{prefix}{expert}.{name}.weight_global_scale"][0] for name in names] for expert in range(experts)]
        return np.float32(1) / _shared(divisors)

    return _nvfp4(tensors, prefix, experts, "weight_packed", alpha)


def deepseek_v4(tensors: Mapping[str, np.ndarray], prefix: str, experts: int) -> tuple[Matrices, Matrices]:
    def matrices(names: tuple[str, ...], gates: str) -> Matrices:
        return Matrices("mxfp4", *(_stacked(tensors, prefix, experts, names, part) for part in ("weight", "scale")), gates)

    return matrices(("w1", "w3"), "halves"), matrices(("w2",), "plain")


READERS = {"gpt-oss": gpt_oss, "ModelOpt": modelopt, "compressed-tensors": compressed_tensors, "DeepSeek-V4": deepseek_v4}


def _nvfp4(tensors, prefix, experts, of_codes, alpha):  # type: ignore[no-untyped-def]
    def matrices(names: tuple[str, ...], gates: str) -> Matrices:
        q, scales = (_stacked(tensors, prefix, experts, names, part) for part in (of_codes, "weight_scale"))
        return Matrices("nvfp4", q, scales, gates, alpha(names))

    return matrices(("gate_proj", "up_proj"), "halves"), matrices(("down_proj",), "plain")


def _stacked(tensors: Mapping[str, np.ndarray], prefix: str, experts: int, names: tuple[str, ...], part: str) -> np.ndarray:
    """(E, N, bytes): the rows of `names` below each other."""
    each = [np.concatenate([tensors[f"{prefix}{expert}.{name}.{part}"].view(np.uint8) for name in names]) for expert in range(experts)]
    return np.stack(each)


def _shared(each: list[list[np.float32]]) -> np.ndarray:
    """One number for each expert: a product has one alpha for gates and ups."""
    for numbers in each:
        if len(set(map(float, numbers))) > 1:
            raise ValueError(f"gates and ups of an expert have scales of their own, {numbers}: they cannot share one product")
    return np.array([numbers[0] for numbers in each], np.float32)
