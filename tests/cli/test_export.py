"""`zoo export` writes a package that a C compiler takes, and refuses what it cannot give."""

import shutil
import subprocess

import pytest

from zoo.packaged import packaged

NAME = "quantize.mxfp8.rows"


@pytest.mark.skipif(shutil.which("cc") is None or shutil.which("make") is None, reason="no C compiler or no make")
def test_the_package_builds(zoo_command, tmp_path):
    result = zoo_command("export", tmp_path / "package", "--select", "quantize.mxfp8.*", "--arch", "sm_90a")
    assert result.exit_code == 0, result.output
    variants = sum(variant.arch == "sm_90a" for kernel in packaged.find("quantize.mxfp8.*") for variant in kernel.variants)
    assert NAME in result.output and f"{variants} variants" in result.output
    subprocess.run(["make", "-s", "-C", tmp_path / "package"], check=True)


@pytest.mark.parametrize(("arguments", "reason"), [(("--select", "gemm.none"), "gemm.none"), (("--arch", "sm_70"), "sm_70")])
def test_what_is_not_there_is_refused(zoo_command, tmp_path, arguments, reason):
    result = zoo_command("export", tmp_path / "package", *arguments)
    assert result.exit_code == 1 and reason in result.output and not (tmp_path / "package").exists()


def test_export_says_what_it_wrote_and_nothing_else(zoo_command, tmp_path, monkeypatch):
    """A line that is broken goes on two columns to the right."""
    monkeypatch.setenv("COLUMNS", "40")
    folder = tmp_path / "a package"
    result = zoo_command("export", folder, "--select", "scales.*blocked", "--select", "scales.blocked", "--arch", "sm_90a")
    kernels = [packaged.kernel(name) for name in ("scales.blocked", "scales.unblocked")]
    variants = {variant.file: variant for kernel in kernels for variant in kernel.variants if variant.arch == "sm_90a"}
    size = sum(variant.bytes for variant in variants.values())
    wrote, listed = (line for line in result.output.replace("\n  ", " ").splitlines()[:-1])
    count = sum(variant.arch == "sm_90a" for kernel in kernels for variant in kernel.variants)
    assert result.exit_code == 0 and wrote == f"wrote {folder}: 2 kernels, {count} variants, {size:,} bytes of cubins"
    assert listed == "kernels: scales.blocked, scales.unblocked"
    assert result.output.splitlines()[-1] == f"build it with: make -C '{folder}'"
    assert all(line[:2] == "  " and line[2] != " " for line in result.output.splitlines() if line.startswith(" "))
    assert "\n  " in result.output and "\n  scales.unblocked\n" in result.output
