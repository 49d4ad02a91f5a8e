"""FSDP2 gathers casts of fp8b128 weights, a byte an element, in place of the weights.

    shard of a rank --quantise by squares--> elements, scales --all_gather--> elements, scales of the whole weight --> GEMMs

Squares of 128 x 128 do not cross shards, so the casts are those of the whole weight. `Sent` marks a weight and its shards, from which FSDP2
calls these hooks; its numbers are an ordinary tensor's. `Gathered` is what a layer finds in place of its weight between both.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

from zoo.errors import ArgumentError
from zoo.torch.nn.formats import Format, format_of
from zoo.torch.quantized import Quantized

_SQUARE = 128
aten: Any = torch.ops.aten
# what FSDP2, DTensor and modules make of a weight that is still a weight
_KEPT = {
    *(aten.detach.default, aten.alias.default, aten.view.default, aten.as_strided.default, aten.slice.Tensor, aten.split.Tensor),
    *(aten.new_zeros.default, aten.clone.default, aten._to_copy.default, aten.empty_like.default),
}


class Sent(torch.Tensor):
    """A weight, or a shard of it, of which FSDP2 sends the cast. `numbers` is an ordinary tensor, as is what is computed from it."""

    numbers: torch.Tensor

    @staticmethod
    def __new__(cls, numbers: torch.Tensor) -> Any:
        layout = {"strides": numbers.stride(), "storage_offset": numbers.storage_offset(), "dtype": numbers.dtype, "device": numbers.device}
        made: Any = torch.Tensor._make_wrapper_subclass(cls, numbers.shape, **layout)
        made.numbers = numbers
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*tree_map_only(cls, lambda one: one.numbers, args), **tree_map_only(cls, lambda one: one.numbers, kwargs or {}))
        return tree_map_only(torch.Tensor, cls, found) if func in _KEPT else return_and_correct_aliasing(func, args, kwargs or {}, found)

    def storage(self) -> Any:
        return self.numbers.storage()

    def untyped_storage(self) -> Any:
        return self.numbers.untyped_storage()

    def data_ptr(self) -> Any:
        return self.numbers.data_ptr()

    def __deepcopy__(self, memo: Any) -> Any:
        copied = Sent(copy.deepcopy(self.numbers, memo))
        return memo.setdefault(id(self), torch.nn.Parameter(copied, self.requires_grad))

    def __reduce_ex__(self, protocol: Any) -> Any:  # a file has ordinary tensors
        return self.numbers.__reduce_ex__(protocol)

    def fsdp_pre_all_gather(self, mesh: Any, outer_size: Any, outer_stride: Any, module: Any, mp_policy: Any) -> tuple[Any, None]:
        rows = outer_size[0] if len(outer_size) == 3 else outer_size[0] / _SQUARE
        if rows % mesh.size():
            raise ArgumentError(
                f"gather_casts: {module}: {mesh.size()} ranks do not divide its weight {tuple(outer_size)} into whole experts or rows of squares "
                f"of {_SQUARE}; set gather_casts = False before fully_shard"
            )
        made = format_of(module.format).squares(self.numbers)
        return (made.elements.view(torch.uint8), made.scales.contiguous()), None

    def fsdp_post_all_gather(self, outputs: Any, metadata: None, dtype: torch.dtype, *, out: Any = None) -> Any:
        if out is None:  # FSDP2 gathers into the same memory later
            elements, scales = outputs
            return Gathered.of(elements, scales, self.shape[-1], dtype), ()


class Gathered(torch.Tensor):
    """A whole weight in a shape and a dtype, of which there is the cast alone."""

    elements: torch.Tensor
    scales: torch.Tensor

    @classmethod
    def of(cls, elements: torch.Tensor, scales: torch.Tensor, width: int, dtype: torch.dtype) -> Any:
        made: Any = torch.Tensor._make_wrapper_subclass(cls, (*elements.shape[:-1], width), dtype=dtype, device=elements.device)
        made.elements, made.scales = elements, scales
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        whole = func is aten.view.default and [*args[1]] == [*args[0].shape]  # by which torch finds where gradients accumulate
        if whole or func in (aten.detach.default, aten.as_strided.default):  # FSDP2 makes it the shape that it has
            return Gathered.of(args[0].elements, args[0].scales, args[0].shape[-1], args[0].dtype)
        raise ArgumentError(
            f"{func}: FSDP2 has gathered a cast of this weight, not its numbers; set gather_casts = False before fully_shard"
        )

    def data_ptr(self) -> Any:
        return self.elements.data_ptr()

    def forms(self, form: Format, back: bool) -> tuple[Quantized, Quantized | None]:
        along = Quantized(self.elements.view(torch.float8_e4m3fn), self.scales, form.weights, squares=True)
        return along, form.transposed(along) if back else None
