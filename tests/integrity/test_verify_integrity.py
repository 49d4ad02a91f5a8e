"""What can happen to a folder of cubins on its way to a user: each thing is found and has its own message."""

import json
import random
import re
import shutil
from pathlib import Path

import pytest

from tests.contract.entries import signed
from zoo.contract.manifest import Manifest
from zoo.errors import IntegrityError, ManifestError
from zoo.shipped.integrity import check_bytes, verify_integrity

CUBINS = Path(__file__).resolve().parents[1] / "zoo_cubins"
KERNEL = "gemm.fp8b128.dense"


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(CUBINS, tmp_path / "cubins")


def problems(folder):
    return {result.file: result.problem for result in verify_integrity(folder, Manifest(folder / "manifest.json")) if result.problem}


def variants():
    manifest = Manifest(CUBINS / "manifest.json")
    return [(manifest.kernel(name), variant) for name in manifest.names for variant in manifest.kernel(name).variants]


def edit_manifest(folder, change):
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    change(data["kernels"][KERNEL])
    path.write_text(json.dumps(data))


def test_an_untouched_folder_has_no_problem():
    results = list(verify_integrity(CUBINS, Manifest(CUBINS / "manifest.json")))
    assert [(result.file, result.problem) for result in results] == [(variant.file, None) for _, variant in variants()]


def test_a_missing_file(folder):
    (folder / "sm_90a/gemm_fp8b128_dense__f32_m64.cubin").unlink()
    assert problems(folder) == {"sm_90a/gemm_fp8b128_dense__f32_m64.cubin": "missing; reinstall zoo or run build_cubins.py"}


def test_a_truncation_at_any_kib_says_how_many_bytes_are_missing(folder):
    for _, variant in variants():
        path = folder / variant.file
        data = path.read_bytes()
        for length in [*range(0, len(data), 1024), len(data) - 1]:
            path.write_bytes(data[:length])
            found = problems(folder)
            assert list(found) == [variant.file]
            assert found[variant.file].startswith(f"truncated: {len(data) - length} of {len(data)} bytes are missing")
        path.write_bytes(data)


@pytest.mark.parametrize("more", [1, 2, 3])
def test_bytes_too_many_are_counted(folder, more):
    path = folder / "sm_100f/gemm_fp8b128_dense__f32_m64.cubin"
    path.write_bytes(path.read_bytes() + bytes(more))
    assert problems(folder)["sm_100f/gemm_fp8b128_dense__f32_m64.cubin"].startswith(f"{more} bytes longer than the ")


def test_any_single_flipped_bit_is_refused():
    """Of every byte of the smallest cubin, through the check that the loader runs before the driver sees a byte."""
    kernel, variant = min(variants(), key=lambda pair: pair[1].bytes)
    data = bytearray((CUBINS / variant.file).read_bytes())
    for index in range(len(data)):
        data[index] ^= 1 << index % 8
        with pytest.raises(IntegrityError, match="altered: its sha256 is"):
            check_bytes(kernel, variant, bytes(data))
        data[index] ^= 1 << index % 8
    check_bytes(kernel, variant, bytes(data))


def test_two_swapped_cubins_are_named_as_each_other(folder):
    one, two = folder / "sm_90a/gemm_fp8b128_dense__f32_m64.cubin", folder / "sm_90a/gemm_bf16_mxfp4_dense__r8.cubin"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert problems(folder) == {
        "sm_90a/gemm_fp8b128_dense__f32_m64.cubin": "holds the bytes of gemm.bf16_mxfp4.dense r8 (sm_90a); files were swapped",
        "sm_90a/gemm_bf16_mxfp4_dense__r8.cubin": "holds the bytes of gemm.fp8b128.dense f32_m64 (sm_90a); files were swapped",
    }


def test_the_same_kernel_of_another_arch_is_named(folder):
    name = "gemm_fp8b128_dense__f32_m64.cubin"
    shutil.copy(folder / "sm_100f" / name, folder / "sm_90a" / name)
    assert problems(folder) == {f"sm_90a/{name}": "holds the bytes of gemm.fp8b128.dense f32_m64 (sm_100f); files were swapped"}


def test_a_file_too_many(folder):
    (folder / "sm_90a/stranger.cubin").write_bytes(b"x")
    (folder / "evidence.json").write_text("{}")
    (folder / "sass.json").write_text("{}")  # the build's, and nobody reads it
    assert list(problems(folder)) == ["sm_90a/stranger.cubin"]
    assert "the manifest does not know this file" in problems(folder)["sm_90a/stranger.cubin"]


def test_an_edited_manifest_is_refused_by_its_pin(folder):
    pin = Manifest(folder / "manifest.json").sha256
    edit_manifest(folder, lambda entry: entry.update(summary="nicer"))
    with pytest.raises(ManifestError, match="was edited: its sha256 is"):
        Manifest(folder / "manifest.json", pin)


def drop_last(launch):
    launch["parameters"].pop()
    launch["parameter_bytes"] = launch["parameters"][-1]["offset"] + launch["parameters"][-1]["size"]


def with_its_signature(change):
    """The same change, with the signature that the launch then has."""

    def changed(entry):
        change(entry)
        signed(entry)

    return changed


# a change of the first variant, or of the launch, that keeps the digest -> what the cubin says to it
EDITS = {
    "registers": (lambda entry: entry["variants"][0].update(registers=16), r"has registers = \d+, the manifest says 16"),
    "static_shared": (lambda entry: entry["variants"][0].update(static_shared=0), r"has static_shared = 1024, the manifest says 0"),
    "stack": (lambda entry: entry["variants"][0].update(stack=8), r"has stack = 0, the manifest says 8"),
    "spills": (lambda entry: entry["variants"][0].update(spill_loads=4), r"spills registers: 0 bytes stored, 4 loaded"),
    "symbol": (lambda entry: entry["variants"][0].update(symbol="other"), r"defines gemm_fp8b128_dense__bf16_m64, the manifest says other alone"),
    "arch": (lambda entry: entry["variants"][0].update(arch="sm_100f"), r"is for sm_90a, the manifest says sm_100f"),
    "bytes": (lambda entry: entry["variants"][0].update(bytes=1), r"has the right digest but \d+ bytes, the manifest says 1"),
    "sha256": (lambda entry: entry["variants"][0].update(sha256="0" * 64), r"altered: its sha256 is \w+, the manifest says 0{64}"),
    "threads": (lambda entry: entry["variants"][0].update(threads=256), r"started with 256 threads, compiled for 128x1x1"),
    "fewer threads": (lambda entry: entry["variants"][0].update(threads=64), r"started with 64 threads, compiled for 128x1x1"),
    "shared": (lambda entry: entry["variants"][0].update(shared=232448), r"233472 bytes of shared memory \(1024 static\)"),
    "cluster": (lambda entry: entry["launches"]["default"].update(cluster=["CLUSTER", "9", "2"]), r"a cluster of 1x9x2 CTAs, expected 1 to 16"),
    "a parameter less and its signature": (
        with_its_signature(lambda entry: drop_last(entry["launches"]["default"])),
        r"the kernel takes 12 parameters, the table lists 11",
    ),
    "a parameter's kind and its signature": (
        with_its_signature(lambda entry: entry["launches"]["default"]["parameters"][1].update(kind="i64", size=8)),
        r"parameter 1 \(i64 'shift'\) has 8 bytes at offset \d+ by the table, 4 bytes at \d+ in the kernel",
    ),
}  # fmt: skip


@pytest.mark.parametrize("field", EDITS)
def test_an_edited_manifest_disagrees_with_the_cubin_about(folder, field):
    change, words = EDITS[field]
    edit_manifest(folder, change)
    found = problems(folder)["sm_90a/gemm_fp8b128_dense__bf16_m64.cubin"]
    assert re.search(words, found), found


# what each edit is answered with; none of it is something that the cubin could contradict
LAYOUTS = {
    "offset": (lambda launch: launch["parameters"][3].update(offset=4), r"parameters\[3\] \(\w+\) has \d+ bytes at offset 4, in a struct"),
    "overlap": (lambda launch: launch["parameters"][2].update(offset=launch["parameters"][1]["offset"]), r"parameters\[2\]"),
    "size": (lambda launch: launch["parameters"][0].update(size=16), r"parameters\[0\] \(\w+\) has 16 bytes at offset 0"),
    "absurd size": (lambda launch: launch["parameters"][1].update(size=2**70), r"parameters\[1\]\.size is 1180591620717411303424"),
    "negative offset": (lambda launch: launch["parameters"][1].update(offset=-8), r"parameters\[1\]\.offset is -8"),
    "block": (lambda launch: launch.update(parameter_bytes=380), r"parameter_bytes is 380, expected 376, which its parameters take"),
    "huge block": (lambda launch: launch.update(parameter_bytes=2**70), r"parameter_bytes is 1180591620717411303424"),
}  # fmt: skip


@pytest.mark.parametrize("edit", LAYOUTS)
def test_a_block_that_is_not_the_struct_is_refused(folder, edit):
    change, words = LAYOUTS[edit]
    edit_manifest(folder, lambda entry: change(entry["launches"]["default"]))
    with pytest.raises(ManifestError, match=words):
        problems(folder)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[]",
        '{"compiler": {}, "ptx": null, "kernels": {}}',
        '{"schema": 6, "compiler": {}, "ptx": null, "kernels": []}',
        '{"schema": 6, "compiler": 3, "ptx": null, "kernels": {}}',
        '{"schema": 6, "compiler": {}, "ptx": null, "kernels": {"a": 1}}',
        '{"schema": 6, "compiler": {}, "ptx": null, "kernels": {}, "more": 1}',
    ],
)
def test_a_manifest_of_another_shape_is_refused(folder, text):
    (folder / "manifest.json").write_text(text)
    with pytest.raises(ManifestError, match="is malformed"):
        Manifest(folder / "manifest.json")


def test_an_edit_of_one_variant_is_a_problem_of_that_file_alone(folder):
    edit_manifest(folder, EDITS["registers"][0])
    assert list(problems(folder)) == ["sm_90a/gemm_fp8b128_dense__bf16_m64.cubin"]


def test_random_edits_of_the_manifest_raise_nothing_but_zoo_errors(folder):
    """Deleted, retyped and renamed values, 600 of them: refused as ManifestError, or read and verified."""
    generator = random.Random(1)
    original = json.loads((folder / "manifest.json").read_text())
    refused = 0
    for _ in range(600):
        data = json.loads(json.dumps(original))
        node = data
        while isinstance(node, (dict, list)) and node:
            key = generator.choice(list(node)) if isinstance(node, dict) else generator.randrange(len(node))
            parent, node = node, node[key]
            if generator.random() < 0.15:
                break
        if generator.random() < 0.3:
            del parent[key]
        else:
            parent[key] = generator.choice([None, -1, 2**70, "", "1 +", "nothing", [], {}, True, "M // 0", 0.5, "../../etc"])
        (folder / "manifest.json").write_text(json.dumps(data))
        try:
            list(verify_integrity(folder, Manifest(folder / "manifest.json")))
        except ManifestError:
            refused += 1
    assert refused > 150
