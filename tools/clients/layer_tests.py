"""Counts zoo's own tests of an engine's layers: `python tools/clients/layer_tests.py vllm|sglang`, where the engine is installed.

The tests are those of tests/clients/ENGINE: layers of the engine, with zoo's plugin, beside the same layers in float32. Exits with 1 if one fails,
or if none passed. --record FILE keeps the counts.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
import pytest

from tools.clients.outcomes import Outcomes, device
from tools.clients.record import Seen, write

NAMES = {"vllm": "vLLM", "sglang": "SGLang"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", choices=NAMES)
    parser.add_argument("--record", type=Path, help="writes the counts to this file, such as docs/clients.json")
    given = parser.parse_args()
    seen = Outcomes()
    pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", "--tb=short", str(ROOT / "tests" / "clients" / given.client)], plugins=[seen])
    counts = Counter(outcome for outcome, _ in seen.of.values())
    lacks = Counter(why for outcome, why in seen.of.values() if outcome == "skipped")
    if given.record:
        name, version = NAMES[given.client], importlib.metadata.version(given.client)
        write(
            Seen(name, version, f"layers of {name} beside float32", device(), counts["passed"], counts["failed"], dict(lacks)), given.record
        )
    return bool(counts["failed"]) or not counts["passed"]


if __name__ == "__main__":
    sys.exit(main())
