"""What the documentation says can be done: its code runs, its links lead somewhere, its tables and its picture are current."""

import ast
import builtins
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import zoo
from tests.recorder import ROOT, build, python

DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.glob("*.md"), *(DOCS / "kernels").glob("*.md"), *(DOCS / "lab").glob("*.md")])
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
STAND_IN_FRAMEWORKS = Path(__file__).parent / "stand_in"


def blocks(page: Path, language: str) -> list[str]:
    found = [(indent, body) for indent, named, body in BLOCK.findall(page.read_text()) if named == language]
    return ["\n".join(line.removeprefix(indent) for line in body.splitlines()) for indent, body in found]


_FRAMEWORKS = {"torch", "jax", "cupy"}
TUTORIALS = {"moe_layer.md"}  # here a block that imports nothing continues the program above it


def imported(text: str) -> set[str]:
    return {alias.name.partition(".")[0] for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import) for alias in node.names}


def programs_of(page: Path) -> list[str]:
    found: list[str] = []
    for text in blocks(page, "python"):
        if page.name in TUTORIALS and found and not imported(text):
            found[-1] += f"\n{text}"
        else:
            found.append(text)
    return found


PYTHON = [pytest.param(page, text, id=f"{page.name}-{index}") for page in PAGES for index, text in enumerate(programs_of(page))]


def test_there_is_an_example_for_each_framework():
    shown = [imported(text) for page in ("getting_started.md", "jax.md") for text in blocks(DOCS / page, "python")]
    for framework in ("torch", "numpy", "jax", "cupy"):
        assert any(framework in names for names in shown)
    assert "torch" in imported(*blocks(ROOT / "README.md", "python"))


def test_a_tutorial_is_a_program_without_a_framework_and_one_in_torch():
    in_torch, in_parts = programs_of(DOCS / "moe_layer.md")
    assert "torch" not in imported(in_parts) and "torch" in imported(in_torch)
    assert in_parts.count("assert ") >= 3, "what the tutorial computes is compared with float32"


@pytest.mark.parametrize(("page", "text"), PYTHON)
def test_examples_use_names_that_exist(page, text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "zoo":
            known = hasattr(zoo, node.attr) or (ROOT / "zoo" / node.attr / "__init__.py").exists()
            assert known, f"{page.name}: zoo.{node.attr}"


def bound_names(tree: ast.AST) -> set[str]:
    found = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return found


@pytest.mark.parametrize(
    ("page", "text"), [one for one in PYTHON if one.values[0].name != "adding_a_kernel.md"]
)  # fragments, explained there
def test_examples_use_no_name_that_is_not_defined(page, text):
    tree = ast.parse(text)
    assert {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} <= bound_names(tree)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler: the stand-in driver cannot be built")
    return build(tmp_path_factory.mktemp("recorder"))


def works_inside_a_framework(text: str) -> bool:
    """A stand-in for the framework will not do; tests/torch, tests/jax and tests/clients run these in it."""
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import)]
    inside = {*(f"zoo.{framework}" for framework in _FRAMEWORKS), "zoo.transformers"}
    return any(alias.name in inside for node in imports for alias in node.names)


def programs(*frameworks: str) -> list:
    """The examples that are whole programs and import these frameworks, and no other; test_adding_a_kernel.py runs those of its page."""
    whole = [one for one in PYTHON if "zoo" in imported(one.values[1]) and not works_inside_a_framework(one.values[1])]
    whole = [one for one in whole if one.values[0].name != "adding_a_kernel.md"]
    return [one for one in whole if imported(one.values[1]) & _FRAMEWORKS == set(frameworks)]


@pytest.mark.parametrize(("page", "text"), programs())
def test_examples_that_need_no_framework_run_against_the_stand_in_or_in_the_emulator(page, text, stand_in):
    run = python(stand_in, text)
    assert not run.faults
    assert bool(run.launches) == (("zoo.launch(" in text or "zoo.call(" in text) and "zoo.emulator" not in text)


def run_with_stand_in_frameworks(text: str, stand_in: Path, **settings):
    return python(stand_in, text, PYTHONPATH=f"{ROOT}:{STAND_IN_FRAMEWORKS}", **settings)


@pytest.mark.parametrize(("page", "text"), [*programs("torch"), *programs("jax"), *programs("cupy")])
def test_the_shapes_of_the_frameworks_examples_are_right(page, text, stand_in):
    run = run_with_stand_in_frameworks(text, stand_in)
    calls = sum(text.count(call) for call in ("zoo.launch(", "zoo.call(", "plan(torch"))
    assert not run.faults and len(run.launches) >= calls and bool(run.launches) == bool(calls)


def test_a_wrong_shape_in_an_example_is_found(stand_in):
    (text,) = blocks(ROOT / "README.md", "python")
    run = run_with_stand_in_frameworks(text.replace("7168 // 32", "7168 // 16"), stand_in, check=False)
    assert "scales: expected (8192, 224)" in run.stderr and not run.launches


@pytest.mark.gpu
@pytest.mark.parametrize(("page", "text"), [*programs(), *programs("torch"), *programs("jax"), *programs("cupy")])
def test_examples_run_on_this_gpu(page, text):
    for name in imported(text) & _FRAMEWORKS:
        pytest.importorskip(name)
    subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_c_example_compiles_without_a_warning(tmp_path):
    (example,) = [text for text in blocks(DOCS / "c.md", "c") if "zoo_status quantize(" in text]
    source = tmp_path / "example.c"
    source.write_text(example)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", ROOT / "zoo" / "capi"]
    subprocess.run(["cc", *flags, "-c", source, "-o", tmp_path / "example.o"], check=True)


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_links_lead_somewhere(page):
    text = page.read_text()
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", text):
        if not target.startswith("http"):
            found = (page.parent / target) if target else page
            assert found.exists(), target
            assert not anchor or anchor in anchors(found), f"{target}#{anchor}"
    for target in re.findall(r'(?:src|srcset)="([^"]*)"', text):
        assert (page.parent / target).exists(), target


_WHERE_PATHS_BEGIN = r"src_cu|zoo|tools|tests|docs|cubins|\.ci|\.github"
PATH = re.compile(
    rf"`((?:{_WHERE_PATHS_BEGIN})/[^`\s]*|[a-z_]+\.py)`|\bpython ((?:{_WHERE_PATHS_BEGIN})/[^`\s]*|[a-z_]+\.py)|\bpytest [^`\n]*?(tests/[^`\s]*)"
)


def missing_paths(text: str) -> list[str]:
    """Those that a page names in backticks or starts in a shell, and that are not there; <family> stands for any name, toy8 for none."""
    named = ["".join(found) for found in PATH.findall(text)]
    return [path for path in named if "toy8" not in path and not any(ROOT.glob(re.sub(r"<\w+>", "*", path)))]


PATHS_ARE_HELD = [
    ROOT / "CONTRIBUTING.md",
    *(DOCS / f"{name}.md" for name in ("security", "versioning", "adding_a_kernel", "how_it_works")),
]


@pytest.mark.parametrize("page", PATHS_ARE_HELD, ids=lambda page: page.name)
def test_paths_that_were_moved_or_never_were_are_not_named(page):
    text = page.read_text()
    assert PATH.search(text), "no path is recognised on this page"
    assert not missing_paths(text)


def test_a_path_that_does_not_exist_is_found():
    gone = ["src_cu/gemm/gone.cuh", "zoo/gone/<name>.py", "tools/gone.py", "gone.py", "tests/gone"]
    text = "`{}`, `{}` and\n```sh\npython {} --count 1\npython {}\npytest -q {}   # slow\n```".format(*gone)
    assert missing_paths(text) == gone
    assert not missing_paths(
        "`src_cu/<family>/tables/<name>.toml`, `src_cu/common/formats/toy8.toml`, `zoo/errors.py`, `tests/`, `zoo list`"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_commands_that_are_named_exist(page):
    from zoo.cli import main

    known = main.list_commands(None)
    for command in re.findall(r"`(?:\.venv/bin/)?zoo ([a-z][a-z-]*)", page.read_text()):
        assert command in known, command


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90


def test_generated_pages_are_current():
    done = subprocess.run([sys.executable, ROOT / "tools" / "generate_docs.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def copy(tmp_path) -> Path:
    for part in ("zoo", "cubins", "tools", "docs"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "*.cubin"))
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def test_a_page_out_of_date_is_found(copy):
    page = copy / "docs" / "kernels" / "README.md"
    page.write_text(page.read_text().replace("never run on a GPU", "passed everywhere"))
    gone = [copy / "docs" / name for name in ("kernels/gone.md", "pictures/gone.svg")]
    for file in gone:
        file.write_text("")
    command = [sys.executable, copy / "tools" / "generate_docs.py"]
    done = subprocess.run([*command, "--check"], capture_output=True, text=True)
    assert done.returncode == 1
    assert all(f"{name} is out of date" in done.stderr for name in ("kernels/README.md", "kernels/gone.md", "pictures/gone.svg"))
    subprocess.run(command, check=True)
    assert page.read_text() == (ROOT / "docs" / "kernels" / "README.md").read_text() and not any(file.exists() for file in gone)


def test_a_new_comparison_is_a_new_picture_and_new_tables(copy):
    times = {"zoo": 10.0, "torch block-wise": 12.0}
    dense = [{"sizes": {"M": M, "N": 64, "K": 64}, "microseconds": times, "refused": {}} for M in (1, 100, 1000, 10000)]
    layers = [
        {"name": f"{T} tokens", "model": "gpt-oss-20b", "tokens": T, "microseconds": {"zoo": 10.0, "torch bf16": 9.0}, "refused": {}}
        for T in (1, 8)
    ]
    words = {"device": "GPU", "driver": "1", "date": "2026-01-01", "libraries": {}, "seeds": [1], "less": {}}
    about = {"device": "GPU", "driver": "1", "libraries": {}, "digest": ""}
    (copy / "docs" / "rivals.json").write_text(json.dumps({**words, "dense": dense}))
    (copy / "docs" / "layers.json").write_text(json.dumps({"serving": {"about": about, "date": "2026-01-01", "rows": layers}}))
    done = subprocess.run([sys.executable, copy / "tools" / "generate_docs.py", "--check"], capture_output=True, text=True)
    for name in ("README.md", "docs/performance.md", "docs/pictures/tokens_dark.svg", "docs/pictures/tokens_light.svg"):
        assert f"{name} is out of date" in done.stderr


def test_without_a_comparison_the_command_that_makes_one_is_named(copy):
    (copy / "docs" / "rivals.json").unlink(missing_ok=True)
    done = subprocess.run([sys.executable, copy / "tools" / "generate_docs.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 1 and "`python tools/compare_rivals.py` makes it on a GPU" in done.stderr and "README.md" not in done.stderr


def test_every_page_is_reached_from_the_readme():
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page not in reached and page.suffix == ".md" and page.exists():
            reached.add(page)
            todo += [(page.parent / target).resolve() for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())]
    assert not set(PAGES) - reached
