"""The sizes a kernel is timed at when nobody names any: those of models that people run."""

from __future__ import annotations

from zoo.benchmark import routing
from zoo.benchmark.arguments import size_symbols
from zoo.contract.manifest import Kernel
from zoo.errors import ArgumentError

_FEW_TOKENS = ((128, 2048), (128, 7168), (512, 2048), (512, 7168), (2048, 2048), (2048, 7168))
_ACTIVATIONS = (*_FEW_TOKENS, (8192, 2048), (8192, 7168), (32768, 2048), (32768, 7168), (131072, 2048), (131072, 7168))
_WEIGHTS = ((1, 2048, 7168), (1, 8192, 8192), (8, 4096, 7168), (64, 2048, 7168))
_PACKED = ((32, 5760, 2880), (32, 2880, 2880), (8, 4096, 7168), (32, 7168, 2048))  # experts, rows, columns: gpt-oss, DeepSeek
_SCALES = ((8192, 224), (32768, 224), (131072, 64), (131072, 224), (524288, 64))  # one for every 32 elements
_COLUMN_SCALES = ((2048, 1280), (7168, 1280), (2048, 4352), (7168, 4352), (7168, 16640))  # of weight gradients

_DENSE = ((7168, 2048), (2048, 7168), (4096, 7168), (24576, 1536))  # N, K
_EXPERTS = ((4096, 2048), (6144, 7168))
_PRODUCTS = {
    "dense": [{"M": rows, "N": n, "K": k} for n, k in _DENSE for rows in (1, 16, 64, 128, 512, 4096)],
    "m_grouped_contiguous": [{"M": rows, "N": n, "K": k} for n, k in _EXPERTS for rows in (1024, 8192, 32768)],
    "m_grouped_gather": [{"T": rows // 8, "M": rows, "N": n, "K": k} for n, k in _EXPERTS for rows in (1024, 8192, 32768)],
    "m_grouped_masked": [{"G": 32, "R": rows, "N": n, "K": k} for n, k in _EXPERTS for rows in (20, 192)],
    "k_grouped": [{"M": m, "N": n, "K": 32768} for m, n in ((4096, 2048), (2048, 7168))],
}


def usual_shapes(kernel: Kernel) -> list[list[int]]:
    op, symbols = kernel.fields["op"], size_symbols(kernel)
    if op == "gemm":
        return [_of_a_product(kernel, symbols, shape) for shape in _PRODUCTS.get(kernel.fields["grouping"], [{}])]
    if op == "experts":
        return [[shape[symbol] for symbol in symbols] for shape in routing.SHAPES]
    if kernel.fields.get("arrangement") == "fragments":
        shapes = [{"G": experts, "R": rows, "K": columns} for experts, rows, columns in _PACKED]
    elif kernel.fields.get("direction") == "squares" or kernel.fields.get("grouping") == "experts":
        shapes = [{"E": experts, "M": rows, "N": rows, "R": rows, "K": columns, "C": columns} for experts, rows, columns in _WEIGHTS]
    else:
        along_columns = _COLUMN_SCALES if kernel.fields.get("grouping") == "k_grouped" else _SCALES
        pairs = along_columns if op == "scales" else _ACTIVATIONS
        if kernel.fields.get("formats") == "fp8token":  # which has a kernel of its own for long rows
            pairs = (*pairs, (8192, 16384))
        shapes = [{"M": rows, "R": rows, "K": columns, "C": columns, "P": 264} for rows, columns in pairs]  # P: partial sums
    return [_in_order(kernel, symbols, shape) for shape in shapes]


def _of_a_product(kernel: Kernel, symbols: tuple[str, ...], shape: dict[str, int]) -> list[int]:
    shape = shape | {"I": shape["N"] // 2} if "N" in shape else shape  # columns of h
    return _in_order(kernel, symbols, shape)


def _in_order(kernel: Kernel, symbols: tuple[str, ...], shape: dict[str, int]) -> list[int]:
    if not set(symbols) <= set(shape):
        raise ArgumentError(f"{kernel.name}: has no usual shapes; give --shape {','.join(symbols)}")
    return [shape[symbol] for symbol in symbols]
