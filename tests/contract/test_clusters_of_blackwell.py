"""No more CTAs share a sum than leave all clusters running at a time: multiprocessors come in groups that four and eight do not divide."""

import pytest

from zoo.benchmark.arguments import describe_arguments, size_symbols
from zoo.contract.array import Array, contiguous_strides
from zoo.contract.resolve import resolve
from zoo.packaged import packaged

SHARED = [kernel.name for kernel in packaged.find("gemm.*.dense*", arch="sm_100f")]
GRANTED = {132: (13, 30, 66), 148: (15, 34, 74), 160: (16, 37, 80)}  # multiprocessors: clusters of eight, four and two


def sharers(name, tiles, multiprocessors, **settings):
    """How many CTAs share K where a product of one token has so many tiles."""
    kernel = packaged.kernel(name)
    gated, packed = "gates" in kernel.options, kernel.arguments["a"].dtypes[0] == "e2m1x2"
    columns = 128 if not gated or kernel.fields["formats"] != "fp8b128" else 256
    lines = 32  # of K: enough for eight
    sizes = {"M": 1, "N": columns * tiles, "K": 128 * lines * (2 if packed else 1), "KB": 128 * lines, "S": 1, "I": columns * tiles // 2}
    given = {**settings, **({"gates": "interleaved"} if gated else {})}
    arrays, keywords = describe_arguments(kernel, {symbol: sizes[symbol] for symbol in size_symbols(kernel)}, given)
    placed = {
        name: Array((1 + place) << 40, one.dtype, one.shape, contiguous_strides(one.shape))
        for place, (name, one) in enumerate(arrays.items())
    }
    return resolve(kernel, {**placed, **keywords}, (10, 0), multiprocessors, "few128").cluster[0]


@pytest.mark.parametrize("multiprocessors", GRANTED)
@pytest.mark.parametrize("name", SHARED)
def test_a_sum_is_cut_for_clusters_that_all_run_at_once(name, multiprocessors):
    eights, fours, pairs = GRANTED[multiprocessors]
    found = [sharers(name, tiles, multiprocessors) for most in (eights, fours, pairs) for tiles in (most, most + 1)]
    assert found == [8, 4, 4, 2, 2, 1]
    assert sharers(name, 1, multiprocessors, batch_invariant="yes") == 1
