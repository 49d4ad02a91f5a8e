"""The emulator stays quick enough to be used: on one core 100,000 warp instructions a second, and a GEMM of 256 x 256 x 512 in 2 s.
Measured: several hundred thousand and well under a second. Time of the processor, so that a busy machine does not fail it. pytest -s prints
the figures."""

import time

import ml_dtypes
import numpy as np
import proof_cases
from proof_emulator import run

import zoo

LEAST_WARP_INSTRUCTIONS = 100_000  # a second
MOST_SECONDS = 2


def fastest(work, times=3):
    seconds = []
    for _ in range(times):
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
    return min(seconds), result


def test_warp_instructions_a_second():
    gpu = zoo.emulator.Device(arch="sm_90a")
    x = gpu.array(np.random.default_rng(0).standard_normal((128, 1024), np.float32).astype(ml_dtypes.bfloat16))
    plan = zoo.prepare("quantize.mxfp8.rows", x=x, q=gpu.empty((128, 1024), "e4m3"), scales=gpu.empty((128, 32), "ue8m0"))
    seconds, report = fastest(plan)
    print(f"{report.warp_instructions / seconds:,.0f} warp instructions a second")
    assert report.ok and report.warp_instructions / seconds > LEAST_WARP_INSTRUCTIONS


def test_a_block_scaled_gemm(compile_ptx):
    """256 x 256 x 512 of the proof kernel, in `exact`."""
    m, n, k = 256, 256, 512
    a, b, k, scales, _, map_of, map_a, map_b = proof_cases._block_scaled(np.random.default_rng(0), "mxf8f6f4", m, n, k)
    d = proof_cases._d_buffer(m, n, np.float32)
    case = proof_cases.Case(
        "speed", "tcgen05_one_cta.cu", "sm_100a", "tcgen05_mxf8f6f4", (n // 128, m // 128), 128,
        (map_of("a", a, map_a, m, 128), map_of("b", b, map_b, n, 128), proof_cases.Pointer("scales_a"), proof_cases.Pointer("scales_b"),
         proof_cases.Pointer("d"), m, n, k),
        {"a": a.data, "b": b.data, "d": d, **scales}, {"d": proof_cases._with_d(d, proof_cases.exact_f32(a.values @ b.values.T))},
        shared_bytes=111616,
    )  # fmt: skip
    text = compile_ptx(case.path, case.arch)
    seconds, result = fastest(lambda: run(case, text, scheduling="last", seed=0))
    print(f"{seconds:.2f} s")
    assert not result.findings and result.differences(case) == []
    assert seconds < MOST_SECONDS
