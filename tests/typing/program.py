"""What a typed program of a user says; mypy refuses the lines that end in `# refused`, and no other."""

from typing import assert_type

import zoo
from zoo.emulator import Device, Report

x = zoo.empty((256, 256), "bf16")
q = zoo.empty((256, 256), "e4m3")
scales = zoo.empty((256, 8), "ue8m0")

zoo.launch("quantize.mxfp8.rows", x=x, q=q, scales=scales)
zoo.launch("quantize.mxfp8.rows", x=x, q=q, scales=scales, rounding="floor", layout="blocked", stream=0, variant="bf16")
zoo.launch("quantize.mxfp8.rows", x=zoo.ptr(4096, (256, 256), "bf16"), q=q, scales=scales, stream=zoo.stream())
zoo.launch("quantize.mxfp8.row", x=x, q=q, scales=scales)  # refused
zoo.launch("quantize.mxfp8.rows", x=x, q=q, scale=scales)  # refused
zoo.launch("quantize.mxfp8.rows", x=x, q=q)  # refused
zoo.launch("quantize.mxfp8.rows", x=x, q=q, scales=scales, rounding="flor")  # refused
zoo.launch("quantize.fp8b128.rows", x=x, q=q, scales=scales, rounding="floor")  # refused

plan = zoo.prepare("quantize.mxfp8.rows", x=x, q=q, scales=scales)
plan(0)
zoo.prepare("quantize.mxfp8.rows", x=x, q=q, scales=scales, layout="block")  # refused
zoo.prepare("scales.unblocked.k_grouped", blocked=q, offsets=x, scales=scales, block=16)
zoo.prepare("scales.unblocked.k_grouped", blocked=q, offsets=x, scales=scales, block="16")  # refused


def for_any(name: str, arguments: dict[str, zoo.DeviceArray]) -> None:
    zoo.launch(name, **arguments)
    zoo.launch("quantize.mxfp8.rows", **arguments)
    zoo.prepare(name, **arguments)(zoo.stream())
    zoo.launch(name, x=x)  # refused


gpu = Device("sm_90a", scheduling="last")
zoo.launch("quantize.mxfp8.rows", x=gpu.empty((256, 256), "bf16"), q=gpu.empty((256, 256), "e4m3"), scales=gpu.empty((256, 8), "ue8m0"))
assert_type(gpu.launch(zoo.emulator.Module(".target"), "entry", (1, 1, 1), 32, params=[gpu.alloc(4), 1.5]), Report)
Device("sm_90a", scheduling="lats")  # refused

for kernel in zoo.find("gemm.*", arch="sm_90a", grouping="dense"):
    print(kernel.summary, zoo.kernel(kernel.name).archs)
zoo.find(grouping="densse")  # refused
zoo.find(group="dense")  # refused
assert_type(zoo.load("gemm.*"), int)

try:
    zoo.launch("quantize.mxfp8.rows", x=x, q=q, scales=scales)
except zoo.ArgumentError as error:
    print(error)
except zoo.ArgumentErorr:  # refused
    pass
