"""Runs torchao's own tests of its DeepGEMM backend on zoo's kernels: `python tools/clients/torchao_tests.py CHECKOUT`, with a GPU and triton.

CHECKOUT is a clone of github.com/pytorch/ao, of which the Python is read and nothing is built. torchao's block-wise FP8 training multiplies the
rows of experts by the module named `deep_gemm`, which is zoo's here: `python -m zoo.compat.deep_gemm --install` provides it in general.

First come the functions that torchao found in it. The table has the tests of a function that passed, failed, or why they did not run. Exits
with 1 if a test failed, or if a function that torchao found is not zoo's. --record FILE keeps the counts.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import types
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import zoo
from tools.clients.outcomes import Outcomes, device
from tools.clients.record import Seen, write
from tools.deep_gemm_tests import commit_of
from zoo.compat.deep_gemm import finder

TESTS = "test/prototype/moe_training/test_fp8_blockwise_deepgemm_backend.py"
BACKEND = "torchao.prototype.blockwise_fp8_training.deepgemm_grouped_kernels"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a clone of torchao")
    parser.add_argument("--version", default="", help="the commit, where CHECKOUT is no clone")
    parser.add_argument("--record", type=Path, help="writes the counts to this file, such as docs/clients.json")
    given = parser.parse_args()
    if not (given.checkout / TESTS).is_file():
        parser.error(f"{given.checkout}: expected a clone of torchao, which has {TESTS}")
    os.environ["TORCHAO_FORCE_SKIP_LOADING_SO_FILES"] = "1"
    os.environ["ZOO_DEEP_GEMM_REAL"] = "0"
    finder.provide()
    sys.path.insert(0, str(given.checkout.resolve()))
    foreign = [name for name, owner in found_functions().items() if not owner.startswith("zoo.")]

    import pytest

    outcomes = Outcomes()
    quiet = ["-q", "-p", "no:cacheprovider", "--no-header", "--tb=line", "--import-mode=importlib"]
    code = int(pytest.main([*quiet, f"--rootdir={given.checkout}", str(given.checkout / TESTS)], plugins=[outcomes]))
    version = given.version or commit_of(given.checkout)
    print(f"\ntorchao {version} on zoo {zoo.__version__}\n\n| test | passed | failed | not run |\n|---|---|---|---|")
    counts, reasons = defaultdict[str, Counter[str]](Counter), dict[str, str]()
    for test, (outcome, reason) in outcomes.of.items():
        name = test.rpartition("::")[2].partition("[")[0]
        counts[name][outcome] += 1
        reasons[name] = reason or reasons.get(name, "")
    for name, count in counts.items():
        skipped = f"{count['skipped']}: {reasons[name]}" if count["skipped"] else reasons[name][:160]
        print(f"| `{name}` | {count['passed']} | {count['failed']} | {skipped.replace('|', '/')} |")
    passed, failed = (sum(count[word] for count in counts.values()) for word in ("passed", "failed"))
    lacks = Counter(reason for outcome, reason in outcomes.of.values() if outcome == "skipped")
    print(f"\n{passed} passed, {failed} failed, {lacks.total()} not run")
    if given.record:
        write(Seen("torchao", version, "its tests of the DeepGEMM backend", device(), passed, failed, dict(lacks)), given.record)
    return code != 0 or bool(foreign)


def found_functions() -> dict[str, str]:
    """The functions that torchao probes for in `deep_gemm`, and the module that each is from."""
    capabilities = importlib.import_module(BACKEND)._get_deepgemm_capabilities()
    functions = {name: one for name, one in vars(capabilities).items() if callable(one) and not isinstance(one, types.ModuleType)}
    for name, one in functions.items():
        print(f"torchao's {name}: {one.__module__}.{one.__qualname__}")
    return {name: str(one.__module__) for name, one in functions.items()}


if __name__ == "__main__":
    sys.exit(main())
