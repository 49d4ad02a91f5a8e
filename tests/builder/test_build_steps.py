"""What a build compiles, keeps, writes and removes, and what a compiler's words are made into, step by step; the compiler is a stand-in."""

import hashlib
import json
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.builder.build_trees import TABLE, edited, write_tree
from tools.builder import BuildError, sass
from tools.builder import build as builds
from tools.builder.build import Build, Selection
from tools.builder.compiler import Compiled, Compiler, Text, _text
from zoo.errors import IntegrityError
from zoo.shipped import ptx

NAME = "quantize.mxfp8.rows"
EVERY = [
    f"{arch}/quantize_mxfp8_rows__{mode}_{tile}" for arch in ("sm_90a", "sm_100f") for mode in ("once", "twice") for tile in ("t64", "t128")
]


class Stub:
    """Makes of a unit its symbol and its digest; what it was asked for, in any order."""

    def __init__(self):
        self.record = {"nvcc": "1"}
        self.compiled_files, self.texts, self.stopped, self.fails = [], [], 0, {}

    def _name(self, unit, arch):
        return f"{arch}/{re.search(r'ZOO_KERNEL (.+)', unit)[1]}"

    def text(self, unit, arch, roots):
        self.texts.append(self._name(unit, arch))
        return Text(f"text of {unit}", 16)

    def compiled(self, unit, arch, roots):
        name = self._name(unit, arch)
        self.compiled_files.append(name)
        error = next((error for part, error in self.fails.items() if part in name), None)
        if error:
            raise error
        symbol = name.split("/")[1]
        return Compiled(Text(f"text of {unit}", 16), f"{symbol} {hashlib.sha256((unit + arch).encode()).hexdigest()}".encode(), 0, 0)

    def stop(self):
        self.stopped += 1


def read_cubin(data):
    symbol, _ = data.decode().split()
    threads = int(symbol.rpartition("_t")[2])
    return SimpleNamespace(kernels={symbol: SimpleNamespace(threads=(threads, 1, 1), registers=8, static_shared=4, stack=0)})


def report(cubins, texts, before, jobs):
    assert cubins.keys() == texts.keys() and all(texts[file].startswith("text of ") and b" " in data for file, data in cubins.items())
    return json.dumps({"cubins": {file: {} for file in cubins}, "jobs": min(jobs, 1)})


@pytest.fixture
def place(tmp_path, monkeypatch):
    """build(selection=..., pins=..., stub=...) of a tree in a folder, whose cubins nobody else would read."""
    monkeypatch.setattr(builds, "read_cubin", read_cubin)
    monkeypatch.setattr(builds, "disagreements", lambda kernel, variant, data: [])
    monkeypatch.setattr(sass, "disassembler", lambda: None)
    monkeypatch.setattr(sass, "report", report)
    source, output = tmp_path / "source", tmp_path / "cubins"
    write_tree(source)

    def build(stub=None, pins=None, jobs=1):
        return Build(stub or Stub(), [source], output, pins, jobs)

    return SimpleNamespace(build=build, source=source, output=output, folder=tmp_path)


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def kernels(place):
    return json.loads((place.output / "manifest.json").read_text())["kernels"]


def test_all_is_written_and_then_nothing_is_compiled_again(place):
    stub = Stub()
    made = place.build(stub)
    assert made.count == 8 == len(made.units)
    assert made.run(Selection()) == "8 variants, 8 cubins, 0.00 MB: 8 compiled, 8 changed, 0 removed"
    assert sorted(stub.compiled_files) == sorted(EVERY)
    written = files(place.output)
    assert set(written) == {"manifest.json", ptx.FILE, *(f"{name}.cubin" for name in EVERY)}
    manifest = json.loads(written["manifest.json"])
    assert (
        manifest["compiler"] == stub.record
        and manifest["ptx"] == ptx.digest(ptx.read(place.output / ptx.FILE))
        and list(kernels(place)) == [NAME]
    )
    variants = kernels(place)[NAME]["variants"]
    assert [one["file"] for one in variants] == [f"{name}.cubin" for name in EVERY]
    for one in variants:
        data = written[one["file"]]
        assert (one["bytes"], one["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        said = (one["shared"], one["spill_stores"], one["spill_loads"], one["registers"], one["static_shared"], one["stack"])
        assert said == (16, 0, 0, 8, 4, 0) and one["threads"] == one["constants"]["THREADS"]
    again = Stub()
    assert place.build(again).run(Selection()) == "8 variants, 8 cubins, 0.00 MB: 0 compiled, 0 changed, 0 removed"
    assert again.compiled_files == again.texts == [] and files(place.output) == written


def test_what_is_selected_is_built_and_the_rest_is_said_to_be_missing(place):
    stub = Stub()
    said = place.build(stub).run(Selection(("sm_90a",), "*_t64"))
    assert said == (
        "2 variants, 2 cubins, 0.00 MB: 2 compiled, 2 changed, 0 removed\n"
        "6 variants are out of date or not built yet, and not in the manifest; run without --arch and --only"
    )
    assert sorted(stub.compiled_files) == [name for name in sorted(EVERY) if "90a" in name and name.endswith("_t64")]
    assert (
        place.build()
        .run(Selection(("sm_90a",), NAME))
        .startswith("4 variants, 4 cubins, 0.00 MB: 2 compiled, 2 changed, 0 removed\n4 variants are")
    )
    assert place.build().run(Selection(pattern=f"{NAME} twice_*")).startswith("6 variants, 6 cubins, 0.00 MB: 2 compiled, 2 changed")
    for selection in (Selection(("sm_80",)), Selection(pattern="gemm.*")):
        with pytest.raises(BuildError, match=rf"no variant is selected; kernels: {NAME}; archs: sm_90a, sm_100f$"):
            place.build().run(selection)
        with pytest.raises(BuildError, match="no variant is selected"):
            place.build().write_ptx(selection, place.folder / "texts")


def test_a_change_compiles_what_it_touches_and_what_nobody_has_any_more_goes(place):
    place.build().run(Selection())
    table = edited(TABLE, ("THREADS = 64", "THREADS = 96"), ('["sm_90a", "sm_100f"]', '["sm_90a"]'), ('name = "t64"', 'name = "t96"'))
    write_tree(place.source, table)
    (place.output / "sm_80").mkdir()
    (place.output / "other").mkdir()
    stub = Stub()
    assert place.build(stub).run(Selection()) == "4 variants, 4 cubins, 0.00 MB: 2 compiled, 2 changed, 6 removed"
    assert all(name.endswith("_t96") for name in stub.compiled_files) and not (place.output / "sm_100f").exists()
    assert (place.output / "other").is_dir() and {one["file"][:6] for one in kernels(place)[NAME]["variants"]} == {"sm_90a"}
    assert len(ptx.read(place.output / ptx.FILE)) == 4


def without(text, *path):
    data = json.loads(text)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return json.dumps(data)


@pytest.mark.parametrize(
    ("spoil", "compiled"),
    [
        (lambda text: text.replace('"nvcc": "1"', '"nvcc": "0"'), 8),
        (lambda text: "no manifest", 8),
        (lambda text: "[]", 8),
        (lambda text: without(text, "compiler"), 8),
        (lambda text: without(text, "kernels", NAME, "variants"), 8),
        (lambda text: without(text, "ptx"), 0),
        (lambda text: without(text, "kernels", NAME, "variants", 2, "shared"), 1),
        (lambda text: without(text, "kernels", NAME, "variants", 2, "source_sha256"), 1),
    ],
)
def test_what_the_manifest_on_disk_does_not_vouch_for_is_built_again(place, spoil, compiled):
    place.build().run(Selection())
    whole, path = files(place.output), place.output / "manifest.json"
    path.write_text(spoil(path.read_text()))
    stub = Stub()
    place.build(stub).run(Selection())
    assert len(stub.compiled_files) == compiled and files(place.output) == whole


def test_texts_that_are_not_the_manifests_are_made_again_without_a_cubin(place):
    place.build().run(Selection())
    whole = files(place.output)
    archive = place.output / ptx.FILE
    texts = ptx.read(archive)
    other = texts | {min(texts): b"another"}
    for spoilt in (None, b"no archive", ptx.pack(other), ptx.pack({name: texts[name] for name in sorted(texts)[1:]})):
        archive.unlink()
        if spoilt is not None:
            archive.write_bytes(spoilt)
        stub = Stub()
        assert place.build(stub).run(Selection()) == "8 variants, 8 cubins, 0.00 MB: 0 compiled, 0 changed, 0 removed"
        assert sorted(stub.texts) == sorted(EVERY) and stub.compiled_files == []
        assert ptx.read(archive) == texts and files(place.output)["manifest.json"] == whole["manifest.json"]


def test_a_damaged_cubin_is_built_again_and_its_neighbours_are_not(place):
    place.build().run(Selection())
    whole = files(place.output)
    (place.output / f"{EVERY[3]}.cubin").write_bytes(b"x")
    (place.output / f"{EVERY[5]}.cubin").unlink()
    stub = Stub()
    assert place.build(stub).run(Selection()) == "8 variants, 8 cubins, 0.00 MB: 2 compiled, 2 changed, 0 removed"
    assert sorted(stub.compiled_files) == sorted((EVERY[3], EVERY[5])) and files(place.output) == whole


def test_a_check_names_what_differs_and_changes_nothing(place):
    pins = place.folder / "pins.py"
    place.build(pins=pins).run(Selection())
    assert place.build(pins=pins, jobs=2).check() == []
    whole = files(place.output)
    assert set(whole) >= {sass.FILE} and hashlib.sha256(whole["manifest.json"]).hexdigest() in pins.read_text()
    cubin, gone, stale = (place.output / f"{name}.cubin" for name in (EVERY[0], EVERY[1], "sm_90a/old"))
    cubin.write_bytes(b"x")
    gone.unlink()
    stale.write_bytes(b"y")
    for path in (place.output / sass.FILE, pins, place.output / "manifest.json"):
        path.write_text("other")
    (place.output / ptx.FILE).write_bytes(ptx.pack({}))
    before = files(place.folder)
    assert sorted(place.build(pins=pins).check()) == sorted(
        [
            f"{place.output / ptx.FILE}: differs", f"{cubin}: differs", f"{gone}: missing", f"{place.output / 'manifest.json'}: differs",
            f"{place.output / sass.FILE}: differs", f"{pins}: differs", f"{stale}: no table has this variant",
        ]
    )  # fmt: skip
    assert files(place.folder) == before
    assert len(place.build().check()) == 5  # without pins, a report and pins are no part of it


def test_machine_code_with_what_no_kernel_may_have_is_not_written(place, monkeypatch):
    monkeypatch.setattr(sass, "refusals", lambda said: ["a: local", "b: local"])
    with pytest.raises(BuildError, match="the machine code has what no kernel may have\na: local\nb: local"):
        place.build(pins=place.folder / "pins.py").run(Selection())
    assert files(place.output) == {} and place.build().run(Selection()).startswith("8 variants")


def test_texts_alone_are_written_where_they_are_wanted(place):
    stub, folder = Stub(), place.folder / "texts"
    assert place.build(stub).write_ptx(Selection(("sm_100f",)), folder) == 4
    assert (
        set(files(folder)) == {f"{name}.ptx" for name in EVERY if "100f" in name}
        and stub.compiled_files == []
        and not place.output.exists()
    )


def test_every_failure_is_told_once_with_whom_it_is_about(place):
    stub = Stub()
    stub.fails = {"once": BuildError("first"), "sm_90a/quantize_mxfp8_rows__twice_t64": BuildError("second")}
    with pytest.raises(BuildError) as refused:
        place.build(stub).run(Selection())
    one, two = str(refused.value).split("\n\n")
    source = place.source / "quantize/kernels/copy.cu"
    assert one == (
        f"{NAME} once_t128 (sm_100f) does not compile: {source}\nfirst\n"
        "and 3 more alike: once_t128 (sm_90a), once_t64 (sm_100f), once_t64 (sm_90a)"
    )
    assert two == f"{NAME} twice_t64 (sm_90a) does not compile: {source}\nsecond"
    assert len(stub.compiled_files) == 8 and stub.stopped == 0 and files(place.output) == {}


def test_what_is_being_compiled_is_ended_by_ctrl_c_and_what_waits_is_not_begun(place):
    class Slow(Stub):
        def __init__(self):
            super().__init__()
            self.end, self.ended = threading.Event(), []
            self.fails = {EVERY[0]: KeyboardInterrupt()}

        def compiled(self, unit, arch, roots):
            made = super().compiled(unit, arch, roots)
            self.ended.append(self.end.wait(5))
            return made

        def stop(self):
            super().stop()
            self.end.set()

    stub = Slow()
    with pytest.raises(KeyboardInterrupt):
        place.build(stub).run(Selection())
    assert stub.stopped == 1 and all(stub.ended) and len(stub.compiled_files) < 4


def test_a_bar_is_shown_where_there_is_something_to_compile(place, capsys):
    place.build().run(Selection())
    assert "compiling" in capsys.readouterr().err
    place.build().run(Selection())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("kernels_found", "words"),
    [
        ({"other": None}, "must define one kernel, ZOO_KERNEL (quantize_mxfp8_rows__once_t64); it defines other"),
        ({}, "it defines none"),
        ({"quantize_mxfp8_rows__once_t64": None, "other": None}, "it defines quantize_mxfp8_rows__once_t64, other"),
        (
            {"quantize_mxfp8_rows__once_t64": SimpleNamespace(threads=None)},
            "must say of ZOO_KERNEL how many threads it has: __launch_bounds__(...)",
        ),
    ],
)
def test_a_cubin_of_another_kernel_is_no_variant(place, monkeypatch, kernels_found, words):
    monkeypatch.setattr(builds, "read_cubin", lambda data: SimpleNamespace(kernels=kernels_found))
    with pytest.raises(BuildError) as refused:
        place.build().run(Selection())
    assert words in str(refused.value) and str(refused.value).startswith(f"{NAME} once_t64 (sm_90a): ")


def test_what_readers_would_refuse_is_told_with_its_source(place, monkeypatch):
    def unreadable(data):
        raise IntegrityError("no ELF")

    with monkeypatch.context() as patched:
        patched.setattr(builds, "read_cubin", unreadable)
        with pytest.raises(BuildError, match=r"once_t64 \(sm_90a\): the compiler's output is not readable: no ELF"):
            place.build().run(Selection())

    def disagreeing(kernel, variant, data):
        assert data == f"{variant.symbol} ".encode() + data.split()[1]
        if variant.name == "twice_t64" and variant.arch == "sm_100f":
            raise IntegrityError("of another arch")
        return ["one", "two"] if variant.name == "once_t64" and variant.arch == "sm_90a" else []

    monkeypatch.setattr(builds, "disagreements", disagreeing)
    with pytest.raises(BuildError) as refused:
        place.build().run(Selection())
    source = place.source / "quantize/kernels/copy.cu"
    assert str(refused.value).splitlines() == [
        "the compiled kernels are not what the tables say",
        f"{NAME} once_t64 (sm_90a, {source}): one", f"{NAME} once_t64 (sm_90a, {source}): two", f"{NAME} twice_t64 (sm_100f, {source}): of another arch",
    ]  # fmt: skip


def test_tables_and_entries_that_readers_would_refuse_are_refused_with_their_words(place, monkeypatch):
    write_tree(place.source, edited(TABLE, ("K % 4 == 0", "N % 4 == 0")))
    with pytest.raises(BuildError, match="reads 'N'"):
        place.build()
    write_tree(place.source)

    def refusing(name, entry):
        raise IntegrityError(f"{name}: no such thing")

    monkeypatch.setattr(builds, "parse_kernel", refusing)
    with pytest.raises(BuildError, match=f"^{NAME}: no such thing"):
        place.build().run(Selection())


def test_a_place_that_is_no_folder_is_refused_before_anything_is_compiled(place, monkeypatch):
    stub = Stub()
    place.output.write_text("a file")
    for step in (place.build(stub).run, lambda selection: place.build(stub).write_ptx(selection, place.output)):
        with pytest.raises(BuildError, match=f"cannot write to {place.output}: {place.output} is not a directory"):
            step(Selection())
    assert stub.texts == []
    place.output.unlink()
    monkeypatch.setattr(builds.os, "access", lambda path, mode: mode != builds.os.W_OK | builds.os.X_OK)
    with pytest.raises(BuildError, match=f"cannot write to {place.output}: nobody may write to {place.folder} as this user"):
        place.build(stub).run(Selection())
    assert stub.compiled_files == []


def test_what_a_killed_build_left_goes_and_a_missing_disassembler_is_told_first(place, monkeypatch):
    pins, stub = place.folder / "pins" / "pins.py", Stub()
    left = [folder / ".a.77.new" for folder in (place.output, place.output / "sm_90a", pins.parent)]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with monkeypatch.context() as patched:
        patched.setattr(sass, "disassembler", None)
        with pytest.raises(TypeError):
            place.build(stub, pins).run(Selection())
        assert stub.compiled_files == [] and all(path.exists() for path in left)
        place.build(stub).run(Selection())
    assert [path.exists() for path in left] == [False, False, True]
    place.build(stub, pins).run(Selection())
    assert not left[-1].exists()


def test_evidence_of_what_no_longer_exists_goes(place, monkeypatch):
    kept = []

    class Evidence:
        def __init__(self, folder):
            assert folder == place.output

        def keep_only(self, variants):
            kept.append({one.file for one in variants})

        def write(self):
            kept.append("written")

    monkeypatch.setattr(builds, "Evidence", Evidence)
    place.build().run(Selection())
    assert kept == []
    (place.output / "evidence.json").write_text("{}")
    place.build().run(Selection(("sm_90a",)))
    assert kept == [{f"{name}.cubin" for name in EVERY}, "written"]


# ---- the compiler's words


def stopped_compiler(nvcc):
    made = Compiler.__new__(Compiler)
    made.nvcc, made._running, made._stopped, made._lock = nvcc, set(), False, threading.Lock()
    return made


@pytest.fixture
def nvcc(tmp_path):
    """A program in the compiler's place."""

    def of(text):
        path = tmp_path / "nvcc"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)
        return stopped_compiler(path)

    return of


USUAL = (
    "ptxas info    : Used 8 registers\n    0 bytes stack frame, 12 bytes spill stores, 7 bytes spill loads\n\nptxas info : 0 bytes gmem\n"
)


def test_what_is_usual_is_no_failure_and_anything_else_is(nvcc, tmp_path):
    assert (
        nvcc(f"printf '{USUAL}' >&2; echo 'ptxas info : Compiling entry'")
        ._run([], tmp_path, "x")
        .startswith("ptxas info : Compiling entry\n")
    )
    for said, words in (
        ("echo odd; printf 'ptxas info : (C7510) Potential\\n' >&2", "odd\nptxas info : (C7510) Potential"),
        ("echo bad >&2; exit 2", "bad"),
        ("exit 3", "nvcc ended with status 3 and no message"),
        ("echo './a.cu(3): no'; exit 1", f"{tmp_path}/a.cu(3): no"),
        ("echo 'in \"/x/tmpxft_00.cpp\" no'; exit 1", "in this variant no"),
        ("echo 'gcc: not found'; exit 1", "gcc: not found\nnvcc preprocesses with the host's C++ compiler: install gcc"),
        ("echo 'gcc: found'; exit 1", "gcc: found"),
    ):
        compiler = nvcc(said)
        with pytest.raises(BuildError) as refused:
            compiler._run([], tmp_path, "x")
        assert str(refused.value) == words and compiler._running == set()


def test_a_compiler_gets_its_text_its_folder_and_no_stray_variables(nvcc, tmp_path, monkeypatch):
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    monkeypatch.setenv("KEPT", "yes")
    compiler = nvcc(f'cat > {tmp_path}/in; echo "$@ $PWD $TMPDIR $NVCC_APPEND_FLAGS $KEPT $(ps -o sid= -p $$)" > {tmp_path}/asked')
    (tmp_path / "folder").mkdir()
    assert compiler._run(["-a", "b"], tmp_path / "folder", "scratch", "the unit") == ""
    *asked, session = (tmp_path / "asked").read_text().split()
    assert asked == ["-a", "b", str(tmp_path / "folder"), "scratch", "yes"] and int(session) != builds.os.getsid(0)
    assert (tmp_path / "in").read_text() == "the unit"


def test_a_compiler_that_was_stopped_starts_nothing_and_ends_what_runs(nvcc, tmp_path):
    compiler, ended = nvcc("sleep 60"), []

    def work():
        with pytest.raises(BuildError):
            compiler._run([], tmp_path, "x")
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    while not compiler._running:
        pass
    compiler.stop()
    thread.join(20)
    assert ended == [True]
    with pytest.raises(BuildError, match=r"^the build was stopped$"):
        compiler._run([], tmp_path, "x")


def test_spills_of_all_kernels_are_added_up(monkeypatch, tmp_path):
    compiler, asked = stopped_compiler("nvcc"), []

    def run(arguments, folder, scratch, text=""):
        asked.append(arguments)
        if "-ptx" in arguments:
            Path(arguments[arguments.index("-o") + 1]).write_text(
                ".global .align 4 .u32 zoo_dynamic_shared_bytes = 64;\n.extern .shared x;\n"
            )
            assert text.startswith("unit") and folder == tmp_path
            return ""
        assert Path(folder, "in.ptx").read_text() == ".extern .shared x;\n" and str(folder) == scratch
        Path(folder, "out.cubin").write_bytes(b"\0cubin")
        return USUAL + "    0 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads\n"

    monkeypatch.setattr(compiler, "_run", run)
    made = compiler.compiled("unit", "sm_90a", [tmp_path, tmp_path / "other"])
    assert made == Compiled(Text(".extern .shared x;\n", 64), b"\0cubin", 13, 9)
    first, second = asked
    assert first[:4] == ["-x", "cu", "-ptx", "-arch=sm_90a"] and [one for one in first if one.startswith("-I")] == [
        "-I.",
        f"-I{tmp_path / 'other'}",
    ]
    assert second[:2] == ["-cubin", "-arch=sm_90a"] and second[-3:] == ["-o", "out.cubin", "in.ptx"]


@pytest.mark.parametrize(
    ("cubin", "shown"),
    [
        (b"abc\0of/{root}/a.cu\0x", "of/{root}/a.cu"), (b"{root}/a.cu\0x", "{root}/a.cu"), (b"a\0" + b"y" * 300 + b"/tmpxft_0\0", "y" * 199 + "/tmpxft_0"),
        (b"tmpxft\0", "tmpxft"),
    ],
)  # fmt: skip
def test_a_path_in_a_cubin_is_refused_with_the_name_that_holds_it(tmp_path, cubin, shown):
    Compiler._refuse_paths(b"nothing of the kind\0", [tmp_path])
    root = str(tmp_path.resolve())
    with pytest.raises(BuildError) as refused:
        Compiler._refuse_paths(cubin.replace(b"{root}", root.encode()), [Path("/nowhere"), tmp_path])
    assert f"the cubin holds '{shown.replace('{root}', root)}', which changes from build to build" in str(refused.value)


SAID = ".global .align 4 .u32 zoo_dynamic_shared_bytes{};\n"


def test_dynamic_shared_memory_is_said_where_there_is_some_and_nowhere_else():
    assert _text(f"a\n{SAID.format(' = 16')}.extern .shared b\n") == Text("a\n.extern .shared b\n", 16)
    assert _text(f"a\n{SAID.format('')}b\n") == Text("a\nb\n", 0)
    for text, words in (
        ("a\n", "does not hold zoo::DYNAMIC_SHARED_BYTES as expected"),
        (SAID.format("") + ".extern .shared b", "has extern __shared__ memory; say how much"),
        (SAID.format(" = 8"), "zoo::DYNAMIC_SHARED_BYTES is 8, but no extern __shared__ memory is used; remove it"),
    ):
        with pytest.raises(BuildError, match=words):
            _text(text)


def test_two_variants_of_one_symbol_are_refused(place, monkeypatch):
    one, other = (
        SimpleNamespace(file="a.cubin", words=f"{name} one", symbol="a", owner=name, table=SimpleNamespace(name=name)) for name in "kl"
    )
    assert builds._owners([one, one]) == {"a.cubin": one}
    with pytest.raises(BuildError, match=r"^l one and k one have one symbol, a; rename a tile$"):
        builds._owners([one, other])
    usual = builds.expand
    monkeypatch.setattr(builds, "expand", lambda table: [*usual(table), *usual(table)[:1]])
    with pytest.raises(BuildError, match=rf"^{NAME} once_t64 \(sm_90a\) and {NAME} once_t64 \(sm_90a\) have one symbol, "):
        place.build()
