"""The checks of quantize.fp8token.rows.swiglu: the reference passes, and each slightly wrong kernel fails."""

from dataclasses import replace

import numpy
import pytest

import zoo
from tests.checks.described import found, put
from zoo import checks
from zoo.checks import quantize_tokens
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference.token_rows import GatedRows, quantize_token_rows

KERNEL = zoo.kernel("quantize.fp8token.rows.swiglu")
VARIANT = next(one for one in KERNEL.variants if one.dtypes["x"] == "bf16")


def executor(change=lambda rows: rows, change_h=lambda h: h, forgets_ends=False):
    """The reference as a kernel. `change` alters the options of the rows, `change_h` the rows after the activation."""

    def execute(kernel, variant, buffers, settings):
        after = {name: buffer.image.copy() for name, buffer in buffers.items()}
        x = found(buffers, after, "x", numpy_dtype(variant.dtypes["x"]))
        x = x.reshape(len(x), x[:1].size if len(x) else 0)
        groups = {
            name: found(buffers, after, name, dtype)
            for name, dtype in (("offsets", numpy.int32), ("alpha", numpy.float32))
            if name in buffers
        }
        limit = numpy.float32(settings.get("limit", numpy.finfo(numpy.float32).max))
        rows = change(GatedRows(settings["gates"], settings["activation"], limit, **groups))
        if forgets_ends and rows.alpha is None:
            rows = replace(rows, offsets=None)
        result = quantize_token_rows(change_h(rows.h(x)), settings["order"])
        put(buffers, after, "q", result.q)
        put(buffers, after, "scales", result.scales)
        return after

    return execute


def without_alpha(rows):
    return replace(rows, alpha=None)


def alpha_swapped(rows):
    return rows if rows.alpha is None else replace(rows, alpha=rows.alpha[:, ::-1])


def alpha_of_gates_for_both(rows):
    return rows if rows.alpha is None else replace(rows, alpha=rows.alpha[:, [0, 0]])


def alpha_of_the_next_group(rows):
    """Each row uses the factors of the previous group, as if a group began one row too late."""
    return rows if rows.alpha is None else replace(rows, alpha=numpy.roll(rows.alpha, 1, axis=0))


def another(**chosen):
    return lambda rows: replace(rows, **chosen)


def packed_as_halves(rows):
    return replace(rows, gates="halves") if rows.gates == "packed" else rows


def test_a_right_kernel_passes():
    outcome = checks.check(KERNEL, VARIANT, executor())
    assert outcome.error is None and outcome.checks > 100


@pytest.mark.parametrize(
    "changes",
    [
        *({"change": one} for one in (without_alpha, alpha_swapped, alpha_of_gates_for_both, alpha_of_the_next_group, packed_as_halves)),
        {"change": another(activation="silu")},
        {"change": another(activation="deepseek_v4")},
        {"change": another(limit=numpy.float32(7))},
        {"change_h": lambda h: h.astype(numpy_dtype("bf16")).astype(numpy.float32)},
    ],
    ids=[
        "no alpha", "gates' alpha and ups' swapped", "gates' alpha for ups", "alpha of another group", "packed gates read as halves",
        "every activation is silu", "every activation is deepseek_v4", "another limit", "h rounded to bf16",
    ],
)  # fmt: skip
def test_a_slightly_wrong_kernel_is_caught(changes):
    assert "wrong" in checks.check(KERNEL, VARIANT, executor(**changes)).error


def test_a_kernel_that_writes_rows_after_the_last_group_is_caught():
    assert "not the kernel's were written" in checks.check(KERNEL, VARIANT, executor(forgets_ends=True)).error


def test_every_combination_of_order_gates_and_activation_is_checked():
    seen = {tuple(one.settings[name] for name in ("order", "gates", "activation")) for one in quantize_tokens.problems(KERNEL, VARIANT)}
    assert len(seen) == 2 * 3 * 3
