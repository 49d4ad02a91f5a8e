"""A debug build whose warps and CTAs sleep at random wherever they wait for each other, for what is right only by luck of timing.

    python tools/sleepy.py /tmp/sleepy 'gemm.fp8b128.dense t192_rest' 'gemm.fp8_nvfp4.dense t256_once*'
    python tools/soak_gemm.py --cubins /tmp/sleepy --count 3000
    zoo --cubins /tmp/sleepy verify 'gemm.*' --gpu

Compiles a copy of src_cu in which zoo::nap() stands before or after every instruction and call of RULES: before what others can see, so
that they see it late; after what waits for others, so that what they left there is used late. Three naps of four have no length. Of the
CTAs that begin, some are late by up to a tenth of a millisecond. What is shipped does not change by a byte.
Some variants spill registers in such a build: nobody measures it, but `zoo verify` refuses those kernels, which the soaks do not.
A build keeps what is in the folder already, as long as its sources are the same.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.builder import BuildError, build, compiler
from tools.builder.checkout import OUTPUT, PACKAGES, SOURCE
from tools.builder.expand import Variant
from zoo.contract.manifest import Kernel
from zoo.contract.manifest import Variant as ShippedVariant
from zoo.shipped.integrity import disagreements

ONE_IN, LONGEST = 4, 4096  # naps of 0 to so many nanoseconds, twice that at most; powers of two
LATE_ONE_IN, LATEST = 8, 65536
NAPS = f"""
namespace zoo {{

__device__ __forceinline__ uint32_t mixed(uint32_t x) {{
    x *= 0x9E3779B1, x ^= x >> 15, x *= 0x7FEB352D;
    return x ^ x >> 16;
}}

// Without a branch: a warp stays together. What it is made of is read anew, and held in no register between naps.
__device__ __forceinline__ void nap() {{
    uint32_t clock, thread, block;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(clock));
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    const uint32_t drawn = mixed(clock + thread / 32 * 0x85EBCA6B + block * 0xC2B2AE35);
    __nanosleep(drawn % {ONE_IN} == 0 ? drawn / {ONE_IN} % {LONGEST} : 0);
}}

// The same for all warps of a CTA that come here within some tenth of a millisecond.
__device__ __forceinline__ void begin_late() {{
    uint32_t now, block;
    asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(now));
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    const uint32_t drawn = mixed((now >> 17) + block * 0xC2B2AE35);
    __nanosleep(drawn % {LATE_ONE_IN} == 0 ? drawn / {LATE_ONE_IN} % {LATEST} : 0);
}}

}}  // namespace zoo
"""


@dataclass(frozen=True)
class Rule:
    """Of an asm statement, or of a call."""

    what: str  # a regular expression
    before: str = ""
    after: str = ""


NAP = "zoo::nap();"
RULES = (
    Rule(r"mbarrier\.(?:try|test)_wait", after=NAP),
    Rule(r"mbarrier\.arrive", NAP, NAP),
    Rule(r"bar\.sync", NAP, NAP),
    Rule(r"barrier\.cluster\.(?:arrive|wait)", NAP, NAP),
    Rule(r"griddepcontrol\.wait", after="zoo::begin_late();"),
    Rule(r"ld\.(?:acquire|relaxed)", after=NAP),
    Rule(r"st\.(?:release|relaxed|async)", NAP),
    Rule(r"atom\.", NAP, NAP),
    Rule(r"ld\.shared::cluster|multicast::cluster", NAP),
    Rule(r"cp\.async\.(?:bulk\.)?wait", after=NAP),
)
CALL = re.compile(r"__syncthreads\(\);")

# What has to be found, or the rules are not about these sources any more.
EXPECTED = {
    "common/async_copy.cuh": {"mbarrier.arrive", "cp.async.wait"},
    "common/cluster.cuh": {"barrier.cluster.arrive", "barrier.cluster.wait", "mbarrier.arrive", "ld.shared::cluster", "st.async"},
    "common/dependent_launch.cuh": {"griddepcontrol.wait"},
    "common/global_words.cuh": {"ld.acquire", "ld.relaxed", "st.release", "atom.", "cp.async.bulk.wait"},
    "common/mbarrier.cuh": {"mbarrier.try_wait", "mbarrier.arrive"},
    "common/named_barrier.cuh": {"bar.sync"},
    "common/pair_copy.cuh": {"mbarrier.try_wait", "mbarrier.arrive"},
    "common/tensor_copy.cuh": {"multicast::cluster", "cp.async.bulk.wait"},
    "gemm/hopper_w4/dequantized/pipeline.cuh": {"__syncthreads"},
    "gemm/hopper_w4/dequantized/tile.cuh": {"st.relaxed", "ld.relaxed"},
    "gemm/hopper_w4/pipeline.cuh": {"__syncthreads"},
    "gemm/hopper_w4/unpromoted/pipeline.cuh": {"__syncthreads"},
    "gemm/hopper_fp8/gather/gather_to_workspace.cuh": {"st.relaxed", "ld.relaxed"},
    "gemm/hopper_fp8/k_grouped/mainloop.cuh": {"mbarrier.test_wait"},
    "gemm/hopper_fp8/pipeline/few_tokens.cuh": {"__syncthreads"},
    "gemm/hopper_fp8/pipeline/many_tokens.cuh": {"__syncthreads"},
    "gemm/hopper_fp8/pipeline/split_k_last_wave.cuh": {"__syncthreads"},
    "gemm/hopper_fp8/pipeline/overlapped_epilogue.cuh": {"__syncthreads"},
    "gemm/hopper_fp8/pipeline/tiles_in_pairs.cuh": {"st.relaxed", "ld.relaxed"},
}


def copy_with_naps(source: Path, folder: Path) -> Counter[tuple[str, str]]:
    """Writes the copy; (file, instruction) -> how many were given naps. BuildError, if one of EXPECTED has none."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    found: Counter[tuple[str, str]] = Counter()
    for path in sorted((*folder.rglob("*.cuh"), *folder.rglob("*.cu"))):
        file = path.relative_to(folder).as_posix()
        text, instructions = with_naps(path.read_text())
        found.update((file, instruction) for instruction in instructions)
        path.write_text(text)
    missing = [f"{file}: no {one}" for file, ones in EXPECTED.items() for one in sorted(ones) if (file, one) not in found]
    if missing:
        raise BuildError("sources do not wait where tools/sleepy.py expects it; bring its EXPECTED up to date\n" + "\n".join(missing))
    variant = folder / "common/variant.cuh"  # that every unit begins with
    variant.write_text(variant.read_text() + NAPS)
    return found


def with_naps(text: str) -> tuple[str, list[str]]:
    """The text of a file, and what in it was given naps."""
    pieces, found, at = [], [], 0
    while (start := text.find("asm volatile(", at)) >= 0:
        end = _end_of_statement(text, start)
        statement = text[start:end]
        rules = [(rule, match) for rule in RULES if (match := re.search(rule.what, statement))]
        if len(rules) > 1:
            raise BuildError(f"one asm statement that several rules are about: {statement}")
        for rule, match in rules:
            found.append(match[0])
            statement = " ".join(filter(None, ("{", rule.before, statement, rule.after, "}")))
        pieces += [text[at:start], statement]
        at = end
    text = "".join((*pieces, text[at:]))
    found += ["__syncthreads"] * len(CALL.findall(text))
    return CALL.sub("{ zoo::nap(); __syncthreads(); zoo::nap(); }", text), found


def _end_of_statement(text: str, start: int) -> int:
    """Behind its semicolon, those in strings not being it."""
    quoted = False
    for at in range(start, len(text)):
        if text[at] == '"':
            quoted = not quoted
        elif text[at] == ";" and not quoted:
            return at + 1
    raise BuildError(f"an asm statement has no end: {text[start : start + 80]}")


@dataclass(frozen=True)
class Chosen(build.Selection):
    patterns: tuple[str, ...] = ()

    def holds(self, variant: Variant) -> bool:
        return any(build.Selection(self.archs, pattern).holds(variant) for pattern in self.patterns)


@contextlib.contextmanager
def allowing_what_only_costs_time() -> Iterator[None]:
    """Registers that spill, and products that ptxas runs one after the other."""

    def lenient(kernel: Kernel, variant: ShippedVariant, data: bytes) -> list[str]:
        return [one for one in disagreements(kernel, variant, data) if "bytes of stack" not in one and "spills registers" not in one]

    usual = re.compile(rf"{compiler._USUAL.pattern}|ptxas info\s*: \(C\d+\) Potential Performance Loss")
    with mock.patch.object(build, "disagreements", lenient), mock.patch.object(compiler, "_USUAL", usual):
        yield


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("output", type=click.Path(file_okay=False, path_type=Path))
@click.argument("patterns", nargs=-1, required=True)
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=SOURCE,
    help="Other sources: a race planted, say.",
)
@click.option("--arch", multiple=True, default=("sm_90a",), show_default=True)
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count(), help="Compilers at once (default: the cores).")
def command(output: Path, patterns: tuple[str, ...], source: Path, arch: tuple[str, ...], jobs: int) -> None:
    """Builds what PATTERNS name, 'kernel' or 'kernel variant' with *, into OUTPUT, a folder of cubins and their manifest."""
    if output.resolve() == OUTPUT:
        raise click.UsageError("that is the folder of what is shipped; name another")
    with tempfile.TemporaryDirectory(prefix="zoo_sleepy_") as folder, allowing_what_only_costs_time():
        try:
            copy = Path(folder).resolve()
            found = copy_with_naps(source.resolve(), copy)
            click.echo(f"naps at {sum(found.values())} places of {len({file for file, _ in found})} files")
            work = build.Build(compiler.Compiler(PACKAGES), [copy], output.resolve(), None, jobs)
            click.echo(work.run(Chosen(arch, None, patterns)).splitlines()[0])
        except BuildError as error:
            raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    command()
