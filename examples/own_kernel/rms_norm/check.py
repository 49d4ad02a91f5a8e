"""A kernel of your own, compared with its rule in numpy.

names.toml adds words to the names of kernels, tables/ describes the calls and the launch, kernels/ has the source. `zoo new-kernel
rms_norm.bf16` writes four such files, ready to edit; docs/adding_a_kernel.md explains them.

    pip install -e '.[build]'                       (in a checkout of zoo)
    python build_cubins.py --source examples/own_kernel --output my_cubins
    python examples/own_kernel/rms_norm/check.py

The check runs in the emulator, which also reports races and reads of unwritten memory.
"""

import sys

import ml_dtypes
import numpy

import zoo

STEP = 2.0**-7  # from a bf16 number to the next, relative to the smallest number with its exponent


def rule(x, weight, epsilon):
    x = x.astype(numpy.float64)
    return x / numpy.sqrt((x**2).mean(axis=1, keepdims=True) + epsilon) * weight


def main(cubins):
    mine, random, errors = zoo.Zoo(cubins), numpy.random.default_rng(0), []
    gpu = zoo.emulator.Device("hopper")  # on a GPU: zoo.to_device, zoo.empty
    print("rows  columns  largest error, in steps of bf16")
    for rows, columns in ((0, 8), (1, 2), (5, 66), (9, 1026)):
        x = random.standard_normal((rows, columns + 4)).astype(ml_dtypes.bfloat16)  # rows with gaps
        weight, wrong = random.standard_normal(columns).astype(numpy.float32), []
        exact = rule(x[:, :columns], weight, 1e-3)
        for variant in ("rows4", "rows1"):
            y = gpu.empty((rows, columns), "bf16")
            arrays = {"x": gpu.array(x)[:, :columns], "weight": gpu.array(weight), "y": y}
            mine.launch("rms_norm.bf16", **arrays, epsilon=1e-3, variant=variant)
            step = STEP * numpy.exp2(numpy.floor(numpy.log2(numpy.abs(exact))))
            wrong.append((numpy.abs(y.numpy() - exact) / step).max(initial=0))
        errors.append(max(wrong))
        print(f"{rows:4}  {columns:7}  {errors[-1]:.3f}")
    assert max(errors) < 0.51, "rounding to bf16 is off by at most half a step"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "my_cubins")
