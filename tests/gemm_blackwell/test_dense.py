"""Block-scaled products of one matrix on an emulated Blackwell: schedules, random calls, launches in flight, and three implementations.

By default a part of the proof; tests/gemm_blackwell/which.py says how to run all of it.
"""

import numpy
import pytest

from tests.gemm_blackwell.in_flight import InFlight
from tests.gemm_blackwell.named import named
from tests.gemm_blackwell.which import CUBINS, EXAMPLES, SCHEDULES, ZOO
from zoo import checks
from zoo.catalog import Zoo
from zoo.checks.block_scaled import DTYPES, Operands, dense_problem, finishing_steps, random_operands
from zoo.checks.emulated import executor
from zoo.checks.problem import POISONS, difference
from zoo.contract.array import Pointer
from zoo.emulator import Device
from zoo.reference.block_formats import block_format, nvfp4_tensor_scale
from zoo.reference.block_scaled_gemm import KINDS, error_bound, exact, finished, gemm_block_scaled
from zoo.reference.quantize import quantize_rows

FORMATS = ("mxfp8", "mxfp4", "nvfp4")
KERNELS = {formats: ZOO.kernel(f"gemm.{formats}.dense") for formats in FORMATS}
VARIANTS = [(kernel, variant) for kernel in KERNELS.values() for variant in kernel.variants]
every_format = pytest.mark.parametrize("formats", FORMATS)
every_variant = pytest.mark.parametrize(("kernel", "variant"), VARIANTS, ids=[f"{k.name} {v.name}" for k, v in VARIANTS])

# Of the checks' problems: one tile, a row and a line more than fills one, more lines than stages, more tiles than multiprocessors.
# How often each runs by default.
SMALL = {"1 x 8 x 32, random": 20, "129 x 8 x 64, random": 20, "4 x 8 x 1568, random": 4, "257 x 264 x 32, random": 3}


@every_variant
@pytest.mark.parametrize("name", SMALL)
def test_any_order_of_asynchronous_work_gives_the_references_bits(kernel, variant, name):
    (problem,) = [problem for problem in checks.problems(kernel, variant) if problem.name.startswith(name)]
    assert difference(problem, kernel, variant, executor(ZOO, SCHEDULES or SMALL[name]), POISONS[:1]) is None


def random_problem(kernel, variant, random):
    """Sizes near the units that matter, rows apart by 0 to 48 bytes and at 16 bytes alone, any steps of finishing, any D."""
    formats = kernel.fields["formats"]
    while True:
        M = int(random.choice([1, random.integers(1, 40), random.integers(110, 140), random.integers(1, 280)]))
        N = 8 * int(random.choice([1, random.integers(1, 6), random.integers(14, 19), random.integers(1, 36)]))
        K = 32 * int(random.choice([1, random.integers(1, 10), random.integers(1, 40), random.integers(30, 70)]))
        if (M + N) * K < 14_000:
            break
    steps = [{}, *finishing_steps(M, N, int(random.integers(100)))]
    finish = steps[int(random.integers(len(steps)))]
    options = {name: str(random.choice(["no", "yes"])) for name in ("batch_invariant", "b_constant")}
    dtype, gap = str(random.choice(DTYPES)), int(random.integers(4))
    operands = random_operands(formats, M, N, K, int(random.integers(1000)))
    words = f"{M} x {N} x {K}, {gap} apart, {', '.join(finish)}, {options}"
    return dense_problem(kernel, variant, words, operands, dtype, gap, finish, options)


@every_variant
def test_a_random_call_gives_the_references_bits(kernel, variant):
    for example in range(EXAMPLES or 3):
        problem = random_problem(kernel, variant, numpy.random.default_rng([example, VARIANTS.index((kernel, variant))]))
        wrong = difference(problem, kernel, variant, executor(ZOO, 3), POISONS[:1])
        assert wrong is None, f"{problem.name}: {wrong}"


# ---- calls whose operands the tests hold ------------------------------------------------------------------------------------------


def placed(device, values, dtype):
    """An array in the memory of an emulated device."""
    strides = (values.shape[1], 1) if values.ndim == 2 else (1,)
    return Pointer(device.alloc(numpy.ascontiguousarray(values).view(numpy.uint8)), values.shape, dtype, strides, device)


def arguments_of(device, operands):
    types = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "uint8": "e2m1x2", "float8_e8m0fnu": "ue8m0"}
    inputs = operands.placed()
    return {name: placed(device, one.values, types[one.values.dtype.name]) for name, one in inputs.items()}


def empty(device, M, N):
    return Pointer(device.alloc(M * N * 4), (M, N), "f32", (N, 1), device)


def multiplied(kernel, variant, operands, device=None, **settings):
    """D in f32."""
    device = device or Device(arch=variant.arch, arithmetic="hw", multiprocessors=3)
    M, N, _ = operands.sizes
    d = empty(device, M, N)
    settings = {name: placed(device, value, "f32") if isinstance(value, numpy.ndarray) else value for name, value in settings.items()}
    report = ZOO.prepare(kernel.name, variant=variant.name, d=d, **named(kernel.name, arguments_of(device, operands)), **settings)()
    assert report.ok, report
    return device.read(d.address, (M, N), numpy.float32)


def rows_of(operands, rows):
    a, a_scale, b, b_scale = operands.arrays
    return Operands(operands.formats, (a[rows], a_scale[rows], b, b_scale))


@every_format
def test_a_row_comes_out_the_same_in_all_variants_and_among_any_number_of_rows(formats):
    kernel, found = KERNELS[formats], {}
    operands = random_operands(formats, 129, 24, 8 * KINDS[formats].line, 5)  # lines enough to share, were it allowed
    for variant in kernel.variants:
        for rows in (slice(0, 129), slice(128, 129), slice(124, 129)):
            found[variant.name, rows.start] = multiplied(kernel, variant, rows_of(operands, rows), batch_invariant="yes")[-1]
    assert len({row.tobytes() for row in found.values()}) == 1 and len(found) == 9


@every_variant
def test_k_of_2880_as_checkpoints_have_it(kernel, variant):
    operands = random_operands(kernel.fields["formats"], 3, 16, 2880, 1)
    found = multiplied(kernel, variant, operands, batch_invariant="yes")
    numpy.testing.assert_array_equal(found, operands.sums())


@every_format
def test_three_implementations_agree_on_what_our_quantisers_wrote(formats):
    torch = pytest.importorskip("torch")
    random, M, N, K, kernel = numpy.random.default_rng(6), 20, 40, 608, KERNELS[formats]
    x, y = (random.standard_normal((rows, K)).astype(numpy.float32) for rows in (M, N))
    tensor_scales = [nvfp4_tensor_scale(numpy.abs(one).max()) for one in (x, y)]
    made, given = [], []
    for one, tensor_scale in zip((x, y), tensor_scales, strict=True):
        result = quantize_rows(one, block_format(formats, **({"tensor_scale": tensor_scale} if formats == "nvfp4" else {})), "plain")
        made += [result.q, result.scales]
        codes = torch.from_numpy(result.q.view(numpy.uint8).copy())
        if KINDS[formats].packed[0]:
            magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
            both = torch.stack((codes & 15, codes >> 4), -1).reshape(len(one), K).long()
            values = magnitudes[both & 7] * (1 - 2.0 * (both >> 3))
        else:
            values = codes.view(torch.float8_e4m3fn).double()
        bytes_of_scales = torch.from_numpy(result.scales.view(numpy.uint8).copy())
        if formats == "nvfp4":
            scales = bytes_of_scales.view(torch.float8_e4m3fn).double()
        else:
            scales = torch.exp2(bytes_of_scales.double() - 127)
        given.append(values * scales.repeat_interleave(KINDS[formats].block, 1))
    in_torch = given[0] @ given[1].T
    alpha = numpy.array([numpy.float32(tensor_scales[0] * tensor_scales[1])]) if formats == "nvfp4" else numpy.ones(1, numpy.float32)
    operands = Operands(formats, tuple(made))
    product, magnitude = exact(*made, formats)
    numpy.testing.assert_allclose(product, in_torch.numpy(), rtol=1e-12, atol=1e-12)
    bound = error_bound(magnitude, K)
    for variant in kernel.variants:
        kernels = multiplied(kernel, variant, operands, batch_invariant="yes")
        numpy.testing.assert_array_equal(kernels, gemm_block_scaled(*made, formats))
        assert (numpy.abs(kernels - in_torch.numpy()) <= bound).all()
        scaled = multiplied(kernel, variant, operands, batch_invariant="yes", alpha=alpha)
        numpy.testing.assert_array_equal(scaled, finished(kernels, "f32", alpha))
    wanted = x.astype(numpy.float64) @ y.T.astype(numpy.float64)
    noise = numpy.abs(scaled - wanted).mean() / numpy.abs(wanted).mean()
    assert 0.005 < noise < (0.06 if formats == "mxfp8" else 0.25)  # that of the format


def launches_in_flight(kernel, variant, monkeypatch, waits=True):
    """Three products, each added to the one before: c of a launch is d of the one ahead, which nobody has written until then.
    (reports, who began before the end of the one ahead, the last d, what it must be)"""
    fresh = Zoo(CUBINS)  # its PTX is decoded while launches in flight are what griddepcontrol is about
    device = Device(arch=variant.arch, scheduling="random", seed=3, arithmetic="hw", multiprocessors=3)
    plans, expected, c = [], None, None
    for K in (96, 32, 64):
        operands, d = random_operands(kernel.fields["formats"], 130, 24, K, 7), empty(device, 130, 24)
        more = {} if c is None else {"c": c}
        plans.append(fresh.prepare(kernel.name, variant=variant.name, d=d, **named(kernel.name, arguments_of(device, operands)), **more))
        expected = finished(operands.sums(), "f32", c=expected)
        c = d
    flight = InFlight(device, 4, waits)
    reports = flight.run(plans, monkeypatch)
    return reports, flight.begun_before_the_end_of_the_one_ahead, device.read(c.address, (130, 24), numpy.float32), expected


@every_variant
def test_launches_that_begin_before_the_one_ahead_has_ended_read_what_it_wrote(kernel, variant, monkeypatch):
    reports, early, found, expected = launches_in_flight(kernel, variant, monkeypatch)
    assert all(report.ok for report in reports), "\n".join(map(str, reports))
    assert early == {1, 2}
    numpy.testing.assert_array_equal(found, expected)


def test_a_launch_that_did_not_wait_for_the_one_ahead_would_be_found(monkeypatch):
    kernel = KERNELS["mxfp8"]
    reports, _, _, _ = launches_in_flight(kernel, kernel.variants[0], monkeypatch, waits=False)
    assert "uninitialised-global" in {finding.kind for report in reports for finding in report.findings}
