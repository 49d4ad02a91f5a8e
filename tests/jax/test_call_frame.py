"""The records of XLA's FFI, made here by hand: what is read of them, and that unknown ones are refused and not read."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest

pytest.importorskip("jax", reason="JAX is not installed: pip install jax")

from zoo.jax import call_frame
from zoo.jax.call_frame import UnknownLayoutError

_VERSION = (0, 3)


class Frame:
    """A call frame in memory, as C lays it out. `errors` are the messages that a handler made errors of."""

    def __init__(
        self, size: int = 168, major: int = 0, text: bytes = b"{}", key: int = 7, buffers: tuple[tuple[int, ...], ...] = ((2, 3),)
    ):
        self._keep: list[Any] = []
        self.errors: list[tuple[bytes, int]] = []
        error = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(self._error)
        stream = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(self._stream)
        functions = [ctypes.cast(one, ctypes.c_void_p).value for one in (error, error, error, error, stream)]
        self._keep += [error, stream]
        api = self._put(struct.pack("<4Q2iQ5Q", 88, 0, 24, 0, major, 3, 0, *functions))
        span = self._put(struct.pack("<2Q", self._put(text), len(text)))
        number = self._put(struct.pack("<2iQ", 5, 0, self._put(struct.pack("<Q", key))))
        attributes, types = self._put(struct.pack("<2Q", span, number)), self._put(struct.pack("<2i", 4, 3))
        shapes = [self._put(struct.pack(f"<{len(shape)}q", *shape)) for shape in buffers]
        records = [
            self._put(struct.pack("<2Q2iQqQ", 48, 0, 11, 0, 0x1000 * (place + 1), len(shape), dims))
            for place, (shape, dims) in enumerate(zip(buffers, shapes, strict=True))
        ]
        pointers = self._put(struct.pack(f"<{len(records)}Q", *records))
        group = (40, 0, len(records), 0, pointers)
        self.at = self._put(struct.pack("<4Q2i16Q", size, 0, api, 0xC0, 3, 0, *group, *group, 48, 0, 2, types, 0, attributes))

    def _put(self, data: bytes) -> int:
        self._keep.append(ctypes.create_string_buffer(data, max(len(data), 1)))
        return ctypes.addressof(self._keep[-1])

    def _error(self, arguments: int) -> int:
        size, _, message, code = struct.unpack("<3Qi", ctypes.string_at(arguments, 28))
        assert size == 32
        self.errors.append((ctypes.string_at(message), code))
        return 0xE0

    def _stream(self, arguments: int) -> None:
        assert struct.unpack("<3Q", ctypes.string_at(arguments, 24)) == (32, 0, 0xC0)
        ctypes.memmove(arguments + 24, struct.pack("<Q", 0x5E), 8)

    def change(self, offset: int, form: str, value: int) -> Frame:
        ctypes.memmove(self.at + offset, struct.pack(form, value), struct.calcsize(form))
        return self


def test_a_frame_is_read_as_c_lays_it_out():
    frame = Frame(text=b"what to do", key=2**63 + 5, buffers=((2, 3), (), (0, 4)))
    assert call_frame.text_of(frame.at) == b"what to do"
    assert call_frame.key_of(frame.at) == 2**63 + 5
    assert call_frame.stream_of(frame.at) == 0x5E
    assert call_frame.inputs_at(frame.at, [0, 2]) == [0x1000, 0x3000]
    assert call_frame.results_at(frame.at, range(3)) == [0x1000, 0x2000, 0x3000]
    assert [buffer.shape for buffer in call_frame.buffers_of(frame.at)] == 2 * [(2, 3), (), (0, 4)]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (Frame(size=160), "a call frame of 160 bytes"),
        (Frame().change(136, "<Q", 1), "1 attributes"),
        (Frame(major=1), "version 1.3 of XLA's FFI"),
    ],
)
def test_a_frame_of_another_layout_is_refused(frame, said):
    with pytest.raises(UnknownLayoutError, match=said):
        call_frame.text_of(frame.at)


def test_a_frame_too_short_for_its_key_has_none():
    """So that the text, which every new key asks for, refuses it."""
    assert call_frame.key_of(Frame(size=160).at) == 0


def test_an_error_carries_its_sentence_whatever_is_in_it():
    frame = Frame()
    assert call_frame.error(frame.at, call_frame.INVALID_ARGUMENT, "x: expected \0 and ü") == 0xE0
    assert frame.errors == [("x: expected ? and ü".encode(), 3)]


def metadata(size: int = 48) -> tuple[Frame, Any]:
    record = ctypes.create_string_buffer(struct.pack("<Q", size) + bytes(56))
    extension = ctypes.create_string_buffer(struct.pack("<Q2i2Q", 32, 1, 0, 0, ctypes.addressof(record)))
    other = ctypes.create_string_buffer(struct.pack("<Q2iQ", 24, 99, 0, ctypes.addressof(extension)))
    frame = Frame().change(8, "<Q", ctypes.addressof(other)).change(16, "<Q", 0)
    frame._keep += [record, extension, other]
    return frame, record


def test_the_question_for_the_version_is_answered_behind_other_extensions():
    frame, record = metadata()
    assert call_frame.answer_metadata(frame.at, call_frame.COMMAND_BUFFER_COMPATIBLE, _VERSION)
    assert struct.unpack("<2iI", record.raw[24:36]) == (0, 3, 1)
    assert record.raw[36:] == bytes(len(record.raw) - 36)


def test_a_call_is_no_question_for_the_version():
    assert not call_frame.answer_metadata(Frame().at, 0, _VERSION)


def test_a_metadata_record_that_is_too_short_is_not_written():
    frame, record = metadata(size=32)
    with pytest.raises(UnknownLayoutError, match="metadata record of 32 bytes"):
        call_frame.answer_metadata(frame.at, 0, _VERSION)
    assert record.raw[8:] == bytes(len(record.raw) - 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [("#define XLA_FFI_API_MAJOR 1\n#define XLA_FFI_API_MINOR 0\n", "version 1 of"), ("nothing", "version unknown")],
)
def test_a_header_of_another_version_is_refused(text, said):
    with pytest.raises(UnknownLayoutError, match=said):
        call_frame.version_in_header(text)
    assert call_frame.version_in_header("#define XLA_FFI_API_MAJOR 0\n#define XLA_FFI_API_MINOR 12\n") == (0, 12)


def test_whatever_a_handler_raises_becomes_an_error_of_xla(monkeypatch):
    import jax

    import zoo
    import zoo.jax
    from zoo.reference import kernels

    for raised, said in (
        (KeyError("somewhere"), "zoo.jax: KeyError: 'somewhere'"),
        (zoo.DriverError("the driver is gone"), "the driver is gone"),
    ):

        def fail(*_: Any, error: Exception = raised, **__: Any) -> None:
            raise error

        monkeypatch.setattr(kernels, "run", fail)
        with pytest.raises(jax.errors.JaxRuntimeError, match=said):
            jax.block_until_ready(zoo.jax.call("quantize.fp8b128.rows", x=jax.numpy.ones((2, 128), device=jax.devices("cpu")[0])))


def test_arrays_that_may_not_lie_where_they_do_are_named(monkeypatch):
    import zoo
    from zoo.jax import handlers

    def planned(frame: int, stream: int, key: int) -> Any:
        raise zoo.ArgumentError(f"x: says {frame == at} {stream} {key}")

    class Plan:
        launch = None

        def move(self, addresses: list[int]) -> bool:
            assert addresses == [0x2000, 0x1000]
            return False

    made = Frame(buffers=((1,), (1,)))
    at = made.at
    monkeypatch.setattr(handlers._local, "plans", {(7, 0x5E): (Plan(), [1], [0])}, raising=False)
    monkeypatch.setattr(handlers, "_planned", planned)
    with pytest.raises(zoo.ArgumentError, match="x: says True 94 7"):
        handlers._on_gpu(at)


def test_a_kernel_is_loaded_on_devices_in_use_and_starts_no_other(monkeypatch):
    """Loaded nowhere, it would be loaded while XLA captures a graph, which fails; loaded everywhere, each GPU of the machine would be started."""
    from zoo.jax import handlers

    class Bindings:
        def cuDeviceGet(self, ordinal: int) -> tuple[int, int]:
            return 0, ordinal + 100

        def cuDevicePrimaryCtxGetState(self, handle: int) -> tuple[int, int, int]:
            return 0, 1, {100: 1, 101: 0, 102: 0, 103: 1}[handle]

    monkeypatch.setattr(handlers.driver, "bindings", Bindings)
    monkeypatch.setattr(handlers.driver, "device_count", lambda: 4)
    assert handlers._devices_in_use() == [0, 3]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_an_array_without_elements_is_read_at_no_address(shape):
    from zoo.jax import handlers
    from zoo.jax.described import Part

    found = handlers._as_numpy(Part("x", "bf16", shape, (4, 1), shape), 0)
    assert found.shape == shape and found.dtype == "bfloat16"
