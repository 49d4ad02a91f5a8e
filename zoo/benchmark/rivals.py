"""Other libraries' products, checked and then timed beside zoo's: torch, DeepGEMM, triton_kernels and humming, where they can be imported.

A rival draws random operands of the product's sizes, prepares them as the library reads them outside the timed part, and multiplies. Its
result is held against the exact product before it is timed. A rival that is absent, refuses or is wrong gives a reason in place of a time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from zoo.benchmark.graphs import TorchReplay, how_many_sets
from zoo.benchmark.operands import BF16, BLOCKS, MXFP4, MXFP8, NVFP4, PLAIN_FP8, SQUARES, Operands, Scaling, column_major, swizzled
from zoo.benchmark.product import Product
from zoo.errors import ZooError

# Of a result's root mean square: four times what rounding to bf16 makes at most; sums kept in the tensor cores have 14 bits.
ROUNDED, FAST_SUMS = 2.0**-7, 2.0**-4
_CHECKED_ROWS = 32


class Unavailable(ZooError):
    """There is nothing to compare with, and why."""


class Case(NamedTuple):
    """A call that is ready to be timed, and what shows whether its result is right."""

    call: Callable[[], Any]  # gives rows of N columns, of which the first M count
    expected: Callable[[Any], Any]  # these rows in f32
    bytes: int  # of operands
    tolerance: float = ROUNDED


@dataclass(frozen=True)
class Rival:
    make: Callable[[Any, Product, str], Case]
    less: str = ""  # what it does less than zoo; empty: the same job
    any_formats: bool = False  # whether it multiplies elements of its own, whatever the product's are

    def job(self, product: Product) -> Product:
        """What the library does for a product: products of the same job take it as long."""
        if not self.any_formats:
            return product
        return replace(product, formats="", epilogue="" if product.epilogue == "stored" else product.epilogue)


def torch_block_wise(torch: Any, product: Product, device: str) -> Case:
    _only(product, ("dense",), ("fp8b128", "mxfp8", "nvfp4"))
    functional = torch.nn.functional
    if not hasattr(functional, "scaled_mm"):
        raise Unavailable(f"torch {torch.__version__} has no torch.nn.functional.scaled_mm")
    kinds = functional.ScalingType
    if product.formats == "fp8b128":  # cuBLASLt takes rows in multiples of 4
        one = Operands(torch, replace(product, M=-(-product.M // 4) * 4), BLOCKS, SQUARES, device)
        a_scale, b_scale, swizzle = column_major(one.a.scales), column_major(one.b.scales[0].t()), None
        recipes = kinds.BlockWise1x128, kinds.BlockWise128x128
    else:
        scaling, kind = (MXFP8, kinds.BlockWise1x32) if product.formats == "mxfp8" else (NVFP4, kinds.BlockWise1x16)
        one = Operands(torch, product, scaling, scaling, device)
        a_scale, b_scale, recipes = swizzled(torch, one.a.scales), swizzled(torch, one.b.scales[0]), (kind, kind)
        swizzle = functional.SwizzleType.SWIZZLE_32_4_4
    a, b = one.a.elements, one.b.elements[0].t()
    return Case(lambda: functional.scaled_mm(a, b, a_scale, recipes[0], b_scale, recipes[1], swizzle, swizzle), one.expected, one.bytes)


def torch_tensor_wise(torch: Any, product: Product, device: str) -> Case:
    if product.N % 16 or product.K % 16:
        raise Unavailable("torch takes N and K in multiples of 16")
    one, scale = Operands(torch, replace(product, ends=()), PLAIN_FP8, PLAIN_FP8, device), torch.ones((), device=device)
    a, b, multiply = one.a.elements, one.b.elements[0].t(), torch._scaled_mm

    def call() -> Any:
        return multiply(a, b, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True)

    return Case(call, one.expected, one.bytes, FAST_SUMS)


def torch_row_wise(torch: Any, product: Product, device: str) -> Case:
    _only(product, ("m_grouped_contiguous",), ("fp8b128",))
    rows = Scaling("float8_e4m3fn", 1, product.K)
    one, multiply = Operands(torch, product, rows, rows, device), torch._scaled_grouped_mm
    a, a_scale = one.a.elements, one.a.scales[:, 0].contiguous()
    b, b_scale = one.b.elements.transpose(-2, -1), one.b.scales[..., 0].contiguous()

    def call() -> Any:
        return multiply(a, b, a_scale, b_scale, offs=one.ends, out_dtype=torch.bfloat16, use_fast_accum=True)

    return Case(call, one.expected, one.bytes, FAST_SUMS)


def torch_bf16(torch: Any, product: Product, device: str) -> Case:
    _only(product, ("dense", "m_grouped_contiguous"))
    one = Operands(torch, product, BF16, BF16, device)
    a, b = one.a.elements, one.b.elements.transpose(-2, -1)
    grouped = product.grouping != "dense"
    return Case(lambda: torch._grouped_mm(a, b, offs=one.ends) if grouped else a @ b[0], one.expected, one.bytes)


def deep_gemm(torch: Any, product: Product, device: str, ends_of_groups: bool = False) -> Case:
    """ends_of_groups: contiguous groups are told by their ends, in place of each row's group."""
    _only(product, ("m_grouped_contiguous",) if ends_of_groups else ("dense", "m_grouped_contiguous", "m_grouped_masked"), ("fp8b128",))
    library = imported("deep_gemm")
    if str(getattr(library, "__file__", "")).endswith("compat/deep_gemm/__init__.py"):
        raise Unavailable("the module deep_gemm is zoo's own; set ZOO_DEEP_GEMM=0 to time DeepGEMM")
    sizes = [end - begin for begin, end in zip((0, *product.ends), product.ends, strict=False)]
    if product.grouping == "m_grouped_contiguous":  # groups of whole tiles
        step = library.get_mk_alignment_for_contiguous_layout()
        ends = tuple(accumulate(-(-size // step) * step for size in sizes))
        product = replace(product, M=ends[-1], ends=ends)
    one = Operands(torch, product, BLOCKS, SQUARES, device)
    d = torch.empty((product.M, product.N), dtype=torch.bfloat16, device=device)
    a, a_scale, b, b_scale = one.a.elements, one.a.scales, one.b.elements, one.b.scales
    G, aligned, arguments = len(one.ends), library.get_mn_major_tma_aligned_tensor, tuple[Any, ...]()
    if product.grouping == "dense":
        multiply, arguments = library.fp8_gemm_nt, ((a, aligned(a_scale)), (b[0], b_scale[0]), d)
    elif product.grouping == "m_grouped_contiguous":
        whole = torch.diff(one.ends, prepend=one.ends.new_zeros(1))
        groups = torch.arange(G, device=device, dtype=torch.int32).repeat_interleave(whole)
        multiply = library.m_grouped_fp8_gemm_nt_contiguous
        if ends_of_groups:
            multiply = partial(multiply, use_psum_layout=True)
            own = one.ends - whole + torch.tensor(sizes, dtype=torch.int32, device=device)
            nobody = torch.arange(product.M, device=device) >= own[groups]  # rows that may be multiplied or not: both give zeros
            a.view(torch.uint8)[nobody] = 0
            d.zero_()
            groups = own
        arguments = (a, aligned(a_scale)), (b, b_scale), d, groups
    else:
        R = product.M // G
        used = product.used or (R,) * G
        rows, scales = torch.tensor(used, dtype=torch.int32, device=device), aligned(a_scale.view(G, R, -1))
        arguments = (a.view(G, R, -1), scales), (b, b_scale), d.view(G, R, -1), rows, -(-sum(used) // G)
        multiply = library.m_grouped_fp8_gemm_nt_masked
    return Case(lambda: (multiply(*arguments), d)[1], one.expected, one.bytes)


def triton_kernels(torch: Any, product: Product, device: str) -> Case:
    """bf16 rows by MXFP4 experts."""
    _only(product, ("m_grouped_contiguous",), ("bf16_mxfp4", "fp8_mxfp4"))
    multiply, routing = imported("triton_kernels.matmul_ogs").matmul_ogs, imported("triton_kernels.routing")
    one = Operands(torch, product, BF16, MXFP4, device)
    weights, precision = triton_mxfp4(one.b.elements.view(torch.uint8), one.b.scales.view(torch.uint8))
    sizes = torch.diff(one.ends, prepend=one.ends.new_zeros(1))
    plan = routing.RoutingData(None, sizes, len(sizes), 1, routing.compute_expt_data(sizes, len(sizes), product.M))
    a = one.a.elements
    return Case(lambda: multiply(a, weights, None, plan, precision_config=precision), one.expected, one.bytes)


def humming(torch: Any, product: Product, device: str) -> Case:
    """e4m3 rows with a scale each, or bf16 rows, by MXFP4 experts. The library compiles its kernel, which is why the first call is long."""
    _only(product, ("m_grouped_contiguous",), ("bf16_mxfp4", "fp8_mxfp4"))
    layers, tune = imported("humming.layer"), imported("humming.tune")
    fp8 = product.formats == "fp8_mxfp4"
    one = Operands(torch, product, Scaling("float8_e4m3fn", 1, product.K) if fp8 else BF16, MXFP4, device)
    layer = layers.HummingLayer(
        shape_n=product.N,
        shape_k=product.K,
        weight_config={"quant_method": "mxfp4"},
        input_config={"dtype": "float8e4m3"} if fp8 else None,
        pad_n_to_multiple=256,  # as vLLM pads
        pad_k_to_multiple=128,
        num_experts=len(one.ends),
        torch_dtype=torch.bfloat16,
    ).to(device)
    layer.load_from_tensors({"weight": one.b.elements.view(torch.uint8), "weight_scale": one.b.scales.view(torch.uint8)})
    layer.transform()
    d = torch.empty((product.M, product.N), dtype=torch.bfloat16, device=device)
    arguments = {
        "inputs": one.a.elements,
        "input_scale": one.a.scales if fp8 else None,
        "outputs": d,
        "expert_layout": torch.cat((one.ends.new_zeros(1), one.ends)).long(),
        "compute_config": {"gemm_type": "grouped_contiguous"},
        "tuning_config": tune.get_heuristics_config(layer.humming_config, shape_m=product.M, gemm_type="grouped_contiguous"),
    }
    return Case(lambda: (layer(**arguments), d)[1], one.expected, one.bytes, FAST_SUMS if fp8 else ROUNDED)


def triton_mxfp4(codes: Any, scales: Any) -> tuple[Any, Any]:
    """Weights (G, N, K / 2) and scales (G, N, K / 32), both u8, as matmul_ogs takes them, and its precision_config."""
    tensor, layout = imported("triton_kernels.tensor"), imported("triton_kernels.tensor_details.layout")
    multiply, numerics = imported("triton_kernels.matmul_ogs"), imported("triton_kernels.numerics")
    # As vLLM sets it on Hopper: a product of few tokens is slower where triton_kernels splits K.
    imported("triton_kernels.matmul_ogs_details.opt_flags").update_opt_flags_constraints({"split_k": 1})
    of_weights, weight_options = layout.make_default_matmul_mxfp4_w_layout(mx_axis=1)
    of_scales, scale_options = layout.make_default_matmul_mxfp4_w_scale_layout(mx_axis=1, num_warps=8)
    weights = tensor.convert_layout(tensor.wrap_torch_tensor(codes.transpose(-2, -1), dtype=tensor.FP4), of_weights, **weight_options)
    scale = tensor.convert_layout(tensor.wrap_torch_tensor(scales.transpose(-2, -1)), of_scales, **scale_options)
    flex = multiply.FlexCtx(rhs_data=numerics.InFlexData())
    return weights, multiply.PrecisionConfig(weight_scale=scale, flex_ctx=flex)


RIVALS: Mapping[str, Rival] = {
    "torch block-wise": Rival(torch_block_wise),
    "DeepGEMM": Rival(deep_gemm),
    "DeepGEMM, ends of groups": Rival(partial(deep_gemm, ends_of_groups=True)),
    "triton_kernels": Rival(triton_kernels),
    "humming": Rival(humming, "sums of FP8 rows are never promoted"),
    "torch row-wise": Rival(torch_row_wise, "one scale for each row"),
    "torch tensor-wise": Rival(torch_tensor_wise, "one scale for each matrix, and one matrix for all groups", any_formats=True),
    "torch bf16": Rival(torch_bf16, "no scales; its weights have more bytes", any_formats=True),
}


def other_job(name: str, formats: str, settings: Mapping[str, str]) -> str:
    """How a rival's job differs from the call's; empty for the same job."""
    if name == "triton_kernels":
        return "multiplies rows of bf16" if formats == "fp8_mxfp4" else ""
    if name == "humming" and (formats != "fp8_mxfp4" or settings.get("promotion") == "never"):
        return ""
    return f"does less work: {RIVALS[name].less}" if RIVALS[name].less else ""


def checked(make: Callable[[Any, Product, str], Case], product: Product, device: str) -> Case:
    """A case whose result is right. Raises Unavailable with the reason where there is none."""
    torch = torch_with_gpu()
    try:
        case = make(torch, product, device)
        error = error_of(torch, case, product, device)
    except Unavailable:
        raise
    except Exception as refusal:  # of another library: whatever it raises is its answer
        raise Unavailable(f"refuses: {type(refusal).__name__}: {first_line(refusal)}") from None
    if not error <= case.tolerance:
        raise Unavailable(f"wrong: its error is {error:.2g} of the result's root mean square, {case.tolerance:.2g} is allowed")
    return case


def error_of(torch: Any, case: Case, product: Product, device: str) -> float:
    """The root mean square of the error over that of the result, of some rows."""
    slots = zip((0, *product.ends), product.used or (product.M,), strict=False)
    rows = torch.cat([torch.arange(begin, begin + count, device=device) for begin, count in slots])
    rows = rows[torch.linspace(0, len(rows) - 1, min(_CHECKED_ROWS, len(rows)), device=device).long().unique()]
    found = case.call().reshape(-1, product.N)[rows].float()
    expected = case.expected(rows)
    return float(((found - expected).square().mean() / expected.square().mean()).sqrt())


def replayed(make: Callable[[Any, Product, str], Case], product: Product, device: int, cache: int) -> TorchReplay:
    """A checked rival, ready to be timed."""
    torch, where = torch_with_gpu(), f"cuda:{device}"
    first = checked(make, product, where)
    calls = [first.call] + [make(torch, product, where).call for _ in range(how_many_sets(first.bytes, cache) - 1)]
    try:
        return TorchReplay(torch, calls, device)
    except Exception as refusal:
        raise Unavailable(f"cannot be captured in a graph: {first_line(refusal)}") from None


def first_line(refusal: Exception) -> str:
    return (str(refusal).strip().splitlines() or [""])[0][:160]


def torch_with_gpu() -> Any:
    torch = imported_torch()
    if not torch.cuda.is_available():
        raise Unavailable("torch sees no GPU")
    return torch


def imported_torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError as missing:
        raise Unavailable("torch is not installed" if missing.name == "torch" else f"torch cannot be imported: {missing}") from None
    except Exception as broken:  # of a wheel that does not fit this machine: a library it lacks, or another driver
        raise Unavailable(f"torch cannot be imported: {first_line(broken)}") from None
    return torch


def _only(product: Product, groupings: tuple[str, ...], formats: tuple[str, ...] = ()) -> None:
    if product.grouping not in groupings or product.epilogue not in ("", "stored") or (formats and product.formats not in formats):
        raise Unavailable("has no such product")


def imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise Unavailable(f"not installed: {missing}") from None
