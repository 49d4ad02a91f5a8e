"""What the clock is held to: pairs of calls whose recorded times differ."""

from tools.trace_validation import right_orders


def test_pairs_that_hardly_differ_are_not_judged():
    assert right_orders([(2.0, 10.0), (1.0, 10.9), (3.0, 20.0)]) == (2, 2)


def test_a_wrong_order_counts_against_the_clock():
    assert right_orders([(3.0, 10.0), (2.0, 20.0), (4.0, 40.0)]) == (2, 3)
