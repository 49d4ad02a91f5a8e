"""A layer of published weights by the kernels themselves, on a GPU or an emulated one, in each way that tokens and weights may take.

    fp8, fp8b128, bf16        the tokens: e4m3 with a scale each, e4m3 with one for 1 x 128, bf16
    packed, stored            the weights: by pack.*.fragments, or as the checkpoint has them
    bf16, fp8b128             h between the products, in bf16 before it becomes tokens again, or as e4m3 with scales for 1 x 128

The first product takes its rows through an index and ends in the activation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

import zoo
from tests.checkpoints.mistakes import Mistake, none
from tests.checkpoints.published import DELTA, KINDS, RHO, Sizes
from tests.checkpoints.readers import READERS, Matrices
from zoo.reference.fragments import chunk_shape

WAYS = [
    ("fp8", "packed", "bf16"),
    ("fp8", "packed", "fp8b128"),
    ("fp8b128", "packed", "fp8b128"),
    ("fp8", "stored", "bf16"),
    ("fp8", "stored", "fp8b128"),
    ("fp8b128", "stored", "fp8b128"),
    ("bf16", "packed", "bf16"),
    ("bf16", "stored", "bf16"),
]


UNDER_SCALES_OF_BLOCKS = [way for way in WAYS if "fp8b128" in way]


@dataclass
class Routed:
    """Rows in the order of their experts, which tokens choose."""

    order: np.ndarray  # of the tokens' choices, one after the other
    index: Any  # on the GPU: the token of each row
    offsets: Any  # the row after each expert's last

    def combined(self, y: Any, shares: np.ndarray) -> np.ndarray:
        """(T, N) float32: what the experts of each token gave, by their shares."""
        of_tokens = y.numpy().astype(np.float32)[np.argsort(self.order, kind="stable")].reshape(*shares.shape, -1)
        return np.asarray((of_tokens * shares.astype(np.float32)[..., None]).sum(axis=1))


@dataclass
class Layer:
    gpu: Any  # array() and empty(): zoo.emulator.Device has them
    tokens: str
    lying: str
    between: str

    @property
    def format(self) -> str:
        """Of tokens, in the names of products and for the packers."""
        return "bf16" if self.tokens == "bf16" else "fp8"

    def weights(self, matrices: Matrices) -> dict[str, Any]:
        """What a product is given of them, but for the order of gates."""
        experts, rows, half = matrices.q.shape
        tiles, block = -(-rows // 64), -(-2 * half // matrices.scales.shape[2])
        scales = np.array(matrices.scales).view(np.uint8)
        q, laid_scales = (self.viewed(array, matrices) for array in (np.array(matrices.q), scales))
        if self.lying == "stored":
            dtype = ml_dtypes.float8_e4m3fn if matrices.format == "nvfp4" else ml_dtypes.float8_e8m0fnu
            made = {"b": self.gpu.array(q), "b_scale": self.gpu.array(laid_scales.view(dtype))}
            if matrices.format == "mxfp4":
                largest = np.zeros((experts, 64 * tiles), np.uint8)
                largest[:, :rows] = scales.max(axis=2)
                made["b_row_scale"] = self.gpu.array(largest.view(dtype))
        else:
            made = {"b": self.gpu.empty((experts, tiles, -(-half // 32), *chunk_shape(block, self.format, matrices.gates)), "u8")}
            of_rows = {}
            if matrices.format == "mxfp4":
                made["b_row_scale"] = of_rows["row_scale"] = self.gpu.empty(
                    (experts, 64 * tiles) if matrices.gates == "plain" else (experts, 4 * tiles, 2, 8), "ue8m0"
                )
            zoo.launch(
                f"pack.{matrices.format}.fragments",
                q=self.gpu.array(q),
                scales=self.gpu.array(laid_scales),
                b=made["b"],
                gates=matrices.gates,
                tokens=self.format,
                **of_rows,
            )
        for name in ("alpha", "bias"):
            if (given := getattr(matrices, name)) is not None:
                made[name] = self.gpu.array(self.viewed(given, matrices) if name == "bias" else given)
        return made

    @staticmethod
    def viewed(array: np.ndarray, matrices: Matrices) -> np.ndarray:
        """Rows of gates and ups, in the checkpoint's order, as kernels name them."""
        if matrices.gates == "plain":
            return array
        half = array.shape[1] // 2
        extents = (2, half) if matrices.gates == "halves" else (half, 2)
        return array.reshape(len(array), *extents, *array.shape[2:])

    def quantised(self, x: Any, rows: int, columns: int) -> dict[str, Any]:
        """Tokens as a product takes them."""
        if self.tokens == "bf16":
            return {"a": x}
        a = self.gpu.empty((rows, -(-columns // 64), 64), "e4m3")
        if self.tokens == "fp8b128":
            a_block_scale = self.gpu.empty((rows, -(-columns // 128)), "f32")
            zoo.launch("quantize.fp8b128.rows", x=x, q=a, scales=a_block_scale, order="fragments")
            return {"a": a, "a_block_scale": self.given(a_block_scale)}
        a_scale = self.gpu.empty((rows,), "f32")
        zoo.launch("quantize.fp8token.rows", x=x, q=a, scales=a_scale, order="fragments")
        return {"a": a, "a_scale": a_scale}

    def given(self, scales: Any) -> Any:
        """What a product is told of scales for 1 x 128."""
        return scales

    def routed(self, chosen: np.ndarray, experts: int) -> Routed:
        order = np.argsort(chosen.reshape(-1), kind="stable")
        ends = np.cumsum(np.bincount(chosen.reshape(-1), minlength=experts))
        index = self.gpu.array((order // chosen.shape[1]).astype(np.int32))
        return Routed(order, index, self.gpu.array(ends.astype(np.int32)))

    def product(self, grouping: str, ending: str, matrices: Matrices) -> str:
        if self.lying == "stored":
            ending = f"{ending}_stored" if ending else ".stored"
        return f"gemm.{self.format}_{matrices.format}.{grouping}{ending}"

    def __call__(
        self, x: np.ndarray, chosen: np.ndarray, shares: np.ndarray, first: Matrices, second: Matrices, **model: Any
    ) -> np.ndarray:
        (tokens, hidden), rows, width = x.shape, chosen.size, first.q.shape[1] // 2
        routed = self.routed(chosen, len(first.q))
        given = {
            "index": routed.index,
            "offsets": routed.offsets,
            "gates": first.gates,
            **self.quantised(self.gpu.array(x), tokens, hidden),
            **self.weights(first),
        }
        if self.between == "fp8b128":
            q, scales = self.gpu.empty((rows, -(-width // 64), 64), "e4m3"), self.gpu.empty((rows, -(-width // 128)), "f32")
            name = self.product("m_grouped_gather", ".swiglu_fp8b128", first)
            columns = {} if self.lying == "stored" else {"columns": width}
            zoo.launch(name, **given, q=q, scales=scales, **columns, order="fragments", **model)
            h = {"a": q, "a_block_scale": self.given(scales)}
        else:
            d = self.gpu.empty((rows, width), "bf16")
            zoo.launch(self.product("m_grouped_gather", ".swiglu", first), **given, d=d, **model)
            h = self.quantised(d, rows, width)
        y = self.gpu.empty((rows, second.q.shape[1]), "bf16")
        zoo.launch(self.product("m_grouped_contiguous", "", second), **h, offsets=routed.offsets, d=y, **self.weights(second))
        return routed.combined(y, shares)


class BlockLate(Layer):
    """Each 128 of K is multiplied by the scale of the 128 before."""

    def given(self, scales: Any) -> Any:
        assert scales.shape[1] > 1
        return self.gpu.array(np.roll(scales.numpy(), 1, axis=1))


OF_BF16 = DELTA / 16  # what DELTA is of e4m3


def error(layer: Layer, name: str, sizes: Sizes, mistake: Mistake = none) -> float:
    """How far a layer is from the published formula in float64, over what its roundings predict: of FP8 tokens each number's, followed through
    sums, limits and the activation's derivatives; of bf16 those of h and of y.

    With biases in the checkpoint's order and, of ModelOpt, gates and ups that are scaled apart; limits cut.
    """
    kind, random, experts = KINDS[name], np.random.default_rng(9), sizes.experts
    tensors = {key: array for key, (_, array) in kind.make(random, sizes).items()}
    first, second = READERS[name](tensors, kind.prefix, experts)
    if name == "ModelOpt":
        for expert in range(experts):
            tensors[f"{kind.prefix}{expert}.up_proj.weight_scale_2"] *= np.float32(2.5)
        first = replace(first, alpha=np.stack((first.alpha, first.alpha * np.float32(2.5)), axis=1))
    elif first.alpha is not None:
        first = replace(first, alpha=first.alpha[:, None])
    x = (0.5 * random.standard_normal((11, sizes.hidden))).astype(ml_dtypes.bfloat16)
    chosen = np.argsort(random.random((11, experts)), axis=1)[:, :2]
    chosen[chosen == 1] = 2  # an expert without a token; some tokens go to one expert twice
    shares, limit = random.random((11, 2)), min(kind.limit, 1.5)
    found = layer(x, chosen, shares, *mistake(first, second), activation=kind.activation, **({"limit": limit} if limit else {}))

    numbers, expected, cut = kind.numbers(tensors, experts), np.zeros(found.shape), 0
    variance = 0.0  # of y's elements, all added up, if every number of tokens and weights were off by its rounding's root mean square
    rounding = DELTA**2 + (RHO if first.format == "nvfp4" else 0) ** 2
    for token, of_token in enumerate(chosen):
        x_token = x[token].astype(np.float64)
        for expert, share in zip(of_token, shares[token], strict=True):
            gate, up = (matrix[expert] @ x_token for matrix in (numbers.gate, numbers.up))
            of_gate, of_up = (matrix[expert] ** 2 @ x_token**2 * rounding for matrix in (numbers.gate, numbers.up))
            gate, up = gate + numbers.gate_bias[expert], up + numbers.up_bias[expert]
            if limit:
                cut += int((gate > limit).sum() + (abs(up) > limit).sum())
                of_gate, of_up = np.where(gate > limit, 0, of_gate), np.where(abs(up) > limit, 0, of_up)
                gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
            slope, added = (1.702, 1) if kind.activation == "gpt_oss" else (1, 0)
            sigmoid = 1 / (1 + np.exp(-slope * gate))
            h = gate * sigmoid * (up + added)
            by_gate, by_up = sigmoid * (1 + slope * gate * (1 - sigmoid)) * (up + added), gate * sigmoid  # derivatives
            of_h = by_gate**2 * of_gate + by_up**2 * of_up + h**2 * rounding
            of_all = shares[token][of_token == expert].sum()  # a token that goes to an expert twice is off by the same both times
            variance += share * of_all * float((numbers.down[expert] ** 2 @ of_h).sum())
            expected[token] += share * (numbers.down[expert] @ h + numbers.down_bias[expert])
    assert not limit or cut > 20
    off = np.linalg.norm(found - expected)
    if layer.tokens == "bf16":
        return float(off / np.linalg.norm(expected) / (2 * OF_BF16**2) ** 0.5)  # of h and of y
    return float(off / variance**0.5)
