"""The checks of SwiGLU's backward: the reference passes, and each way to be slightly wrong does not."""

import numpy
import pytest

import zoo
from tests.reference.test_kernels import by_the_rule
from zoo import checks
from zoo.reference import swiglu_backward as rule
from zoo.reference.kernels import quantisers
from zoo.reference.swiglu_backward import Gradients, swiglu_backward

NAMES = [f"quantize.fp8b128.both.{grouping}.swiglu_backward" for grouping in ("m_grouped_contiguous", "m_grouped_padded")]
FEW = 20_000  # elements: what the emulator runs


def outcome(name=NAMES[0], most=FEW, execute=by_the_rule):
    kernel = zoo.kernel(name)
    return checks.check(kernel, kernel.variants[0], execute, most, (0xA5,))


@pytest.mark.parametrize("name", NAMES)
def test_a_right_kernel_passes(name):
    found = outcome(name)
    assert found.error is None
    assert found.checks > 35 and 15 < found.left_out < 30


def with_settings(**changes):
    def execute(kernel, variant, buffers, settings):
        return by_the_rule(kernel, variant, buffers, {**settings, **changes})

    return execute


@pytest.mark.parametrize("changes", [{"scaling": "exact"}, {"activation": "silu"}, {"activation": "deepseek_v4"}, {"limit": 8.0}], ids=str)
def test_an_option_that_is_ignored_is_caught(changes):
    assert "wrong" in outcome(execute=with_settings(**changes)).error


def weights_left_out(d, h, order, activation, limit, weights):
    return swiglu_backward(d, h, order, activation, limit, None)


def zero_times_nan(d, h, order, activation, limit, weights):
    if weights is None:
        return swiglu_backward(d, h, order, activation, limit, weights)
    ones = swiglu_backward(d, h, order, activation, limit, numpy.where(weights == 0, numpy.float32(1), weights))
    factor = numpy.where(weights == 0, 0, 1).astype(ones.act.dtype)[:, None]
    return Gradients(ones.d_h * factor, ones.act * factor, ones.dots)


def not_rounded_to_bf16(d, h, order, activation, limit, weights):
    """Quantised from float32."""
    found = swiglu_backward(d, h, order, activation, limit, weights)
    return found._replace(act=found.act.astype(numpy.float32) * numpy.float32(1.001))


def dots_of_weighted_act(d, h, order, activation, limit, weights):
    found = swiglu_backward(d, h, order, activation, limit, weights)
    return found if weights is None else found._replace(dots=found.dots * weights[:, None])


@pytest.mark.parametrize("mutant", [weights_left_out, zero_times_nan, not_rounded_to_bf16, dots_of_weighted_act])
def test_a_slightly_wrong_kernel_is_caught(mutant, monkeypatch):
    monkeypatch.setattr(quantisers, "swiglu_backward", mutant)
    assert "wrong" in outcome().error


def in_another_order(d, act):
    columns = d.shape[1]
    pad = numpy.zeros((len(d), -columns % 128), numpy.float32)
    wide = numpy.concatenate((d * act, pad), axis=1)
    return wide.reshape(len(d), -(-columns // 128), 128).sum(axis=2)


def with_part(name, part):
    """A kernel whose rule has another part. What is expected of it is known before it runs."""

    def execute(*launch):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rule, name, part)
            return by_the_rule(*launch)

    return execute


def test_a_sum_in_another_order_is_caught():
    assert "dots: " in outcome(execute=with_part("parts_of_dots", in_another_order)).error


def test_a_limit_whose_equal_has_no_gradient_is_caught():
    right = rule.gradients

    def gradients(gate, up, d, activation, limit):
        act, d_gate, d_up = right(gate, up, d, activation, limit)
        return act, numpy.where((gate == limit) & (activation != "silu"), numpy.float32(0), d_gate), d_up

    assert outcome(execute=with_part("gradients", gradients)).error.startswith("gates and ups around the limits")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("output", ["q_rows", "scales_rows", "dots"])
def test_a_row_of_nobody_that_is_written_is_caught(name, output):
    def execute(kernel, variant, buffers, settings):
        after = by_the_rule(kernel, variant, buffers, settings)
        used = int(buffers["offsets"].laid.elements(after["offsets"])[-1])
        if output in buffers:
            elements = buffers[output].laid.elements(after[output])
            if len(elements) > used:
                elements[used, 0] ^= 1
        return after

    assert f"{output}: " in outcome(name, execute=execute).error
