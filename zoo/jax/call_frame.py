"""XLA's FFI as its C header has it (xla/ffi/api/c_api.h, which jaxlib ships): what a handler is given, and what it may ask for.

Every structure begins with its size. One that is shorter than what is read of it, or of another major version, is refused; a longer
one has fields that were added later, behind those that are known here. All offsets are those of machines with 64 bits.
"""

from __future__ import annotations

import ctypes
import re
import struct
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

MAJOR = 0  # of the API that is written down here; minor versions add behind

COMMAND_BUFFER_COMPATIBLE = 1  # a handler's trait: XLA may capture what it enqueues and replay that
INVALID_ARGUMENT, INTERNAL = 3, 13  # error codes

# Offsets in bytes. A frame is size, extension, api, context, stage, and three groups of fields: arguments, results, attributes, each of
# size, extension, count, types, (names of attributes,) pointers.
_SIZE_OF_FRAME = 168
_EXTENSION, _API, _CONTEXT = 8, 16, 24
_INPUTS, _OF_INPUTS, _RESULTS, _OF_RESULTS, _ATTRIBUTES, _TYPES, _OF_ATTRIBUTES = 56, 72, 96, 112, 136, 144, 160
_SIZE_OF_BUFFER, _DATA, _RANK, _DIMS = 48, 24, 32, 40  # of size, extension, dtype, data, rank, dims
_SCALAR, _STRING = (3).to_bytes(4, "little"), (4).to_bytes(4, "little")  # types of attributes
_METADATA = 1  # the type of an extension, which is size, type, next, metadata
_SIZE_OF_METADATA, _MAJOR_IN_METADATA = 36, 24  # of size, api_version{size extension major minor}, traits
# An API is size, extension, api_version{size, extension, major, minor}, internal_api, functions
_MAJOR, _MINOR, _ERROR_CREATE, _STREAM_GET = 32, 36, 48, 80

_word = ctypes.c_uint64.from_address  # costs a twentieth of ctypes.string_at
addressof = ctypes.addressof
_bytes: Callable[[int, int], bytes] = ctypes.string_at


class UnknownLayoutError(Exception):
    """XLA speaks another version of its FFI than is written down here."""


class Buffer(NamedTuple):
    address: int
    shape: tuple[int, ...]


def key_of(frame: int) -> int:
    """The second attribute, a whole number, in the order of names: what tells calls apart."""
    if _word(frame).value < _SIZE_OF_FRAME:
        return 0  # which no call has, so that the text is looked at, and refuses
    return _word(_word(_word(_word(frame + _OF_ATTRIBUTES).value + 8).value + 8).value).value


def text_of(frame: int) -> bytes:
    """The first attribute, a text; all that is read of this frame by other functions is checked here to be there."""
    size, attributes = _word(frame).value, _word(frame + _ATTRIBUTES).value
    if size < _SIZE_OF_FRAME or attributes != 2 or _bytes(_word(frame + _TYPES).value, 8) != _STRING + _SCALAR:
        raise UnknownLayoutError(
            f"a call frame of {size} bytes, {attributes} attributes; zoo.jax knows {_SIZE_OF_FRAME}, with a text and a number"
        )
    version(_word(frame + _API).value)
    span = _word(_word(frame + _OF_ATTRIBUTES).value).value
    return _bytes(_word(span).value, _word(span + 8).value)


def inputs_at(frame: int, places: Sequence[int]) -> list[int]:
    """Where the elements of these inputs are."""
    first = _word(frame + _OF_INPUTS).value
    return [_word(_word(first + 8 * place).value + _DATA).value for place in places]


def results_at(frame: int, places: Sequence[int]) -> list[int]:
    first = _word(frame + _OF_RESULTS).value
    return [_word(_word(first + 8 * place).value + _DATA).value for place in places]


def buffers_of(frame: int) -> list[Buffer]:
    """Inputs, then results."""
    found = []
    for count, pointers in ((_INPUTS, _OF_INPUTS), (_RESULTS, _OF_RESULTS)):
        first = _word(frame + pointers).value
        for number in range(_word(frame + count).value):
            place = _word(first + 8 * number).value
            if _word(place).value < _SIZE_OF_BUFFER:
                raise UnknownLayoutError(f"a buffer record of {_word(place).value} bytes; zoo.jax knows {_SIZE_OF_BUFFER}")
            rank = _word(place + _RANK).value
            dims = struct.unpack(f"<{rank}q", _bytes(_word(place + _DIMS).value, 8 * rank)) if rank else ()
            found.append(Buffer(_word(place + _DATA).value, dims))
    return found


def version_in_header(text: str) -> tuple[int, int]:
    """Which version of the API jaxlib's header says it has."""
    found = dict(re.findall(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)$", text, re.MULTILINE))
    if int(found.get("MAJOR", -1)) != MAJOR or "MINOR" not in found:
        raise UnknownLayoutError(f"version {found.get('MAJOR', 'unknown')} of XLA's FFI; zoo.jax knows {MAJOR}.x: install a newer zoo")
    return MAJOR, int(found["MINOR"])


def answer_metadata(frame: int, traits: int, header: tuple[int, int]) -> bool:
    """Whether the frame is no call, but the question for which version of the API the handler was written: then it is answered.

    The answer is XLA's own minor version, by the API that it passes or else by its header: what is used here, all of them have.
    """
    extension = _word(frame + _EXTENSION).value
    while extension:
        if int.from_bytes(_bytes(extension + 8, 4), "little") == _METADATA:
            break
        extension = _word(extension + 16).value
    else:
        return False
    metadata, api = _word(extension + 24).value, _word(frame + _API).value
    if _word(metadata).value < _SIZE_OF_METADATA:
        raise UnknownLayoutError(f"a metadata record of {_word(metadata).value} bytes; zoo.jax knows {_SIZE_OF_METADATA}")
    ctypes.memmove(metadata + _MAJOR_IN_METADATA, struct.pack("<2iI", *(version(api) if api else header), traits), 12)
    return True


@cache
def version(api: int) -> tuple[int, int]:
    """Of the API at this address: major and minor."""
    size = _word(api).value
    major, minor = struct.unpack("<2i", _bytes(api + _MAJOR, 8))
    if major != MAJOR or size < _STREAM_GET + 8:
        raise UnknownLayoutError(f"version {major}.{minor} of XLA's FFI, {size} bytes long; zoo.jax knows {MAJOR}.x")
    return major, minor


class _ErrorCreate(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("message", ctypes.c_char_p), ("code", ctypes.c_int))


class _StreamGet(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("context", ctypes.c_uint64), ("stream", ctypes.c_void_p))


@cache
def _function(api: int, offset: int) -> Callable[[Any], int | None]:
    """One of the API's functions. They are short, so the interpreter's lock is kept."""
    version(api)
    prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    return prototype(_word(api + offset).value)


def error(frame: int, code: int, message: str) -> int:
    """What a handler returns where it failed: XLA destroys it."""
    text = message.encode("utf-8", "replace").replace(b"\0", b"?")
    arguments = _ErrorCreate(ctypes.sizeof(_ErrorCreate), None, text, code)
    return _function(_word(frame + _API).value, _ERROR_CREATE)(ctypes.addressof(arguments)) or 0


def stream_of(frame: int) -> int:
    """The stream that XLA enqueues this call's work on."""
    arguments = _StreamGet(32, None, _word(frame + _CONTEXT).value)
    if _function(_word(frame + _API).value, _STREAM_GET)(addressof(arguments)):
        raise UnknownLayoutError("XLA gives no stream")
    return arguments.stream or 0


Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

if sys.maxsize < 2**32:
    raise ImportError("zoo.jax is for machines with 64 bits")
