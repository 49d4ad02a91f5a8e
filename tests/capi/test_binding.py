"""The C library as a shared one, asked from Python: that its lists are the package's lists."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import pytest

from tests.capi.entries import plain_entry
from tests.capi.package import make_directory
from tests.contract.entries import signed
from zoo import errors
from zoo.capi.export import export
from zoo.contract.dtypes import DTYPES
from zoo.contract.manifest import Manifest
from zoo.errors import IntegrityError, ManifestError

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
NAME = "quantize.mxfp8.rows"


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    work = tmp_path_factory.mktemp("shared")
    cubins = make_directory(work / "cubins", {NAME: plain_entry()})
    export(work / "package", Manifest(cubins / "manifest.json"), cubins, ["*"])
    sources = [*(work / "package").glob("zoo*.c"), *(work / "package" / "cubins").glob("*.c")]
    subprocess.run(["cc", "-std=c11", "-shared", "-fPIC", "-o", work / "libzoo.so", *sources, "-ldl", "-pthread"], check=True)
    loaded = ctypes.CDLL(str(work / "libzoo.so"))
    loaded.zoo_dtype.restype = _DataType
    for function in (loaded.zoo_status_name, loaded.zoo_kernel_name, loaded.zoo_kernel_summary):
        function.restype = ctypes.c_char_p
    return loaded


def test_every_dtype_has_the_same_dlpack_type(library):
    for name, dtype in DTYPES.items():
        found = library.zoo_dtype(name.encode())
        assert (found.code, found.bits, found.lanes) == dtype.dlpack, name
    assert library.zoo_dtype(b"f64").bits == 0


def test_every_status_is_an_error_class(library):
    names = [library.zoo_status_name(status).decode() for status in range(11)]
    assert names[0] == "OK" and names[-1] == "MemoryError" and library.zoo_status_name(11) == b"unknown status"
    # an expression's error becomes a ConstraintError, a stream is always given, no manifest is read and nothing emulated at run time;
    # C knows no process groups
    unused = {"ZooError", "ExpressionError", "ManifestError", "StreamError", "EmulationError", "RankError"}
    assert {*names[1:-1], *unused} == {name for name, value in vars(errors).items() if isinstance(value, type)}


def test_kernels_are_listed(library):
    assert library.zoo_abi_version() == 1 and library.zoo_kernel_count() == 1
    assert library.zoo_kernel_name(0) == NAME.encode() and library.zoo_kernel_summary(0) == plain_entry()["summary"].encode()
    assert library.zoo_kernel_name(1) is None and library.zoo_kernel_name(-1) is None


def test_an_altered_cubin_is_not_exported(tmp_path):
    cubins = make_directory(tmp_path / "cubins", {NAME: plain_entry()})
    path = cubins / "sm_90a" / "kernel.cubin"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match=r"sm_90a/kernel\.cubin"):
        export(tmp_path / "package", Manifest(cubins / "manifest.json"), cubins, ["*"])
    assert not (tmp_path / "package").exists()


def many_maps(count):
    recipe = {"argument": "x", "dtype": "u8", "dims": ["K"], "strides": [], "box": ["16"], "element_strides": ["1"]}
    recipe |= {"kind": "tensor_map", "size": 128, "swizzle": "none", "l2_promotion": "none", "fill": "zero"}
    return {
        "parameters": [{**recipe, "name": f"map{index}", "offset": 128 * index} for index in range(count)],
        "parameter_bytes": 128 * count,
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda entry: entry["arguments"][0]["forms"][0].update(shape=["M", "K"] + ["1"] * 7),
            "9 dimensions, the C library takes at most 8",
        ),
        (lambda entry: entry["launches"]["default"].update(many_maps(33)), "4224 block bytes, the C library takes at most 4096"),
        (lambda entry: entry.update(derived=[["A", "(1 + " * 40 + "1" + ")" * 40]]), "41 stack, the C library takes at most 32"),
        (lambda entry: entry.update(derived=[[f"D{index}", "1"] for index in range(300)]), "symbols, the C library takes at most 256"),
    ],
)
def test_what_the_c_library_cannot_hold_is_refused_at_export(tmp_path, change, words):
    entry = plain_entry()
    change(entry)
    signed(entry)
    cubins = make_directory(tmp_path / "cubins", {NAME: entry})
    with pytest.raises(ManifestError, match=words):
        export(tmp_path / "package", Manifest(cubins / "manifest.json"), cubins, ["*"])
