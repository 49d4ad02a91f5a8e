"""The README's table of families: which formats, and what has been seen of their cubins on each arch."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterable

from tools.documentation.text import table
from zoo.contract.manifest import Kernel, Variant
from zoo.shipped.evidence import Evidence, seen

# What a family does, and the names of its kernels. The first pattern that fits counts.
FAMILIES = {
    "[quantise](docs/quantize.md) along rows, with SwiGLU, the amax": ("quantize.*.rows", "quantize.*.rows.swiglu", "quantize.*amax"),
    "[quantise](docs/quantize.md#directions) along columns, or both in one read": ("quantize.*.cols", "quantize.*.both"),
    "[quantise groups of rows](docs/quantize.md#groups), mixture of experts": ("quantize.*.m_grouped_*",),
    "[quantise weights](docs/quantize.md#directions): squares, experts": ("quantize.*.squares", "quantize.*.experts"),
    "[dequantise](docs/quantize.md#what-do-i-need)": ("dequantize.*",),
    "[pack 4-bit weights](docs/four_bit_weights.md#packed-weights) for Hopper, and back": ("pack.*.fragments", "unpack.*"),
    "[rearrange scales, pad packed rows, round scales up](docs/quantize.md#layouts-of-scales)": ("scales.*", "pack.*", "requantize.*"),
    "[GEMM](docs/gemm.md), one matrix": ("gemm.*.dense",),
    "[GEMM of groups](docs/gemm.md): contiguous, masked, gathered": tuple(
        f"gemm.*.m_grouped_{how}" for how in ("contiguous", "masked", "gather")
    ),
    "[GEMM of 4-bit weights as they are stored](docs/four_bit_weights.md#weights-as-they-are-stored)": ("gemm.*.stored",),
    "[GEMM with SwiGLU](docs/gemm.md#swiglu-in-the-epilogue), quantised or not": ("gemm.*.swiglu*",),
    "[GEMM whose result is quantised](docs/gemm.md#block-scaled-formats-on-blackwell)": ("gemm.*.mxfp8", "gemm.*.nvfp4"),
    "[weight gradients](docs/gemm.md#weight-gradients), groups along K": ("gemm.*.k_grouped",),
}


def family_table(kernels: list[Kernel], evidence: Evidence) -> str:
    members: dict[str, list[Kernel]] = {words: [] for words in FAMILIES}
    for kernel in kernels:
        members[_family(kernel)].append(kernel)
    rows = []
    for words, found in members.items():
        formats = dict.fromkeys(kernel.fields["formats"] for kernel in found if "formats" in kernel.fields)
        archs = {arch: [one for kernel in found for one in kernel.variants if one.arch == arch] for arch in ("sm_90a", "sm_100f")}
        rows.append((words, len(found), ", ".join(formats) or "any", *(_seen(evidence, variants) for variants in archs.values())))
    return table(("what", "kernels", "formats", "Hopper, sm_90a", "Blackwell, sm_100f"), rows)


def _family(kernel: Kernel) -> str:
    for words, patterns in FAMILIES.items():
        if any(fnmatch.fnmatchcase(kernel.name, pattern) for pattern in patterns):
            return words
    sys.exit(f"{kernel.name} belongs to no family of the README; add it to tools/documentation/families.py")


def _seen(evidence: Evidence, variants: Iterable[Variant]) -> str:
    """`92 cubins: 92 on NVIDIA H200, 92 emulated`."""
    variants = list({variant.file: variant for variant in variants}.values())  # of which some have several names
    if not variants:
        return "none"
    found = seen(evidence, variants)
    parts = [f"{count} on {device}" for device, count in found.devices.items()] or ["never run on a GPU"]
    if found.failed:
        parts.append(f"{found.failed} FAILED")
    return f"{len(variants)} cubins: {', '.join(parts)}, {found.emulated} emulated"
