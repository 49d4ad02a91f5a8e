"""Every proof kernel, through the emulator's public interface, against numpy in float64: same bits, nothing else touched, no finding."""

import proof_cases
import proof_compiler
import pytest
from proof_emulator import run

# what the emulator promises to run: each must be proven by a kernel
CAPABILITIES = {
    "TMA load and store", "swizzle", "bulk 1-D copy", "proxy fence", "cp.async", "TMA reduction", "TMA gather4", "packed 4-bit TMA",
    "stmatrix", "TMA store", "ldmatrix", "wgmma fp8", "wgmma bf16", "TMA + mbarrier pipeline", "wgmma, A from registers",
    "wgmma, MN-major operands", "setmaxnreg", "cluster multicast", "distributed shared memory", "tcgen05 mxf8f6f4", "tcgen05 mxf8f6f4_e2m1",
    "tcgen05 mxf4", "tcgen05 mxf4nvf4", "CTA pair", "tcgen05.cp", "tcgen05.ld", "mma.sync mxf8f6f4", "mma.sync mxf4", "mma.sync mxf4nvf4",
    "cluster launch control", "two accumulators",
}  # fmt: skip


def check(case, ptx, **device_options):
    result = run(case, ptx, **device_options)
    assert not result.findings, "\n".join(map(str, result.findings))
    assert not (wrong := result.differences(case)), "\n".join(wrong)


@pytest.mark.parametrize("name", proof_cases.names())
def test_random_schedules_give_the_reference(name, schedule_seed, compile_ptx):
    case = proof_cases.get(name)
    check(case, compile_ptx(case.path, case.arch), scheduling="random", seed=schedule_seed)


@pytest.mark.parametrize("name", proof_cases.names())
def test_asynchronous_work_at_the_last_legal_moment(name, compile_ptx):
    case = proof_cases.get(name)
    check(case, compile_ptx(case.path, case.arch), scheduling="last", seed=0)


@pytest.mark.parametrize("name", [name for name in proof_cases.names() if "gemm" in name or "tcgen05" in name or "mma" in name])
def test_hardware_arithmetic_agrees_where_sums_are_exact(name, compile_ptx):
    case = proof_cases.get(name)
    check(case, compile_ptx(case.path, case.arch), scheduling="issue", seed=0, arithmetic="hw")


@pytest.mark.parametrize("source", ["tcgen05_one_cta.cu", "tcgen05_cta_pair.cu", "clc_persistent.cu"])
def test_family_target_compiles_and_runs_the_same(source, compile_ptx):
    """sm_100f is what the zoo ships for Blackwell: PTX for it must run as that for sm_100a does."""
    for name in proof_cases.names():
        case = proof_cases.get(name)
        if case.source == source:
            check(case, compile_ptx(case.path, "sm_100f"), scheduling="random", seed=1)


def test_every_capability_has_a_kernel():
    assert {what for name in proof_cases.names() for what in proof_cases.get(name).teaches} == CAPABILITIES


def test_every_kernel_assembles_without_spills(compiler):
    """ptxas checks what the emulator may not: that the PTX exists on the target, and that the kernels are fit to be models."""
    for source, arch in sorted({(proof_cases.get(name).source, proof_cases.get(name).arch) for name in proof_cases.names()}):
        assert compiler.cubin(proof_cases.FOLDER / source, arch)[:4] == b"\x7fELF"


def test_every_header_compiles_alone(compile_ptx, tmp_path):
    headers = sorted((proof_compiler.SOURCES / "common").rglob("*.cuh"))
    assert headers
    for header in headers:
        source = tmp_path / f"{header.stem}_alone.cu"
        source.write_text(f'#include "{header}"\n')
        assert ".target sm_100a" in compile_ptx(source, "sm_100a")


def test_every_source_is_short_and_used():
    sources = {path.name for path in proof_cases.FOLDER.glob("*.cu")}
    assert sources == {proof_cases.get(name).source for name in proof_cases.names()}
    for source in sources:
        assert len((proof_cases.FOLDER / source).read_text().splitlines()) < 200, f"{source} is too long to be teaching material"


def test_a_store_cuts_rows_off_at_16_bytes_only(compile_ptx):
    """As seen on an H200: rows of 268 bytes, and the store writes bytes 268 to 271 too, which are not the tensor's."""
    from dataclasses import replace

    case = proof_cases.get("tma_swizzle-none")
    source, target, *rest = case.parameters
    narrow = replace(case, parameters=(source, replace(target, dims=source.dims), *rest))
    result = run(narrow, compile_ptx(case.path, case.arch), scheduling="last", seed=0)
    assert source.dims[0] % 16 == 12 and result.differences(case) == []
    assert {finding.kind for finding in result.findings} == {"out-of-bounds"} and "4 bytes behind the end" in str(result.findings[0])


def test_a_wrong_reference_is_noticed(compile_ptx):
    """The comparison itself: one wrong expected element, and one write where nothing may be written, must both be reported."""
    from dataclasses import replace

    case = proof_cases.get("bulk_copy")
    expected = case.expected["y"].copy()
    expected[77] ^= 1
    result = run(case, compile_ptx(case.path, case.arch), scheduling="issue", seed=0)
    (sentence,) = result.differences(replace(case, expected={"y": expected}))
    assert "(77,)" in sentence
    assert len(result.differences(replace(case, expected={}))) == 1  # y must not change, says this case, and it did
