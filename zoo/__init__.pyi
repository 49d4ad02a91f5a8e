# Written by tools/generate_stubs.py from what zoo exports and from cubins/manifest.json. Do not edit.
"""zoo: block-scaled low-precision GPU kernels, compiled ahead of time, started by name."""

from typing import Any, Literal, Protocol, TypeAlias, overload

from zoo import emulator as emulator
from zoo.catalog import Zoo as Zoo
from zoo.contract.manifest import Kernel
from zoo.emulator.plan import EmulatedPlan
from zoo.errors import ArchitectureError as ArchitectureError
from zoo.errors import ArgumentError as ArgumentError
from zoo.errors import CaptureError as CaptureError
from zoo.errors import ConstraintError as ConstraintError
from zoo.errors import DriverError as DriverError
from zoo.errors import EmulationError as EmulationError
from zoo.errors import ExpressionError as ExpressionError
from zoo.errors import ForkError as ForkError
from zoo.errors import IntegrityError as IntegrityError
from zoo.errors import ManifestError as ManifestError
from zoo.errors import StreamError as StreamError
from zoo.errors import UnknownKernelError as UnknownKernelError
from zoo.errors import VariantError as VariantError
from zoo.errors import ZooError as ZooError
from zoo.runtime.arrays import Pointer as Pointer
from zoo.runtime.arrays import ptr as ptr
from zoo.runtime.arrays import view as view
from zoo.runtime.device_array import DeviceArray as DeviceArray
from zoo.runtime.device_array import empty as empty
from zoo.runtime.device_array import to_device as to_device
from zoo.runtime.plan import Plan as Plan
from zoo.runtime.streams import Stream as Stream
from zoo.runtime.streams import stream as stream
from zoo.shipped.packaged import load as load

__version__: str

class _Array(Protocol):
    """An array of any framework, a DeviceArray, a Pointer, or whatever else zoo reads; the call says what it cannot read."""

_KernelName: TypeAlias = Literal[
    "dequantize.fp8b128.rows",
    "dequantize.fp8b128.squares",
    "dequantize.mxfp4.rows",
    "dequantize.mxfp4.squares",
    "dequantize.mxfp8.rows",
    "dequantize.mxfp8.squares",
    "dequantize.nvfp4.rows",
    "dequantize.nvfp4.squares",
    "gemm.fp8b128.dense",
    "gemm.fp8b128.dense.swiglu",
    "gemm.fp8b128.dense.swiglu_fp8b128",
    "gemm.fp8b128.k_grouped",
    "gemm.fp8b128.m_grouped_contiguous",
    "gemm.fp8b128.m_grouped_contiguous.swiglu",
    "gemm.fp8b128.m_grouped_contiguous.swiglu_fp8b128",
    "gemm.fp8b128.m_grouped_gather",
    "gemm.fp8b128.m_grouped_masked",
    "gemm.fp8b128.m_grouped_masked.swiglu",
    "gemm.fp8b128.m_grouped_masked.swiglu_fp8b128",
    "quantize.amax",
    "quantize.amax.m_grouped_contiguous",
    "quantize.fp8b128.both",
    "quantize.fp8b128.cols",
    "quantize.fp8b128.cols.experts",
    "quantize.fp8b128.cols.m_grouped_contiguous",
    "quantize.fp8b128.cols.m_grouped_padded",
    "quantize.fp8b128.rows",
    "quantize.fp8b128.rows.m_grouped_contiguous",
    "quantize.fp8b128.rows.m_grouped_padded",
    "quantize.fp8b128.rows.swiglu",
    "quantize.fp8b128.squares",
    "quantize.mxfp4.both",
    "quantize.mxfp4.cols",
    "quantize.mxfp4.cols.experts",
    "quantize.mxfp4.cols.m_grouped_contiguous",
    "quantize.mxfp4.cols.m_grouped_padded",
    "quantize.mxfp4.rows",
    "quantize.mxfp4.rows.m_grouped_contiguous",
    "quantize.mxfp4.rows.m_grouped_padded",
    "quantize.mxfp4.squares",
    "quantize.mxfp8.both",
    "quantize.mxfp8.cols",
    "quantize.mxfp8.cols.experts",
    "quantize.mxfp8.cols.m_grouped_contiguous",
    "quantize.mxfp8.cols.m_grouped_padded",
    "quantize.mxfp8.rows",
    "quantize.mxfp8.rows.m_grouped_contiguous",
    "quantize.mxfp8.rows.m_grouped_padded",
    "quantize.mxfp8.rows.swiglu",
    "quantize.mxfp8.squares",
    "quantize.nvfp4.both",
    "quantize.nvfp4.cols",
    "quantize.nvfp4.cols.experts",
    "quantize.nvfp4.cols.m_grouped_contiguous",
    "quantize.nvfp4.cols.m_grouped_padded",
    "quantize.nvfp4.rows",
    "quantize.nvfp4.rows.amax",
    "quantize.nvfp4.rows.m_grouped_contiguous",
    "quantize.nvfp4.rows.m_grouped_padded",
    "quantize.nvfp4.rows.swiglu",
    "quantize.nvfp4.squares",
    "scales.blocked",
    "scales.blocked.k_grouped",
    "scales.blocked.m_grouped_contiguous",
    "scales.mn_major",
    "scales.ue8m0_words",
    "scales.unblocked",
    "scales.unblocked.k_grouped",
    "scales.unblocked.m_grouped_contiguous",
]

def kernel(name: _KernelName | str) -> Kernel: ...

@overload
def launch(
    name: Literal["dequantize.fp8b128.rows"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    q: _Array,
    scales: _Array,
    out: _Array,
    layout: Literal["plain", "mn_major"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["dequantize.fp8b128.squares"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    q: _Array,
    scales: _Array,
    out: _Array,
) -> None: ...
@overload
def launch(
    name: Literal[
        "dequantize.mxfp4.rows",
        "dequantize.mxfp4.squares",
        "dequantize.mxfp8.rows",
        "dequantize.mxfp8.squares",
    ],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    q: _Array,
    scales: _Array,
    out: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["dequantize.nvfp4.rows", "dequantize.nvfp4.squares"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    q: _Array,
    scales: _Array,
    tensor_scale: _Array,
    out: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["gemm.fp8b128.dense"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    d: _Array,
    c: _Array | None = None,
    row_scale: _Array | None = None,
    batch_invariant: Literal["no", "yes"] = "no",
    b_constant: Literal["no", "yes"] = "no",
) -> None: ...
@overload
def launch(
    name: Literal["gemm.fp8b128.dense.swiglu"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    row_scale: _Array | None = None,
    d: _Array,
    gates: Literal["halves", "interleaved"] = "halves",
    batch_invariant: Literal["no", "yes"] = "no",
) -> None: ...
@overload
def launch(
    name: Literal["gemm.fp8b128.dense.swiglu_fp8b128"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    row_scale: _Array | None = None,
    q: _Array,
    scales: _Array,
    gates: Literal["halves", "interleaved"] = "halves",
    batch_invariant: Literal["no", "yes"] = "no",
    scaling: Literal["exact", "pow2"] = "exact",
) -> None: ...
@overload
def launch(
    name: Literal["gemm.fp8b128.k_grouped"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    offsets: _Array,
    d: _Array,
    accumulate: Literal["no", "yes"] = "no",
) -> None: ...
@overload
def launch(
    name: Literal["gemm.fp8b128.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    offsets: _Array | None = None,
    m_indices: _Array | None = None,
    d: _Array,
    row_scale: _Array | None = None,
) -> None: ...
@overload
def launch(
    name: Literal["gemm.fp8b128.m_grouped_contiguous.swiglu"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    offsets: _Array | None = None,
    m_indices: _Array | None = None,
    row_scale: _Array | None = None,
    d: _Array,
    gates: Literal["halves", "interleaved"] = "halves",
) -> None: ...
@overload
def launch(
    name: Literal["gemm.fp8b128.m_grouped_contiguous.swiglu_fp8b128"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    offsets: _Array | None = None,
    m_indices: _Array | None = None,
    row_scale: _Array | None = None,
    q: _Array,
    scales: _Array,
    gates: Literal["halves", "interleaved"] = "halves",
    scaling: Literal["exact", "pow2"] = "exact",
) -> None: ...
@overload
def launch(
    name: Literal["gemm.fp8b128.m_grouped_gather"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    index: _Array,
    offsets: _Array,
    workspace: _Array | None = None,
    d: _Array,
    row_scale: _Array | None = None,
) -> None: ...
@overload
def launch(
    name: Literal["gemm.fp8b128.m_grouped_masked"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    rows: _Array,
    d: _Array,
    row_scale: _Array | None = None,
    expected_rows: int = 0,
) -> None: ...
@overload
def launch(
    name: Literal["gemm.fp8b128.m_grouped_masked.swiglu"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    rows: _Array,
    row_scale: _Array | None = None,
    d: _Array,
    expected_rows: int = 0,
    gates: Literal["halves", "interleaved"] = "halves",
) -> None: ...
@overload
def launch(
    name: Literal["gemm.fp8b128.m_grouped_masked.swiglu_fp8b128"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    rows: _Array,
    row_scale: _Array | None = None,
    q: _Array,
    scales: _Array,
    expected_rows: int = 0,
    gates: Literal["halves", "interleaved"] = "halves",
    scaling: Literal["exact", "pow2"] = "exact",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.amax"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    amax: _Array,
    tensor_scale: _Array | None = None,
    workspace: _Array,
) -> None: ...
@overload
def launch(
    name: Literal["quantize.amax.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    amax: _Array,
    tensor_scale: _Array | None = None,
    workspace: _Array,
) -> None: ...
@overload
def launch(
    name: Literal["quantize.fp8b128.both"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q_rows: _Array,
    scales_rows: _Array,
    q_cols: _Array,
    scales_cols: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.fp8b128.cols", "quantize.fp8b128.cols.experts", "quantize.fp8b128.rows"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q: _Array,
    scales: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.fp8b128.cols.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.fp8b128.cols.m_grouped_padded"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    padded_starts: _Array,
    padded_ends: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.fp8b128.rows.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    index: _Array | None = None,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.fp8b128.rows.m_grouped_padded"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    index: _Array | None = None,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    padded_starts: _Array,
    padded_ends: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.fp8b128.rows.swiglu"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q: _Array,
    scales: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
    gates: Literal["halves", "interleaved"] = "halves",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.fp8b128.squares"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q: _Array,
    scales: _Array,
    q_cols: _Array | None = None,
    scales_cols: _Array | None = None,
    scaling: Literal["exact", "pow2"] = "exact",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.mxfp4.both", "quantize.mxfp8.both"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q_rows: _Array,
    scales_rows: _Array,
    q_cols: _Array,
    scales_cols: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal[
        "quantize.mxfp4.cols",
        "quantize.mxfp4.cols.experts",
        "quantize.mxfp4.rows",
        "quantize.mxfp8.cols",
        "quantize.mxfp8.cols.experts",
        "quantize.mxfp8.rows",
    ],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q: _Array,
    scales: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.mxfp4.cols.m_grouped_contiguous", "quantize.mxfp8.cols.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.mxfp4.cols.m_grouped_padded", "quantize.mxfp8.cols.m_grouped_padded"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    padded_starts: _Array,
    padded_ends: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.mxfp4.rows.m_grouped_contiguous", "quantize.mxfp8.rows.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    index: _Array | None = None,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.mxfp4.rows.m_grouped_padded", "quantize.mxfp8.rows.m_grouped_padded"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    index: _Array | None = None,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    padded_starts: _Array,
    padded_ends: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["blocked"] = "blocked",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.mxfp4.squares", "quantize.mxfp8.squares"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q: _Array,
    scales: _Array,
    q_cols: _Array | None = None,
    scales_cols: _Array | None = None,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.mxfp8.rows.swiglu"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q: _Array,
    scales: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
    gates: Literal["halves", "interleaved"] = "halves",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.nvfp4.both"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    tensor_scale: _Array,
    q_rows: _Array,
    scales_rows: _Array,
    q_cols: _Array,
    scales_cols: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.nvfp4.cols", "quantize.nvfp4.cols.experts", "quantize.nvfp4.rows"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.nvfp4.cols.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.nvfp4.cols.m_grouped_padded"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    padded_starts: _Array,
    padded_ends: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.nvfp4.rows.amax"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    amax_before: _Array,
    q: _Array,
    scales: _Array,
    amax: _Array,
    tensor_scale: _Array | None = None,
    workspace: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.nvfp4.rows.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    index: _Array | None = None,
    offsets: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.nvfp4.rows.m_grouped_padded"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    index: _Array | None = None,
    offsets: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    padded_starts: _Array,
    padded_ends: _Array,
    layout: Literal["blocked"] = "blocked",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.nvfp4.rows.swiglu"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    layout: Literal["plain", "blocked"] = "plain",
    gates: Literal["halves", "interleaved"] = "halves",
) -> None: ...
@overload
def launch(
    name: Literal["quantize.nvfp4.squares"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    q_cols: _Array | None = None,
    scales_cols: _Array | None = None,
    layout: Literal["plain", "blocked"] = "plain",
) -> None: ...
@overload
def launch(
    name: Literal["scales.blocked"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    scales: _Array,
    blocked: _Array,
) -> None: ...
@overload
def launch(
    name: Literal["scales.blocked.k_grouped"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    scales: _Array,
    offsets: _Array,
    blocked: _Array,
    block: int = 32,
) -> None: ...
@overload
def launch(
    name: Literal["scales.blocked.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    scales: _Array,
    offsets: _Array,
    blocked: _Array,
) -> None: ...
@overload
def launch(
    name: Literal["scales.mn_major"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    scales: _Array,
    transposed: _Array,
) -> None: ...
@overload
def launch(
    name: Literal["scales.ue8m0_words"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    scales: _Array,
    words: _Array,
) -> None: ...
@overload
def launch(
    name: Literal["scales.unblocked"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    blocked: _Array,
    scales: _Array,
) -> None: ...
@overload
def launch(
    name: Literal["scales.unblocked.k_grouped"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    blocked: _Array,
    offsets: _Array,
    scales: _Array,
    block: int = 32,
) -> None: ...
@overload
def launch(
    name: Literal["scales.unblocked.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    blocked: _Array,
    offsets: _Array,
    scales: _Array,
) -> None: ...
@overload
def launch(
    name: str,
    /,
    *,
    name_known_at_run_time: object,
    stream: Any = None,
    variant: Any = None,
    **arguments: Any,
) -> None: ...

@overload
def prepare(
    name: Literal["dequantize.fp8b128.rows"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    q: _Array,
    scales: _Array,
    out: _Array,
    layout: Literal["plain", "mn_major"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["dequantize.fp8b128.squares"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    q: _Array,
    scales: _Array,
    out: _Array,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal[
        "dequantize.mxfp4.rows",
        "dequantize.mxfp4.squares",
        "dequantize.mxfp8.rows",
        "dequantize.mxfp8.squares",
    ],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    q: _Array,
    scales: _Array,
    out: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["dequantize.nvfp4.rows", "dequantize.nvfp4.squares"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    q: _Array,
    scales: _Array,
    tensor_scale: _Array,
    out: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["gemm.fp8b128.dense"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    d: _Array,
    c: _Array | None = None,
    row_scale: _Array | None = None,
    batch_invariant: Literal["no", "yes"] = "no",
    b_constant: Literal["no", "yes"] = "no",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["gemm.fp8b128.dense.swiglu"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    row_scale: _Array | None = None,
    d: _Array,
    gates: Literal["halves", "interleaved"] = "halves",
    batch_invariant: Literal["no", "yes"] = "no",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["gemm.fp8b128.dense.swiglu_fp8b128"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    row_scale: _Array | None = None,
    q: _Array,
    scales: _Array,
    gates: Literal["halves", "interleaved"] = "halves",
    batch_invariant: Literal["no", "yes"] = "no",
    scaling: Literal["exact", "pow2"] = "exact",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["gemm.fp8b128.k_grouped"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    offsets: _Array,
    d: _Array,
    accumulate: Literal["no", "yes"] = "no",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["gemm.fp8b128.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    offsets: _Array | None = None,
    m_indices: _Array | None = None,
    d: _Array,
    row_scale: _Array | None = None,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["gemm.fp8b128.m_grouped_contiguous.swiglu"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    offsets: _Array | None = None,
    m_indices: _Array | None = None,
    row_scale: _Array | None = None,
    d: _Array,
    gates: Literal["halves", "interleaved"] = "halves",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["gemm.fp8b128.m_grouped_contiguous.swiglu_fp8b128"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    offsets: _Array | None = None,
    m_indices: _Array | None = None,
    row_scale: _Array | None = None,
    q: _Array,
    scales: _Array,
    gates: Literal["halves", "interleaved"] = "halves",
    scaling: Literal["exact", "pow2"] = "exact",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["gemm.fp8b128.m_grouped_gather"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    index: _Array,
    offsets: _Array,
    workspace: _Array | None = None,
    d: _Array,
    row_scale: _Array | None = None,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["gemm.fp8b128.m_grouped_masked"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    rows: _Array,
    d: _Array,
    row_scale: _Array | None = None,
    expected_rows: int = 0,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["gemm.fp8b128.m_grouped_masked.swiglu"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    rows: _Array,
    row_scale: _Array | None = None,
    d: _Array,
    expected_rows: int = 0,
    gates: Literal["halves", "interleaved"] = "halves",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["gemm.fp8b128.m_grouped_masked.swiglu_fp8b128"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    a: _Array,
    a_scale: _Array,
    b: _Array,
    b_scale: _Array,
    rows: _Array,
    row_scale: _Array | None = None,
    q: _Array,
    scales: _Array,
    expected_rows: int = 0,
    gates: Literal["halves", "interleaved"] = "halves",
    scaling: Literal["exact", "pow2"] = "exact",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.amax"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    amax: _Array,
    tensor_scale: _Array | None = None,
    workspace: _Array,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.amax.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    amax: _Array,
    tensor_scale: _Array | None = None,
    workspace: _Array,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.fp8b128.both"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q_rows: _Array,
    scales_rows: _Array,
    q_cols: _Array,
    scales_cols: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.fp8b128.cols", "quantize.fp8b128.cols.experts", "quantize.fp8b128.rows"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q: _Array,
    scales: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.fp8b128.cols.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.fp8b128.cols.m_grouped_padded"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    padded_starts: _Array,
    padded_ends: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.fp8b128.rows.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    index: _Array | None = None,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.fp8b128.rows.m_grouped_padded"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    index: _Array | None = None,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    padded_starts: _Array,
    padded_ends: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.fp8b128.rows.swiglu"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q: _Array,
    scales: _Array,
    scaling: Literal["exact", "pow2"] = "exact",
    layout: Literal["plain", "mn_major"] = "plain",
    gates: Literal["halves", "interleaved"] = "halves",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.fp8b128.squares"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q: _Array,
    scales: _Array,
    q_cols: _Array | None = None,
    scales_cols: _Array | None = None,
    scaling: Literal["exact", "pow2"] = "exact",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.mxfp4.both", "quantize.mxfp8.both"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q_rows: _Array,
    scales_rows: _Array,
    q_cols: _Array,
    scales_cols: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal[
        "quantize.mxfp4.cols",
        "quantize.mxfp4.cols.experts",
        "quantize.mxfp4.rows",
        "quantize.mxfp8.cols",
        "quantize.mxfp8.cols.experts",
        "quantize.mxfp8.rows",
    ],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q: _Array,
    scales: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.mxfp4.cols.m_grouped_contiguous", "quantize.mxfp8.cols.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.mxfp4.cols.m_grouped_padded", "quantize.mxfp8.cols.m_grouped_padded"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    padded_starts: _Array,
    padded_ends: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.mxfp4.rows.m_grouped_contiguous", "quantize.mxfp8.rows.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    index: _Array | None = None,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.mxfp4.rows.m_grouped_padded", "quantize.mxfp8.rows.m_grouped_padded"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    index: _Array | None = None,
    offsets: _Array,
    q: _Array,
    scales: _Array,
    padded_starts: _Array,
    padded_ends: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["blocked"] = "blocked",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.mxfp4.squares", "quantize.mxfp8.squares"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q: _Array,
    scales: _Array,
    q_cols: _Array | None = None,
    scales_cols: _Array | None = None,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.mxfp8.rows.swiglu"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    q: _Array,
    scales: _Array,
    rounding: Literal["floor", "rceil"] = "floor",
    layout: Literal["plain", "blocked"] = "plain",
    gates: Literal["halves", "interleaved"] = "halves",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.nvfp4.both"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    tensor_scale: _Array,
    q_rows: _Array,
    scales_rows: _Array,
    q_cols: _Array,
    scales_cols: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.nvfp4.cols", "quantize.nvfp4.cols.experts", "quantize.nvfp4.rows"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.nvfp4.cols.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.nvfp4.cols.m_grouped_padded"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    offsets: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    padded_starts: _Array,
    padded_ends: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.nvfp4.rows.amax"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    amax_before: _Array,
    q: _Array,
    scales: _Array,
    amax: _Array,
    tensor_scale: _Array | None = None,
    workspace: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.nvfp4.rows.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    index: _Array | None = None,
    offsets: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.nvfp4.rows.m_grouped_padded"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    index: _Array | None = None,
    offsets: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    padded_starts: _Array,
    padded_ends: _Array,
    layout: Literal["blocked"] = "blocked",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.nvfp4.rows.swiglu"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    layout: Literal["plain", "blocked"] = "plain",
    gates: Literal["halves", "interleaved"] = "halves",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["quantize.nvfp4.squares"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    x: _Array,
    tensor_scale: _Array,
    q: _Array,
    scales: _Array,
    q_cols: _Array | None = None,
    scales_cols: _Array | None = None,
    layout: Literal["plain", "blocked"] = "plain",
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["scales.blocked"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    scales: _Array,
    blocked: _Array,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["scales.blocked.k_grouped"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    scales: _Array,
    offsets: _Array,
    blocked: _Array,
    block: int = 32,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["scales.blocked.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    scales: _Array,
    offsets: _Array,
    blocked: _Array,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["scales.mn_major"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    scales: _Array,
    transposed: _Array,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["scales.ue8m0_words"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    scales: _Array,
    words: _Array,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["scales.unblocked"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    blocked: _Array,
    scales: _Array,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["scales.unblocked.k_grouped"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    blocked: _Array,
    offsets: _Array,
    scales: _Array,
    block: int = 32,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: Literal["scales.unblocked.m_grouped_contiguous"],
    /,
    *,
    stream: object = None,
    variant: str | None = None,
    blocked: _Array,
    offsets: _Array,
    scales: _Array,
) -> Plan | EmulatedPlan: ...
@overload
def prepare(
    name: str,
    /,
    *,
    name_known_at_run_time: object,
    stream: Any = None,
    variant: Any = None,
    **arguments: Any,
) -> Plan | EmulatedPlan: ...

def find(
    pattern: str = "*",
    *,
    arch: Literal["sm_90a", "sm_100f"] | None = ...,
    op: Literal["dequantize", "gemm", "quantize", "scales"] | None = ...,
    formats: Literal["fp8b128", "mxfp4", "mxfp8", "nvfp4"] | None = ...,
    direction: Literal["rows", "squares", "both", "cols"] | None = ...,
    grouping: Literal[
        "dense",
        "k_grouped",
        "m_grouped_contiguous",
        "m_grouped_gather",
        "m_grouped_masked",
        "experts",
        "m_grouped_padded",
    ] | None = ...,
    extra: Literal["swiglu", "swiglu_fp8b128", "amax"] | None = ...,
    arrangement: Literal["blocked", "mn_major", "ue8m0_words", "unblocked"] | None = ...,
) -> list[Kernel]: ...
