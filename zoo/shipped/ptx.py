"""The PTX of the cubins, which is what the emulator runs: one archive, held to the digest in the manifest."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path

from zoo.contract.manifest import Manifest, Variant
from zoo.errors import IntegrityError

FILE = "ptx.tar.xz"


def name_of(file: str) -> str:
    """What the PTX of a cubin is called in the archive."""
    return file.removesuffix(".cubin") + ".ptx"


def digest(texts: Mapping[str, bytes]) -> str:
    """Of what an archive holds, not of its own bytes: another xz may pack the same texts differently."""
    total = hashlib.sha256()
    for name, text in sorted(texts.items()):
        total.update(f"{name}\n{len(text)}\n".encode() + text)
    return total.hexdigest()


def pack(texts: Mapping[str, bytes]) -> bytes:
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", format=tarfile.USTAR_FORMAT) as archive:
        for name, text in sorted(texts.items()):
            member = tarfile.TarInfo(name)  # time, owner and mode are the same everywhere
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return packed.getvalue()


def read(path: Path) -> dict[str, bytes]:
    """name -> text. OSError and IntegrityError where there is no archive or none that can be read."""
    import lzma  # only the emulator, the build and `zoo verify` come here
    import tarfile

    data = path.read_bytes()
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as archive:
            return {member.name: file.read() for member in archive if member.isfile() and (file := archive.extractfile(member))}
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise IntegrityError(f"the archive {path} is damaged: {error}; reinstall zoo") from None


def problem(directory: Path, manifest: Manifest) -> str | None:
    """What is wrong with a directory's archive, or None."""
    try:
        texts = read(directory / FILE)
    except OSError as error:
        return f"cannot be read: {error.strerror}; reinstall zoo or run build_cubins.py"
    except IntegrityError as error:
        return str(error)
    if digest(texts) != manifest.ptx_sha256:
        return "altered: what it holds has not the digest in the manifest; reinstall zoo"
    return None


class Texts:
    """The PTX of one cubin directory, read when it is first asked for."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._texts: dict[str, bytes] | None = None

    def of(self, variant: Variant, manifest: Manifest) -> str:
        if self._texts is None:
            if manifest.ptx_sha256 is None:
                raise IntegrityError(f"{self._directory} comes without PTX, which is what the emulator runs; build it with build_cubins.py")
            wrong = problem(self._directory, manifest)
            if wrong is not None:
                raise IntegrityError(f"{self._directory / FILE}: {wrong}")
            self._texts = read(self._directory / FILE)
        text = self._texts.get(name_of(variant.file))
        if text is None:
            raise IntegrityError(f"{self._directory / FILE} has no PTX of {variant.file}; run build_cubins.py")
        return text.decode()
