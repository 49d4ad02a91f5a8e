"""Problems for block-scaled products that end in a gated unit, in MXFP8 or in NVFP4; every answer is that of zoo.reference, to the bit.

A quantised element may jump where a sum moves by its last bit. So sums here are exact in any order of addition, and alpha, bias and
row_scale make any numbers of them: a GPU has no room either.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy

from zoo.checks.block_scaled import DTYPES, Operands, argument_has_nan, placed_finish, placed_scales, whole_numbers
from zoo.checks.problem import Later, Placed, Problem, numbers_of_multiprocessors
from zoo.checks.products import gemm_block_scaled
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.block_formats import BlockFormat, block_format
from zoo.reference.block_scaled_epilogues import Gates, made_of_sums, quantised
from zoo.reference.block_scaled_gemm import KINDS
from zoo.reference.gemm import rounded
from zoo.reference.groups import gather
from zoo.reference.layouts import blocked_shape
from zoo.reference.swiglu import ACTIVATIONS

# (M, columns of the result, K), around tiles of 64, 128 and 256 columns and of 128 and 256 rows, blocks and segments of 16 and 32, four
# blocks that share a word, and several CTAs that share K. Those that an emulator can take come first.
_SHAPES = (
    (1, 32, 32), (9, 96, 64), (130, 32, 32), (5, 160, 96), (1, 64, 1056), (2, 32, 2112), (257, 32, 32), (33, 128, 64), (16, 288, 32), (128, 64, 32),
    (129, 128, 160), (300, 416, 288), (64, 1056, 544), (517, 384, 160), (16, 512, 4096), (260, 640, 1056), (1, 2880, 2880),
)  # fmt: skip
_NARROW = ((7, 8, 96), (130, 24, 32), (5, 136, 64), (2, 8, 1056), (300, 264, 160))  # of D alone
# (columns of the result, K, rows of each group, rows that are nobody's, or of a place): empty groups first, last and in a row; groups
# that end within a tile, at its edge and one after it; more of them than lanes of a warp.
_GROUPS = (
    (32, 32, (0, 5, 0, 7), 3), (32, 32, (1, 128, 0, 0), 0), (64, 64, (3, 4), 1), (64, 32, (129, 1), 0), (128, 32, (5, 2), 9), (128, 32, (), 2),
    (32, 32, (0,) * 31 + (2, 9, 0, 1) + (0,) * 30 + (1,), 0), (160, 96, (3, 130), 1), (256, 160, (128, 0, 129, 256, 63), 9),
    (1440, 2880, (17, 0, 130), 0),
)  # fmt: skip
_SPECIAL = ((9, 96, 96), (3, 32, 1056), (130, 64, 64))


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    return iter(_Problems(kernel) if kernel.fields["grouping"] == "dense" else _ProblemsOfGroups(kernel))


@dataclass
class _Problems:
    kernel: Kernel
    turns: Iterator[int] = field(default_factory=itertools.count)
    numbers: Iterator[int] = field(default_factory=numbers_of_multiprocessors)

    @property
    def formats(self) -> str:
        return self.kernel.fields["formats"]

    @property
    def gated(self) -> bool:
        return self.kernel.fields["extra"].startswith("swiglu")

    @property
    def result(self) -> str | None:
        """The format that the result is quantised to."""
        word = self.kernel.fields["extra"].split("_")[-1]
        return None if word == "swiglu" else word

    def __iter__(self) -> Iterator[Problem]:
        for M, columns, K in _SHAPES if self.result else (*_NARROW, *_SHAPES):
            for activation in ACTIVATIONS if self.gated else ("",):
                yield self._usual(M, columns, K, activation)
        for shape in _SPECIAL:
            for argument in ("a", "b", "a_scale", "b_scale"):
                if argument_has_nan(self.formats, argument):
                    yield self._made(f"NaN in one row of {argument} stays there", *shape, changed=(argument, numpy.nan))
            yield self._made("rows of zeros", *shape, changed=("a", 0))
            for value in (numpy.inf, -numpy.inf, numpy.nan, 0.0, -0.0, 2.0**-149, 3.0e38, -3.0e38):
                yield self._made(f"sums of {value}", *shape, bias_value=value)
            yield self._made("rows scaled by zero, -1, infinity, NaN, tiny and huge", *shape, factors="odd")
            if self.result == "nvfp4":
                for scale in (1.0, 2.0**-140, 2.0**120, numpy.nan, 0.0):
                    yield self._made(f"a tensor scale of {scale}", *shape, tensor_scale=scale)
            yield self._made("batch_invariant", *shape, batch_invariant=True)
        yield self._made("no rows", 0, 32, 32)

    def _usual(self, M: int, columns: int, K: int, activation: str) -> Problem:
        return self._made("usual numbers", M, columns, K, activation)

    def _made(
        self,
        words: str,
        M: int,
        columns: int,
        K: int,
        activation: str = "silu",
        changed: tuple[str, float] | None = None,
        bias_value: float | None = None,
        factors: str = "",
        tensor_scale: float = 0.013,
        batch_invariant: bool = False,
    ) -> Problem:
        turn, number = next(self.turns), next(self.numbers)
        N, gap = 2 * columns if self.gated else columns, turn % 2
        order = "halves" if columns % 128 == 0 and turn % 2 else "interleaved"
        gates = Gates(order, activation, numpy.float32((0.5, 7.0)[turn % 2])) if self.gated else None
        operands = _changed(whole_numbers(self.formats, M, N, K), changed)
        random = numpy.random.default_rng([M, N, K, turn])
        finish = {"alpha": numpy.array([0.2 / K**0.5], numpy.float32)}
        if turn % 3 or bias_value is not None:
            bias = random.standard_normal(N).astype(numpy.float32)
            if bias_value is not None:
                bias[N // 3 :: 7] = bias_value
            finish["bias"] = bias.astype(ml_dtypes.bfloat16) if turn % 3 == 2 else bias
        if turn % 4 > 1 or factors:
            finish["row_scale"] = random.uniform(0.01, 1, M).astype(numpy.float32)
        if factors:
            odd = numpy.array([0, -1, numpy.inf, numpy.nan, 2.0**-140, 2.0**120], numpy.float32)[:M]
            finish["row_scale"][: len(odd)] = odd
        settings: dict[str, str | int | float] = (
            {} if gates is None else {"gates": order, "activation": activation, "limit": float(gates.limit)}
        )
        settings |= {"batch_invariant": "yes"} if batch_invariant else {}
        inputs = operands.placed(gap)
        b = _padded(self.formats, operands.arrays[2], K)
        inputs["b"] = Placed(b, (b.shape[1] + 32 * gap, 1), inputs["b"].dtype)
        inputs |= {name: placed_finish(name, array, gap) for name, array in finish.items()}

        def h() -> numpy.ndarray:
            return made_of_sums(operands.sums(), gates, **finish)

        name = f"{M} x {columns} x {K}, {words}, {order} {activation}" if gates else f"{M} x {columns} x {K}, {words}"
        name += "".join(f", {step} of {array.dtype}" for step, array in finish.items())
        if self.result is None:
            dtype = DTYPES[turn % len(DTYPES)]
            outputs = Later(lambda: {"d": Placed(rounded(h(), dtype), (columns + 8 * gap, 1))})
            return Problem(f"{name}, D of {dtype}", inputs, outputs, settings, multiprocessors=number)
        if self.result == "nvfp4":
            scale = numpy.array([tensor_scale], numpy.float32)
            inputs["tensor_scale"] = Placed(scale)
            with numpy.errstate(all="ignore"):
                outputs = _quantised(h, block_format("nvfp4", tensor_scale=scale), M, columns, gap)
            return Problem(name, inputs, outputs, settings, multiprocessors=number)
        rounding, element = ("floor", "rceil")[turn // 2 % 2], ("e4m3", "e5m2")[turn // 3 % 2]
        settings |= {"rounding": rounding}
        outputs = _quantised(h, block_format("mxfp8", element=element, rounding=rounding), M, columns, gap)
        return Problem(f"{name}, {element}, {rounding}", inputs, outputs, settings, multiprocessors=number)


class _ProblemsOfGroups(_Problems):
    """Groups back to back, gathered, or each in a place; with NaN in the rows of nobody, where elements or scales have one."""

    def __iter__(self) -> Iterator[Problem]:
        for columns, K, sizes, more in _GROUPS:
            for activation in ACTIVATIONS if self.gated else ("",):
                yield self._of_groups(columns, K, sizes, more, activation)

    def _of_groups(self, columns: int, K: int, sizes: tuple[int, ...], more: int, activation: str) -> Problem:
        turn, G, grouping = next(self.turns), len(sizes), self.kernel.fields["grouping"]
        in_places = grouping == "m_grouped_masked"
        N, kind, gap = 2 * columns if self.gated else columns, KINDS[self.formats], turn % 2
        order = "halves" if columns % 128 == 0 and turn % 2 else "interleaved"
        gates = Gates(order, activation, numpy.float32((0.5, 7.0)[turn % 2])) if self.gated else None
        height = max((*sizes, 1)) + more  # of a place
        rows = (G, height) if in_places else (sum(sizes) + more,)
        ends = numpy.cumsum(sizes).astype(numpy.int32)
        places = [
            (group, slice(0, size)) if in_places else slice(end - size, end)
            for group, (size, end) in enumerate(zip(sizes, ends, strict=True))
        ]
        ours = numpy.zeros(rows, bool)
        for place in places:
            ours[place] = True

        a_dtype, b_dtype = ("e2m1x2" if packed else None for packed in kind.packed)
        if grouping == "m_grouped_gather":
            a, a_scale, of_a = _gathered(self.formats, ours, K, gap, turn)
        else:
            flat_a, flat_scales = whole_numbers(self.formats, max(ours.size, 1), 8, K).arrays[:2]
            a, a_scale = (part[: ours.size].reshape(*rows, part.shape[1]).copy() for part in (flat_a, flat_scales))
            if not kind.packed[0]:
                a[~ours] = numpy.nan
            a_scale[~ours] = numpy.nan
            of_a = {
                "a": Placed(a, _rows_apart(a.shape, 16 * gap), a_dtype),
                "a_scale": _whole_tiles(a_scale) if in_places else _tiles_in_turn(a_scale, places),
            }
        weights = [whole_numbers(self.formats, 2 * group + 1, N, K).arrays[2:] for group in range(max(G, 1))]
        b = numpy.stack([elements for elements, _ in weights])[:G]
        b = _padded(self.formats, b, K)
        random = numpy.random.default_rng([columns, K, turn])
        one_each = G if G and turn % 2 else 1
        alpha = random.uniform(0.05, 0.2, one_each).astype(numpy.float32) / numpy.float32(K**0.5)
        tensor_scale = random.uniform(0.005, 0.02, one_each).astype(numpy.float32)
        bias = cast(random.standard_normal((G, N)), "bf16" if turn % 3 == 2 else "f32")
        row_scale = random.uniform(0.01, 1, rows).astype(numpy.float32)
        inputs = of_a | {
            "b": Placed(b, _rows_apart(b.shape, 32 * gap), b_dtype),
            "b_scale": _whole_tiles(numpy.stack([scale for _, scale in weights])[:G]),
            "rows" if in_places else "offsets": Placed(numpy.array(sizes, numpy.int32) if in_places else ends),
            "alpha": Placed(alpha),
        }
        inputs |= {"bias": Placed(bias)} if turn % 3 else {}
        inputs |= {"row_scale": Placed(row_scale)} if turn % 4 > 1 else {}
        settings: dict[str, str | int | float] = {}
        if gates is not None:
            settings |= {"gates": order, "activation": activation, "limit": float(gates.limit)}
        rounding, element = ("floor", "rceil")[turn // 2 % 2], ("e4m3", "e5m2")[turn // 3 % 2]
        if self.result == "mxfp8":
            settings |= {"rounding": rounding}
        if self.result == "nvfp4":
            inputs["tensor_scale"] = Placed(tensor_scale)
        dtype = DTYPES[turn % len(DTYPES)]

        def h(group: int) -> numpy.ndarray:
            place, (elements, scale) = places[group], weights[group]
            sums = gemm_block_scaled(a[place], a_scale[place], elements, scale, self.formats)
            return made_of_sums(
                sums, gates, alpha[group % one_each], bias[group] if turn % 3 else None, row_scale[place] if turn % 4 > 1 else None
            )

        def rounded_d() -> dict[str, Placed]:
            values = numpy.zeros((*rows, columns), numpy.float32)
            for group, place in enumerate(places):
                values[place] = h(group)
            d = rounded(values, dtype)
            return {"d": Placed(d, _rows_apart(d.shape, 8 * gap), untouched=numpy.broadcast_to(~ours[..., None], d.shape))}

        def quantised_q() -> dict[str, Placed]:
            def format_of(group: int) -> BlockFormat:
                if self.result == "nvfp4":
                    return block_format("nvfp4", tensor_scale=tensor_scale[group % one_each])
                return block_format("mxfp8", element=element, rounding=rounding)

            some = quantised(numpy.zeros((1, columns), numpy.float32), format_of(0))
            q, block = numpy.zeros((*rows, some.q.shape[1]), some.q.dtype), columns // format_of(0).block
            wide = blocked_shape(1, block)[1]
            tall = -(-height // 128) * 128 if in_places else -(-rows[0] // 128) * 128 + 128 * G
            scales = numpy.zeros((*rows[:-1], tall, wide), some.scales.dtype)
            tiles, begin = numpy.zeros(scales.shape, bool), 0
            for group, place in enumerate(places):
                made = quantised(h(group), format_of(group))
                q[place] = made.q
                reach = -(-sizes[group] // 128) * 128
                at = (group, slice(0, reach)) if in_places else slice(begin, begin + reach)
                scales[at], tiles[at], begin = made.scales.reshape(reach, wide), True, begin + reach
            untouched = numpy.broadcast_to(~ours[..., None], q.shape)
            q_dtype = "e2m1x2" if self.result == "nvfp4" else None
            return {
                "q": Placed(q, _rows_apart(q.shape, 16 * gap), q_dtype, untouched=untouched),
                "scales": Placed(scales, untouched=~tiles),
            }

        sizes_in_words = " ".join(map(str, sizes[:8])) + " ..." * (len(sizes) > 8)
        name = f"groups of {sizes_in_words} rows{f' in {height}' if in_places else ''}, {columns} x {K}, {order} {activation}, turn {turn}"
        return Problem(name, inputs, Later(quantised_q if self.result else rounded_d), settings)


def _gathered(formats: str, ours: numpy.ndarray, K: int, gap: int, turn: int) -> tuple[numpy.ndarray, numpy.ndarray, dict[str, Placed]]:
    """What each row takes, and the matrix and the index that it takes it from: some rows take none, and one row, of NaN, is never taken."""
    random, tokens, kind = numpy.random.default_rng([K, turn]), max(1, ours.size // 2), KINDS[formats]
    a, a_scale = (part.copy() for part in whole_numbers(formats, tokens + 1, 8, K).arrays[:2])
    if not kind.packed[0]:
        a[tokens] = numpy.nan
    a_scale[tokens] = numpy.nan
    index = random.integers(-1, tokens, ours.size, dtype=numpy.int32)
    taken, taken_scales = (gather(part.view(numpy.uint8), index).view(part.dtype) for part in (a, a_scale))
    index[ours & (index < 0) & (random.random(ours.size) < 0.5)] = tokens + 1  # one past the last is nobody's row, too
    index[~ours] = 2**31 - 1
    blocks = a_scale.shape[1]
    pitch_of_scales = (blocks, -(-blocks // 16) * 16, blocks + 3)[turn % 3]  # read one by one, or 16 at a time
    placed = Placed(a, _rows_apart(a.shape, 16 * gap), "e2m1x2" if kind.packed[0] else None)
    return taken, taken_scales, {"a": placed, "a_scale": Placed(a_scale, (pitch_of_scales, 1)), "index": Placed(index)}


def _padded(formats: str, b: numpy.ndarray, K: int) -> numpy.ndarray:
    """Weights of 4 bits beside tokens of 8 come in rows of 128 elements, of which the last may be anything."""
    if formats != "mxfp8_mxfp4":
        return b
    return numpy.concatenate([b, numpy.full((*b.shape[:-1], -(-K // 128) * 64 - b.shape[-1]), 0xA5, numpy.uint8)], axis=-1)


def _rows_apart(shape: tuple[int, ...], gap: int) -> tuple[int, ...]:
    row = -(-shape[-1] // 16) * 16 + gap
    return (row, 1) if len(shape) == 2 else (shape[1] * row, row, 1)


def _whole_tiles(scales: numpy.ndarray) -> Placed:
    """Blocked scales of matrices, each of which begins a tile; padding 0xFF."""
    matrices = [placed_scales(matrix).values for matrix in scales]
    whole = numpy.stack(matrices) if matrices else numpy.zeros((0, *blocked_shape(*scales.shape[1:])), scales.dtype)
    return Placed(whole, padding=whole.size - scales.size)


def _tiles_in_turn(scales: numpy.ndarray, places: Sequence[Any]) -> Placed:
    """Blocked scales of groups that follow each other, every group's from a tile on; padding 0xFF."""
    wide = blocked_shape(1, scales.shape[-1])[1]
    whole = numpy.full((-(-len(scales) // 128) * 128 + 128 * len(places), wide), 0xFF, numpy.uint8).view(scales.dtype)
    begin = 0
    for place in places:
        tiles = placed_scales(scales[place]).values
        whole[begin : begin + len(tiles)] = tiles
        begin += len(tiles)
    return Placed(whole, padding=whole.size - scales.size)


def _changed(operands: Operands, changed: tuple[str, float] | None) -> Operands:
    """NaN in the last element or scale of one row; or zeros in every second row."""
    if changed is None:
        return operands
    names = "a", "a_scale", "b", "b_scale"
    arrays = {name: array.copy() for name, array in zip(names, operands.arrays, strict=True)}
    argument, value = changed
    if value == 0:
        arrays[argument][::2] = 0
    else:
        arrays[argument][len(arrays[argument]) // 2, -1] = value
    a, a_scale, b, b_scale = arrays.values()
    return Operands(operands.formats, (a, a_scale, b, b_scale), exact_in_any_order=True)


def _quantised(h: Callable[[], numpy.ndarray], format: BlockFormat, M: int, columns: int, gap: int) -> Later:
    """Elements with rows 16 bytes apart, times `gap`, and tiles of scales."""

    def outputs() -> dict[str, Placed]:
        result = quantised(h(), format)
        scales = result.scales.reshape(blocked_shape(M, columns // format.block))
        q_dtype = "e2m1x2" if format.packed else None
        return {"q": Placed(result.q, (result.q.shape[1] + 16 * gap, 1), q_dtype), "scales": Placed(scales)}

    return Later(outputs)
