"""The rule of `gemm.*`: which rows meet which weights, by the grouping, and what is made of their sums, by the formats and the epilogue.

A *piece* is what one group has: the place of its rows among those of the result, and its number. Without groups there is one piece.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from zoo.contract.manifest import Kernel
from zoo.errors import UnknownKernelError
from zoo.reference.kernels.call import Call

_RULES = {  # by the formats
    "fp8b128": "products_fp8b128",
    "mxfp8": "products_block_scaled",
    "mxfp4": "products_block_scaled",
    "nvfp4": "products_block_scaled",
    "mxfp8_mxfp4": "products_block_scaled",
    "fp8_nvfp4": "products_four_bit",
    "fp8_mxfp4": "products_four_bit",
    "bf16_nvfp4": "products_four_bit",
    "bf16_mxfp4": "products_four_bit",
}


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    module = _RULES.get(kernel.fields["formats"])
    if module is None:
        raise UnknownKernelError(
            f"{kernel.name}: zoo/reference/kernels/products.py has no rule for products of {kernel.fields['formats']}; "
            "add a module with one, and name it there"
        )
    found: Callable[[Kernel], Callable[[Call], None]] = importlib.import_module(f"zoo.reference.kernels.{module}").rule_of
    return found(kernel)
