"""Builders for instructions that compute each lane from the same lane's operands: a row of the table is then one function."""

import numpy as np

from ..lanes import FULL, mask_of


def compute(ins, function, destination, sources):
    """The closure for d = function(*sources), with `destination` and `sources` slots. `function` maps arrays of 32 to an array of 32."""
    if destination is None:
        return lambda warp, lanes: None
    d = destination
    if isinstance(function, np.ufunc) and len(sources) in (1, 2):
        return _ufunc(function, d, sources)
    if len(sources) == 1:
        (a,) = sources

        def run(warp, lanes):
            values = warp.values
            if lanes == FULL:
                values[d][...] = function(values[a])
            else:
                np.copyto(values[d], function(values[a]), where=mask_of(lanes), casting="unsafe")

    elif len(sources) == 2:
        a, b = sources

        def run(warp, lanes):
            values = warp.values
            if lanes == FULL:
                values[d][...] = function(values[a], values[b])
            else:
                np.copyto(values[d], function(values[a], values[b]), where=mask_of(lanes), casting="unsafe")

    elif len(sources) == 3:
        a, b, c = sources

        def run(warp, lanes):
            values = warp.values
            if lanes == FULL:
                values[d][...] = function(values[a], values[b], values[c])
            else:
                np.copyto(values[d], function(values[a], values[b], values[c]), where=mask_of(lanes), casting="unsafe")

    else:

        def run(warp, lanes):
            values = warp.values
            result = function(*[values[source] for source in sources])
            np.copyto(values[d], result, where=mask_of(lanes), casting="unsafe")

    return run


def _ufunc(function, d, sources):
    """A ufunc whose result has the destination's type writes in place."""
    if len(sources) == 1:
        (a,) = sources

        def run(warp, lanes):
            values = warp.values
            if lanes == FULL:
                function(values[a], out=values[d])
            else:
                function(values[a], out=values[d], where=mask_of(lanes))

        return run
    a, b = sources

    def run(warp, lanes):
        values = warp.values
        if lanes == FULL:
            function(values[a], values[b], out=values[d])
        else:
            function(values[a], values[b], out=values[d], where=mask_of(lanes))

    return run


def table(ins, function, type, count, first=1, destination_type=None):
    """d = function(sources): `count` sources of one type after the destination."""
    ins.expect_operands(first + count)
    sources = [ins.read(first + i, type) for i in range(count)]
    return compute(ins, function, ins.write(0, destination_type or type), sources)
