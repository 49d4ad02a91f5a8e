"""What a careless or hostile caller of the C library does: each is a status and a sentence, and no memory is read that is not the caller's."""

from __future__ import annotations

import shutil

import pytest

from tests.capi.entries import plain_entry
from tests.capi.package import HERE, export_and_compile, make_directory, sanitizer_settings, sanitizers
from tests.recorder import program

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
NAME = "quantize.mxfp8.rows"
NULL_DEVICE = "ArgumentError the device is NULL; pass one that zoo_open gave"
CLOSED_DEVICE = "ArgumentError the device was closed, or is none that zoo_open gave"
FREED_PLAN = "ArgumentError the plan was freed, or is none that zoo_prepare gave"
FORKED = (
    "ForkError this process was forked after CUDA was initialised, and the driver does not survive a fork; "
    "fork before the first use of a GPU, or start the child anew"
)


@pytest.fixture(scope="module")
def misuse(tmp_path_factory, recorder):
    work = tmp_path_factory.mktemp("misuse")
    built = export_and_compile(make_directory(work / "cubins", {NAME: plain_entry()}), work, HERE / "misuse.c", sanitizers())

    def run(scenario: str, slow: str = "") -> list[str]:
        done = program(recorder, [built, scenario], timeout=60, ZOO_RECORDER_SLOW=slow, **sanitizer_settings())
        assert done.faults == []
        return done.stdout.splitlines()

    return run


def by_every_function(what: str, words: str, answer_to_bytes: str | None = None) -> list[str]:
    """The answers to a call with one wrong argument."""
    refused = f"ArgumentError {NAME}: {words}"
    bytes_lines = [f"bytes with {what}: {refused}"] if answer_to_bytes is None else [f"bytes with {what}: OK", "and there are bytes"]
    return [f"launch with {what}: {refused}", f"prepare with {what}: {refused}", *bytes_lines]


def test_null_in_place_of_a_handle_a_name_or_a_result_is_refused(misuse):
    assert misuse("nulls") == [
        "open into NULL: ArgumentError zoo_open: the place for the device is NULL",
        "close NULL: OK",
        "free NULL: OK",
        f"load on NULL: {NULL_DEVICE}",
        'load NULL: UnknownKernelError zoo_load: the pattern is NULL; "*" is every kernel',
        "loaded: 0",
        f"launch on NULL: {NULL_DEVICE}",
        "launch NULL: UnknownKernelError the kernel's name is NULL",
        f"prepare on NULL: {NULL_DEVICE}",
        "plan is NULL: 1",
        "prepare NULL: UnknownKernelError the kernel's name is NULL",
        "prepare into NULL: ArgumentError zoo_prepare: the place for the plan is NULL",
        "launch the plan NULL: ArgumentError the plan is NULL; pass one that zoo_prepare gave",
        f"bytes on NULL: {NULL_DEVICE}",
        "bytes of the kernel NULL: UnknownKernelError the kernel's name is NULL",
        f"bytes of NULL: ArgumentError {NAME}: zoo_argument_bytes: the name of the argument is NULL",
        f"bytes into NULL: ArgumentError {NAME}: zoo_argument_bytes: the place for the bytes is NULL",
        "described: 1 the plan is NULL; pass one that zoo_prepare gave",
        "driver: 1, dtype: 0",
        "names: 1 1",
    ]


def test_null_within_the_arguments_and_a_wild_count_are_refused(misuse):
    assert misuse("null arguments") == [
        *by_every_function("NULL for arguments", "a count of 3 arguments, and the arguments are NULL"),
        *by_every_function("a wild count", "a count of 18446744073709551615 arguments; no call has more than 65"),
        *by_every_function("a NULL name", "the name of argument 1 of the call is NULL"),
        *by_every_function("a NULL choice", "d: missing; the d", "bytes"),
        *by_every_function("a NULL dtype", "d: expected e4m3, got DLPack type (0, 0, 0)"),
        *by_every_function("a NULL shape", "d: its shape is NULL, and it has 2 dimensions"),
        *by_every_function("a NULL address", "d: a null address", "bytes"),
        *by_every_function("an offset from NULL", "d: a null address", "bytes"),
    ]


def test_an_unknown_kind_of_argument_is_refused(misuse):
    words = "an argument of kind {}, which zoo.h has not; make arguments by zoo_tensor, zoo_integer, zoo_number and zoo_choice"
    expected = [line for kind in (4, 77, -1, 1 << 30) for line in by_every_function("such a kind", f"x: {words.format(kind)}")]
    assert misuse("kinds") == [*expected, *by_every_function("such a number", f"splits: {words.format(77)}")]


def test_no_number_of_dimensions_is_read_past_the_shape(misuse):
    words = f"dimensions: ArgumentError {NAME}: x: expected 2 dimensions (M, K), got "
    assert misuse("dimensions") == [f"{words}{count}; the x" for count in (-1, 0, 1, 9, 1 << 30)]


def test_what_was_closed_is_refused_by_every_function_and_closing_twice_too(misuse):
    assert misuse("closed") == [
        "close: OK",
        f"close again: {CLOSED_DEVICE}",
        "launch the plan: ArgumentError the plan's device was closed; open it again and prepare the plan anew",
        f"launch: {CLOSED_DEVICE}",
        f"prepare: {CLOSED_DEVICE}",
        "plan is NULL: 1",
        f"load: {CLOSED_DEVICE}",
        f"bytes: {CLOSED_DEVICE}",
        "still described: t",
        "free the plan: OK",
        f"free it again: {FREED_PLAN}",
        f"launch the freed plan: {FREED_PLAN}",
        f"no longer described: 1 {FREED_PLAN.partition(' ')[2]}",
        "launch on the other: OK",
        "close the other: OK",
    ]


def test_an_old_handle_does_not_reach_what_took_its_place(misuse):
    assert misuse("reused") == [
        f"launch the old plan: {FREED_PLAN}",
        "launch the new plan: OK",
        f"launch on the old device: {CLOSED_DEVICE}",
        f"close the old device: {CLOSED_DEVICE}",
        "launch on the new device: OK",
        "close the new device: OK",
    ]


def test_pointers_to_anything_else_are_no_handles(misuse):
    *lines, close_plan, launch_on_plan, last = misuse("no handles")
    assert len(lines) == 3 * 8 - 1 and set(lines) == {f"close: {CLOSED_DEVICE}", f"free: {FREED_PLAN}", f"launch: {FREED_PLAN}"}
    assert (close_plan, launch_on_plan, last) == (f"close a plan: {CLOSED_DEVICE}", f"launch on a plan: {CLOSED_DEVICE}", "close: OK")


def test_each_of_thousands_of_handles_names_its_own_plan(misuse):
    assert misuse("many") == ["wrong: 0", "close: OK"]


def test_a_byte_offset_that_wraps_is_refused_on_the_first_call_and_after_a_good_one(misuse):
    beyond = f"ArgumentError {NAME}: x: a byte_offset of {{}} leads from {{:#x}} past the end of all addresses"
    too_far = f"ArgumentError {NAME}: x: an extent of (64, 128) with such strides does not fit 64 bits"
    answers = [
        beyond.format(2**64 - 0x100000, 0x100000),
        beyond.format(2**64 - 256, 0x100000),
        too_far,
        too_far,
        beyond.format(0x100100, 2**64 - 256),
        too_far,
        too_far,
    ]
    once = [line for answer in answers for line in (f"launch: {answer}", f"prepare: {answer}")]
    assert misuse("offsets") == [*once, "a good one: OK", *once, "a good one: OK", "close: OK"]


def in_the_child(device: bool = True, plan: bool = True) -> list[str]:
    what = ["open", "load", "launch", "prepare", "bytes", "launch the plan"]
    last = [f"free the plan: {FORKED if plan else 'OK'}", f"close: {FORKED if device else 'OK'}"]  # there is nothing to give back in NULL
    return [f"{name}: {FORKED}" for name in what] + [*last, "driver: 1", "child: 0"]


def test_a_child_forked_from_a_process_with_a_device_is_told_so_by_every_function(misuse):
    assert misuse("fork") == [*in_the_child(), "launch the plan: OK", "free the plan: OK", "close: OK"]


def test_a_child_forked_while_another_thread_loads_does_not_wait_for_it(misuse):
    assert misuse("fork while loading", "cuLibraryLoadData=500") == [*in_the_child(plan=False), "launch: OK", "close: OK"]


def test_a_child_forked_while_another_thread_opens_the_driver_does_not_wait_for_it(misuse):
    assert misuse("fork while opening", "cuInit=500") == [*in_the_child(False, False), "launch: OK", "close: OK"]
