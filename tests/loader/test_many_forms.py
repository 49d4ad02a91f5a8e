"""Calls of many forms in turn: each is resolved once, found again without work, and no more are remembered than may be."""

from __future__ import annotations

import shutil

import pytest

from tests import recorder
from zoo.contract.array import Array
from zoo.contract.resolve import resolve
from zoo.packaged import packaged

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for libcuda needs a C compiler")
NAME = "quantize.mxfp8.rows"

# `count` holds how often each of the steps of a first call was taken.
START = """
import collections, contextlib, ctypes, sys, threading, types, zoo
from zoo import catalog
from zoo.runtime import arrays, library, plan
from zoo.packaged import packaged
NAME = "quantize.mxfp8.rows"
count = collections.Counter()
def counted(owner, name):
    inner = getattr(owner, name)
    def outer(*given, **named):
        count[name] += 1
        return inner(*given, **named)
    setattr(owner, name, outer)
counted(catalog, "resolve"), counted(library.Library, "function"), counted(plan.Plan, "_configure"), counted(plan, "encode")
def call(m=256, k=512):
    return dict(x=zoo.empty((m, k), "bf16"), q=zoo.empty((m, k), "e4m3"), scales=zoo.empty((m, k // 32), "ue8m0"))
def raw(call, **instead):
    return {name: zoo.ptr(one.address, one.shape, one.dtype, one.strides, 0) for name, one in {**call, **instead}.items()}
def refusal(function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except zoo.ZooError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print("no error")
"""

# A module that looks to zoo like torch, with tensors in the stand-in's memory, which counts how often its stream is asked for.
TORCH = """
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.bfloat16, torch.float8_e4m3fn, torch.float8_e8m0fnu = "torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e8m0fnu"
def current(device):
    count["stream"] += 1
    return zoo.stream(device).handle
torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=current, DisableTorchFunctionSubclass=contextlib.nullcontext)
class Tensor:
    def __init__(self, own):
        self.own, self.shape = own, own.shape
        self.dtype = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "ue8m0": torch.float8_e8m0fnu}[own.dtype]
    def stride(self): return self.own.strides
    def is_contiguous(self): return self.own.is_contiguous()
    def get_device(self): return self.own.device
    def data_ptr(self): return self.own.address
    def is_neg(self): return False
class Parameter(Tensor): pass
class Elsewhere(Tensor):
    place = zoo.empty((256, 512), "u8")
    def data_ptr(self): return self.place.address
torch.Tensor, torch.nn = Tensor, types.SimpleNamespace(Parameter=Parameter)
def tensors(call, *classes):
    return {name: cls(one) for (name, one), cls in zip(call.items(), classes * 3)}
"""


def run(library, snippet, **settings):
    return recorder.python(library, START + snippet, **settings)


def block(addresses, m, k=512, pitch=None):
    x, q, scales = addresses
    arrays = dict(
        x=Array(x, "bf16", (m, k), (pitch or k, 1)),
        q=Array(q, "e4m3", (m, k), (k, 1)),
        scales=Array(scales, "ue8m0", (m, k // 32), (k // 32, 1)),
    )
    launch = resolve(packaged.kernel(NAME), arrays, (9, 0), 132)
    return launch.variant.launch, launch.logical_block()


def printed(log):
    return [tuple(map(int, line.split())) for line in log.stdout.splitlines()]


def test_sixty_four_shapes_in_turn_are_each_resolved_once(library):
    log = run(
        library,
        """
calls = [call(m) for m in range(1, 65)]
for _ in range(2):
    for one in calls:
        zoo.launch(NAME, **one)
    print(count["resolve"], count["function"], count["_configure"])
for one in calls:
    print(len(one["x"].shape), one["x"].shape[0], *(array.address for array in one.values()))
""",
    )
    first, second, *calls = printed(log)
    assert first == second == (64, 64, 64)
    assert len(log.launches) == 128
    for launch, (_, m, *addresses) in zip(log.launches, calls * 2, strict=True):
        rule, want = block(addresses, m)
        assert launch.block(rule) == want


def test_a_repeated_launch_is_at_most_four_python_calls_deep_whatever_was_launched_before(library):
    """Every Python call that a second round makes is counted, too: the same few for each of 64 shapes as for one."""
    log = run(
        library,
        """
home = zoo.__file__.removesuffix("__init__.py")
def watched(one):
    depth = deepest = total = 0
    def watch(frame, event, argument):
        nonlocal depth, deepest, total
        if not frame.f_code.co_filename.startswith(home):  # cuda-bindings' own
            return
        if event == "call":
            depth, total = depth + 1, total + 1
            deepest = max(deepest, depth)
        elif event == "return":
            depth -= 1
    launch = zoo.launch
    sys.setprofile(watch)
    launch(NAME, stream=stream, **one)
    sys.setprofile(None)
    return deepest, total
stream = zoo.stream().handle
calls = [call(m) for m in range(1, 65)]
moved = [call(m) for m in range(1, 65)]
for one in calls + calls:
    zoo.launch(NAME, stream=stream, **one)
same, other = {watched(one) for one in calls}, {watched(one) for one in moved}
print(len(same), len(other), *same.pop(), *other.pop())
""",
    )
    ((same, other, depth, calls, depth_moved, calls_moved),) = printed(log)
    assert same == other == 1
    assert 2 <= depth <= 4 and 2 <= depth_moved <= 4
    # launch, read (and a reader for each of three arrays of zoo's own), move, run; and for other addresses whether they may be
    assert calls == 7 and calls_moved == 8


def test_what_is_remembered_has_an_end_and_the_last_used_stays(library):
    log = run(
        library,
        """
stream, most = zoo.stream(), catalog.MOST_FORMS
def launch(m):
    rows = {name: zoo.ptr(one.address, (m, *one.shape[1:]), one.dtype, device=0) for name, one in big.items()}
    zoo.launch(NAME, stream=stream, **rows)
big = call(4 * most)
for m in range(1, 4 * most):
    launch(m)
    launch(4 * most)  # used all along
    assert packaged._local.plans[NAME].remembered <= 2 * most
before = count["resolve"]
for m in range(3 * most + 1, 4 * most + 1):
    launch(m)
print(before, count["resolve"])
launch(1)
print(most, count["resolve"])
""",
    )
    (before, after), (most, again) = printed(log)
    assert before == 4 * most and after == before  # the form used all along was resolved once; the last `most` are all there
    assert again == before + 1  # the first had left


def test_threads_remember_for_themselves(library):
    log = run(
        library,
        """
calls = [call(m) for m in range(1, 33)]
ready = threading.Barrier(2)
def work(mine):
    stream = zoo.stream()
    ready.wait()
    for _ in range(20):
        for one in mine:
            zoo.launch(NAME, stream=stream, **one)
workers = [threading.Thread(target=work, args=(part,)) for part in (calls, calls[::-1])]
[one.start() for one in workers]; [one.join() for one in workers]
print(count["resolve"])
for one in calls:
    print(one["x"].shape[0], *(array.address for array in one.values()))
""",
    )
    (resolved,), *calls = printed(log)
    assert resolved == 64 and len(log.launches) == 2 * 20 * 32 and log.faults == []
    rule, _ = block(calls[0][1:], calls[0][0])
    wanted = [block(addresses, m)[1] for m, *addresses in calls]
    found = [launch.block(rule) for launch in log.launches]
    assert all(found.count(one) == 40 for one in wanted)


def test_a_parameter_is_a_tensor_like_any_other(library):
    """Tensors, Parameters and both at once are one form; a class of its own, which is another, is believed where it says it lies."""
    log = run(
        library,
        TORCH
        + """
own = [call() for _ in range(4)]
for one, classes in zip(own, [(Tensor,), (Parameter,), (Parameter, Tensor), (Tensor, Elsewhere)]):
    for _ in range(2):
        zoo.launch(NAME, **tensors(one, *classes))
    print(count["resolve"], count["stream"], *(tensor.data_ptr() for tensor in tensors(one, *classes).values()))
""",
    )
    lines = printed(log)
    assert [line[:2] for line in lines] == [(1, 2), (1, 4), (1, 6), (2, 8)]  # and each launch asks for its stream once
    for launch, (_, _, *addresses) in zip(log.launches, [line for line in lines for _ in range(2)], strict=True):
        rule, want = block(addresses, 256)
        assert launch.block(rule) == want


def test_a_first_launch_and_a_plan_ask_for_the_stream_once(library):
    log = run(
        library,
        TORCH
        + """
zoo.launch(NAME, **tensors(call(), Tensor)); print(count["stream"])
plan = zoo.prepare(NAME, **tensors(call(8), Tensor)); print(count["stream"])
plan(0); print(count["stream"])
plan(); print(count["stream"])
""",
    )
    assert printed(log) == [(1,), (2,), (2,), (3,)]
    assert [launch.stream == 0 for launch in log.launches] == [False, True, False]


def test_the_same_shape_with_other_strides_is_another_form(library):
    log = run(
        library,
        TORCH
        + """
plain, wide = call(), call(256, 1024)
windows = {**call(), "x": wide["x"][:, 512:]}
for _ in range(2):
    for one in (plain, windows):
        zoo.launch(NAME, **one)
        zoo.launch(NAME, **tensors(one, Tensor))
        print(one["x"].strides[0], *(array.address for array in one.values()))
print(count["resolve"])
""",
    )
    *calls, (resolved,) = printed(log)
    assert resolved == 4
    for launch, (pitch, *addresses) in zip(log.launches, [one for one in calls for _ in range(2)], strict=True):
        rule, want = block(addresses, 256, pitch=pitch)
        assert launch.block(rule) == want


def test_arguments_in_another_order_reach_the_kernel_as_their_names_say(library):
    log = run(
        library,
        """
one, other = call(), call()
zoo.launch(NAME, **one)
zoo.launch(NAME, **dict(reversed(other.items())))
zoo.launch(NAME, **other)
print(*(array.address for array in one.values())); print(*(array.address for array in other.values()))
""",
    )
    one, other = printed(log)
    for launch, addresses in zip(log.launches, (one, other, other), strict=True):
        rule, want = block(addresses, 256)
        assert launch.block(rule) == want


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("x=zoo.ptr(c['x'].address + 2, (256, 512), 'bf16', device=0)", "x: the address 0x"),
        ("x=zoo.ptr(0, (256, 512), 'bf16', device=0)", "x: a null address"),
        ("q=zoo.ptr(c['x'].address + 256 * 512, (256, 512), 'e4m3', device=0)", "q: overlaps x, and the kernel writes q"),
        ("x=zoo.ptr(c['q'].address - 2 * 256 * 512 + 16, (256, 512), 'bf16', device=0)", "q: overlaps x, and the kernel writes q"),
    ],
)
def test_a_repeated_call_is_refused_where_a_first_one_is_and_in_its_words(library, change, words):
    log = run(
        library,
        f"""
c = call()
refusal(zoo.launch, NAME, stream=0, **{{**raw(c), **dict({change})}})
zoo.launch(NAME, stream=0, **raw(c))
refusal(zoo.launch, NAME, stream=0, **{{**raw(c), **dict({change})}})
zoo.launch(NAME, stream=0, **raw(c))
""",
    )
    first, again, *_ = log.stdout.splitlines()
    assert first == again and words in first, log.stdout
    before, after = log.launches
    assert before.parameters == after.parameters


def test_addresses_that_just_fit_are_not_refused_and_cost_no_new_resolving(library):
    log = run(
        library,
        """
whole = zoo.empty((3 * 256 * 512 + 256 * 16,), "u8").address
def at(x, q, scales):
    return dict(x=zoo.ptr(x, (256, 512), "bf16", device=0), q=zoo.ptr(q, (256, 512), "e4m3", device=0),
                scales=zoo.ptr(scales, (256, 16), "ue8m0", device=0))
zoo.launch(NAME, stream=0, **raw(call()))
size = 256 * 512
zoo.launch(NAME, stream=0, **at(whole, whole + 2 * size, whole + 3 * size))  # back to back
zoo.launch(NAME, stream=0, **at(whole + size + 256 * 16, whole, whole + size))
print(count["resolve"])
""",
    )
    assert printed(log) == [(1,)] and len(log.launches) == 3


def test_dtypes_and_a_pinned_variant_are_part_of_a_form(library):
    log = run(
        library,
        TORCH
        + """
torch.float32, torch.float8_e5m2 = "torch.float32", "torch.float8_e5m2"
def tensor(own):
    made = Tensor.__new__(Tensor)
    made.own, made.shape = own, own.shape
    dtypes = dict(f32=torch.float32, e5m2=torch.float8_e5m2, bf16=torch.bfloat16, e4m3=torch.float8_e4m3fn, ue8m0=torch.float8_e8m0fnu)
    made.dtype = dtypes[own.dtype]
    return made
c = call()
calls = [c, {**c, "x": zoo.empty((256, 512), "f32")}, {**c, "q": zoo.empty((256, 512), "e5m2")}]
for _ in range(2):
    for one in calls:
        zoo.launch(NAME, **one)
        zoo.launch(NAME, **{name: tensor(own) for name, own in one.items()})
    zoo.launch(NAME, variant="bf16_e4m3_plain_t256", **c)
    refusal(zoo.launch, NAME, variant="bf16_e4m3_blocked_t256", **c)
print(count["resolve"])
""",
    )
    *refusals, resolved = log.stdout.splitlines()
    assert len(refusals) == 2 and all("variant 'bf16_e4m3_blocked_t256' for sm_90a does not take" in line for line in refusals)
    assert resolved == "9"  # six forms, the pinned one, and the refused one twice
    names = ["bf16_e4m3_plain", "bf16_e4m3_plain", "f32_e4m3", "f32_e4m3", "bf16_e5m2_plain", "bf16_e5m2_plain", "bf16_e4m3_plain"] * 2
    assert [launch.kernel for launch in log.launches] == [f"quantize_mxfp8_rows__{name}_t256" for name in names]


@pytest.mark.parametrize("address", [2**64 - 16, 2**63 - 4096, 2**62])
def test_memory_that_no_gpu_has_is_refused_after_a_good_call_too(library, address):
    log = run(
        library,
        f"""
class Lying:
    def __init__(self, own):
        self.__cuda_array_interface__ = dict(data=({address}, False), typestr="<f2", shape=own.shape, version=3)
c = call()
zoo.launch(NAME, stream=0, **raw(c))
refusal(zoo.ptr, {address}, (256, 512), "bf16", device=0)
refusal(zoo.launch, NAME, stream=0, **{{**raw(c), "x": Lying(c["x"])}})
""",
    )
    for said in log.stdout.splitlines():
        assert said.startswith("ArgumentError") and f"expected a whole number of 0 to {2**62 - 1}, got {address}" in said
    assert len(log.stdout.splitlines()) == 2 and len(log.launches) == 1


def test_numbers_and_texts_that_equal_all_others_do_not_stand_in_for_later_calls(library):
    """Classes of a caller's own may call themselves equal to anything, and what was remembered of them must not."""
    log = run(
        library,
        """
class Number(int):
    def __eq__(self, other): return True
    def __hash__(self): return hash(256)
class Text(str):
    def __eq__(self, other): return True
    def __hash__(self): return hash("<f2")
class Array:
    def __init__(self, **changes):
        self.__cuda_array_interface__ = dict(data=(c["x"].address, False), typestr="<f2", shape=(256, 512), version=3) | changes
c = call()
for odd in (dict(shape=(Number(256), 512)), dict(typestr=Text("<f2"))):
    zoo.launch(NAME, stream=0, **{**c, "x": Array(**odd)})
    refusal(zoo.launch, NAME, stream=0, **{**c, "x": Array(shape=(128, 512))})
    refusal(zoo.launch, NAME, stream=0, **{**c, "x": Array(typestr="<f8")})
""",
    )
    assert [line.partition(": ")[0] for line in log.stdout.splitlines()] == ["ArgumentError"] * 4
    assert len(log.launches) == 2


@pytest.mark.parametrize("variant", ["['bf16']", "7", "10**5000", "b'bf16'"])
def test_a_variant_that_is_no_text_is_refused_in_words(library, variant):
    log = run(library, f"refusal(zoo.launch, NAME, variant={variant}, **call()); refusal(zoo.prepare, NAME, variant={variant}, **call())")
    assert [line.startswith("VariantError: quantize.mxfp8.rows: a variant's name is a text, got ") for line in log.stdout.splitlines()] == [
        True
    ] * 2
