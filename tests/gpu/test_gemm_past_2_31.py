"""Products whose D, whose A, or whose weights have more than 2^31 elements, on a real device: the last rows come out as they do alone.

N = 129280 is the vocabulary of DeepSeek's models.

ZOO_CUBINS names another folder than the packaged one.
"""

import os

import pytest

from tools.lab.viewed import of_matrices
from zoo.catalog import Zoo
from zoo.packaged import packaged

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
N, FEW, TAIL = 129280, 144, 200
ROWS = 2**31 // N + 2 * TAIL  # of a D past 2^31 elements
DEEP, DEEP_ROWS = 4096, 2**31 // 4096 + 2 * TAIL  # of an A past 2^31 elements


@pytest.fixture(autouse=True)
def memory_back():
    yield
    torch.cuda.empty_cache()


def elements(*shape):
    result = torch.empty(*shape, device="cuda", dtype=torch.float8_e4m3fn)
    for part in result.view(-1).split(2**28):
        part.copy_(torch.randn(part.shape, device="cuda"))
    return result


def scales(*shape):
    return torch.rand(*shape, device="cuda") + 0.5


def numbers(*values):
    return torch.tensor(values, device="cuda", dtype=torch.int32)


def by_rows(rows, columns, K, groups=1):
    """a, a_scale, b, b_scale"""
    blocks = -(-K // 128)
    return elements(rows, K), scales(rows, blocks), elements(groups, columns, K), scales(groups, -(-columns // 128), blocks)


def launched(grouping, d, variant=None, **arguments):
    d.fill_(float("nan"))
    ZOO.launch(f"gemm.fp8b128.{grouping}", d=d, variant=variant, **arguments)
    return d


def empty(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, device="cuda", dtype=dtype)


def workspace(rows, K):
    """For gathered rows; not what an earlier test left in the same memory, which may be these rows."""
    units, blocks = -(-rows // 16), -(-K // 128)
    return empty(-(-(rows * K) // 128) * 128 + (16 * units * blocks + units + 4) * 4, dtype=torch.uint8).fill_(0xFF)


def alone(a, a_scale, b, b_scale):
    """The last TAIL rows times the last group's weights."""
    rows = {"a": a[-TAIL:].clone(), "a_scale": a_scale[-TAIL:].clone()}
    return launched("dense", empty(TAIL, b.shape[1]), TILES[0], b=b[-1], b_scale=b_scale[-1], batch_invariant="yes", **rows)


def check(got, expected):
    assert torch.equal(got, expected)
    assert bool(expected.isfinite().all()) and len(torch.unique(expected)) > 100


SHAPES = pytest.mark.parametrize(("rows", "columns", "K"), [(ROWS, N, FEW), (DEEP_ROWS, 136, DEEP)], ids=["D", "A"])
TILES = [
    variant.name
    for variant in ZOO.kernel("gemm.fp8b128.dense").variants
    if variant.arch == "sm_90a" and "d" not in variant.dtypes and variant.name.startswith("t")
]
assert TILES, "no tile with tokens as rows"


@SHAPES
@pytest.mark.parametrize("variant", TILES)
def test_the_last_rows_of_dense(rows, columns, K, variant):
    a, a_scale, b, b_scale = by_rows(rows, columns, K)
    call = {"a": a, "a_scale": a_scale, "b": b[0], "b_scale": b_scale[0]}
    d = launched("dense", empty(rows, columns), variant, batch_invariant="yes", **call)
    expected = alone(a, a_scale, b, b_scale)
    check(d[-TAIL:], expected)
    launched("dense", d, variant, **call)  # K of the last tiles may be shared, so that bits differ
    assert torch.allclose(d[-TAIL:].float(), expected.float(), rtol=2**-6, atol=0.5)


@SHAPES
@pytest.mark.parametrize("by", ["offsets", "m_indices"])
def test_the_last_group_of_contiguous(rows, columns, K, by):
    a, a_scale, b, b_scale = by_rows(rows, columns, K, groups=3)
    groups = {"offsets": numbers(5, rows - TAIL, rows)}
    if by == "m_indices":
        groups = {by: torch.full((rows,), 1, device="cuda", dtype=torch.int32)}
        groups[by][:5], groups[by][-TAIL:] = 0, 2
    d = launched("m_grouped_contiguous", empty(rows, columns), a=a, a_scale=a_scale, b=b, b_scale=b_scale, **groups)
    check(d[-TAIL:], alone(a, a_scale, b, b_scale))


@SHAPES
@pytest.mark.parametrize("moved", [False, True])
def test_the_last_group_of_rows_through_an_index(rows, columns, K, moved):
    a, a_scale, b, b_scale = by_rows(rows, columns, K, groups=2)
    call = {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale, "offsets": numbers(rows - TAIL, rows)}
    call["index"] = torch.arange(rows, device="cuda", dtype=torch.int32)
    if moved:
        call["workspace"] = workspace(rows, K)
    d = launched("m_grouped_gather", empty(rows, columns), "t128_w256_moved" if moved else None, **call)
    check(d[-TAIL:], alone(a, a_scale, b, b_scale))


@SHAPES
def test_the_last_place_of_masked(rows, columns, K):
    places = rows // 4
    a, a_scale, b, b_scale = by_rows(4 * places, columns, K, groups=4)
    call = {name: one.unflatten(0, (4, places)) for name, one in {"a": a, "a_scale": a_scale, "d": empty(4 * places, columns)}.items()}
    d = launched("m_grouped_masked", b=b, b_scale=b_scale, rows=numbers(places, 0, 1, places), **call)
    check(d[-1, -TAIL:], alone(a, a_scale, b, b_scale))
    assert bool(d[1].isnan().all()) and bool(d[2, 1:].isnan().all()) and bool(d[2, 0].isfinite().all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("rows", "columns", "K"), [(4224, N, 1024), (DEEP, 136, DEEP_ROWS // 16 * 16)], ids=["D", "A"])
def test_the_last_group_along_k(rows, columns, K, dtype):
    ends, last = (256, 272, K - 256, K), 256
    before = sum(-(-size // 128) for size in (256, 16, K - 256 - 272))
    a, b = elements(rows, K), elements(columns, K)
    a_scale, b_scale = scales(-(-K // 128) + 4, rows).t(), scales(-(-K // 128) + 4, columns).t()
    call = {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale}
    d = launched("k_grouped", empty(4, rows, columns, dtype=dtype), offsets=numbers(*ends), **call)
    call = {name: one[:, -last:].clone() if name in ("a", "b") else one[:, before : before + 3].clone() for name, one in call.items()}
    expected = launched("k_grouped", empty(1, rows, columns, dtype=dtype), offsets=numbers(last), **call)
    assert torch.equal(d[-1], expected[0])
    assert bool(d[-1, -1].isfinite().all()) and len(torch.unique(d[-1, -TAIL:, :1000])) > 100


def activated(grouping, extra, M, columns, places=None, **call):
    """All rows of the result: d, or q and its scales, as bytes."""
    results = {"d": empty(M, columns)}
    if extra == "swiglu_fp8b128":
        results = {"q": empty(M, columns, dtype=torch.float8_e4m3fn), "scales": empty(M, -(-columns // 128), dtype=torch.float32)}
    for one in results.values():
        one.view(torch.uint8).fill_(0xFF)
    given = {name: one.unflatten(0, (places, -1)) for name, one in results.items()} if places else results
    of_matrices(ZOO).launch(f"gemm.fp8b128.{grouping}.{extra}", **given, **call)
    return [one.view(torch.uint8) for one in results.values()]


def check_bytes(got, expected):
    assert all(torch.equal(one[-TAIL:], other) for one, other in zip(got, expected, strict=True))
    assert len(torch.unique(expected[0])) > 100


@pytest.mark.parametrize("extra", ["swiglu", "swiglu_fp8b128"])
@pytest.mark.parametrize(
    "grouping", ["dense", "m_grouped_contiguous", "m_grouped_contiguous by m_indices", "m_grouped_gather", "m_grouped_masked"]
)
def test_the_last_rows_of_swiglu(grouping, extra):
    rows, groups = ROWS // 4 * 4, 1 if grouping == "dense" else 4
    a, a_scale, b, b_scale = by_rows(rows, 2 * N, FEW, groups)
    expected = activated("dense", extra, TAIL, N, a=a[-TAIL:].clone(), a_scale=a_scale[-TAIL:].clone(), b=b[-1], b_scale=b_scale[-1])
    call = {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale}
    if grouping == "dense":
        call |= {"b": b[0], "b_scale": b_scale[0]}
    elif grouping in ("m_grouped_contiguous", "m_grouped_gather"):
        call["offsets"] = numbers(5, 5, rows - TAIL, rows)
        if grouping == "m_grouped_gather":
            call["index"] = torch.arange(rows, device="cuda", dtype=torch.int32)
    elif grouping == "m_grouped_masked":
        call |= {name: call[name].unflatten(0, (4, -1)) for name in ("a", "a_scale")} | {"rows": numbers(1, 0, 1, rows // 4)}
    else:
        call["m_indices"] = torch.full((rows,), 1, device="cuda", dtype=torch.int32)
        call["m_indices"][-TAIL:] = 3
    check_bytes(activated(grouping.split()[0], extra, rows, N, 4 if "masked" in grouping else None, **call), expected)


GATHERING = {
    variant.name: bool(variant.constants.get("USES_WORKSPACE"))
    for variant in ZOO.kernel("gemm.fp8b128.m_grouped_gather.swiglu").variants
    if variant.arch == "sm_90a"
}


@pytest.mark.parametrize("extra", ["swiglu", "swiglu_fp8b128"])
@pytest.mark.parametrize("variant", GATHERING)
def test_rows_through_an_index_to_the_last_with_swiglu(variant, extra):
    """A, and the workspace if there is one, past 2^31: the last rows of the result, and those that take the last of A."""
    rows, columns = DEEP_ROWS, 192
    a, a_scale, b, b_scale = by_rows(rows, 2 * columns, DEEP, groups=3)
    index = torch.randperm(rows, device="cuda").to(torch.int32)
    call = {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale, "index": index, "offsets": numbers(5, 5, rows)}
    if GATHERING[variant]:
        call["workspace"] = workspace(rows, DEEP)
    got = activated("m_grouped_gather", extra, rows, columns, variant=variant, **call)
    sampled = torch.cat((index.argsort()[-TAIL:], torch.arange(rows - TAIL, rows, device="cuda")))
    sampled = sampled[sampled >= 5]  # of the last group
    taken = index[sampled].long()
    call = {"a": a.view(torch.uint8)[taken].view(a.dtype), "a_scale": a_scale[taken], "b": b[-1], "b_scale": b_scale[-1]}
    expected = activated("dense", extra, len(sampled), columns, batch_invariant="yes", **call)
    assert all(torch.equal(one[sampled], other) for one, other in zip(got, expected, strict=True))
    assert int(taken.max()) == rows - 1 and all(len(torch.unique(one)) > 50 for one in expected)


EXPERTS = 2**31 // DEEP**2 + 8  # whose weights of DEEP x DEEP are past 2^31 elements


@pytest.mark.parametrize("grouping", ["m_grouped_contiguous", "m_grouped_gather", "m_grouped_masked"])
def test_the_last_of_many_experts(grouping):
    a, a_scale, b, b_scale = by_rows(TAIL, DEEP, DEEP, EXPERTS)
    expected = alone(a, a_scale, b, b_scale)
    call, d = {"a": a, "a_scale": a_scale, "b": b, "b_scale": b_scale}, empty(TAIL, DEEP)
    used = [0] * (EXPERTS - 1) + [TAIL]
    if grouping == "m_grouped_masked":
        places, d = EXPERTS * TAIL, empty(EXPERTS, TAIL, DEEP)
        rows, row_scales = (
            torch.full((places, DEEP), 0x7F, device="cuda", dtype=torch.uint8),
            torch.full((places, DEEP // 128), 1.0, device="cuda"),
        )
        rows[-TAIL:], row_scales[-TAIL:] = a.view(torch.uint8), a_scale
        call |= {
            "a": rows.view(a.dtype).unflatten(0, (EXPERTS, -1)),
            "a_scale": row_scales.unflatten(0, (EXPERTS, -1)),
            "rows": numbers(*used),
        }
    else:
        call["offsets"] = numbers(*used)
    if grouping == "m_grouped_gather":
        call["index"] = torch.arange(TAIL, device="cuda", dtype=torch.int32)
    check(launched(grouping, d, **call).view(-1, DEEP)[-TAIL:], expected)


@pytest.mark.parametrize("extra", ["swiglu", "swiglu_fp8b128"])
def test_the_last_of_many_experts_with_swiglu(extra):
    a, a_scale, b, b_scale = by_rows(TAIL, DEEP, DEEP, EXPERTS)
    expected = activated("dense", extra, TAIL, DEEP // 2, a=a, a_scale=a_scale, b=b[-1], b_scale=b_scale[-1], batch_invariant="yes")
    ends = numbers(*[0] * (EXPERTS - 1), TAIL)
    got = activated("m_grouped_contiguous", extra, TAIL, DEEP // 2, a=a, a_scale=a_scale, b=b, b_scale=b_scale, offsets=ends)
    check_bytes(got, expected)
