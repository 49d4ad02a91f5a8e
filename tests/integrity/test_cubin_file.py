"""The ELF reader: right on real cubins, and never anything but IntegrityError on broken ones."""

import contextlib
import random
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.errors import IntegrityError
from zoo.shipped.cubin_file import CubinFile, read_cubin

CUBINS = Path(__file__).resolve().parents[1] / "zoo_cubins"
FILES = sorted(CUBINS.glob("*/*.cubin"))


def name_of(path):
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_cubin_tells_its_arch_and_its_one_kernel(path):
    cubin = read_cubin(path.read_bytes())
    assert cubin.arch == path.parent.name
    assert list(cubin.kernels) == [path.stem]
    assert "V13." in cubin.compiler


def test_parameters_of_a_real_kernel():
    """map, i32, map, pointer, f32, pointer, i64, pointer, 4 x i32; on sm_90 the block starts at 0x210, which is not a
    multiple of 64, so that the first map starts 48 bytes into it."""
    sizes = [128, 4, 128, 8, 4, 8, 8, 8, 4, 4, 4, 4]
    first = {"sm_90a": (0x210, 48), "sm_100f": (0x380, 0)}
    for arch, (base, offset) in first.items():
        kernel = read_cubin((CUBINS / arch / "gemm_fp8b128_dense__f32_m64.cubin").read_bytes()).kernels["gemm_fp8b128_dense__f32_m64"]
        assert kernel.parameter_base == base
        assert [parameter.size for parameter in kernel.parameters] == sizes
        offsets = [parameter.offset - offset for parameter in kernel.parameters]
        assert offsets == [0, 128, 192, 320, 328, 336, 344, 352, 360, 364, 368, 372]
        assert kernel.parameter_bytes == offset + 376
        assert (kernel.max_threads, kernel.required_threads, kernel.cluster) == ((128, 1, 1), None, None)


def _cuobjdump():
    beside = Path(sys.prefix, f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages/nvidia/cu13/bin/cuobjdump")
    return beside if beside.is_file() else shutil.which("cuobjdump")


@pytest.mark.skipif(_cuobjdump() is None, reason="needs cuobjdump: pip install nvidia-cuda-cuobjdump")
@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_resources_are_those_that_cuobjdump_tells(path):
    said = subprocess.run([_cuobjdump(), "-res-usage", path], capture_output=True, text=True, check=True).stdout
    registers, stack, shared = map(int, re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", said).groups())
    (kernel,) = read_cubin(path.read_bytes()).kernels.values()
    assert (kernel.registers, kernel.stack) == (registers, stack)
    assert kernel.static_shared == max(shared - 1024, 0)  # cuobjdump counts what the system reserves


@pytest.mark.parametrize("path", FILES[:1] + FILES[-1:], ids=name_of)
def test_every_truncation_is_refused_without_a_manifest(path):
    data = path.read_bytes()
    for length in range(len(data)):
        with pytest.raises(IntegrityError, match=r"at offset 0x[0-9a-f]+ expected"):
            read_cubin(data[:length])


def test_bytes_behind_the_end_are_refused():
    with pytest.raises(IntegrityError, match="the end of the file, found 5 more bytes"):
        read_cubin(FILES[0].read_bytes() + b"abcde")


@pytest.mark.parametrize(
    ("offset", "value", "words"),
    [
        (0, b"\x7fELG", "at offset 0x0 expected the ELF magic"),
        (4, b"\x01", "at offset 0x4 expected class 2 (64 bits), found 1"),
        (7, b"\x00", "at offset 0x7 expected OS ABI 0x41 (CUDA), found 0"),
        (8, b"\x07", "at offset 0x8 expected ABI version 8 (CUDA 13), found 7"),
        (18, struct.pack("<H", 62), "at offset 0x12 expected machine 190 (CUDA), found 62"),
        (40, struct.pack("<Q", 2**63), "expected the section and program headers up to"),
        (48, struct.pack("<I", 0x06005904), "expected a command line with '-arch sm_89', as e_flags say"),
        (58, struct.pack("<H", 63), "at offset 0x3a expected section headers of 64 bytes, found 63"),
        (60, struct.pack("<H", 65535), "expected the section and program headers up to"),
        (62, struct.pack("<H", 999), "at offset 0x3e expected the section of names below"),
    ],
)
def test_a_wrong_header_says_where_and_what(offset, value, words):
    data = bytearray(FILES[0].read_bytes())
    data[offset : offset + len(value)] = value
    with pytest.raises(IntegrityError, match=re.escape(words)):
        read_cubin(bytes(data))


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\0" * 4096, b"{}" * 500], ids=["nothing", "magic", "zeros", "text"])
def test_what_is_no_cubin_at_all_is_refused(data):
    with pytest.raises(IntegrityError):
        read_cubin(data)


def mutations(data, count, seed):
    """Flipped bits, overwritten words of the kind that break readers, removed and doubled stretches."""
    generator = random.Random(seed)
    words = [0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, len(data), len(data) - 1]
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(generator.choice((1, 1, 1, 2, 8))):
            at = generator.randrange(len(changed))
            kind = generator.randrange(5)
            if kind == 0:
                changed[at] ^= 1 << generator.randrange(8)
            elif kind == 1:
                size = generator.choice((1, 2, 4, 8))
                changed[at : at + size] = (generator.choice(words) % 2 ** (8 * size)).to_bytes(size, "little")
            elif kind == 2:
                del changed[at : at + generator.randrange(1, 64)]
            elif kind == 3:
                changed[at:at] = changed[at : at + generator.randrange(1, 64)]
            else:
                changed[at:] = b""
            if not changed:
                break
        yield bytes(changed)


@pytest.mark.parametrize("path", [FILES[0], FILES[-1]], ids=name_of)
def test_5000_random_mutations_raise_nothing_but_integrity_error(path):
    refusals = []
    for data in mutations(path.read_bytes(), 5000, seed=path.parent.name):
        try:
            assert isinstance(read_cubin(data), CubinFile)
        except IntegrityError as error:
            refusals.append(str(error))
    assert all(re.search(r"at offset 0x[0-9a-f]+ expected ", refusal) for refusal in refusals)
    assert len(refusals) > 1000  # most flips lie in code, which a reader of headers cannot judge


@pytest.mark.parametrize("path", [FILES[0], FILES[-1]], ids=name_of)
def test_mutations_of_the_tables_themselves_raise_nothing_but_integrity_error(path):
    """The header, the section headers and every section that the reader walks: each byte, three values."""
    data = path.read_bytes()
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    places = [*range(64), *range(sections_at, sections_at + 64 * count)]
    for index in range(count):
        _, kind, _, _, offset, size, *_ = struct.unpack_from("<IIQQQQIIQQ", data, sections_at + 64 * index)
        if kind in (2, 3, 7) or (kind >= 0x70000000 and size < 1024):
            places += range(offset, offset + size)
    for place in places:
        for value in (0, 0xFF, data[place] ^ 1):
            changed = bytearray(data)
            changed[place] = value
            with contextlib.suppress(IntegrityError):
                read_cubin(bytes(changed))
