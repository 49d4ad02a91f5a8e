"""Costs on other Hoppers than an H200: which tiles they take, and that an H200 takes what was measured."""

from __future__ import annotations

from random import Random

import pytest

from zoo.benchmark.arguments import addressed, describe_arguments
from zoo.contract.chips import MEMORY, Chip, chip_of, on_chip
from zoo.contract.costs import tunable
from zoo.contract.resolve import Launch, resolve
from zoo.contract.schema import Kernel, Variant
from zoo.packaged import packaged

ARCH, CAPABILITY = "sm_90a", (9, 0)
# As drivers describe them: name, multiprocessors, clock and memory's clock in kHz, memory's bus in bits
H200 = chip_of("NVIDIA H200", 132, 1_980_000, 3_201_000, 6144)
H100 = chip_of("NVIDIA H100 80GB HBM3", 132, 1_980_000, 2_619_000, 5120)
H100_PCIE = chip_of("NVIDIA H100 PCIe", 114, 1_755_000, 1_593_000, 5120)
H20 = chip_of("NVIDIA H20", 78, 1_980_000, 2_619_000, 6144)
GH200 = chip_of("NVIDIA GH200 480GB", 132, 1_980_000, 2_619_000, 6144)
DENSE, FOUR_BITS = packaged.kernel("gemm.fp8b128.dense"), packaged.kernel("gemm.fp8_mxfp4.dense")
KERNELS = [kernel for kernel in packaged.find() if ARCH in kernel.archs]
LONG = 20_000  # nanoseconds of multiplications


def sizes(seed: int, count: int) -> list[dict[str, int]]:
    """Of products of one matrix."""
    pick = Random(seed)
    return [{"M": round(2 ** pick.uniform(0, 13)), "N": 128 * pick.randint(4, 128), "K": 256 * pick.randint(2, 32)} for _ in range(count)]


def launch(kernel: Kernel, one: dict[str, int], chip: Chip, like: Chip | None = None) -> Launch:
    """On a chip, or with the numbers of another on as many multiprocessors."""
    settings = {"workspace": "u8"} if "workspace" in kernel.arguments else {}
    arguments = addressed(*describe_arguments(kernel, one, settings))
    return resolve(on_chip(kernel, ARCH, like or chip), arguments, CAPABILITY, chip.multiprocessors)


def changed(kernel: Kernel, chip: Chip) -> set[str]:
    """The names of numbers that differ from an H200's."""
    pairs = zip(kernel.variants, on_chip(kernel, ARCH, chip).variants, strict=True)
    return {name for shipped, here in pairs for name, number in shipped.numbers.items() if here.numbers[name] != number}


def multiplying(variant: Variant, one: dict[str, int]) -> float:
    """The nanoseconds of an H20's tensor cores: 1,024 multiplications a cycle, of tiles that may share the last wave."""
    constants = variant.constants
    splits, shares = constants["SPLITS"], 4 if constants.get("SPLITS_LAST_WAVE") else 1
    width = constants.get("WEIGHTS", 128 * constants.get("PARTS", 1))
    turns = -(-one["M"] // constants["TOKENS"]) * -(-one["N"] // width) * splits
    return -(-turns * shares // 78) / shares * constants["TOKENS"] * width * one["K"] / splits / 1024 / 1.98


def test_a_chip_is_what_the_driver_says_and_never_better_than_an_h200():
    assert (Chip(), Chip(memory=698), Chip(78, tensor=4, memory=837)) == (H200, H100, H20)
    assert (Chip(memory=837), Chip(114, memory=479)) == (GH200, H100_PCIE)
    assert chip_of("NVIDIA H20-3e", 78, 1_980_000, 3_201_000, 6144) == Chip(78, tensor=4)
    assert chip_of("NVIDIA H20 MIG 1g.12gb", 10, 0, 0, 0) == Chip(10, tensor=4), "a part multiplies as slowly as its chip"
    assert chip_of("NVIDIA H200 MIG 1g.18gb", 16, 0, 0, 0) == Chip(16)
    assert chip_of("of tomorrow", 132, 1_980_000, 9_000_000, 6144) == Chip(), "or numbers that nothing measured would win"
    for untold in ((0, 0, 0), (0, 2_619_000, 5120), (1_980_000, 0, 5120), (1_980_000, 2_619_000, 0)):
        assert chip_of("untold", 132, *untold).memory == MEMORY
    assert chip_of("slow", 132, 2**31 - 1, 1, 4_000_000).memory == 1, "costs divide by numbers of it"


def test_an_h200_has_the_numbers_that_were_measured():
    for kernel in KERNELS:
        assert on_chip(kernel, ARCH, H200) is kernel and on_chip(kernel, "sm_100f", H20) is kernel


def test_slower_memory_changes_no_number_of_another_kind():
    assert changed(DENSE, H100) == {"memory"} == {name for kernel in KERNELS for name in changed(kernel, H100)}


def test_every_number_of_a_block_grows_where_multiplications_take_longer():
    """A tile whose number is forgotten would win on an H20 by that mistake."""
    blocks = {"block", "turn_block", "busy_block", "alone", "shared", "last", "narrow", "all", "alone_128", "all_128"}
    for kernel in KERNELS:
        for one in tunable(kernel, ARCH):
            assert one.tensor.keys() == one.numbers.keys() & blocks and all(one.tensor.values()), (kernel.name, one)
    assert blocks == {name for kernel in KERNELS for one in kernel.variants for name in one.tensor}
    assert {name: rate for kernel in KERNELS for one in kernel.variants for name, rate in one.rates.items()} == {
        "memory": "memory",
        "warm": "tensor",
        "weights": "multiprocessors",
    }


def test_an_h100_takes_other_tiles_only_where_memory_takes_longer_than_multiplications():
    differ = [one for one in sizes(5, 100) if launch(DENSE, one, H100).variant.name != launch(DENSE, one, H100, H200).variant.name]
    assert differ
    for one in differ:
        M, N, K = one.values()
        assert ((M + N) * K + 2 * M * N) / 3350 > M * N * K / 990e3, one


def test_an_h20_takes_the_tile_that_multiplies_no_rows_in_vain():
    """43 tokens in a tile of 128: on an H200 memory hides most of that, on an H20 nothing does."""
    one = {"M": 43, "N": 10496, "K": 6656}
    like_an_h200, here = launch(DENSE, one, H20, H200).variant, launch(DENSE, one, H20).variant
    assert (like_an_h200.constants["TOKENS"], here.constants["TOKENS"]) == (128, 64)
    assert multiplying(like_an_h200, one) > 1.9 * multiplying(here, one)


@pytest.mark.parametrize("kernel", [DENSE, FOUR_BITS], ids=lambda kernel: kernel.name)
def test_an_h20_takes_no_tile_that_only_a_full_rate_of_multiplications_pays_for(kernel):
    """By counts of multiplications, not by costs. With numbers of an H200 some tiles take twice as long as the tile that multiplies least."""
    here, like_an_h200 = [], []
    for one in sizes(5, 100):
        chosen = launch(kernel, one, H20)
        alike = [
            each
            for each in tunable(kernel, ARCH)
            if each.dtypes == chosen.variant.dtypes and each.when.evaluate({**chosen.symbols, **each.symbols})
        ]
        least = min(multiplying(each, one) for each in alike)
        if least > LONG:
            here.append(multiplying(chosen.variant, one) / least)
            like_an_h200.append(multiplying(launch(kernel, one, H20, H200).variant, one) / least)
    assert len(here) > 30 and max(here) < 2 < max(like_an_h200)
    assert sum(here) < 0.95 * sum(like_an_h200)
