"""Whose bits may depend on the batch, and that asking for the opposite is heard. That the bits are as said is what `zoo verify` sees."""

import pytest

from zoo.benchmark.arguments import describe_arguments, resolve_without_device, size_symbols
from zoo.contract.array import Array, contiguous_strides
from zoo.errors import VariantError
from zoo.packaged import packaged

DENSE = packaged.kernel("gemm.fp8b128.dense")
SPLITTING = [kernel.name for kernel in packaged.find("gemm.*") if "batch_invariant" in kernel.options]
MANY = [(M, N, 7168) for M in (200, 300, 1000, 1100, 2000) for N in (576, 2112, 4096, 5120)]
FEW = [
    (M, N, K) for M in (1, 8, 16, 32, 64, 128, 256, 512) for N, K in ((640, 7168), (7168, 16384), (2048, 7168), (4096, 7168), (24576, 1536))
]


def launched(M, N, K, variant=None, kernel=DENSE, **settings):
    sizes = {
        "M": M,
        "N": N,
        "K": K,
        "S": 1,
        "KB": K // (2 if kernel.arguments["a"].dtypes[0] == "e2m1x2" else 1),
        "CODES": K // 2,
        "I": N // 2,
    }
    gates = {"gates": "interleaved"} if "gates" in kernel.options else {}  # any N will do
    arrays, keywords = describe_arguments(kernel, {name: sizes[name] for name in size_symbols(kernel)}, {**gates, **settings})
    arrays = {
        name: Array((1 + place) << 40, one.dtype, one.shape, contiguous_strides(one.shape))
        for place, (name, one) in enumerate(arrays.items())
    }
    return resolve_without_device(kernel, {**arrays, **keywords}, variant)


def resolved(*sizes, **settings):
    return launched(*sizes, **settings).variant


def splits(*sizes, **settings):
    """Over how many CTAs K is split: what of a launch's cluster are no pairs, do not share tokens, nor a block of the result."""
    launch = launched(*sizes, **settings)
    constants = launch.variant.constants
    together = constants.get("SHARERS", 1) * constants.get("PARTS", 1) if "SPLITS" in constants else constants["CTAS"]
    return max(launch.cluster[0] // together, 1)  # parts of a tile may be in one CTA


@pytest.mark.parametrize("name", SPLITTING)
def test_a_batch_invariant_product_does_not_split_k(name):
    kernel = packaged.kernel(name)
    assert all(splits(*sizes, kernel=kernel, batch_invariant="yes") == 1 for sizes in FEW)


@pytest.mark.parametrize("name", SPLITTING)
def test_few_tokens_are_split_if_nobody_asks(name):
    kernel = packaged.kernel(name)
    assert any(splits(*sizes, kernel=kernel) > 1 for sizes in FEW), "else the option means nothing"


def test_tiles_that_fill_no_wave_are_shared_unless_somebody_asks():
    assert any(splits(*sizes) > 1 for sizes in MANY)
    assert all(splits(*sizes, batch_invariant="yes") == 1 for sizes in MANY)


def test_a_split_that_is_pinned_is_no_answer_to_batch_invariant():
    split = next(v.name for v in DENSE.variants if v.constants.get("SPLITS", 1) > 1 and "d" not in v.dtypes)
    assert resolved(8, 576, 7168, split).name == split
    with pytest.raises(VariantError, match=f"{split}.* it takes calls with .*batch_invariant.no"):
        resolved(8, 576, 7168, split, batch_invariant="yes")


def test_every_kernel_that_promises_batch_invariance_has_no_splits():
    promising = [kernel for kernel in packaged.find("gemm.*") if kernel.promises["batch_invariant"]]
    assert promising
    assert all(v.constants.get("SPLITS", 1) == 1 for kernel in promising for v in kernel.variants)
