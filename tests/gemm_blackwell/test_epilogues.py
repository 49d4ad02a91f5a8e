"""Block-scaled products that end in gated units, in MXFP8 and in NVFP4, in the emulator: to the bit what zoo.reference makes of the sums.

ZOO_CUBINS: another folder of cubins than the packaged one; ZOO_SCHEDULES=20: more orders of asynchronous work.
"""

import os

import numpy
import pytest

from tests.gemm_blackwell.epilogue_problems import Epilogue, of_groups, of_matrix, of_places
from zoo.catalog import Zoo
from zoo.checks.emulated import executor
from zoo.checks.problem import POISONS, difference
from zoo.errors import ConstraintError
from zoo.packaged import packaged
from zoo.reference.block_scaled_epilogues import Gates

SCHEDULES = int(os.environ.get("ZOO_SCHEDULES", 1))
ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
TILES = ("t256_w256", "t128", "few128")
KERNELS = [
    ("mxfp8", "swiglu"), ("mxfp8", "swiglu_mxfp8"), ("mxfp8", "mxfp8"), ("mxfp4", "swiglu"),
    ("nvfp4", "swiglu"), ("nvfp4", "swiglu_nvfp4"), ("nvfp4", "nvfp4"),
]  # fmt: skip
ALTERNATING = Gates("interleaved", "gpt_oss", numpy.float32(0.75))
IN_HALVES = Gates("halves", "deepseek_v4", numpy.float32(0.5))

of_all = pytest.mark.parametrize(("format", "extra", "tile"), [(*kernel, tile) for kernel in KERNELS for tile in TILES])
of_some = pytest.mark.parametrize(
    ("format", "extra", "tile"),
    [
        (*kernel, tile)
        for kernel in (("mxfp8", "swiglu_mxfp8"), ("mxfp8", "mxfp8"), ("mxfp4", "swiglu"), ("nvfp4", "swiglu_nvfp4"))
        for tile in TILES
    ],
)
of_tiles = pytest.mark.parametrize("tile", TILES)


def wrong(grouping, format, extra, tile, problem, schedules=SCHEDULES):
    kernel = ZOO.kernel(f"gemm.{format}.{grouping}.{extra}")
    variant = next(variant for variant in kernel.variants if variant.name == tile)
    return difference(problem, kernel, variant, executor(ZOO, schedules), POISONS[:1])


@of_all
def test_gates_that_alternate_and_the_last_rows_and_columns_of_a_matrix(format, extra, tile):
    columns = 96 if "_" in extra or extra in ("mxfp8", "nvfp4") else 40
    problem = of_matrix(format, 130, 2 * columns if "swiglu" in extra else columns, 96, Epilogue(extra, ALTERNATING, gap=1))
    assert wrong("dense", format, extra, tile, problem) is None


@pytest.mark.parametrize(("format", "extra", "tile"), [(*kernel, tile) for kernel in KERNELS if "swiglu" in kernel[1] for tile in TILES])
def test_gates_in_halves_have_scales_of_their_own(format, extra, tile):
    assert wrong("dense", format, extra, tile, of_matrix(format, 9, 512, 64, Epilogue(extra, IN_HALVES, bias="bf16"))) is None


@of_tiles
@pytest.mark.parametrize("d", ["bf16", "f16"])
def test_d_is_rounded_once_to_its_dtype(tile, d):
    assert (
        wrong("dense", "nvfp4", "swiglu", tile, of_matrix("nvfp4", 5, 256, 64, Epilogue("swiglu", d=d, bias=None, scaled_rows=False)))
        is None
    )


@of_tiles
@pytest.mark.parametrize(("element", "rounding"), [("e5m2", "rceil"), ("e4m3", "rceil"), ("e5m2", "floor")])
def test_elements_and_rounding_of_mxfp8_are_those_asked_for(tile, element, rounding):
    problem = of_matrix("mxfp8", 5, 64, 64, Epilogue("mxfp8", element=element, rounding=rounding))
    assert wrong("dense", "mxfp8", "mxfp8", tile, problem) is None


@pytest.mark.parametrize("gates", [ALTERNATING, IN_HALVES])
def test_few_tokens_whose_lines_of_k_several_ctas_share(gates):
    for format, extra, K in (("mxfp8", "swiglu_mxfp8", 1056), ("nvfp4", "swiglu", 2112)):
        problem = of_matrix(format, 3, 256, K, Epilogue(extra, gates))
        assert wrong("dense", format, extra, "few128", problem) is None


@pytest.mark.parametrize(("tile", "shape"), [("t256_w256", (300, 512)), ("t128", (130, 512))])
@pytest.mark.parametrize("gates", [ALTERNATING, IN_HALVES])
def test_tiles_in_turns_whose_sums_share_columns_of_tensor_memory(tile, shape, gates):
    assert wrong("dense", "nvfp4", "swiglu_nvfp4", tile, of_matrix("nvfp4", *shape, 32, Epilogue("swiglu_nvfp4", gates))) is None


@of_some
def test_groups_end_within_a_tile_and_scales_begin_anew(format, extra, tile):
    columns = 64
    epilogue = Epilogue(extra, ALTERNATING, gap=1)
    problem = of_groups(format, 2 * columns if "swiglu" in extra else columns, 64, (0, 5, 0, 130, 1, 0), epilogue, nobody=3)
    assert wrong("m_grouped_contiguous", format, extra, tile, problem) is None


@of_tiles
def test_groups_whose_gates_are_in_halves(tile):
    for format, extra in (("mxfp8", "swiglu_mxfp8"), ("mxfp4", "swiglu")):
        problem = of_groups(format, 512, 32, (3, 129, 0, 2), Epilogue(extra, IN_HALVES, bias="bf16"))
        assert wrong("m_grouped_contiguous", format, extra, tile, problem) is None


@of_some
def test_places_are_used_in_part_to_the_edge_or_not_at_all(format, extra, tile):
    problem = of_places(format, 128 if "swiglu" in extra else 64, 64, 9, (0, 9, 1, 0, 5), Epilogue(extra, ALTERNATING, gap=1))
    assert wrong("m_grouped_masked", format, extra, tile, problem) is None


@of_tiles
def test_places_higher_than_a_tile_whose_gates_are_in_halves(tile):
    problem = of_places("nvfp4", 256, 32, 260, (129, 0, 260, 1), Epilogue("swiglu_nvfp4", IN_HALVES, several=False))
    assert wrong("m_grouped_masked", "nvfp4", "swiglu_nvfp4", tile, problem) is None


@pytest.mark.parametrize("extra", ["swiglu", "swiglu_mxfp8"])
def test_halves_that_are_no_multiple_of_128_are_refused_with_what_to_do(extra):
    with pytest.raises(ConstraintError, match="interleave them"):
        wrong("dense", "mxfp8", extra, "t128", of_matrix("mxfp8", 5, 192, 32, Epilogue(extra, IN_HALVES)))
