"""`zoo verify` must reject what was tampered with, each in its own words, and pass nothing that it did not see."""

import json
import os
import re
import shutil

import pytest

from tests.recorder import ROOT
from tests.small_zoo import edit_ptx, small_zoo
from zoo.catalog import Zoo
from zoo.checks import processes
from zoo.shipped import ptx
from zoo.shipped.evidence import Evidence
from zoo.shipped.places import cubins_directory

NAME = "quantize.mxfp8.rows"
QUICK = "scales.blocked"  # one variant an arch, which the emulator soon has run


@pytest.fixture
def one_kernel(tmp_path):
    """All variants of one kernel: nothing that is wrong with a file needs hundreds of others beside it."""
    return small_zoo(tmp_path / "one", NAME)


def some_cubins(cubins):
    return sorted(cubins.glob("sm_*/*.cubin"))


def problems(result):
    return [" ".join(part.split()) for part in result.stderr.split("FAILED")[1:]]


def test_sound_cubins_pass(zoo_command, cubins):
    result = zoo_command("--cubins", cubins, "verify")
    assert result.exit_code == 0
    assert f"{len(some_cubins(cubins)):,} cubins" in result.output and "as the manifest says" in result.output


def test_a_flipped_byte_is_rejected(zoo_command, one_kernel):
    victim = some_cubins(one_kernel)[3]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    result = zoo_command("--cubins", one_kernel, "verify")
    assert result.exit_code == 1
    (problem,) = problems(result)
    assert problem.startswith(victim.relative_to(one_kernel).as_posix()) and "altered" in problem
    assert "1 not" in result.stdout


def test_a_truncation_at_any_kib_is_rejected(zoo_command, two_variants):
    victim = two_variants / Zoo(two_variants).kernel(NAME).variants[0].file
    data = victim.read_bytes()
    for length in range(0, len(data), 1024):
        victim.write_bytes(data[:length])
        result = zoo_command("--cubins", two_variants, "verify", NAME)
        assert result.exit_code == 1
        assert f"truncated: {len(data) - length} of {len(data)} bytes are missing" in problems(result)[0]


def test_two_swapped_cubins_are_both_named(zoo_command, one_kernel):
    first, second = some_cubins(one_kernel)[:2]
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    result = zoo_command("--cubins", one_kernel, "verify")
    assert result.exit_code == 1 and len(problems(result)) == 2
    assert all("files were swapped" in problem for problem in problems(result))


def test_a_missing_and_an_unknown_file_are_rejected(zoo_command, one_kernel):
    some_cubins(one_kernel)[0].unlink()
    (one_kernel / "sm_90a" / "stray.cubin").write_bytes(b"")
    result = zoo_command("--cubins", one_kernel, "verify")
    assert result.exit_code == 1
    missing, unknown = problems(result)
    assert "missing" in missing and "stray.cubin: the manifest does not know this file" in unknown


def test_a_check_of_some_kernels_says_nothing_of_files_that_are_not_theirs(zoo_command, two_variants):
    """But where the named kernels are all there are, the check is one of the whole zoo."""
    (two_variants / "sm_90a" / "stray.cubin").write_bytes(b"")
    assert "stray.cubin" in problems(zoo_command("--cubins", two_variants, "verify", NAME))[0]


def test_a_check_of_one_kernel_of_many_passes_beside_what_is_wrong_with_others(zoo_command, cubins):
    other = next(path for path in some_cubins(cubins) if not path.name.startswith("quantize_mxfp8_rows_"))
    other.unlink()
    (cubins / "sm_90a" / "stray.cubin").write_bytes(b"")
    result = zoo_command("--cubins", cubins, "verify", NAME)
    assert result.exit_code == 0 and problems(result) == [], result.stderr
    assert zoo_command("--cubins", cubins, "verify").exit_code == 1


def test_an_edited_manifest_is_rejected_by_the_package(without_gpu, tmp_path, cubins):
    shutil.copytree(ROOT / "zoo", tmp_path / "site" / "zoo", ignore=shutil.ignore_patterns("__pycache__", "cubins"))
    inside = shutil.copytree(cubins, tmp_path / "site" / "zoo" / "cubins")
    shutil.copy(cubins_directory() / "evidence.json", inside)  # it is pinned too
    assert without_gpu("verify", package=tmp_path / "site").returncode == 0
    manifest = inside / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"batch_invariant": true', '"batch_invariant": false', 1))
    result = without_gpu("verify", package=tmp_path / "site")
    assert result.returncode == 1 and "was edited: its sha256 is" in result.stderr and "Traceback" not in result.stderr


def test_a_manifest_that_lies_about_registers_is_rejected_without_a_pin(zoo_command, one_kernel):
    manifest = one_kernel / "manifest.json"
    variant = Zoo(one_kernel).kernel(NAME).variants[0]
    manifest.write_text(manifest.read_text().replace(f'"registers": {variant.registers}', f'"registers": {variant.registers - 1}', 1))
    result = zoo_command("--cubins", one_kernel, "verify")
    assert result.exit_code == 1 and f"has registers = {variant.registers}" in problems(result)[0]


def test_a_pattern_that_matches_nothing_is_not_a_pass(zoo_command):
    assert zoo_command("verify", "gemm.none.*").exit_code == 1


def test_gpu_without_a_gpu_fails_in_words(without_gpu):
    result = without_gpu("verify", NAME, "--gpu")
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "CUDA driver" in result.stderr


@pytest.fixture
def two_variants(tmp_path):
    """One variant an arch: what is checked of each is the same."""
    return small_zoo(tmp_path / "small", NAME, lambda variant: variant["name"] == "bf16_e5m2_blocked_t256")


def test_emulate_runs_every_arch_without_a_gpu_and_records_it(without_gpu, tmp_path):
    folder = small_zoo(tmp_path / "small", QUICK)
    result = without_gpu("--cubins", folder, "verify", "--emulate", "--schedules", "2", "--record")
    assert result.returncode == 0, result.stderr
    words = " ".join(result.stdout.split())
    assert "2 variants, 92 problems under 2 schedules each: all right" in words and "not run 18 problems of more" in words
    for variant in Zoo(folder).kernel(QUICK).variants:
        record = Evidence(folder).of(variant)["emulator"]
        assert record["error"] is None and record["checks"] == 46 and record["schedules"] == 2


def test_an_interrupted_run_keeps_what_it_saw(zoo_command, two_variants, monkeypatch):
    whole = processes.outcomes

    def interrupted(*arguments):
        yield next(whole(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "outcomes", interrupted)
    assert zoo_command("--cubins", two_variants, "verify", "--emulate", "--record").exit_code == 1
    seen = [Evidence(two_variants).of(variant) for variant in Zoo(two_variants).kernel(NAME).variants]
    assert seen[0]["emulator"]["error"] is None and seen[1] == {}


@pytest.mark.parametrize("jobs", [(), ("--jobs", "2")], ids=["in one process", "in two"])
def test_emulate_fails_where_a_kernel_computes_something_else(zoo_command, two_variants, jobs):
    edit_ptx(two_variants, b"satfinite.e5m2x2", b"satfinite.e4m3x2")
    result = zoo_command("--cubins", two_variants, "verify", "--emulate", "--record", *jobs)
    assert result.exit_code == 1 and len(problems(result)) == 2 and "all right" not in result.stdout
    assert all("elements are wrong" in problem for problem in problems(result))
    assert all(Evidence(two_variants).of(variant)["emulator"]["error"] for variant in Zoo(two_variants).kernel(NAME).variants)


def test_emulate_prints_findings_with_their_place(zoo_command, two_variants):
    edit_ptx(two_variants, b"satfinite.e5m2x2", b"surprise.e5m2x2")
    result = zoo_command("--cubins", two_variants, "verify", "--emulate")
    assert result.exit_code == 1 and all("PTX line" in problem and "surprise" in problem for problem in problems(result))


def test_altered_ptx_is_rejected(zoo_command, two_variants):
    cubins = two_variants
    texts = ptx.read(cubins / ptx.FILE)
    (cubins / ptx.FILE).write_bytes(ptx.pack({name: text + b" " for name, text in texts.items()}))
    result = zoo_command("--cubins", cubins, "verify", "--emulate")
    assert result.exit_code == 1 and "ptx.tar.xz: altered" in problems(result)[0] and "emulator" not in result.stdout


def test_gpu_fails_where_kernels_write_nothing(with_stand_in):
    """The stand-in accepts every launch and runs none."""
    run = with_stand_in("verify", NAME, "--gpu")
    assert run.returncode == 1
    words = " ".join(run.stderr.split())
    assert "never written" in words and words.count("FAILED") == sum(variant.arch == "sm_90a" for variant in kernel_variants())
    assert run.launches and not run.faults


def test_gpu_with_nothing_to_run_fails(with_stand_in, two_variants):
    run = with_stand_in("--cubins", two_variants, "verify", "--gpu", devices="8.0:108")
    assert run.returncode == 1 and "nothing here runs on Recorder 8.0" in run.stderr and "all right" not in run.stdout


def test_gpu_does_not_run_what_is_not_sound(with_stand_in, one_kernel):
    victim = some_cubins(one_kernel)[0]
    victim.write_bytes(victim.read_bytes()[:-1])
    run = with_stand_in("--cubins", one_kernel, "verify", "--gpu")
    assert run.returncode == 1 and not run.launches and "must be sound first" in run.stderr


def test_record_writes_failures_as_failures_and_forgets_old_digests(with_stand_in, one_kernel):
    stale = {"0" * 64: {"gpu": {"device": "an older build", "error": None}}}
    (one_kernel / "evidence.json").write_text(json.dumps(stale))
    assert with_stand_in("--cubins", one_kernel, "verify", "--gpu", "--record").returncode == 1
    evidence = Evidence(one_kernel)
    recorded = [evidence.of(variant) for variant in kernel_variants() if variant.arch == "sm_90a"]
    assert all(record["gpu"]["error"] and record["gpu"]["device"] == "Recorder 9.0" for record in recorded)
    assert not any(evidence.of(variant) for variant in kernel_variants() if variant.arch != "sm_90a")
    assert "0" * 64 not in json.loads((one_kernel / "evidence.json").read_text())


def kernel_variants():
    from zoo.packaged import packaged

    return packaged.kernel(NAME).variants


@pytest.mark.gpu
def test_gpu_passes_on_this_gpu(zoo_command):
    result = zoo_command("verify", "--gpu", "--jobs", str(os.cpu_count()))
    assert result.exit_code == 0, result.output


def test_jobs_see_what_one_process_sees(without_gpu, tmp_path):
    folder = small_zoo(tmp_path / "small", QUICK)
    seen = []
    for jobs in (1, 3):
        result = without_gpu("--cubins", folder, "verify", "--emulate", "--record", "--jobs", str(jobs))
        assert result.returncode == 0, result.stderr
        seen.append((result.stdout, (folder / "evidence.json").read_text()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_gpu_jobs_find_what_one_process_finds(with_stand_in, two_variants, jobs):
    """The stand-in runs nothing, so every variant is wrong, in whichever process."""
    run = with_stand_in("--cubins", two_variants, "verify", "--gpu", "--jobs", str(jobs))
    assert run.returncode == 1 and " ".join(run.stderr.split()).count("never written") == 1


def test_jobs_without_running_anything_are_misuse(zoo_command):
    assert zoo_command("verify", "--jobs", "2").exit_code == 2


UNPINNED = "unpinned nothing says whose manifest this is: keep what `zoo digest` prints elsewhere, and give it as --digest"


def in_words(text):
    return [" ".join(one.split()) for one in re.split(r"\n(?! )", text.strip("\n"))]


def test_verify_says_each_fact_once_and_nothing_else(zoo_command, two_variants):
    files = sorted(two_variants.glob("sm_*/*.cubin"))
    size = sum(file.stat().st_size for file in files)
    result = zoo_command("--cubins", two_variants, "verify")
    assert in_words(result.stdout) == [f"integrity 2 cubins, {size:,} bytes: as the manifest says", UNPINNED] and result.stderr == ""
    rest = files[1].stat().st_size
    files[0].unlink()
    result = zoo_command("--cubins", two_variants, "verify", "--gpu")
    assert in_words(result.stdout) == [f"integrity 1 cubin, {rest:,} bytes: as the manifest says, 1 not", UNPINNED]
    assert in_words(result.stderr) == [
        f"FAILED {files[0].relative_to(two_variants)}: missing; reinstall zoo or run build_cubins.py",
        "not run any kernel: the cubins must be sound first",
    ]


def test_verify_emulated_says_each_failure_by_its_variant_and_then_how_many(zoo_command, two_variants, monkeypatch):
    from zoo.checks import Outcome

    seen = [Outcome(3, "wrong", 1), Outcome(4, None, 0)]
    monkeypatch.setattr(processes, "outcomes", lambda zoo, work, check, jobs: iter(enumerate(seen)))
    result = zoo_command("--cubins", two_variants, "verify", "--emulate", "--record")
    first, second = Zoo(two_variants).kernel(NAME).variants
    assert in_words(result.stderr) == [f"FAILED {NAME} {first.name} ({first.arch}): wrong"] and result.exit_code == 1
    assert in_words(result.stdout)[1:] == [
        UNPINNED, f"recorded {two_variants / 'evidence.json'}", "emulator 2 variants, 7 problems under 1 schedule each: 1 variant wrong",
        "not run 1 problem of more than 20,000 elements, which needs a GPU",
    ]  # fmt: skip
    evidence = Evidence(two_variants)
    for variant, outcome in ((first, seen[0]), (second, seen[1])):
        record = evidence.of(variant)["emulator"]
        assert (record["checks"], record["schedules"], record["error"]) == (outcome.checks, 1, outcome.error)


def test_verify_on_a_gpu_says_each_failure_by_its_variant_and_what_did_not_run(with_stand_in, two_variants):
    run = with_stand_in("--cubins", two_variants, "verify", "--gpu", "--record")
    variant = next(variant for variant in Zoo(two_variants).kernel(NAME).variants if variant.arch == "sm_90a")
    record = Evidence(two_variants).of(variant)["gpu"]
    assert in_words(run.stderr) == [f"FAILED {NAME} {variant.name}: {record['error']}"] and run.returncode == 1
    assert in_words(run.stdout)[1:] == [
        UNPINNED, f"recorded {two_variants / 'evidence.json'}",
        f"gpu Recorder 9.0: 1 variant, {record['checks']} problem{'s' * (record['checks'] != 1)} on two poisons each: 1 variant wrong",
        f"not run {NAME} for sm_100f: this GPU does not run them",
    ]  # fmt: skip
    run = with_stand_in("--cubins", two_variants, "verify", "--gpu", devices="8.0:108")
    assert in_words(run.stderr) == ["FAILED nothing here runs on Recorder 8.0, compute capability 8.0"] and run.returncode == 1
    assert in_words(run.stdout)[1:] == [UNPINNED, f"not run {NAME} for sm_90a, sm_100f: this GPU does not run them"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--record",), "--record writes what was seen of running kernels: give --gpu or --emulate too"),
        (("--record-to", "mine.json"), "--record writes what was seen of running kernels: give --gpu or --emulate too"),
        (("--schedules", "2"), "--schedules belongs to --emulate"),
        (("--schedules", "2", "--gpu"), "--schedules belongs to --emulate"),
        (("--jobs", "1"), "--jobs belongs to --gpu and --emulate"),
    ],
)
def test_an_option_that_would_do_nothing_is_misuse(zoo_command, two_variants, arguments, words):
    result = zoo_command("--cubins", two_variants, "verify", *arguments)
    assert result.exit_code == 2 and words in result.stderr and result.stdout == ""
