"""A program that writes one thing over and over until it is killed: python -m tests.interruptions.programs WHAT FOLDER"""

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

from tests.recorder import ROOT
from zoo.cli.system import ended_in_order

CUBINS = ROOT / "tests/zoo_cubins"
KERNELS = (["gemm.fp8b128.dense"], ["gemm.bf16_mxfp4.dense", "gemm.mxfp4.m_grouped_masked"])


def export_again(folder: Path, turn: int):
    from zoo.capi.export import export
    from zoo.contract.manifest import Manifest

    export(folder / "package", Manifest(CUBINS / "manifest.json"), CUBINS, KERNELS[turn % 2])


def record_again(folder: Path, turn: int):
    from zoo.shipped.evidence import Evidence

    evidence = Evidence(folder)
    evidence.add(SimpleNamespace(sha256=f"{turn:064x}"), "gpu", {"device": "NVIDIA H200", "error": None})
    evidence.write()


def build_again(folder: Path, turn: int):
    from tests.interruptions.compilers import builds
    from tools.builder.build import Selection

    if turn == 0:
        build_again.made = builds(folder, folder / "checkout")
    build_again.made[turn % 2].run(Selection())


AGAIN = {"export": export_again, "record": record_again, "build": build_again}

if __name__ == "__main__":
    with ended_in_order():
        for turn in itertools.count():
            AGAIN[sys.argv[1]](Path(sys.argv[2]), turn)
            if turn == 0:
                print("ready", flush=True)
