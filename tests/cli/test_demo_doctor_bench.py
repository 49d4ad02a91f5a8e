"""`zoo demo`, `zoo doctor` and `zoo bench` say what they saw and nothing else."""

import json
import shutil

import pytest

NAME = "quantize.mxfp8.rows"


def words(text):
    return " ".join(text.split())


def test_demo_without_a_gpu_emulates_every_arch_and_says_so_and_what_to_do_next(without_gpu, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    result = without_gpu("demo")
    assert result.returncode == 0, result.stderr
    found = words(result.stdout)
    assert "no GPU emulated instead: " in found and "a smaller matrix" in found and "result (emulated sm_90a)" in found
    assert found.count("every bit equal") == 2 and "sm_90a " in found and "sm_100f " in found and "us," not in found
    assert max(map(len, result.stdout.splitlines())) <= 60
    for command in ("list", "show quantize.mxfp8.rows", "verify --emulate", "doctor"):
        assert f"`zoo {command}`" in found.partition(" Next: ")[2]


def test_demo_without_a_gpu_fails_for_damaged_cubins(without_gpu, cubins):
    victim = sorted(cubins.glob("sm_*/*.cubin"))[0]
    victim.write_bytes(b"")
    result = without_gpu("--cubins", cubins, "demo")
    assert result.returncode == 1 and "truncated" in result.stderr


def test_demo_fails_where_the_kernel_writes_nothing(with_stand_in):
    run = with_stand_in("demo")
    assert run.returncode == 1 and "WRONG" in run.stdout and "every bit equal" not in run.stdout
    assert run.launches[0].kernel.startswith("quantize_mxfp8_rows__bf16_e4m3_plain") and not run.faults


def test_demo_on_a_gpu_that_no_cubin_fits_says_so(with_stand_in):
    run = with_stand_in("demo", devices="8.0:108")
    assert run.returncode == 0 and "emulated instead: Recorder 8.0 has compute capability 8.0" in words(run.stdout) and not run.launches


def test_doctor_without_a_gpu_names_the_reason_and_that_the_emulator_needs_none(without_gpu):
    result = without_gpu("doctor")
    found = words(result.stdout)
    assert result.returncode == 1
    assert "no driver" in found and "No kernel can run on a GPU here. The emulator runs them all without one: try `zoo demo`" in found
    assert "ok emulator runs every kernel without a GPU" in found


def test_doctor_does_not_promise_an_emulator_to_cubins_without_ptx(without_gpu, cubins):
    from zoo.shipped import ptx

    manifest, file = cubins / "manifest.json", cubins / ptx.FILE
    data = json.loads(manifest.read_text())
    data["ptx"] = None
    manifest.write_text(json.dumps(data))
    file.unlink()
    text = words(without_gpu("--cubins", cubins, "doctor").stdout)
    assert "no emulator cannot run here" in text and "No kernel can run here. What needs no GPU works" in text


def test_doctor_as_json_says_what_the_text_says(with_stand_in):
    run = with_stand_in("doctor", "--json", devices="8.0:108,9.0:132")
    data = json.loads(run.stdout)
    assert run.returncode == 0 and data["runs_on_a_gpu"] and data["runs_in_the_emulator"] and data["sound"]
    found = {one["what"]: one for one in data["findings"]}
    older, hopper = found["device 0"], found["device 1"]
    assert older["state"] == "no" and older["facts"]["kernels"] == 0 and older["facts"]["archs"] == []
    assert hopper["state"] == "ok" and hopper["facts"]["capability"] == "9.0" and hopper["facts"]["archs"] == ["sm_90a"]
    assert hopper["facts"]["multiprocessors"] == 132 and hopper["facts"]["kernels"] > 40
    assert found["cubins"]["facts"]["damaged"] == 0 and set(found["cubins"]["facts"]["archs"]) == {"sm_90a", "sm_100f"}
    text = words(with_stand_in("doctor", devices="8.0:108,9.0:132").stdout)
    assert all(f"{one['state']} {one['what']} {words(one['words'])}" in text for one in data["findings"])


def test_doctor_as_json_without_a_gpu_keeps_its_exit_status(without_gpu, cubins):
    sorted(cubins.glob("sm_*/*.cubin"))[0].unlink()
    run = without_gpu("--cubins", cubins, "doctor", "--json")
    data = json.loads(run.stdout)
    assert run.returncode == 1 and not data["sound"] and not data["runs_on_a_gpu"] and not data["runs_in_the_emulator"]
    damaged = [one for one in data["findings"] if one["state"] == "BAD" and "file" in one["facts"]]
    assert len(damaged) == 1 and "missing" in damaged[0]["facts"]["problem"]


def test_doctor_describes_every_device(with_stand_in):
    run = with_stand_in("doctor", devices="8.0:108,9.0:132,10.3:152")
    found = words(run.stdout)
    assert run.returncode == 0
    assert "device 0 Recorder 8.0" in found and "no cubin runs on it, the zoo ships" in found
    assert "device 1 Recorder 9.0" in found and "by sm_90a" in found
    assert "device 2 Recorder 10.3" in found and "by sm_100f" in found


def test_doctor_finds_damaged_cubins(without_gpu, cubins):
    victim = sorted(cubins.glob("sm_*/*.cubin"))[0]
    victim.unlink()
    result = without_gpu("--cubins", cubins, "doctor")
    assert result.returncode == 1 and "BAD cubins" in words(result.stdout) and "damaged" in result.stdout


def test_bench_measures_each_shape_against_copies_of_the_same_bytes(with_stand_in):
    run = with_stand_in("bench", NAME, "--shape", "256,1024", "--shape", "200,64", "--set", "layout=blocked", "--set", "x=f32", "--json")
    assert run.returncode == 0, run.stderr
    data = json.loads(run.stdout)
    assert data["device"] == "Recorder 9.0" and data["settings"] == {"layout": "blocked", "x": "f32"}
    first, second = data["measurements"]
    assert first["variant"].startswith("f32_e4m3_") and first["sizes"] == {"M": 256, "K": 1024, "layout": "blocked"}
    assert first["bytes"] == 256 * 1024 * 4 + 256 * 1024 + 256 * 1024 // 32
    assert second["bytes"] == 200 * 64 * 4 + 200 * 64 + 256 * 4  # blocked scales are padded
    assert not run.faults and len({launch.block(rule_of(first)) for launch in run.launches}) > 2, "the buffers do not rotate"


def rule_of(measurement):
    from zoo.shipped.packaged import packaged

    return next(v.launch for v in packaged.kernel(NAME).variants if v.name == measurement["variant"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--shape", "256"), "a shape is M,K, got 256"),
        (("--shape", "0,64"), "nothing is launched at M = 0, K = 64"),
        (("--shape", "256,100"), "K must be a multiple of 32"),
        (("--set", "layuot=plain"), "nothing to set is named layuot; did you mean layout? It takes x, q, scales, rounding, layout"),
        (("--set", "layout=tiled"), "layout is one of plain, blocked, not 'tiled'"),
        (("--set", "x=e4m3"), "x is one of bf16, f16, f32, not 'e4m3'"),
        (("--shape", "64,64", "--variant", "none"), "variant 'none' does not exist"),
    ],
)
def test_bench_refuses_in_words(with_stand_in, arguments, reason):
    run = with_stand_in("bench", NAME, *arguments)
    assert run.returncode == 1 and reason in run.stderr and "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--shape", "128,33"), "K must be a multiple of 32 (K % 32 == 0, with K = 33)"),
        (("--shape", "64,64", "--shape", "0,64"), "nothing is launched at M = 0, K = 64"),
        (("--set", "rounding=up"), "rounding is one of floor, rceil, not 'up'"),
        (("--variant", "none"), "variant 'none' does not exist"),
    ],
)
def test_bench_says_what_is_wrong_with_a_call_before_it_asks_for_a_gpu(without_gpu, arguments, reason):
    run = without_gpu("bench", NAME, *arguments)
    assert run.returncode == 1 and reason in run.stderr and "driver" not in run.stderr


def test_bench_of_a_right_call_without_a_gpu_names_the_driver(without_gpu):
    run = without_gpu("bench", NAME, "--shape", "64,64")
    assert run.returncode == 1 and "no CUDA driver" in run.stderr


def test_demo_refuses_another_kernel_of_the_same_name(without_gpu, cubins):
    manifest = cubins / "manifest.json"
    data = json.loads(manifest.read_text())
    entry = data["kernels"][NAME]
    entry["arguments"][0]["dtypes"] = ["f16", "f32"]
    entry["variants"] = [variant for variant in entry["variants"] if variant["dtypes"]["x"] != "bf16"]
    manifest.write_text(json.dumps(data))
    run = without_gpu("--cubins", cubins, "demo")
    assert run.returncode == 1 and run.stdout == ""
    assert f"this zoo's {NAME} is not the kernel that the demo is about; {NAME}: x: expected f16 or f32, got bf16" in run.stderr


@pytest.mark.parametrize("columns", [40, 60])
def test_doctor_never_breaks_a_path(without_gpu, cubins, monkeypatch, columns, tmp_path):
    monkeypatch.setenv("COLUMNS", str(columns))
    long = shutil.copytree(cubins, tmp_path / "a-rather-long-folder-name-with-hyphens" / "and-another-one-below-it")
    run = without_gpu("--cubins", long, "doctor")
    assert str(long) in run.stdout.split()


def test_bench_records_ratios_beside_other_evidence(with_stand_in, cubins):
    from zoo.catalog import Zoo
    from zoo.shipped.evidence import Evidence

    for shape in ("64,64", "128,64"):
        assert with_stand_in("--cubins", cubins, "bench", NAME, "--shape", shape, "--record").returncode == 0
    evidence = Evidence(cubins)
    (record,) = [found for variant in Zoo(cubins).kernel(NAME).variants if (found := evidence.of(variant))]
    assert set(record["benchmark"]["shapes"]) == {"M=64 K=64", "M=128 K=64"}
    assert "gpu" not in record


@pytest.mark.gpu
def test_demo_on_this_gpu(zoo_command):
    result = zoo_command("demo")
    assert result.exit_code == 0 and "every bit equal" in result.output, result.output


@pytest.mark.gpu
def test_bench_on_this_gpu(zoo_command):
    result = zoo_command("bench", NAME, "--shape", "8192,2048", "--json")
    assert result.exit_code == 0, result.output
    (seen,) = json.loads(result.stdout)["measurements"]
    assert 1 < seen["microseconds"] < 1000 and 0.2 < seen["of_copy"] < 2
