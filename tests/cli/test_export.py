"""`zoo export` writes a package that a C compiler takes, and refuses what it cannot give."""

import shutil
import subprocess

import pytest

from zoo.shipped.packaged import packaged

NAME = "quantize.mxfp8.rows"


@pytest.mark.skipif(shutil.which("cc") is None or shutil.which("make") is None, reason="no C compiler or no make")
def test_the_package_builds(zoo_command, tmp_path):
    result = zoo_command("export", tmp_path / "package", "--select", "quantize.*", "--arch", "sm_90a")
    assert result.exit_code == 0, result.output
    variants = sum(variant.arch == "sm_90a" for kernel in packaged.find("quantize.*") for variant in kernel.variants)
    assert NAME in result.output and f"{variants} variants" in result.output
    subprocess.run(["make", "-s", "-C", tmp_path / "package"], check=True)


@pytest.mark.parametrize(("arguments", "reason"), [(("--select", "gemm.none"), "gemm.none"), (("--arch", "sm_70"), "sm_70")])
def test_what_is_not_there_is_refused(zoo_command, tmp_path, arguments, reason):
    result = zoo_command("export", tmp_path / "package", *arguments)
    assert result.exit_code == 1 and reason in result.output and not (tmp_path / "package").exists()
