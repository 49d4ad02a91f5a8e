"""`zoo doctor` and `zoo bench` say what they saw and nothing else."""

import importlib.metadata
import importlib.util
import json
import platform
import shutil
from types import SimpleNamespace

import pytest

import zoo
from tests.small_zoo import small_zoo

NAME = "quantize.mxfp8.rows"


def words(text):
    return " ".join(text.split())


@pytest.fixture
def small(tmp_path):
    """A zoo of one kernel."""
    return small_zoo(tmp_path / "small", NAME, lambda variant: variant["name"] == "bf16_e4m3_plain_t256")


def test_doctor_without_a_gpu_names_the_reason_and_that_the_emulator_needs_none(without_gpu):
    result = without_gpu("doctor")
    found = words(result.stdout)
    assert result.returncode == 1
    assert "no driver" in found and "No kernel can run on a GPU here. The emulator runs them all without one: try `zoo demo`" in found
    assert "ok emulator runs every kernel without a GPU" in found


def test_doctor_does_not_promise_an_emulator_to_cubins_without_ptx(without_gpu, small):
    from zoo.shipped import ptx

    manifest, file = small / "manifest.json", small / ptx.FILE
    data = json.loads(manifest.read_text())
    data["ptx"] = None
    manifest.write_text(json.dumps(data))
    file.unlink()
    text = words(without_gpu("--cubins", small, "doctor").stdout)
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


def test_doctor_as_json_without_a_gpu_keeps_its_exit_status(without_gpu, small):
    sorted(small.glob("sm_*/*.cubin"))[0].unlink()
    run = without_gpu("--cubins", small, "doctor", "--json")
    data = json.loads(run.stdout)
    assert run.returncode == 1 and not data["sound"] and not data["runs_on_a_gpu"] and not data["runs_in_the_emulator"]
    damaged = [one for one in data["findings"] if one["state"] == "BAD" and "file" in one["facts"]]
    assert len(damaged) == 1 and "missing" in damaged[0]["facts"]["problem"]


def test_doctor_describes_every_device(with_stand_in):
    run = with_stand_in("doctor", devices="8.0:108,9.0:132,10.3:152,9.0:78@NVIDIA H20@1980000@2619000@6144,9.0:132@unknown@0@0@0")
    found = words(run.stdout)
    assert run.returncode == 0
    assert "device 0 Recorder 8.0" in found and "no cubin runs on it, the zoo ships" in found
    assert "device 1 Recorder 9.0" in found and "by sm_90a" in found
    assert "device 2 Recorder 10.3" in found and "by sm_100f" in found
    costs = "costs assume {} % of an H200's multiplications and {} % of its memory bandwidth in a cycle"
    shares = {1: (100, 100), 3: (25, 83), 4: (100, 100)}  # of a chip of which the driver does not say it, an H200's
    for ordinal, share in shares.items():
        assert costs.format(*share) in found.partition(f"device {ordinal}")[2].partition(f"device {ordinal + 1}")[0]
    assert found.count("costs assume") == len(shares)


def test_doctor_finds_damaged_cubins(without_gpu, small):
    victim = sorted(small.glob("sm_*/*.cubin"))[0]
    victim.unlink()
    result = without_gpu("--cubins", small, "doctor")
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
    from zoo.packaged import packaged

    return next(v.launch for v in packaged.kernel(NAME).variants if v.name == measurement["variant"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--shape", "256"), "a shape is M,K, got 256"),
        (("--shape", "0,64"), "nothing is launched at M = 0, K = 64"),
        (("--shape", "256,100"), "K must be a multiple of 32"),
        (("--set", "layuot=plain"), "nothing to set is named 'layuot'; did you mean layout? It takes x, q, scales, rounding, layout"),
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
        (("--set", "rounding=up"), "rounding is one of floor, rceil, even, ceil, not 'up'"),
        (("--variant", "none"), "variant 'none' does not exist"),
    ],
)
def test_bench_says_what_is_wrong_with_a_call_before_it_asks_for_a_gpu(without_gpu, arguments, reason):
    run = without_gpu("bench", NAME, *arguments)
    assert run.returncode == 1 and reason in run.stderr and "driver" not in run.stderr


def test_bench_of_a_right_call_without_a_gpu_names_the_driver(without_gpu):
    run = without_gpu("bench", NAME, "--shape", "64,64")
    assert run.returncode == 1 and "no CUDA driver" in run.stderr


FRAMEWORKS = ("torch", "jax", "cupy", "numba")


def findings(zoo_command, *arguments):
    result = zoo_command(*arguments, "doctor", "--json")
    return {one["what"]: (one["state"], one["words"], one["facts"]) for one in json.loads(result.stdout)["findings"]}


def test_doctor_tells_every_framework_that_is_there_and_every_one_that_is_not(zoo_command, small, monkeypatch):
    """One of unknown version, as CuPy's wheels have other names, is there all the same."""
    there, real = {"torch": "9.9", "cupy": None}, importlib.metadata.version

    def version(name):
        if name not in FRAMEWORKS:
            return real(name)
        if there.get(name) is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace() if name in there else None)
    monkeypatch.setattr(importlib.metadata, "version", version)
    found = findings(zoo_command, "--cubins", small)
    assert [name for name in found if name in FRAMEWORKS] == list(FRAMEWORKS)
    for name in ("jax", "numba"):
        assert found[name] == ("-", "not installed; zoo does not need it", {"version": None})
    assert found["torch"] == ("ok", "9.9: tensors, its current stream; fp8 and ue8m0 dtypes as they are", {"version": "9.9"})
    state, said, facts = found["cupy"]
    assert (state, facts) == ("ok", {"version": "installed"}) and said.startswith("installed: arrays, its current stream; ")


def test_doctor_tells_the_package_what_it_needs_and_its_cubins(zoo_command, small):
    found = findings(zoo_command, "--cubins", small)
    system = f"{platform.system()} {platform.machine()}"
    facts = {"version": zoo.__version__, "python": platform.python_version(), "system": system}
    assert found["zoo"] == ("ok", f"{zoo.__version__} on Python {platform.python_version()}, {system}", facts)
    needed = ("cuda-bindings", "numpy", "ml_dtypes", "click")
    assert list(found)[1:6] == [*needed, "cubins"]
    for name in needed:
        version = importlib.metadata.version(name)
        assert found[name] == ("ok", version, {"version": version})
    archs = ["sm_100f", "sm_90a"]
    facts = {"directory": str(small), "sound": 2, "damaged": 0, "archs": archs}
    assert found["cubins"] == ("ok", f"2 sound cubins, for sm_100f, sm_90a, in {small}", facts)
    assert found["emulator"] == ("ok", "runs every kernel without a GPU, slowly: zoo.emulator", {})


def test_doctor_calls_a_missing_requirement_damage(zoo_command, small, monkeypatch):
    real = importlib.metadata.version

    def version(name):
        if name == "ml_dtypes":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    result = zoo_command("--cubins", small, "doctor")
    assert result.exit_code == 1 and "BAD ml_dtypes not installed; pip install cubin-zoo brings it" in words(result.output)
    assert words(result.output).endswith("The package is damaged; reinstall zoo, or in a checkout run build_cubins.py.")
    assert list(findings(zoo_command, "--cubins", small)) == ["zoo", "cuda-bindings", "numpy", "ml_dtypes", *FRAMEWORKS]


def test_doctor_tells_each_damaged_file_and_how_many_are_sound(zoo_command, small):
    victim = small / "sm_90a" / "quantize_mxfp8_rows__bf16_e4m3_plain_t256.cubin"
    victim.unlink()
    data = json.loads(zoo_command("--cubins", small, "doctor", "--json").stdout)
    one, all_of_them = (found for found in data["findings"] if found["what"] == "cubins")
    problem = "missing; reinstall zoo or run build_cubins.py"
    file = f"sm_90a/{victim.name}"
    assert one == {"state": "BAD", "what": "cubins", "words": f"{file}: {problem}", "facts": {"file": file, "problem": problem}}
    facts = {"directory": str(small), "sound": 1, "damaged": 1, "archs": ["sm_100f", "sm_90a"]}
    assert (all_of_them["state"], all_of_them["facts"]) == ("BAD", facts) and all_of_them["words"].startswith("1 sound cubin, for ")


def test_doctor_on_a_gpu_says_which_kernels_run_on_which_device(with_stand_in, small):
    run = with_stand_in("--cubins", small, "doctor", "--json", devices="8.0:108,10.3:152")
    found = {one["what"]: one for one in json.loads(run.stdout)["findings"]}
    version = found["driver"]["facts"]["version"]
    assert found["driver"] == {"state": "ok", "what": "driver", "words": version, "facts": {"version": version}} and "CUDA 13.0" in version
    facts = {"ordinal": 0, "name": "Recorder 8.0", "capability": "8.0", "multiprocessors": 108, "kernels": 0, "archs": []}
    said = "Recorder 8.0, compute capability 8.0, 108 multiprocessors"
    assert (found["device 0"]["words"], found["device 0"]["facts"]) == (
        f"{said}: no cubin runs on it, the zoo ships sm_100f, sm_90a", facts,
    )  # fmt: skip
    facts = {"ordinal": 1, "name": "Recorder 10.3", "capability": "10.3", "multiprocessors": 152, "kernels": 1, "archs": ["sm_100f"]}
    said = "Recorder 10.3, compute capability 10.3, 152 multiprocessors"
    assert found["device 1"] == {"state": "ok", "what": "device 1", "words": f"{said}: 1 of 1 kernel, by sm_100f", "facts": facts}
    text = with_stand_in("--cubins", small, "doctor", devices="8.0:108,10.3:152").stdout
    assert text.splitlines()[0].startswith("ok   zoo            ") and "Kernels run here. Try `zoo demo`" in words(text)
    assert words(text).endswith("`zoo first-run` (docs/blackwell.md).")


@pytest.mark.parametrize("columns", [40, 60])
def test_doctor_never_breaks_a_path(without_gpu, small, monkeypatch, columns, tmp_path):
    monkeypatch.setenv("COLUMNS", str(columns))
    long = shutil.copytree(small, tmp_path / "a-rather-long-folder-name-with-hyphens" / "and-another-one-below-it")
    run = without_gpu("--cubins", long, "doctor")
    assert str(long) in run.stdout.split()


def test_bench_records_ratios_beside_other_evidence(with_stand_in, small):
    from zoo.catalog import Zoo
    from zoo.shipped.evidence import Evidence

    for shape in ("64,64", "128,64"):
        assert with_stand_in("--cubins", small, "bench", NAME, "--shape", shape, "--record").returncode == 0
    evidence = Evidence(small)
    (record,) = [found for variant in Zoo(small).kernel(NAME).variants if (found := evidence.of(variant))]
    assert set(record["benchmark"]["shapes"]) == {"M=64 K=64", "M=128 K=64"}
    assert "gpu" not in record


@pytest.mark.gpu
def test_bench_on_this_gpu(zoo_command):
    result = zoo_command("bench", NAME, "--shape", "8192,2048", "--json")
    assert result.exit_code == 0, result.output
    (seen,) = json.loads(result.stdout)["measurements"]
    assert 1 < seen["microseconds"] < 1000 and 0.2 < seen["of_copy"] < 2
