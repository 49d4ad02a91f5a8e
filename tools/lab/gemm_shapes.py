"""The problems that labs time gemm.fp8b128 on: the books' shapes by name, and others drawn by a seed. It needs no GPU and no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

Shape = tuple[Any, ...]  # sizes, and what a kind has besides

WEIGHTS = ((576, 7168), (7168, 2048), (2112, 7168), (32768, 512), (4096, 7168), (24576, 1536), (7168, 16384))
LARGE = (
    (4096, 576, 7168), (4096, 7168, 576), (4096, 7168, 2048), (4096, 2048, 7168), (4096, 2112, 7168), (4096, 7168, 2112),
    (4096, 32768, 512), (4096, 512, 32768), (4096, 4096, 7168), (4096, 7168, 4096), (4096, 24576, 1536), (4096, 1536, 24576),
    (4096, 7168, 16384), (4096, 16384, 7168), (8192, 7168, 2048), (8192, 2112, 7168), (8192, 4096, 7168), (8192, 24576, 1536),
    (8192, 8192, 8192), (8192, 7168, 16384), (8192, 32768, 512),
)  # fmt: skip
GROUPS = tuple(
    (groups, rows, n, k) for groups, rows in ((4, 8192), (8, 4096)) for n, k in ((6144, 7168), (7168, 3072), (4096, 4096), (4096, 2048))
)
SKEWS = ("even", "uniform", "zipf", "quarter_empty")
SIZES = (16, 32, 64, 128, 192, 256, 512)
SHAPES: Mapping[str, Sequence[Shape]] = {
    "large": LARGE,
    "few": tuple((m, n, k) for m in (1, 8, 16, 32, 64, 128) for n, k in WEIGHTS),
    "probe_large": ((4096, 7168, 2048), (4096, 2112, 7168), (4096, 4096, 7168), (4096, 24576, 1536), (8192, 8192, 8192)),
    "odd": tuple((m, n, k) for m in (24, 40, 48, 80, 96, 120) for n, k in (*WEIGHTS[1:3], WEIGHTS[4], WEIGHTS[6])),
    "between": tuple((m, n, k) for m in (256, 384, 512) for n, k in WEIGHTS[1::2]),
    "odd_between": tuple((m, n, k) for m in (96, 130, 200, 300, 450) for n, k in (*WEIGHTS[1::2], WEIGHTS[4])),
    "groups": tuple((*shape, skew) for shape in GROUPS for skew in SKEWS),
    "short_groups": (
        *((64, rows, 4096, 2048, skew) for rows in SIZES for skew in SKEWS),
        *((64, rows, 4096, 7168, skew) for rows in SIZES for skew in SKEWS[:2]),
    ),
    "some_groups": tuple(
        (groups, rows, n, k, "uniform")
        for groups, rows in ((8, 128), (8, 512), (8, 1024), (16, 1024), (32, 256), (128, 64), (256, 128), (2, 4096))
        for n, k in ((4096, 4096), (7168, 2048), (1536, 2048))
    ),
    "few_of_groups": tuple(
        (groups, rows, n, k, "uniform") for groups in (8, 64) for rows in (1, 4, 8) for n, k in ((4096, 7168), (7168, 2048))
    ),
    "indices": tuple(
        (*shape, f"{skew}_indices")
        for shape in (
            *((64, rows, 4096, 2048) for rows in SIZES),
            *GROUPS[::3],
            (8, 4, 4096, 7168),
            (8, 128, 4096, 4096),
            (8, 512, 4096, 4096),
            (16, 1024, 7168, 2048),
            (128, 64, 1536, 2048),
        )
        for skew in SKEWS[:2]
    ),
    # what no rule has been fitted to
    "unseen_groups": tuple(
        (groups, rows, n, k, skew)
        for groups, rows in (
            (2, 60),
            (1, 1000),
            (16, 2),
            (32, 6),
            (128, 24),
            (64, 48),
            (32, 96),
            (64, 160),
            (16, 300),
            (48, 400),
            (8, 700),
            (6, 1500),
            (4, 3000),
            (3, 10000),
        )
        for n, k in ((3072, 5120), (5120, 1536))
        for skew in ("even", "uniform")
    )
    + tuple((groups, rows, 2048, 4096, skew) for groups, rows in ((64, 100), (16, 1024), (12, 2500)) for skew in SKEWS[2:]),
    "unseen_indices": tuple(
        (groups, rows, 5120, 1536, f"{skew}_indices")
        for groups, rows in ((32, 6), (64, 48), (64, 160), (48, 400), (6, 1500), (3, 10000))
        for skew in SKEWS[:2]
    ),
    "ragged_groups": tuple((128, 160, n, k, "ragged") for n, k in ((5760, 2880), (2880, 2880), (3072, 4096), (4096, 1536))),
    "masked": tuple(
        (groups, rows, n, k, "masked")
        for groups, rows in ((32, 192), (6, 1024), (32, 20), (6, 20))
        for n, k in ((6144, 7168), (7168, 3072), (4096, 4096), (4096, 2048))
    ),
    "along_k": tuple(
        (groups, k, m, n, kind)
        for m, n, totals in ((4096, 7168, (34304, 34176, 35200)), (7168, 2048, (33024, 38656, 33664)))
        for groups, k in zip((4, 8, 16), totals, strict=True)
        for kind in ("f32_added_128", "bf16_128")
    ),
    "short_along_k": tuple(
        (groups, groups * k, m, n, kind)
        for groups, k in ((8, 512), (8, 2048), (32, 1024), (64, 128), (64, 512))
        for m, n in ((4096, 7168), (7168, 2048), (2048, 1536))
        for kind in ("f32_added_128", "bf16_128")
    ),
    "unseen_along_k": tuple(
        (groups, groups * k, m, n, kind)
        for groups, k in ((2, 8192), (6, 1000), (12, 3000), (48, 256), (16, 5000))
        for m, n in ((3072, 5120), (5120, 1536))
        for kind in ("f32_added_16", "bf16_16")
    ),
    "probe_along_k": tuple((4, 34304, 4096, 7168, kind) for kind in ("bf16_128", "f32_added_128", "f32_added_16")),
    "probe_groups": tuple((*shape, skew) for shape in GROUPS[::3] for skew in SKEWS),
    "probe_few": tuple((m, n, k) for m in (1, 64, 128) for n, k in WEIGHTS),
}


# Widths of layers that people serve.
WIDTHS = (
    576, 768, 1024, 1536, 2048, 2112, 2560, 2880, 3072, 3584, 4096, 5120, 5760, 6144, 7168, 8192, 9216, 10240, 11008, 12288, 13824, 14336,
    16384, 17920, 18432, 24576, 28672, 29568, 32768,
)  # fmt: skip
BANDS = ((1, 16), (17, 128), (129, 2048), (2049, 16384))  # of tokens
UNSEEN, LARGEST = 200, 2e9  # problems of a seed; bytes of the operands


def unseen(seed: int, count: int = UNSEEN) -> list[tuple[int, int, int]]:
    """Tokens evenly by their logarithm, a third of the widths from WIDTHS, the others any multiple of 64, evenly by theirs."""
    random = Random(f"unseen {seed}")

    def logarithmic(least: int, most: int, step: int) -> int:
        return round(float(least * (most / least) ** random.random() / step)) * step

    def width(most: int) -> int:
        known = [one for one in WIDTHS if 512 <= one <= most]
        return random.choice(known) if random.random() < 1 / 3 else logarithmic(512, most, 64)

    shapes: list[tuple[int, int, int]] = []
    while len(shapes) < count:
        m, n, k = logarithmic(1, 16384, 1), width(32768), width(18432)
        if m * k + n * k + 2 * m * n <= LARGEST:
            shapes.append((m, n, k))
    return shapes


def drawn(kind: str, seed: int, count: int) -> Sequence[Shape]:
    """Shapes of all sizes, evenly by their logarithms: so that a rule can be fitted to some and be judged by others."""
    if kind == "unseen":
        return unseen(seed, count)
    random = Random(f"{kind} {seed}")

    def size(least: float, most: float, step: int) -> int:
        return max(step, round(float(least * (most / least) ** random.random() / step)) * step)

    shapes: list[Shape] = []
    while len(shapes) < count:
        n, k, groups = size(512, 28672, 256), size(512, 14336, 128), size(2, 256, 1)
        rows = size(0.5, 32768 / groups, 1)
        if kind == "dense":
            shape: Shape = (size(1, 16384, 1), n, k)
        elif kind == "along_k":
            shape = (groups, groups * size(128, 65536 / groups, 128), n, k, random.choice(("f32_added_16", "bf16_16")))
        else:
            skew = kind if kind in ("masked", "ragged") else random.choice(SKEWS[:2] + SKEWS)
            shape = (groups, rows, n, k, skew + ("_indices" if kind == "indices" else ""))
        work = shape[0] * n * k if kind == "dense" else shape[1] * n * k if kind == "along_k" else groups * rows * n * k
        if work < 1e12 and groups * n * k < 3e9:
            shapes.append(shape)
    return shapes


def shapes_of(names: str, known: Mapping[str, Sequence[Shape]] = SHAPES) -> list[Shape]:
    """Names of SHAPES, or what to draw, from which seed and how many: groups@1@40."""
    shapes: list[Shape] = []
    for name in names.split(","):
        kind, *numbers = name.split("@")
        shapes += drawn(kind, *map(int, numbers)) if numbers else known[kind]
    return shapes


def group_sizes(groups: int, rows: int, skew: str) -> list[int]:
    """Ragged sizes whose sum is groups * rows."""
    random = Random(groups * rows)
    share = [1.0] * groups
    if skew == "uniform":
        share = [0.7 + 0.6 * random.random() for _ in share]
    if skew == "ragged":  # 64 to 256 rows of a mean of 160
        share = [64 + 192 * random.random() for _ in share]
    if skew == "zipf":
        share = [1 / place for place in range(1, groups + 1)]
    if skew == "quarter_empty":
        share[: groups // 4] = [0.0] * (groups // 4)
    ends = [round(sum(share[:place]) / sum(share) * groups * rows) for place in range(groups + 1)]
    return [end - begin for begin, end in pairwise(ends)]
