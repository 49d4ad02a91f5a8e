"""Problems for FP8 GEMMs whose epilogue is SwiGLU; every answer is that of zoo.reference, to the bit.

A quantised element may jump where a sum moves by its last bit. On Blackwell, whose order of addition no GPU has confirmed, elements are
small whole numbers and scales powers of two, so that sums are exact in any order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Protocol

import ml_dtypes
import numpy

from zoo.checks.gemm import (
    BLACKWELL,
    HOPPER,
    HOPPER_OF_BYTES,
    Arithmetic,
    Sums,
    arithmetic_of,
    gather_workspace,
    group_of_rows,
    refuse_other_formats,
    some_of_bytes,
    sums_of_groups,
    sums_of_indexed,
    with_bytes,
)
from zoo.checks.pairs import Drawn, Pairs
from zoo.checks.problem import Later, Placed, Problem, numbers_of_multiprocessors
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.block_formats import block_format
from zoo.reference.block_scaled_epilogues import NO_LIMIT, Gates, made_of_sums
from zoo.reference.gemm import rounded
from zoo.reference.groups import gather
from zoo.reference.quantize import quantize_rows
from zoo.reference.swiglu import ACTIVATIONS

BLOCK = 128
Make = Callable[[int, int, int], dict[str, numpy.ndarray]]  # the operands of M, I and K

# (M, I, K, gates): around 8 and 16 columns of the result, the 64 of a scale, the 128 of a block and a tile; 64 rows of a wgmma,
# tiles of 16 to 192 rows; 16 and 128 of K, a ring of stages. Those that an emulator can take come first; I = 8 is none for e4m3.
_SHAPES = (
    (1, 16, 592, "interleaved"), (7, 64, 144, "halves"), (9, 80, 48, "interleaved"), (33, 192, 16, "halves"),
    (20, 144, 32, "interleaved"), (17, 128, 48, "halves"), (70, 64, 32, "halves"), (129, 16, 48, "interleaved"),
    (193, 64, 16, "halves"), (5, 8, 1040, "interleaved"),
    (20, 136, 16, "interleaved"),
    (1, 16, 2880, "interleaved"),
    (1, 256, 1168, "halves"), (16, 320, 1040, "interleaved"), (32, 64, 2064, "halves"), (64, 192, 784, "halves"),
    (128, 272, 400, "interleaved"),
    (300, 336, 272, "interleaved"), (200, 448, 144, "halves"), (517, 80, 656, "interleaved"),
)  # fmt: skip
_BIASES = ((numpy.inf,), (-numpy.inf, -3.0e38), (numpy.nan,), (0.0, -0.0, 2.0**-149, 2.0**-126), (3.0e38, -3.0e38))
_SPECIAL_SHAPES = ((9, 80, 48, "interleaved"), (18, 64, 48, "halves"), (70, 192, 144, "halves"), (150, 272, 144, "interleaved"))

# (M, I, K, sizes of groups, gates): groups that end within a tile, at its edge, one after it; empty ones first, last and in a
# row; rows that belong to nobody; more groups than tiles, and than lanes of a warp; one that owns everything; so many that the same
# CTAs take tile after tile, in an emulator and on a GPU.
_GROUPS = (
    (40, 16, 48, (0, 7, 0, 0, 20, 13), "interleaved"),
    (130, 64, 16, (1, 128, 0, 1), "halves"),
    (9, 16, 144, (3, 3), "interleaved"),
    (33, 64, 16, (0, 0, 0), "halves"),
    (260, 80, 16, (257,), "interleaved"),
    (20, 16, 16, (0,) * 31 + (3, 9, 0, 1, 0, 5), "interleaved"),
    (0, 16, 16, (0, 0), "interleaved"),
    (3, 16, 16, (), "interleaved"),
    (9, 16, 2880, (1, 5), "interleaved"),
    (700, 144, 400, (128, 0, 129, 256, 63, 1, 64), "interleaved"),
    (500, 320, 272, (200, 0, 3, 91, 193), "halves"),
    (300, 64, 784, (1,) * 40 + (0,) * 20 + (193,), "halves"),
    (11, 16, 16, (1,) * 10, "interleaved"),
    (601, 16, 16, (1,) * 600, "interleaved"),
)

# (I, K, rows in a row and their group, -1: nobody's, gates): the last's are nobody's or somebody's, so are those between groups
_RUNS = (
    (16, 48, ((0, 7), (-1, 1), (2, 20), (1, 3), (-1, 9)), "interleaved"),
    (64, 16, ((-1, 70), (1, 130), (-1, 3), (0, 1)), "halves"),
    (16, 144, ((-1, 5),), "interleaved"),
    (16, 2880, ((1, 2), (-1, 1), (0, 1)), "interleaved"),
    (144, 272, ((3, 1), (0, 64), (-1, 63), (4, 129), (-1, 127), (1, 384)), "interleaved"),
)

# (I, K, rows of a place, rows used, gates): none, one, all, up to the tile's edge and over it; more groups than lanes of a warp
_PLACES = (
    (80, 16, 9, (0, 9, 1, 0, 5), "interleaved"),
    (64, 16, 66, (64, 65, 0), "halves"),
    (16, 16, 130, (129,), "interleaved"),
    (64, 32, 4, (0, 0), "halves"),
    (16, 16, 2, (0,) * 31 + (2, 1, 0, 2), "interleaved"),
    (16, 16, 0, (0, 0), "interleaved"),
    (16, 16, 5, (), "interleaved"),
    (16, 144, 3, (1, 0), "interleaved"),
    (16, 2880, 3, (3, 0), "interleaved"),
    (144, 400, 260, (128, 0, 260, 193, 64), "interleaved"),
    (320, 784, 33, (20,) * 6, "halves"),
)


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    refuse_other_formats(kernel)
    makers = {
        "dense": _dense,
        "m_grouped_contiguous": _m_grouped_contiguous,
        "m_grouped_masked": _m_grouped_masked,
        "m_grouped_gather": _m_grouped_gather,
    }
    results = _Rounded() if kernel.fields["extra"] == "swiglu" else _Quantised()
    make, steps = makers[kernel.fields["grouping"]], _Steps(variant)
    if arithmetic_of(variant) is BLACKWELL:
        return map(with_bytes, make(variant, results, steps, BLACKWELL), itertools.cycle(_AS_BYTES))
    return itertools.chain(make(variant, results, steps, HOPPER), some_of_bytes(make(variant, results, steps, HOPPER_OF_BYTES)))


_AS_BYTES: tuple[tuple[str, ...], ...] = ((), ("a_scale",), ("b_scale",), ("a_scale", "b_scale"))


@dataclass(frozen=True)
class _Finish:
    """What is made of the sums of rows."""

    gates: Gates
    bias: numpy.ndarray | None  # of each group (G, 2 I)
    groups: numpy.ndarray  # of each row; -1: nobody's
    row_scale: numpy.ndarray | None

    def h(self, sums: numpy.ndarray) -> numpy.ndarray:
        bias = None if self.bias is None or not len(self.bias) else self.bias[numpy.maximum(self.groups, 0)]
        return made_of_sums(sums, self.gates, bias=bias, row_scale=self.row_scale)

    @property
    def settings(self) -> dict[str, str | int | float]:
        given: dict[str, str | int | float] = {"gates": self.gates.order}
        if self.gates.activation != "silu":
            given["activation"] = self.gates.activation
        if self.gates.limit != NO_LIMIT:
            given["limit"] = float(self.gates.limit)
        return given

    @property
    def words(self) -> str:
        said = "" if self.gates.activation == "silu" else f" {self.gates.activation}"
        said += "" if self.gates.limit == NO_LIMIT else f" {self.gates.limit:g}"
        return self.gates.order + said + ("" if self.bias is None else f", bias of {self.bias.dtype}")

    def placed(self, places: int = 0, one: bool = False) -> dict[str, Placed]:
        """Inputs. places: how many rows the place of a group has, if groups have places. one: there are no groups."""
        found = {} if self.bias is None else {"bias": Placed(self.bias[0] if one else self.bias)}
        if self.row_scale is not None:
            found["row_scale"] = Placed(self.row_scale.reshape(-1, places) if places else self.row_scale)
        return found


class _Steps:
    """Draws what a launch chooses: the activation, its limit, and a bias."""

    def __init__(self, variant: Variant) -> None:
        """On Hopper a variant computes silu without a bias, or everything else."""
        on_blackwell = arithmetic_of(variant) is BLACKWELL
        self.others = on_blackwell or bool(variant.constants.get("ANY_ACTIVATION"))
        made = itertools.product(ACTIVATIONS, (None, "f32", "bf16"))
        self._made = [one for one in made if on_blackwell or one != ("silu", None)]
        properties = {"order": ("halves", "interleaved"), "scales": (False, True), "made": self._made, "limit": (0.5, 7.0, None)}
        self._pairs = Pairs(properties, 0, _idle)

    def finish(
        self,
        order: str,
        columns: int,
        groups: numpy.ndarray,
        count: int,
        row_scale: numpy.ndarray | None = None,
        zeros: bool = False,
        biases: tuple[float, ...] = (),
    ) -> _Finish:
        """groups: of each row; count: how many there are. zeros: nothing is added to the sums. biases: among the numbers of the bias."""
        if not self.others:  # silu without a bias
            return _Finish(Gates(order), None, groups, row_scale)
        made = [one for one in self._made if (one[1] == "f32" if biases else one[1] is None or not zeros)]
        drawn = self._pairs.draw({"order": (order,), "scales": (row_scale is not None,), "made": made}, seen=len(groups) > 0)
        (activation, dtype), limit = drawn["made"], drawn["limit"]
        bias = None
        if dtype is not None:
            bias = numpy.random.default_rng([columns, count, len(groups)]).standard_normal((count, 2 * columns)).astype(numpy.float32)
            if biases:
                odd = bias[:, columns // 3 :: 7]
                odd[...] = numpy.resize(numpy.array(biases, numpy.float32), odd.shape)
            bias = bias.astype(ml_dtypes.bfloat16) if dtype == "bf16" else bias
        gates = Gates(order, activation, NO_LIMIT if limit is None else numpy.float32(limit))
        return _Finish(gates, bias, groups, row_scale)


def _idle(drawn: Drawn) -> set[str]:
    """silu has no limit."""
    return {"limit"} if drawn["made"][0] == "silu" else set()


class _Results(Protocol):
    """What comes of the sums: (outputs, settings, words for the name)."""

    def takes(self, columns: int) -> bool: ...

    def __call__(
        self, sums: Sums, shape: tuple[int, ...], finish: _Finish, turn: int, untouched: numpy.ndarray | None = None
    ) -> tuple[Later, dict[str, str | int | float], str]: ...


class _Rounded:
    """D, bf16."""

    def takes(self, columns: int) -> bool:
        return True

    def __call__(
        self, sums: Sums, shape: tuple[int, ...], finish: _Finish, turn: int, untouched: numpy.ndarray | None = None
    ) -> tuple[Later, dict[str, str | int | float], str]:
        def outputs() -> dict[str, Placed]:
            d = rounded(finish.h(sums()), "bf16").reshape(shape)
            return {"d": Placed(d, _rows_apart(d.shape, 8 * (turn % 2)), untouched=_like(untouched, d))}

        return Later(outputs), finish.settings, ""


class _Quantised:
    """q and its scales; both rules for scales in turn, scales in both orders in turn."""

    def takes(self, columns: int) -> bool:
        return columns % 16 == 0

    def __call__(
        self, sums: Sums, shape: tuple[int, ...], finish: _Finish, turn: int, untouched: numpy.ndarray | None = None
    ) -> tuple[Later, dict[str, str | int | float], str]:
        scaling, mn_major = ("exact", "pow2")[turn % 2], turn // 2 % 2 == 1

        def outputs() -> dict[str, Placed]:
            result = quantize_rows(finish.h(sums()), block_format("fp8b128", scaling=scaling))
            q, scales = (part.reshape(*shape[:-1], part.shape[-1]) for part in (result.q, result.scales))
            return {
                "q": Placed(q, _rows_apart(q.shape, 16 * (turn % 2)), untouched=_like(untouched, q)),
                "scales": Placed(scales, _scale_strides(scales.shape, mn_major, turn % 3 % 2), untouched=_like(untouched, scales)),
            }

        return Later(outputs), {**finish.settings, "scaling": scaling}, f", {scaling}, scales {'mn_major' if mn_major else 'plain'}"


def _like(rows: numpy.ndarray | None, array: numpy.ndarray) -> numpy.ndarray | None:
    return None if rows is None else numpy.broadcast_to(rows[..., None], array.shape)


def _rows_apart(shape: tuple[int, ...], gap: int) -> tuple[int, ...]:
    row = shape[-1] + gap
    return (row, 1) if len(shape) == 2 else (shape[1] * row, row, 1)


def _scale_strides(shape: tuple[int, ...], mn_major: bool, gap: int) -> tuple[int, ...]:
    """Of (rows, blocks) or (groups, rows, blocks)."""
    rows, blocks = shape[-2:]
    pitch = -(-rows // 4) * 4 + 4 * gap if mn_major else blocks + gap
    strides = (1, pitch) if mn_major else (pitch, 1)
    return strides if len(shape) == 2 else ((blocks if mn_major else rows) * pitch, *strides)


def _dense(variant: Variant, results: _Results, steps: _Steps, on: Arithmetic) -> Iterator[Problem]:
    splits = variant.constants.get("SPLITS", 1)
    numbers = numbers_of_multiprocessors() if on is BLACKWELL else itertools.repeat(None)

    def problem(
        name: str,
        make: Make,
        shape: tuple[int, int, int],
        gates: str,
        turn: int,
        row_scale: numpy.ndarray | None = None,
        invariant: bool = False,
        zeros: bool = False,
        biases: tuple[float, ...] = (),
    ) -> Problem:
        arrays, sums = _row_by_row(make, *shape, on) if invariant else _multiplied(make, *shape, splits, on)
        finish = steps.finish(gates, shape[1], numpy.zeros(shape[0], int), 1, row_scale, zeros, biases)
        outputs, settings, words = results(sums, shape[:2], finish, turn)
        if invariant:
            settings["batch_invariant"] = "yes"
        gap = turn % 3
        strides: dict[str, tuple[int, ...]] = {"a": (arrays["a"].shape[1] + 16 * gap, 1), "b": (arrays["b"].shape[1] + 32 * gap, 1)}
        strides |= {name: _scale_strides(arrays[name].shape, turn % 2 == 1, gap) for name in ("a_scale", "b_scale")}
        inputs = {name: Placed(array, strides[name]) for name, array in arrays.items()} | finish.placed(one=True)
        name = f"{' x '.join(map(str, shape))}{name}, {finish.words}{words}"
        return Problem(name, inputs, outputs, settings, multiprocessors=next(numbers))

    for turn, (M, columns, K, gates) in enumerate(_SHAPES):
        if results.takes(columns):
            row_scale = _row_scales(M) if turn % 3 == 2 else None
            yield problem(", rows scaled" if turn % 3 == 2 else "", _operands, (M, columns, K), gates, turn, row_scale)
    for turn, (M, columns, K, gates) in enumerate(_SPECIAL_SHAPES):
        shape = M, columns, K
        yield problem(": NaN in one row of a stays there", _nan_in_a, shape, gates, turn)
        yield problem(": NaN in one row of b stays in its column, or its block", _nan_in_b, shape, gates, turn + 1)
        yield problem(": a NaN scale of a stays in its row", _nan_in_a_scale, shape, gates, turn + 2)
        yield problem(": a NaN scale of b stays in its 128 rows", _nan_in_b_scale, shape, gates, turn + 3)
        yield problem(": gates and ups of all magnitudes", _wild, shape, gates, turn + 1)
        yield problem(": rows of zeros have the scale 1", _zero_rows, shape, gates, turn, zeros=True)
        if on is not BLACKWELL:  # what is below all numbers decides over a scale, and may differ from GPU to GPU
            yield problem(": sums too small for a number, half of them -0", _underflowing, shape, gates, turn, zeros=True)
        for biases in _BIASES if steps.others else ():
            said = " and ".join(map(str, biases))
            yield problem(f": a bias of {said} stays in its column, or its block", _operands, shape, gates, turn, biases=biases)
        factors = _row_scales(shape[0])
        odd = numpy.array([0, -1, numpy.inf, numpy.nan, 2.0**-140, 2.0**120], numpy.float32)[: shape[0]]
        factors[: len(odd)] = odd
        yield problem(": rows scaled by zero, -1, infinity, NaN, tiny and huge", _operands, shape, gates, turn, factors)
    for turn, shape in enumerate(((5, 16, 528), (33, 64, 528))):  # variants that split K refuse
        make = _operands if on is BLACKWELL else _cancelling
        yield problem(", batch_invariant: each row as it comes out alone", make, shape, "interleaved", turn, invariant=True)
    yield problem(": no rows", _operands, (0, 64, 32), "halves", 0)


@lru_cache(maxsize=64)
def _multiplied(make: Make, M: int, columns: int, K: int, splits: int, on: Arithmetic) -> tuple[dict[str, numpy.ndarray], Sums]:
    """The operands, and their sums, which all variants that split K alike share."""
    arrays = _for(on, make(M, columns, K))
    return arrays, cache(lambda: on.product(arrays["a"], arrays["a_scale"], arrays["b"], arrays["b_scale"], splits))


def _for(on: Arithmetic, arrays: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """As an arch takes them."""
    if on is not BLACKWELL:
        return {**arrays, **{name: on.scales(arrays[name]) for name in ("a_scale", "b_scale")}}
    elements = {name: numpy.rint(2 * arrays[name].astype(numpy.float32)).clip(-6, 6).astype(arrays[name].dtype) for name in ("a", "b")}
    with numpy.errstate(all="ignore"):
        halves = {"a_scale": 0.5 * arrays["a_scale"], "b_scale": 0.5 * arrays["b_scale"]}
        return {**arrays, **elements, **{name: on.scales(scales) for name, scales in halves.items()}}


@lru_cache(maxsize=8)
def _row_by_row(make: Make, M: int, columns: int, K: int, on: Arithmetic) -> tuple[dict[str, numpy.ndarray], Sums]:
    arrays = _for(on, make(M, columns, K))
    a, a_scale, b, b_scale = (arrays[name] for name in ("a", "a_scale", "b", "b_scale"))
    return arrays, cache(lambda: numpy.vstack([on.product(a[row : row + 1], a_scale[row : row + 1], b, b_scale) for row in range(M)]))


def _m_indices(results: _Results, steps: _Steps, on: Arithmetic) -> Iterator[Problem]:
    for turn, (columns, K, runs, gates) in enumerate(_RUNS):
        m_indices = numpy.repeat(*numpy.array(runs, numpy.int32).T).astype(numpy.int32)
        M, groups, row_scale = len(m_indices), 5, _row_scales(len(m_indices)) if turn % 2 else None
        arrays = _operands(M, columns, K)
        weights = [_operands(0, columns, K, group) for group in range(groups)]
        arrays |= {name: numpy.stack([one[name] for one in weights]) for name in ("b", "b_scale")}
        arrays = _for(on, arrays)
        arrays["a"][m_indices < 0], arrays["a_scale"][m_indices < 0] = numpy.nan, numpy.nan
        sums = sums_of_indexed(arrays["a"], arrays["a_scale"], arrays["b"], arrays["b_scale"], m_indices, on)
        finish = steps.finish(gates, columns, m_indices, groups, row_scale)
        outputs, settings, words = results(sums, (M, columns), finish, turn, m_indices < 0)
        inputs = {name: Placed(array) for name, array in arrays.items()} | {"m_indices": Placed(m_indices)} | finish.placed()
        rows = ", ".join(f"{count} of {group}" for group, count in runs)
        yield Problem(f"{columns} x {K}, {finish.words}, rows {rows}, NaN in those of -1{words}", inputs, outputs, settings)


def _m_grouped_contiguous(variant: Variant, results: _Results, steps: _Steps, on: Arithmetic) -> Iterator[Problem]:
    by_index = variant.constants.get("GROUPING") == 3 or variant.constants.get("INDEXED") == 1
    if by_index:
        yield from _m_indices(results, steps, on)
    for turn, (M, columns, K, sizes, gates) in enumerate(_GROUPS):
        for special in (False, True):
            row_scale = _row_scales(M) if special and turn % 2 else None
            arrays, sums = _grouped(M, columns, K, sizes, special, on)
            ends = numpy.cumsum(sizes).astype(numpy.int32)
            finish = steps.finish(gates, columns, group_of_rows(M, sizes), len(sizes), row_scale)
            outputs, settings, words = results(sums, (M, columns), finish, turn + special, numpy.arange(M) >= sum(sizes))
            gap = turn % 2
            strides = {"a": (K + 16 * gap, 1), "b": (2 * columns * (K + 16 * gap), K + 16 * gap, 1)}
            strides["a_scale"] = _scale_strides(arrays["a_scale"].shape, gap == 1, 0)
            inputs = {name: Placed(array, strides.get(name)) for name, array in arrays.items()} | finish.placed()
            if by_index:
                inputs["m_indices"] = Placed(group_of_rows(M, sizes))
            else:
                inputs["offsets"] = Placed(ends)
            groups = " ".join(map(str, sizes[:8])) + " ..." * (len(sizes) > 8)
            name = f"{M} x {columns} x {K}, {finish.words}, groups {groups}{words}"
            name += ", NaN in the rows of nobody and in the first of every second group" * special
            yield Problem(name, inputs, outputs, settings)


def _m_grouped_masked(variant: Variant, results: _Results, steps: _Steps, on: Arithmetic) -> Iterator[Problem]:
    for turn, (columns, K, rows, used, gates) in enumerate(_PLACES):
        for special in (False, True):
            G, gap = len(used), turn % 2
            row_scale = _row_scales(G * rows) if special and not turn % 2 else None
            sizes = tuple(size for count in used for size in (count, rows - count))  # every second group is nobody's
            arrays, sums = _grouped(G * rows, columns, K, sizes, False, on)
            nobody = numpy.arange(rows)[None, :] >= numpy.array(used)[:, None]
            a = arrays["a"].reshape(G, rows, K).copy()
            if special:
                a[nobody] = numpy.nan
            finish = steps.finish(gates, columns, numpy.repeat(numpy.arange(G), rows), G, row_scale)
            outputs, settings, words = results(sums, (G, rows, columns), finish, turn + special, nobody)
            a_scale = arrays["a_scale"].reshape(G, rows, -(-K // BLOCK))
            inputs = {
                "a": Placed(a, (rows * (K + 16 * gap), K + 16 * gap, 1)),
                "a_scale": Placed(a_scale, _scale_strides(a_scale.shape, gap == 1, 0)),
                "b": Placed(arrays["b"][::2]),
                "b_scale": Placed(numpy.ascontiguousarray(arrays["b_scale"][::2])),
                "rows": Placed(numpy.array(used, numpy.int32)),
                **finish.placed(rows),
            }
            name = f"{G} places of {rows} rows, used {' '.join(map(str, used))}, {columns} x {K}, {finish.words}{words}"
            yield Problem(name + ", NaN in the others" * special, inputs, outputs, settings)


def _m_grouped_gather(variant: Variant, results: _Results, steps: _Steps, on: Arithmetic) -> Iterator[Problem]:
    for turn, (M, columns, K, sizes, gates) in enumerate(_GROUPS):
        for special in (False, True):
            arrays, sums = _gathered(M, columns, K, sizes, special, on)
            row_scale = _row_scales(M) if special != (turn % 2 == 1) else None
            finish = steps.finish(gates, columns, group_of_rows(M, sizes), len(sizes), row_scale)
            outputs, settings, words = results(sums, (M, columns), finish, turn + special, numpy.arange(M) >= sum(sizes))
            gap = turn % 2
            strides = {"a": (K + 16 * gap, 1), "b": (2 * columns * (K + 16 * gap), K + 16 * gap, 1)}
            strides["a_scale"] = _scale_strides(arrays["a_scale"].shape, gap == 1, 0)
            inputs = {name: Placed(array, strides.get(name)) for name, array in arrays.items()} | finish.placed()
            workspaces = {"workspace": Placed(gather_workspace(M, K))} if variant.constants.get("USES_WORKSPACE") else {}
            groups = " ".join(map(str, sizes[:8])) + " ..." * (len(sizes) > 8)
            name = f"{M} rows of {len(arrays['a'])}, {columns} x {K}, {finish.words}, groups {groups}{words}"
            yield Problem(name + ", NaN in some rows, none in others" * special, inputs, outputs, settings, workspaces)


@lru_cache(maxsize=32)
def _gathered(M: int, columns: int, K: int, sizes: tuple[int, ...], special: bool, on: Arithmetic) -> tuple[dict[str, numpy.ndarray], Sums]:
    """The inputs and the sums of every row of the result. `special`: a row of NaN that nobody takes, one that some take, and rows of none."""
    tokens, random = max(1, M // 3), numpy.random.default_rng(M * 31 + len(sizes))
    index = random.integers(0, tokens, M, dtype=numpy.int32)
    arrays = _operands(tokens, columns, K)
    weights = [_operands(0, columns, K, group) for group in range(max(1, len(sizes)))]
    arrays |= {name: numpy.stack([one[name] for one in weights])[: len(sizes)] for name in ("b", "b_scale")}
    arrays = _for(on, arrays)
    if special:
        arrays["a"][0], arrays["a_scale"][0], arrays["a"][-1, -1] = numpy.nan, numpy.nan, numpy.nan
        index[(index == 0) | (random.random(M) < 0.2)] = -1
    rows, scales = (gather(arrays[name], index) for name in ("a", "a_scale"))
    sums = sums_of_groups(rows, scales, arrays["b"], arrays["b_scale"], sizes, on)
    index[sum(sizes) :] = 2**31 - 1  # not to be looked up
    return {**arrays, "index": index, "offsets": numpy.cumsum(sizes).astype(numpy.int32)}, sums


def _row_scales(M: int) -> numpy.ndarray:
    return numpy.random.default_rng(M).uniform(0.01, 1, M).astype(numpy.float32)


def _operands(M: int, columns: int, K: int, seed: int = 0) -> dict[str, numpy.ndarray]:
    """Normal elements, sums of about 2 where silu bends."""
    random = numpy.random.default_rng((M * 1000003 + columns * 1009 + K) * 64 + seed)
    blocks = -(-K // BLOCK)

    def scales(rows: int) -> numpy.ndarray:
        return numpy.exp2(random.uniform(-1, 1, (rows, blocks)))

    return {
        "a": cast(random.standard_normal((M, K)), "e4m3"),
        "a_scale": (2 * scales(M) / numpy.sqrt(K)).astype(numpy.float32),
        "b": cast(random.standard_normal((2 * columns, K)), "e4m3"),
        "b_scale": scales(-(-2 * columns // BLOCK)).astype(numpy.float32),
    }


def _nan_in(argument: str, M: int, columns: int, K: int) -> dict[str, numpy.ndarray]:
    arrays = _operands(M, columns, K)
    arrays[argument][len(arrays[argument]) // 2, -1] = numpy.nan
    return arrays


def _nan_in_a(M: int, columns: int, K: int) -> dict[str, numpy.ndarray]:
    return _nan_in("a", M, columns, K)


def _nan_in_b(M: int, columns: int, K: int) -> dict[str, numpy.ndarray]:
    return _nan_in("b", M, columns, K)


def _nan_in_a_scale(M: int, columns: int, K: int) -> dict[str, numpy.ndarray]:
    return _nan_in("a_scale", M, columns, K)


def _nan_in_b_scale(M: int, columns: int, K: int) -> dict[str, numpy.ndarray]:
    return _nan_in("b_scale", M, columns, K)


def _wild(M: int, columns: int, K: int) -> dict[str, numpy.ndarray]:
    """Rows from those whose result is subnormal to those where it is infinite."""
    arrays = _operands(M, columns, K)
    arrays["a_scale"] *= numpy.exp2(numpy.linspace(-75, 70, M)).astype(numpy.float32)[:, None]
    return arrays


def _underflowing(M: int, columns: int, K: int) -> dict[str, numpy.ndarray]:
    arrays = _operands(M, columns, K)
    arrays["a"][:] = 0
    arrays["a"][:, ::BLOCK] = 2.0**-9
    arrays["a_scale"][:], arrays["b_scale"][:] = 2.0**-75, 2.0**-74
    return arrays


def _cancelling(M: int, columns: int, K: int) -> dict[str, numpy.ndarray]:
    """Two blocks of K whose sums are large and cancel: what is added to which shows even in bf16."""
    arrays = _operands(M, columns, K)
    for one, other in ((arrays["a"], arrays["a"]), (-arrays["b"], arrays["b"])):
        other[:, 3 * BLOCK : 4 * BLOCK] = one[:, 2 * BLOCK : 3 * BLOCK]
    arrays["a_scale"][:, 2:4] = 2.0**18
    arrays["b_scale"][:, 2:4] = 1
    return arrays


def _zero_rows(M: int, columns: int, K: int) -> dict[str, numpy.ndarray]:
    arrays = _operands(M, columns, K)
    arrays["a"][::2] = 0
    return arrays


@lru_cache(maxsize=32)
def _grouped(M: int, columns: int, K: int, sizes: tuple[int, ...], special: bool, on: Arithmetic) -> tuple[dict[str, numpy.ndarray], Sums]:
    """(a, a_scale, b of each group, b_scale of each group; the sums of every row, of nobody's zeros)."""
    arrays = _operands(M, columns, K)
    weights = [_operands(0, columns, K, group) for group in range(max(1, len(sizes)))]
    arrays |= {name: numpy.stack([one[name] for one in weights])[: len(sizes)] for name in ("b", "b_scale")}
    arrays, ends = _for(on, arrays), numpy.cumsum(sizes)
    if special:
        arrays["a"][sum(sizes) :, 0] = numpy.nan
        for size, end in list(zip(sizes, ends, strict=True))[::2]:
            if size:
                arrays["a"][end - size, -1] = numpy.nan
    return arrays, sums_of_groups(arrays["a"], arrays["a_scale"], arrays["b"], arrays["b_scale"], sizes, on)
