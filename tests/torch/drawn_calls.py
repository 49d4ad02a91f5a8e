"""One call of every kernel from its entry in the manifest alone: even sizes, drawn numbers, groups of equal parts."""

from __future__ import annotations

import math
from typing import Any

import numpy
import torch

from zoo.contract.dtypes import DTYPES
from zoo.contract.manifest import Kernel
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.contract.shapes import lies_by_columns, sizes
from zoo.reference.four_bit_weights import MXFP4_BLOCK, NVFP4_BLOCK
from zoo.reference.fragment_words import CODE_BYTES, TOKENS
from zoo.reference.fragments import chunk_shape

SIZES = {
    "M": 128,
    "N": 256,
    "K": 256,
    "UNITS": 256,
    "R": 128,
    "C": 256,
    "KB": 256,
    "K_CHUNKS": 4,
    "TILES_OF_B": 4,
    "G": 2,
    "E": 2,
    "T": 1,
    "top_k": 2,
    "S": 1,
    "ALPHAS": 1,
    "I": 128,
    "P": 3,
    "CODES": 128,
}
CHUNKS = [chunk_shape(block, tokens, gates) for block in (NVFP4_BLOCK, MXFP4_BLOCK) for tokens in TOKENS for gates in ("halves", "plain")]


def drawn_call(kernel: Kernel, device: str, **chosen: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Inputs, and the sizes and numbers that no input determines."""
    tokens = 128 if "m_grouped_gather" in kernel.name else 64 if kernel.fields["op"] == "experts" else 1
    values: dict[str, Any] = {**SIZES, "T": tokens, **chosen}
    random = numpy.random.default_rng(19)
    for name, option in kernel.options.items():
        values |= {f"{name}.{one}": int(one == option.default) for one in option.values}
    values |= {one.name: one.default for one in kernel.arguments.values() if one.kind == "scalar" and isinstance(one.default, int)}
    arrays = [one for one in kernel.arguments.values() if one.kind == "array"]
    for one in arrays:
        values |= {f"{one.name}.{dtype}": int(dtype == one.dtypes[0]) for dtype in one.dtypes}
        values |= {f"{one.name}.present": int(not one.optional), f"{one.name}.itemsize": DTYPES[one.dtypes[0]].bytes}
    derived = dict(kernel.derived)
    values = {name: value for name, value in values.items() if name not in derived}

    class Known(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            return derived[name].evaluate(self)

    known = Known(values)
    inputs = {}
    for one in arrays:
        if one.access == "read" and (not one.optional or one.name in ("offsets", "weights", "d")):  # the last two for optional outputs
            form = next(form for form in one.forms if form.when.evaluate(known))
            shape = tuple(expression.evaluate(known) for expression in form.shape)
            made = _tensor(one.name, one.dtypes[0], shape, known, kernel, random).to(device)
            inputs[one.name] = made.mT.contiguous().mT if lies_by_columns(form) else made
    numbers = {one.name: 0.5 for one in kernel.arguments.values() if one.kind == "scalar" and one.default is None}
    return inputs, {symbol: values[symbol] for symbol in sizes(kernel)} | numbers


def packed_weights(kernel: Kernel) -> list[str]:
    """The inputs that are 4-bit weights in chunks."""
    arrays = [one for one in kernel.arguments.values() if one.kind == "array" and one.access == "read"]
    return [one.name for one in arrays if _chunk(tuple(extent.text for extent in one.forms[0].shape))]


def _chunk(shape: tuple[object, ...]) -> tuple[int, ...] | None:
    """The extents of a chunk that a shape ends in."""
    return next((chunk for chunk in CHUNKS if tuple(map(str, shape[-len(chunk) :])) == tuple(map(str, chunk))), None)


def _tensor(name: str, dtype: str, shape: tuple[int, ...], known: Any, kernel: Kernel, random: numpy.random.Generator) -> torch.Tensor:
    if dtype == "i32" and kernel.fields["op"] == "experts":
        choices = random.permutation(math.prod(shape)).reshape(shape)
        return torch.tensor(choices if name == "rows" else choices % known["E"], dtype=torch.int32)
    if dtype == "i32":
        columns = "k_grouped" in kernel.name
        extent = (known["C"] * 32 if kernel.name.startswith("scales") else known["K"]) if columns else known["M"]
        numbers = {
            "offsets": [extent * (group + 1) // shape[0] for group in range(shape[0])],
            "rows": [known["R"]] * shape[0],
            "index": list(range(shape[0])),
        }
        return torch.tensor(numbers[name], dtype=torch.int32)
    if dtype == "e2m1x2" or dtype == "u8":
        bits = random.integers(0, 256, shape, dtype=numpy.uint8) & 0xBF  # no NaN of any format, which opcheck of torch 2.6 cannot compare
        if name in packed_weights(kernel) and (chunk := _chunk(shape)):
            # A packer writes scale bytes up to 127, NaN. A product looks them up in a table of 128 entries in shared memory: what it finds for
            # a larger one, barriers among it, is another thing in each run.
            chunks = bits.reshape(-1, math.prod(chunk))
            chunks[:, CODE_BYTES:] = random.integers(110, 127, chunks[:, CODE_BYTES:].shape, dtype=numpy.uint8)
    elif dtype == "ue8m0":
        bits = random.integers(120, 134, shape, dtype=numpy.uint8)
    else:
        numbers = random.standard_normal(shape) if dtype != "e4m3" or "scale" not in name else random.uniform(0.5, 2, shape)
        cast = (abs(numbers) + 0.1 if "scale" in name else numbers).astype(numpy_dtype(dtype))
        bits = cast.view({1: numpy.uint8, 2: numpy.int16, 4: numpy.int32}[cast.itemsize])
    return torch.from_numpy(bits).view(getattr(torch, DTYPES[dtype].torch, torch.uint8))
