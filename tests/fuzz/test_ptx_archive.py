"""Archives of PTX with something wrong in them: refused in words, or held to the digest."""

import io
import lzma
import random
import tarfile
import tempfile
from pathlib import Path
from types import SimpleNamespace

from tests.fuzz.campaign import fuzz
from tests.fuzz.mutations import mutated_bytes, number
from zoo.errors import IntegrityError
from zoo.shipped import ptx

TEXTS = {f"sm_90a/kernel_{number}.ptx": f".version {number}\n".encode() * number for number in range(1, 30)}
WHOLE = ptx.digest(TEXTS)
_KINDS = tuple(bytes([kind]) for kind in b"\0" + b"01234567LKSxgDMNV")


def _tar(pick: random.Random) -> bytes:
    """A tar of any form, with a member that is none of ours."""
    unpacked = io.BytesIO()
    with tarfile.open(
        fileobj=unpacked, mode="w", format=pick.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    ) as archive:
        for name, text in pick.sample(sorted(TEXTS.items()), 3):
            member = tarfile.TarInfo(name if pick.random() < 0.7 else pick.choice(("../x", "/x", "a\nb", "x" * 90, "é", "", "a//b")))
            member.type = pick.choice(_KINDS) if pick.random() < 0.3 else tarfile.REGTYPE
            member.linkname = "x" if pick.random() < 0.1 else ""
            member.size = len(text)
            if pick.random() < 0.2:
                member.pax_headers = {"GNU.sparse.size": str(abs(number(pick))), "GNU.sparse.map": "0,0"}
            archive.addfile(member, io.BytesIO(text))
    return unpacked.getvalue()


def archive(pick: random.Random) -> bytes:
    kind = pick.randrange(4)
    if kind == 0:
        return mutated_bytes(pick, ptx.pack(TEXTS), pick.choice((1, 1, 2, 8)))
    if kind == 1:
        return lzma.compress(mutated_bytes(pick, lzma.decompress(ptx.pack(TEXTS)), pick.choice((1, 2, 8))), preset=0)
    if kind == 2:
        form, check = pick.choice(((lzma.FORMAT_XZ, lzma.CHECK_CRC32), (lzma.FORMAT_ALONE, -1), (lzma.FORMAT_XZ, lzma.CHECK_NONE)))
        return lzma.compress(_tar(pick), format=form, check=check, preset=pick.choice((0, 6)))
    return ptx.pack(TEXTS) + pick.choice((b"", b"\0" * 4, lzma.compress(b""), pick.randbytes(9)))


def a_mutant_archive_is_refused_or_is_the_one_that_was_packed(pick: random.Random) -> str:
    packed = archive(pick)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ptx.FILE).write_bytes(packed)
        wrong = ptx.problem(Path(folder), SimpleNamespace(ptx_sha256=WHOLE))
        try:
            texts = ptx.read(Path(folder) / ptx.FILE)
        except IntegrityError:
            texts = None
    assert (wrong is None) == (texts == TEXTS), wrong
    return "taken" if wrong is None else wrong.partition(":")[0]


def test_mutated_archives():
    assert fuzz(a_mutant_archive_is_refused_or_is_the_one_that_was_packed, 150)["damaged"]
