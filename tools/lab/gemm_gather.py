"""Times gemm.fp8b128.m_grouped_gather and the m_indices form of m_grouped_contiguous beside m_grouped_contiguous on the same work.

    python tools/lab/gemm_gather.py CUBINS [--cases 3] [--variants 'bf16_*'] [--skews even,zipf]

`permuted`: each token is taken once, in random order. `top8`: an eighth as many tokens, each taken by eight groups, as a mixture of
experts does. Both are compared, to the bit, with m_grouped_contiguous of the rows that torch has gathered. Figures are
medians of graph replays that take turns; `x` is a variant's time over that of the fastest contiguous one.
"""

from __future__ import annotations

import argparse
import fnmatch
import statistics
import sys
from pathlib import Path

import torch

import zoo
from zoo.benchmark.graphs import Replay

sys.path.insert(0, str(Path(__file__).resolve().parent))
from gemm import CACHE, GROUPED, GROUPS, PEAK, grouped_operands

GATHER = "gemm.fp8b128.m_grouped_gather"
CASES = (*GROUPS[::3], (64, 512, 4096, 2048), (128, 64, 1536, 2048))
ROUNDS, WARMUPS = 9, 2


def taken(one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
    """An index of rows, each of `tokens` as often."""
    rows = len(one["d"])
    if tokens == rows:
        return torch.randperm(rows, device="cuda").int()
    order = torch.rand(rows // tokens, tokens, device="cuda").argsort(1)  # one round of all tokens after the other
    return order.flatten().int()


def gathering(one: dict[str, torch.Tensor], tokens: int) -> dict[str, torch.Tensor]:
    """The same work, with its rows of A elsewhere."""
    index = taken(one, tokens)
    a, a_scale = one["a"].view(torch.uint8)[:tokens], one["a_scale"][:tokens]
    m, k = one["a"].shape
    workspace = torch.randint(0, 256, (-(-(m * k) // 128) * 128 + (-(-m // 16) * 16 * -(-k // 128) + -(-m // 16) + 4) * 4,), dtype=torch.uint8, device="cuda")
    return one | {"a": a.view(torch.float8_e4m3fn), "a_scale": a_scale, "index": index, "workspace": workspace, "d": torch.empty_like(one["d"])}


def m_indices(one: dict[str, torch.Tensor]) -> torch.Tensor:
    sizes = one["offsets"].diff(prepend=one["offsets"].new_zeros(1)).long()
    return torch.repeat_interleave(torch.arange(len(sizes), device="cuda"), sizes).int()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("cubins")
    parser.add_argument("--cases", type=int, default=len(CASES))
    parser.add_argument("--skews", default="even,uniform")
    parser.add_argument("--variants", default="bf16_*")
    parser.add_argument("--words", default="*", help="of permuted, top8, permuted_row_major_scales, indices")
    arguments = parser.parse_args()
    collection = zoo.Zoo(arguments.cubins)
    wrong = 0
    for groups, rows, n, k in CASES[: arguments.cases]:
        for skew in arguments.skews.split(","):
            wrong += measure(collection, groups, rows, n, k, skew, arguments.variants, arguments.words)
            torch.cuda.empty_cache()
    return 1 if wrong else 0


def measure(collection: zoo.Zoo, groups: int, rows: int, n: int, k: int, skew: str, pattern: str, words: str) -> int:
    m = groups * rows
    sets = max(2, int(-(-CACHE // (m * k + groups * n * k))))
    rotating = [grouped_operands(groups, rows, n, k, skew) for _ in range(sets)]
    stream = torch.cuda.Stream()
    own = stream.cuda_stream
    work = {"contiguous": (GROUPED, rotating)}
    for word, tokens in (("permuted", m), ("top8", m // 8)):
        work[word] = (GATHER, [gathering(one, tokens) for one in rotating])
    indexed = [{name: value for name, value in one.items() if name != "offsets"} | {"m_indices": m_indices(one)} for one in rotating]
    row_major = [one | {"a_scale": one["a_scale"].contiguous()} for one in work["permuted"][1]]
    work["permuted_row_major_scales"] = (GATHER, row_major)
    work["indices"] = (GROUPED, indexed)
    torch.cuda.synchronize()
    replays, wrong = {}, 0
    for word, (kernel, operands) in work.items():
        if not any(fnmatch.fnmatch(word, wanted) for wanted in ("contiguous", *words.split(","))):
            continue
        chosen = collection.prepare(kernel, stream=own, **operands[0]).launch.variant.name
        for variant in collection.kernel(kernel).variants:
            if not fnmatch.fnmatch(variant.name, pattern) or variant.name.endswith("_indices") != (word == "indices"):
                continue
            plans = [collection.prepare(kernel, stream=own, variant=variant.name, **one) for one in operands]
            calls = sets * max(1, -(-8 // sets))
            name = f"{word} {variant.name.removeprefix('bf16_').removesuffix('_indices')}{'*' * (variant.name == chosen)}"
            replays[name] = Replay([plans[i % sets] for i in range(calls)], own)
            wrong += not same(collection, word, plans[0], operands[0], rotating[0], stream, name)
    seen = {name: [] for name in replays}
    for turn in range(WARMUPS + ROUNDS):
        for name, replay in replays.items():
            time = replay.microseconds()
            if turn >= WARMUPS:
                seen[name].append(time)
    for replay in replays.values():
        replay.close()
    times = {name: statistics.median(times) for name, times in seen.items()}
    best = min(time for name, time in times.items() if name.startswith("contiguous"))
    shown = "  ".join(f"{name} {time:.1f} ({time / best:.3f}x)" for name, time in times.items())
    print(f"{groups} x {rows} {n} {k} {skew}: limit {2e6 * m * n * k / PEAK:.1f} | {shown}", flush=True)
    return wrong


def same(collection: zoo.Zoo, word: str, plan, one: dict, source: dict, stream, name: str) -> bool:
    """Whether d has the bits of contiguous with rows gathered beforehand."""
    expected = source | {"d": torch.full_like(one["d"], float("nan"))}
    if "index" in one:
        index = one["index"].long()
        expected |= {"a": one["a"].view(torch.uint8)[index].view(torch.float8_e4m3fn), "a_scale": one["a_scale"][index]}
    one["d"].fill_(float("nan"))
    torch.cuda.synchronize()
    plan(stream.cuda_stream)
    collection.launch(GROUPED, stream=stream.cuda_stream, **expected)
    torch.cuda.synchronize()
    if torch.equal(one["d"].view(torch.int16), expected["d"].view(torch.int16)):
        return True
    print(f"  WRONG {name}", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
