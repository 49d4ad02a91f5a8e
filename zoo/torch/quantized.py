"""A matrix that knows how it is quantised, and products of two such: zoo's quantisers and GEMMs without their bookkeeping."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from zoo.contract.formats import FORMATS, PAIRS, Format
from zoo.contract.nearest import afterthought
from zoo.contract.whole_numbers import LONGEST, shown
from zoo.errors import ArgumentError, UnknownKernelError
from zoo.runtime.torch_dtypes import torch_dtype
from zoo.torch.operators import refuse_what_is_not_dense

_BLOCK = {name: one.block for name, one in FORMATS.items() if one.scales and one.block}  # elements that share a scale
_FOUR_BITS = tuple(name for name in _BLOCK if FORMATS[name].elements == ("e2m1x2",))
_DIRECTIONS = ("rows", "cols", "squares")
_TILE = 128  # rows of a tile of scales in the layout `blocked`
_WORDS = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32", torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
_OF_NUMBERS = ("f32", "float32", "bf16", "bfloat16")  # numpy's names too
_MIXED = {(pair.a[0], pair.b): pair.name for pair in PAIRS.values() if FORMATS[pair.a[0]].scales}
_FORMATS = tuple(name for name, one in FORMATS.items() if one.scales)
_LAYOUTS = ("plain", "blocked", "mn_major", "fragments")
_POWERS = (torch_dtype("ue8m0"), torch.uint8)


def _dtypes(one: Format) -> tuple[tuple[torch.dtype, ...], tuple[torch.dtype, ...]]:
    """Of elements and of scales; bytes stand for what a torch has no dtype for."""
    elements, scales = tuple(map(torch_dtype, one.elements)), torch_dtype(str(one.scales))
    of_bytes = (torch.uint8,) if one.elements == ("e2m1x2",) else ()
    powers = _POWERS if one.name == "fp8b128" else (torch.uint8,) if one.scales != "f32" else ()  # f32 scales may be powers of two in ue8m0
    return (*elements, *of_bytes), (scales, *powers)


_DTYPES = {name: _dtypes(FORMATS[name]) for name in _FORMATS}


@dataclass(frozen=True, eq=False)
class Quantized:
    """`elements` and `scales` as zoo's kernels name them, of one matrix (M, K) or of several (G, M, K).

    `direction` says which elements share a scale: neighbours of a row, of a column, or of a square. Elements of one scale lie side by side,
    so what is quantised by columns is stored transposed: `transposed` says that the matrix is the transpose of what is stored.
    `offsets` are the ends of the groups of rows (of columns, for direction `cols`) that it was quantised by.
    In the layout `fragments` the elements lie as Hopper's products with 4-bit weights read them, and `packed_shape` says of what matrix.
    """

    elements: torch.Tensor
    scales: torch.Tensor  # empty where they lie among the elements: nvfp4 in fragments
    format: str
    squares: bool = False
    transposed: bool = False
    layout: str = "plain"
    tensor_scale: torch.Tensor | None = None
    offsets: torch.Tensor | None = None
    packed_shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuses parts that are of no such matrix. Whether scales are as many as elements need, the kernels ask that read them."""
        if self.format not in _FORMATS:
            raise ArgumentError(f"Quantized: no format {shown(self.format)}; there are {', '.join(_FORMATS)}")
        if self.layout not in _LAYOUTS:
            raise ArgumentError(f"Quantized: no layout {shown(self.layout)}; there are {', '.join(_LAYOUTS)}")
        for name in ("elements", "scales", "tensor_scale", "offsets"):
            part = getattr(self, name)
            if part is None and name in ("tensor_scale", "offsets"):
                continue
            if not isinstance(part, torch.Tensor):
                raise ArgumentError(f"Quantized: {name}: expected a tensor, got a {type(part).__name__}")
            if part.device != self.elements.device:
                raise ArgumentError(f"Quantized: {name}: lies on {part.device}, elements on {self.elements.device}; move it there first")
        self._check_dtypes()
        if self.packed_shape is not None and not isinstance(self.packed_shape, tuple):
            raise ArgumentError(
                f"Quantized: packed_shape: expected the shape of the matrix, such as (N, K), got {shown(self.packed_shape)}"
            )
        if self.packed_shape is None and self.elements.dim() not in (2, 3):
            raise ArgumentError(f"Quantized: elements: expected a matrix, or several (G, M, K), got {tuple(self.elements.shape)}")
        if (self.format == "nvfp4") != (self.tensor_scale is not None):
            needs = (
                "nvfp4 needs one, f32 (1), which all its scales are relative to: keep it beside them"
                if self.format == "nvfp4"
                else f"{self.format} has none; only nvfp4 does"
            )
            raise ArgumentError(f"Quantized: tensor_scale: {needs}")
        if self.layout == "fragments" and self.packed_shape is None:
            raise ArgumentError("Quantized: in fragments it needs packed_shape=, the shape of its matrix: keep that of what was packed")
        if self.format == "fp8token" and self.layout == "plain" and self.elements.dim() != self.scales.dim() + 1:
            raise ArgumentError(
                f"Quantized: elements {tuple(self.elements.shape)} and scales {tuple(self.scales.shape)}: fp8token has a scale for each row; "
                "for elements in fragments pass layout='fragments' and packed_shape=, the shape of the matrix"
            )
        if self.offsets is not None and self.offsets.dim() != 1:
            raise ArgumentError(f"Quantized: offsets: expected the end of each group, (G), got {tuple(self.offsets.shape)}")

    def _check_dtypes(self) -> None:
        elements, scales = _DTYPES[self.format]
        for name, part, takes in (("elements", self.elements, elements), ("scales", self.scales, scales)):
            if part.dtype not in takes and (name == "elements" or part.numel() > 0):
                raise ArgumentError(
                    f"Quantized: {name}: {self.format} has {' or '.join(dict.fromkeys(map(str, takes)))}, got {part.dtype}; "
                    "if .to(dtype) of a module or tensor made it that, move it by .to(device) alone"
                )

    @property
    def direction(self) -> str:
        return "squares" if self.squares else "cols" if self.transposed else "rows"

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Of the matrix as it lies in memory, in elements; two of 4 bits are a byte, so their number is even."""
        if self.packed_shape is not None:
            return self.packed_shape
        *more, columns = self.elements.shape
        return (*more, 2 * columns if self.format in _FOUR_BITS else columns)

    @property
    def shape(self) -> tuple[int, ...]:
        *more, rows, columns = self.stored_shape
        return (*more, columns, rows) if self.transposed else (*more, rows, columns)

    @property
    def device(self) -> torch.device:
        return self.elements.device

    def __repr__(self) -> str:
        groups = "" if self.offsets is None else f", {self.offsets.shape[0]} groups"
        return f"Quantized({self.format}, {tuple(self.shape)}, {self.direction}, {self.layout}{groups}, {self.device})"

    def to(self, *place: Any) -> Quantized:
        """The same on another device."""
        if any(isinstance(one, torch.dtype) for one in place):
            raise ArgumentError(f"Quantized.to: {self} keeps its dtypes; give a device, or take .dequantize(dtype)")

        def moved(tensor: torch.Tensor | None) -> Any:
            return None if tensor is None else tensor.to(*place)

        changes = {name: moved(getattr(self, name)) for name in ("elements", "scales", "tensor_scale", "offsets")}
        return self._with(**changes)

    def _with(self, **changes: Any) -> Quantized:
        """The same with other fields. dataclasses.replace, which torch.compile of torch 2.6 cannot follow."""
        fields = {
            "elements": self.elements, "scales": self.scales, "format": self.format, "squares": self.squares, "transposed": self.transposed,
            "layout": self.layout, "tensor_scale": self.tensor_scale, "offsets": self.offsets, "packed_shape": self.packed_shape,
        }  # fmt: skip
        return Quantized(**{**fields, **changes})

    def t(self) -> Quantized:
        """The transpose: nothing is moved."""
        return self._with(transposed=not self.transposed)

    def __matmul__(self, other: Quantized) -> torch.Tensor:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> torch.Tensor:
        return matmul(other, self)  # which says how to quantise a tensor

    def dequantize(self, dtype: str | torch.dtype = "bf16") -> torch.Tensor:
        """The numbers that it stands for, in bf16 or f32."""
        if (word := _word(dtype)) not in _OF_NUMBERS:
            raise ArgumentError(f"Quantized.dequantize: dtype: expected bf16 or f32, got {shown(dtype)}; convert the result by .to()")
        if self.offsets is not None and self.transposed:
            raise ArgumentError(
                f"Quantized.dequantize: {self}: blocks of columns begin anew with each group; dequantise the groups one by one"
            )
        if self.tensor_scale is not None and self.tensor_scale.numel() > 1 and not self.squares:
            raise ArgumentError(f"Quantized.dequantize: {self} has a tensor scale for each group; dequantise the groups one by one")
        if self.format == "fp8token":
            return _of_tokens(self).to(torch.float32 if word in _OF_NUMBERS[:2] else torch.bfloat16)
        if self.layout == "fragments":
            return _unpacked(self).dequantize(dtype)
        several = self.elements.dim() == 3 and not self.squares  # whose rows have blocks of their own, so they are rows of one matrix
        plain = self.laid("plain") if several or self.offsets is not None or self.layout == "mn_major" else self
        elements, scales = (_flat(plain.elements), _flat(plain.scales)) if several else (plain.elements, plain.scales)
        scales = _numbers(scales) if self.format == "fp8b128" else scales
        by_place = [elements, scales] if plain.tensor_scale is None else [elements, scales, plain.tensor_scale]
        layout = {} if self.format == "fp8b128" else {"layout": plain.layout}
        operator = getattr(torch.ops.zoo, f"dequantize_{self.format}_{'squares' if self.squares else 'rows'}")
        found: torch.Tensor = operator(*by_place, out=word, **layout)
        if several:
            found = found.reshape(self.stored_shape)
        return found.mT if self.transposed else found

    def laid(self, layout: str) -> Quantized:
        """The same in another layout: scales that are `plain`, or `blocked` as Blackwell's products read them; or 4-bit weights in
        `fragments`, as Hopper's do."""
        _check_layout("Quantized.laid", layout)
        if layout == self.layout:
            return self
        if self.format in _FOUR_BITS and self.layout == "fragments":
            return _unpacked(self).laid(layout)
        if self.format in _FOUR_BITS and layout == "fragments" and not self.squares and self.offsets is None:
            return _packed(self.laid("plain"))
        if self.format in _FOUR_BITS and layout == "fragments":
            raise ArgumentError(
                f"Quantized.laid: {self} cannot become 'fragments'; quantise the matrix by rows and without groups, then .laid('fragments')"
            )
        if (self.layout, layout) == ("mn_major", "plain"):
            return self._with(scales=self.scales.contiguous(), layout=layout)
        if self.format == "mxfp8" and self.squares and not self.transposed and (self.layout, layout) == ("plain", "blocked"):
            scales = self.scales.repeat_interleave(_BLOCK["mxfp8"], dim=-2)[..., : self.elements.shape[-2], :]  # of each row
            return self._with(scales=scales, squares=False).laid(layout)
        grouped_columns = self.offsets is not None and self.transposed
        if self.squares or grouped_columns or self.format == "fp8b128" or {layout, self.layout} != {"plain", "blocked"}:
            raise ArgumentError(
                f"Quantized.laid: {self} cannot become '{layout}'; quantise the matrix with layout='{layout}', if the format has that"
            )
        return self._with(scales=_blocked(self) if layout == "blocked" else _unblocked(self), layout=layout)


def _check_layout(who: str, layout: Any) -> None:
    if not isinstance(layout, str) or layout not in _LAYOUTS:
        raise ArgumentError(f"{who}: no layout {shown(layout)}; there are {', '.join(_LAYOUTS)}")


def _word(dtype: Any) -> Any:
    """zoo's word for one of torch's dtypes."""
    return _WORDS.get(dtype, dtype) if isinstance(dtype, torch.dtype) else dtype


def _check_groups(who: str, groups: Any) -> None:
    if groups is not None and not (isinstance(groups, torch.Tensor) and groups.dtype == torch.int32):
        got = groups.dtype if isinstance(groups, torch.Tensor) else f"a {type(groups).__name__}"
        raise ArgumentError(f"{who}: groups: expected a tensor of torch.int32 beside the matrix, got {got}: groups.to(torch.int32)")


def _check_tensor(verb: str, name: str, given: object) -> None:
    if not isinstance(given, torch.Tensor):
        raise ArgumentError(f"{verb}: {name}: expected a tensor, got a {type(given).__name__}")
    refuse_what_is_not_dense(verb, name, given)


def _check_options(verb: str, operator: Any, given: dict[str, Any]) -> None:
    """Refuses what torch would with a page of schema. While it compiles, that page is what there is."""
    if not given or torch.compiler.is_compiling():
        return
    takes = _options_of(operator)
    for name, value in given.items():
        if name not in takes:
            raise ArgumentError(
                f"{verb}: {operator.__name__} takes no {name if len(name) <= LONGEST else shown(name)}=; it takes {', '.join(takes)}{afterthought(str(name), takes)}"
            )
        if takes[name] == "str" and not isinstance(value, str):
            raise ArgumentError(f"{verb}: {name}: expected a text, got {shown(value)}")
        if "Tensor" in takes[name] and value is not None:
            _check_tensor(verb, name, value)


@cache
def _options_of(operator: Any) -> dict[str, str]:
    """What goes by keyword, and the type of each."""
    return {one.name: str(one.type) for one in operator.default._schema.arguments if one.kwarg_only}


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flatten(0, -2) if tensor.dim() != 2 else tensor


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8)


def _numbers(scales: torch.Tensor) -> torch.Tensor:
    """Scales of fp8b128 in f32, which a product needs not and a dequantiser does."""
    if scales.dtype == torch.float32:
        return scales
    powers = _bytes(scales).to(torch.int32)
    return torch.where(powers == 0, 1 << 22, torch.where(powers == 255, 0x7FC00000, powers << 23)).view(torch.float32)


def _packed(one: Quantized) -> Quantized:
    pack = getattr(torch.ops.zoo, f"pack_{one.format}_fragments")
    made = pack(one.elements, one.scales)
    elements, scales = (made, one.scales.new_empty(0)) if one.format == "nvfp4" else made
    return one._with(elements=elements, scales=scales, layout="fragments", packed_shape=one.stored_shape)


def _unpacked(one: Quantized) -> Quantized:
    unpack = getattr(torch.ops.zoo, f"unpack_{one.format}_fragments")
    *_, rows, columns = one.stored_shape
    by_place = [one.elements] if one.format == "nvfp4" else [one.elements, one.scales]
    elements, scales = unpack(*by_place, R=rows, KB=columns // 2)
    return one._with(elements=elements, scales=scales, layout="plain", packed_shape=None)


def _of_tokens(one: Quantized) -> torch.Tensor:
    elements = one.elements.float()
    if one.layout == "fragments":  # (..., K / 64, 64): of each 64 columns, the 4 x 4 words of 4 are transposed, which undoes itself
        words = elements.unflatten(-1, (4, 4, 4)).transpose(-3, -2)
        elements = words.flatten(-4)[..., : one.stored_shape[-1]]
    found: torch.Tensor = elements * one.scales.unsqueeze(-1)
    return found.mT if one.transposed else found


def _blocked(one: Quantized) -> torch.Tensor:
    ops, scales = torch.ops.zoo, _bytes(one.scales)
    expected = (*one.elements.shape[:-1], -(-one.stored_shape[-1] // _BLOCK[one.format]))
    if scales.shape != expected:  # tiles are filled up, and would hide what is missing
        raise ArgumentError(f"Quantized.laid: {one}: expected scales {expected}, got {tuple(scales.shape)}")
    if one.offsets is not None:
        found = ops.scales_blocked_m_grouped_contiguous(scales, one.offsets)
    elif scales.dim() == 2:
        found = ops.scales_blocked(scales)
    elif scales.shape[1] % _TILE == 0:  # tiles of several matrices lie as those of one
        found = ops.scales_blocked(_flat(scales))
        found = found.view(scales.shape[0], scales.shape[1] // _TILE, *found.shape[1:])
    else:
        found = _each(scales, ops.scales_blocked)
    return found.view(one.scales.dtype)


def _unblocked(one: Quantized) -> torch.Tensor:
    ops, scales = torch.ops.zoo, _bytes(one.scales)
    rows, columns = one.elements.shape[-2], -(-one.stored_shape[-1] // _BLOCK[one.format])
    if one.offsets is not None:
        found = ops.scales_unblocked_m_grouped_contiguous(scales, one.offsets, M=rows, C=columns)
    elif one.elements.dim() == 2:
        found = ops.scales_unblocked(scales, M=rows, C=columns)
    else:
        found = _each(scales, lambda scale: ops.scales_unblocked(scale, M=rows, C=columns))
    return found.view(one.scales.dtype)


def _each(matrices: torch.Tensor, arranged: Any) -> torch.Tensor:
    """Of no matrices none, in the shape that one would have."""
    some = matrices if matrices.shape[0] else matrices.new_zeros(1, *matrices.shape[1:])
    return torch.stack([arranged(one) for one in some])[: matrices.shape[0]]


def quantize(
    x: torch.Tensor,
    format: str,
    *,
    direction: str = "rows",
    layout: str | None = None,
    groups: torch.Tensor | None = None,
    tensor_scale: torch.Tensor | None = None,
    **options: Any,
) -> Quantized:
    """Quantises a matrix (M, K), or several (G, M, K), to `format`: fp8b128, mxfp8, mxfp4 or nvfp4; or fp8token, for products with 4-bit
    weights on Hopper.

    direction: "rows", "cols", or "squares" for weights. A product A B sums along the rows of A and the columns of B.
    layout: of the scales. Left out, it is what the products of the format read: "blocked"; of fp8b128 "plain", of fp8token "fragments".
    groups: ends of groups (int32); blocks, and of nvfp4 a tensor scale where there are several, begin anew with each.
    tensor_scale: of nvfp4. Left out, it is worked out from x, which is read once more.
    Others go to the kernel as they are: rounding="rceil", scaling="pow2", q="e5m2".
    """
    if format not in _FORMATS:
        raise ArgumentError(f"quantize: no format {shown(format)}; there are {', '.join(_FORMATS)}")
    if direction not in _DIRECTIONS:
        raise ArgumentError(f"quantize: no direction {shown(direction)}; there are {', '.join(_DIRECTIONS)}")
    if layout is not None:
        _check_layout("quantize", layout)
    if "order" in options:
        raise ArgumentError("quantize: no option is named 'order'; give layout='plain' or layout='fragments'")
    if direction == "squares" and groups is not None:
        raise ArgumentError("quantize: squares have no groups; give the matrices of all groups as one tensor (G, N, K)")
    for name, one in (("x", x), ("groups", groups), ("tensor_scale", tensor_scale)):
        if name == "x" or one is not None:
            _check_tensor("quantize", name, one)
    if tensor_scale is not None and format != "nvfp4":
        raise ArgumentError(f"quantize: {format} has no tensor_scale; leave it out, or quantise to nvfp4")
    if groups is not None and groups.dim() != 1:
        raise ArgumentError(f"quantize: groups: expected the end of each group, (G), got {tuple(groups.shape)}")
    if x.dim() not in (2, 3) or (x.dim() == 3 and direction != "squares" and groups is not None):
        raise ArgumentError(f"quantize: expected a matrix, or several (G, M, K) without groups; got {tuple(x.shape)}: reshape it")
    _check_groups("quantize", groups)
    if format == "fp8token":
        if direction != "rows" or groups is not None:
            raise ArgumentError("quantize: fp8token has a scale for each row; quantise by direction='rows', and without groups")
        return _tokens(x, layout or "fragments", options)
    several = x.dim() == 3 and direction == "rows"
    if layout is None:
        layout = "plain" if format == "fp8b128" else "blocked"
    name = f"quantize_{format}_{direction}"
    if groups is not None:
        name += "_m_grouped_contiguous"
    elif x.dim() == 3 and direction == "cols":
        name += "_experts"
    operator = getattr(torch.ops.zoo, name)
    by_place = [_flat(x) if several else x]
    if groups is not None:
        by_place.append(groups)
    if format == "nvfp4":
        if tensor_scale is None:
            tensor_scale = _tensor_scale(x)
        by_place.append(tensor_scale)
    stacked = several and layout == "blocked" and x.shape[1] % _TILE != 0  # a tile of scales would span two matrices
    if (format, direction) != ("fp8b128", "squares"):
        options["layout"] = "plain" if stacked else layout
    elif layout != "plain":
        raise ArgumentError(f"quantize: squares of fp8b128 have one layout, plain; got {shown(layout)}")
    options = {name: _word(value) for name, value in options.items()}
    _check_options("quantize", operator, options)
    elements, scales = operator(*by_place, **options)
    if several:  # no -1, which no matrices, or such without rows, leave open
        rows = x.shape[1] // _TILE if layout == "blocked" and not stacked else x.shape[1]
        elements, scales = elements.view(*x.shape[:2], elements.shape[-1]), scales.view(x.shape[0], rows, *scales.shape[1:])
    made = Quantized(
        elements,
        scales,
        format,
        squares=direction == "squares",
        transposed=direction == "cols",
        layout="plain" if stacked else layout,
        tensor_scale=tensor_scale,
        offsets=groups,
    )
    return made.laid(layout)


def _tokens(x: torch.Tensor, layout: str, options: dict[str, Any]) -> Quantized:
    options = {name: _word(value) for name, value in options.items()} | {"order": layout}
    _check_options("quantize", torch.ops.zoo.quantize_fp8token_rows, options)
    elements, scales = torch.ops.zoo.quantize_fp8token_rows(_flat(x), **options)
    elements, scales = elements.view(*x.shape[:-1], *elements.shape[1:]), scales.view(x.shape[:-1])
    return Quantized(elements, scales, "fp8token", layout=layout, packed_shape=tuple(x.shape) if layout == "fragments" else None)


def _tensor_scale(x: torch.Tensor) -> torch.Tensor:
    _, scale = torch.ops.zoo.quantize_amax.all(_flat(x))
    return scale


def kernel_of(a: Quantized, b: Quantized, groups: torch.Tensor | None = None) -> str:
    """The name of the kernel that `matmul` of these starts."""
    for name, one, other in (("a", a, b), ("b", b, a)):
        if not isinstance(one, Quantized):
            raise ArgumentError(
                f"matmul: {name} is a {type(one).__name__}; quantise it first: zoo.torch.quantize(x, '{_partner(name, other)}')"
            )
    _check_groups("matmul", groups)
    if groups is not None:
        _check_tensor("matmul", "groups", groups)
    formats = a.format if a.format == b.format and a.format in _BLOCK else _MIXED.get((a.format, b.format))
    if formats is None:
        raise UnknownKernelError(
            f"matmul: no kernel multiplies {a.format} by {b.format}; both may be of one format, mxfp8 by mxfp4, or fp8token by nvfp4 or mxfp4"
        )
    if a.transposed or not b.transposed:
        wrong, other = ("a", a) if a.transposed else ("b", b)
        along = "rows" if wrong == "a" else "columns"
        raise ArgumentError(
            f"matmul: {wrong} is {other}, and a product sums along the {along} of {wrong}, where its elements must lie side by side; "
            f"quantise the matrix by its {'rows' if wrong == 'a' else 'cols'}, or multiply by {wrong}.t() if you mean its transpose"
        )
    a_rank, b_rank = len(a.stored_shape), len(b.stored_shape)
    if groups is None and a_rank == b_rank == 2:
        grouping = "dense"
    elif groups is not None and b_rank == 3:
        grouping = "m_grouped_contiguous" if a_rank == 2 else "m_grouped_masked"
    elif groups is not None and a_rank == b_rank == 2 and formats == "fp8b128":
        grouping = "k_grouped"
    else:
        if groups is None and a_rank == 3 and b_rank == 2:
            raise ArgumentError(
                f"matmul: {tuple(a.shape)} by {tuple(b.shape)}: by one matrix b, rows are multiplied as one matrix: "
                "quantise x.flatten(0, -2), and unflatten the product"
            )
        raise ArgumentError(
            f"matmul: {tuple(a.shape)} by {tuple(b.shape)} needs groups=: the ends of the groups of a's rows, or of (G, M, K) the rows "
            "that are used of each"
        )
    if formats == "fp8b128" and grouping != "k_grouped" and (a.squares or not b.squares):
        raise ArgumentError(
            f"matmul: a is {a}, b is {b}; this product of fp8b128 takes a by rows and b by squares: quantise b with direction='squares'"
        )
    if a.format == "fp8token" and (b.squares or b.offsets is not None):
        raise ArgumentError(f"matmul: b is {b}; this product takes weights in fragments: quantise b by rows and without groups")
    if a.layout == "blocked" and grouping == "m_grouped_contiguous" and a.offsets is None:
        raise ArgumentError(
            f"matmul: a is {a}, and its blocked scales must begin anew with each group: quantise it with the same groups=, or with layout='plain'"
        )
    return f"gemm.{formats}.{grouping}"


def _partner(name: str, other: object) -> str:
    """A format that b, or a, may have for this product."""
    if not isinstance(other, Quantized):
        return "fp8b128"
    if name == "a" and other.layout == "fragments":
        return "fp8token"
    return "mxfp4" if other.format == "fp8token" else other.format


def matmul(
    a: Quantized,
    b: Quantized,
    *,
    groups: torch.Tensor | None = None,
    dtype: str | torch.dtype = "bf16",
    out: torch.Tensor | None = None,
    **more: Any,
) -> torch.Tensor:
    """a b, in bf16, f16 or f32; `a @ b` is this without groups. `kernel_of` says which kernel it is.

    With groups (int32): of a (M, K) and b (G, K, N) the ends of the groups of a's rows; of a (G, M, K) the rows used of each; of two
    matrices the ends of the groups of the axis that is summed along, each of which gives a product of its own.
    out: a tensor to write into, whose dtype replaces `dtype`. Rows that no group owns keep what they hold.
    Others go to the kernel as they are: c=, bias=, row_scale=, batch_invariant="yes".
    """
    name = kernel_of(a, b, groups)
    operator = getattr(torch.ops.zoo, name.replace(".", "_"))
    if out is not None:
        _check_tensor("matmul", "out", out)
        dtype = out.dtype
    if "d" in more:
        raise ArgumentError("matmul: no option is named 'd'; the product's dtype is dtype=")
    if not isinstance(word := _word(dtype), str):
        raise ArgumentError(f"matmul: {'dtype' if out is None else 'out'}: expected bf16, f16 or f32, got {shown(dtype)}")
    _check_options("matmul", operator, more)
    if groups is not None:
        more["rows" if name.endswith(".m_grouped_masked") else "offsets"] = groups
    if a.format == "fp8token":
        return _by_packed_weights(operator, a, b, out, d=word, **more)
    if a.format != "fp8b128":
        a, b = _read_by_blackwell(a, groups, name), _read_by_blackwell(b, None, name)
        if a.tensor_scale is not None and b.tensor_scale is not None:
            more["alpha"] = a.tensor_scale * b.tensor_scale
    elements = b.elements
    if name.startswith("gemm.mxfp8_mxfp4."):
        more.pop("b_constant", None)  # the kernel ahead writes b
        elements = torch.ops.zoo.pack_mxfp4(_flat(elements))
        elements = elements.view(*b.elements.shape[:-1], -1) if b.elements.dim() == 3 else elements
    return _started(operator, (a.elements, a.scales, elements, b.scales), out, d=word, **more)


def _started(operator: Any, by_place: tuple[torch.Tensor, ...], out: torch.Tensor | None, **more: Any) -> torch.Tensor:
    if out is None:
        product: torch.Tensor = operator(*by_place, **more)
        return product
    operator.out(*map(_as_bytes, by_place), **{**more, "d": out})
    return out


def _as_bytes(traced: torch.Tensor) -> torch.Tensor:
    """ue8m0 of a traced call: torch's compiler raises an error where a kernel writes into a tensor and reads another with this dtype."""
    if torch.compiler.is_compiling() or type(traced) is not torch.Tensor:
        return traced.view(torch.uint8) if traced.dtype == torch_dtype("ue8m0") else traced
    return traced


def _by_packed_weights(operator: Any, a: Quantized, b: Quantized, out: torch.Tensor | None, **more: Any) -> torch.Tensor:
    if a.layout != "fragments":
        raise ArgumentError(f"matmul: a is {a}; quantise it with layout='fragments', as products with 4-bit weights read it")
    if a.shape[-1] != b.shape[-2]:
        raise ArgumentError(f"matmul: {tuple(a.shape)} by {tuple(b.shape)}: the columns of a are not as many as the rows of b")
    b = b.laid("fragments")
    if b.tensor_scale is not None:
        several = len(b.stored_shape) == 3 and b.tensor_scale.numel() == 1  # one for all matrices, and alpha has one for each
        more["alpha"] = b.tensor_scale.repeat(b.stored_shape[0]) if several else b.tensor_scale
    if b.format == "mxfp4":
        more["b_row_scale"] = b.scales
    size = {"N": b.shape[-1]} if out is None else {}
    return _started(operator, (a.elements, b.elements), out, a_scale=a.scales, **size, **more)


def _read_by_blackwell(one: Quantized, groups: torch.Tensor | None, name: str) -> Quantized:
    if one.layout == "blocked":
        return one
    if groups is not None and one.elements.dim() == 2 and name.endswith(".m_grouped_contiguous"):
        one = one._with(offsets=groups)
    return one.laid("blocked")
