"""How the proof kernels are compiled: the pinned compiler first, a clear reason without one, no warning let through, no work done twice."""

import proof_compiler
import pytest


def fake_nvcc(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_the_pinned_compiler_comes_before_the_one_on_path(tmp_path, monkeypatch):
    pinned = fake_nvcc(tmp_path / "site-packages/nvidia/cu13/bin/nvcc", "exit 1")
    other = fake_nvcc(tmp_path / "bin/nvcc", "exit 1")
    monkeypatch.setenv("PATH", str(other.parent))
    monkeypatch.setattr(proof_compiler.sys, "path", [str(tmp_path / "elsewhere"), str(tmp_path / "site-packages")])
    assert proof_compiler.find_nvcc() == str(pinned)
    pinned.unlink()
    assert proof_compiler.find_nvcc() == str(other)


def test_no_compiler_is_said_not_hidden(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(proof_compiler.sys, "path", [str(tmp_path)])
    assert proof_compiler.find_nvcc() is None
    assert "pip install" in proof_compiler.NO_NVCC


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "kernel.cu"
    path.write_text("// nothing")
    return path


def test_each_text_is_compiled_once(tmp_path, source):
    # a compiler that counts its calls and writes what it was asked for to the file named after -o
    log = tmp_path / "calls"
    nvcc = fake_nvcc(tmp_path / "nvcc", f'echo "$@" >> {log}; while [ "$1" != -o ]; do shift; done; echo ptx > "$2"')
    compiler = proof_compiler.Compiler(str(nvcc))
    assert compiler.ptx(source, "sm_90a") == compiler.ptx(source, "sm_90a") == "ptx\n"
    assert len(log.read_text().splitlines()) == 1
    compiler.ptx(source, "sm_100a")
    source.write_text("// something else")
    compiler.ptx(source, "sm_90a")
    calls = log.read_text().splitlines()
    assert len(calls) == 3
    assert all(flag in calls[0] for flag in ("-ptx", "-arch=sm_90a", "-std=c++20", "-lineinfo", "src_cu"))


def test_processes_that_share_a_folder_compile_each_text_once(tmp_path, source):
    log, shared = tmp_path / "calls", tmp_path / "shared"
    shared.mkdir()
    body = f'echo "$@" >> {log}; while [ "$1" != -o ]; do shift; done; echo $(wc -l < {log}) > "$2"'
    first, second = (proof_compiler.Compiler(str(fake_nvcc(tmp_path / "nvcc", body)), shared) for _ in range(2))
    assert first.ptx(source, "sm_90a") == second.ptx(source, "sm_90a") == "1\n"
    assert first.cubin(source, "sm_90a") == second.cubin(source, "sm_90a") == b"2\n"
    source.write_text("// something else")
    assert second.ptx(source, "sm_90a") == first.ptx(source, "sm_90a") == "3\n"
    assert len(log.read_text().splitlines()) == 3 == len(list(shared.iterdir()))


@pytest.mark.parametrize(
    "body",
    ["echo 'kernel.cu(3): error' >&2; exit 1", "echo 'kernel.cu(3): warning' >&2; while [ \"$1\" != -o ]; do shift; done; echo x > $2"],
)
def test_errors_and_warnings_are_passed_on(tmp_path, source, body):
    compiler = proof_compiler.Compiler(str(fake_nvcc(tmp_path / "nvcc", body)))
    with pytest.raises(RuntimeError, match=r"kernel\.cu\(3\)"):
        compiler.ptx(source, "sm_90a")
