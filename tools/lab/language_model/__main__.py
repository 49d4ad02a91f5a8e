"""Trains the model for every seed in bf16 and in FP8, resumes one run of each from its middle, and records losses and tokens a second.

    python -m tools.lab.language_model [--steps 2000] [--seeds 3] [--precision bf16 fp8] [--budget-seconds 300] [--output docs/learning.json]

tools/generate_docs.py draws the picture of docs/layers.md from the file. When the budget is spent, the run stops and is marked as cut.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which torch's deterministic algorithms ask for
ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

import torch

from tools.lab.language_model.model import PRECISIONS, Model, Sizes
from tools.lab.language_model.text import Text, standard_library
from tools.lab.language_model.training import BLOCK, Plan, Trainer

RESUMED_STEPS = 100  # that a resumed run repeats


def main(given: list[str] | None = None) -> int:
    options = _options(given)
    sizes = Sizes(**{one.name: getattr(options, one.name) for one in fields(Sizes)})
    plan = Plan(options.steps, options.batch, graphs=not options.eager)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    text = standard_library(options.files)
    ends = time.monotonic() + options.budget_seconds
    record = _about(sizes, plan, text, device)
    print(
        f"{record['device']}, torch {torch.__version__}: {record['parameters'] / 1e6:.0f} M parameters, {text.bytes / 1e6:.1f} MB of text"
    )
    for seed in range(options.seeds):
        for precision in options.precision:
            if time.monotonic() >= ends:
                print(f"{precision}, seed {seed}: not started, the budget is spent")
                continue
            run = trained(precision, seed, sizes, plan, text, device, ends, resume=seed == 0)
            record["runs"].append(run)
            options.output.write_text(json.dumps(record, indent=1) + "\n")
            print(_line(run, plan), flush=True)
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()
    _compare(record["runs"], plan)
    return 0 if all(run["resumed"] is None or run["resumed"]["equal"] for run in record["runs"]) else 1


def trained(precision: str, seed: int, sizes: Sizes, plan: Plan, text: Text, device: str, ends: float, resume: bool) -> dict[str, Any]:
    """One run, as the data file has it: the mean loss of each 20 steps, and the validation loss at each quarter."""
    began = time.monotonic()
    trainer = Trainer(precision, seed, sizes, plan, text, device)
    started = time.monotonic() - began
    losses: list[float] = []
    validation = []
    middle, quarters = plan.steps // 2 // BLOCK * BLOCK, {plan.steps * part // 4 // BLOCK * BLOCK for part in (1, 2, 3)} | {plan.steps}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "middle.pt"
        while trainer.step < plan.steps and time.monotonic() < ends:
            if resume and trainer.step == middle:
                trainer.save(checkpoint)
            losses += trainer.block(min(BLOCK, plan.steps - trainer.step))
            if trainer.step in quarters:
                validation.append([trainer.step, trainer.validate()])
        done, seconds = trainer.step, trainer.seconds
        del trainer
        gc.collect()
        again = None
        if checkpoint.exists() and time.monotonic() < ends:
            again = _resumed(Trainer(precision, seed + 1, sizes, plan, text, device), checkpoint, losses)
    blocks = [losses[one : one + BLOCK] for one in range(0, done, BLOCK)]
    return {
        "precision": precision,
        "seed": seed,
        "steps": done,
        "losses": [[min(BLOCK * (place + 1), done), sum(block) / len(block)] for place, block in enumerate(blocks)],
        "validation": validation,
        "tokens_per_second": done * plan.batch * sizes.window / seconds if done else None,
        "seconds_to_start": started,
        "resumed": again,
    }


def _resumed(trainer: Trainer, checkpoint: Path, losses: list[float]) -> dict[str, Any]:
    """A trainer that began with other weights repeats steps of the run from its checkpoint."""
    trainer.load(checkpoint)
    begin, found = trainer.step, list[float]()
    wanted = losses[begin : begin + RESUMED_STEPS]
    while len(found) < len(wanted):
        found += trainer.block(min(BLOCK, len(wanted) - len(found)))
    return {"from": begin, "steps": len(wanted), "equal": found == wanted}


def _about(sizes: Sizes, plan: Plan, text: Text, device: str) -> dict[str, Any]:
    with torch.device("meta"):
        parameters = sum(one.numel() for one in Model(sizes, "bf16").parameters())
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
        "text": {"bytes": text.bytes, "sha256": text.sha256},
        "sizes": asdict(sizes),
        "plan": asdict(plan),
        "parameters": parameters,
        "runs": [],
    }


def _line(run: dict[str, Any], plan: Plan) -> str:
    cut = "" if run["steps"] == plan.steps else f", CUT by the budget after {run['steps']} of {plan.steps} steps"
    last = f"loss {run['losses'][-1][1]:.4f}" if run["losses"] else "no step"
    checked = f", validation {run['validation'][-1][1]:.4f} at {run['validation'][-1][0]}" if run["validation"] else ""
    speed = f", {run['tokens_per_second']:,.0f} tokens/s" if run["tokens_per_second"] else ""
    again = run["resumed"]
    equal = f"; resumed at {again['from']}: {again['steps']} losses {'EQUAL' if again['equal'] else 'DIFFER'}" if again else ""
    return f"{run['precision']}, seed {run['seed']}: {last}{checked}{speed}, start {run['seconds_to_start']:.1f} s{cut}{equal}"


def _compare(runs: list[dict[str, Any]], plan: Plan) -> None:
    """Of runs that were not cut: validation losses and tokens a second."""
    whole = {name: [run for run in runs if run["precision"] == name and run["steps"] == plan.steps] for name in PRECISIONS}
    if not all(whole.values()):
        return
    ends = {name: [run["validation"][-1][1] for run in some] for name, some in whole.items()}
    means = {name: sum(some) / len(some) for name, some in ends.items()}
    for name, some in ends.items():
        print(f"{name}: validation {means[name]:.4f}, between seeds {max(some) - min(some):.4f}")
    speeds = {name: sum(run["tokens_per_second"] for run in some) / len(some) for name, some in whole.items()}
    print(f"fp8 - bf16: {means['fp8'] - means['bf16']:+.4f}; tokens/s of fp8 over bf16: {speeds['fp8'] / speeds['bf16']:.3f}")


def _options(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=Plan.steps)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--budget-seconds", type=float, default=300.0)
    parser.add_argument("--batch", type=int, default=Plan.batch)
    for one in fields(Sizes):
        parser.add_argument(f"--{one.name.replace('_', '-')}", type=int, default=one.default)
    parser.add_argument("--files", type=int, help="read only the first files of the text")
    parser.add_argument("--eager", action="store_true", help="launch each kernel from Python, without CUDA graphs")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "learning.json")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(main())
