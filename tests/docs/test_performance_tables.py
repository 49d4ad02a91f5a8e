"""A format that the contract has gets its column in docs/performance.md by being measured, without being added anywhere."""

from copy import copy
from dataclasses import replace

from tools.documentation.performance import quantiser_tables
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
