"""A GEMM in FP8 on numpy arrays, without a framework, for several numbers of tokens.

    pip install .
    python examples/numpy_gemm.py

The program quantises the weights once and the tokens for each product. Sizes are run-time values: zoo chooses one of its
compiled tiles for each product. Without a GPU the kernels run in zoo's emulator.
"""

import ml_dtypes
import numpy

import zoo

N, K = 128, 256  # outputs and inputs of the layer


def find_device():
    """A name, and the function that copies an array to the device."""
    try:
        zoo.to_device(numpy.zeros(1, "f4"))
    except zoo.DriverError:
        return "emulated Hopper GPU", zoo.emulator.Device("hopper").array
    return "GPU", zoo.to_device


def main():
    name, array = find_device()
    random = numpy.random.default_rng(0)

    def normal(*shape):
        return random.standard_normal(shape).astype(ml_dtypes.bfloat16)

    w = normal(N, K)
    b = zoo.call("quantize.fp8b128.squares", x=array(w), scaling="pow2")  # Blackwell needs power-of-two scales
    print(f"{N} x {K} weights on the {name}: {w.nbytes} bytes in bf16, {b.q.nbytes + b.scales.nbytes} in FP8\n")
    print(f"tokens  {'tile':18}  relative error")
    errors = []
    for tokens in (1, 17, 64):
        x = normal(tokens, K)
        a = zoo.call("quantize.fp8b128.rows", x=array(x), scaling="pow2")
        operands = {"a": a.q, "a_scale": a.scales, "b": b.q, "b_scale": b.scales}
        d = array(numpy.zeros((tokens, N), ml_dtypes.bfloat16))
        plan = zoo.prepare("gemm.fp8b128.dense", **operands, d=d)
        plan()
        exact = x.astype("f4") @ w.astype("f4").T
        errors.append(float(numpy.linalg.norm(d.numpy().astype("f4") - exact) / numpy.linalg.norm(exact)))
        print(f"{tokens:6}  {plan.launch.variant.name:18}  {100 * errors[-1]:.1f} %")
    return errors


if __name__ == "__main__":
    main()
