"""What the numbers of costs become on a Hopper that is not an H200. They were measured on an H200, and nothing here was measured on another chip.

For some nanoseconds of a number, tensor cores work. Slower tensor cores work longer, and the other work of these nanoseconds hides most of what is
shorter. A number that is proportional to a rate falls with the chip's rate. No number is better than an H200's. zoo.c computes the same whole numbers.
Measured numbers of `zoo tune` take their place.
"""

from __future__ import annotations

from dataclasses import dataclass

from zoo.contract.costs import tunable, with_numbers
from zoo.contract.schema import Kernel

# An H200: multiprocessors, the clock in kHz, and the bytes that memory delivers in a nanosecond (data sheet)
MULTIPROCESSORS, CLOCK, BANDWIDTH = 132, 1_980_000, 4800
MEMORY = 1000  # in thousandths of what an H200 loads in a cycle
# By the driver's name, chips whose tensor cores need several times as many cycles as an H200's for a multiplication. Data sheets: 296 TFLOPS of FP8
# by 78 multiprocessors, beside 1979 by 132.
SLOW_TENSOR_CORES = {"NVIDIA H20": 4, "NVIDIA H20-3e": 4}
PART = " MIG "  # in the driver's name of a part of a chip: `NVIDIA H20 MIG 1g.12gb`
# Per cent of the shorter of two works at once that the longer does not hide: as of computing and loading, `both` of
# src_cu/gemm/costs/h200/fp8_product.toml
BOTH = 26


def _beside(one: int, other: int) -> int:
    """What two works take at once."""
    return max(one, other) + min(one, other) * BOTH // 100


@dataclass(frozen=True)
class Chip:
    multiprocessors: int = MULTIPROCESSORS
    tensor: int = 1  # times as many cycles as an H200 for a multiplication
    memory: int = MEMORY

    def time(self, number: int, tensor: int) -> int:
        """What nanoseconds of an H200 become, in which its tensor cores work for so many."""
        return number + _beside(number, tensor * self.tensor) - _beside(number, tensor)

    def rate(self, number: int, of: str) -> int:
        """What a number becomes that is proportional to a rate."""
        mine, whole = {
            "memory": (self.memory, MEMORY),
            "multiprocessors": (self.multiprocessors, MULTIPROCESSORS),
            "tensor": (1, self.tensor),
        }[of]
        return number if mine >= whole else max(number * mine // whole, 1)


def chip_of(name: str, multiprocessors: int, clock: int, memory_clock: int, memory_bits: int) -> Chip:
    """A chip as the driver describes it: clocks in kHz, the width of the memory bus in bits. A driver that does not tell them says 0."""
    bandwidth = memory_clock * memory_bits // 4_000_000  # two bits a clock and wire; in bytes a nanosecond
    memory = max(min(MEMORY * bandwidth * CLOCK // (BANDWIDTH * clock), MEMORY), 1) if clock and bandwidth else MEMORY
    return Chip(multiprocessors, SLOW_TENSOR_CORES.get(name.partition(PART)[0], 1), memory)


def on_chip(kernel: Kernel, arch: str, chip: Chip) -> Kernel:
    """The kernel with the numbers of a chip for its variants of an arch; the kernel itself where no number differs."""
    variants = tunable(kernel, arch)
    numbers = {
        one.name: {
            name: chip.rate(number, one.rates[name]) if name in one.rates else chip.time(number, one.tensor.get(name, 0))
            for name, number in one.numbers.items()
        }
        for one in variants
    }
    return kernel if all(one.numbers == numbers[one.name] for one in variants) else with_numbers(kernel, arch, numbers)
