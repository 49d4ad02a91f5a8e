"""What a report on machine code says of lines that a disassembler wrote, line by line; the disassembler is a stand-in."""

import hashlib
import importlib.metadata
import importlib.util
import json
import struct
from types import SimpleNamespace

import pytest

from tools.builder import BuildError, sass
from tools.builder.sass import Line

BATCH = sass._BATCH


def lines(*words, start=0):
    """Of `OPCODE operands`, each."""
    return [Line(start + 16 * index, *(one.partition(" ")[::2])) for index, one in enumerate(words)]


def cubin(code, names=(b"", b".symtab", b".text.k", b".names")):
    """A file of sections, that of code third."""
    table, at = b"", []
    for name in names:
        at.append(len(table))
        table += name + b"\0"
    sections_at = 0x40 + len(table) + len(code)
    head = bytearray(0x40)
    struct.pack_into("<Q", head, 0x28, sections_at)
    struct.pack_into("<HH", head, 0x3C, len(names), len(names) - 1)
    body = b""
    for index, name in enumerate(names):
        offset, size = {b".names": (0x40, len(table))}.get(name, (0x40 + len(table), len(code)) if name.startswith(b".text") else (0x40, 1))
        body += struct.pack("<IIQQQQ", at[index], 1, 0, 0, offset, size) + bytes(64 - 40)
    return bytes(head) + table + code + body


def test_code_is_that_of_the_section_so_named_and_of_no_other():
    assert sass._code(cubin(b"x" * 48)) == b"x" * 48
    assert sass._code(cubin(b"", (b"", b".text.k", b".names"))) == b""
    with pytest.raises(BuildError, match=r"^a cubin has no section of code$"):
        sass._code(cubin(b"x" * 16, (b"", b".data", b".names")))


@pytest.fixture
def packages(monkeypatch, tmp_path):
    """Which version is installed, and where the packages of `nvidia` lie."""

    def say(version, *folders, there=True):
        def asked(name):
            assert name == sass.PACKAGE
            if version is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return version

        def found(name):
            assert name == "nvidia"
            return SimpleNamespace(submodule_search_locations=[str(tmp_path / one) for one in folders]) if there else None

        monkeypatch.setattr(importlib.metadata, "version", asked)
        monkeypatch.setattr(importlib.util, "find_spec", found)
        return tmp_path

    return say


def test_a_disassembler_that_is_missing_or_another_is_no_report(packages):
    packages(None)
    with pytest.raises(BuildError, match=rf"^{sass.PACKAGE} is not installed in this environment; install it with the compiler"):
        sass.disassembler()
    packages("13.0.1")
    with pytest.raises(BuildError, match=f"is 13.0.1, reports are written with {sass.VERSION} only; install it"):
        sass.disassembler()
    for there in (True, False):
        packages(sass.VERSION, "empty", there=there)
        with pytest.raises(BuildError, match=r"^no nvdisasm in this environment's nvidia/cu13/bin; install it"):
            sass.disassembler()
    folder = packages(sass.VERSION, "empty", "other")
    tool = folder / "other/cu13/bin/nvdisasm"
    tool.parent.mkdir(parents=True)
    tool.touch()
    assert sass.disassembler() == tool


@pytest.fixture
def taken_apart(monkeypatch):
    """Cubins whose bytes are their code; what goes through the disassembler together, in the order in which it does."""
    batches = []

    def one_batch(tool, arch, codes):
        assert tool == "nvdisasm"
        batches.append((arch, [name for name, _ in codes]))
        return [(name, lines(*["MOV R0, R1"] * (len(code) // 16))) for name, code in codes]

    monkeypatch.setattr(sass, "_code", lambda data: data)
    monkeypatch.setattr(sass, "disassembler", lambda: "nvdisasm")
    monkeypatch.setattr(sass, "_batch", one_batch)
    monkeypatch.setattr(sass, "_BATCH", 64)
    return batches


def test_batches_are_of_one_arch_and_no_larger_than_they_may_be(taken_apart):
    sizes = {"sm_90a/c": 32, "sm_100f/b": 16, "sm_90a/a": 32, "sm_90a/b": 16, "sm_90a/d": 96, "sm_90a/e": 16, "sm_100f/a": 64}
    found = list(sass.disassembled({file: bytes(size) for file, size in sizes.items()}, 1))
    assert taken_apart == [
        ("sm_100f", ["sm_100f/a"]), ("sm_100f", ["sm_100f/b"]),
        ("sm_90a", ["sm_90a/a", "sm_90a/b"]), ("sm_90a", ["sm_90a/c"]), ("sm_90a", ["sm_90a/d"]), ("sm_90a", ["sm_90a/e"]),
    ]  # fmt: skip
    assert [(file, len(code)) for file, code in found] == [(file, sizes[file] // 16) for file in sorted(sizes)]
    taken_apart.clear()
    list(sass.disassembled({f"sm_90a/{name}": bytes(32) for name in "abc"}, 2))
    assert sorted(taken_apart) == [("sm_90a", ["sm_90a/a", "sm_90a/b"]), ("sm_90a", ["sm_90a/c"])]  # 64 bytes are not too many


def test_a_disassembler_takes_two_million_bytes_and_no_more(taken_apart, monkeypatch):
    monkeypatch.setattr(sass, "_BATCH", BATCH)
    list(
        sass.disassembled(
            {"sm_90a/a": bytes(1_000_000), "sm_90a/b": bytes(1_000_000), "sm_90a/c": bytes(1_000_000), "sm_90a/d": bytes(1_000_001)}, 1
        )
    )
    assert taken_apart == [("sm_90a", ["sm_90a/a", "sm_90a/b"]), ("sm_90a", ["sm_90a/c"]), ("sm_90a", ["sm_90a/d"])]


def test_of_no_cubins_no_disassembler_is_asked_for(monkeypatch):
    monkeypatch.setattr(sass, "disassembler", None)
    assert list(sass.disassembled({}, 1)) == []


def test_only_cubins_that_changed_are_taken_apart_and_each_is_a_line_of_the_report(taken_apart):
    cubins = {"sm_90a/b": bytes(32), "sm_90a/a": bytes(16), "sm_90a/c": bytes(48)}
    digests = {file: hashlib.sha256(data).hexdigest() for file, data in cubins.items()}
    texts = dict.fromkeys(cubins, "")
    before = {"sm_90a/a": {"sha256": digests["sm_90a/a"], "instructions": 7}, "sm_90a/b": {"sha256": "0", "instructions": 8}, "gone": {}}
    report = sass.report(cubins, texts, before, 1)
    assert taken_apart == [("sm_90a", ["sm_90a/b"]), ("sm_90a", ["sm_90a/c"])]
    assert report == (
        f'{{"disassembler": "{sass.PACKAGE} {sass.VERSION}", "cubins": {{\n'
        f' "sm_90a/a": {{"instructions": 7, "sha256": "{digests["sm_90a/a"]}"}},\n'
        f' "sm_90a/b": {{"instructions": 2, "sha256": "{digests["sm_90a/b"]}"}},\n'
        f' "sm_90a/c": {{"instructions": 3, "sha256": "{digests["sm_90a/c"]}"}}\n'
        "}}\n"
    )
    assert sass.refusals(report) == []


def test_a_report_does_not_depend_on_the_order_in_which_it_was_known(taken_apart):
    cubins, texts = {"sm_90a/a.cubin": cubin(b"a" * 32)}, {"sm_90a/a.cubin": ""}
    fresh = sass.report(cubins, texts, {}, 1)
    entry = json.loads(fresh)["cubins"]["sm_90a/a.cubin"]
    assert sass.report(cubins, texts, {"sm_90a/a.cubin": dict(reversed(entry.items()))}, 1) == fresh


def test_local_memory_is_refused_with_what_it_is_and_a_report_on_disk_is_read_back(tmp_path):
    made = {"a": {"instructions": 1}, "b": {"instructions": 1, "local": {"LDL": 2, "STL.64": 1}}}
    text = json.dumps({"disassembler": f"{sass.PACKAGE} {sass.VERSION}", "cubins": made})
    assert sass.refusals(text) == ["b: accesses local memory (2 LDL, 1 STL.64): an array indexed at run time, or a spill"]
    path = tmp_path / sass.FILE
    for said, wanted in ((text, made), (text[:-1], {}), ("[]", {}), ("{}", {}), (text.replace(sass.VERSION, "0"), {})):
        path.write_text(said)
        assert sass.read(path) == wanted
    assert sass.read(tmp_path / "none") == {}


@pytest.fixture
def tool(tmp_path):
    """A disassembler that keeps what it was asked, and says what it is told to."""

    def of(said, status=0, words=""):
        program = tmp_path / "nvdisasm"
        (tmp_path / "said").write_text(said)
        program.write_text(
            f'#!/bin/sh\necho "$1 $2 $3" > {tmp_path}/asked\nfor file; do :; done\ncat "$file" > {tmp_path}/code\n'
            f"cat {tmp_path}/said\nprintf '{words}' >&2\nexit {status}\n"
        )
        program.chmod(0o700)
        return program

    return of


SAID = """\
        /*0000*/                   LDC R1, c[0x0][0x37c] ;
        /*0010*/              @!P0 BRA `(.L_x_1) ;
        /*0020*/          @UP1 UTCHMMA.2CTA gdesc[UR4], gdesc[UR6], tmem[UR8] ;
        /*0030*/                   EXIT ;
"""


def test_lines_are_cut_into_the_cubins_of_a_batch(tool, tmp_path):
    found = sass._batch(tool(SAID), "sm_100f", [("a", b"1" * 16), ("b", b"2" * 32), ("c", b"3" * 16)])
    assert found == [
        ("a", [Line(0, "LDC", "R1, c[0x0][0x37c]")]),
        ("b", [Line(16, "BRA", "`(.L_x_1)"), Line(32, "UTCHMMA.2CTA", "gdesc[UR4], gdesc[UR6], tmem[UR8]")]),
        ("c", [Line(48, "EXIT", "")]),
    ]
    assert (tmp_path / "asked").read_text() == "-b SM100f -ndf\n"
    assert (tmp_path / "code").read_bytes() == b"1" * 16 + b"2" * 32 + b"3" * 16


def test_lines_of_another_format_or_none_are_refused(tool):
    with pytest.raises(BuildError, match=r"^nvdisasm gave 4 instructions of sm_90a, the code has 5: another format of lines.$"):
        sass._batch(tool(SAID), "sm_90a", [("a", bytes(80))])
    with pytest.raises(BuildError, match=r"gave 3 instructions of sm_90a, the code has 4"):
        sass._batch(tool(SAID.replace("EXIT", "exit")), "sm_90a", [("a", bytes(64))])
    with pytest.raises(BuildError, match=r"^nvdisasm does not read code of sm_90a: no such arch$"):
        sass._batch(tool(SAID, 1, "no such arch\\n"), "sm_90a", [("a", bytes(64))])
    with pytest.raises(BuildError, match=r"^nvdisasm does not read code of sm_90a: 3$"):
        sass._batch(tool(SAID, 3), "sm_90a", [("a", bytes(64))])


def test_what_is_counted_is_told_by_name_and_what_there_is_none_of_is_left_out():
    assert sass.counted(lines("MOV R0, R1", "EXIT"), "") == {"instructions": 2}
    entry = sass.counted(
        lines(
            "HMMA.16816.F32 R0", "QGMMA.64x64x32.F32.E4M3.E4M3 R8", "UTCQMMA.2CTA.X gdesc[UR4]", "UTCHMMA gdesc[UR4]", "HMMA.16816.F16 R0",
            "STL [R1]", "LDL.64 R0", "MEMBAR.ALL.CTA", "FENCE.VIEW.ASYNC.S", "CALL.REL.NOINC 0x10", "FADD R0", "LDLX R0", "XHMMA R0",
        ),
        "",
    )  # fmt: skip
    assert entry == {
        "instructions": 13,
        "products": {"HMMA": 2, "QGMMA": 1, "UTCHMMA": 1, "UTCQMMA.2CTA": 1},
        "local": {"LDL.64": 1, "STL": 1},
        "fences": {"FENCE.VIEW.ASYNC.S": 1, "MEMBAR.ALL.CTA": 1},
        "calls": {"CALL.REL.NOINC": 1},
    }
    assert list(entry["products"]) == sorted(entry["products"])


@pytest.mark.parametrize(
    ("opcodes", "ptx", "unwritten"),
    [
        (["MEMBAR.ALL.GPU", "MEMBAR.SC.SYS", "MEMBAR.SC.VC", "MEMBAR.ALL.CTA"], "", 3),
        (["MEMBAR.ALL.GPU"] * 3, "    fence.acq_rel.gpu;\n", 2),
        (["MEMBAR.ALL.GPU"] * 3, "@!%p1 membar.gl;\n  fence.sc.sys;\n", 1),
        (["MEMBAR.ALL.GPU"] * 2, " ld.acquire.gpu.u32 %r1;\n", 2),
        (["MEMBAR.ALL.GPU"] * 2, " atom.acq_rel.gpu.add %r1;\n red.release.sys.add;\n", None),
        (["MEMBAR.ALL.GPU"], " barrier.cluster.arrive.aligned;\n", None),
        (["MEMBAR.ALL.GPU"], " barrier.cluster.arrive.relaxed.aligned;\n", 1),
        (["MEMBAR.ALL.GPU"], " fence.proxy.async.gpu;\n fence.mbarrier_init.release.cluster;\n", 1),
        (["MEMBAR.ALL.GPU"], " fence.acq_rel.gpu;\n fence.acq_rel.gpu;\n", None),
    ],
)
def test_fences_of_the_gpu_are_counted_beyond_those_that_were_written(opcodes, ptx, unwritten):
    assert sass.counted(lines(*opcodes), ptx).get("unwritten") == unwritten


PRODUCT = "UTCHMMA gdesc[UR4]"


def loops(*words, start=0):
    return sass.counted(lines(*words, start=start), "").get("loops")


@pytest.mark.parametrize("start", [0, 0x400])
def test_the_loop_of_a_product_is_the_smallest_around_it(start):
    """Of two loops one in the other; and one behind, without a product."""
    words = [
        "R2UR UR0, R0", "MOV R0", "R2UR.FILL UR1, R1", PRODUCT, PRODUCT, f"@P0 BRA {start + 0x20:#x}".removeprefix("@P0 "),
        "R2UR UR2, R2", PRODUCT, f"BRA.U {start + 0x10:#x}", "MOV R1", f"BRA {start + 0x90:#x} ", PRODUCT,
    ]  # fmt: skip
    assert loops(*words, start=start) == [
        {"instructions": 8, "products": 1, "R2UR": 2},
        {"instructions": 4, "products": 2, "R2UR": 1},
    ]


def test_a_loop_may_be_the_whole_kernel_and_begin_or_end_with_its_product():
    assert loops(PRODUCT, "BRA 0x0") == [{"instructions": 2, "products": 1, "R2UR": 0}]
    assert loops(PRODUCT, "MOV R0", "BRA 0x10") is None
    assert loops("MOV R0", "BRA 0x0", PRODUCT) is None
    assert loops(PRODUCT, "BRA 0x20", "MOV R0") is None  # forward
    assert loops(PRODUCT, "BRA 0x10") is None  # to itself, behind everything
    assert loops("MOV R0", PRODUCT, "BRX R2 0x0", "BRA `(.L_x_1)") is None
    assert loops(PRODUCT, "BRA P0, 0x0") == [{"instructions": 2, "products": 1, "R2UR": 0}]
    assert loops("BRA 0x0", PRODUCT) is None


def test_the_smallest_loop_is_not_the_one_that_ends_or_begins_first():
    few = ["MOV R0"] * 5
    assert loops(*few, PRODUCT, "R2UR UR0, R0", "BRA 0x50", "BRA 0x0") == [{"instructions": 3, "products": 1, "R2UR": 1}]
    assert loops(PRODUCT, "BRA 0x0", *few, "BRA 0x0") == [{"instructions": 2, "products": 1, "R2UR": 0}]


def test_of_two_loops_that_overlap_the_smaller_one_counts():
    assert loops(*["MOV R0"] * 5, PRODUCT, "BRA 0x0", "MOV R0", "BRA 0x40") == [{"instructions": 5, "products": 1, "R2UR": 0}]


def test_products_of_warps_and_what_only_sounds_like_one_have_no_loops():
    assert loops("HGMMA.64x8x16 R0", "BRA 0x0") is None
    assert loops("UTCBAR [UR4]", "BRA 0x0") is None
    assert sass.counted([], "") == {"instructions": 0}


def test_a_line_of_k_is_four_products_of_the_loop_that_takes_fewest_instructions_for_each():
    whole = [PRODUCT] * 8 + ["SYNCS.PHASECHK.TRANS64.TRYWAIT P0", "UTCBAR.2CTA.MULTICAST [UR4]", "UTCBARX", "SYNCS.ARRIVE", "BRA 0x0"]
    rest = [PRODUCT] * 4 + ["CCTL.IVALL", "MOV R0", f"BRA {16 * len(whole):#x}"]
    entry = sass.counted(lines(*whole, *rest), "")
    assert [loop["products"] for loop in entry["loops"]] == [8, 4]
    assert entry["line"] == {"instructions": 6.5, "commits": 0.5, "waits": 0.5, "invalidations": 0}


LOAD, AFTER, BEFORE = (Line(0, opcode, "", control) for opcode, control in (("LDTM.x32", 3 << 5), ("FMUL", 8 << 11), ("FADD", 7 << 11)))


@pytest.mark.parametrize(("instructions", "waited"), [(31, 1), (32, 0)])
def test_a_load_of_tensor_memory_is_in_flight_while_nothing_waits_for_its_own_scoreboard(instructions, waited):
    kept = [LOAD, *[BEFORE] * 40, AFTER]
    assert sass.counted(kept, "")["epilogue"]["waited_loads"] == 0
    assert sass.counted([LOAD, *[BEFORE] * instructions, AFTER, *kept], "")["epilogue"]["waited_loads"] == waited / 2
    assert "epilogue" not in sass.counted([BEFORE, AFTER], "")


def test_stores_of_half_sectors_count_beyond_those_that_stores_of_sectors_replace():
    def halves(*opcodes):
        return sass.counted([LOAD, *lines(*opcodes)], "")["epilogue"]["half_sectors"]

    assert halves(*["STG.E.128"] * 3, "STG.E.U16", "LDG.E.128", "STG.E.ENL2.256") == 1
    assert halves("STG.E.128", "STG.E.ENL2.256") == 0


def test_a_line_of_k_or_an_epilogue_that_exceeds_its_ceiling_or_has_none_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(sass, "CEILINGS", tmp_path / "ceilings.json")
    lines_of_k = {"gemm_*": {"instructions": 60, "commits": 1}, "gemm_wide_*": {"instructions": 70, "commits": 1}}
    sass.CEILINGS.write_text(json.dumps({"line": lines_of_k, "epilogue": {"gemm_*": {"waited_loads": 0.5}}}))
    made = {f"sm_100f/{name}.cubin": {"line": {"instructions": 60.5, "commits": 1}} for name in ("gemm_a", "gemm_wide_a", "other")}
    made["sm_100f/gemm_wide_a.cubin"]["epilogue"] = {"waited_loads": 0.67}
    assert sass.refusals(json.dumps({"cubins": made})) == [
        "sm_100f/gemm_a.cubin: 60.5 instructions a line of K, ceilings.json allows 60",
        "sm_100f/gemm_wide_a.cubin: 0.67 waited_loads in the epilogue, ceilings.json allows 0.5",
        "sm_100f/other.cubin: 60.5 instructions a line of K, ceilings.json allows 0",
        "sm_100f/other.cubin: 1 commits a line of K, ceilings.json allows 0",
    ]


def test_a_product_whose_loop_is_not_found_is_refused_where_a_ceiling_limits_it(monkeypatch, tmp_path):
    """Another ptxas may unroll the loop, or jump back by another instruction: every ceiling would be kept."""
    monkeypatch.setattr(sass, "CEILINGS", tmp_path / "ceilings.json")
    sass.CEILINGS.write_text(
        json.dumps({"epilogue": {}, "line": {"gemm_*": dict.fromkeys(("instructions", "commits", "waits", "invalidations"), 60)}})
    )
    found = {PRODUCT: sass.counted(lines(PRODUCT, "EXIT"), ""), "wgmma": sass.counted(lines("QGMMA R0", "EXIT"), "")}
    made = {
        "gemm_a": found[PRODUCT],
        "gemm_b": sass.counted(lines(PRODUCT, "BRA 0x0"), ""),
        "gemm_c": found["wgmma"],
        "other": found[PRODUCT],
    }
    text = json.dumps({"cubins": {f"sm_100f/{name}.cubin": entry for name, entry in made.items()}})
    assert sass.refusals(text) == ["sm_100f/gemm_a.cubin: no loop around its 1 UTCHMMA, so that ceilings.json limits nothing"]
