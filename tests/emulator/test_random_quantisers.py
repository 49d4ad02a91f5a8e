"""Any quantiser, dequantiser or rearrangement of scales at sizes, groups, layouts and strides that nobody thought of.

A few examples a kernel by default; ZOO_EXAMPLES=200 for a long run, ZOO_CUBINS for another folder than the packaged one.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zoo.catalog import Zoo
from zoo.checks.emulated import executor
from zoo.checks.problem import POISONS, difference
from zoo.checks.sampled import can_sample, sample
from zoo.errors import VariantError
from zoo.packaged import packaged

EXAMPLES = int(os.environ.get("ZOO_EXAMPLES", 3))
ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
KERNELS = [kernel.name for kernel in ZOO.find() if can_sample(kernel)]


class Drawn:
    """Chooses by hypothesis."""

    def __init__(self, data):
        self._data = data

    def integer(self, low, high):
        return self._data.draw(st.integers(low, high))

    def of(self, values):
        return self._data.draw(st.sampled_from(values))


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(data=st.data())
def test_a_random_call_gives_the_references_bytes(name, data):
    kernel = ZOO.kernel(name)
    variant = data.draw(st.sampled_from(kernel.variants), label="variant")
    problem = sample(kernel, variant, Drawn(data))
    try:
        wrong = difference(problem, kernel, variant, executor(ZOO), POISONS[:1])
    except VariantError:
        return  # sizes that this variant does not take; another one does
    assert wrong is None, f"{variant.arch} {variant.name}, {problem.name}: {wrong}"
