"""Tables of docs/performance.md: a format has a column by being measured, and times of two chips are not divided by each other."""

from copy import copy
from dataclasses import replace

from tools.documentation.performance import four_bit_dense_table, four_bit_grouped_table, grouped_table, quantiser_tables, swiglu_table
from zoo.packaged import packaged
from zoo.shipped.evidence import evidence_of


def test_a_format_that_is_measured_has_a_column_in_the_contracts_order():
    evidence, rows = evidence_of(packaged.directory), packaged.find("quantize.*.rows")
    measured = next(kernel for kernel in rows if any("benchmark" in evidence.of(variant) for variant in kernel.variants))
    other = copy(measured)
    name = measured.name.replace(measured.fields["formats"], "fp8token")
    object.__setattr__(other, "name", name)
    object.__setattr__(other, "fields", {**measured.fields, "formats": "fp8token"})
    named = tuple(replace(variant, symbol=f"{name.replace('.', '_')}__{variant.name}") for variant in measured.variants)
    object.__setattr__(other, "variants", named)
    before, after = (quantiser_tables(kernels, evidence).splitlines() for kernels in ([measured], [other, measured]))
    assert "fp8token" not in before[0]
    assert [cell.strip() for cell in after[0].split("|")[2:-1]] == [measured.fields["formats"], "fp8token"]
    first, second = after[2].split("|")[2:-1]
    assert first == second and first.strip(), "both columns hold the same kernel's share"


class OfTwoChips:
    """The packaged evidence, but for one kernel's benchmarks, which are another chip's."""

    def __init__(self, name, device):
        self.evidence, self.device = evidence_of(packaged.directory), device
        self.moved = {variant.sha256 for variant in packaged.kernel(name).variants}

    def of(self, variant):
        record = dict(self.evidence.of(variant))
        if variant.sha256 in self.moved and "benchmark" in record:
            record["benchmark"] = {**record["benchmark"], "device": self.device}
        return record


def cells(table, column):
    return [line.split("|")[column].strip() for line in table.splitlines()[2:]]


def test_times_of_two_chips_make_no_ratio():
    kernels = packaged.find("gemm.fp8b128.*")
    one, two = evidence_of(packaged.directory), OfTwoChips("gemm.fp8b128.m_grouped_gather", "NVIDIA H100 80GB HBM3")
    assert any(cells(grouped_table(kernels, one), -2)) and not any(cells(grouped_table(kernels, two), -2))
    two = OfTwoChips("gemm.fp8b128.dense.swiglu", "NVIDIA H100 80GB HBM3")
    assert "`dense`" in cells(swiglu_table(kernels, one), 1) and "`dense`" not in cells(swiglu_table(kernels, two), 1)


SIZES = {
    "dense": "M={} K=2048 N=4096",
    "m_grouped_contiguous": "M={} K=2048 N=4096 groups=8 sizes=uniform",
    "m_grouped_gather": "T=9 M={} K=2048 N=4096 groups=8 sizes=uniform",
}


class MadeUp:
    """Times of products with packed 4-bit weights: of the first variant of each and of the second at another size, but for those left out."""

    def __init__(self, chip_of_gathered="NVIDIA H200", left_out=()):
        self.records = {}
        for kernel in packaged.find("gemm.*fp4.*"):
            formats, grouping = kernel.fields.get("formats", ""), kernel.fields["grouping"]
            if not formats.startswith(("fp8_", "bf16_")) or "extra" in kernel.fields or grouping not in SIZES:
                continue
            device = chip_of_gathered if grouping == "m_grouped_gather" else "NVIDIA H200"
            for number, variant in enumerate([one for one in kernel.variants if one.arch == "sm_90a"][:2]):
                if (kernel.name, number) not in left_out:
                    record = self.records.setdefault(variant.sha256, {"device": device, "driver": "1", "shapes": {}})
                    figures = {"bytes": 10**7, "microseconds": 9.0, "operations": 10**9, "torch_product_microseconds": 12.0}
                    shared = not variant.symbol.startswith(kernel.name.replace(".", "_") + "__")
                    record["shapes"][f"kernel={kernel.name} " * shared + SIZES[grouping].format(8 + number)] = figures

    def of(self, variant):
        return {"benchmark": self.records[variant.sha256]} if variant.sha256 in self.records else {}


def test_times_of_4_bit_weights_of_two_chips_make_no_ratio():
    kernels = packaged.find("gemm.*fp4.*")
    one, two = MadeUp(), MadeUp(chip_of_gathered="NVIDIA H100 80GB HBM3")
    assert all(cells(four_bit_grouped_table(kernels, one), 5)) and not any(cells(four_bit_grouped_table(kernels, two), 5))


def test_a_size_that_one_format_was_not_timed_at_is_in_no_formats_mean():
    kernels = packaged.find("gemm.*fp4.*")
    all_of_them, fewer = (four_bit_dense_table(kernels, MadeUp(left_out=one)) for one in ((), {("gemm.fp8_nvfp4.dense", 0)}))
    counts = [sum(map(int, cells(found, 2))) for found in (all_of_them, fewer)]
    assert counts == [2, 1] and fewer.splitlines()[0] == all_of_them.splitlines()[0]
    assert all(cell for line in fewer.splitlines()[2:] for cell in line.split("|")[1:-1])


def test_cubins_that_nobody_has_timed_have_no_empty_table():
    kernels = packaged.find("gemm.*fp4.*")
    for made in (four_bit_dense_table, four_bit_grouped_table):
        assert "|" not in made(kernels, MadeUp(left_out={(kernel.name, number) for kernel in kernels for number in (0, 1)}))
