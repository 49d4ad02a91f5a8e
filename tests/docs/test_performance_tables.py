"""Tables of docs/performance.md: a format has a column by being measured, and times of two chips are not divided by each other."""

from copy import copy
from dataclasses import replace

from tools.documentation.performance import four_bit_dense_table, four_bit_grouped_table, grouped_table, quantiser_tables, swiglu_table
from zoo.shipped.evidence import evidence_of
from zoo.shipped.packaged import packaged


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


def test_times_of_4_bit_weights_of_two_chips_make_no_ratio():
    kernels = packaged.find("gemm.*fp4.*")
    one, two = evidence_of(packaged.directory), OfTwoChips("gemm.fp8_nvfp4.m_grouped_gather", "NVIDIA H100 80GB HBM3")
    assert any(cells(four_bit_grouped_table(kernels, one), 5)) and not any(cells(four_bit_grouped_table(kernels, two), 5))


class WithoutTimes:
    """The packaged evidence, but for one variant's times."""

    def __init__(self, left_out):
        self.evidence, self.left_out = evidence_of(packaged.directory), left_out

    def of(self, variant):
        record = dict(self.evidence.of(variant))
        return {name: what for name, what in record.items() if name != "benchmark"} if variant.sha256 == self.left_out else record


def test_a_size_that_one_format_was_not_timed_at_is_in_no_formats_mean():
    kernels, dense = packaged.find("gemm.*fp4.*"), packaged.kernel("gemm.fp8_nvfp4.dense")
    all_of_them = four_bit_dense_table(kernels, evidence_of(packaged.directory))
    timed = next(variant for variant in dense.variants if "benchmark" in evidence_of(packaged.directory).of(variant))
    fewer = four_bit_dense_table(kernels, WithoutTimes(timed.sha256))
    counts = [sum(map(int, cells(found, 2))) for found in (all_of_them, fewer)]
    assert counts[1] < counts[0] and fewer.splitlines()[0] == all_of_them.splitlines()[0]
    assert all(cell for line in fewer.splitlines()[2:] for cell in line.split("|")[1:-1])
