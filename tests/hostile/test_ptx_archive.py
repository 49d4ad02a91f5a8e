"""An archive of PTX may be anything until its digest is known: reading one is bounded in time and memory, and by one rule."""

import hashlib
import io
import lzma
import os
import shutil
import tarfile
import zlib
from types import SimpleNamespace

import pytest

from tests.hostile.bounded import bounded
from zoo.catalog import Zoo
from zoo.errors import IntegrityError
from zoo.shipped import ptx

TEXTS = {"sm_90a/one.ptx": b".version 9.0\n", "sm_90a/two.ptx": b"x" * 700}


def archive_of(*members: tarfile.TarInfo, form=tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", format=form) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return packed.getvalue()


def member(name: str, size: int = 0, **fields) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size = size
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def sparse_tar(size: int) -> bytes:
    """A member without a byte of data that unpacks to `size` zeros."""
    sparse = member("sm_90a/one.ptx")
    sparse.pax_headers = {"GNU.sparse.map": f"{size},0", "GNU.sparse.size": str(size)}
    return archive_of(sparse)


def zeros(size: int) -> bytes:
    header = member("sm_90a/one.ptx", size).tobuf(tarfile.USTAR_FORMAT)
    packer = lzma.LZMACompressor(preset=0)
    parts = [packer.compress(header)]
    for _ in range(size >> 20):
        parts.append(packer.compress(bytes(1 << 20)))
    return b"".join([*parts, packer.flush()])


def refusal(tmp_path, packed: bytes) -> str:
    path = tmp_path / ptx.FILE
    path.write_bytes(packed)
    with pytest.raises(IntegrityError) as caught:
        ptx.read(path)
    found = ptx.problem(tmp_path, SimpleNamespace(ptx_sha256="0" * 64))
    assert found is not None
    return str(caught.value)


def test_what_is_packed_is_read_and_the_same_archive_is_made_of_it(tmp_path):
    (tmp_path / ptx.FILE).write_bytes(ptx.pack(TEXTS))
    assert ptx.read(tmp_path / ptx.FILE) == TEXTS
    assert ptx.problem(tmp_path, SimpleNamespace(ptx_sha256=ptx.digest(TEXTS))) is None


@pytest.mark.parametrize("packed", [sparse_tar(6 << 30), zeros(64 << 20)], ids=["a sparse member", "packed zeros"])
def test_a_bomb_costs_neither_memory_nor_time(tmp_path, packed):
    """A sparse tar of a few hundred bytes made verify take 6.3 GB."""
    (tmp_path / ptx.FILE).write_bytes(packed)
    said = bounded(
        """
        from pathlib import Path
        from types import SimpleNamespace
        from zoo.shipped import ptx
        before = resource.getrusage(resource.RUSAGE_SELF)
        print(ptx.problem(Path(sys.argv[1]), SimpleNamespace(ptx_sha256="0" * 64)))
        after = resource.getrusage(resource.RUSAGE_SELF)
        assert after.ru_utime - before.ru_utime < 1, after
        assert after.ru_maxrss - before.ru_maxrss < 40 << 10, after
        """,
        tmp_path,
    )
    assert "damaged" in said


def test_a_small_archive_may_not_unpack_to_more_than_256_times_itself(tmp_path):
    short = zeros(15 << 20)
    assert "256 times its own length" in refusal(tmp_path, short)


def test_the_limit_of_all_texts_is_exact(tmp_path, monkeypatch):
    packed = ptx.pack(TEXTS)
    unpacked = len(lzma.decompress(packed))
    (tmp_path / ptx.FILE).write_bytes(packed)
    monkeypatch.setattr(ptx, "MOST_EXPANSION", 0)
    monkeypatch.setattr(ptx, "_SMALLEST_TOTAL", unpacked)
    assert ptx.read(tmp_path / ptx.FILE) == TEXTS
    monkeypatch.setattr(ptx, "_SMALLEST_TOTAL", unpacked - 1)
    assert "unpacks to more" in refusal(tmp_path, packed)


def test_the_limit_of_one_text_is_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(ptx, "LARGEST_TEXT", 700)
    (tmp_path / ptx.FILE).write_bytes(ptx.pack(TEXTS))
    assert ptx.read(tmp_path / ptx.FILE) == TEXTS
    monkeypatch.setattr(ptx, "LARGEST_TEXT", 699)
    assert "plain file of at most 699 bytes" in refusal(tmp_path, ptx.pack(TEXTS))


def test_an_archive_that_asks_for_a_huge_dictionary_is_refused(tmp_path):
    asked = bytearray(ptx.pack(TEXTS))
    start, size = 12, 4 * (asked[12] + 1)  # the block's header follows the stream's
    asked[asked.index(b"\x21\x01", start) + 2] = 40  # LZMA2 with a dictionary of 4 GiB - 1
    asked[start + size - 4 : start + size] = zlib.crc32(asked[start : start + size - 4]).to_bytes(4, "little")
    assert "emory" in refusal(tmp_path, bytes(asked))


@pytest.mark.parametrize(
    "member_of",
    [
        lambda: member("sm_90a/one.ptx", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        lambda: member("sm_90a/one.ptx", type=tarfile.LNKTYPE, linkname="two"),
        lambda: member("sm_90a", type=tarfile.DIRTYPE),
        lambda: member("sm_90a/one.ptx", mtime=1),
        lambda: member("sm_90a/one.ptx", uname="root"),
        lambda: member("../one.ptx"),
        lambda: member("/one.ptx"),
        lambda: member("sm_90a/.one.ptx"),
        lambda: member("-one.ptx"),
        lambda: member("sm_90a/one\n4\n.ptx"),
        lambda: member("sm_90a/$(id).ptx"),
        lambda: member("sm_90a/ö.ptx"),
        lambda: member("sm_90a/" + "o" * 300 + ".ptx"),
    ],
    ids=["symlink", "link", "folder", "time", "owner", "above", "absolute", "hidden", "option", "newline", "shell", "accent", "long"],
)
def test_a_member_that_pack_would_not_write_is_refused(tmp_path, member_of):
    assert "damaged" in refusal(tmp_path, archive_of(member_of()))


def test_a_name_that_comes_twice_or_out_of_order_is_refused(tmp_path):
    one, two = member("sm_90a/one.ptx"), member("sm_90a/two.ptx")
    for order in ((one, one), (two, one)):
        assert "in order" in refusal(tmp_path, archive_of(*order, form=tarfile.USTAR_FORMAT))


def test_a_newline_in_a_name_does_not_merge_two_texts():
    """`a\\n1\\nx` and what follows it were digested as the two members that they spell."""
    split = {"a": b"x", "b": b"y"}
    merged = {"a\n1\nxb": b"y"}
    assert ptx.digest(split) != ptx.digest({"a": b"xb", "c": b"y"})
    with pytest.raises(IntegrityError, match="cannot be called"):
        ptx.digest(merged)


@pytest.mark.parametrize("behind", [b"x", lzma.compress(b"more")], ids=["bytes", "another stream"])
def test_bytes_behind_the_end_are_refused(tmp_path, behind):
    assert "damaged" in refusal(tmp_path, ptx.pack(TEXTS) + behind)


def test_data_behind_the_last_member_is_refused(tmp_path):
    whole = lzma.decompress(ptx.pack(TEXTS))
    assert "behind its end" in refusal(tmp_path, lzma.compress(whole + b"hidden"))
    assert "behind its end" in refusal(tmp_path, lzma.compress(whole + bytes(100_000)))


def test_a_pipe_in_place_of_the_archive_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / ptx.FILE)
    assert "no regular file" in ptx.problem(tmp_path, SimpleNamespace(ptx_sha256="0" * 64))


def test_an_archive_of_many_gigabytes_is_not_read(tmp_path):
    with open(tmp_path / ptx.FILE, "wb") as file:
        file.truncate(1 << 40)
    assert "more than the" in ptx.problem(tmp_path, SimpleNamespace(ptx_sha256="0" * 64))


def test_the_emulator_runs_the_bytes_that_were_verified(tmp_path, monkeypatch):
    """The archive was read once to be verified and once to be used, and might be another the second time."""
    from tests.small_zoo import small_zoo

    folder = small_zoo(tmp_path / "zoo", "quantize.mxfp8.rows", lambda variant: variant["name"] == "bf16_e5m2_blocked_t256")
    zoo = Zoo(folder)
    other = tmp_path / "other.tar.xz"
    good = ptx.read(folder / ptx.FILE)
    other.write_bytes(ptx.pack(dict.fromkeys(good, b"// another")))
    reads = []

    def read_then_swap(path, most, original=ptx.read_file):
        reads.append(path)
        data = original(path, most)
        shutil.copy(other, folder / ptx.FILE)
        return data

    monkeypatch.setattr(ptx, "read_file", read_then_swap)
    variant = zoo.kernel("quantize.mxfp8.rows").variants[0]
    assert ptx.Texts(folder).of(variant, zoo.manifest).encode() == good[ptx.name_of(variant.file)]
    assert len(reads) == 1


def test_every_truncation_is_refused_and_ends(tmp_path):
    packed = ptx.pack(TEXTS)
    for length in range(len(packed)):
        assert "is damaged: " in refusal(tmp_path, packed[:length])


def tar_of(texts) -> bytes:
    parts = [ptx._member(name, len(text)).tobuf(tarfile.USTAR_FORMAT) + text + bytes(-len(text) % 512) for name, text in texts.items()]
    return b"".join(parts)


@pytest.mark.parametrize(
    ("blocks", "words"), [(0, "it ends too early"), (1, None), (2, None), (22, None), (23, None), (24, "there is more behind its end")]
)
def test_an_archive_ends_in_one_empty_block_and_up_to_a_record_of_padding(tmp_path, blocks, words):
    packed = lzma.compress(tar_of(TEXTS) + bytes(512 * blocks))
    if words is None:
        (tmp_path / ptx.FILE).write_bytes(packed)
        assert ptx.read(tmp_path / ptx.FILE) == TEXTS
    else:
        assert words in refusal(tmp_path, packed)


def test_a_stream_without_its_own_end_is_refused(tmp_path):
    """All members and the empty blocks are there, the end of the xz stream is not."""
    packer = lzma.LZMACompressor()
    packed = packer.compress(tar_of(TEXTS) + bytes(1024) + os.urandom(1 << 17))
    assert packed and "there is more behind its end" in refusal(tmp_path, packed)
    whole = lzma.compress(tar_of(TEXTS) + bytes(1024))
    assert "it ends too early" in refusal(tmp_path, whole[:-16])


def test_the_digest_is_of_names_lengths_and_texts():
    wanted = hashlib.sha256(b"a.ptx\n3\nonesm_90a/b.ptx\n0\n").hexdigest()
    assert ptx.digest({"sm_90a/b.ptx": b"", "a.ptx": b"one"}) == wanted
    assert ptx.name_of("sm_90a/one.cubin") == "sm_90a/one.ptx"


def test_the_limits_are_far_from_what_the_zoo_holds():
    assert (ptx.LARGEST_ARCHIVE, ptx.LARGEST_TEXT, ptx.LARGEST_TOTAL, ptx.MOST_EXPANSION) == (64 << 20, 16 << 20, 512 << 20, 256)
    assert (ptx._SMALLEST_TOTAL, ptx._DECOMPRESSOR_BYTES, ptx._LARGEST_END) == (1 << 20, 80 << 20, 22 * 512)


def test_a_text_that_is_missing_or_no_ascii_is_told_for_its_cubin(tmp_path):
    texts = {"a.ptx": b".target sm_90a // \xe9\n"}
    (tmp_path / ptx.FILE).write_bytes(ptx.pack(texts))
    manifest = SimpleNamespace(ptx_sha256=ptx.digest(texts))
    with pytest.raises(IntegrityError, match=r"the PTX of a\.cubin is not ASCII; run build_cubins\.py"):
        ptx.Texts(tmp_path).of(SimpleNamespace(file="a.cubin"), manifest)
    with pytest.raises(IntegrityError, match=r"has no PTX of b\.cubin; run build_cubins\.py"):
        ptx.Texts(tmp_path).of(SimpleNamespace(file="b.cubin"), manifest)
    with pytest.raises(IntegrityError, match="comes without PTX, which is what the emulator runs"):
        ptx.Texts(tmp_path).of(SimpleNamespace(file="a.cubin"), SimpleNamespace(ptx_sha256=None))
    assert ptx.problem(tmp_path, manifest) is None
    assert "altered: what it holds has not the digest" in ptx.problem(tmp_path, SimpleNamespace(ptx_sha256="0" * 64))


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    assert ptx.problem(tmp_path, SimpleNamespace(ptx_sha256="")) == (
        "cannot be read: No such file or directory; reinstall zoo or run build_cubins.py"
    )
