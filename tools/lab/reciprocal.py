"""Is reciprocal_of_1_to_2 of src_cu/common/division.cuh correctly rounded on this GPU? Tries all 2^23 + 1 numbers.

    python tools/lab/reciprocal.py

Needs cupy.
"""

from __future__ import annotations

import pathlib
import sys

import cupy

SOURCE = """
#include "common/division.cuh"
extern "C" __global__ void try_all(unsigned* wrong, unsigned* tried) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i <= 0x800000; i += gridDim.x * blockDim.x) {
        const float d = __uint_as_float(0x3F800000 + i);
        if (__float_as_uint(zoo::reciprocal_of_1_to_2(d)) != __float_as_uint(__frcp_rn(d))) atomicAdd(wrong, 1);
        atomicAdd(tried, 1);
    }
}
"""


def main() -> int:
    headers = pathlib.Path(__file__).resolve().parents[2] / "src_cu"
    kernel = cupy.RawModule(code=SOURCE, options=(f"-I{headers}",)).get_function("try_all")
    counts = cupy.zeros(2, cupy.uint32)
    kernel((264,), (256,), (counts[:1], counts[1:]))
    wrong, tried = counts.get().tolist()
    print(f"{tried} numbers tried, {wrong} not correctly rounded")
    return int(wrong != 0 or tried != 2**23 + 1)


if __name__ == "__main__":
    sys.exit(main())
