"""What a kernel does in a few words, made of the fields of its name: kernels that differ have other words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zoo.contract.manifest import Kernel

_GROUPINGS = {
    "m_grouped_contiguous": "back to back",
    "m_grouped_padded": "padded to 128",
    "m_grouped_masked": "in places",
    "m_grouped_gather": "by index",
    "k_grouped": "along K",
    "experts": "a stack",
}
_RESULTS = {"": "D = A B^T", "swiglu": "SwiGLU"}  # of a product
_TOGETHER = {"norm": "RMSNorm and its gradients", "experts": "sum each token's rows, and gradients"}
_OTHERS = {  # op, direction or arrangement or step, extra or gradient
    ("quantize", "rows", ""): "quantise rows",
    ("quantize", "rows", "swiglu"): "SwiGLU of x",
    ("quantize", "rows", "amax"): "quantise rows, and max|x| in one read",
    ("quantize", "cols", ""): "quantise columns",
    ("quantize", "both", ""): "rows and columns",
    ("quantize", "both", "swiglu_backward"): "backward of SwiGLU, rows and columns",
    ("quantize", "squares", ""): "quantise weights",
    ("quantize", "", "amax"): "max|x|, from which a tensor scale follows",
    ("dequantize", "rows", ""): "back to numbers",
    ("dequantize", "squares", ""): "back to numbers",
    ("requantize", "rows", ""): "round scales up to powers of two",
    ("requantize", "squares", ""): "round scales up to powers of two",
    ("scales", "blocked", ""): "plain scales to tiles of 128 x 4",
    ("scales", "unblocked", ""): "tiles of 128 x 4 to plain scales",
    ("scales", "mn_major", ""): "f32 scales by columns, for Hopper",
    ("scales", "ue8m0_words", ""): "f32 scales to words of four ue8m0",
    ("pack", "", ""): "pad rows for mxfp8_mxfp4 GEMMs",
    ("pack", "fragments", ""): "pack weights for Hopper",
    ("unpack", "fragments", ""): "undo that packing",
    ("experts", "route", ""): "sort tokens by expert",
    ("experts", "combine", ""): "sum each token's rows",
    ("experts", "combine", "backward"): "gradients of that sum",
    ("norm", "rows", ""): "RMSNorm",
    ("norm", "", "backward"): "gradients of RMSNorm",
    ("norm", "", "weight"): "gradient of its weight",
}


def in_short(kernel: Kernel) -> str:
    """A line for a kernel alone. A kernel whose words are not known here has its table's summary."""
    words, grouping = _words(kernel), _GROUPINGS.get(kernel.fields.get("grouping", ""))
    return kernel.summary if words is None else f"{words}, groups {grouping}" if grouping else words


def in_short_together(kernels: Sequence[Kernel]) -> str:
    """A line for kernels that are folded: what they do, and in which formats."""
    words = _words_together(kernels)
    if words is None:
        return kernels[0].summary
    formats = dict.fromkeys(kernel.fields["formats"] for kernel in kernels if "formats" in kernel.fields)
    return f"{words}: {short_formats(formats)}" if formats else words


def _words_together(kernels: Sequence[Kernel]) -> str | None:
    each = list(dict.fromkeys(_words(kernel) for kernel in kernels))
    op, first = kernels[0].fields["op"], each[0]
    if len(each) == 1 or first is None:
        return first
    if op in _TOGETHER:
        return _TOGETHER[op]
    plain = list(dict.fromkeys(one.removesuffix(", stored") for one in each if one is not None))
    results = " or ".join((plain[0], *(one.rpartition(" ")[2] for one in plain[1:])))
    return results + (" (or stored)" if len(plain) < len(each) else "")


def short_formats(formats: Iterable[str]) -> str:
    """`mxfp8 nvfp4`; pairs of which each left one goes with each right one are `{fp8,bf16}_{mxfp4,nvfp4}`."""
    formats = list(formats)
    pairs = [one.split("_") for one in formats if one.count("_") == 1]
    lefts, rights = (list(dict.fromkeys(pair[side] for pair in pairs)) for side in (0, 1))
    if len(lefts) > 1 and len(rights) > 1 and len(pairs) == len(lefts) * len(rights):
        formats = [one for one in formats if one.count("_") != 1] + [f"{{{','.join(lefts)}}}_{{{','.join(rights)}}}"]
    return " ".join(formats)


def _words(kernel: Kernel) -> str | None:
    fields = kernel.fields
    op, extra = fields["op"], fields.get("extra", "")
    if op != "gemm":
        of_op = next((fields[field] for field in ("direction", "arrangement", "step") if field in fields), "")
        return _OTHERS.get((op, of_op, extra or fields.get("gradient", "")))
    stored = extra.endswith("stored")
    result = extra.removesuffix("stored").removesuffix("_")
    if result in _RESULTS:
        words = _RESULTS[result]
    elif result.startswith("swiglu_"):
        words = f"SwiGLU in {result.removeprefix('swiglu_')}"
    else:
        words = f"A B^T in {result}"
    return f"{words}, stored" if stored else words
