"""Triton kernels: compiled by Triton for a target without a GPU, and launched as its runtime launches them."""

import dataclasses
import inspect
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from zoo.contract.nearest import suggestion

from .arguments import Argument
from .errors import EmulatorError, LaunchError
from .user_code import attribute_of

_TYPES = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5",
    "bool": "i1", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64",
}  # fmt: skip


def function_of(name: str) -> Any:
    """The kernel that `module:function` or `file.py:function` names, without autotuning around it."""
    from triton.runtime.jit import JITFunction

    found = attribute_of(name)
    while not isinstance(found, JITFunction) and hasattr(found, "fn"):
        found = found.fn
    if not isinstance(found, JITFunction):
        raise LaunchError(f"{name} is no kernel of triton.jit")
    return found


def _constant(value: Any) -> Any:
    """A number, None of the text "none", Triton's object of a text like "tl.float16", or another text."""
    from triton import language

    if value == "none":
        return None
    if isinstance(value, str) and value.startswith("tl."):
        found = getattr(language, value[3:], None)
        if found is None:
            raise LaunchError(f"Triton has no {value}")
        return found
    return value


def _known(options: dict) -> None:
    from triton.backends.nvidia.compiler import CUDAOptions

    names = [field.name for field in dataclasses.fields(CUDAOptions)]
    for name in options:
        if name not in names:
            raise LaunchError(f"[triton]: {name!r} is unknown; {suggestion(name, names, 'it is one of ' + ', '.join(names))}")


def compiled(function: Any, arguments: Sequence[Argument], arch: str, options: dict) -> tuple[Any, list[Argument]]:
    """(what Triton's compiler returns, the arguments that its PTX takes). Values and addresses are specialised as Triton's runtime does."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    _known(options)
    given = {argument.name: argument for argument in arguments}
    names = [parameter.name for parameter in function.params]
    defaults = {name: one.default for name, one in function.signature.parameters.items() if one.default is not one.empty}
    if not set(names) - set(defaults) <= set(given) <= set(names):
        raise LaunchError(f"{function.__name__} takes {', '.join(names)}; the arguments are {', '.join(given) or 'none'}")
    given = {name: Argument(name, "none" if value is None else value) for name, value in defaults.items()} | given
    signature, constants, attributes, passed = {}, {}, {}, []
    for number, parameter in enumerate(function.params):
        argument = given[parameter.name]
        value = argument.value
        if parameter.is_constexpr or value == "none" or (argument.array is None and type(value) is int and value == 1):
            if argument.array is not None:
                raise LaunchError(f"{parameter.name} is a constexpr: it has a value")
            signature[parameter.name] = "constexpr"
            constants[(number,)] = _constant(value)
            continue
        if isinstance(value, str):
            raise LaunchError(f'{parameter.name} is no constexpr: its value is a number, or "none"')
        passed.append(argument)
        if argument.array is not None:
            element = _TYPES.get(argument.array.dtype.name)
            if element is None:
                raise LaunchError(f"{parameter.name}: Triton has no dtype {argument.array.dtype}; pass bytes as u8")
            signature[parameter.name] = f"*{element}"
        elif isinstance(value, bool):
            signature[parameter.name] = "i1"
        elif isinstance(value, float):
            signature[parameter.name] = "fp32"
        else:
            signature[parameter.name] = "i32" if -(1 << 31) <= value < 1 << 31 else "i64"
        if argument.array is not None or (type(value) is int and value % 16 == 0):
            attributes[(number,)] = [["tt.divisibility", 16]]
    target = GPUTarget("cuda", int(arch[3:].rstrip("af")), 32)

    def compile() -> Any:
        source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes)
        return triton.compile(source, target=target, options=options)

    try:
        kernel = compile()
        if _is_of_another_file(kernel, function):
            with _without_cache():
                kernel = compile()
        return kernel, passed
    except Exception as error:
        raise EmulatorError(f"Triton does not compile {function.__name__}: {error}") from None


def _is_of_another_file(kernel: Any, function: Any) -> bool:
    """Triton's cache knows a kernel by its text and line, so that it may give an equal kernel's code with another file's name."""
    path, text = inspect.getsourcefile(function.fn), kernel.asm["ptx"]
    return path is not None and ".file" in text and path not in text


@contextmanager
def _without_cache() -> Iterator[None]:
    kept = os.environ.get("TRITON_ALWAYS_COMPILE")
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    try:
        yield
    finally:
        if kept is None:
            del os.environ["TRITON_ALWAYS_COMPILE"]
        else:
            os.environ["TRITON_ALWAYS_COMPILE"] = kept


def launch_of(kernel: Any, grid: int | Sequence[int]) -> tuple:
    """(PTX, block, cluster, bytes of shared memory, grid, scratch buffers) of what Triton's compiler returned."""
    metadata = kernel.metadata
    grid = (grid,) if isinstance(grid, int) else tuple(grid)
    grid = (*grid, 1, 1)[:3]
    ctas = metadata.num_ctas
    programs = math.prod(grid) * ctas
    scratch = [getattr(metadata, f"{kind}_scratch_size", 0) * programs for kind in ("global", "profile")]
    return (
        kernel.asm["ptx"], metadata.num_warps * metadata.warp_size, (ctas, 1, 1) if ctas > 1 else None, metadata.shared,
        (grid[0] * ctas, *grid[1:]), scratch,
    )  # fmt: skip
