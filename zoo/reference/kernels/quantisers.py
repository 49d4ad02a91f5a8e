"""The rule of `quantize.*`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from zoo.contract.manifest import Kernel
from zoo.reference.amax import group_amax, tensor_amax
from zoo.reference.block_formats import FORMATS, NAN, BlockFormat, RelativeE4m3, block_format, nvfp4_tensor_scale
from zoo.reference.fragments import permuted_columns
from zoo.reference.groups import gather, group_sizes, padded_bounds
from zoo.reference.kernels.call import Call
from zoo.reference.quantize import Quantized, quantize_cols, quantize_rows, quantize_squares_both
from zoo.reference.swiglu import swiglu
from zoo.reference.swiglu_backward import swiglu_backward


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    if "direction" not in kernel.fields:
        return _amax
    if kernel.fields["formats"] == "fp8token":
        from zoo.reference.kernels import token_quantisers

        return token_quantisers.rule_of(kernel)
    if kernel.fields.get("extra") == "amax":
        return _rows_with_amax
    if kernel.fields.get("extra") == "swiglu_backward":
        return _swiglu_backward
    return {"rows": _rows, "cols": _cols, "both": _both, "squares": _squares}[kernel.fields["direction"]]


def format_of(call: Call, elements: str) -> BlockFormat:
    """The format with what the call chooses; `elements` is the argument that holds them."""
    tensor_scale = call.arrays.get("tensor_scale")
    return chosen_format(call, call.kernel.fields["formats"], elements, tensor_scale)


def chosen_format(call: Call, name: str, elements: str, tensor_scale: np.ndarray | None) -> BlockFormat:
    rule = FORMATS[name].rule
    options = {option: call.settings[option] for option in rule.choices if option in call.settings}
    given = tensor_scale if rule is RelativeE4m3 else None
    return block_format(name, call.dtype(elements).removesuffix("x2"), tensor_scale=given, **options)


def put(call: Call, result: Quantized, elements: str, scales: str) -> None:
    """Blocked scales are one-dimensional in the reference, and have the shape that their argument has in the call."""
    call.put(elements, result.q)
    if scales in call.arrays:
        target = call.arrays[scales]
        call.put(scales, result.scales.reshape(target.shape) if call.settings.get("layout") == "blocked" else result.scales)


def _groups(call: Call) -> tuple[np.ndarray | None, bool]:
    return call.arrays.get("offsets"), call.kernel.fields.get("grouping") == "m_grouped_padded"


def _put_bounds(call: Call) -> None:
    if "padded_starts" in call.arrays:
        starts, ends = padded_bounds(call.arrays["offsets"])
        call.put("padded_starts", starts)
        call.put("padded_ends", ends)


def _taken(call: Call) -> np.ndarray:
    """The rows to quantise: through the index, if there is one. That of rows of nobody is not looked up."""
    x, index = call.arrays["x"], call.arrays.get("index")
    if index is None:
        return x
    used = group_sizes(call.arrays["offsets"], len(index)).sum()
    return gather(x, np.where(np.arange(len(index)) < used, index, -1).astype(np.int32))


def _rows(call: Call) -> None:
    x, (offsets, padded) = _taken(call), _groups(call)
    if call.kernel.fields.get("extra") == "swiglu":
        x = swiglu(call.gates_and_ups("x", 1), call.settings["gates"])
    result = quantize_rows(x, format_of(call, "q"), call.settings.get("layout", "plain"), offsets, padded)
    if call.settings.get("order") == "fragments":
        result = replace(result, q=permuted_columns(result.q))
    put(call, result, "q", "scales")
    _put_bounds(call)


def _cols(call: Call) -> None:
    offsets, padded = _groups(call)
    result = quantize_cols(call.arrays["x"], format_of(call, "q"), call.settings.get("layout", "plain"), offsets, padded)
    put(call, result, "q", "scales")
    _put_bounds(call)


def _both(call: Call) -> None:
    """Of groups, padding concerns columns only."""
    x, (offsets, padded), format, layout = _taken(call), _groups(call), format_of(call, "q_rows"), call.settings.get("layout", "plain")
    put(call, quantize_rows(x, format, layout, offsets), "q_rows", "scales_rows")
    put(call, quantize_cols(x, format, layout, offsets, padded), "q_cols", "scales_cols")
    _put_bounds(call)


def _swiglu_backward(call: Call) -> None:
    (offsets, padded), layout, format = _groups(call), call.settings["layout"], format_of(call, "q_rows")
    assert offsets is not None
    used = slice(int(group_sizes(offsets, len(call.arrays["d_act"])).sum()))
    weights = call.arrays.get("row_weights")
    chosen = (call.settings["gates"], call.settings["activation"], call.settings["limit"])
    h, d_act = call.gates_and_ups("h", 1)[used], call.arrays["d_act"][used]
    found = swiglu_backward(d_act, h, *chosen, None if weights is None else weights[used])
    put(call, quantize_rows(found.d_h, format, layout), "q_rows", "scales_rows")
    for name, values in (("cols", found.d_h), ("act", found.act)):
        every = np.zeros((len(call.arrays["d_act"]), values.shape[1]), values.dtype)  # padded results count rows of nobody, too
        every[used] = values
        put(call, quantize_cols(every, format, layout, offsets, padded), f"q_{name}", f"scales_{name}")
    call.put("dots", found.dots)
    _put_bounds(call)


def _squares(call: Call) -> None:
    rows, cols = quantize_squares_both(call.arrays["x"], format_of(call, "q"), call.settings.get("layout", "plain"))
    put(call, rows, "q", "scales")
    put(call, cols, "q_cols", "scales_cols")


def _rows_with_amax(call: Call) -> None:
    """Quantised under the amax of the step before; the new one is found beside it."""
    x, tensor_scale = call.arrays["x"], _scale_of(call.arrays["amax_before"])
    put(call, quantize_rows(x, chosen_format(call, "nvfp4", "q", tensor_scale), call.settings["layout"]), "q", "scales")
    call.put("amax", tensor_amax(x))
    call.put("tensor_scale", tensor_scale)


def _amax(call: Call) -> None:
    x, offsets = call.arrays["x"], call.arrays.get("offsets")
    found = tensor_amax(x) if offsets is None else group_amax(x, offsets)
    call.put("amax", found)
    call.put("tensor_scale", _scale_of(found))


def _scale_of(amax: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        scale = nvfp4_tensor_scale(amax)
    return np.where(np.isnan(scale), NAN, scale)
