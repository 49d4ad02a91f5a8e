"""How far D of gemm.fp8b128 may be from the rule of zoo.reference where a GPU adds in an order that none has confirmed: Blackwell's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy

from zoo.checks.problem import Later, Placed, Problem
from zoo.reference.block_scaled_gemm import error_bound
from zoo.reference.gemm_powers_of_two import ue8m0_of_powers
from zoo.reference.small_floats import E4M3, decode, decode_e8m0

_BLOCK = 128
_ROUNDING = {"bfloat16": (2.0**-8, 2.0**-133), "float16": (2.0**-11, 2.0**-24), "float32": (2.0**-24, 2.0**-149)}


def with_bounds(problem: Problem) -> Problem:
    """The same, whose D says how far it may be off."""

    def outputs() -> dict[str, Placed]:
        d = problem.outputs["d"]
        return {"d": replace(d, within=_bound({name: placed.values for name, placed in problem.inputs.items()}, d))}

    return replace(problem, outputs=Later(outputs))


def _bound(inputs: Mapping[str, numpy.ndarray], d: Placed) -> numpy.ndarray:
    """What sums in any order may differ by, times the rows' factors, and what each rounding after that may."""
    factors = numpy.abs(inputs.get("row_scale", numpy.ones(d.values.shape[:-1])).astype(numpy.float64))[..., None]
    added = [one.astype(numpy.float64) for one in (inputs.get("c"), d.before) if one is not None]
    step, smallest = _ROUNDING[d.values.dtype.name]
    with numpy.errstate(all="ignore"):
        magnitudes, K = _magnitudes(inputs, d.values.shape)
        sums = 2 * error_bound(magnitudes, K) * factors  # of the rule, and of another
        rounded = (magnitudes * factors + sum(map(numpy.abs, added))) * 2.0**-22
        return numpy.asarray(sums + rounded + 2 * (step * numpy.abs(d.values.astype(numpy.float64)) + smallest))


def _magnitudes(inputs: Mapping[str, numpy.ndarray], shape: tuple[int, ...]) -> tuple[numpy.ndarray, int]:
    """Sums of |a b|, of rows that are nobody's zeros; and how many elements are added up."""
    a, b = (numpy.abs(decode(inputs[name], E4M3).astype(numpy.float64)) for name in ("a", "b"))
    a_scale, b_scale = (decode_e8m0(ue8m0_of_powers(inputs[name])).astype(numpy.float64) for name in ("a_scale", "b_scale"))
    K, found = a.shape[-1], numpy.zeros(shape)
    if "offsets" in inputs and b.ndim == 2:
        begin = block = 0
        for group, end in enumerate(inputs["offsets"].tolist()):
            for first in range(begin, end, _BLOCK):
                part = slice(first, min(first + _BLOCK, end))
                found[group] += (a[:, part] * a_scale[:, block, None]) @ (b[:, part] * b_scale[:, block, None]).T
                block += 1
            begin = end
        return found, K
    left = a * _along(a_scale, K, -1)
    right = b * _along(_along(b_scale, K, -1), b.shape[-2], -2)
    if b.ndim == 2:
        return left @ right.T, K
    if "rows" in inputs:
        return left @ numpy.swapaxes(right, -1, -2), K
    if "index" in inputs:
        index = inputs["index"]
        there = (index >= 0) & (index < len(left))
        left = numpy.where(there[:, None], left[numpy.where(there, index, 0)], 0)
    owners = inputs.get("m_indices")
    if owners is None:
        sizes = numpy.diff(inputs["offsets"], prepend=0)
        owners = numpy.append(numpy.repeat(numpy.arange(len(sizes)), sizes), numpy.full(shape[0] - sizes.sum(), -1))
    for group in range(len(b)):
        found[owners == group] = left[owners == group] @ right[group].T
    return found, K


def _along(scales: numpy.ndarray, extent: int, axis: int) -> numpy.ndarray:
    return numpy.asarray(numpy.take(scales, numpy.arange(extent) // _BLOCK, axis))
