"""What `zoo export` writes: complete, buildable by everybody's compiler, and no more than was asked for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.capi.package import HERE, ROOT, STRICT, compile_package
from tests.recorder import program
from zoo.capi.export import export
from zoo.contract.manifest import Manifest
from zoo.errors import ArchitectureError, ArgumentError, UnknownKernelError

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="no make")
SHIPPED, TESTS = ROOT / "cubins", ROOT / "tests" / "zoo_cubins"
QUANTIZE = "quantize.mxfp8.rows"


def make(directory: Path, cubins: Path, patterns=("*",), archs=None):
    return export(directory, Manifest(cubins / "manifest.json"), cubins, patterns, archs)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    directory = tmp_path_factory.mktemp("package") / "package"
    make(directory, TESTS)
    return directory


@pytest.mark.parametrize("optimise", ["-O0", "-O2"])
@pytest.mark.parametrize(
    "compiler",
    [("gcc", "-std=c11"), ("clang", "-std=c11"), ("g++", "-std=c++17", "-x", "c++"), ("clang++", "-std=c++17", "-x", "c++")],
    ids=lambda compiler: compiler[0],
)
def test_every_source_compiles_without_a_warning(package, tmp_path, compiler, optimise):
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no {compiler[0]}")
    sources = [*package.glob("*.c"), next((package / "cubins").glob("*.c")), HERE / "session.c", HERE / "dlpack_first.c", HERE / "caller.c"]
    for source in sources:
        command = [*compiler, *STRICT, optimise, "-I", package, "-c", "-o", tmp_path / "object", source]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("compiler", [("gcc", "-std=c11"), ("g++", "-std=c++17", "-x", "c++")], ids=lambda compiler: compiler[0])
def test_a_dlpack_header_may_come_first(package, tmp_path, compiler):
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no {compiler[0]}")
    built = compile_package(package, tmp_path / "program", [HERE / "dlpack_first.c"], compiler=compiler)
    assert subprocess.run([built], capture_output=True, text=True, check=True).stdout == "2 3 14 8 1\n"


@needs_make
def test_the_makefile_builds_an_example_that_runs(package, recorder, tmp_path):
    shutil.copytree(package, tmp_path / "package")
    subprocess.run(["make", "-s", "-j2", "-C", tmp_path / "package", "CFLAGS=-O1 -Werror"], check=True)
    run = program(recorder, [tmp_path / "package" / "example"], devices="10.0:148")
    assert run.stdout.count("variants loaded") == 3 and run.faults == []


@needs_make
def test_make_prints_a_short_line_a_file_unless_it_is_asked_for_more_or_less(package, tmp_path):
    shutil.copytree(package, tmp_path / "package")

    def printed(*words):
        made = subprocess.run(
            ["make", "-C", tmp_path / "package", "--no-print-directory", *words], capture_output=True, text=True, check=True
        )
        assert made.stderr == ""
        return made.stdout.splitlines()

    lines = printed("CFLAGS=-O0")
    sources = [*(tmp_path / "package" / "cubins").glob("*.c"), "zoo", "zoo_table", "example"]
    assert len(lines) == len(sources) + 2 and max(map(len, lines)) < 80
    assert lines[0] == "  CC   zoo.o" and {"  AR   libzoo.a", "  LINK example"} < {*lines}
    (tmp_path / "package" / "libzoo.a").unlink()
    assert printed("-s") == []
    (tmp_path / "package" / "libzoo.a").unlink()
    assert [line.split()[0] for line in printed("V=1")] == ["rm", "ar", "cc"]


def test_cmake_builds_it_too(package, recorder, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    for command in (["cmake", "-S", package, "-B", tmp_path / "build"], ["cmake", "--build", tmp_path / "build", "-j2"]):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert program(recorder, [tmp_path / "build" / "example"]).stdout.count("variants loaded") == 3


@needs_make
def test_the_quantize_example_launches_its_kernel(recorder, tmp_path):
    """The recorder computes nothing, so the example must find its results wrong, and say so."""
    made = make(tmp_path / "package", SHIPPED, [QUANTIZE], ["sm_90a"])
    assert made.kernels == (QUANTIZE,)
    subprocess.run(["make", "-s", "-j2", "-C", tmp_path / "package"], check=True)
    run = program(recorder, [tmp_path / "package" / "example"], check=False)
    assert run.returncode == 1 and "307200 of 307200 elements are wrong" in run.stdout and run.faults == []
    assert "a wrong shape is refused: quantize.mxfp8.rows: K must be a multiple of 32 (K % 32 == 0, with K = 1025)" in run.stdout
    (launch,) = run.launches
    assert launch.kernel.startswith("quantize_mxfp8_rows__f32_e4m3_t256")


def test_only_what_was_asked_for_is_embedded(tmp_path):
    manifest = Manifest(TESTS / "manifest.json")
    kernel = manifest.kernel(manifest.names[1])
    made = make(tmp_path, TESTS, [kernel.name], ["sm_100f"])
    wanted = {variant.file for variant in kernel.variants if variant.arch == "sm_100f"}
    assert made.variants == len(wanted) and made.cubin_bytes == sum((TESTS / file).stat().st_size for file in wanted)
    assert {path.stem for path in (tmp_path / "cubins").glob("*.c")} == {file.removesuffix(".cubin").replace("/", "_") for file in wanted}
    table = (tmp_path / "zoo_table.c").read_text()
    assert "sm_90a" not in table and all(f'"{name}"' not in table for name in manifest.names if name != kernel.name)


def test_the_embedded_bytes_are_the_cubin(package):
    manifest = Manifest(TESTS / "manifest.json")
    for variant in manifest.kernel(manifest.names[0]).variants:
        text = (package / "cubins" / f"{variant.file.removesuffix('.cubin').replace('/', '_')}.c").read_text()
        numbers = text[text.index("= {") + 3 : text.index("};")].split(",")
        embedded = b"".join(int(number, 16).to_bytes(8, "little") for number in numbers)
        data = (TESTS / variant.file).read_bytes()
        assert embedded[: len(data)] == data and not any(embedded[len(data) :])


def test_exporting_again_leaves_nothing_of_the_first_time(tmp_path):
    manifest = Manifest(TESTS / "manifest.json")
    make(tmp_path, TESTS)
    made = make(tmp_path, TESTS, [manifest.names[0]], ["sm_90a"])
    assert len(list((tmp_path / "cubins").glob("*.c"))) == made.variants


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ArgumentError, match="neither empty nor an earlier export"):
        make(tmp_path, TESTS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_wrong_pattern_or_arch_says_what_there_is(tmp_path):
    with pytest.raises(UnknownKernelError, match=r"no kernel matches 'conv\.\*'"):
        make(tmp_path, TESTS, ["gemm.*", "conv.*"])
    with pytest.raises(ArchitectureError, match="no cubin for sm_80; the zoo ships sm_90a, sm_100f"):
        make(tmp_path, TESTS, ["*"], ["sm_90a", "sm_80"])
    assert list(tmp_path.iterdir()) == []
