"""`python -m zoo.compat.deep_gemm`: provides the name, takes it back, and never touches a DeepGEMM of another hand."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.recorder import ROOT
from zoo.compat.deep_gemm import real
from zoo.compat.deep_gemm.install import main

# A folder that Python reads .pth files of, as it does of site-packages.
START = "import site, sys; site.addsitedir(sys.argv[1])\n"


def python(folder, program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", START + program, str(folder)], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def zoo(*words: object) -> int:
    return main([str(word) for word in words])


WHO = "import importlib.util; spec = importlib.util.find_spec('deep_gemm'); print(spec and spec.origin)"
OURS = str(ROOT / "zoo" / "compat" / "deep_gemm" / "__init__.py")


def test_an_installed_name_is_zoo_until_it_is_uninstalled(tmp_path, capsys):
    assert python(tmp_path, WHO).strip() == "None"
    zoo("--install", "--folder", tmp_path)
    zoo("--install", "--folder", tmp_path)  # again, which changes nothing
    assert python(tmp_path, WHO).strip() == OURS
    assert {python(tmp_path, WHO, ZOO_DEEP_GEMM=value).strip() for value in ("0", "off")} == {"None"}
    zoo("--status", "--folder", tmp_path)
    assert "deep_gemm is provided by  zoo" in capsys.readouterr().out
    zoo("--uninstall", "--folder", tmp_path)
    assert python(tmp_path, WHO).strip() == "None" and not list(tmp_path.iterdir())
    zoo("--uninstall", "--folder", tmp_path)
    assert "nothing of zoo" in capsys.readouterr().out


def test_functions_and_settings_exist_once_under_both_names(tmp_path):
    zoo("--install", "--folder", tmp_path)
    program = """
import deep_gemm, zoo.compat.deep_gemm as ours
from deep_gemm.utils.layout import get_mn_major_tma_aligned_tensor
import deep_gemm.utils.math
assert deep_gemm.__name__ == "deep_gemm" and deep_gemm.fp8_gemm_nt is ours.fp8_gemm_nt
assert get_mn_major_tma_aligned_tensor is ours.get_mn_major_tma_aligned_tensor
deep_gemm.set_mk_alignment_for_contiguous_layout(64)
assert ours.utils.get_mk_alignment_for_contiguous_layout() == 64
try:
    from deep_gemm import bf16_gemm_nt
except ImportError as error:
    print("absent")
"""
    assert python(tmp_path, program, ZOO_DEEP_GEMM_REAL="0").strip() == "absent"


def test_python_starts_where_zoo_is_gone(tmp_path):
    zoo("--install", "--folder", tmp_path)
    gone = "sys.path = [one for one in sys.path if not one or not __import__('os').path.isdir(one + '/zoo')]; sys.path.remove('') if '' in sys.path else 0\n"
    done = subprocess.run(
        [sys.executable, "-S", "-c", START + gone + "import importlib.util; print(importlib.util.find_spec('deep_gemm'))", str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "None"), done.stderr


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    package = tmp_path / "deep_gemm"
    package.mkdir()
    (package / "__init__.py").write_text("bf16_gemm_nt = 'foreign'\nfp8_gemm_nt = 'foreign'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return package


def test_a_deep_gemm_of_another_hand_is_named_and_left_alone(tmp_path, foreign, capsys):
    assert real.found().origin == str(foreign / "__init__.py")
    with pytest.raises(SystemExit):
        zoo("--install", "--folder", tmp_path)
    told = capsys.readouterr().err
    assert str(foreign) in told and "--fall-through" in told and sorted(os.listdir(tmp_path)) == ["deep_gemm"]

    zoo("--install", "--fall-through", "--folder", tmp_path)
    assert python(tmp_path, "import deep_gemm; print(deep_gemm.bf16_gemm_nt, deep_gemm.__file__)").split() == ["foreign", OURS]
    zoo("--uninstall", "--folder", tmp_path)
    assert python(tmp_path, "import deep_gemm; print(deep_gemm.fp8_gemm_nt)").strip() == "foreign"


def test_a_file_that_is_not_of_zoo_is_not_removed(tmp_path):
    theirs = tmp_path / "_zoo_deep_gemm.py"
    theirs.write_text("x = 1\n")
    with pytest.raises(SystemExit):
        zoo("--uninstall", "--folder", tmp_path)
    assert theirs.read_text() == "x = 1\n"


def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit):
        zoo("--install", "--folder", tmp_path / "missing")
    assert "cannot be written" in capsys.readouterr().err
