"""The report on machine code counts what is there, and says of kernels what nobody sees in their source."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.builder.build_trees import ROOT, needs_nvcc
from tools.builder import BuildError, sass
from tools.builder.compiler import _find_nvcc
from zoo.shipped import ptx


def _there():
    try:
        return bool(sass.disassembler())
    except BuildError:
        return False


pytestmark = [needs_nvcc, pytest.mark.skipif(not _there(), reason=f"needs {sass.PACKAGE} {sass.VERSION}: pip install '.[build]'")]

HEAD = """
.version 9.0
.target {target}
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<4>;
    .shared .align 8 .b64 bar;
    ld.param.u64 %rd0, [out];
    ld.param.u32 %r0, [n];
    mov.u32 %r1, bar;
    mov.u32 %r9, %tid.x;
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """said(body) -> the entry of a kernel, which ptxas assembles."""
    folder = tmp_path_factory.mktemp("assembled")

    def of(body, arch="sm_100f"):
        text = HEAD.format(target=arch) + body + "\n    ret;\n}\n"
        (folder / "k.ptx").write_text(text)
        assembler = _find_nvcc().with_name("ptxas")
        subprocess.run([assembler, f"-arch={arch}", "-o", folder / "k.cubin", folder / "k.ptx"], check=True)
        report = sass.report({f"{arch}/k.cubin": (folder / "k.cubin").read_bytes()}, {f"{arch}/k.cubin": text}, {}, 1)
        return json.loads(report)["cubins"][f"{arch}/k.cubin"], sass.refusals(report)

    return of


LOCAL = """
    .local .align 4 .b8 array[256];
    .reg .b64 %a, %b;
    mov.u64 %a, array;
    mul.wide.u32 %b, %r9, 4;
    add.u64 %b, %b, %a;
    st.local.u32 [%b], %r0;
    xor.b32 %r2, %r9, 5;
    mul.wide.u32 %b, %r2, 4;
    add.u64 %b, %b, %a;
    ld.local.u32 %r3, [%b];
    st.global.u32 [%rd0], %r3;
"""


def test_an_array_in_local_memory_is_refused(said):
    entry, refused = said(LOCAL)
    assert sum(entry["local"].values()) == 2
    assert len(refused) == 1 and "sm_100f/k.cubin: accesses local memory (1 LDL, 1 STL)" in refused[0]
    assert said("st.global.u32 [%rd0], %r0;")[1] == []


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100f"])
def test_a_fence_of_the_whole_gpu_that_nobody_wrote_is_counted(said, arch):
    arrive = "mapa.shared::cluster.u32 %r2, %r1, 1; mbarrier.arrive{}.shared::cluster.b64 _, [%r2];"
    entry, _ = said(arrive.format(".release.cluster"), arch)
    assert entry["unwritten"] == 1 and entry["fences"]["MEMBAR.ALL.GPU"] == 1
    assert "unwritten" not in said(arrive.format(""), arch)[0]
    for written in ("fence.acq_rel.gpu;", "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"):
        entry = said(written, arch)[0]
        assert "fences" in entry and "unwritten" not in entry


PRODUCTS = """
    .reg .b64 %a;
    cvt.u64.u32 %a, {descriptor};
L:  setp.ne.u32 %p1, %r0, 0;
    tcgen05.mma.cta_group::1.kind::f16 [%r0], %a, %a, 136314896, %p1;
    {step}
    sub.u32 %r0, %r0, 1;
    setp.ne.u32 %p2, %r0, 0;
    @%p2 bra L;
"""


def test_operands_of_products_that_lanes_hold_are_told_from_those_of_the_warp(said):
    """A value that depends on the thread goes from a lane's register to the warp's, each time round a loop that changes it."""
    ours, _ = said(PRODUCTS.format(descriptor="%r0", step="add.u64 %a, %a, 2;"))
    theirs, _ = said(PRODUCTS.format(descriptor="%r9", step="add.u64 %a, %a, 2;"))
    assert ours["products"].keys() == theirs["products"].keys() == {"UTCHMMA"}
    assert ours["loops"] and theirs["loops"] and all(loop["products"] for loop in ours["loops"] + theirs["loops"])
    assert not any(loop["R2UR"] for loop in ours["loops"])
    assert all(loop["R2UR"] for loop in theirs["loops"])


SUMS = """
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r2}}, [%r0];
    tcgen05.wait::ld.sync.aligned;
L:  xor.b32 %r9, %r9, {other};
    {work}
    st.global.u32 [%rd0], %r9;
    setp.lt.u32 %p1, %r9, 7;
    @%p1 bra L;
    st.global.u32 [%rd0+4], %r2;
"""


def test_a_load_of_tensor_memory_that_is_used_at_once_is_told_from_one_that_is_not(said):
    work = "mad.lo.u32 %r9, %r9, %r9, 5; xor.b32 %r9, %r9, 3;" * 20
    at_once, _ = said(SUMS.format(other="%r2", work=work))
    later, _ = said(SUMS.format(other="%r0", work=work))
    assert at_once["epilogue"]["waited_loads"] == 1 and later["epilogue"]["waited_loads"] == 0


def test_what_is_known_of_a_cubin_is_not_looked_for_again(monkeypatch):
    texts = ptx.read(ROOT / "cubins" / ptx.FILE)
    paths = sorted(ROOT.glob("cubins/*/*.cubin"), key=lambda path: (path.stat().st_size, path))[:3]
    files = {path.relative_to(ROOT / "cubins").as_posix(): path.read_bytes() for path in paths}
    of = {file: texts[ptx.name_of(file)].decode() for file in files}
    report = sass.report(files, of, {}, 2)
    before = json.loads(report)["cubins"]
    assert all(entry["instructions"] * 16 < len(files[file]) and entry["instructions"] > 50 for file, entry in before.items())
    monkeypatch.setattr(sass, "_batch", None)
    assert sass.report(files, of, before, 2) == report
    file = next(iter(files))
    with pytest.raises(TypeError):
        sass.report(files, of, before | {file: before[file] | {"sha256": "0"}}, 2)


def test_a_report_of_another_disassembler_counts_as_none(tmp_path):
    path = Path(tmp_path, sass.FILE)
    assert sass.read(path) == {}
    path.write_text(json.dumps({"disassembler": "another", "cubins": {"a": {}}}))
    assert sass.read(path) == {}
    path.write_text(json.dumps({"disassembler": f"{sass.PACKAGE} {sass.VERSION}", "cubins": {"a": {}}}))
    assert sass.read(path) == {"a": {}}
