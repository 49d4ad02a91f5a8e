"""What the documentation says can be done: its code runs, its links lead somewhere, its tables are current."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import zoo
from tests.recorder import ROOT, build, python

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "kernels").glob("*.md")])
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    found = [(indent, body) for indent, named, body in BLOCK.findall(page.read_text()) if named == language]
    return ["\n".join(line.removeprefix(indent) for line in body.splitlines()) for indent, body in found]


PYTHON = [pytest.param(page, text, id=f"{page.name}-{index}") for page in PAGES for index, text in enumerate(blocks(page, "python"))]
_FRAMEWORKS = {"torch", "jax", "cupy"}


def imported(text: str) -> set[str]:
    return {alias.name.partition(".")[0] for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import) for alias in node.names}


def test_there_is_an_example_for_each_framework():
    readme = [imported(text) for text in blocks(ROOT / "README.md", "python")]
    for framework in ("torch", "numpy", "jax", "cupy"):
        assert any(framework in names for names in readme)
    assert blocks(ROOT / "README.md", "c")


@pytest.mark.parametrize(("page", "text"), PYTHON)
def test_examples_use_names_that_exist(page, text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "zoo":
            assert hasattr(zoo, node.attr), f"{page.name}: zoo.{node.attr}"


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler: the stand-in driver cannot be built")
    return build(tmp_path_factory.mktemp("recorder"))


def programs(frameworks: bool) -> list:
    """The examples that are whole programs, with or without another framework."""
    whole = [one for one in PYTHON if "zoo" in imported(one.values[1])]
    return [one for one in whole if bool(imported(one.values[1]) & _FRAMEWORKS) == frameworks]


@pytest.mark.parametrize(("page", "text"), programs(frameworks=False))
def test_examples_that_need_no_framework_run_against_the_stand_in(page, text, stand_in):
    run = python(stand_in, text)
    assert not run.faults
    assert bool(run.launches) == ("zoo.launch" in text and "zoo.emulator" not in text)


@pytest.mark.gpu
@pytest.mark.parametrize(("page", "text"), [*programs(frameworks=False), *programs(frameworks=True)])
def test_examples_run_on_this_gpu(page, text):
    for name in imported(text) & _FRAMEWORKS:
        pytest.importorskip(name)
    subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_c_example_compiles_without_a_warning(tmp_path):
    source = tmp_path / "example.c"
    source.write_text("\n".join(blocks(ROOT / "README.md", "c")))
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", ROOT / "zoo" / "capi"]
    subprocess.run(["cc", *flags, "-c", source, "-o", tmp_path / "example.o"], check=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_named_exist(page):
    from zoo.cli import main

    known = main.list_commands(None)
    for command in re.findall(r"`(?:\.venv/bin/)?zoo ([a-z]+)", page.read_text()):
        assert command in known, command


def test_generated_pages_are_current():
    done = subprocess.run([sys.executable, ROOT / "tools" / "generate_docs.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_page_out_of_date_is_found(tmp_path):
    for part in ("zoo", "cubins", "tools", "docs"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "*.cubin"))
    readme = (ROOT / "README.md").read_text()
    (tmp_path / "README.md").write_text(readme.replace("never run on a GPU", "passed everywhere").replace(" passed on ", " failed on "))
    (tmp_path / "docs" / "kernels" / "gone.md").write_text("")
    command = [sys.executable, tmp_path / "tools" / "generate_docs.py"]
    done = subprocess.run([*command, "--check"], capture_output=True, text=True)
    assert done.returncode == 1 and "README.md is out of date" in done.stderr and "gone.md is out of date" in done.stderr
    subprocess.run(command, check=True)
    assert (tmp_path / "README.md").read_text() == readme and not (tmp_path / "docs" / "kernels" / "gone.md").exists()


def test_every_page_is_reached_from_the_readme():
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            todo += [(page.parent / target).resolve() for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text())]
    assert not {page for page in PAGES} - reached


def test_the_layer_that_is_shown_is_the_layer_that_is_tested():
    shown = [text for text in blocks(ROOT / "docs" / "gemm.md", "python") if "class Experts" in text]
    assert shown == [(ROOT / "tests" / "gpu" / "moe_layer.py").read_text().rstrip("\n")]
