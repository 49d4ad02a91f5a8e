"""A pinned manifest is read kernel by kernel, and says the same as one that is read whole."""

import hashlib
import json
from pathlib import Path

import pytest

from tools.builder.output import manifest_text
from zoo.contract import entries
from zoo.contract.manifest import Manifest
from zoo.errors import ManifestError
from zoo.shipped.places import cubins_directory

TEXT = (cubins_directory() / "manifest.json").read_text("utf-8")
WHOLE = json.loads(TEXT)


def pinned(path: Path, text: str) -> Manifest:
    path.write_text(text, "utf-8")
    return Manifest(path, hashlib.sha256(text.encode()).hexdigest())


def test_kernels_read_one_by_one_are_those_of_the_whole():
    found = entries.apart(TEXT)
    assert found is not None
    head, kernels = found
    assert json.loads(head) == WHOLE | {"kernels": {}}
    assert list(kernels.items()) == list(WHOLE["kernels"].items()) and len(kernels) == len(WHOLE["kernels"])
    assert all(name in kernels for name in WHOLE["kernels"]) and "gemm" not in kernels and 3 not in kernels


def test_who_asks_for_one_kernel_waits_for_no_other(tmp_path, monkeypatch):
    """Reading two megabytes of JSON took a third of a program's first call."""
    read, loads = [], json.loads

    def counted(text, **options):
        read.append(len(text))
        return loads(text, **options)

    monkeypatch.setattr(json, "loads", counted)
    manifest = pinned(tmp_path / "manifest.json", TEXT)
    assert manifest.names == tuple(WHOLE["kernels"]) and manifest.kernel("scales.blocked") is manifest.kernel("scales.blocked")
    assert manifest.kernel("no.such") is None
    assert len(read) == 2 and sum(read) < len(TEXT) / 50


FEW = {name: WHOLE["kernels"][name] for name in ("scales.blocked", "scales.unblocked")}
LAYOUTS = {
    "on one line": json.dumps(WHOLE | {"kernels": FEW}),
    "indented by another": json.dumps(WHOLE | {"kernels": FEW}, indent=1),
    "indented by two": json.dumps(WHOLE | {"kernels": FEW}, indent=2) + "\n",
    "kernels before the rest": manifest_text({"kernels": FEW} | WHOLE | {"kernels": FEW}),
    "no newline at its end": manifest_text(WHOLE | {"kernels": FEW}).rstrip(),
    "as it is built": manifest_text(WHOLE | {"kernels": FEW}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pinned_manifest_says_the_same_however_it_is_laid_out(layout, tmp_path):
    manifest = pinned(tmp_path / "manifest.json", LAYOUTS[layout])
    assert [kernel.name for kernel in manifest.kernels] == list(FEW)
    assert manifest.compiler == WHOLE["compiler"] and manifest.ptx_sha256 == WHOLE["ptx"]
    assert (entries.apart(LAYOUTS[layout]) is not None) == (layout == "as it is built")


def test_a_pinned_manifest_of_more_kernels_than_zoo_reads_is_refused_in_either_layout(tmp_path):
    many = WHOLE | {"kernels": {f"quantize.k{number}": FEW["scales.blocked"] for number in range(1025)}}
    for text in (manifest_text(many), json.dumps(many)):
        with pytest.raises(ManifestError, match="1,025 kernels, this zoo reads at most 1,024"):
            pinned(tmp_path / "manifest.json", text)
    many["kernels"].popitem()
    assert len(pinned(tmp_path / "manifest.json", manifest_text(many)).names) == 1024
