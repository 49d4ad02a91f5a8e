"""zoo.jax.call refuses an operand in another layout by its shape, in words that name the call or option that makes the right one."""

import re
from typing import Any

import pytest

import zoo
from tests.mistaken_layouts import HAZARDS, MISTAKES, Mistake
from zoo.errors import ArgumentError, ConstraintError

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")

import zoo.jax  # noqa: E402


def called(mistake: Mistake, spoilt: bool) -> Any:
    operands = {name: jax.numpy.asarray(array) for name, array in mistake.arrays(spoilt).items()}
    return zoo.jax.call(mistake.kernel, **operands, **mistake.settings)


@pytest.mark.parametrize("mistake", MISTAKES, ids=HAZARDS)
def test_an_operand_of_another_layout_is_refused_with_the_name_of_its_maker(mistake: Mistake) -> None:
    with pytest.raises((ArgumentError, ConstraintError), match=rf"{mistake.wrong[0]}\b.*{re.escape(mistake.maker)}"):
        called(mistake, spoilt=True)


@pytest.mark.parametrize("mistake", MISTAKES, ids=HAZARDS)
def test_the_operand_that_its_maker_writes_is_multiplied(mistake: Mistake) -> None:
    found = called(mistake, spoilt=False)
    assert all(getattr(found, name).shape == tuple(shape) for name, (_, *shape) in mistake.outputs.items())


def test_an_array_whose_columns_are_contiguous_is_not_read_by_rows() -> None:
    from jax.experimental.layout import Format, Layout
    from jax.sharding import SingleDeviceSharding

    from zoo.runtime.arrays import kind_of

    by_columns = Format(Layout(major_to_minor=(0, 2, 1)), SingleDeviceSharding(jax.devices()[0]))
    array = jax.device_put(jax.numpy.arange(24.0).reshape(2, 3, 4), by_columns)
    kind = kind_of(array)
    assert kind is not None and kind.describe(*kind.read(array)).strides == (12, 1, 3)
