"""Tests marked gpu run where there is a GPU, and say why they do not where there is none. `pytest -m quick` runs all but those of the
files below, in less than a minute on two cores."""

import functools
import gc
import os
import signal
import subprocess
import sys

import pytest

# Who runs tests in the background may have had Ctrl-C ignored by all their programs, in which some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Several processes of one test run share the GPU: JAX must not take most of its memory for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# The tests' processes share the cores: numpy's product of two small matrices in a thread for each core mostly waits for those threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

_ASK = """
import sys
from zoo.runtime import driver
from zoo.errors import DriverError
from zoo.packaged import packaged
from zoo.contract.resolve import pick_arch
try:
    device = driver.device(0)
except DriverError as error:
    sys.exit(str(error))
if not any(pick_arch(kernel.archs, device.capability) for kernel in packaged.find()):
    sys.exit(f"no cubin runs on {device.name}, compute capability {device.capability}")
"""


# Whole files, for what they share (a compiled package, an emulated kernel) is made for the first of their tests.
_TAKE_LONG = {
    "builder/test_build_failures.py",
    "builder/test_build_runs.py",
    "builder/test_naps.py",
    "builder/test_new_format.py",
    "builder/test_shared_tables.py",
    "capi/test_edges.py",
    "capi/test_faults.py",
    "capi/test_foreign_manifest.py",
    "capi/test_misuse.py",
    "capi/test_package.py",
    "capi/test_parity.py",
    "capi/test_sanitizers.py",
    "capi/test_session.py",
    "checks/test_block_format_checks.py",
    "checks/test_block_scaled_checks.py",
    "checks/test_checks_catch_mistakes.py",
    "checks/test_gemm_checks.py",
    "checks/test_quantize_directions.py",
    "checks/test_quantize_experts.py",
    "checks/test_quantize_groups.py",
    "checks/test_quantize_squares.py",
    "checks/test_swiglu_checks.py",
    "cli/test_bench_plot.py",
    "cli/test_command.py",
    "cli/test_demo_doctor_bench.py",
    "cli/test_digest.py",
    "cli/test_export.py",
    "cli/test_first_run.py",
    "cli/test_selection.py",
    "cli/test_show.py",
    "cli/test_verify.py",
    "cli/test_width.py",
    "docs/test_documentation.py",
    "emulator/mutants/test_mutants.py",
    "emulator/test_core_instructions.py",
    "emulator/test_core_order.py",
    "emulator/test_gemm_variants.py",
    "emulator/test_kernels.py",
    "emulator/test_launching.py",
    "emulator/test_matrix_findings.py",
    "emulator/test_matrix_hardware.py",
    "emulator/test_matrix_raw_ptx.py",
    "emulator/test_matrix_tcgen05.py",
    "emulator/test_random_quantisers.py",
    "emulator/test_speed.py",
    "gemm_blackwell/test_dense.py",
    "gemm_blackwell/test_epilogues.py",
    "gemm_blackwell/test_fp8b128.py",
    "gemm_blackwell/test_gather.py",
    "gemm_blackwell/test_groups.py",
    "gemm_blackwell/test_mixed.py",
    "gemm_blackwell/test_mutants.py",
    "hostile/test_manifests.py",
    "hostile/test_mutate.py",
    "hostile/test_ptx_limits.py",
    "integrity/test_verify_integrity.py",
    "interruptions/test_builds.py",
    "interruptions/test_exports.py",
    "interruptions/test_kills.py",
    "loader/test_against_recorder.py",
    "loader/test_driver_failures.py",
    "loader/test_many_forms.py",
    "recorder/test_recorder.py",
    "reference/test_block_formats.py",
    "reference/test_directions.py",
    "reference/test_mxfp8.py",
    "release/test_release.py",
    "release/test_what_is_packed.py",
    "release/test_wheel.py",
    "typing/test_signatures.py",
}


@functools.cache
def no_gpu() -> str | None:
    """Why no kernel can run here, or None. Asked in a process of its own: CUDA does not survive the forks of other tests."""
    asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True)
    return None if asked.returncode == 0 else f"no GPU: {asked.stderr.strip().splitlines()[-1]}"


@pytest.fixture(scope="session")
def folder_of_the_run(tmp_path_factory):
    """One folder for all processes of this test run, and for no other run."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


def pytest_collection_finish():
    """Thousands of collected tests and the emulator's decoded programs outlive many collections of garbage. As Python sets it up, looking
    through them again and again takes as long as half of the tests: the tests themselves are set aside, and looked through is seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 5, 2)


def pytest_collection_modifyitems(config, items):
    here = config.rootpath / "tests"
    for item in items:
        if item.path.relative_to(here).as_posix() not in _TAKE_LONG and not item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.quick)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and (reason := no_gpu()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))
