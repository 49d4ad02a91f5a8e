"""A width of tile that nobody ships: one row of the table and one line of numbers, and it is built and right to the bit."""

import contextlib
import shutil

import pytest

from tests.builder.build_trees import ROOT, needs_nvcc, run_build
from zoo import checks
from zoo.catalog import Zoo
from zoo.checks.emulated import executor
from zoo.checks.problem import POISONS, difference
from zoo.errors import VariantError

KERNEL = "gemm.fp8b128.dense"
TABLE, NUMBERS = "gemm/hopper_fp8/tables/product.toml", "gemm/costs/h200/fp8_product.toml"

# Tokens as columns of wgmma: those of a width whose sums come in eights of a lane, and in fours, whole and in shares of K. Weights as columns:
# one with two scales of B in a tile, one with three, one that ends in eight columns.
LINES = {
    "few72_w64": '["few72_w64", "", "", 72, 64, 6, 1, 1, 1, "", ""],',
    "few40_w64_split2": '["few40_w64_split2", "", "few_tokens_pushed", 40, 64, 6, 1, 2, 1, "", ""],',
    "t128_w104": '["t128_w104", "dense_split_k_last_wave.cu", "split_k_last_wave", 1, 128, 104, 6, 2, 16, 1, "shared_waves", ""],',
    "t128_w176": '["t128_w176", "dense_split_k_last_wave.cu", "split_k_last_wave", 0, 128, 176, 5, 2, 16, 1, "shared_waves", ""],',
}
FEW = "{ call = 1, call_constant_b = 1, busy_block = 400, busy_end = 1, turn_block = 400, turn_end = 1 }"
NUMBERS_OF = {
    "few72_w64": FEW,
    "few76_w64": FEW,
    "few40_w64_split2": FEW,
    "t128_w104": "{ block = 333, end = 1400, warm = 550, two = 1750, four = 2800 }",
    "t128_w176": "{ block = 465, end = 2080, warm = 400, two = 2470, four = 4140 }",
}
# Three rows of tiles, the last ragged; a tile of 176 at each place in a scale of B; shares of K.
SHAPES = ("257 x 136 x 16", "1 x 1160 x 16", "33 x 200 x 48", "7 x 136 x 128")


def tree_with(root, name, line):
    """The table alone, with a row more and its numbers; what else the table takes is zoo's own."""
    own = ROOT / "src_cu"
    sources = (*own.glob("gemm/hopper_fp8/kernels/*"), *own.glob("gemm/blackwell/kernels/fp8b128_*"))
    for path in (own / TABLE, own / NUMBERS, *sources):
        (root / path.relative_to(own)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path.relative_to(own))
    first_row = '    ["few8_w64", ' if name.startswith("few") else '    ["t128", '
    section = '[tile."gemm.fp8b128.dense"]\n'
    for file, old, new in ((TABLE, first_row, f"    {line}\n{first_row}"), (NUMBERS, section, f"{section}{name} = {NUMBERS_OF[name]}\n")):
        text = (root / file).read_text()
        assert old in text
        (root / file).write_text(text.replace(old, new, 1))  # the first group of the table has d in 16 bits
    return root


@needs_nvcc
@pytest.mark.parametrize("name", LINES)
def test_one_line_gives_a_variant_with_the_references_bytes(tmp_path, name):
    tree = tree_with(tmp_path / "source", name, LINES[name])
    run_build("--source", tree, "--output", tmp_path / "cubins", "--only", f"{KERNEL} {name}", "--arch", "sm_90a")
    zoo = Zoo(tmp_path / "cubins")
    (kernel,) = zoo.find(KERNEL)
    (variant,) = kernel.variants
    assert variant.spill_stores == 0
    ran = set()
    for problem in checks.problems(kernel, variant):
        if problem.name.startswith(SHAPES) or ("fills no wave" in problem.name and problem.elements <= 20_000):
            with contextlib.suppress(VariantError):  # more tokens than the tile is for
                wrong = difference(problem, kernel, variant, executor(zoo), POISONS[:1])
                assert wrong is None, f"{problem.name}: {wrong}"
                ran.add(problem.name)
    assert len(ran) >= 2


@needs_nvcc
def test_a_width_that_wgmma_has_not_is_refused_in_words(tmp_path):
    tree = tree_with(tmp_path / "source", "few76_w64", LINES["few72_w64"].replace("72", "76"))
    said = run_build("--source", tree, "--output", tmp_path / "cubins", "--only", f"{KERNEL} few76_w64", "--arch", "sm_90a", status=1)
    assert "wgmma has 8 columns or a multiple of 8, 256 at most" in said
