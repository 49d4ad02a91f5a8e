"""A width of tile that nobody ships: one line of the table, one of numbers where its cost is measured, and it is built and right to the bit."""

import contextlib
import shutil

import pytest

from tests.builder.build_trees import ROOT, edited, needs_nvcc, run_build
from zoo import checks
from zoo.catalog import Zoo
from zoo.checks.emulated import executor
from zoo.checks.problem import POISONS, difference
from zoo.errors import VariantError

KERNEL = "gemm.fp8b128.dense"
TABLE, NUMBERS = "gemm/fp8b128_dense.toml", "gemm/costs/h200.toml"
AS_ROWS = 'launch = "many_tokens", source = "fp8b128_dense_rest.cu", way = "shared_rest"'

# Tokens as columns of wgmma: those of a width whose sums come in eights of a lane, and in fours, whole and in shares of K. Weights as columns:
# one with two scales of B in a tile, one with three, one that ends in eight columns.
LINES = {
    "few72_w64": '{ name = "few72_w64", launch = "few_tokens", constants = { TOKENS = 72, CTAS = 1 }, when = "not d.f32 and M <= 72", cost = "BLOCKS * 400" },',
    "few40_w64_split2": '{ name = "few40_w64_split2", launch = "few_tokens", way = "few_tokens_pushed", constants = { TOKENS = 40, SPLITS = 2, CTAS = 1 }, when = "not d.f32 and M <= 40 and batch_invariant.no", cost = "BLOCKS * 300" },',
    "t128_w104": f'{{ name = "t128_w104", {AS_ROWS}, constants = {{ SWAPPED = 0, WEIGHTS = 104, WARPGROUPS = 2, BAND = 16, CTAS = 1, RESTS = 1 }}, when = "not d.f32", cost = "shared_waves" }},',
    "t128_w176": f'{{ name = "t128_w176", {AS_ROWS}, constants = {{ SWAPPED = 0, OVERLAPPED = 0, WEIGHTS = 176, STAGES = 5, WARPGROUPS = 2, BAND = 16, CTAS = 1, RESTS = 1 }}, when = "not d.f32", cost = "shared_waves" }},',
}
MEASURED = {
    "t128_w104": "t128_w104 = { block = 333, end = 1400, warm = 550, two = 1750, four = 2800 }",
    "t128_w176": "t128_w176 = { block = 465, end = 2080, warm = 400, two = 2470, four = 4140 }",
}
# Three rows of tiles, the last ragged; a tile of 176 at each place in a scale of B; shares of K.
SHAPES = ("257 x 136 x 16", "1 x 1160 x 16", "33 x 200 x 48", "7 x 136 x 128")


def tree_with(root, line, numbers=""):
    """The dense table alone, with a line more; what else it takes is zoo's own."""
    (root / NUMBERS).parent.mkdir(parents=True)
    own = ROOT / "src_cu"
    for path in (own / TABLE, own / NUMBERS, *own.glob("gemm/fp8b128_dense_*.cu"), own / "gemm/fp8b128_blackwell.cu"):
        shutil.copy(path, root / path.relative_to(own))
    for name, before, new in ((TABLE, '    { name = "few8_w64", ', f"    {line}\n"), (NUMBERS, "t192 = ", f"{numbers}\n")):
        (root / name).write_text(edited((root / name).read_text(), (before, new + before)))
    return root


@needs_nvcc
@pytest.mark.parametrize("name", LINES)
def test_one_line_gives_a_variant_with_the_references_bytes(tmp_path, name):
    tree = tree_with(tmp_path / "source", LINES[name], MEASURED.get(name, ""))
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
    tree = tree_with(tmp_path / "source", LINES["few72_w64"].replace("72", "76"))
    said = run_build("--source", tree, "--output", tmp_path / "cubins", "--only", f"{KERNEL} few76_w64", "--arch", "sm_90a", status=1)
    assert "wgmma has 8 columns or a multiple of 8, 256 at most" in said
