"""Problems for products of 4-bit gates and ups, packed or as they are stored, that end in their activation; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy

from zoo.checks.gemm_four_bit import ODD_SCALES, Way, stored_weights
from zoo.checks.layouts import in_rows
from zoo.checks.pairs import Drawn, Pairs
from zoo.checks.problem import Later, Placed, Problem
from zoo.checks.remembered import remembered
from zoo.checks.repeated_rows import TOKENS, WEIGHTS, again, drawn_rows
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.block_scaled_epilogues import Gates
from zoo.reference.four_bit_gated import Steps, h_of_sums, quantised_by, quantised_in_blocks
from zoo.reference.four_bit_weights import NO_LARGEST, largest_scales, mxfp4_as_bf16, mxfp4_as_e4m3, nvfp4_as_bf16, nvfp4_as_e4m3
from zoo.reference.fragment_words import ROWS
from zoo.reference.fragments import pack_mxfp4, pack_nvfp4, permuted_columns
from zoo.reference.gemm import rounded
from zoo.reference.swiglu import ACTIVATIONS

# (M, columns of h, K): around 8 and 16 columns, the 64 of a tile and the 128 that share a scale; tiles of 8 to 128 tokens; 32 and 64 of K, blocks
# of 256, a ring of stages; 384 and 512 of K, where rows of stored scales are read whole. Those that an emulator can take come first; 8, 72 and
# 136 columns are none for e4m3.
_SHAPES = (
    (1, 16, 64), (9, 80, 96), (33, 64, 32), (7, 144, 96), (65, 16, 32), (129, 32, 32), (17, 128, 96), (3, 208, 64), (2, 192, 64), (5, 16, 1120),
    (8, 8, 320), (130, 72, 64), (20, 136, 32), (257, 16, 32), (12, 16, 384),
    (12, 80, 512), (200, 144, 416), (300, 336, 672), (517, 1440, 2880), (16, 2880, 2880), (128, 2880, 1184), (64, 272, 4128),
)  # fmt: skip
_GROUPINGS = ("dense", "m_grouped_contiguous", "m_grouped_masked", "m_grouped_gather")
_SPECIAL = ((9, 80, 96), (11, 144, 64), (70, 16, 32))

# (columns of h, K, sizes of groups, more rows, which are nobody's): that end within a tile, at its edge, one after it; empty ones first, last
# and in a row; more groups than lanes of a warp; one that owns everything; rows of stored scales that are read whole; as many rows as the widths
# that a tile may be multiplied at, and one more.
_GROUPS = (
    (16, 64, (0, 7, 0, 0, 20, 13), 3),
    (64, 32, (1, 128, 0, 1), 0),
    (16, 320, (3, 3), 3),
    (32, 32, (0, 0, 0), 33),
    (16, 32, (177,), 13),
    (144, 32, (3, 0, 17), 0),
    (80, 64, (5, 2), 1),
    (208, 32, (65, 9), 0),
    (16, 384, (2, 5), 1),
    (16, 32, (0,) * 31 + (3, 4, 0, 1), 2),
    (16, 32, (0, 0), 2),
    (16, 32, (), 3),
    (16, 64, (32, 33, 72, 73, 5), 4),
    (48, 256, (3, 0, 9), 1),
    (272, 416, (128, 0, 129, 256, 63, 1, 64), 9),
    (144, 1184, (1,) * 40 + (0,) * 20 + (193,), 0),
    (2880, 2880, (17, 0, 130), 1),
)


@dataclass(frozen=True)
class _Weights:
    """Of one group: as the kernel takes them, and the numbers and powers of two that they stand for, in the order before packing."""

    b: numpy.ndarray
    largest: numpy.ndarray | None
    weights: numpy.ndarray
    powers: numpy.ndarray
    scales: numpy.ndarray | None  # where b is not packed


@dataclass(frozen=True)
class _Call:
    """Everything but A and the weights."""

    gates: Gates
    steps: Steps  # of all rows; alpha and bias of each group
    dtype: str
    scaling: str
    in_fragments: bool
    known: numpy.ndarray | None
    columns_first: bool  # scales of the result: M is contiguous
    gap: int
    way: Way  # scales of a for 1 x 128, if there are
    apart: int  # bytes between stored scales of groups, after which they can be read whole where their rows can, or not


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    return iter(_Problems(kernel))


class _Problems:
    def __init__(self, kernel: Kernel) -> None:
        self.grouping, self.formats = kernel.fields["grouping"], kernel.fields["formats"]
        self.of_bf16, self.of_nvfp4 = self.formats.startswith("bf16"), self.formats.endswith("nvfp4")
        self.tokens = "bf16" if self.of_bf16 else "fp8"
        self.quantised, self.stored = "fp8b128" in kernel.fields["extra"], kernel.fields["extra"].endswith("_stored")
        self.properties, self.numbers = self._properties(), itertools.count()
        self.pairs = Pairs(self.properties, _GROUPINGS.index(self.grouping), _idle)

    def _properties(self) -> dict[str, Sequence[Any]]:
        """What a call has in some way or other, each drawn for itself."""
        found: dict[str, Sequence[Any]] = {
            "order": ("halves", "interleaved"),
            "activation": tuple(ACTIVATIONS),
            "limit": (0.5, 7.0, 3.0e38),
            "alphas": (0, 1, 2),
            "bias": (None, "bf16", "f32"),
            "a_scale": (False, True),  # of FP8
            "row_scale": (False, True),
            "gap": (0, 1, 2),
        }
        if not self.of_bf16:
            found["block_scale"] = ("none", "rows first", "columns first")
        if self.quantised:
            found |= {"scaling": ("exact", "pow2"), "known": ("none", "one", "each"), "in_fragments": (False, True)}
            found["columns_first"] = (False, True)
        else:
            found["dtype"] = ("bf16", "f16")
        if self.grouping != "dense":
            found |= {"special": (False, True), "weights": ("near", "of all kinds")}
        if self.grouping != "dense" and self.stored:
            found |= {"apart": (False, True), "whole": (False, True)}  # whole: rows of scales, which K says
        return found

    def __iter__(self) -> Iterator[Problem]:
        if self.grouping != "dense":
            for place, (columns, K, sizes, more) in enumerate(_GROUPS):
                if place == 0:  # that an emulator can take: for tiles of either scales of a, and weights with NaN
                    yield self._of_groups(columns, K, sizes, more, False, block_scale=("columns first",))
                    yield self._of_groups(columns, K, sizes, more, False, block_scale=("none",))
                    yield self._of_groups(columns, K, sizes, more, True, block_scale=("none",), weights=("of all kinds",))
                    continue
                for special in (False, True):
                    yield self._of_groups(columns, K, sizes, more, special)
            return
        for shape in _SHAPES:
            if not self.quantised or shape[1] % 16 == 0:
                yield self._dense("usual numbers", shape)
        hostile = itertools.cycle(_SPECIAL)
        yield self._dense("NaN in one row of a stays there", next(hostile), a_value=numpy.nan)
        yield self._dense("a scale of b that is NaN stays in its column, or its block", next(hostile), weights="NaN")
        yield self._dense("rows of zeros", next(hostile), a_value=0, bias=(None,))
        yield self._dense("rows of b without a code", next(hostile), weights="zeros")
        yield self._dense("gates and ups of all magnitudes", next(hostile), weights="spread", activation=("silu",))
        yield self._dense("sums too small for a number", next(hostile), alpha=2.0**-140, activation=("silu",), alphas=(1,), bias=(None,))
        if not self.of_nvfp4:
            yield self._dense("scales of b that are the smallest", next(hostile), weights="smallest", bias=(None,))
        if self.stored:
            words, kind = ("negative scales turn signs", "negative") if self.of_nvfp4 else ("scales larger than is said", "capped")
            yield self._dense(words, next(hostile), weights=kind)
        for values in ((numpy.inf,), (-numpy.inf, -3.0e38), (numpy.nan,), (0.0, -0.0, 2.0**-149, 2.0**-126), (3.0e38, -3.0e38)):
            said = " and ".join(map(str, values))
            yield self._dense(f"bias of {said}", next(hostile), biases=values, bias=("f32",))
        yield self._dense("rows scaled by zero, -1, infinity, NaN, tiny and huge", next(hostile), odd_rows=True, row_scale=(True,))
        if not self.of_bf16:
            said = f"scales of a for 1 x 128 that are {', '.join(ODD_SCALES)}"
            yield self._dense(said, (11, 48, 288), odd_scales=True, block_scale=("rows first",))
        for known in (2.0**-140, 2.0**120, numpy.inf, numpy.nan, 0.0) if self.quantised else ():
            yield self._dense(f"a known scale of {known}", next(hostile), known_scale=known, known=("one",))
        yield self._dense("no rows", (0, 32, 32))

    def _draw(self, G: int, rows: int, **only: Sequence[Any]) -> Drawn:
        """`only`: what properties may be. Where groups have no rows, nothing comes of them."""
        of_one: dict[str, Sequence[Any]] = {"known": ("none", "one"), "weights": ("near",), "apart": (False,)} if G < 2 else {}
        return self.pairs.draw({name: values for name, values in (of_one | only).items() if name in self.properties}, seen=rows > 0)

    def _call(self, M: int, N: int, G: int, K: int, drawn: Drawn) -> tuple[str, _Call]:
        """What a call has besides, and in words."""
        random = numpy.random.default_rng([M, N, next(self.numbers)])
        gates = Gates(drawn["order"], drawn["activation"], numpy.float32(drawn["limit"]))
        alphas, bias = drawn["alphas"], drawn["bias"]
        alpha = random.uniform(0.05, 0.3, (G, alphas)).astype(numpy.float32) / numpy.float32(K**0.5)
        steps = Steps(
            alpha=alpha if alphas else None,
            a_scale=random.uniform(0.5, 2, M).astype(numpy.float32) if drawn["a_scale"] and not self.of_bf16 else None,
            bias=None if bias is None else cast(random.standard_normal((G, N)), bias),
            row_scale=random.uniform(0.01, 1, M).astype(numpy.float32) if drawn["row_scale"] else None,
        )
        known = {"one": 1, "each": G}.get(drawn.get("known", "none"))
        call = _Call(
            gates=gates,
            steps=steps,
            dtype=drawn.get("dtype", ""),
            scaling=drawn.get("scaling", ""),
            in_fragments=drawn.get("in_fragments", False),
            known=None if known is None else random.uniform(0.001, 0.02, known).astype(numpy.float32),
            columns_first=drawn.get("columns_first", False),
            gap=drawn["gap"],
            way=Way(),
            apart=(8 if K % 128 == 0 else 5) * drawn.get("apart", False),
        )
        if drawn.get("block_scale", "none") != "none":
            scales = numpy.exp2(random.uniform(-6, 6, (M, -(-K // 128)))).astype(numpy.float32)
            call = replace(call, way=Way(scales, drawn["block_scale"] == "columns first"))
        given = [f"{name} {array.dtype} {array.shape[1:]}" for name, array in vars(steps).items() if array is not None]
        result = [call.dtype or call.scaling]
        given += ["a_block_scale"] * (call.way.scales is not None)
        result += [f"known scales: {known}"] * (known is not None) + ["in fragments"] * call.in_fragments
        return f"{gates.order} {gates.activation} {gates.limit:g}, {', '.join(result)}, with {' '.join(given) or 'nothing'}", call

    def _dense(
        self,
        words: str,
        shape: tuple[int, int, int],
        a_value: float | None = None,
        weights: str = "near",
        alpha: float | None = None,
        biases: tuple[float, ...] = (),
        odd_rows: bool = False,
        odd_scales: bool = False,
        known_scale: float | None = None,
        **only: Sequence[Any],
    ) -> Problem:
        M, columns, K = shape
        said, call = self._call(M, 2 * columns, 1, K, self._draw(1, M, **only))
        a = _tokens(M, K, self.of_bf16)
        if a_value is not None:
            a[M // 2 :: M if numpy.isnan(a_value) else 2, -1 if numpy.isnan(a_value) else slice(None)] = a_value
        changed: dict[str, numpy.ndarray] = {}
        if alpha is not None:
            changed["alpha"] = numpy.full((1, 1), alpha, numpy.float32)
        if biases:
            odd = numpy.random.default_rng(M).standard_normal((1, 2 * columns)).astype(numpy.float32)
            odd[0, columns // 3 :: 7] = numpy.resize(numpy.array(biases, numpy.float32), len(odd[0, columns // 3 :: 7]))
            changed["bias"] = odd
        if odd_rows:
            odd = numpy.array([0, -1, numpy.inf, numpy.nan, 2.0**-140, 2.0**120], numpy.float32)
            changed["row_scale"] = numpy.resize(odd, M)
        call = replace(call, steps=replace(call.steps, **changed))
        if odd_scales:
            call = replace(call, way=_with_odd_scales(call.way, range(1, M, 2)))
        if known_scale is not None:
            call = replace(call, known=numpy.full(1, known_scale, numpy.float32))
        return self._problem(f"{M} x {columns} x {K}, {words}, {said}", a, numpy.arange(M), ((0, M),), (M,), call, K, columns, (weights,))

    def _of_groups(self, columns: int, K: int, sizes: tuple[int, ...], more: int, special: bool, **only: Sequence[Any]) -> Problem:
        in_places, G = self.grouping == "m_grouped_masked", len(sizes)
        height = max((*sizes, 1)) + more  # of a place
        rows = (G, height) if in_places else (sum(sizes) + more,)
        ends = numpy.cumsum(sizes).astype(numpy.int32)
        begins = [group * height for group in range(G)] if in_places else [int(end) - size for size, end in zip(sizes, ends, strict=True)]
        bounds = tuple((begin, begin + size) for begin, size in zip(begins, sizes, strict=True))
        M = int(numpy.prod(rows))
        drawn = self._draw(G, sum(sizes), special=(special,), whole=(K % 128 == 0,), **only)
        said, call = self._call(M, 2 * columns, G, K, drawn)
        ours = numpy.zeros(M, bool)
        for begin, end in bounds:
            ours[begin:end] = True
        taken, of_a = numpy.arange(M), _tokens(M, K, self.of_bf16)
        if special and self.grouping != "m_grouped_gather":
            of_a[~ours] = numpy.nan
            if M:
                of_a[begins[0] if begins else 0, -1] = numpy.nan
        if self.grouping == "m_grouped_gather":
            random, tokens = numpy.random.default_rng([columns, K]), max(4, M // 3)
            of_a = _tokens(tokens, K, self.of_bf16)
            taken = random.integers(0, tokens, M)
            if special:
                of_a[0], of_a[-1, -1] = numpy.nan, numpy.nan
                taken[(taken == 0) | (random.random(M) < 0.2)] = -1
            if call.steps.a_scale is not None:
                call = replace(call, steps=replace(call.steps, a_scale=numpy.resize(call.steps.a_scale, tokens)))
            if call.way.scales is not None:
                blocks = call.way.scales.shape[1]
                call = replace(call, way=replace(call.way, scales=numpy.resize(call.way.scales, (tokens, blocks))))
        if special and call.way.scales is not None:
            last_rows = [end - 1 for begin, end in bounds if begin < end]
            call = replace(call, way=_with_odd_scales(call.way, range(1, 4) if self.grouping == "m_grouped_gather" else last_rows))
        words = f"groups of {' '.join(map(str, sizes[:8]))}{' ...' * (G > 8)} rows{f' in {height}' if in_places else ''}, {columns} x {K}"
        words += ", NaN in some rows" * special + f", scales of b {drawn['weights']}"
        kinds = self._kinds_of(sizes) if drawn["weights"] == "of all kinds" else ("near",)
        made = self._problem(f"{words}, {said}", of_a, taken, bounds, rows, call, K, columns, kinds)
        inputs = dict(made.inputs)
        inputs["rows" if in_places else "offsets"] = Placed(numpy.array(sizes, numpy.int32) if in_places else ends)
        if self.grouping == "m_grouped_gather":
            index = taken.astype(numpy.int32)
            index[~ours] = 2**31 - 1  # not to be looked up
            inputs["index"] = Placed(index)
        return replace(made, inputs=inputs)

    def _problem(
        self,
        name: str,
        a: numpy.ndarray,
        taken: numpy.ndarray,
        bounds: tuple[tuple[int, int], ...],
        rows: tuple[int, ...],
        call: _Call,
        K: int,
        columns: int,
        kinds: Sequence[str],
    ) -> Problem:
        """`taken`: the row of a for each row of the result, -1: zeros; `bounds`: the rows of each group; `kinds`: of scales of b, by turns."""
        one, G, N, gap = self.grouping == "dense", len(bounds), 2 * columns, call.gap
        groups = [
            _weights(self.formats, self.stored, N, K, call.gates.order, kinds[group % len(kinds)], group % 5) for group in range(max(G, 1))
        ]
        b = numpy.stack([group.b for group in groups])[:G]
        laid = a if self.of_bf16 else in_rows(permuted_columns(a))
        wide = laid.shape[1] + 16 * gap
        places = rows if len(rows) == 2 else (len(a),)
        inputs = {
            "a": Placed(laid.reshape(*places, laid.shape[1]), (rows[1] * wide, wide, 1) if len(rows) == 2 else (wide, 1)),
            "b": Placed(b[0] if one else b, padding=b.size - G * columns * K),
        }
        if self.stored:
            scales = numpy.stack([group.scales for group in groups if group.scales is not None])[:G]
            inputs |= stored_weights(b[0] if one else b, scales[0] if one else scales, K, self.formats)
            if not one:
                inputs["b_scale"] = _groups_apart(inputs["b_scale"], call.apart)
        if groups[0].largest is not None:
            largest = numpy.stack([group.largest for group in groups if group.largest is not None])[:G]
            inputs["b_row_scale"] = Placed(largest[0] if one else largest)
        for what, array in vars(call.steps).items():
            if array is not None:
                of_group = what in ("alpha", "bias")
                inputs[what] = Placed((array[0] if one else array) if of_group else array.reshape(rows) if len(rows) == 2 else array)
        if call.known is not None:
            inputs["q_scale"] = Placed(call.known)
        inputs |= call.way.placed(rows if len(rows) == 2 else ())
        M = int(numpy.prod(rows))
        nobody = numpy.ones(M, bool)
        for begin, end in bounds:
            nobody[begin:end] = False

        @cache
        def h() -> numpy.ndarray:
            found = numpy.zeros((M, columns), numpy.float32)
            for group, (begin, end) in enumerate(bounds):
                if begin == end:
                    continue
                there = taken[begin:end] >= 0
                tokens = numpy.zeros((end - begin, K), a.dtype)
                tokens[there] = a[taken[begin:end][there]]
                steps = Steps(
                    alpha=None if call.steps.alpha is None else call.steps.alpha[group],
                    a_scale=None
                    if call.steps.a_scale is None
                    else numpy.where(there, call.steps.a_scale[numpy.where(there, taken[begin:end], 0)], numpy.float32(1)),
                    bias=None if call.steps.bias is None else call.steps.bias[group],
                    row_scale=None if call.steps.row_scale is None else call.steps.row_scale[begin:end],
                )
                sums = call.way.taken(taken[begin:end]).multiplied(tokens, groups[group].weights)
                found[begin:end] = h_of_sums(sums, groups[group].powers, call.gates, steps)
            return found

        def placed(array: numpy.ndarray, unit: int, strides: tuple[int, ...] | None = None) -> Placed:
            width = array.shape[1]
            pitch = -(-width // unit) * unit + unit * gap
            shape = (*rows, width)
            own = strides or ((rows[1] * pitch, pitch, 1) if len(rows) == 2 else (pitch, 1))
            return Placed(array.reshape(shape), own, untouched=numpy.broadcast_to(nobody.reshape(*rows, 1), shape))

        def outputs() -> dict[str, Placed]:
            if not self.quantised:
                return {"d": placed(rounded(h(), call.dtype), 8)}
            if call.known is None:
                found = quantised_in_blocks(h(), call.scaling, call.in_fragments)
                return {
                    "q": placed(in_rows(found.q) if call.in_fragments else found.q, 16),
                    "scales": placed(found.scales, 1, self._scale_strides(rows, found.scales.shape[1], call)),
                }
            q = numpy.zeros((M, columns), numpy.uint8).view(ml_dtypes.float8_e4m3fn)
            q = in_rows(permuted_columns(q)) if call.in_fragments else q
            scales = numpy.zeros((M, -(-columns // 128)), numpy.float32)
            for group, (begin, end) in enumerate(bounds):
                known = call.known[group % len(call.known)]
                quantised_h = quantised_by(h()[begin:end], known, call.in_fragments)
                q[begin:end], scales[begin:end] = in_rows(quantised_h) if call.in_fragments else quantised_h, known
            return {"q": placed(q, 16), "scales": placed(scales, 1, self._scale_strides(rows, scales.shape[1], call))}

        settings: dict[str, str | int | float] = {
            "gates": call.gates.order,
            "activation": call.gates.activation,
            "limit": float(call.gates.limit),
        }
        if self.quantised:
            settings |= {"scaling": call.scaling, "order": "fragments" if call.in_fragments else "plain"}
            if not self.stored and (columns % 32 or call.gap == 1):
                settings["columns"] = columns
        return Problem(name, inputs, Later(outputs), settings)

    @staticmethod
    def _scale_strides(rows: tuple[int, ...], blocks: int, call: _Call) -> tuple[int, ...]:
        """Rows or blocks next to each other."""
        height, first = rows[-1], call.columns_first
        last = (1, height + 3) if first else (blocks + call.gap, 1)
        return last if len(rows) == 1 else ((blocks if first else height) * max(last), *last)

    def _kinds(self) -> Sequence[str]:
        """Of the weights of groups. What a packer would have to see first is not asked of packed ones."""
        own = ("negative" if self.of_nvfp4 else "capped",) * self.stored
        return "near", *own, *(() if self.of_nvfp4 else ("smallest",)), "spread", "zeros", "NaN"

    def _kinds_of(self, sizes: tuple[int, ...]) -> Sequence[str]:
        """By turns, but that the last group with rows has NaN, if another has some that could show it."""
        kinds = [self._kinds()[group % len(self._kinds())] for group in range(len(sizes))]
        of_rows = [group for group, size in enumerate(sizes) if size]
        if len(of_rows) > 1:
            kinds[of_rows[-1]] = "NaN"
        return kinds


@remembered(megabytes=160)
def _weights(formats: str, stored: bool, N: int, K: int, order: str, kind: str, seed: int) -> _Weights:
    """Any codes; scales near each other, with a NaN, of the whole range, negative ones, of mxfp4 zero bytes or larger ones than their rows
    are said to have; or codes of zero."""
    of_bf16, of_nvfp4 = formats.startswith("bf16"), formats.endswith("nvfp4")
    tokens = "bf16" if of_bf16 else "fp8"
    random, drawn = numpy.random.default_rng([N, K, seed]), drawn_rows(N, K, WEIGHTS)
    q: numpy.ndarray = again(random.integers(0, 256, (drawn, K // 2), dtype=numpy.uint8), N)
    low, high = (0x20, 0x38) if of_nvfp4 else (121, 128)
    if kind == "spread":
        low, high = (0, 0x7F) if of_nvfp4 else (90, 140)
    scales = again(random.integers(low, high, (drawn, K // (16 if of_nvfp4 else 32)), dtype=numpy.uint8), N)
    if kind == "NaN":
        scales[N // 3, -1] = scales[N // 2] = 0x7F if of_nvfp4 else 0xFF
    if kind == "smallest":
        scales[::4] = scales[1::4, 0] = 0
    if kind == "negative":
        scales |= again(random.integers(0, 2, (drawn, scales.shape[1]), dtype=numpy.uint8) << 7, N)
    if kind == "zeros":
        q[::3] &= 0x88
    if of_nvfp4:
        weights, powers = (nvfp4_as_bf16 if of_bf16 else nvfp4_as_e4m3)(q, scales), numpy.full(N, 8, numpy.float32)
        if stored:
            return _Weights(q, None, weights, powers, scales)
        return _Weights(pack_nvfp4(q, scales, order, tokens), None, weights, powers, None)
    largest = largest_scales(q, scales)
    if kind == "capped":
        largest -= again(random.integers(0, 6, drawn, dtype=numpy.uint8), N)
    rebased = (mxfp4_as_bf16 if of_bf16 else mxfp4_as_e4m3)(q, scales, largest)
    if stored:
        filled = numpy.append(largest, numpy.full(-N % ROWS, NO_LARGEST, numpy.uint8))
        return _Weights(q, filled.view(ml_dtypes.float8_e8m0fnu), rebased.weights, rebased.factors, scales)
    packed = pack_mxfp4(q, scales, order, tokens)
    return _Weights(packed.b, packed.row_scale, rebased.weights, rebased.factors, None)


def _with_odd_scales(way: Way, rows: Iterable[int]) -> Way:
    """A row each has one that is no usual number; others stay as they are."""
    assert way.scales is not None
    scales = way.scales.copy()
    for row, value in zip(rows, ODD_SCALES.values(), strict=False):
        scales[row, -1] = value
    return replace(way, scales=scales)


def _idle(drawn: Drawn) -> set[str]:
    """What changes nothing: silu has no limit, and a known scale is not rounded."""
    idle = {"limit": drawn["activation"] == "silu", "scaling": drawn.get("known", "none") != "none"}
    return {name for name, nothing in idle.items() if nothing}


def _groups_apart(placed: Placed, gap: int) -> Placed:
    """Of matrices with strides, so many elements further apart."""
    assert placed.strides is not None
    return replace(placed, strides=(placed.strides[0] + gap, *placed.strides[1:]))


def _tokens(M: int, K: int, of_bf16: bool) -> numpy.ndarray[Any, Any]:
    random = numpy.random.default_rng([M, K])
    drawn = random.standard_normal((drawn_rows(M, K, TOKENS), K))
    return again(cast(drawn, "bf16" if of_bf16 else "e4m3"), M)
