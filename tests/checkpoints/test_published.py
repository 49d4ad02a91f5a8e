"""Published checkpoints, from the file to a layer's output: within what the roundings on the way predict, and a mistake is not.

How far the layer may be from the published formula in float64. e4m3 activations with a scale a row are off by DELTA = 2^-4 / sqrt(7) = 0.0236 of
themselves as root mean square (a rounding by at most 2^-4, mantissas from 1 to 2), NVFP4 weights as e4m3 by RHO = 0.021 (docs/four_bit_weights.md), MXFP4 weights
not at all. Errors of a sum of products are off as much as the products' factors, and add up in squares:

    h       x, the first weights                          DELTA^2 + RHO^2
    act     gate and up, each as far off as h             2 (DELTA^2 + RHO^2)
    y       act, its own rounding, the second weights     3 (DELTA^2 + RHO^2)

bf16 in between, 2^-9, is lost in that, and so are biases, which are exact. The bound is 1.25 of the root: mantissas are not quite even, and activations
bend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

safetensors = pytest.importorskip("safetensors", "0.8")

from tests.checkpoints.layer import layer, routed  # noqa: E402
from tests.checkpoints.mistakes import MISTAKES, Mistake, none  # noqa: E402
from tests.checkpoints.published import DELTA, KINDS, MARGIN, RHO, Numbers, Sizes, Tensor  # noqa: E402
from tests.checkpoints.readers import READERS  # noqa: E402

DTYPES = {
    "U8": np.uint8, "I8": np.int8, "F32": np.float32,
    "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
WRITTEN = {"U8": "uint8", "I8": "int8", "F32": "float32", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu"}
SIZES = Sizes()
MISTAKEN = [pytest.param(name, made, id=f"{name}-{made.__name__}") for name in KINDS for made in MISTAKES[name]]


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    held = {name: np.asarray(array, order="C") for name, (_, array) in tensors.items()}
    specs = {
        name: safetensors.TensorSpec(
            dtype=WRITTEN[tensors[name][0]], shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes
        )
        for name, array in held.items()
    }  # fmt: skip
    safetensors.serialize_file(specs, path, metadata={"format": "pt"})


def read(path: Path) -> dict[str, np.ndarray]:
    return {
        name: np.frombuffer(tensor["data"], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in safetensors.deserialize(path.read_bytes())
    }


@pytest.fixture(scope="module", params=KINDS)
def case(request, tmp_path_factory):
    kind, random = KINDS[request.param], np.random.default_rng(len(request.param))
    path = tmp_path_factory.mktemp("checkpoint") / "model.safetensors"
    made = kind.make(random, SIZES)
    write(path, made)
    tensors = read(path)
    assert {name: (array.dtype, array.shape) for name, array in tensors.items()} == {
        name: (np.dtype(DTYPES[dtype]), array.shape) for name, (dtype, array) in made.items()
    }
    x = random.standard_normal((40, SIZES.hidden)).astype(ml_dtypes.bfloat16)
    router = random.standard_normal((SIZES.hidden, SIZES.experts)) / SIZES.hidden**0.5
    return request.param, kind, tensors, x, *routed(x.astype(np.float64) @ router, kind.top_k, kind.routing)


def published(kind, numbers: Numbers, x: np.ndarray, chosen: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The publisher's formula in float64, token by token and expert by expert."""
    x, result = x.astype(np.float64), np.zeros((len(x), numbers.down.shape[1]))
    for token, expert_shares in enumerate(shares):
        for expert, share in zip(chosen[token], expert_shares, strict=True):
            gate = numbers.gate[expert] @ x[token] + numbers.gate_bias[expert]
            up = numbers.up[expert] @ x[token] + numbers.up_bias[expert]
            if kind.activation == "gpt_oss":
                gate, up = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
                h = (up + 1) * gate / (1 + np.exp(-1.702 * gate))
            else:
                if kind.activation == "deepseek_v4":
                    gate, up = np.minimum(gate, 10.0), np.clip(up, -10.0, 10.0)
                h = gate / (1 + np.exp(-gate)) * up
            result[token] += share * (numbers.down[expert] @ h + numbers.down_bias[expert])
    return result


def error(case, mistake: Mistake = none) -> float:
    """Of the layer, relative to the formula, over the bound."""
    name, kind, tensors, x, chosen, shares = case
    expected = published(kind, kind.numbers(tensors, SIZES.experts), x, chosen, shares)
    first, second = mistake(*READERS[name](tensors, kind.prefix, SIZES.experts))
    with np.errstate(all="ignore"):
        found = layer(x, chosen, shares, first, second, kind.activation, kind.limit)
        off = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    rho = RHO if first.format == "nvfp4" else 0
    print(f"{name}: {off:.4f} of {(3 * (DELTA**2 + rho**2)) ** 0.5:.4f}")
    return off / (MARGIN * (3 * (DELTA**2 + rho**2)) ** 0.5)


def test_a_published_checkpoint_gives_the_published_layer(case):
    found = error(case)
    assert found <= 1
    assert found > 0.3, "nearer than FP8 activations can be: were they?"


@pytest.mark.parametrize(("case", "mistake"), MISTAKEN, indirect=["case"])
def test_a_loader_with_a_mistake_is_out_of_the_bound(case, mistake):
    assert 1.5 < error(case, mistake) < math.inf


def test_gates_and_ups_with_scales_of_their_own_are_refused(case):
    name, kind, tensors, *_ = case
    key = f"{kind.prefix}2.up_proj." + {"ModelOpt": "weight_scale_2", "compressed-tensors": "weight_global_scale"}.get(name, "")
    if key in tensors:
        with pytest.raises(ValueError, match="share one product"):
            READERS[name](tensors | {key: tensors[key] * np.float32(1.5)}, kind.prefix, SIZES.experts)
