"""The rule of `quantize.fp8token.*`: a scale for each row."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from zoo.contract.manifest import Kernel
from zoo.reference.groups import gather
from zoo.reference.kernels.call import Call
from zoo.reference.token_rows import GatedRows, quantize_token_rows


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    return _rows


def _rows(call: Call) -> None:
    x, index = call.arrays["x"], call.arrays.get("index")
    x = x if index is None else gather(x, index)
    if "gates" in call.settings:
        gates, activation, limit = (call.settings[name] for name in ("gates", "activation", "limit"))
        of = GatedRows(gates, activation, np.float32(limit), call.arrays.get("offsets"), call.arrays.get("alpha"))
        x = of.h(x.reshape(len(x), math.prod(x.shape[1:])))
    result = quantize_token_rows(x, call.settings["order"])
    call.put("q", result.q)
    call.put("scales", result.scales)
