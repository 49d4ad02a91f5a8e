"""Products of 4-bit gates and ups, packed or stored, that end in their activation, on a GPU: bits held against the plain product and the rule, then times.

    python tools/lab/four_bit_swiglu.py [--directory CUBINS] [--problems 40] [--seed 0] [--json FILE]

The plain product of the same packed weights has gates and ups side by side, in f32; what zoo.reference makes of them must be what every tile of
`.swiglu` and `.swiglu_fp8b128`, and of both with stored weights, gives, to the bit, in a buffer of poison. Times are of CUDA graphs that take turns, over matrices of
weights of 150 MB together or more, so that none is in the L2 cache. Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import zoo
from zoo.catalog import Zoo
from zoo.reference.block_scaled_epilogues import Gates
from zoo.reference.four_bit_gated import quantised_by, quantised_in_blocks
from zoo.reference.fragments import chunk_shape, row_order
from zoo.reference.gemm import rounded
from zoo.reference.swiglu import ACTIVATIONS, gated_unit

sys.path.insert(0, str(Path(__file__).resolve().parent))
from four_bit import CHUNKS, IN_NO_CACHE, tiles, weights
from viewed import of_matrices

FORMATS = ("fp8_nvfp4", "fp8_mxfp4", "bf16_nvfp4", "bf16_mxfp4")
GROUPINGS = ("dense", "m_grouped_contiguous", "m_grouped_masked", "m_grouped_gather")
POISON = 0x5A
DENSE = (
    (8, 5760, 2880),
    (64, 28672, 4096),
    (256, 28672, 4096),
    (2048, 5760, 2880),
    (2048, 28672, 4096),
    (4096, 4096, 7168),
)  # M, N = 2 I, K
GROUPS = ((8, 28672, 4096), (32, 5760, 2880), (128, 3072, 4096))  # (groups, N, K)
ROWS = (1, 16, 64, 128, 512)  # of a group


def tokens(formats: str, M: int, K: int) -> dict[str, torch.Tensor]:
    a = torch.randn(M, K, device="cuda")
    if formats.startswith("bf16"):
        return {"a": a.bfloat16()}
    return {"a": a.to(torch.float8_e4m3fn), "a_scale": torch.rand(M, device="cuda") + 0.5}


def one_of(draw: np.random.Generator, *values: Any) -> Any:
    return values[int(draw.integers(len(values)))]


class Drawn:
    """A random problem of one grouping; rows of the result lie one after the other, in places too."""

    def __init__(self, cubins: Zoo, formats: str, grouping: str, seed: int):
        draw = np.random.default_rng([seed, FORMATS.index(formats), GROUPINGS.index(grouping)])
        torch.manual_seed(seed)
        self.cubins, self.name, self.grouping, form = cubins, f"gemm.{formats}.{grouping}", grouping, formats.partition("_")[2]
        self.I, self.K, self.G = 16 * int(draw.integers(1, 60)), 64 * int(draw.integers(1, 12)), int(draw.integers(1, 40))
        self.G = 1 if grouping == "dense" else self.G
        sizes = (draw.integers(0, 90, self.G) * (draw.random(self.G) < 0.7)).astype(np.int32)
        self.place = int(sizes.max()) + int(draw.integers(1, 5))
        self.M = self.G * self.place if grouping == "m_grouped_masked" else int(sizes.sum()) + int(draw.integers(0, 4))
        self.M, N = max(self.M, 1), 2 * self.I
        sizes = np.array([self.M], np.int32) if grouping == "dense" else sizes
        self.ours = np.zeros(self.M, bool)
        begins = np.arange(self.G) * self.place if grouping == "m_grouped_masked" else np.cumsum(sizes) - sizes
        self.group = np.zeros(self.M, np.int64)
        for group, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
            self.ours[begin : begin + size], self.group[begin : begin + size] = True, group
        T = max(1, self.M // 2) if grouping == "m_grouped_gather" else self.M
        self.weights = {"": weights(form, (self.G,), N, self.K)}
        self.operands = tokens(formats, T, self.K)
        self.gates = Gates(one_of(draw, "halves", "interleaved"), one_of(draw, *ACTIVATIONS), np.float32(one_of(draw, 0.5, 7.0, 3.0e38)))
        self.weights["_stored"] = self.unpacked(form, N)
        self.alpha = torch.rand(self.G, one_of(draw, 1, 2), device="cuda") * 0.2 / self.K**0.5
        kind = one_of(draw, None, torch.float32, torch.bfloat16)
        self.bias = None if kind is None else torch.randn(self.G, N, device="cuda").to(kind)
        self.row_scale = torch.rand(self.M, device="cuda") if one_of(draw, False, True) else None
        self.half, self.dtype = one_of(draw, (torch.bfloat16, "bf16"), (torch.float16, "f16"))
        self.in_fragments, self.scaling = one_of(draw, False, True), one_of(draw, "exact", "pow2")
        self.order = torch.from_numpy(row_order(N, self.gates.order)[:N].astype(np.int64)).cuda()
        if grouping == "m_grouped_contiguous":
            self.operands["offsets"] = torch.from_numpy(np.cumsum(sizes).astype(np.int32)).cuda()
        if grouping == "m_grouped_masked":
            self.operands["rows"] = torch.from_numpy(sizes).cuda()
        if grouping == "m_grouped_gather":
            self.operands["offsets"] = torch.from_numpy(np.cumsum(sizes).astype(np.int32)).cuda()
            self.operands["index"] = torch.randint(-1, T, (self.M,), device="cuda", dtype=torch.int32)

    def unpacked(self, form: str, N: int) -> dict[str, torch.Tensor]:
        """The same as a checkpoint has them; the largest scales of packed rows are all alike. For bf16 they are packed anew."""
        block, scale = (16, torch.float8_e4m3fn) if form == "nvfp4" else (32, torch.float8_e8m0fnu)
        q = torch.empty((self.G, N, self.K // 2), device="cuda", dtype=torch.uint8)
        scales = torch.empty((self.G, N, self.K // block), device="cuda", dtype=torch.uint8)
        packed = {name.removeprefix("b_"): array for name, array in self.weights[""].items()}
        matrices = {"q": q, "scales": scales.view(scale), "gates": self.gates.order}
        self.cubins.launch(f"unpack.{form}.fragments", **packed, **matrices)
        if self.name.startswith("gemm.bf16"):
            packed["b"] = packed["b"].view(*packed["b"].shape[:-1], *chunk_shape(block, "bf16"))
            self.cubins.launch(f"pack.{form}.fragments", **packed, **matrices, tokens="bf16")
            self.weights[""]["b"] = packed["b"]
        return self.weights[""] | {"b": q, "b_scale": scales.view(scale)}

    def shaped(self, name: str, array: torch.Tensor) -> torch.Tensor:
        """Of what there is for each row, or group, as the grouping has it."""
        if self.grouping == "m_grouped_masked" and name in ("a", "a_scale", "row_scale", "d", "q", "scales"):
            return array.view(self.G, self.place, *array.shape[1:])
        return array[0] if self.grouping == "dense" and name in ("b", "b_scale", "b_row_scale", "alpha", "bias") else array

    def launch(self, ending: str, given: dict[str, Any], **more: Any) -> None:
        if ending.endswith("_stored"):
            more.pop("columns", None)
        own = self.operands | self.weights["_stored" if ending.endswith("_stored") else ""] | given
        arrays = {name: self.shaped(name, array) for name, array in own.items() if array is not None}
        self.cubins.launch(self.name + ending, **arrays, **more)

    def h(self) -> np.ndarray:
        """By the plain product, once for gates and once for ups, and the rule."""
        found = []
        bias = None if self.bias is None else self.bias[:, self.order].contiguous()
        for alpha in (self.alpha[:, 0], self.alpha[:, -1]):
            d = torch.zeros(self.M, 2 * self.I, device="cuda")
            flat = alpha.contiguous()
            self.launch("", {"alpha": flat[None] if self.grouping == "dense" else flat, "bias": bias, "d": d}, variant="t128")
            found.append(d.view(self.M, self.I // 8, 2, 8).cpu().numpy())
        both = np.concatenate([found[0][:, :, 0].reshape(self.M, self.I), found[1][:, :, 1].reshape(self.M, self.I)], axis=1)
        h = gated_unit(both, "halves", self.gates.activation, self.gates.limit)
        return h if self.row_scale is None else h * self.row_scale.cpu().numpy()[:, None]

    def wrong(self) -> int:
        expected, count = self.h(), 0
        given = {"alpha": self.alpha, "bias": self.bias, "row_scale": self.row_scale}
        settings = {"gates": self.gates.order, "activation": self.gates.activation, "limit": float(self.gates.limit)}
        for ending, variant in self.tiles(".swiglu"):
            d = torch.full((self.M, self.I * 2), POISON, device="cuda", dtype=torch.uint8).view(self.half)
            self.launch(ending, given | {"d": d}, **settings, variant=variant)
            count += self.differs("d", f"{ending} {variant}", rounded(expected, self.dtype).view(np.uint8), d)
        known = np.float32(0.004)
        width = -(-self.I // 64) * 64 if self.in_fragments else self.I
        more = settings | {"order": "fragments" if self.in_fragments else "plain", "scaling": self.scaling, "columns": self.I}
        blocks = quantised_in_blocks(expected, self.scaling, self.in_fragments)
        for ending, variant in self.tiles(".swiglu_fp8b128"):
            q = torch.full((self.M, width), POISON, device="cuda", dtype=torch.uint8)
            scales = torch.full((self.M, -(-self.I // 128) * 4), POISON, device="cuda", dtype=torch.uint8)
            of_q = {"q": q.view(torch.float8_e4m3fn), "scales": scales.view(torch.float32)}
            self.launch(ending, given | of_q, **more, variant=variant)
            count += self.differs("q", f"{ending} {variant}", blocks.q.view(np.uint8), q)
            count += self.differs("scales", f"{ending} {variant}", blocks.scales.view(np.uint8), scales)
            q.fill_(POISON)
            self.launch(ending, given | of_q | {"q_scale": torch.full((1,), float(known), device="cuda")}, **more, variant=variant)
            of_known = quantised_by(expected, known, self.in_fragments).view(np.uint8)
            count += self.differs("q under a known scale", f"{ending} {variant}", of_known, q)
        return count

    def tiles(self, result: str) -> list[tuple[str, str]]:
        """What a kernel of that result is called besides, and each of its tiles."""
        endings = (result, f"{result}_stored")
        return [(ending, tile.name) for ending in endings for tile in tiles(self.cubins.kernel(self.name + ending), "regular")]

    def differs(self, what: str, tile: str, expected: np.ndarray, found: torch.Tensor) -> bool:
        wanted = np.where(self.ours[:, None], expected.reshape(self.M, -1), np.uint8(POISON))
        seen = found.view(torch.uint8).cpu().numpy().reshape(self.M, -1)
        if np.array_equal(wanted, seen):
            return False
        bad = np.argwhere(wanted != seen)
        print(f"{self.name} {tile}: {what} differs in {len(bad)} bytes of {self.M} x {self.I} x {self.K}, first at {bad[0]}", flush=True)
        return True


def in_turns(calls: dict[str, list[Any]], rounds: int = 9) -> dict[str, float]:
    """Microseconds of one call of each: medians of graphs of all of them, which take turns."""
    graphs = {}
    for name, each in calls.items():
        each[0]()
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for call in each:
                call()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds + 1):
        for name, graph in graphs.items():
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / len(calls[name]))
    return {name: float(statistics.median(found[1:])) for name, found in times.items()}


def routed(how: str, groups: int, rows: int, seed: int) -> np.ndarray:
    """Rows of each group: as many of each, or drawn, each group as likely as any other or by its rank."""
    if how == "even":
        return np.full(groups, rows)
    draw = np.random.default_rng(seed)
    weight = np.ones(groups) if how == "uniform" else 1 / np.arange(1, groups + 1)
    return draw.permutation(draw.multinomial(groups * rows, weight / weight.sum()))


def times(cubins: Zoo, formats: str, groups: int, rows: int, N: int, K: int, how: str = "even") -> dict[str, Any]:
    """Of one matrix, groups == 0, or of groups."""
    grouping, M = ("dense", rows) if groups == 0 else ("m_grouped_contiguous", rows * groups)
    name, operands, form, columns = f"gemm.{formats}.{grouping}", tokens(formats, M, K), formats.partition("_")[2], N // 2
    bytes_of_b = max(groups, 1) * -(-N // 64) * (K // 64) * CHUNKS[form]
    copies = weights(form, (max(2, -(-IN_NO_CACHE // bytes_of_b)), *((groups,) if groups else ())), N, K, formats.partition("_")[0])
    each = [{what: one[i] for what, one in copies.items()} for i in range(len(copies["b"]))]
    if groups:
        operands["offsets"] = torch.from_numpy(np.cumsum(routed(how, groups, rows, rows)).astype(np.int32)).cuda()
    d, h = torch.empty(M, N, device="cuda", dtype=torch.bfloat16), torch.empty(M, columns, device="cuda", dtype=torch.bfloat16)
    q = torch.empty(M, -(-columns // 64) * 64, device="cuda", dtype=torch.float8_e4m3fn)
    scales = torch.empty(M, -(-columns // 128), device="cuda")
    known = torch.full((1,), 0.01, device="cuda")
    of_q = {"q": q, "order": "fragments", "columns": columns}
    results: dict[str, tuple[str, dict[str, Any]]] = {
        "plain": ("", {"d": d}),
        "swiglu": (".swiglu", {"d": h}),
        "blocks": (".swiglu_fp8b128", of_q | {"scales": scales}),
        "known": (".swiglu_fp8b128", of_q | {"scales": scales, "q_scale": known}),
    }
    calls, chosen = {}, {}
    for what, (ending, given) in results.items():
        plans = [cubins.prepare(name + ending, **operands, **one, **given) for one in each]
        chosen[what] = plans[0].launch.variant.name
        calls[what] = [lambda plan=plan: plan(torch.cuda.current_stream().cuda_stream) for plan in plans]
        same = chosen["plain"]
        if what != "plain" and chosen[what] != same and any(one.name == same for one in cubins.kernel(name + ending).variants):
            plans = [cubins.prepare(name + ending, **operands, **one, **given, variant=same) for one in each]
            calls[f"{what} {same}"] = [lambda plan=plan: plan(torch.cuda.current_stream().cuda_stream) for plan in plans]
    return {"formats": formats, "groups": groups, "rows": rows, "how": how, "N": N, "K": K, "tiles": chosen, "us": in_turns(calls)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, help="cubins (default: the packaged ones)")
    parser.add_argument("--problems", type=int, default=40, help="random ones, of each kind of tokens, weights and groups in turn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cubins = of_matrices(Zoo(arguments.directory or Path(zoo.__file__).parents[1] / "cubins"))
    kinds = [(formats, grouping) for formats in FORMATS for grouping in GROUPINGS]
    wrong = sum(
        Drawn(cubins, *kinds[seed % len(kinds)], seed).wrong() for seed in range(arguments.seed, arguments.seed + arguments.problems)
    )
    print(f"{wrong} results differ" if wrong else f"all tiles give the rule's bits: {arguments.problems} problems", flush=True)
    results = []
    for formats in FORMATS:
        problems: list[tuple[Any, ...]] = [(0, *shape) for shape in DENSE]
        problems += [(G, rows, N, K) for G, N, K in GROUPS for rows in ROWS if G * rows <= 16384]
        problems += [(32, rows, 5760, 2880, how) for rows in (4, 16, 128, 512) for how in ("uniform", "zipf")]
        for problem in problems if formats == "fp8_nvfp4" else problems[::3]:
            one = times(cubins, formats, *problem)
            results.append(one)
            us = one["us"]
            said = "  ".join(f"{what} {value:.1f} ({value / us['plain']:.3f})" for what, value in us.items() if what != "plain")
            where = f"{formats} {one['groups']} x {one['rows']} {one['how']}, {one['N']} x {one['K']}"
            chosen = "/".join(one["tiles"].values())
            print(f"{where:52} {chosen}: plain {us['plain']:.1f}  {said}", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(results))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
