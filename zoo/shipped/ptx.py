"""The PTX of the cubins, which is what the emulator runs: one archive, held to the digest in the manifest.

The archive may be anything until its digest is found to be right, so it is unpacked in a stream that is bounded: in the length of
each text, in all of them together, and in how many times its own length it may unpack to. Its members are what `pack` writes
and nothing else: regular files in order of their names, no links, no sparse ones, nothing behind the end.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.contract.files import is_file_name, read_file
from zoo.contract.manifest import Manifest, Variant
from zoo.errors import IntegrityError

if TYPE_CHECKING:
    import tarfile

FILE = "ptx.tar.xz"
LARGEST_ARCHIVE = 64 << 20
LARGEST_TEXT = 16 << 20
LARGEST_TOTAL = 512 << 20
MOST_EXPANSION = 256  # times the archive's own length; PTX packs to a twentieth, zeros to a seven-thousandth
_SMALLEST_TOTAL = 1 << 20  # that any archive may unpack to, short as it may be
_DECOMPRESSOR_BYTES = 80 << 20  # the dictionary of the highest preset fits, what a header may ask for does not
_BLOCK = 512
_LARGEST_END = 2 * _BLOCK + 20 * _BLOCK  # two empty blocks, and up to a record of padding


def name_of(file: str) -> str:
    """What the PTX of a cubin is called in the archive."""
    return file.removesuffix(".cubin") + ".ptx"


def digest(texts: Mapping[str, bytes]) -> str:
    """Of what an archive holds, not of its own bytes: another xz may pack the same texts differently."""
    total = hashlib.sha256()
    for _ in _hashed(sorted(texts.items()), total):
        pass
    return total.hexdigest()


def _hashed(texts: Iterable[tuple[str, bytes]], total: hashlib._Hash) -> Iterator[tuple[str, bytes]]:
    """The texts as they come, each told to `total`. No name holds a newline, so no two archives tell it the same."""
    for name, text in texts:
        if not is_file_name(name):
            raise IntegrityError(f"a member of the PTX archive cannot be called {name[:80]!r}")
        total.update(f"{name}\n{len(text)}\n".encode())
        total.update(text)
        yield name, text


def pack(texts: Mapping[str, bytes]) -> bytes:
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", format=tarfile.USTAR_FORMAT) as archive:
        for name, text in sorted(texts.items()):
            archive.addfile(_member(name, len(text)), io.BytesIO(text))
    return packed.getvalue()


def _member(name: str, size: int) -> tarfile.TarInfo:
    """Time, owner and mode are the same everywhere."""
    import tarfile

    member = tarfile.TarInfo(name)
    member.size = size
    return member


def read(path: Path) -> dict[str, bytes]:
    """name -> text. OSError and IntegrityError where there is no archive or none that can be read."""
    try:
        return dict(_members(read_file(path, LARGEST_ARCHIVE)))
    except _Damaged as error:
        raise IntegrityError(f"the archive {path} is damaged: {error}; reinstall zoo") from None


def problem(directory: Path, manifest: Manifest) -> str | None:
    """What is wrong with a directory's archive, or None. No two texts are held at a time."""
    try:
        for _ in _verified(directory, manifest):
            pass
    except IntegrityError as error:
        return str(error)
    return None


def _verified(directory: Path, manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """(name, text) of all that the archive holds; at the end IntegrityError, unless it was what the manifest says."""
    total = hashlib.sha256()
    try:
        yield from _hashed(_members(read_file(directory / FILE, LARGEST_ARCHIVE)), total)
    except OSError as error:
        raise IntegrityError(f"cannot be read: {error.strerror}; reinstall zoo or run build_cubins.py") from None
    except _Damaged as error:
        raise IntegrityError(f"damaged: {error}; reinstall zoo") from None
    if total.hexdigest() != manifest.ptx_sha256:
        raise IntegrityError("altered: what it holds has not the digest in the manifest; reinstall zoo")


class _Damaged(Exception):
    pass


def _members(packed: bytes) -> Iterator[tuple[str, bytes]]:
    import tarfile

    stream, last = _Unpacked(packed), ""
    while True:
        header = stream.take(_BLOCK)
        if not any(header):
            break
        name = b"/".join(part.rstrip(b"\0") for part in (header[345:500], header[:100]) if part[0]).decode("latin-1")
        if not is_file_name(name) or name <= last:
            raise _Damaged(f"a member {name[:80]!r} after {last!r}; names are plain, and in order")
        octal = header[124:135]
        size = int(octal, 8) if octal.isdigit() and not set(octal) & set(b"89") else LARGEST_TEXT + 1
        if size > LARGEST_TEXT or header != _member(name, size).tobuf(tarfile.USTAR_FORMAT):
            raise _Damaged(f"{name} is not a plain file of at most {LARGEST_TEXT:,} bytes, written by build_cubins.py")
        text = stream.take(-(-size // _BLOCK) * _BLOCK)
        yield name, text[:size]
        last = name
    stream.expect_end()


class _Unpacked:
    """The stream inside an xz file, taken piece by piece."""

    def __init__(self, packed: bytes):
        import lzma  # only the emulator, the build and `zoo verify` come here

        self._error = lzma.LZMAError
        self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DECOMPRESSOR_BYTES)
        self._packed = packed
        self._ready = bytearray()
        self._left = min(LARGEST_TOTAL, max(_SMALLEST_TOTAL, MOST_EXPANSION * len(packed)))

    def take(self, count: int) -> bytes:
        while len(self._ready) < count:
            if self._decompressor.eof or (self._decompressor.needs_input and not self._packed):
                raise _Damaged("it ends too early")
            self._more()
        taken = bytes(self._ready[:count])
        del self._ready[:count]
        return taken

    def _more(self) -> None:
        try:
            found = self._decompressor.decompress(self._packed, 1 << 20)
        except self._error as error:
            raise _Damaged(str(error)) from None
        self._packed = b""
        self._ready += found
        self._left -= len(found)
        if self._left < 0:
            raise _Damaged(f"it unpacks to more than {MOST_EXPANSION} times its own length, or more than {LARGEST_TOTAL:,} bytes")

    def expect_end(self) -> None:
        while not self._decompressor.eof and len(self._ready) <= _LARGEST_END:
            if self._decompressor.needs_input and not self._packed:
                raise _Damaged("it ends too early")
            self._more()
        if len(self._ready) > _LARGEST_END or any(self._ready) or self._decompressor.unused_data:
            raise _Damaged("there is more behind its end")


class Texts:
    """The PTX of one cubin directory, read when it is first asked for: what is given out are the bytes that were verified."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._texts: dict[str, bytes] | None = None

    def of(self, variant: Variant, manifest: Manifest) -> str:
        if self._texts is None:
            if manifest.ptx_sha256 is None:
                raise IntegrityError(f"{self._directory} comes without PTX, which is what the emulator runs; build it with build_cubins.py")
            try:
                self._texts = dict(_verified(self._directory, manifest))
            except IntegrityError as error:
                raise IntegrityError(f"{self._directory / FILE}: {error}") from None
        text = self._texts.get(name_of(variant.file))
        if text is None:
            raise IntegrityError(f"{self._directory / FILE} has no PTX of {variant.file}; run build_cubins.py")
        try:
            return text.decode("ascii")
        except UnicodeDecodeError:
            raise IntegrityError(f"{self._directory / FILE}: the PTX of {variant.file} is not ASCII; run build_cubins.py") from None
