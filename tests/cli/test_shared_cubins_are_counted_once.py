"""Two names that are one cubin: it is one file, counted once and complained of once."""

import json

import pytest

from tests.small_zoo import small_zoo
from zoo.shipped.places import cubins_directory

OWNER, OTHER = "gemm.mxfp8.dense", "gemm.mxfp8_mxfp4.dense"


@pytest.fixture
def shared(tmp_path):
    """(directory, the cubin) of two kernels with a variant each, which are the same file."""
    directory = small_zoo(tmp_path / "small", OWNER, lambda variant: variant["name"] == "few128")
    manifest = json.loads((directory / "manifest.json").read_text())
    entry = json.loads((cubins_directory() / "manifest.json").read_text())["kernels"][OTHER]
    entry["variants"] = [variant for variant in entry["variants"] if variant["name"] == "few128"]
    files = {variant["file"] for one in (*manifest["kernels"].values(), entry) for variant in one["variants"]}
    assert len(files) == 1
    (directory / "manifest.json").write_text(json.dumps({**manifest, "kernels": {**manifest["kernels"], OTHER: entry}}))
    return directory, directory / files.pop()


def doctors_words(zoo_command, directory):
    said = json.loads(zoo_command("--cubins", directory, "doctor", "--json").stdout)
    return [finding["facts"] for finding in said["findings"] if finding["what"] == "cubins"]


def test_a_sound_cubin_of_two_names_is_one(zoo_command, shared):
    directory, _ = shared
    (found,) = doctors_words(zoo_command, directory)
    assert (found["sound"], found["damaged"]) == (1, 0)
    assert "1 cubin, " in zoo_command("--cubins", directory, "verify").stdout


def test_a_damaged_cubin_of_two_names_is_complained_of_once(zoo_command, shared):
    directory, cubin = shared
    cubin.write_bytes(b"")
    damaged, total = doctors_words(zoo_command, directory)
    assert damaged["problem"].startswith("truncated") and (total["sound"], total["damaged"]) == (0, 1)
    verified = zoo_command("--cubins", directory, "verify")
    assert verified.exit_code == 1 and verified.stderr.count("FAILED") == 1
    assert "as the manifest says, 1 not" in " ".join(verified.stdout.split())
