"""Tables of docs/performance.md: what was measured is in them, times of two chips are not mixed, and slower is called slower."""

import re

from tools.documentation.comparison import Comparison, percent
from tools.documentation.performance import libraries_page, limits_table, quantiser_table, rivals_table
from zoo.benchmark.plot import BEST_SEEN
from zoo.packaged import packaged
from zoo.shipped.evidence import evidence_of


def rows(table):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")][2:]


class Recorded:
    """Evidence of one made-up timing for each kernel's first variant of Hopper."""

    def __init__(self, device, figures, line="M=8192 K=2048"):
        self.device, self.figures, self.line = device, figures, line

    def of(self, variant):
        if variant.arch != "sm_90a":
            return {}
        return {"benchmark": {"device": self.device, "driver": "1", "date": "2026-01-01", "shapes": {self.line: self.figures}}}


def test_a_quantisers_row_has_the_shares_of_all_its_formats_and_the_worst_by_name():
    kernels = packaged.find("quantize.*.rows")
    found = rows(quantiser_table(kernels, evidence_of(packaged.directory)))
    assert [row[0] for row in found] == ["`quantize.*.rows`"]
    mean, worst, small = found[0][1:]
    assert 0.5 < float(mean.rstrip("%")) / 100 < 1.1 and float(small.rstrip("%")) < float(mean.rstrip("%"))
    assert worst.split(", ")[1] in {kernel.fields["formats"] for kernel in kernels}


def test_a_copy_that_was_slow_itself_does_not_flatter_a_quantiser():
    kernels = [packaged.kernel("quantize.mxfp8.rows")]
    size = 256 * 2**20
    usual = 1.6 + size / 1e6 / 4.25
    for slowness in (1.0, 2.0):  # the copy beside it took so many times as long
        figures = {"bytes": size, "microseconds": 2 * usual, "of_copy": slowness / 2}
        ((_, mean, *_),) = rows(quantiser_table(kernels, Recorded("NVIDIA H200", figures)))
        assert mean == "50%"


def test_a_gemm_at_the_limit_has_100_percent_and_one_of_an_unknown_chip_has_none():
    kernels = [packaged.kernel("gemm.fp8b128.dense"), packaged.kernel("gemm.bf16_mxfp4.dense")]
    teraflops, _ = BEST_SEEN["NVIDIA H200"]
    figures = {"bytes": 1, "microseconds": 1e6, "of_copy": 1.0, "operations": teraflops * 1e12}
    line = "M=4096 K=2048 N=4096"
    assert [row[2] for row in rows(limits_table(kernels, Recorded("NVIDIA H200", figures, line)))] == ["100%", "200%"]
    assert rows(limits_table(kernels, Recorded("NVIDIA H1000", figures, line))) == []


def test_few_rows_of_a_matrix_are_counted_by_groups():
    kernels = [packaged.kernel("gemm.fp8b128.m_grouped_contiguous")]
    figures = {"bytes": 1, "microseconds": 1e6, "of_copy": 1.0, "operations": 780e12}
    for tokens, place in ((4096, 1), (8192, 2)):  # 64 and 128 rows of each group
        line = f"M={tokens} K=2048 N=4096 groups=64 sizes=uniform"
        ((_, *cells),) = rows(limits_table(kernels, Recorded("NVIDIA H200", figures, line)))
        assert cells[place - 1] == "50%" and cells.count("") == 2


def record(**more):
    dense = [
        {
            "sizes": {"M": M, "N": 64, "K": 64},
            "microseconds": {"zoo": zoo, "torch block-wise": 10.0},
            "refused": {"DeepGEMM": "not installed"},
        }
        for M, zoo in ((1, 5.0), (2, 20.0), (100, 8.0))
    ]
    layers = [{"model": "gpt-oss-20b", "tokens": 8, "microseconds": {"zoo": 50.0, "torch bf16": 40.0}, "refused": {}}]
    words = {
        "device": "X",
        "driver": "1",
        "date": "2026-01-01",
        "libraries": {"torch": "2"},
        "seeds": [7],
        "less": {"torch bf16": "bf16 weights"},
    }
    return Comparison({**words, "dense": dense, "layers": layers, **more})


def test_the_mean_is_geometric_the_worst_case_is_the_slowest_and_the_absent_are_named():
    text = rivals_table(record())
    assert [row[2:] for row in rows(text)] == [["0 % faster", "100 % slower"], ["25 % faster", "25 % faster"]]
    assert "DeepGEMM has no time: not installed." in text and "X, driver 1, torch 2; 2026-01-01" in text


def test_whoever_doubts_a_figure_is_told_how_many_problems_it_has_and_the_seed_that_draws_them():
    assert "; 1 to 2 problems a band, seed 7." in rivals_table(record())
    assert "a band, seeds 3 and 4." in rivals_table(record(seeds=[3, 4]))


def test_each_form_of_zoos_kernel_has_a_row_beside_each_library_that_says_who_does_less():
    times = {"zoo": 10.0, "zoo, never promoted": 8.0, "humming": 10.0}
    experts = [{"sizes": {"tokens": 200}, "microseconds": times, "refused": {}}]
    text = libraries_page(record(experts=experts, less={"humming": "sums are never promoted"}, **{"bf16 experts": experts}))
    of_fp8, of_bf16 = text.split("## MXFP4 experts, FP8 activations")[1].split("## MXFP4 experts, bf16 activations")
    assert "| 129 to 2,048 | humming (less work) | 0 % faster |" in of_fp8
    assert "| 129 to 2,048 | humming; zoo never promoted | 25 % faster |" in of_fp8 and "| humming | 0 % faster |" in of_bf16


def test_a_part_of_an_earlier_run_has_the_date_and_the_seeds_of_that_run():
    experts = [{"sizes": {"tokens": 200}, "microseconds": {"zoo": 10.0, "humming": 10.0}, "refused": {}}]
    earlier = {"experts": {"date": "2025-12-31", "digest": "0", "seeds": [3, 4]}}
    before, after = libraries_page(record(experts=experts, earlier=earlier)).split("## MXFP4 experts, FP8 activations")
    assert "Measured 2025-12-31, seeds 3 and 4." in after and "2025" not in before and "1 to 2 problems a band, seed 7." in before


def test_percent_is_of_the_longer_time():
    assert (percent(0.5), percent(2.0), percent(1.0)) == ("100 % faster", "100 % slower", "0 % faster")
    assert not re.search(r"\d\.\d", percent(0.737))


def test_helpers_of_a_kind_share_a_row_and_none_is_lost():
    kernels = [packaged.kernel(name) for name in ("pack.mxfp4.fragments", "unpack.mxfp4.fragments")]

    class Slow(Recorded):
        def of(self, variant):
            slow = "unpack" not in variant.symbol
            self.figures = {"bytes": 2**28, "microseconds": 100.0, "of_copy": 0.25 if slow else 1.0}
            return super().of(variant)

    ((name, mean, worst, _),) = rows(quantiser_table(kernels, Slow("NVIDIA H200", {}, "G=32 N=2880 KB=1440")))
    assert name == "`pack.*`" and worst == "25%, pack.mxfp4.fragments" and 25 < int(mean.rstrip("%")) < 100
