"""Runs a proof case on the emulator."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from proof_cases import Map, Pointer

from zoo.emulator import Device, Module


@dataclass
class Run:
    """What a launch left behind: the buffers, the findings and the emulator's report."""

    buffers: dict
    findings: list
    report: object

    def differences(self, case):
        """Sentences on the buffers that are not, bit for bit, what they should be."""
        found = []
        for name, content in self.buffers.items():
            expected, got = case.outcome(name), content
            wrong = np.flatnonzero(got.reshape(-1).view(np.uint8) != expected.reshape(-1).view(np.uint8)) // expected.itemsize
            if wrong.size:
                first = np.unravel_index(wrong[0], expected.shape)
                found.append(
                    f"{case.name}: {len(np.unique(wrong))} of {expected.size} elements of {name!r} are wrong, the first at "
                    f"{tuple(int(i) for i in first)}: {got[first]!r}, expected {expected[first]!r}"
                )
        return found


_module = lru_cache(maxsize=64)(Module)  # parsing a text takes longer than some launches


def run(case, ptx, **device_options):
    """device_options: scheduling, seed, arithmetic..., as zoo.emulator.Device takes them. The cases' results are exact sums."""
    gpu = Device(arch=case.arch, **{"arithmetic": "exact", **device_options})
    pointers = {name: gpu.alloc(content.copy()) for name, content in case.buffers.items()}

    def parameter(value):
        if isinstance(value, Pointer):
            return pointers[value.buffer]
        if isinstance(value, Map):
            return gpu.tensor_map(pointers[value.buffer], value.dtype, value.dims, value.strides, value.box, value.swizzle)
        return value

    report = gpu.launch(
        _module(ptx), case.entry, case.grid, case.block, case.cluster, case.shared_bytes, [parameter(p) for p in case.parameters]
    )
    buffers = {name: gpu.read(pointers[name], content.shape, content.dtype) for name, content in case.buffers.items()}
    return Run(buffers, list(report.findings), report)
