"""Is a kernel right? Problems with known answers, run by whatever can run a kernel, compared byte for byte.

A family of kernels has a module here with `problems(kernel, variant) -> Iterator[Problem]`. What runs them is an
*executor*: that of `zoo.checks.gpu` on a device, that of `zoo.checks.emulated` without one; the tests have others.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zoo.checks.problem import POISONS, Executor, NoChecks, Problem, difference, shaped
from zoo.contract.manifest import Kernel, Variant
from zoo.errors import DriverError, EmulationError, VariantError

# The module that knows a kernel's problems, by the kernel's name without its formats.
_MODULES = {
    "quantize.rows": "quantize_rows",
    "quantize.rows.amax": "quantize_rows",
    "quantize.rows.swiglu": "quantize_swiglu",
    "quantize.rows.m_grouped_contiguous": "quantize_groups",
    "quantize.rows.m_grouped_padded": "quantize_groups",
    "quantize.cols": "quantize_directions",
    "quantize.cols.m_grouped_contiguous": "quantize_column_groups",
    "quantize.cols.m_grouped_padded": "quantize_column_groups",
    "quantize.cols.experts": "quantize_experts",
    "quantize.both": "quantize_directions",
    "quantize.both.m_grouped_contiguous": "quantize_grouped_both",
    "quantize.both.m_grouped_padded": "quantize_grouped_both",
    "quantize.both.m_grouped_contiguous.swiglu_backward": "quantize_swiglu_backward",
    "quantize.both.m_grouped_padded.swiglu_backward": "quantize_swiglu_backward",
    "quantize.squares": "quantize_squares",
    "quantize.amax": "amax",
    "quantize.amax.m_grouped_contiguous": "amax",
    "dequantize.rows": "dequantize",
    "dequantize.squares": "dequantize",
    "requantize.rows": "requantize",
    "requantize.squares": "requantize",
    "scales.blocked": "scales",
    "scales.blocked.m_grouped_contiguous": "scales",
    "scales.blocked.k_grouped": "scales",
    "scales.unblocked": "scales",
    "scales.unblocked.m_grouped_contiguous": "scales",
    "scales.unblocked.k_grouped": "scales",
    "scales.mn_major": "scales",
    "scales.ue8m0_words": "scales",
    "pack": "pack",
    "pack.fragments": "fragments",
    "unpack.fragments": "fragments",
    "experts.route": "experts_route",
    "experts.combine": "experts_combine",
    "experts.combine.backward": "experts_combine",
    "norm.rows": "norm",
    "norm.backward": "norm_backward",
    "norm.backward.weight": "norm_backward",
    "gemm.dense": "gemm",
    "gemm.m_grouped_contiguous": "gemm",
    "gemm.m_grouped_masked": "gemm",
    "gemm.m_grouped_gather": "gemm",
    "gemm.k_grouped": "gemm",
    "gemm.dense.swiglu": "gemm_swiglu",
    "gemm.dense.swiglu_fp8b128": "gemm_swiglu",
    "gemm.m_grouped_contiguous.swiglu": "gemm_swiglu",
    "gemm.m_grouped_contiguous.swiglu_fp8b128": "gemm_swiglu",
    "gemm.m_grouped_masked.swiglu": "gemm_swiglu",
    "gemm.m_grouped_masked.swiglu_fp8b128": "gemm_swiglu",
    "gemm.m_grouped_gather.swiglu": "gemm_swiglu",
    "gemm.m_grouped_gather.swiglu_fp8b128": "gemm_swiglu",
}

# The same for the format whose scales belong to whole rows.
_TOKENS = {"quantize.rows": "quantize_tokens", "quantize.rows.swiglu": "quantize_tokens"}

# The same for products of these formats, whose scales are part of the multiplication itself.
_BLOCK_SCALED_FORMATS = ("mxfp8", "mxfp4", "nvfp4", "mxfp8_mxfp4")
_BLOCK_SCALED = {
    "gemm.dense": "block_scaled",
    "gemm.m_grouped_contiguous": "block_scaled_groups",
    "gemm.m_grouped_gather": "block_scaled_groups",
    "gemm.m_grouped_masked": "block_scaled_groups",
    "gemm.k_grouped": "block_scaled_groups",
    **{
        f"gemm.{grouping}.{epilogue}": "block_scaled_epilogues"
        for grouping in ("dense", "m_grouped_contiguous", "m_grouped_masked", "m_grouped_gather")
        for epilogue in ("swiglu", "swiglu_mxfp8", "swiglu_nvfp4", "mxfp8", "nvfp4")
    },
}

# The same for products whose weights have 4 bits, packed for the registers of wgmma or stored as a checkpoint has them.
_FOUR_BIT_FORMATS = ("fp8_nvfp4", "fp8_mxfp4", "bf16_nvfp4", "bf16_mxfp4")
_FOUR_BIT = {
    f"gemm.{grouping}{extra}": "gemm_four_bit_gated" if "swiglu" in extra else "gemm_four_bit"
    for grouping in ("dense", "m_grouped_contiguous", "m_grouped_masked", "m_grouped_gather")
    for extra in ("", ".swiglu", ".swiglu_fp8b128", ".stored", ".swiglu_stored", ".swiglu_fp8b128_stored")
}

__all__ = ["NoChecks", "Outcome", "check", "check_in_turns", "problems"]


@dataclass(frozen=True)
class Outcome:
    checks: int  # problems that ran
    error: str | None  # the first that went wrong
    left_out: int = 0  # problems that were larger than asked for


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    """The problems of a variant. Their arrays are large: take them one by one."""
    formats = kernel.fields.get("formats")
    family = kernel.name.replace(f".{formats}", "", 1)  # once: an epilogue may be named as a format
    own = (
        _TOKENS
        if formats == "fp8token"
        else _BLOCK_SCALED
        if formats in _BLOCK_SCALED_FORMATS
        else _FOUR_BIT
        if formats in _FOUR_BIT_FORMATS
        else {}
    )
    module = own.get(family) or _MODULES.get(family)
    if module is None:
        raise NoChecks(
            kernel,
            f"kernels such as {family}",
            "run the check.py of your own kernel, as `zoo new-kernel` writes one; in a checkout, add a module to zoo/checks",
        )
    found: Iterator[Problem] = importlib.import_module(f"zoo.checks.{module}").problems(kernel, variant)
    return (shaped(problem, kernel) for problem in found)


def check(
    kernel: Kernel,
    variant: Variant,
    execute: Executor,
    most_elements: int | None = None,
    poisons: Sequence[int] = POISONS,
    exactly: bool = True,
) -> Outcome:
    """Runs a variant's problems, or those whose inputs have at most so many elements, until one goes wrong.

    Unless `exactly`, elements may be as far off as a problem says: its bits are those of a rule that no GPU has confirmed.
    """
    outcomes = check_in_turns(kernel, [variant], execute, most_elements, poisons, exactly)
    return next(outcome for _, outcome in outcomes if outcome is not None)


def check_in_turns(
    kernel: Kernel,
    variants: Sequence[Variant],
    execute: Executor,
    most_elements: int | None = None,
    poisons: Sequence[int] = POISONS,
    exactly: bool = True,
) -> Iterator[tuple[int, Outcome | None]]:
    """The same for several variants, each problem by all of them: they ask for the same operands and products, which are worked out once.

    (place of a variant, None) whenever a problem of that variant is next, and (place, outcome) when the variant has no more.
    """
    waiting = {place: _Under(iter(problems(kernel, variant))) for place, variant in enumerate(variants)}
    while waiting:
        for place, under in list(waiting.items()):
            yield place, None
            outcome = under.next_problem(kernel, variants[place], execute, most_elements, poisons, exactly)
            if outcome is not None:
                del waiting[place]
                yield place, outcome


@dataclass
class _Under:
    """A variant that is being checked."""

    problems: Iterator[Problem]
    ran: int = 0
    left_out: int = 0

    def next_problem(
        self,
        kernel: Kernel,
        variant: Variant,
        execute: Executor,
        most_elements: int | None,
        poisons: Sequence[int],
        exactly: bool,
    ) -> Outcome | None:
        """What is known of the variant after the next problem, if that is all."""
        problem = next(self.problems, None)
        if problem is None:
            return Outcome(
                self.ran, None if self.ran else "no problem has sizes that this variant takes; add one to its checks", self.left_out
            )
        if most_elements is not None and problem.elements > most_elements:
            self.left_out += 1
            return None
        try:
            error = difference(problem, kernel, variant, execute, poisons, exactly)
        except VariantError:
            return None  # sizes that this variant does not take; another one does
        except (DriverError, EmulationError) as failure:
            error = str(failure)
        self.ran += 1
        return None if error is None else Outcome(self.ran, f"{problem.name}: {error}", self.left_out)
