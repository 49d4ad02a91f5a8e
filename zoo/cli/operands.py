"""Real operands of an example, as text: calls of zoo's quantisers on random numbers.

For each family of formats a method says which calls make A and B. A kernel of which nothing is known here gets random elements of the
dtypes that its arguments have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from zoo.benchmark.arguments import Described
from zoo.contract.dtypes import DTYPES
from zoo.contract.manifest import Kernel

_BLOCK_SCALED = ("mxfp8", "mxfp4", "nvfp4", "mxfp8_mxfp4")
_BLOCKED, _HALVES = {"layout": '"blocked"'}, {"gates": '"halves"'}
_LINES = (32, 16)  # of a tile of blocked scales
_SHORT = 8  # elements of an array that is written out


class Operands:
    """`lines` make arrays, and `given` has the expression of each argument. `arrays`: what a caller gives, with offsets and the like."""

    def __init__(self, kernel: Kernel, sizes: Mapping[str, int], arrays: Mapping[str, Described], results: Mapping[str, Described]):
        self._sizes = sizes
        self.lines: list[str] = []
        self.given: dict[str, str] = {}
        self._arrays, self._results = arrays, results
        fields = kernel.fields
        self._op, self._formats, self._extra = fields["op"], fields.get("formats", ""), fields.get("extra", "")
        self._gated = self._op == "gemm" and "gates" in kernel.options
        self._grouping = fields.get("grouping", "dense")
        self._contents()
        try:
            self._quantised(fields.get("direction", ""))
        except LookupError:  # a kernel of another zoo, with other arguments
            self.lines, self.given = [], {}
            self._contents()
        for name, one in arrays.items():
            if name not in self.given and one.dtype == "bf16":
                self.given[name] = _normal(*one.shape)
            elif name not in self.given:
                self.lines.append(f"{name} = array({_random(name, one)})")
                self.given[name] = name
        if any(re.search(r"\bone\b", text) for text in (*self.lines, *self.given.values())):
            self.lines.insert(0, "one = array(numpy.ones(1, numpy.float32))  # scale of a whole tensor")

    def _contents(self) -> None:
        """What must lie in an array: offsets, an index, counts of rows. Quantisers of groups take them, too."""
        for name, one in self._arrays.items():
            if one.content is not None:
                self.lines.append(f"{name} = array({_content(one)})")
                self.given[name] = name

    def _quantised(self, direction: str) -> None:
        if self._op == "gemm" and self._grouping == "k_grouped":
            self._transposed("a")
            self._transposed("b")
        elif self._op == "gemm" and self._formats == "fp8b128":
            self._rows("a", "fp8b128")
            b = self._arrays["b"].shape
            self._call("b", "quantize.fp8b128.squares", x=_normal(*self._in_rows(b)))
            self.given |= {"b": _reshaped("b.q", b) if self._gated else "b.q", "b_scale": "b.scales"}
        elif self._op == "gemm" and self._formats in _BLOCK_SCALED:
            self._block_scaled()
        elif self._op == "gemm" and self._formats.partition("_")[2] in ("nvfp4", "mxfp4"):
            self._tokens()
            self._four_bit_weights()
        elif self._op in ("dequantize", "requantize") or (self._op == "pack" and "scales" in self._arrays):
            self._codes(direction)
        elif self._op == "unpack":
            self._packed()
        if "tensor_scale" in self._arrays and self._arrays["tensor_scale"].shape == (1,):
            self.given.setdefault("tensor_scale", "one")

    def _call(self, name: str, kernel: str, **arguments: str) -> None:
        """`name = zoo.call(...)`."""
        if kernel.startswith("quantize.nvfp4"):
            arguments = {"x": arguments.pop("x"), "tensor_scale": "one", **arguments}
        self.lines.append(f'{name} = zoo.call("{kernel}", {", ".join(f"{key}={value}" for key, value in arguments.items())})')

    def _in_rows(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of gates and ups, (..., 2, I, K), the shape of a matrix of both."""
        return (*shape[:-3], shape[-3] * shape[-2], shape[-1]) if self._gated else shape

    def _rows(self, name: str, formats: str, grouping: str = "", **options: str) -> None:
        """A matrix quantised along its rows; of a stack of matrices all rows at once."""
        one = self._arrays[name]
        shape = (*one.shape[:-1], _columns(one))
        self._call(name, f"quantize.{formats}.rows{grouping}", x=_normal(_flat(shape), shape[-1]), **options)
        self.given[name] = _stacked(f"{name}.q", one.shape)
        self.given[f"{name}_scale"] = _stacked(f"{name}.scales", self._arrays[f"{name}_scale"].shape)

    def _block_scaled(self) -> None:
        left, _, right = self._formats.partition("_")
        if self._grouping == "m_grouped_contiguous":
            self._rows("a", left, ".m_grouped_contiguous", offsets="offsets", **_BLOCKED)
        else:
            self._rows("a", left, **({} if self._grouping == "m_grouped_gather" else _BLOCKED))
        self._rows("b", right or left, **_BLOCKED)
        if right:
            self._call("packed", "pack.mxfp4", q="b.q")
            self.given["b"] = _stacked("packed.packed", self._arrays["b"].shape)

    def _tokens(self) -> None:
        """A of a product with 4-bit weights."""
        a, columns = self._arrays["a"], self._sizes["K"]
        if self._formats.startswith("fp8_"):
            self._call("a", "quantize.fp8token.rows", x=_normal(math.prod(a.shape) // columns, columns), order='"fragments"')
            in_places = self._grouping == "m_grouped_masked"
            self.given["a"] = _reshaped("a.q", a.shape) if in_places else "a.q"
            self.given["a_scale"] = _reshaped("a.scales", a.shape[:2]) if in_places else "a.scales"
        else:
            self.given["a"] = _normal(*a.shape)

    def _four_bit_weights(self) -> None:
        b, columns = self._arrays["b"], self._sizes["K"]
        tokens, _, formats = self._formats.partition("_")
        stored = self._extra.endswith("stored")
        lead = b.shape[:1] if self._grouping != "dense" else ()
        rows = self._results["d" if "d" in self._results else "q"].shape[-1] * (2 if self._gated else 1)
        self._call("w", f"quantize.{formats}.rows", x=_normal(_flat((*lead, rows, columns)), columns))
        both = (*(lead if stored else lead or (1,)), 2, rows // 2) if self._gated else (*lead, rows)
        codes = _stacked("w.q", (*both, columns // 2))
        scales = _stacked("w.scales", (*both, columns // (16 if formats == "nvfp4" else 32)))
        row_scale = self._arrays.get("b_row_scale")
        if not stored:
            options = {**(_HALVES if self._gated else {}), **({"tokens": '"bf16"'} if tokens == "bf16" else {})}
            self._call("b", f"pack.{formats}.fragments", q=codes, scales=scales, **options)
            of_one = self._gated and not lead
            self.given["b"] = _reshaped("b.b", b.shape) if of_one else "b.b"
            if row_scale:
                self.given["b_row_scale"] = _reshaped("b.row_scale", row_scale.shape) if of_one else "b.row_scale"
            return
        self.given |= {"b": codes, "b_scale": scales}
        if row_scale:
            self.lines.append('largest = w.scales.numpy().view("u1").max(-1)  # of each row')
            reshaped = f"largest.reshape{row_scale.shape}" if lead else "largest"
            self.given["b_row_scale"] = f"array({reshaped}.view(float8_e8m0fnu))"

    def _transposed(self, name: str) -> None:
        """An operand of a weight gradient: rows of tokens, quantised along the tokens and stored transposed."""
        one, fp8 = self._arrays[name], self._formats == "fp8b128"
        quantiser = f"quantize.{self._formats}.cols.{'m_grouped_contiguous' if fp8 else 'm_grouped_padded'}"
        tokens = int(self._arrays["offsets"].content[-1])  # type: ignore[index]
        self._call(name, quantiser, x=_normal(tokens, one.shape[0]), offsets="offsets", layout='"mn_major"' if fp8 else '"blocked"')
        self.given |= {name: f"{name}.q", f"{name}_scale": f"{name}.scales"}

    def _codes(self, direction: str) -> None:
        """Of what reads a quantiser's result: that."""
        q = self._arrays["q"]
        shape = (*q.shape[:-1], _columns(q))
        if direction == "squares":
            self._call("w", f"quantize.{self._formats}.squares", x=_normal(*shape))
            self.given |= {"q": "w.q", "scales": "w.scales"}
        else:
            self._call("w", f"quantize.{self._formats}.rows", x=_normal(_flat(shape), shape[-1]))
            self.given |= {"q": _stacked("w.q", q.shape), "scales": _stacked("w.scales", self._arrays["scales"].shape)}

    def _packed(self) -> None:
        q, scales = self._results["q"], self._results["scales"]
        self._call("w", f"quantize.{self._formats}.rows", x=_normal(_flat(q.shape), 2 * q.shape[-1]))
        self._call("packed", f"pack.{self._formats}.fragments", q=_stacked("w.q", q.shape), scales=_stacked("w.scales", scales.shape))
        self.given["b"] = "packed.b"
        if "row_scale" in self._arrays:
            self.given["row_scale"] = "packed.row_scale"


def _normal(*shape: int) -> str:
    return f"normal({', '.join(map(str, shape))})"


def _flat(shape: tuple[int, ...]) -> int:
    """The rows of all matrices of a stack."""
    return math.prod(shape[:-1])


def _stacked(name: str, shape: tuple[int, ...]) -> str:
    """An array of all rows, as the stack of matrices that it is."""
    return name if len(shape) < 3 or (len(shape) == 4 and shape[-2:] == _LINES) else _reshaped(name, shape)


def _reshaped(name: str, shape: tuple[int, ...]) -> str:
    return f"{name}.reshape{shape}"


def _columns(one: Described) -> int:
    """Elements of a row, two a byte where they have 4 bits."""
    return one.shape[-1] * (2 if one.dtype == "e2m1x2" else 1)


def _content(one: Described) -> str:
    dtype, content = f"numpy.{DTYPES[one.dtype].numpy}", [] if one.content is None else one.content.tolist()
    if len(content) <= _SHORT:
        return f"numpy.array({content}, {dtype})"
    return f"numpy.arange({len(content)}, dtype={dtype}) % {max(content) + 1}"


def _random(name: str, one: Described) -> str:
    """Elements that any kernel may be given. Scales in f32 are powers of two, which kernels for ue8m0 read as well."""
    dtype, shape = DTYPES[one.dtype].numpy, one.shape
    spelled = dtype if dtype.startswith(("bfloat", "float8")) else f"numpy.{dtype}"
    if dtype == "uint8":
        return f"random.integers(0, 256, {shape}, numpy.uint8)"
    if "scale" in name and "float" in dtype:
        powers = f"random.integers(-4, 5, {shape})"
        return f'numpy.exp2({powers}, dtype="f4")' if dtype == "float32" else f"numpy.exp2({powers}).astype({spelled})"
    if "float" in dtype:
        return f"random.standard_normal({shape}).astype({spelled})"
    return f"numpy.zeros({shape}, {spelled})"
