"""The rules of routing and of sums of rows, against plain loops and float64."""

import numpy
import pytest
from ml_dtypes import bfloat16

import zoo
from zoo.reference import kernels
from zoo.reference.experts import combine, combine_backward, dot, enough_rows, route

random = numpy.random.default_rng(3)


@pytest.mark.parametrize("padding", [1, 128])
@pytest.mark.parametrize("first", [0, 2])
def test_rows_of_an_expert_are_in_the_order_of_choices(padding, first):
    ids = random.integers(-1, 9, (40, 3))
    weights = random.standard_normal(ids.shape).astype(numpy.float32)
    found = route(ids, 6, enough_rows(ids.size, 6, padding) + 7, weights, first, padding)
    end = 0
    for expert in range(6):
        choices = [(t, j) for t in range(40) for j in range(3) if ids[t, j] == first + expert]
        rows = range(end, end + len(choices))
        assert [found.rows[choice] for choice in choices] == list(rows)
        assert found.index[rows].tolist() == [t for t, _ in choices]
        assert found.row_weights[rows].tolist() == [weights[choice] for choice in choices]
        assert found.counts[expert] == len(choices)
        end += -(-len(choices) // padding) * padding
        assert found.offsets[expert] == end
        assert (found.index[rows.stop : end] == -1).all() and (found.row_weights[rows.stop : end] == 0).all()
    assert (found.index[end:] == -1).all() and (found.row_weights[end:] == 0).all()
    assert (found.rows[(ids < first) | (ids >= first + 6)] == -1).all()


def test_enough_rows_suffice_and_one_less_does_not():
    ids = numpy.arange(5)[:, None]
    for experts in (3, 5, 9):
        rows = enough_rows(5, experts, 128)
        worst = route(ids % experts, experts, None, None, 0, 128)
        assert worst.offsets[-1] <= rows == len(worst.index)
    assert route(ids, 5, None, None, 0, 128).offsets[-1] == enough_rows(5, 5, 128)


def test_a_sum_is_that_of_float64_within_its_roundings():
    rows = random.permutation(60)[:40].reshape(10, 4).astype(numpy.int32)
    rows[2, 1] = rows[5] = -1
    d = random.standard_normal((60, 24)).astype(bfloat16)
    weights, residual = random.random((10, 4)).astype(numpy.float32), random.standard_normal((10, 24)).astype(bfloat16)
    parts = numpy.where(rows[..., None] < 0, 0, weights[..., None].astype(float) * d[rows].astype(float))
    exact = parts.sum(axis=1) + residual.astype(float)
    bound = 2.0**-8 * abs(exact) + 9 * 2.0**-24 * (abs(parts).sum(axis=1) + abs(residual.astype(float)))
    assert (abs(combine(d, rows, weights, residual).astype(float) - exact) <= bound).all()
    assert (combine(d, rows, weights, residual)[5] == residual[5]).all()


def test_nan_in_rows_of_nobody_goes_nowhere_and_zero_has_no_sign():
    d = numpy.array([[numpy.nan], [-0.0]], bfloat16)
    y = combine(d, numpy.array([[-1, 1], [-1, -1]], numpy.int32))
    assert y.view(numpy.uint16).tolist() == [[0], [0]]


@pytest.mark.parametrize("columns", [0, 8, 2048, 2064, 5000])
def test_a_dot_product_is_that_of_float64_within_its_roundings(columns):
    a, b = random.standard_normal((2, 7, columns)).astype(bfloat16)
    exact = (a.astype(float) * b.astype(float)).sum(axis=1)
    additions = 8 * -(-columns // 2048) + 5 + 8
    assert (abs(dot(a, b) - exact) <= additions * 2.0**-24 * abs(a.astype(float) * b.astype(float)).sum(axis=1)).all()


def test_gradients_are_those_of_the_sum():
    rows = numpy.array([[4, -1], [0, 2]], numpy.int32)
    d, dy = random.standard_normal((5, 16)).astype(bfloat16), random.standard_normal((2, 16)).astype(bfloat16)
    weights = numpy.array([[2, 3], [0.5, -1]], numpy.float32)
    d_rows, d_weights = combine_backward(dy, rows, weights, d)
    assert (d_rows.astype(float) == numpy.array([2, 0.5, -1])[:, None] * dy[[0, 1, 1]].astype(float)).all()
    exact = (dy[[0, 1, 1]].astype(float) * d[[4, 0, 2]].astype(float)).sum(axis=1)
    numpy.testing.assert_allclose(d_weights[[0, 1, 1], [0, 0, 1]], exact, rtol=0, atol=1e-5)
    assert d_weights[0, 1] == 0


@pytest.mark.parametrize("rows", [[[0, 3]], [[-2, 0]], [[0, 0]]], ids=["past the last", "below -1", "twice"])
def test_rows_that_are_not_there_or_not_apart_are_refused(rows):
    dy, d_rows = numpy.zeros((1, 8), bfloat16), numpy.zeros((3, 8), bfloat16)
    with pytest.raises(zoo.ArgumentError, match="rows: "):
        kernels.run("experts.combine.backward", {"dy": dy, "rows": numpy.array(rows, numpy.int32), "d_rows": d_rows})


REFUSED = {
    "rows for padding": ({"R": 8 + 7 * 127, "padding": 128, "E": 8}, "index must have T \\* top_k rows"),
    "fewer rows than choices": ({"R": 7}, "index must have T \\* top_k rows"),
    "another padding": ({"padding": 64, "R": 5000}, "padding must be 1 or 128"),
    "a negative first": ({"first": -1}, "first must be 0 or more"),
    "too many experts": ({"E": 1025}, "there must be 1 to 1024 experts"),
    "no experts": ({"E": 0}, "there must be 1 to 1024 experts"),
    "weights of rows without weights": ({"row_weights": True}, "row_weights needs weights"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_call_that_cannot_be_routed_is_refused(case):
    changed, words = REFUSED[case]
    gpu = zoo.emulator.Device("hopper")
    ids = gpu.array(numpy.zeros((4, 2), numpy.int32))
    with pytest.raises(zoo.ArgumentError, match=words):
        zoo.call("experts.route", **{"ids": ids, "E": 4, "R": 8, **changed})


def test_columns_that_16_bytes_do_not_divide_are_refused():
    gpu = zoo.emulator.Device("hopper")
    with pytest.raises(zoo.ArgumentError, match="N must be a multiple of 8"):
        zoo.call("experts.combine", d=gpu.array(numpy.zeros((2, 12), bfloat16)), rows=gpu.array(numpy.zeros((1, 2), numpy.int32)))
