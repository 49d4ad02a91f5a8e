"""What a launch on an emulated device may ask for, to its edge; how parameters are packed; where a module's variables lie."""

import struct
from types import SimpleNamespace

import numpy as np
import pytest
from core_support import kernel, launch

from zoo import emulator
from zoo.contract.tensor_map import TensorMap
from zoo.emulator.device import ARCHS, Report, pack_parameters, target_must_fit
from zoo.errors import ArgumentError
from zoo.runtime.arrays import ptr

EMPTY = kernel("", parameters=0)
PAIRS = kernel("", parameters=0, directives=".reqnctapercluster 2, 1, 1")


def refused(**change):
    with pytest.raises(emulator.EmulatorError) as refusal:
        launch(change.pop("text", EMPTY), **change)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        (dict(block=1024), dict(block=1025), "a block has 1 to 1024 threads, not 1025"),
        (dict(block=(8, 8, 16)), dict(block=(8, 8, 17)), "a block has 1 to 1024 threads, not 1088"),
        (dict(block=1), dict(block=(1, 1, 1, 1)), "a block is up to three positive numbers, not (1, 1, 1, 1)"),
        (dict(block=[2, 3]), dict(block=[2, 0]), "a block is up to three positive numbers, not [2, 0]"),
        (dict(block=np.int32(32)), dict(block=32.0), "a block is up to three positive numbers, not 32.0"),
        (dict(grid=16, cluster=16), dict(grid=32, cluster=32), "a cluster has at most 16 CTAs, not (32, 1, 1)"),
        (dict(grid=(2, 2, 4), cluster=(2, 2, 4)), dict(grid=(3, 2, 3), cluster=(3, 2, 3)), "a cluster has at most 16 CTAs, not (3, 2, 3)"),
        (
            dict(grid=(1, 4), cluster=(1, 2)),
            dict(grid=(1, 3), cluster=(1, 2)),
            "the grid (1, 3, 1) is not a multiple of the cluster (1, 2, 1)",
        ),
        (dict(text=PAIRS, grid=2), dict(text=PAIRS, grid=3), "the grid (3, 1, 1) is not a multiple of the cluster (2, 1, 1)"),
        (
            dict(text=PAIRS, grid=2, cluster=2),
            dict(text=PAIRS, grid=2, cluster=1),
            "k is compiled for clusters of (2, 1, 1), launched with 1",
        ),
        (
            dict(text=kernel("", parameters=0, directives=".maxntid 32, 2"), block=64),
            dict(text=kernel("", parameters=0, directives=".maxntid 32, 2"), block=65),
            "k is compiled for at most 64 threads, launched with 65",
        ),
        (
            dict(text=kernel("", parameters=0, directives=".reqntid 32, 2"), block=(32, 2)),
            dict(text=kernel("", parameters=0, directives=".reqntid 32, 2"), block=64),
            "k is compiled for blocks of [32, 2], launched with (64, 1, 1)",
        ),
        (dict(shared_bytes=np.int64(0)), dict(shared_bytes=-1), "shared_bytes is a number of bytes, not -1"),
        (dict(shared_bytes=4096), dict(shared_bytes=4096.0), "shared_bytes is a number of bytes, not 4096.0"),
    ],
)
def test_a_launch_may_ask_for_as_much_as_the_hardware_and_no_more(good, bad, words):
    assert launch(good.pop("text", EMPTY), **good).ok
    assert refused(**bad) == words


@pytest.mark.parametrize("grid", [(2**31, 1, 1), (1, 65536, 1), (1, 1, 65536)])
def test_a_grid_past_the_hardwares_is_refused_whatever_its_axis(grid):
    assert refused(grid=grid) == f"a grid has at most (2147483647, 65535, 65535) CTAs, not {grid}"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(arch="sm_90"), "architecture 'sm_90' is not covered; did you mean sm_90a?"),
        (dict(arch="sm_90f"), "architecture 'sm_90f' is not covered; "),
        (dict(scheduling="first"), "scheduling 'first' is unknown; it is one of issue, last, random"),
        (dict(arithmetic="fast"), "arithmetic 'fast' is unknown; it is exact or hw"),
        (dict(elect="any"), "elect 'any' is unknown; it is lowest or highest"),
    ],
)
def test_a_device_of_no_kind_is_refused(settings, words):
    with pytest.raises(emulator.EmulatorError) as refusal:
        emulator.Device(**settings)
    assert str(refusal.value).startswith(words)


def test_a_device_ends_a_launch_after_the_instructions_that_its_pages_say():
    assert emulator.Device().instruction_limit == 50_000_000


def test_devices_are_those_of_their_arch():
    said = {arch: emulator.Device(arch) for arch in ARCHS}
    assert set(said) == {
        "sm_90a",
        "sm_100a",
        "sm_100f",
        "sm_103a",
        "sm_103f",
        "sm_110a",
        "sm_110f",
        "sm_120a",
        "sm_120f",
        "sm_121a",
        "sm_121f",
    }
    assert {arch: (one.capability, one.multiprocessors, one.arithmetic, str(one)) for arch, one in said.items()} == {
        arch: ((int(arch[3:-2]), int(arch[-2])), {"90": 132, "100": 148, "103": 148, "110": 20, "120": 170, "121": 48}[arch[3:-1]],
               "hw" if arch == "sm_90a" else "exact", f"emulated {arch}") for arch in ARCHS
    }  # fmt: skip
    assert emulator.Device(multiprocessors=7, arithmetic="exact").multiprocessors == 7


@pytest.mark.parametrize(
    ("target", "yes", "no"),
    [
        ("sm_90a", ["sm_90a"], ["sm_100a", "sm_100f"]),
        ("sm_100f", ["sm_100a", "sm_100f", "sm_103a", "sm_103f"], ["sm_90a", "sm_120a"]),
        ("sm_103f", ["sm_103a"], ["sm_100a", "sm_120f"]),
        ("sm_110f", ["sm_110a", "sm_110f"], ["sm_100a", "sm_103f"]),
        ("sm_121a", ["sm_121a", "sm_121f"], ["sm_120a"]),
        ("sm_100", ["sm_100a", "sm_121f"], ["sm_90a"]),
        ("sm_80", list(ARCHS), []),
    ],
)
def test_a_text_runs_on_what_its_target_says(target, yes, no):
    for arch in yes:
        target_must_fit(target, arch)
    for arch in no:
        with pytest.raises(emulator.EmulatorError, match=f"PTX for {target} does not run on {arch}"):
            target_must_fit(target, arch)


def packed(type, value, dimensions=""):
    text = f".version 9.0\n.target sm_90a\n.address_size 64\n.entry k(.param .b32 first, .param .{type} x{dimensions}) {{ ret; }}"
    module = emulator.Module(text)
    block = pack_parameters(module.program("k"), [7, value])
    size = {"b8": 1, "u16": 2, "f32": 4, "b32": 4, "s32": 4, "u32": 4}.get(type, 8) * (3 if dimensions == "[3]" else 1)
    size = 128 if dimensions == "[128]" else size
    start = -(-4 // min(size, 8)) * min(size, 8) if not dimensions else 4
    assert block[:4] == struct.pack("<I", 7) and len(block) == start + size
    return block[start:]


RECORD = TensorMap("u8", 0x1000, (16,), (), (16,))


@pytest.mark.parametrize(
    ("type", "value", "wanted"),
    [
        ("u16", 65535, b"\xff\xff"), ("u16", -32768, b"\0\x80"), ("b8", True, b"\1"), ("s32", -1, b"\xff" * 4), ("b64", 2**64 - 1, b"\xff" * 8),
        ("b64", -(2**63), bytes(7) + b"\x80"), ("f32", 1.5, struct.pack("<f", 1.5)), ("f32", 3, struct.pack("<f", 3)), ("f64", 2, struct.pack("<d", 2)),
        ("b32", 0.5, struct.pack("<f", 0.5)), ("b64", 0.5, struct.pack("<d", 0.5)), ("u32", np.uint32(9), b"\x09\0\0\0"), ("u32", np.uint8(9), b"\x09\0\0\0"),
        ("b64", np.float32(0.5), struct.pack("<d", 0.5)), ("u32", b"abcd", b"abcd"), ("u32", bytearray(b"abcd"), b"abcd"),
        ("u32", memoryview(b"abcd"), b"abcd"), ("b64", np.arange(2, dtype=np.int32), b"\0\0\0\0\1\0\0\0"),
    ],
)  # fmt: skip
def test_a_parameter_is_packed_as_its_declaration_says(type, value, wanted):
    assert packed(type, value) == wanted


def test_a_struct_and_a_tensor_map_are_their_bytes():
    assert packed("b8", b"abc", "[3]") == b"abc" and packed("b8", RECORD, "[128]") == RECORD.to_bytes()


@pytest.mark.parametrize(("bytes", "value"), [(9, 1), (9, 2**72 - 1), (16, 1), (9, -1)])
def test_a_struct_wider_than_any_number_is_not_made_of_one(bytes, value):
    with pytest.raises(emulator.EmulatorError, match=f"parameter 1 of k: {value} does not fit {bytes} bytes"):
        packed("b8", value, f"[{bytes}]")


@pytest.mark.parametrize(
    ("type", "value", "words"),
    [
        ("u16", 65536, "parameter 1 of k: 65536 does not fit 2 bytes"),
        ("u16", -32769, "parameter 1 of k: -32769 does not fit 2 bytes"),
        ("b64", 2**64, "does not fit 8 bytes"),
        ("b64", -(2**63) - 1, "does not fit 8 bytes"),
        ("u16", 0.5, "parameter 1 of k is no float: it is declared .u16 with 2 bytes"),
        ("u32", 0.5, "parameter 1 of k is no float: it is declared .u32 with 4 bytes"),
        ("s64", 0.5, "parameter 1 of k is no float: it is declared .s64 with 8 bytes"),
        ("u32", b"abc", "parameter 1 of k has 4 bytes, 3 were given"),
        ("u32", np.arange(2, dtype=np.int32), "parameter 1 of k has 4 bytes, 8 were given"),
        ("u32", None, "parameter 1 of k: a parameter is an int, a float, a pointer, a tensor map or bytes, not NoneType"),
        ("u64", ptr(4096, (1,), "f32", device=0), "parameter 1 of k: of an array the launch takes its .address"),
        ("b128", 1, "parameter 1 of k: 1 does not fit 16 bytes"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused(type, value, words):
    with pytest.raises(emulator.EmulatorError) as refusal:
        packed(type, value)
    assert words in str(refusal.value)


VARIABLES = """
.global .align 4 .b32 first[2] = {1, 2};
.const .b8 small = 7;
.global .b64 pointer[] = {first+4, 5};
.global .b32 low = first;
.extern .global .b32 elsewhere;
.extern .global .b8 unsized[];
"""


def test_a_modules_variables_are_placed_once_with_their_bytes():
    device = emulator.Device(arch="sm_90a")
    module = emulator.Module(EMPTY.replace(".visible .entry", f"{VARIABLES}.visible .entry"))
    assert module.entries == ["k"]
    before = device.memory.allocate(1)
    assert device.launch(module, "k", 1, 32).ok
    first, pointer = device.symbol(module, "first"), device.symbol(module, "pointer")
    assert first % 16 == pointer % 16 == 0 and first > before and device.symbol(module, "first") == first
    assert device.read(first, 2, np.uint32).tolist() == [1, 2] and device.read(device.symbol(module, "small"), 1, np.uint8)[0] == 7
    assert device.read(pointer, 2, np.uint64).tolist() == [first + 4, 5]
    assert device.read(device.symbol(module, "low"), 1, np.uint32)[0] == first & 0xFFFFFFFF
    with pytest.raises(
        emulator.EmulatorError, match="the module has no variable 'x'; it has first, small, pointer, low, elsewhere, unsized"
    ):
        device.symbol(module, "x")
    with pytest.raises(emulator.EmulatorError, match="the variable unsized has no size"):
        device.symbol(module, "unsized")
    with pytest.raises(emulator.EmulatorError, match="the module has no variable 'x'; it has none"):
        device.symbol(emulator.Module(EMPTY), "x")


def test_memory_is_copied_in_and_out_and_knows_what_was_written():
    device = emulator.Device()
    values = np.arange(6, dtype=np.int16).reshape(2, 3)
    address = device.alloc(values, written=np.arange(12) < 5)
    assert device.written(address, 12).tolist() == [True] * 5 + [False] * 7
    assert device.read(address, (2, 3), np.int16).tolist() == values.tolist() and device.read(address, 6, np.int16).shape == (6,)
    copy = device.read(address, np.int64(6), np.int16)
    device.write(address + 4, np.int16([40, 50]))
    assert device.read(address, 6, np.int16).tolist() == [0, 1, 40, 50, 4, 5] and copy.tolist() == [0, 1, 2, 3, 4, 5]
    assert device.written(address, 12).tolist() == [True] * 8 + [False] * 4
    fresh = device.alloc(4)
    assert not device.written(fresh, 4).any() and device.alloc(np.zeros(0)) and device.alloc(0)
    device.free(address)
    with pytest.raises(emulator.EmulatorError):
        device.read(address, 6, np.int16)
    for size in (-1, 1 << 34):
        with pytest.raises(emulator.EmulatorError, match=f"{size} bytes cannot be allocated; an allocation has 0 to 17,179,869,183"):
            device.alloc(size)


def test_a_text_in_memory_ends_at_its_zero():
    device = emulator.Device()
    assert device.c_string(device.alloc(np.frombuffer(b"abc\0def\0", np.uint8))) == "abc"
    assert device.c_string(device.alloc(np.frombuffer(b"\0", np.uint8))) == ""
    assert device.c_string(3) == "<text at 0x3>"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(dtype="u9"), "tensor map: the dtype 'u9' is unknown; it is one of u8, u16"),
        (dict(swizzle="1B"), "tensor map: the swizzle '1B' is unknown; it is one of none, 32B"),
        (dict(fill="one"), "tensor map: the fill 'one' is unknown; it is one of zero, nan"),
        (dict(l2_promotion="1B"), "tensor map: the promotion '1B' is unknown; it is one of none, 64B"),
        (dict(strides=()), "tensor map: 2 dims, 0 strides, 2 box and 0 element strides do not go together"),
        (dict(box=(16,)), "tensor map: 2 dims, 1 strides, 1 box and 0 element strides do not go together"),
        (dict(element_strides=(1,)), "tensor map: 2 dims, 1 strides, 2 box and 1 element strides do not go together"),
    ],
)
def test_a_tensor_map_of_parts_that_do_not_go_together_is_refused(change, words):
    device, good = emulator.Device(), dict(dtype="u8", dims=(32, 4), strides=(32,), box=(16, 2), element_strides=(1, 1))
    made = device.tensor_map(4096, swizzle="32B", l2_promotion="64B", fill="zero", **good)
    assert made == TensorMap("u8", 4096, (32, 4), (32,), (16, 2), (1, 1), "32B", "64B", "zero")
    assert device.tensor_map(4096, **{**good, "element_strides": ()}) == device.tensor_map(4096, **good)
    given = {**good, "element_strides": (), **change}
    with pytest.raises(emulator.EmulatorError) as refusal:
        device.tensor_map(4096, **given)
    assert str(refusal.value).startswith(words)
    with pytest.raises(ArgumentError, match="tensor map: the address 0x1001"):
        device.tensor_map(4097, **good)


def test_a_report_says_what_moved_and_what_was_found():
    machine = SimpleNamespace(
        program=SimpleNamespace(
            entry=SimpleNamespace(name="k"),
            instructions=[SimpleNamespace(opcode=opcode, line=line) for opcode, line in (("a", 1), ("b", 1), ("a", 2), ("c", 3))],
        ),
        counts=[2, 3, 4, 0], completed=True, findings=[], traffic={"global read": 8, "shared read": 0}, log=["x"],
    )  # fmt: skip
    report = Report(machine)
    assert report.instructions == {"a": 6, "b": 3} and report.lines == {1: 5, 2: 4} and report.warp_instructions == 9 and report.ok
    assert str(report) == "k: completed, 9 warp instructions\n  global read: 8 bytes\n  no findings" and report.printed == ["x"]
    report.findings.append(emulator.Finding("race", "one", kernel="k"))
    assert str(report).endswith(" bytes\n  race: one [k]") and not report.ok
    report.findings, report.completed = [], False
    assert str(report).startswith("k: did not complete, 9") and not report.ok


def test_a_variable_of_a_module_lies_at_one_place_from_its_first_use_on():
    module = emulator.Module(EMPTY.replace(".visible .entry", ".global .align 4 .b8 table[6] = {1, 2, 3};\n.visible .entry"))
    device = emulator.Device()
    first = device.symbol(module, "table")
    assert type(first) is int and device.symbol(module, "table") == first
    assert device.read(first, 6, np.uint8).tolist() == [1, 2, 3, 0, 0, 0]


def test_a_module_that_goes_takes_its_programs_along_and_one_that_never_was_goes_too():
    module = emulator.Module(EMPTY)
    program, function = module.program("k"), module.functions["k"]
    assert program.__dict__ and function.__dict__ and module.program("k") is program
    module.__del__()
    assert not program.__dict__ and not function.__dict__
    emulator.Module.__new__(emulator.Module).__del__()


def test_each_launch_on_a_device_has_the_next_number_from_one_on():
    module = emulator.Module(kernel("mov.u64 %rd5, %gridid; st.global.u64 [%rd0], %rd5;", parameters=1))
    device = emulator.Device()
    place = device.alloc(np.zeros(1, np.uint64))
    for number in (1, 2, 3):
        device.launch(module, "k", 1, 1, params=[place])
        assert device.read(place, 1, np.uint64).tolist() == [number]
