"""The debug build that sleeps: it finds every wait of the sources, says so where one is gone, and what it compiles does sleep."""

import re
import shutil

import pytest
from click.testing import CliRunner

from build_cubins import OUTPUT, SOURCE
from tests.builder.build_trees import needs_nvcc
from tools import sleepy
from tools.builder import BuildError, sass
from zoo.contract.manifest import Manifest
from zoo.shipped.integrity import verify_integrity

VARIANT = "gemm.fp8b128.dense few8_w64_split2"
WAITS = r"mbarrier\.(?:try|test)_wait|bar\.sync|barrier\.cluster\.wait|griddepcontrol\.wait|ld\.acquire|ld\.relaxed"


@pytest.fixture(scope="module")
def napping(tmp_path_factory):
    """The copy, and what in it was given naps."""
    folder = tmp_path_factory.mktemp("napping")
    return folder, sleepy.copy_with_naps(SOURCE, folder)


def test_no_wait_of_the_sources_is_left_out(napping):
    _, found = napping
    written = [
        (path.relative_to(SOURCE).as_posix(), instruction)
        for path in SOURCE.rglob("*.cu*")
        for line in path.read_text().splitlines()
        for instruction in re.findall(WAITS, line.partition("//")[0])
    ]
    assert written
    for place in set(written):
        assert found[place] == written.count(place), place
    calls = [path for path in SOURCE.rglob("*.cu*") if "__syncthreads();" in path.read_text()]
    assert all(found[path.relative_to(SOURCE).as_posix(), "__syncthreads"] for path in calls)


def test_nothing_but_naps_is_added(napping):
    folder, _ = napping
    naps = re.compile(r"\{ (?:zoo::\w+\(\); )?|(?: zoo::\w+\(\);)? \}|\s+")  # braces of the sources go on both sides
    for path in (*folder.rglob("*.cu"), *folder.rglob("*.cuh")):
        before = (SOURCE / path.relative_to(folder)).read_text()
        after = path.read_text().removesuffix(sleepy.NAPS)
        assert naps.sub("", after) == naps.sub("", before), path


@pytest.mark.parametrize(
    ("file", "instruction"), [("common/mbarrier.cuh", "mbarrier.try_wait"), ("gemm/hopper_fp8/pipeline/many_tokens.cuh", "__syncthreads")]
)
def test_a_wait_that_is_not_there_any_more_is_said(tmp_path, file, instruction):
    shutil.copytree(SOURCE, tmp_path / "src")
    path = tmp_path / "src" / file
    path.write_text(path.read_text().replace(instruction, "another_way"))
    with pytest.raises(BuildError, match=f"{file}: no {instruction}"):
        sleepy.copy_with_naps(tmp_path / "src", tmp_path / "napping")


def test_an_instruction_under_two_rules_is_said():
    with pytest.raises(BuildError, match="several rules"):
        sleepy.with_naps('asm volatile("bar.sync 0; griddepcontrol.wait;");')


@needs_nvcc
def test_what_is_compiled_sleeps_and_is_a_kernel_of_the_contract(tmp_path):
    done = CliRunner().invoke(sleepy.command, [str(tmp_path), VARIANT])
    assert done.exit_code == 0, done.output
    kernel, variant = VARIANT.split()
    (built,) = Manifest(tmp_path / "manifest.json").kernel(kernel).variants
    assert (built.name, built.arch) == (variant, "sm_90a")
    ((_, lines),) = sass.disassembled({built.file: (tmp_path / built.file).read_bytes()}, 1)
    assert sum(line.opcode.startswith("NANOSLEEP") for line in lines) > 20
    assert not any(result.problem for result in verify_integrity(tmp_path, Manifest(tmp_path / "manifest.json")))


def test_it_does_not_build_over_what_is_shipped():
    done = CliRunner().invoke(sleepy.command, [str(OUTPUT), VARIANT])
    assert done.exit_code == 2 and "name another" in done.output
