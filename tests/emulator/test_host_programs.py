"""`zoo emulate PROGRAM`: a CUDA program over the stand-in for the runtime and the driver. One program, compiled once, has several modes."""

import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from core_support import kernel
from host_compiler import PROGRAMS, compiled

from zoo import emulator
from zoo.cli import main
from zoo.emulator.device import Device
from zoo.emulator.errors import EmulatorError, LaunchError
from zoo.emulator.im2col import MODES, read
from zoo.emulator.program import start
from zoo.emulator.program.fat_binary import MAGIC, texts
from zoo.emulator.program.linked import functions_of
from zoo.emulator.program.requests import _NAMES, INVALID_VALUE, LAUNCH_FAILURE, SUCCESS, Refusal, Requests, Seen

SOURCE = PROGRAMS / "host_program.cu"
pytestmark = pytest.mark.skipif(not (sys.platform == "linux" and shutil.which("cc")), reason="a C compiler makes the stand-in")


@pytest.fixture(scope="session")
def program(folder_of_the_run):
    return compiled(SOURCE.name, folder_of_the_run)


def test_a_program_that_is_right_ends_well_and_without_findings(program, capfd):
    result = start(program, ["right"], jobs=2)
    assert (result.status, result.causes, result.seen.refusals, result.failed()) == (0, [], [], False), capfd.readouterr().out
    assert result.seen.arch == "sm_90a"
    assert capfd.readouterr().out == "kernel says 2\n"
    counts = {launches.kernel: launches.count for schedule, launches in result.reports if schedule == "last"}
    assert counts == {
        "_Z3addPKfS0_Pfi": 3, "_Z10neighboursPj": 1, "_Z10sum_of_allPKiPiS1_": 1, "_Z7reversePib": 1, "_Z8load_box14CUtensorMap_stPi": 1, "plus": 1,
        "_Z11load_pixels14CUtensorMap_stPi": 1, "_Z5helloi": 1,
    }  # fmt: skip
    said = " ".join(result.seen.notes)
    for words in (
        "4224 CTAs fit the GPU",
        "MaxDynamicSharedMemorySize is 49152",
        "1 to 1024 threads",
        "stride of dimension 1 is 132 bytes",
        "sum_of_allPKiPiS1_ ran in one process: the launch is cooperative",
    ):
        assert words in said


def lines_of(*texts_of_lines):
    source = SOURCE.read_text().splitlines()
    return [next(number for number, line in enumerate(source, 1) if text in line) for text in texts_of_lines]


def test_findings_of_all_launches_are_shown_by_cause_and_kernel(program):
    ran = CliRunner().invoke(main, ["emulate", "--schedules", "1", str(program), "wrong"])
    past, store, load = lines_of("x[i] = 1;", "row[threadIdx.x] = x", "row[blockDim.x - 1")
    assert ran.exit_code == 1
    words = " ".join(ran.output.split())
    assert f"host_program.cu:{past} (1 time)" in words
    assert "kernel past_the_end(float*, int)" in words
    assert f"host_program.cu:{store}" in words and f"host_program.cu:{load}" in words
    assert "kernel reverse(int*, bool)" in words
    assert "emulated 3 launches of 2 kernels on sm_90a, 1 schedule," in words
    assert words.endswith("result 2 errors")


def test_a_program_sets_the_stack_of_its_threads_and_an_overflow_ends_its_launches(program, capfd):
    """It also hands a kernel a function's address, which it read from a variable of the device."""
    result = start(program, ["stack"], count=1)
    assert (result.status, result.seen.refusals) == (0, []), capfd.readouterr().out
    (cause,) = result.causes
    assert cause.kind == "stack-overflow" and "a thread has 1,024" in cause.findings[0].message
    assert cause.findings[0].source.endswith(f"host_program.cu:{lines_of('found = below')[0]}")


def test_what_is_not_covered_ends_the_program_by_its_name(program, capfd):
    result = start(program, ["refused"])
    assert result.seen.refusals == ["the program calls cudaImportExternalMemory, which is not covered"]
    assert (result.status, result.failed()) == (1, True)
    assert capfd.readouterr().out == "before\n"


def test_a_managed_variable_is_refused_by_its_name(tmp_path):
    (tmp_path / "a.c").write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\nint main() {\n"
        'void (*registers)(int, int, int, const char *) = dlsym(RTLD_DEFAULT, "__cudaRegisterManagedVar");\nregisters(0, 0, 0, "total");\n}\n'
    )
    subprocess.run(["cc", "-o", tmp_path / "a", tmp_path / "a.c", "-ldl"], check=True)
    assert start(tmp_path / "a", []).seen.refusals == ["the variable total is __managed__, which is not covered: use cudaMallocManaged"]


LINKED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
typedef struct { unsigned x, y, z; } dim3;
static char file[4096] __attribute__((aligned(16)));
int main(int count, char **words)
{
    fread(file, 1, sizeof file, fopen(words[1], "rb"));
    const void *files[] = {file, count > 2 ? file : NULL, NULL};
    struct { int magic, version; const void *data; const void **files; } binary = {0x466243B1, 2, "a cubin", files};
    void *(*registers)(void *) = dlsym(RTLD_DEFAULT, "__cudaRegisterFatBinary");
    void (*names)(void *, const void *, char *, const char *) = dlsym(RTLD_DEFAULT, "__cudaRegisterFunction");
    int (*launch)(const void *, dim3, dim3, void **, size_t, void *) = dlsym(RTLD_DEFAULT, "cudaLaunchKernel");
    names(registers(&binary), main, NULL, "k");
    return launch(main, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL);
}
"""


def test_device_code_that_nvcc_linked_of_one_file_runs(tmp_path):
    """nvcc -rdc=true embeds a linked cubin, and the PTX of each file beside it."""
    ptx = kernel("mov.u32 %r1, 1;", parameters=0).encode()
    (tmp_path / "file").write_bytes(fat_binary((1, ptx, 0, 0)))
    (tmp_path / "a.c").write_text(LINKED)
    subprocess.run(["cc", "-w", "-o", tmp_path / "a", tmp_path / "a.c", "-ldl"], check=True)
    result = start(tmp_path / "a", [str(tmp_path / "file")])
    assert (result.status, result.seen.refusals, len(result.reports)) == (0, [], 2)
    (refusal,) = start(tmp_path / "a", [str(tmp_path / "file"), "twice"]).seen.refusals
    assert "several files" in refusal


def test_words_behind_a_program_are_the_programs_own():
    def emulate(*words):
        ran = CliRunner().invoke(main, ["emulate", *words])
        return ran.exit_code, ran.output

    code, output = emulate("sh", "-c", 'test "$1 $2" = "--strict --json" && exit 7', "sh", "--strict", "--json")
    assert code == 1 and "sh ended with status 7" in output
    code, output = emulate("--grid", "4", "sh")
    assert code == 2 and "--grid is for a file of PTX, and sh is a program" in output
    assert "architecture 'sm_1' is not covered" in emulate("--arch", "sm_1", "sh")[1]
    assert "no file 'no/such', and no program" in emulate("no/such", "word")[1]
    code, output = emulate(__file__, "word", "--grid", "1")
    assert code == 2 and "unexpected word" in output


def test_a_program_with_the_runtime_inside_says_how_to_compile_it(tmp_path):
    (tmp_path / "a.c").write_text('__attribute__((section(".nv_fatbin"))) int kernels = 1;\nint main() { return 0; }\n')
    subprocess.run(["cc", "-o", tmp_path / "a", tmp_path / "a.c"], check=True)
    with pytest.raises(LaunchError, match="contains the CUDA runtime itself: compile it with nvcc -cudart shared"):
        functions_of(tmp_path / "a")


# ---- fat binaries
def fat_binary(*entries):
    """(kind, payload, flags, unpacked size) each."""
    body = b""
    for kind, payload, flags, size in entries:
        header = struct.pack("<HHIQI20xQ8xQ", kind, 0x101, 64, len(payload), len(payload) if flags else 0, flags, size)
        body += header + payload
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(body)) + body


def test_of_a_fat_binary_the_ptx_is_read_and_the_cubin_is_not():
    found = texts(fat_binary((2, b"\x7fELF....", 0, 0), (1, b".target sm_80\n\0", 0, 0), (1, b".target sm_90a\n\0\0", 0, 0)))
    assert [(text.target, text.ptx) for text in found] == [("sm_80", ".target sm_80\n"), ("sm_90a", ".target sm_90a\n")]
    assert max(found).target == "sm_90a"


def test_lz4_copies_may_overlap_what_they_write_and_damage_is_refused():
    text = b".target sm_90\n" + b"ab" * 160 + b"end"
    # 16 literals (1 beyond 15), then a copy of 318 = 4 + 15 + 255 + 44 bytes from 2 back, then 3 literals
    packed = bytes([0xFF, 1]) + text[:16] + bytes([2, 0, 255, 44, 0x30]) + b"end"
    (found,) = texts(fat_binary((1, packed, 0x2000, len(text))))
    assert found.ptx.encode() == text
    for damaged in (packed[:-4], packed[:18] + b"\xff" + packed[19:], packed.replace(b"end", b"ending")):
        with pytest.raises(EmulatorError, match="damaged"):
            texts(fat_binary((1, damaged, 0x2000, len(text))))
    with pytest.raises(EmulatorError, match="ends outside"):
        texts(fat_binary((1, text, 0, 0))[:-1])


# ---- requests without a process
def asked(requests, name, *arguments, data=b""):
    return requests.answer(_NAMES.index(name), (*arguments, *[0] * (12 - len(arguments))), data)


def test_the_requests_are_numbered_as_in_c():
    header = (SOURCE.parents[3] / "zoo" / "emulator" / "program" / "stand_in.h").read_text()
    names = header.partition("enum request {")[2].partition("}")[0].replace(",", " ").split()
    assert tuple(name.lower() for name in names) == _NAMES


def launched(requests, entry, text, data=b""):
    _, (module, *_), _ = asked(requests, "module", data=text.encode())
    error, (function, *_), _ = asked(requests, "function", module, data=entry)
    assert error == SUCCESS
    return asked(requests, "launch", function, 1, 1, 1, 32, 1, 1, data=data)


def test_a_cooperative_grid_has_a_barrier_and_as_many_resident_ctas_as_it_has():
    """What cooperative_groups' grid.sync() is compiled to: the barrier is the second word behind %envreg1 and %envreg2."""
    body = """
    mov.u32 %r1, %envreg2;
    mov.u32 %r2, %envreg1;
    mov.b64 %rd1, {%r1, %r2};
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %nctaid.x;
    setp.ne.u32 %p0, %r3, 0;
    sub.u32 %r5, 0x80000001, %r4;
    selp.u32 %r5, 1, %r5, %p0;
    atom.add.release.gpu.u32 %r6, [%rd1+4], %r5;
wait:
    ld.acquire.gpu.u32 %r7, [%rd1+4];
    xor.b32 %r7, %r7, %r6;
    setp.ge.s32 %p1, %r7, 0;
    @%p1 bra wait;
    mul.wide.u32 %rd2, %r3, 4;
    add.u64 %rd2, %rd2, %rd0;
    st.global.u32 [%rd2], %r3;
    """
    gpu, module = emulator.Device("sm_90a", multiprocessors=2), emulator.Module(kernel(body, parameters=1))
    out = gpu.alloc(20)
    report = gpu.launch(module, "k", 5, 1, params=[out], cooperative=True)
    assert report.ok, report
    assert gpu.read(out, 5, np.uint32).tolist() == [0, 1, 2, 3, 4]
    without = gpu.launch(module, "k", 1, 1, params=[out])
    assert {finding.kind for finding in without.findings} == {"out-of-bounds"}


def test_a_kernel_that_traps_leaves_a_device_that_only_fails():
    requests = Requests(Seen(), None, 1, 0, 1)
    assert asked(requests, "allocate", 64, 512)[0] == SUCCESS
    assert launched(requests, b"k", kernel("trap;", parameters=0))[0] == LAUNCH_FAILURE
    assert asked(requests, "allocate", 64, 512)[0] == LAUNCH_FAILURE


def test_every_schedule_of_a_launch_begins_with_the_same_memory():
    add = "ld.global.u32 %r1, [%rd0];\n add.u32 %r1, %r1, 1;\n st.global.u32 [%rd0], %r1;"
    requests = Requests(Seen(), None, 3, 0, 1)
    _, (address, *_), _ = asked(requests, "allocate", 4, 512)
    asked(requests, "write", address, data=b"\x05\0\0\0")
    assert launched(requests, b"k", kernel(add, parameters=1), struct.pack("<Q", address))[0] == SUCCESS
    assert asked(requests, "read", address, 4)[2] == b"\x06\0\0\0"


def test_ptx_for_another_gpu_is_refused_by_both_names():
    requests = Requests(Seen(), "sm_100a", 1, 0, 1)
    _, (module, *_), _ = asked(requests, "module", data=kernel("", parameters=0).encode())
    with pytest.raises(Refusal, match="PTX for sm_90a only, for a GPU of sm_100a: compile with nvcc -arch=sm_100a"):
        asked(requests, "function", module, data=b"k")


@pytest.mark.parametrize("mode", MODES)
def test_a_map_of_pixels_has_its_mode_and_corners(mode):
    requests = Requests(Seen(), "sm_100a", 1, 0, 1)
    _, (address, *_), _ = asked(requests, "allocate", 4096, 512)
    corners = [(-1, 1), (-2, 2)] if mode == "im2col" else [(-1, 1)]
    numbers = np.zeros((5, 5), np.int64)
    numbers[:4, :3] = (32, 64, 1), (8, 512, 1), (4, 4096, 1), (2, 0, 1)  # elements, stride of the next, step
    numbers[: len(corners), 3:] = corners
    bf16, swizzle = 9, 2
    error, _, found = asked(requests, "im2col_map", bf16, 4, address, 0, swizzle, 0, 0, 32, 16, MODES.index(mode), data=numbers.tobytes())
    assert error == SUCCESS
    wanted = Device("sm_100a").im2col_map(address, "bf16", (32, 8, 4, 2), (64, 512, 4096), *zip(*corners, strict=True), 32, 16, "64B", mode)
    assert read(found) == wanted


def test_a_copy_past_an_allocation_is_an_error_and_a_note():
    seen = Seen()
    requests = Requests(seen, None, 1, 0, 1)
    _, (address, *_), _ = asked(requests, "allocate", 64, 512)
    assert asked(requests, "write", address + 60, data=b"12345678")[0] == INVALID_VALUE
    assert asked(requests, "read", address, 65)[0] == INVALID_VALUE
    assert asked(requests, "copy", address, address + 32, 33)[0] == INVALID_VALUE
    assert [note.partition(" at ")[0] for note in seen.notes] == [
        "a copy is refused: the 8 bytes",
        "a copy is refused: the 65 bytes",
        "a copy is refused: the 33 bytes",
    ]
