"""Runs own tests of vLLM or SGLang with zoo's plugin: `python tools/clients/engine_tests.py vllm|sglang FOLDER`, where the engine is installed.

FOLDER has the tests of the version that is installed, and only they are read there: for vLLM a clone, or what its source distribution
unpacks to (its tests import tblib); for SGLang the folder `sglang` of the installed package, or a clone, for its registered tests. By default
the tests run that concern what the plugin touches: configs of quantization, the choice of kernels, experts, loaders, plugins.

The tests run in two processes, first with the plugin switched off. A test that passes there passes with the plugin too, or the plugin is at
fault: then this exits with 1. What does not pass without zoo is counted by its reason. On a CPU zoo's written rules serve the layers. --record
FILE keeps the counts.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # the last, since engines have a package `tests` too
import pytest

import zoo
from tools.clients.outcomes import Outcomes, device
from tools.clients.record import Seen, write

NAMES = {"vllm": "vLLM", "sglang": "SGLang"}
SUITES = {"vllm": "its tests of quantisation and experts", "sglang": "its tests of quantised diffusion"}
REGISTERED = "test/registered"  # a folder of SGLang that no package has
TESTS = {  # folder: test_NAME.py
    "vllm": {
        "tests/quantization": "config_utils fp8 keep_param_objects modelopt quantization_config_args register_quantization_config",
        "tests/kernels/quantization": "*_kernel_selection",
        "tests/kernels/moe": "expert_substitution fp8_tp_loading moe_kernel_oracle moe_weight_loading_padded unquantized_backend_selection",
        "tests/model_executor/model_loader": "expert_substitution registry",
        "tests/fusion": "quant_activation_contract",
        "tests/plugins_tests": "platform_plugins",
    },
    "sglang": {
        "multimodal_gen/test/unit": "transformer_quant image_encoder_loader fsdp_load component_quantization_admission diffusion_plugins "
        "modelopt_fp4_capability_gate rowwise_fp8",
        f"{REGISTERED}/unit/layers/quantization": "fp8_* modelopt_nvfp4* mxfp4_*",
        f"{REGISTERED}/unit/model_loader": "*sharded* remote_instance_*",
    },
}
SECONDS = 300  # for a test
REASONS = {  # the first with words among those that begin a test's own reason
    "no model or package": "offline|hugging ?face|repository id|connection|no module named|not installed",
    "no GPU": r"cuda|rocm|xpu|gpu|nvidia|hopper|blackwell|sm_?\d|_C'",
    "slow": "took over",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", choices=NAMES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tests", nargs="*", help="tests to run instead, as paths in FOLDER")
    parser.add_argument("--record", type=Path, help="writes the counts to this file, such as docs/clients.json")
    parser.add_argument("--outcomes", type=Path, help="runs the tests in this process, and writes what became of them to this file")
    parser.add_argument("--passed", type=Path, help="with --outcomes: runs only tests that passed by this other file of outcomes")
    given = parser.parse_args()
    patterns = given.tests or [f"{folder}/test_{name}.py" for folder, names in TESTS[given.client].items() for name in names.split()]
    files = sorted(str(file) for pattern in patterns for file in given.folder.resolve().glob(pattern))
    if not files:
        parser.error(f"{given.folder}: expected tests of {NAMES[given.client]}, such as {patterns[0]}")
    if given.outcomes:
        return run(given.client, given.folder, files, given.outcomes, given.passed)
    with tempfile.TemporaryDirectory() as folder:
        without = outcomes(given, "0", Path(folder) / "without")
        found = outcomes(given, "cpu" if device() == "CPU" else "1", Path(folder) / "with", "--passed", f"{folder}/without")
    passed, failures, lacks = compare(without, found)
    version = importlib.metadata.version(given.client)
    print(f"\n{NAMES[given.client]} {version} with zoo {zoo.__version__}: {passed} passed, {len(failures)} failed, {lacks.total()} not run")
    print(
        *(f"{count}: {reason}" for reason, count in lacks.items()), *(f"FAILED {test}: {why}" for test, why in failures.items()), sep="\n"
    )
    if given.record:
        registered = sum(REGISTERED in file for file in files)
        suite = f"its registered tests, in {registered} files" if registered else SUITES[given.client]
        write(Seen(NAMES[given.client], version, suite, device(), passed, len(failures), dict(lacks)), given.record)
    return bool(failures) or not passed


def outcomes(given: argparse.Namespace, switch: str, file: Path, *more: str) -> dict[str, tuple[str, str]]:
    """By test: the outcome and its reason, of a process where the plugin's switch is set so."""
    name = f"ZOO_{given.client.upper()}"
    command = [sys.executable, __file__, given.client, str(given.folder.resolve()), *given.tests, "--outcomes", str(file), *more]
    environment = {**os.environ, name: switch, "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    code = subprocess.run(command, env=environment, cwd=file.parent, check=False).returncode
    if not file.exists():
        sys.exit(f"the tests with {name}={switch} ended with {code}, and wrote no outcomes")
    found: dict[str, tuple[str, str]] = json.loads(file.read_text())
    return found


def compare(without: dict[str, tuple[str, str]], found: dict[str, tuple[str, str]]) -> tuple[int, dict[str, str], Counter[str]]:
    """How many passed, why those failed that pass without zoo, and why others count for nothing."""
    passed, failures, lacks = 0, dict[str, str](), Counter[str]()
    for test, (outcome, why) in without.items():
        now, reason = found.get(test, ("failed", "did not run"))
        if outcome != "passed":
            usual = "skips itself" if outcome == "skipped" else "fails without zoo"
            lacks[next((name for name, words in REASONS.items() if re.search(words, why[:160], re.IGNORECASE)), usual)] += 1
        elif now == "passed":
            passed += 1
        else:
            failures[test] = reason
    return passed, failures, lacks


class Limits:
    """A plugin of pytest: only tests of `passed` run, and a test that hangs fails."""

    def __init__(self, passed: set[str] | None) -> None:
        self.passed = passed

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [one for one in items if self.passed is None or one.nodeid in self.passed]

    def pytest_runtest_setup(self) -> None:
        signal.signal(signal.SIGALRM, self._fail)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)

    def pytest_runtest_teardown(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _fail(self, *_: Any) -> None:
        raise TimeoutError(f"took over {SECONDS} s")


def run(client: str, folder: Path, files: list[str], file: Path, before: Path | None = None) -> int:
    served = {"vllm": in_vllm, "sglang": in_sglang}[client]()
    passed = {test for test, (outcome, _) in json.loads(before.read_text()).items() if outcome == "passed"} if before else None
    seen = Outcomes()
    quiet = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--no-header",
        "--tb=line",
        "--continue-on-collection-errors",
        f"--rootdir={folder.resolve()}",
    ]
    code = pytest.main([*quiet, *files], plugins=[seen, Limits(passed)])
    file.write_text(json.dumps(seen.of))
    print(f"zoo served {served.total()} layers" if served is not None else "zoo was switched off", flush=True)
    return int(code)


def in_vllm() -> Counter[tuple[str, str]] | None:
    """Without a GPU vLLM has no platform; its tests then run as on a CPU."""
    import vllm.platforms

    if device() == "CPU":
        from vllm.platforms.cpu import CpuPlatform

        vllm.platforms._current_platform = CpuPlatform()
    import zoo.vllm

    zoo.vllm.register()
    if os.environ["ZOO_VLLM"] == "0":
        return None
    assert zoo.vllm._registered == {"linear", "experts"}
    from zoo.vllm.support import served

    return served


def in_sglang() -> Counter[tuple[str, str]] | None:
    from sglang.srt.plugins.hook_registry import HookRegistry

    import zoo.sglang

    zoo.sglang.register()
    HookRegistry.apply_hooks()
    if os.environ["ZOO_SGLANG"] == "0":
        return None
    assert zoo.sglang._registered == ["linear", "experts", "mxfp8"]
    from zoo.sglang.support import served

    return served


if __name__ == "__main__":
    sys.exit(main())
