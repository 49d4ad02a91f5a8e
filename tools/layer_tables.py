"""Times whole layers of zoo.torch.nn beside other libraries on a GPU and records the block "Whole layers" of docs/performance.md.

    python tools/layer_tables.py [--only linear,experts] [--match TEXT] [--seed 1] [--seconds 85] [--output docs/layers.json]

linear    zoo.torch.nn.Linear forward and backward beside torch.nn.Linear in bf16
experts   zoo.torch.nn.Experts forward and backward beside a layer of torch._grouped_mm, eager and compiled; peak memory of a step
serving   Experts forward from the router's logits beside triton_kernels, vLLM and torch
decode    61 layers of Experts in one CUDA graph, and in a trace of it the sums of kernels and of gaps
kernels   microseconds of every kernel of a training step, in a CUDA graph

Each result is checked first; a wrong result is printed and not timed. The file is written after every case. A case that is timed again
replaces its row. Rows of other cubins, libraries or GPUs are dropped. Exit status 1: zoo was wrong.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.compare_rivals import libraries, said
from tools.documentation.layers import FILE
from zoo.benchmark.graphs import Timed, TorchEvents, TorchReplay, in_turns
from zoo.benchmark.layer_models import MODELS, Model
from zoo.benchmark.layer_steps import see
from zoo.benchmark.moe_layers import ROUTED, ExpertsLayer, Layer, Tokens
from zoo.benchmark.product import Product
from zoo.benchmark.rivals import Unavailable, checked, torch_with_gpu
from zoo.benchmark.trace import bars, by_name, of_gaps, of_kernels, traced
from zoo.benchmark.trained_layers import Trained, errors, relative, with_gradients
from zoo.packaged import packaged
from zoo.runtime import driver
from zoo.runtime.hardware import describe

WHERE = "cuda:0"
ROUNDS, EAGER_ROUNDS = 11, 5
CALLS = 8  # of a layer that serves, each with its own tokens and routing
E4M3 = 0.026  # root mean square of a rounding's error; a quarter more is allowed
LINEAR_BOUND, EXPERTS_BOUND = (1.25 * E4M3 * roundings**0.5 for roundings in (2, 6))
COMPILED_BOUND = 0.02  # of bf16 beside bf16
LINEAR = ((8192, 7168, 2048), (4096, 7168, 16384), (8192, 8192, 8192))  # tokens, N, K
EXPERTS = {
    "64 x 7168 / 2048 top 8": Model(64, 8, 7168, 2048, "fp8b128"),
    "128 x 2880 / 2880 top 4": Model(128, 4, 2880, 2880, "fp8b128"),
    "128 x 4096 / 1536 top 8": Model(128, 8, 4096, 1536, "fp8b128"),
}
TRAINED_TOKENS, DISTRIBUTIONS = (4096, 16384), ("uniform", "zipf")
MICRO_BATCHES = 4
SERVED_TOKENS = (1, 8, 32, 128, 512, 2048, 8192)
DECODED = ("gpt-oss-20b", "deepseek-v3")
DECODED_TOKENS = (1, 8, 64)
DECODED_LAYERS = 61

Row = dict[str, Any]
Steps = Iterator[tuple[str, Callable[[], Row]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas (default: all)")
    parser.add_argument("--match", default="", help="time only cases with this text in their name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=85, help="of each section: begin no case after so many (default: 85)")
    parser.add_argument("--output", type=Path, default=FILE)
    asked = parser.parse_args()
    if unknown := sorted(set(asked.only.split(",")) - set(SECTIONS)):
        parser.error(f"--only: no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    try:
        torch = torch_with_gpu()
    except Unavailable as why:
        sys.exit(f"layers are timed by torch on a GPU: {why}")
    torch.zeros(1, device=WHERE)  # makes the context in which zoo works, too
    record = json.loads(asked.output.read_text()) if asked.output.exists() else {}
    wrong = 0
    for section in asked.only.split(","):
        about = {
            **asdict(describe(driver.device(0))),
            "libraries": libraries(),
            "digest": packaged.digest,
        }
        if record.get(section, {}).get("about") != about:
            record[section] = {"about": about, "rows": []}
        record[section]["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
        rows, end = record[section]["rows"], time.monotonic() + asked.seconds
        for name, step in SECTIONS[section](torch, asked.seed):
            if asked.match not in name:
                continue
            if time.monotonic() > end:
                print(f"{section}: {name}: no time left", flush=True)
                continue
            began = time.monotonic()
            torch.manual_seed(asked.seed)
            row = {"name": name, **_tried(step)}
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            wrong += "zoo" in row["refused"]
            rows[:] = [one for one in rows if one["name"] != name] + [row]
            asked.output.write_text(json.dumps(record, indent=1) + "\n")
            print(f"{section}: {name}: {_words(row)} ({time.monotonic() - began:.1f} s)", flush=True)
    sys.exit(1 if wrong else 0)


def _tried(step: Callable[[], Row]) -> Row:
    try:
        return step()
    except Exception as refusal:  # the next case is timed all the same
        return {"microseconds": {}, "refused": {"zoo": _reason(refusal)}}


def _reason(refusal: Exception) -> str:
    return str(refusal) if isinstance(refusal, Unavailable) else f"{type(refusal).__name__}: {str(refusal).strip()[:300]}"


def _words(row: Row) -> str:
    words = [said(row)]
    if "four" in row:
        words.append("four micro-batches, each: " + ", ".join(f"{name} {one:.1f} us" for name, one in row["four"].items()))
    if "peak" in row:
        words.append("peak " + ", ".join(f"{name} {one / 1e9:.2f} GB" for name, one in row["peak"].items()))
    if "kernels" in row:
        words.append("; ".join(f"{name} {one[0]:.1f} us in {one[1]}" for name, one in row["kernels"].items()))
    if "errors" in row:
        words.append("errors " + ", ".join(f"{name} {one:.4f}" for name, one in row["errors"].items()))
    return "; ".join(words)


def replayed(torch: Any, calls: Mapping[str, Sequence[Callable[[], Any]]]) -> dict[str, float]:
    """Microseconds of one call of each, in CUDA graphs."""
    replays: dict[str, Timed] = {name: TorchReplay(torch, list(one), 0) for name, one in calls.items()}
    return _closed(replays, ROUNDS)


def _closed(replays: Mapping[str, Timed], rounds: int) -> dict[str, float]:
    times = in_turns(replays, rounds)
    for replay in replays.values():
        replay.close()
    return {name: round(microseconds, 3) for name, microseconds in times.items()}


def peak(torch: Any, call: Callable[[], Any], held: Sequence[Any]) -> int:
    """The most bytes that a step needs: `held`, its parameters and arguments, and what it allocates."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before + sum(one.numel() * one.element_size() for one in held))


def wrong_words(seen: Mapping[str, float], bound: float) -> str:
    return f"wrong: errors {', '.join(f'{name} {one:.4f}' for name, one in seen.items())}, {bound:.4f} is allowed"


def is_right(seen: Mapping[str, float], bound: float) -> bool:
    return all(one <= bound for one in seen.values())  # NaN is above


def linear(torch: Any, seed: int) -> Steps:
    from zoo.torch.nn import Linear

    def step(count: int, N: int, K: int) -> Row:
        theirs = torch.nn.Linear(K, N, bias=False, device=WHERE, dtype=torch.bfloat16)
        ours, weight = Linear.from_float(theirs), theirs.weight

        def drawn() -> tuple[Any, Any]:
            x = torch.randn(count, K, device=WHERE, dtype=torch.bfloat16).requires_grad_()
            return x, torch.randn(count, N, device=WHERE, dtype=torch.bfloat16)

        def call(layer: Any, x: Any, dy: Any) -> tuple[Any, ...]:
            torch.autograd.graph.increment_version(weight)  # as an optimiser would: the weight is cast in each step
            return with_gradients(torch, layer, x, (weight,), dy)

        first = drawn()
        memory = {name: peak(torch, partial(call, one, *first), (weight, *first)) for name, one in (("zoo", ours), ("torch bf16", theirs))}
        seen = errors(("y", "dx", "dw"), call(ours, *first), call(theirs, *first))
        row = {"sizes": {"tokens": count, "N": N, "K": K}, "errors": seen, "peak": memory}
        if not is_right(seen, LINEAR_BOUND):
            return {**row, "microseconds": {}, "refused": {"zoo": wrong_words(seen, LINEAR_BOUND)}}
        given = [first, drawn()]
        calls = {name: [partial(call, layer, *one) for one in given] for name, layer in (("zoo", ours), ("torch bf16", theirs))}
        return {**row, "microseconds": replayed(torch, calls), "refused": {}}

    return ((f"{count} x {N} x {K}", partial(step, count, N, K)) for count, N, K in linear_sizes(seed))


def linear_sizes(seed: int) -> list[tuple[int, int, int]]:
    """The fixed sizes, and five that the seed draws."""
    random = Random(seed)
    drawn = [(random.choice((4096, 8192, 16384)), 128 * random.randint(8, 64), 128 * random.randint(8, 64)) for _ in range(5)]
    return [*LINEAR, *drawn]


def experts(torch: Any, seed: int) -> Steps:
    from zoo.benchmark.torch_experts import experts as in_torch

    def step(model: Model, count: int, distribution: str) -> Row:
        one = Trained(torch, model, count, distribution, WHERE)
        memory = {
            name: peak(torch, call, (one.x, one.dy, *one.parameters))
            for name, call in (("zoo", one.zoo_casting), ("torch bf16", partial(one.rival, in_torch)))
        }
        rows, refused = torch.linspace(0, count - 1, min(count, 32), device=WHERE).long().unique(), dict[str, str]()
        expected = one.rival(in_torch)
        of_rival = relative(expected[0][rows], one.exact(rows))
        assert of_rival < COMPILED_BOUND, f"torch's layer is wrong: {of_rival:.4f}"
        seen = one.errors(one.zoo(), expected)
        row = {"sizes": {**asdict(model), "tokens": count, "distribution": distribution}, "errors": seen, "peak": memory}
        if not is_right(seen, EXPERTS_BOUND):
            return {**row, "microseconds": {}, "refused": {"zoo": wrong_words(seen, EXPERTS_BOUND)}}
        calls: dict[str, Callable[[], Any]] = {"zoo": one.zoo, "torch bf16": partial(one.rival, in_torch)}
        try:
            compiled = partial(one.rival, torch.compile(in_torch, dynamic=False))
            beside = errors(one.names, compiled(), expected)
            if not is_right(beside, COMPILED_BOUND):
                raise Unavailable(wrong_words(beside, COMPILED_BOUND))
            calls["torch bf16, compiled"] = compiled
        except Exception as refusal:  # of the compiler
            refused["torch bf16, compiled"] = _reason(refusal)
        del expected

        def four(name: str) -> None:
            one.changed()
            for _ in range(MICRO_BATCHES):
                calls[name]()

        times = replayed(torch, {name: [call] for name, call in calls.items()})
        eager = _closed({name: TorchEvents(torch, partial(four, name)) for name in calls}, EAGER_ROUNDS)
        of_four = {name: round(microseconds / MICRO_BATCHES, 3) for name, microseconds in eager.items()}
        return {**row, "microseconds": times, "four": of_four, "refused": refused}

    return (
        (f"{name}, {count} tokens, {distribution}", partial(step, model, count, distribution))
        for name, model in EXPERTS.items()
        for count in TRAINED_TOKENS
        for distribution in DISTRIBUTIONS
    )


def serving(torch: Any, seed: int) -> Steps:
    held: dict[str, Any] = {}  # one model's weights, as each library wants them

    def prepared(name: str) -> Any:
        if name not in held:
            held.clear()
            gc.collect()
            model = MODELS[name]
            # Two copies of small weights in turn: the experts of the call before are not in the L2 cache.
            held[name] = [Layer(torch, model, WHERE) for _ in range(2 if model.gpt_oss else 1)], dict[str, Any]()
        return held[name]

    def step(name: str, count: int) -> Row:
        model, refused, calls = MODELS[name], dict[str, str](), dict[str, Any]()
        weights, made = prepared(name)
        product = Product("", "", count, model.hidden, model.inner)
        tokens = [Tokens(weights[call % len(weights)], count) for call in range(CALLS)]
        for who, kind in ROUTED.items():
            try:
                if who not in made:
                    made[who] = [kind(one) for one in weights]
                cases = [made[who][call % len(weights)].case(one) for call, one in enumerate(tokens)]
                checked(lambda *_, first=cases[0]: first, product, WHERE)
                calls[who] = TorchReplay(torch, [one.call for one in cases], 0)
            except Exception as refusal:  # of another library, or of memory: the next one is timed all the same
                refused[who] = _reason(refusal)
        return {"model": name, "tokens": count, "microseconds": _closed(calls, ROUNDS), "refused": refused}

    return ((f"{name}, {count} tokens", partial(step, name, count)) for name in MODELS for count in SERVED_TOKENS)


def decode(torch: Any, seed: int) -> Steps:
    """All layers of a graph share the weights of one, and each has its own tokens and experts."""
    held: dict[str, ExpertsLayer] = {}

    def step(name: str, count: int) -> Row:
        if name not in held:
            held.clear()
            gc.collect()
            held[name] = ExpertsLayer(Layer(torch, MODELS[name], WHERE), ids_given=True)
        served = held[name]
        cases = [served.case(Tokens(served.layer, count)) for _ in range(DECODED_LAYERS)]
        checked(lambda *_: cases[0], Product("", "", count, served.layer.model.hidden, served.layer.model.inner), WHERE)
        replay = TorchReplay(torch, [one.call for one in cases], 0)
        times = in_turns({"zoo": replay}, ROUNDS)
        found = bars(traced(torch, replay.microseconds))
        replay.close()
        kernels = [one for one in found if not one.is_gap]
        of_layers = {"kernels": (round(of_kernels(found), 3), len(kernels)), "gaps": (round(of_gaps(found), 3), len(found) - len(kernels))}
        row = {"model": name, "tokens": count, "layers": DECODED_LAYERS, "microseconds": {"zoo": round(DECODED_LAYERS * times["zoo"], 3)}}
        return {**row, "kernels": of_layers, "refused": {}}

    return ((f"{name}, {count} tokens", partial(step, name, count)) for name in DECODED for count in DECODED_TOKENS)


def kernels(torch: Any, seed: int) -> Steps:
    from zoo.benchmark.torch_experts import experts as in_torch

    def step(model: Model, count: int, who: str) -> Row:
        one = Trained(torch, model, count, "uniform", WHERE)
        found = see(torch, who, [one.zoo if who == "zoo" else partial(one.rival, in_torch)], 0)
        sizes = {**asdict(model), "tokens": count}
        return {"sizes": sizes, "microseconds": {who: round(found.microseconds, 3)}, "kernels": by_name(found.bars), "refused": {}}

    return (
        (f"{name}, {TRAINED_TOKENS[0]} tokens, {who}", partial(step, model, TRAINED_TOKENS[0], who))
        for name, model in list(EXPERTS.items())[:1]
        for who in ("zoo", "torch bf16")
    )


SECTIONS: Mapping[str, Callable[[Any, int], Steps]] = {
    "linear": linear,
    "experts": experts,
    "serving": serving,
    "decode": decode,
    "kernels": kernels,
}


if __name__ == "__main__":
    main()
