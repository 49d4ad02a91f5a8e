"""A limit of multiprocessors on a GPU: the bits of a call without a limit, room for another stream, and c that is d in each variant.

python -m pytest -q -s tests/gpu/test_multiprocessors.py     # -s prints times of a product under limits
"""

import pytest

import zoo
from zoo.contract.archs import arch_of
from zoo.errors import VariantError
from zoo.packaged import packaged
from zoo.runtime import driver

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
DENSE = "gemm.fp8b128.dense"


def operands(rows, columns, k):
    torch.manual_seed(rows)
    a, b = (torch.randn(extent, k, device="cuda").to(torch.float8_e4m3fn) for extent in (rows, columns))
    a_scale, b_scale = (2.0 ** torch.randint(-2, 2, (extent, -(-k // 128)), device="cuda") for extent in (rows, -(-columns // 128)))
    return {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale}


def variants():
    hopper = arch_of("hopper")
    return [variant for variant in packaged.kernel(DENSE).variants if variant.arch == hopper]


@pytest.mark.parametrize("variant", variants(), ids=lambda variant: variant.name)
def test_c_in_the_memory_of_d_gives_the_bits_of_c_elsewhere(variant):
    dtype = torch.float32 if variant.dtypes.get("d") == "f32" else torch.bfloat16
    rows = min(variant.constants["TOKENS"] - 1, 64) if variant.constants.get("SWAPPED") else 1400
    given = operands(rows, 3584, 2064)
    c = torch.randn(rows, 3584, device="cuda").to(dtype)
    elsewhere = torch.empty_like(c)
    try:
        zoo.launch(DENSE, variant=variant.name, c=c, d=elsewhere, **given)
    except VariantError:
        pytest.skip("the variant takes no c")
    for _ in range(20):
        d = c.clone()
        zoo.launch(DENSE, variant=variant.name, c=d, d=d, **given)
        assert torch.equal(d, elsewhere)


@pytest.mark.parametrize("rows", [1, 64, 1400])
def test_a_limit_gives_the_bits_of_all_multiprocessors(rows):
    given, present = operands(rows, 3584, 2064), driver.device(0).multiprocessors
    whole = torch.empty(rows, 3584, device="cuda")
    zoo.launch(DENSE, d=whole, batch_invariant="yes", **given)
    for limit in (4, 33, present // 2, present - 1):
        d = torch.empty_like(whole)
        with zoo.multiprocessors(limit):
            zoo.launch(DENSE, d=d, batch_invariant="yes", **given)
        assert torch.equal(d, whole), limit


def milliseconds(work, times=20):
    work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / times


def test_a_kernel_of_another_stream_begins_while_a_limited_product_runs():
    """A small product, whose CTA needs all shared memory of a multiprocessor, ends before the large product that was started first."""
    present = driver.device(0).multiprocessors
    given, d = operands(16384, 16384, 8192), torch.empty(16384, 16384, device="cuda", dtype=torch.bfloat16)
    small = {"d": torch.empty(128, 128, device="cuda", dtype=torch.bfloat16), **operands(128, 128, 128)}
    other, found = torch.cuda.Stream(), {}
    for limit in (present, present - 16, present // 2):
        alone = milliseconds(lambda limit=limit: zoo.launch(DENSE, multiprocessors=limit, d=d, **given), 3)
        zoo.launch(DENSE, variant="t128", stream=other, **small)
        torch.cuda.synchronize()
        large_ended, small_ended, begin = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        begin.record()
        zoo.launch(DENSE, multiprocessors=limit, d=d, **given)
        large_ended.record()
        other.wait_event(begin)
        zoo.launch(DENSE, variant="t128", stream=other, **small)
        small_ended.record(other)
        torch.cuda.synchronize()
        found[limit] = alone, begin.elapsed_time(small_ended) / begin.elapsed_time(large_ended)
        print(
            f"\n{limit:4} multiprocessors: {alone:7.3f} ms, the other stream's kernel ended at {found[limit][1]:.2f} of the product", end=""
        )
    print()
    assert found[present // 2][1] < 0.5 < found[present][1]
    assert found[present // 2][0] / found[present][0] > 1.3
