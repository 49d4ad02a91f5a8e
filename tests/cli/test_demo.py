"""`zoo demo` shows what the kernels computed and counted, and nothing that was not seen."""

import re
import resource

import numpy
import pytest

import zoo
from tests.small_zoo import small_zoo
from zoo.cli import demo, demo_products, pipeline_picture
from zoo.emulator.device import Report
from zoo.packaged import packaged

PRODUCTS = {"sm_90a": ["gemm.fp8b128.dense", "gemm.fp8_nvfp4.dense"], "sm_100f": ["gemm.fp8b128.dense", "gemm.nvfp4.dense"]}


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("columns", [80, 100])
def test_it_multiplies_in_every_format_on_both_archs_within_ten_seconds(without_gpu, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = without_gpu("demo")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10
    found = words(result.stdout)
    assert found.count("bit for bit") == 4 and "no GPU no CUDA driver: " in found and " us" not in found and "TFLOPS" not in found
    for family, names in (("Hopper", PRODUCTS["sm_90a"]), ("Blackwell", PRODUCTS["sm_100f"])):
        for name in names:
            assert re.search(rf"{family} \S+ x \S+ {name} [48]\.\d\d \d+\.\d % bit for bit", found), name
    assert max(map(len, result.stdout.splitlines())) <= columns
    for command in ("list", "show gemm.fp8b128.dense", "doctor"):
        assert f"`zoo {command}`" in found


@pytest.fixture(scope="module", params=list(PRODUCTS))
def multiplied(request):
    """(product, arguments, result, plan, report) of each product of an arch."""
    device, made = zoo.emulator.Device(request.param, arithmetic="hw"), []
    a, b, expected = demo._matrices((16, 64, 256))
    for product in demo_products.products_of(request.param):
        call = product.call(packaged, device.array(a), device.array(b), device.array)
        d = device.empty((16, 64), "f32")
        plan = packaged.prepare(product.name, d=d, **call)
        made.append((product, call, d.numpy, plan, plan(), expected))
    return request.param, made


def test_one_wrong_bit_is_seen(multiplied):
    arch, made = multiplied
    assert [product.name for product, *_ in made] == PRODUCTS[arch]
    for product, call, result, _, report, _ in made:
        got = result()
        assert report.ok and demo_products.bits_are_right(packaged.kernel(product.name), call, got, arch)
        got.view(numpy.uint32)[7, 9] ^= 1
        assert not demo_products.bits_are_right(packaged.kernel(product.name), call, got, arch)


def test_errors_are_those_of_the_formats(multiplied):
    for product, _, result, _, _, expected in multiplied[1]:
        error = demo._error(result(), expected)
        assert product.most_error / 4 < error < product.most_error
        assert error == pytest.approx(numpy.sqrt(((result() - expected) ** 2).sum() / (expected**2).sum()), rel=1e-3)
    assert demo._error(0 * expected, expected) == 1 and demo._error(expected, expected) == 0


def test_the_picture_has_the_numbers_of_the_run(multiplied, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    _, _, _, plan, report, _ = multiplied[1][0]
    text = pipeline_picture.picture([("Chip", plan.launch, report)])
    constants, moved = plan.launch.variant.constants, report.bytes
    assert f"[{constants['STAGES'] * chr(0x25A0)}]" in text and plan.launch.variant.name in text
    assert f"{moved['tensor copies loaded'] + moved['global read']:,} B" in text and text.count("\u2500\u25b6") == 4
    multiplying = [name for name in report.instructions if name.startswith(("wgmma.mma", "tcgen05.mma"))]
    assert f"{sum(report.instructions[name] for name in multiplying)} {'wgmma' if multiplied[0] == 'sm_90a' else 'tcgen05.mma'} " in text
    assert ("registers" in text) is (multiplied[0] == "sm_90a") and f"{report.warp_instructions:,} warp instructions" in text
    monkeypatch.setattr(pipeline_picture, "can_print", lambda signs: False)
    assert pipeline_picture.picture([("Chip", plan.launch, report)]).isascii()


def test_wrong_bits_and_findings_are_failures(zoo_command, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(demo, "_on_this_machine", lambda *_: True)
    with monkeypatch.context() as patch:
        patch.setattr(demo_products, "bits_are_right", lambda *_: False)
        wrong = zoo_command("demo")
    assert wrong.exit_code == 1 and wrong.stdout.count("WRONG") == 4 and "Next:" not in wrong.stdout and "pipeline" not in wrong.stdout
    with monkeypatch.context() as patch:
        patch.setattr(Report, "ok", property(lambda self: not self.kernel.startswith("gemm")))
        failed = zoo_command("demo")
    assert failed.exit_code == 1 and failed.stdout.count("FAILED") == 4 and "gemm_" in failed.stderr


def test_a_zoo_without_its_kernels_is_told_which_is_missing(without_gpu, tmp_path):
    small = small_zoo(tmp_path / "small", "quantize.mxfp8.rows", lambda variant: variant["name"] == "bf16_e4m3_plain_t256")
    run = without_gpu("--cubins", small, "demo")
    assert run.returncode == 1 and run.stdout == "" and "this zoo has no gemm.fp8_nvfp4.dense, which the demo runs" in run.stderr


def test_a_gpu_that_computes_nothing_fails_and_is_timed_beside_nobody_who_is_not_there(with_stand_in):
    run = with_stand_in("demo")
    found = words(run.stdout)
    assert run.returncode == 1 and "GPU Recorder 9.0, compute capability 9.0: " in found and found.count(": WRONG") == 2
    assert re.search(r"gemm\.fp8b128\.dense, 64, 4096, 4096: error [\d.]+ %, [\d.]+ us, \d+ TFLOPS: WRONG", found), found
    assert "Next:" not in found and "torch" not in found


def test_a_gpu_that_no_cubin_fits_is_told_so(with_stand_in):
    run = with_stand_in("demo", devices="8.0:108")
    assert run.returncode == 0 and f"compute capability 8.0: 0 of {len(packaged.manifest.names)} kernels run" in words(run.stdout)
    assert not run.launches


@pytest.mark.gpu
def test_demo_on_this_gpu(zoo_command):
    result = zoo_command("demo")
    assert result.exit_code == 0 and "TFLOPS" in result.output, result.output
