"""Every product of groups with 4-bit weights is asked whether NaN in a scale of one expert stays in that expert's rows."""

import numpy
import pytest

from zoo import checks
from zoo.checks.emulated import MOST_ELEMENTS
from zoo.packaged import packaged

GROUPED = [
    kernel
    for tokens in ("fp8", "bf16")
    for form in ("nvfp4", "mxfp4")
    for kernel in packaged.find(op="gemm", formats=f"{tokens}_{form}")
    if kernel.fields["grouping"] != "dense"
]


def rows_of(problem):
    """How many rows each expert has."""
    if "rows" in problem.inputs:
        return problem.inputs["rows"].values
    return numpy.diff(problem.inputs["offsets"].values, prepend=0)


def has_nan(kernel, problem):
    """Which experts, as the kernel is given their weights."""
    if "b_scale" not in problem.inputs:
        b, of_bf16 = problem.inputs["b"].values, kernel.fields["formats"].startswith("bf16")
        b = b.reshape(*b.shape[:-2], 2 * b.shape[-1]) if "gates" in kernel.options else b
        return (b[..., -1, :] == 0xFF if of_bf16 else b[..., 2048:] == 0x7F).any((1, 2, 3))
    scales = problem.inputs["b_scale"].values.view(numpy.uint8)
    return ((scales & 0x7F == 0x7F) if kernel.fields["formats"].endswith("nvfp4") else scales == 0xFF).any(tuple(range(1, scales.ndim)))


@pytest.mark.parametrize("kernel", GROUPED, ids=lambda kernel: kernel.name)
def test_an_expert_with_nan_among_its_scales_has_rows_and_so_has_another(kernel):
    small = (problem for problem in checks.problems(kernel, kernel.variants[0]) if problem.elements <= MOST_ELEMENTS)
    assert any(rows[nan].any() and rows[~nan].any() for rows, nan in ((rows_of(one), has_nan(kernel, one)) for one in small))
