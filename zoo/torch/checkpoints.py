"""Quantised weights in safetensors files, by the names and shapes that published checkpoints have them in.

| format | tensors of the weights NAME | as in |
|---|---|---|
| fp8b128 | `NAME.weight` e4m3, `NAME.weight_scale_inv` f32, for 128 x 128; bf16, f16 and ue8m0 are read as well | DeepSeek, Qwen3 |
| mxfp8 | `NAME.weight` e4m3 or e5m2, `NAME.weight_scale` ue8m0 as bytes | ModelOpt |
| mxfp8, only read | `NAME.weight` e4m3, `NAME.weight_scale_inv` ue8m0, for 1 x 32 or 32 x 32 | MiniMax-M3 |
| nvfp4 | `NAME.weight` bytes, `NAME.weight_scale` e4m3, `NAME.weight_scale_2` f32 | ModelOpt |
| nvfp4, only read | `NAME.weight_packed`, `NAME.weight_scale`, `NAME.weight_global_scale`, which divides | compressed-tensors |
| mxfp4 | `NAME_blocks` bytes (..., K/32, 16), `NAME_scales` ue8m0 as bytes | gpt-oss |

Names, dtypes and the number of dimensions say what a format is; what has them and does not fit in shape is refused.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from zoo.contract.whole_numbers import LONGEST, shown
from zoo.errors import ArgumentError
from zoo.runtime.torch_dtypes import torch_dtype
from zoo.torch.quantized import _BLOCK, Quantized, _numbers

_ENDS = (".weight", ".weight_packed", "_blocks")
_LONGEST_HEADER = 16 << 20  # bytes of JSON, which describe some 150,000 tensors
_BYTES = (torch.uint8, torch.int8, torch_dtype("e2m1x2"))
_NUMBERS = (torch.float32, torch.bfloat16, torch.float16)


class _Found(NamedTuple):
    weights: Quantized
    parts: tuple[str, ...]  # the tensors that it was made of


def save(path: str | os.PathLike[str], weights: Mapping[str, Quantized | torch.Tensor]) -> None:
    """Writes weights by name; a tensor is written as it is. The file is the old one or the whole new one, whatever stops this."""
    place = _place("save", path)
    if not isinstance(weights, Mapping):
        raise ArgumentError(f"save: expected a mapping from names to weights, got a {type(weights).__name__}")
    tensors: dict[str, torch.Tensor] = {}
    made_of: dict[str, str] = {}
    for name, one in weights.items():
        _check_name(name)
        for stored, tensor in (_tensors(name, one) if isinstance(one, Quantized) else {name: one}).items():
            if stored in tensors:
                both = f"'{_word(made_of[stored])}' and '{_word(name)}'"
                raise ArgumentError(f"save: {both} would both be stored as '{_word(stored)}'; rename one")
            tensors[stored], made_of[stored] = _contiguous(stored, tensor), name
    _apart(tensors)
    found = _recognised(tensors, "save")  # which refuses what `load` could not tell apart
    for name, one in weights.items():
        if isinstance(one, Quantized) and (name not in found or found[name].weights.format != one.format):
            raise ArgumentError(f"save: '{_word(name)}' would be read back as something else, by the names beside it; rename it")
    partial = place.with_name(f".{place.name}.{os.getpid()}.new")
    try:
        _safetensors().save_file(tensors, str(partial))
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, place)
    except Exception as error:  # of safetensors, which has a type of its own for a full disk
        raise ArgumentError(f"save: cannot write {_plain(place)}: {_reason(error)}") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def load(path: str | os.PathLike[str], device: str | torch.device = "cpu") -> dict[str, Quantized | torch.Tensor]:
    """What a file holds, by name: weights that zoo knows as Quantized, with plain scales; all else as it is."""
    place = _place("load", path)
    library = _safetensors()
    try:
        _check_header(place)
        tensors = library.load_file(str(place), device=str(device))
    except Exception as error:  # of safetensors and of torch, for a device that is not there
        raise ArgumentError(f"load: cannot read {_plain(place)} to {_word(device)}: {_reason(error)}") from None
    found = _recognised(tensors, f"load: {_plain(place)}")
    used = {part for one in found.values() for part in one.parts}
    others = {name: tensor for name, tensor in tensors.items() if name not in used}
    return {name: one.weights for name, one in found.items()} | others


def _plain(given: object, longest: int = 400) -> str:
    """Words that a file or a caller chose, without what a terminal obeys."""
    words = str(given)
    words = words if len(words) <= longest else f"{words[:longest]}..."
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in words)


def _word(given: object) -> str:
    """A name of a tensor or of a device, for a message."""
    return _plain(given if isinstance(given, (str, torch.device)) else shown(given), LONGEST)


def _reason(error: Exception) -> str:
    reason = " ".join(f"{error.strerror if isinstance(error, OSError) and error.strerror else error}".split()) or type(error).__name__
    return _plain(reason)


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise ArgumentError("saving and loading weights takes safetensors, which is not installed: pip install safetensors") from None
    return safetensors.torch


def _place(verb: str, path: object) -> Path:
    try:
        given = os.fspath(path)  # type: ignore[call-overload]  # a PathLike may raise anything
        possible = isinstance(given, str) and b"\0" not in os.fsencode(given)
    except Exception:
        possible = False
    if not possible:
        raise ArgumentError(f"{verb}: expected the path of a file, got {shown(path)}")
    place = Path(os.path.realpath(given))  # of a link, the file that it leads to is replaced, and not the link
    try:
        regular = verb == "load" or (place.name != "" and (not place.exists() or place.is_file()))
    except OSError as error:
        raise ArgumentError(f"save: cannot write {_plain(place)}: {_reason(error)}") from None
    if not regular:
        raise ArgumentError(f"save: {_plain(place)} is no regular file; give the path of one, or of a new one")
    return place


def _check_name(name: object) -> None:
    if not isinstance(name, str) or name == "__metadata__" or (not name.isascii() and name != name.encode(errors="replace").decode()):
        raise ArgumentError(f"save: expected a text as the name of weights, and not '__metadata__', got {shown(name)}")


def _contiguous(stored: str, tensor: object) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentError(f"save: {_word(stored)}: expected a tensor or what zoo.torch.quantize returns, got a {type(tensor).__name__}")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested or tensor.device.type == "meta" or _is_fake(tensor):
        without_memory = tensor.device.type == "meta" or _is_fake(tensor)
        kind = "one without memory" if without_memory else "a nested one" if tensor.is_nested else str(tensor.layout)
        raise ArgumentError(f"save: {_word(stored)}: expected a dense tensor that has memory, got {kind} of {tensor.dtype}")
    return tensor.detach().contiguous()


def _is_fake(tensor: torch.Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor)


def _apart(tensors: Mapping[str, torch.Tensor]) -> None:
    """Two names of one memory would be two tensors when they are loaded, which safetensors refuses."""
    spans = sorted((str(one.device), one.data_ptr(), one.nbytes, name) for name, one in tensors.items() if one.nbytes)
    for (device, start, size, first), (other, after, _, name) in itertools.pairwise(spans):
        if device == other and after < start + size:
            raise ArgumentError(f"save: '{_word(name)}' lies in the memory of '{_word(first)}'; save one of them, or a .clone() of one")


def _check_header(path: Path) -> None:
    """A regular file, whose header is bounded and names no tensor twice; safetensors checks that the tensors fit the file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ArgumentError("it is no regular file")
        length = int.from_bytes(file.read(8), "little")
        if length > _LONGEST_HEADER:
            raise ArgumentError(
                f"its header would have {length:,} bytes, and zoo reads up to {_LONGEST_HEADER:,}; is it a safetensors file?"
            )
        header = file.read(length)
    try:
        json.loads(header, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise ArgumentError("its header is no JSON; is it a whole safetensors file?") from None


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ArgumentError(f"its header names {shown(name)} twice")
        found[name] = value
    return found


def _tensors(name: str, one: Quantized) -> dict[str, torch.Tensor]:
    if one.offsets is not None:
        raise ArgumentError(f"save: {_word(name)} is {one}: weights have no groups of rows")
    if one.format == "fp8token":
        raise ArgumentError(f"save: {_word(name)} is {one}: no checkpoint holds that; keep the matrix as it was")
    one = one.t() if one.transposed else one  # as it is stored; who loads it says .t() again
    if not one.squares:
        one = one.laid("plain")
    elif one.layout != "plain":
        raise ArgumentError(f"save: {_word(name)} is {one}: quantise it with layout='plain', as checkpoints have it")
    scales = one.scales
    if one.squares and one.format != "fp8b128":  # a scale for each row, as checkpoints have them
        scales = scales.repeat_interleave(_BLOCK[one.format], dim=-2)[..., : one.elements.shape[-2], :]
    elements, scales = one.elements.contiguous(), scales.contiguous()
    if one.format == "fp8b128":
        return {f"{name}.weight": elements, f"{name}.weight_scale_inv": _numbers(scales)}
    if one.format == "mxfp8":
        return {f"{name}.weight": elements, f"{name}.weight_scale": scales.view(torch.uint8)}
    if one.format == "nvfp4":
        assert one.tensor_scale is not None
        number = one.tensor_scale.reshape(()) if one.tensor_scale.numel() == 1 else one.tensor_scale
        # of its own, as zoo.torch.quantize gives several matrices one
        return {f"{name}.weight": elements.view(torch.uint8), f"{name}.weight_scale": scales, f"{name}.weight_scale_2": number.clone()}
    blocks = elements.view(torch.uint8).reshape(*elements.shape[:-1], elements.shape[-1] // 16, 16)
    return {f"{name}_blocks": blocks, f"{name}_scales": scales.view(torch.uint8)}


def _recognised(tensors: Mapping[str, torch.Tensor], what: str) -> dict[str, _Found]:
    found: dict[str, _Found] = {}
    for stored in sorted(tensors):
        end = next((end for end in _ENDS if stored.endswith(end)), None)
        if end is None:
            continue
        name = stored.removesuffix(end)
        try:
            one = _quantized(name, end, tensors)
        except ArgumentError as error:
            raise ArgumentError(f"{what}: {error}") from None
        if one is None:
            continue
        if name in found or name in tensors:
            other = found[name].parts[0] if name in found else name
            raise ArgumentError(f"{what}: '{_word(stored)}' and '{_word(other)}' are both weights called '{_word(name)}'; rename one")
        found[name] = one
    return found


def _quantized(name: str, end: str, tensors: Mapping[str, torch.Tensor]) -> _Found | None:
    def parts(of_weight: str, of_scale: str) -> tuple[str, str]:
        return name + of_weight, name + of_scale

    weight: Any = tensors[name + end]
    scale: Any = tensors.get(f"{name}.weight_scale")
    if end == "_blocks":
        scale = tensors.get(f"{name}_scales")
        if not _alike(weight, (torch.uint8,), scale, _exponents(), dimensions=(3, 4)):
            return None
        used = parts("_blocks", "_scales")
        _fit(used, weight, (*weight.shape[:-1], 16), weight)
        _fit(used, weight, weight.shape[:-1], scale)
        elements = weight.reshape(*weight.shape[:-2], 16 * weight.shape[-2]).view(torch_dtype("e2m1x2"))
        return _Found(Quantized(elements, scale.view(torch_dtype("ue8m0")), "mxfp4"), used)
    inverse: Any = tensors.get(f"{name}.weight_scale_inv")
    if end == ".weight" and _alike(weight, (torch.float8_e4m3fn,), inverse, (*_NUMBERS, *_exponents())):
        used = parts(".weight", ".weight_scale_inv")
        *more, rows, columns = weight.shape
        of_rows, squares = ((*more, size, -(-columns // 128)) for size in (rows, -(-rows // 128)))
        got = tuple(inverse.shape)
        if got not in (of_rows, squares) and columns % 32 == 0 and inverse.dtype in _exponents():
            small = (*more, -(-rows // 32), columns // 32)
            if got in ((*more, rows, columns // 32), small):
                return _Found(Quantized(weight, inverse.view(torch_dtype("ue8m0")), "mxfp8", squares=got[-2] != rows), used)
        if got != of_rows:
            _fit(used, weight, squares, inverse)
        of_squares = got == squares  # also where both would do: weights have squares
        inverse = inverse.float() if inverse.dtype in _NUMBERS else inverse.view(torch_dtype("ue8m0"))
        return _Found(Quantized(weight, inverse, "fp8b128", squares=of_squares), used)
    last = f"{name}.weight_scale_2" if end == ".weight" else f"{name}.weight_global_scale"
    number: Any = tensors.get(last)
    if number is not None and number.is_floating_point() and _alike(weight, _BYTES, scale, (torch.float8_e4m3fn, torch.uint8)):
        used = parts(end, ".weight_scale")
        _fit(used, weight, (*weight.shape[:-1], weight.shape[-1] // 8), scale)
        number = number.float().reshape(-1)
        _check_tensor_scale(last, number, weight, divides=end == ".weight_packed")
        number = number.reciprocal() if end == ".weight_packed" else number
        scale = scale.view(torch.float8_e4m3fn)
        return _Found(Quantized(weight.view(torch_dtype("e2m1x2")), scale, "nvfp4", tensor_scale=number), (*used, last))
    if end == ".weight" and _alike(weight, (torch.float8_e4m3fn, torch.float8_e5m2), scale, _exponents()):
        used = parts(end, ".weight_scale")
        _fit(used, weight, (*weight.shape[:-1], -(-weight.shape[-1] // 32)), scale)
        return _Found(Quantized(weight, scale.view(torch_dtype("ue8m0")), "mxfp8"), used)
    return None


def _exponents() -> tuple[torch.dtype, ...]:
    return (torch.uint8, torch_dtype("ue8m0"))


def _alike(
    weight: torch.Tensor,
    weight_dtypes: Sequence[torch.dtype],
    scale: torch.Tensor | None,
    scale_dtypes: Sequence[torch.dtype],
    dimensions: tuple[int, ...] = (2, 3),
) -> Any:
    """Whether two tensors are of a format, by their dtypes and dimensions: others use the same names for something else."""
    of_blocks = dimensions != (2, 3)
    return (
        scale is not None
        and weight.dtype in weight_dtypes
        and scale.dtype in scale_dtypes
        and weight.dim() in dimensions
        and scale.dim() == weight.dim() - of_blocks
    )


def _fit(names: tuple[str, str], weight: torch.Tensor, wanted: Sequence[int], got: torch.Tensor) -> None:
    if tuple(got.shape) != tuple(wanted):
        wrong = _word(names[0] if got is weight else names[1])
        beside = "" if got is weight else f" beside {_word(names[0])} of {tuple(weight.shape)}"
        raise ArgumentError(f"{wrong}: expected {tuple(wanted)}{beside}, got {tuple(got.shape)}")


def _check_tensor_scale(name: str, number: torch.Tensor, weight: torch.Tensor, divides: bool) -> None:
    several = weight.shape[0] if weight.dim() == 3 else 1
    if number.numel() not in (1, several):
        raise ArgumentError(f"{_word(name)}: expected one number{f', or {several}' if several > 1 else ''}, got {number.numel()}")
    if number.device.type != "meta" and not bool((number.isfinite() & ((number > 0) if divides else (number >= 0))).all()):
        raise ArgumentError(
            f"{_word(name)}: expected finite numbers that are {'above' if divides else 'not below'} zero, got {number.tolist()[:4]}"
        )
