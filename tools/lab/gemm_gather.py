"""Times gemm.fp8b128.m_grouped_gather and the m_indices form of m_grouped_contiguous beside m_grouped_contiguous on the same work.

    python tools/lab/gemm_gather.py CUBINS [--cases sweep|unseen|groups@1@20] [--variants 't*'] [--skews even,zipf] [--json FILE]

`permuted`: each token is taken once, in random order. `top8`: an eighth as many tokens, each taken by eight groups, as a mixture of
experts does. Figures are medians of graph replays that take turns; `x` is a variant's time over that of the fastest contiguous one.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from pathlib import Path

import torch
from gemm import BANDWIDTH, CACHE, GROUPED, PEAK, calls_of, grouped_operands, known, take_turns
from gemm_shapes import GROUPS, shapes_of

import zoo
from zoo.benchmark.graphs import Replay

GATHER = "gemm.fp8b128.m_grouped_gather"
CASES = {
    "default": (*GROUPS[::3], (64, 512, 4096, 2048), (128, 64, 1536, 2048)),
    "sweep": (
        *GROUPS[::3], (8, 1, 4096, 7168), (64, 2, 4096, 2048), (8, 16, 7168, 2048), (64, 16, 4096, 7168), (64, 64, 4096, 2048), (128, 64, 1536, 2048),
        (8, 512, 4096, 7168), (64, 192, 4096, 2048), (16, 1024, 7168, 2048), (64, 512, 4096, 2048), (256, 128, 1536, 2048),
    ),
    "unseen": (
        (16, 2, 3072, 5120), (64, 8, 5120, 1536), (32, 96, 3072, 5120), (64, 160, 2048, 4096), (16, 300, 5120, 1536), (48, 400, 3072, 5120),
        (8, 700, 5120, 1536), (6, 1500, 3072, 5120), (4, 3000, 2048, 4096), (3, 10000, 5120, 1536),
    ),
}  # fmt: skip


def taken(one: dict[str, torch.Tensor], tokens: int) -> torch.Tensor:
    """An index of rows, each of `tokens` as often."""
    rows = len(one["d"])
    if tokens == rows:
        return torch.randperm(rows, device="cuda").int()
    order = torch.rand(-(-rows // tokens), tokens, device="cuda").argsort(1)  # one round of all tokens after the other
    return order.flatten()[:rows].int()


def a_workspace(m: int, k: int) -> torch.Tensor:
    """Of m rows, holding anything."""
    units, blocks = -(-m // 16), -(-k // 128)
    return torch.randint(0, 256, (-(-(m * k) // 128) * 128 + (16 * units * blocks + units + 4) * 4,), dtype=torch.uint8, device="cuda")


def gathering(one: dict[str, torch.Tensor], tokens: int) -> dict[str, torch.Tensor]:
    """The same work, with its rows of A elsewhere."""
    index = taken(one, tokens)
    a, a_scale = one["a"].view(torch.uint8)[:tokens], one["a_scale"][:tokens]
    m, k = one["a"].shape
    return one | {
        "a": a.view(torch.float8_e4m3fn),
        "a_scale": a_scale,
        "index": index,
        "workspace": a_workspace(m, k),
        "d": torch.empty_like(one["d"]),
    }


def m_indices(one: dict[str, torch.Tensor]) -> torch.Tensor:
    sizes = one["offsets"].diff(prepend=one["offsets"].new_zeros(1)).long()
    return torch.repeat_interleave(torch.arange(len(sizes), device="cuda"), sizes).int()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cubins")
    parser.add_argument("--cases", default="default", help="default, sweep, unseen, or drawn: groups@1@20")
    parser.add_argument("--skews", default="even,uniform")
    parser.add_argument("--variants", default="*")
    parser.add_argument("--words", default="*", help="of permuted, top8, permuted_row_major_scales, indices")
    parser.add_argument("--json", help="times of gather's variants, for tools/regret.py")
    arguments = parser.parse_args()
    collection = zoo.Zoo(arguments.cubins)
    results = []
    for groups, rows, n, k, *drawn in shapes_of(arguments.cases, CASES):
        for skew in drawn or arguments.skews.split(","):
            measure(collection, groups, rows, n, k, skew, arguments.variants, arguments.words, results)
            torch.cuda.empty_cache()
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))


def measure(collection: zoo.Zoo, groups: int, rows: int, n: int, k: int, skew: str, pattern: str, words: str, results: list) -> None:
    m = groups * rows
    moved = m * k + groups * n * k + 2 * m * n
    sets = min(max(2, int(-(-CACHE // moved))), 32)
    rotating = [grouped_operands(groups, rows, n, k, skew) for _ in range(sets)]
    stream = torch.cuda.Stream()
    own = stream.cuda_stream
    work = {"contiguous": (GROUPED, rotating)}
    for word, tokens in (("permuted", m), ("top8", max(1, m // 8))):
        work[word] = (GATHER, [gathering(one, tokens) for one in rotating])
    indexed = [{name: value for name, value in one.items() if name != "offsets"} | {"m_indices": m_indices(one)} for one in rotating]
    row_major = [one | {"a_scale": one["a_scale"].contiguous()} for one in work["permuted"][1]]
    work["permuted_row_major_scales"] = (GATHER, row_major)
    work["indices"] = (GROUPED, indexed)
    torch.cuda.synchronize()
    replays = {}
    for word, (kernel, operands) in work.items():
        if not any(fnmatch.fnmatch(word, wanted) for wanted in ("contiguous", *words.split(","))):
            continue
        chosen = collection.prepare(kernel, stream=own, **operands[0]).launch.variant.name
        for variant in collection.kernel(kernel).variants:
            if (
                variant.arch != "sm_90a"
                or "d" in variant.dtypes
                or not fnmatch.fnmatch(variant.name, pattern)
                or variant.name.endswith("_indices") != (word == "indices")
            ):
                continue
            plans = [collection.prepare(kernel, stream=own, variant=variant.name, **one) for one in operands]
            calls = calls_of(sets, 1e6 * max(2 * m * n * k / PEAK, moved / BANDWIDTH))
            name = f"{word} {variant.name.removesuffix('_indices')}{'*' * (variant.name == chosen)}"
            replays[name] = Replay([plans[i % sets] for i in range(calls)], own)
    times = take_turns({name: replay.microseconds for name, replay in replays.items()})
    for replay in replays.values():
        replay.close()
    for word in ("permuted", "top8"):
        of_word = {name.split()[1].rstrip("*"): time for name, time in times.items() if name.split()[0] == word}
        one = work[word][1][0]
        for workspace in (one["workspace"], None) if of_word else ():
            symbols = known(collection.prepare(GATHER, stream=own, **one | {"workspace": workspace}))
            shape = (groups, rows, n, k, f"{skew} {word}{'' if workspace is None else ' workspace'}")
            results.append({"kernel": GATHER, "shape": shape, "times": of_word, "symbols": symbols})
    best = min(time for name, time in times.items() if name.startswith("contiguous"))
    shown = "  ".join(f"{name} {time:.1f} ({time / best:.3f}x)" for name, time in times.items())
    print(f"{groups} x {rows} {n} {k} {skew}: limit {2e6 * m * n * k / PEAK:.1f} | {shown}", flush=True)


if __name__ == "__main__":
    main()
