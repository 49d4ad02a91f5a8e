"""Random operands of a product as torch tensors, and the rows of D that they must give.

Elements are drawn from a normal distribution, scales from 0.5 to 1.5 or from powers of two. A scale that is read at a wrong place changes the
result by more than any rounding does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo.benchmark.product import Product

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Scaling:
    """torch's names of the dtypes of elements and scales, and the block (rows x columns) that shares a scale. 0 columns: no scales."""

    elements: str
    rows: int = 1
    columns: int = 0
    scales: str = "float32"


PLAIN_FP8, BF16 = Scaling("float8_e4m3fn"), Scaling("bfloat16")
BLOCKS, SQUARES = Scaling("float8_e4m3fn", 1, 128), Scaling("float8_e4m3fn", 128, 128)
MXFP8, NVFP4 = Scaling("float8_e4m3fn", 1, 32, "float8_e8m0fnu"), Scaling("float4_e2m1fn_x2", 1, 16, "float8_e4m3fn")
MXFP4 = Scaling("float4_e2m1fn_x2", 1, 32, "float8_e8m0fnu")


class Matrix:
    """Elements (..., rows, columns) and their scales (..., ceil(rows / scaling.rows), ceil(columns / scaling.columns))."""

    def __init__(self, torch: Any, shape: tuple[int, ...], scaling: Scaling, device: str):
        self._torch, self._scaling = torch, scaling
        *stack, rows, columns = shape
        dtype, self._packed = getattr(torch, scaling.elements), scaling.elements.endswith("_x2")
        if self._packed:
            self.elements = torch.randint(0, 256, (*stack, rows, columns // 2), dtype=torch.uint8, device=device).view(dtype)
        else:
            self.elements = torch.randn(shape, device=device, dtype=torch.bfloat16).to(dtype)
        if scaling.columns:
            blocks = (*stack, -(-rows // scaling.rows), -(-columns // scaling.columns))
            dtype = getattr(torch, scaling.scales)
            if scaling.scales == "float8_e8m0fnu":
                self.scales = torch.randint(125, 130, blocks, dtype=torch.uint8, device=device).view(dtype)
            else:
                self.scales = (torch.rand(blocks, device=device) + 0.5).to(dtype)

    @property
    def bytes(self) -> int:
        return int(self.elements.numel() * self.elements.element_size())

    def numbers(self, place: Any) -> Any:
        """The matrix at this place of the stack, or these rows of a matrix whose scales are for single rows, in f32."""
        torch = self._torch
        if self._packed:
            codes = self.elements.view(torch.uint8)[place]
            both = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2).long()
            values = torch.tensor(_E2M1 + tuple(-one for one in _E2M1), device=codes.device)[both]
        else:
            values = self.elements[place].float()
        if not self._scaling.columns:
            return values
        if self._scaling.scales == "float8_e8m0fnu":  # of which torch computes nothing
            scales = torch.exp2(self.scales.view(torch.uint8)[place].float() - 127)
        else:
            scales = self.scales[place].float()
        rows, columns = values.shape
        spread = scales.repeat_interleave(self._scaling.rows, 0)[:rows].repeat_interleave(self._scaling.columns, 1)
        return values * spread[:, :columns]


class Operands:
    """A (M, K) and B (G, N, K). `device`: as torch names it."""

    def __init__(self, torch: Any, product: Product, of_a: Scaling, of_b: Scaling, device: str):
        self._torch, self._N = torch, product.N
        ends = product.ends or (product.M,)
        self.ends = torch.tensor(ends, dtype=torch.int32, device=device)
        self.a = Matrix(torch, (product.M, product.K), of_a, device)
        self.b = Matrix(torch, (len(ends), product.N, product.K), of_b, device)

    @property
    def bytes(self) -> int:
        return self.a.bytes + self.b.bytes

    def expected(self, rows: Any) -> Any:
        """These rows of D in f32."""
        torch = self._torch
        groups = torch.searchsorted(self.ends, rows.int(), right=True)
        found = torch.empty((len(rows), self._N), device=rows.device)
        for group in groups.unique().tolist():
            mine = groups == group
            found[mine] = self.a.numbers(rows[mine]) @ self.b.numbers(group).t()
        return found


def column_major(scales: Any) -> Any:
    """The same scales with columns contiguous, one column after the other; rows are filled up with zeros to a multiple of 4."""
    rows, columns = scales.shape
    held = scales.new_zeros((columns, -(-rows // 4) * 4))
    held[:, :rows] = scales.t()
    return held.t()


def swizzled(torch: Any, scales: Any) -> Any:
    """Scales in tiles of 128 rows x 4 columns, flat, as tensor cores of Blackwell read them; zeros fill the last tiles."""
    rows, columns = scales.shape
    held = torch.zeros((-(-rows // 128) * 128, -(-columns // 4) * 4), dtype=torch.uint8, device=scales.device)
    held[:rows, :columns] = scales.view(torch.uint8)
    tiles = held.view(-1, 4, 32, held.shape[1] // 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(-1).view(scales.dtype)
