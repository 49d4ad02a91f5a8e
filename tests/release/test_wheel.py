"""What a user installs: everything the package needs, and nothing of the checkout around it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="hatchling is of the dev extra")

import hatchling

from tools.build_wheel import ROOT, build_twice
from tools.tracked import tracked


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> set[str]:
    return set(zipfile.ZipFile(build_twice(ROOT, tmp_path_factory.mktemp("wheel"), Path(hatchling.__file__).parents[1])).namelist())


def test_a_wheel_holds_every_cubin_and_the_c_library(names):
    manifest = json.loads((ROOT / "cubins" / "manifest.json").read_text())
    files = {f"zoo/cubins/{variant['file']}" for kernel in manifest["kernels"].values() for variant in kernel["variants"]}
    assert files == {name for name in names if name.endswith(".cubin")}
    sources = {f"zoo/capi/{file.name}" for file in (ROOT / "zoo" / "capi").glob("*.[ch]")}
    assert sources | {"zoo/cubins/manifest.json", "zoo/cubins/evidence.json", "zoo/cubins/ptx.tar.xz"} <= names


def test_a_wheel_is_typed(names):
    assert {"zoo/py.typed", "zoo/__init__.pyi"} <= names


def test_a_wheel_holds_every_module_and_nothing_but_the_package(names):
    modules = {name for name in tracked(ROOT) if name.startswith("zoo/") and name.endswith(".py")}
    assert modules == {name for name in names if name.endswith(".py")}
    assert {Path(name).parts[0].split("-")[0] for name in names} == {"zoo", "cubin_zoo"}
