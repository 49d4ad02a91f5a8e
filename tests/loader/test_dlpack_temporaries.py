"""DLPack producers that hand out a temporary: what they export must live as long as a launch or a plan needs it, and no longer."""

from __future__ import annotations

import shutil

import pytest

from tests import recorder

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for libcuda needs a C compiler")

START = """
import ctypes, gc, zoo
live = ctypes.CDLL("libcuda.so.1").zoo_recorder_live
NAME = "quantize.mxfp8.rows"
asked = []
class Temporary:  # each export is memory of its own, which goes with the capsule
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        asked.append(copy)
        return zoo.empty((256, 512), "f16").__dlpack__(stream=-1)
class OldTemporary(Temporary):
    def __dlpack__(self, *, stream=None):
        return super().__dlpack__()
outputs = dict(q=zoo.empty((256, 512), "e4m3"), scales=zoo.empty((256, 16), "ue8m0"))
zoo.launch(NAME, x=zoo.empty((256, 512), "f32"), **outputs)  # so that all else is loaded
print(live(b"allocations"))
"""
MEMORY = ("cuMemAlloc", "cuLaunchKernelEx", "cuMemFree")


def traced(library, snippet):
    """The calls that matter after those of START, and what was printed after its line."""
    run = recorder.python(library, START + snippet, trace=True)
    first, *printed = run.stdout.splitlines()
    assert first == "2" and run.faults == []
    return [line["call"] for line in run.lines if line.get("call") in MEMORY][5:], printed


@pytest.mark.parametrize("array", ["Temporary()", "OldTemporary()"])
def test_a_temporary_is_freed_only_after_the_launch_is_enqueued_and_then_at_once(library, array):
    """At first, where the form is remembered, and where it is found again."""
    calls, printed = traced(
        library, f"for _ in range(3):\n    zoo.launch(NAME, stream=0, x={array}, **outputs)\n    print(live(b'allocations'))"
    )
    assert calls == ["cuMemAlloc", "cuLaunchKernelEx", "cuMemFree"] * 3
    assert printed == ["2", "2", "2"]


def test_calls_in_turn_keep_no_temporary(library):
    snippet = """
for _ in range(2):
    for shape in ((256, 512), (128, 512)):
        part = {name: array[: shape[0]] for name, array in outputs.items()}
        class Shaped(Temporary):
            def __dlpack__(self, **keywords): return zoo.empty(shape, "f16").__dlpack__(stream=-1)
        zoo.launch(NAME, stream=0, x=Shaped(), **part)
        print(live(b"allocations"))
"""
    _, printed = traced(library, snippet)
    assert printed == ["2"] * 4


def test_a_view_of_a_temporary_keeps_what_it_launches_on(library):
    snippet = "view = zoo.view(Temporary(), 'bf16')\nfor _ in range(2): zoo.launch(NAME, stream=0, x=view, **outputs)"
    calls, _ = traced(library, snippet)
    assert calls == ["cuMemAlloc", "cuMemFree", *["cuMemAlloc", "cuLaunchKernelEx", "cuMemFree"] * 2]  # asked for its dtype, then launched


def test_a_plan_keeps_a_temporary_as_long_as_itself(library):
    calls, printed = traced(
        library,
        """
plan = zoo.prepare(NAME, x=Temporary(), **outputs)
gc.collect()
plan(0); plan(0)
print(live(b"allocations"))
del plan
gc.collect()
print(live(b"allocations"))
""",
    )
    assert calls == ["cuMemAlloc", "cuLaunchKernelEx", "cuLaunchKernelEx", "cuMemFree"]
    assert printed == ["3", "2"]


def test_a_refused_call_keeps_no_temporary(library):
    snippet = """
for keywords in (dict(stream=-1), dict(stream=0, layout="tiled")):
    try:
        zoo.launch(NAME, x=Temporary(), **outputs, **keywords)
    except zoo.ZooError as error:
        error.__traceback__ = None
print(live(b"allocations"))
"""
    calls, printed = traced(library, snippet)
    assert "cuLaunchKernelEx" not in calls and printed == ["2"]


def test_a_producer_is_asked_for_no_copy(library):
    _, printed = traced(library, "zoo.launch(NAME, stream=0, x=Temporary(), **outputs); print(asked)")
    assert printed == ["[False]"]


@pytest.mark.parametrize("reading", ["a.numpy()", "a.__cuda_array_interface__", "a.__dlpack__()"])
def test_what_is_read_or_handed_out_was_waited_for(library, reading):
    """Kernels run on a stream that no copy of the driver waits for by itself."""
    run = recorder.python(library, f"import zoo\na = zoo.empty((4,), 'f32')\n{reading}", trace=True)
    calls = [line["call"] for line in run.lines if line.get("call") in ("cuCtxSynchronize", "cuMemcpyDtoH")]
    assert calls == ["cuCtxSynchronize", "cuMemcpyDtoH"][: 2 if "numpy" in reading else 1]
