"""zoo.launch on an emulated device: the loader's own code up to the parameter block, then the PTX of the cubin."""

import re
import subprocess
import sys

import ml_dtypes
import numpy
import pytest

import zoo
from tests.recorder import ROOT
from tests.small_zoo import edit_ptx, small_zoo
from zoo.catalog import Zoo
from zoo.emulator.module_store import ModuleStore
from zoo.reference.mxfp8 import quantize_mxfp8_rows
from zoo.shipped import ptx
from zoo.shipped.places import cubins_directory

NAME = "quantize.mxfp8.rows"
X = numpy.random.default_rng(0).standard_normal((33, 160), numpy.float32).astype(ml_dtypes.bfloat16)


def outputs(device):
    return {"q": device.empty(X.shape, "e4m3"), "scales": device.empty((33, 5), "ue8m0")}


def right(arrays):
    q, scales = quantize_mxfp8_rows(X)
    found = arrays["q"].numpy(), arrays["scales"].numpy()
    return all(numpy.array_equal(one.view(numpy.uint8), other.view(numpy.uint8)) for one, other in zip((q, scales), found, strict=True))


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_100f", "sm_103a"])
def test_the_device_decides_the_variant_and_the_bits_are_the_references(arch):
    device = zoo.emulator.Device(arch=arch)
    arrays = outputs(device)
    plan = zoo.prepare(NAME, x=device.array(X), **arrays)
    assert plan.launch.variant.arch == ("sm_90a" if arch == "sm_90a" else "sm_100f")
    report = plan()
    assert report.ok, report
    assert report.bytes["global read"] == X.nbytes and report.bytes["global written"] == X.size + X.size // 32
    assert right(arrays)


def test_launch_needs_neither_a_driver_nor_a_stream():
    program = (
        "import sys, numpy, ml_dtypes, zoo\n"
        "gpu = zoo.emulator.Device('sm_90a')\n"
        "x = gpu.array(numpy.ones((2, 64), ml_dtypes.bfloat16))\n"
        "q, scales = gpu.empty((2, 64), 'e4m3'), gpu.empty((2, 2), 'ue8m0')\n"
        "zoo.launch('quantize.mxfp8.rows', x=x, q=q, scales=scales)\n"
        "assert (q.numpy() == 256).all() and (scales.numpy().view('uint8') == 119).all()\n"
        "assert not any(name.startswith('cuda') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_the_kernel_gets_the_block_that_every_reader_agrees_on():
    device = zoo.emulator.Device(arch="sm_90a")
    given = {}
    launch = device.launch
    device.launch = lambda *arguments, **settings: given.update(settings) or launch(*arguments, **settings)
    plan = zoo.prepare(NAME, x=device.array(X), **outputs(device))
    plan()
    assert given["params"] == plan.launch.logical_block()


def test_a_view_says_what_bytes_mean():
    device = zoo.emulator.Device(arch="sm_90a")
    q, scales = device.empty(X.shape, "u8"), device.empty((33, 5), "u8")
    zoo.launch(NAME, x=device.array(X), q=zoo.view(q, "e4m3"), scales=scales)
    assert right({"q": q, "scales": scales})


def test_the_same_checks_refuse_the_same_calls():
    device, other = zoo.emulator.Device(arch="sm_90a"), zoo.emulator.Device(arch="sm_90a")
    x = device.array(X)
    with pytest.raises(zoo.ArgumentError, match=r"q: expected \(33, 160\) = \(M, K\), got \(33, 192\)"):
        zoo.launch(NAME, x=x, q=device.empty((33, 192), "e4m3"), scales=device.empty((33, 5), "ue8m0"))
    with pytest.raises(zoo.ArgumentError, match="q: lies on device emulated sm_90a, x on device emulated sm_90a"):
        zoo.launch(NAME, x=x, **outputs(other))
    with pytest.raises(zoo.ArgumentError, match="q: lies on device 0"):
        zoo.launch(NAME, x=x, q=zoo.ptr(1 << 40, X.shape, "e4m3", device=0), scales=outputs(device)["scales"])
    device = zoo.emulator.Device(arch="sm_120a")
    with pytest.raises(zoo.ArchitectureError, match=r"no cubin for compute capability 12\.0"):
        zoo.launch(NAME, x=device.array(X), **outputs(device))


def test_no_rows_run_nothing():
    device = zoo.emulator.Device(arch="sm_90a")
    plan = zoo.prepare(NAME, x=device.array(X[:0]), q=device.empty((0, 160), "e4m3"), scales=device.empty((0, 5), "ue8m0"))
    assert plan() is None


def test_a_finding_is_not_passed_over():
    """The last row of x lies behind the allocation."""
    device = zoo.emulator.Device(arch="sm_90a")
    x = device.alloc(numpy.ascontiguousarray(X[:32]))
    pointer = type(device.array(X))(x, X.shape, "bf16", (160, 1), device)
    with pytest.raises(zoo.EmulationError, match="out-of-bounds"):
        zoo.launch(NAME, x=pointer, **outputs(device))


def test_an_instruction_that_the_emulator_does_not_know_is_named(tmp_path):
    device = zoo.emulator.Device(arch="sm_90a")
    edit_ptx(small_zoo(tmp_path, NAME), b"ret;", b"multimem.surprise.b32 ;\n\tret;")
    with pytest.raises(zoo.EmulationError, match=r"PTX line \d+.*multimem.surprise"):
        Zoo(tmp_path).launch(NAME, x=device.array(X), **outputs(device))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "cannot be read: No such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-200]), "damaged"),
        (lambda path: path.write_bytes(ptx.pack({**ptx.read(path), "sm_90a/one_more.ptx": b""})), "altered"),
    ],
    ids=["missing", "truncated", "altered"],
)
def test_ptx_that_is_not_the_manifests_is_refused(tmp_path, damage, words):
    folder = small_zoo(tmp_path, NAME)
    damage(folder / ptx.FILE)
    device = zoo.emulator.Device(arch="sm_90a")
    with pytest.raises(zoo.IntegrityError, match=words):
        Zoo(folder).launch(NAME, x=device.array(X), **outputs(device))


def test_every_cubin_has_its_ptx_and_every_ptx_its_cubin():
    texts = ptx.read(cubins_directory() / ptx.FILE)
    variants = [variant for kernel in zoo.find() for variant in kernel.variants]
    assert sorted(texts) == sorted({ptx.name_of(variant.file) for variant in variants})
    for variant in variants:
        text = texts[ptx.name_of(variant.file)].decode()
        assert f".target {variant.arch}" in text and re.findall(r"\.entry (\w+)\(", text) == [variant.symbol]


def test_ptx_that_no_other_test_runs_can_be_read():
    """Every GEMM runs in test_gemm_variants.py."""
    texts = ptx.read(cubins_directory() / ptx.FILE)
    for kernel in zoo.find():
        for variant in kernel.variants if kernel.fields["op"] != "gemm" else ():
            assert zoo.emulator.Module(texts[ptx.name_of(variant.file)].decode()).entries == [variant.symbol]


def test_a_long_run_over_all_kernels_forgets_those_of_long_ago(monkeypatch):
    monkeypatch.setattr(ModuleStore, "MOST", 2)
    zoo = Zoo(cubins_directory())
    modules = ModuleStore(zoo.directory, zoo.manifest)
    first, second, third = zoo.kernel("dequantize.mxfp8.squares").variants[:3]
    of_first = modules.of(first)
    of_second = modules.of(second)
    assert modules.of(first) is of_first
    modules.of(third)
    assert modules.of(first) is of_first and modules.of(second) is not of_second


def test_plans_of_one_variant_share_its_parsed_module():
    zoo_of_one, gpu = Zoo(cubins_directory()), zoo.emulator.Device("sm_90a")
    call = {"x": gpu.empty((4, 64), "bf16"), "q": gpu.empty((4, 64), "e4m3"), "scales": gpu.empty((4, 2), "ue8m0")}
    first, second = (zoo_of_one.prepare("quantize.mxfp8.rows", **call) for _ in range(2))
    assert first._module is second._module and first.launch.variant.symbol in first._module.entries


def test_a_linear_layer_as_the_page_on_gemm_writes_it():
    """Scales with M contiguous, one matrix of a stack by its number."""
    M, N, K = 24, 128, 256
    random = numpy.random.default_rng(0)
    gpu = zoo.emulator.Device("sm_90a")
    x = gpu.array(random.standard_normal((M, K), numpy.float32).astype(ml_dtypes.bfloat16))
    w = gpu.array(random.standard_normal((1, N, K), numpy.float32).astype(ml_dtypes.bfloat16))

    a, a_scale = gpu.empty((M, K), ml_dtypes.float8_e4m3fn), gpu.empty((K // 128, M), numpy.float32).t()
    zoo.launch("quantize.fp8b128.rows", x=x, q=a, scales=a_scale, layout="mn_major")

    b, b_scale = gpu.empty((1, N, K), ml_dtypes.float8_e4m3fn), gpu.empty((1, N // 128, K // 128), numpy.float32)
    zoo.launch("quantize.fp8b128.squares", x=w, q=b, scales=b_scale)

    y = gpu.empty((M, N), ml_dtypes.bfloat16)
    zoo.launch("gemm.fp8b128.dense", a=a, a_scale=a_scale, b=b[0], b_scale=b_scale[0], d=y)

    exact = x.numpy().astype(numpy.float64) @ w.numpy()[0].astype(numpy.float64).T
    found = y.numpy().astype(numpy.float64)
    assert numpy.linalg.norm(found - exact) / numpy.linalg.norm(exact) < 0.05  # two roundings to e4m3: about 0.036


def test_sums_are_the_gpus_where_a_gpu_has_confirmed_them_and_exact_elsewhere():
    """256 + 2^-6: Hopper's tensor core drops what lies 14 places below the largest product (docs/emulator.md)."""
    for arch in ("sm_100a", "sm_100f", "sm_103a", "sm_120a"):
        assert zoo.emulator.Device(arch).arithmetic == "exact"

    def product(gpu):
        a, b = numpy.zeros((1, 128), ml_dtypes.float8_e4m3fn), numpy.zeros((128, 128), ml_dtypes.float8_e4m3fn)
        a[0, :2], b[0, :2] = (16, 2**-3), (16, 2**-3)
        ones, d = numpy.ones((1, 1), numpy.float32), gpu.empty((1, 128), numpy.float32)
        zoo.launch("gemm.fp8b128.dense", a=gpu.array(a), a_scale=gpu.array(ones), b=gpu.array(b), b_scale=gpu.array(ones), d=d)
        return d.numpy()[0, 0]

    assert product(zoo.emulator.Device("sm_90a")) == 256.0
    assert product(zoo.emulator.Device("sm_90a", arithmetic="exact")) == 256.0 + 2**-6
