"""Other libraries' products of the same sizes and formats, timed beside ours: cuBLASLt's, called directly, and torch's.

Both get operands in memory and scales as they take them: what it costs to prepare either is nobody's time. cuBLASLt multiplies the very
arrays of our call. What they compute is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from zoo.benchmark.cublas_lt import PRODUCTS, CublasLt, Unavailable
from zoo.benchmark.graphs import Replay
from zoo.benchmark.torch_replay import TorchReplay, how_many_sets, repeated
from zoo.contract.array import Pointer
from zoo.contract.manifest import Kernel


class Timed(Protocol):
    def microseconds(self) -> float: ...

    def close(self) -> None: ...


# (kernel, the arguments of each set of buffers, device, stream, bytes of the cache) -> what is replayed
Rival = Callable[[Kernel, Sequence[Mapping[str, Pointer]], int, int, int], Timed]


def cublas_lt(kernel: Kernel, sets: Sequence[Mapping[str, Pointer]], device: int, stream: int, cache: int) -> Timed:
    formats = _one_product(kernel)
    if formats not in PRODUCTS:
        raise Unavailable(f"cuBLASLt has no product of {formats}")
    library = CublasLt(device)
    return Replay(repeated([library.product(PRODUCTS[formats], arguments) for arguments in sets]), stream)


def torch_scaled_mm(kernel: Kernel, sets: Sequence[Mapping[str, Pointer]], device: int, stream: int, cache: int) -> Timed:
    """torch._scaled_mm with the scales of the format."""
    formats = _one_product(kernel)
    try:
        import torch
    except ImportError:
        raise Unavailable("torch is not installed") from None
    if not torch.cuda.is_available():
        raise Unavailable("torch sees no GPU")
    a, b = (sets[0][name] for name in ("a", "b"))
    M, N, bytes_of_k = a.shape[0], b.shape[0], a.shape[1]
    where = f"cuda:{device}"

    def zeros(rows: int, columns: int, dtype: Any) -> Any:
        return torch.zeros((rows, columns), dtype=torch.uint8, device=where).view(dtype)

    def operands() -> tuple[Any, Any, Any, Any]:
        if formats == "mxfp8":
            scales = [torch.full((_blocked(rows, bytes_of_k // 32),), 127, dtype=torch.uint8, device=where) for rows in (M, N)]
            elements = [zeros(rows, bytes_of_k, torch.float8_e4m3fn) for rows in (M, N)]
            return (*elements, *(one.view(torch.float8_e8m0fnu) for one in scales))
        if formats == "nvfp4":
            scales = [torch.full((_blocked(rows, bytes_of_k // 8),), 0x38, dtype=torch.uint8, device=where) for rows in (M, N)]
            elements = [zeros(rows, bytes_of_k, torch.float4_e2m1fn_x2) for rows in (M, N)]
            return (*elements, *(one.view(torch.float8_e4m3fn) for one in scales))
        if formats == "fp8b128":
            blocks = -(-bytes_of_k // 128)
            of_a = torch.ones((blocks, M), device=where).t()
            of_b = torch.ones((-(-N // 128), blocks), device=where).t()
            return (*(zeros(rows, bytes_of_k, torch.float8_e4m3fn) for rows in (M, N)), of_a, of_b)
        raise Unavailable(f"torch has no product of {formats}")

    count = how_many_sets((M + N) * bytes_of_k, cache)
    calls = [_torch_call(torch, *operands()) for _ in range(count)]
    try:
        calls[0]()
    except (RuntimeError, ValueError, NotImplementedError) as refusal:
        raise Unavailable(f"torch: {str(refusal).splitlines()[0][:200]}") from None
    return TorchReplay(torch, calls, device)


RIVALS: Mapping[str, Rival] = {"cuBLASLt": cublas_lt, "torch scaled_mm": torch_scaled_mm}


def _torch_call(torch: Any, a: Any, b: Any, a_scale: Any, b_scale: Any) -> Callable[[], Any]:
    return lambda: torch._scaled_mm(a, b.t(), scale_a=a_scale, scale_b=b_scale, out_dtype=torch.bfloat16)


def _one_product(kernel: Kernel) -> str:
    """The formats of a product of two matrices that ends in D."""
    if kernel.fields["op"] != "gemm" or kernel.fields.get("grouping") != "dense" or "extra" in kernel.fields:
        raise Unavailable("it has no such product: one matrix times another, and nothing more")
    return kernel.fields["formats"]


def _blocked(rows: int, scales: int) -> int:
    """Scales in tiles of 128 x 4."""
    return -(-rows // 128) * 128 * (-(-scales // 4) * 4)
