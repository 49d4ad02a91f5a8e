"""An emulator of the PTX that nvcc makes of CUDA kernels for sm_90a, sm_100 and sm_120, in Python and numpy.

    module = zoo.emulator.Module(ptx_text)
    gpu = zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=1)
    a, d = gpu.alloc(array), gpu.alloc(nbytes)
    report = gpu.launch(module, "kernel", grid, block, params=[a, d, n])
    assert report.ok, report
    result = gpu.read(d, shape, dtype)

See docs/emulator.md.
"""

from .device import Device, Module, Report
from .errors import EmulatorError, ParseError, UnsupportedInstruction
from .findings import KINDS, SEVERITIES, Finding

__all__ = [
    "KINDS",
    "SEVERITIES",
    "Device",
    "EmulatorError",
    "Finding",
    "Module",
    "ParseError",
    "Report",
    "UnsupportedInstruction",
]
