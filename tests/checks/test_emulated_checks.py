"""What only the emulator's checks see: bytes that were written with the value they had, and memory that was not the kernel's to read."""

import json
from types import SimpleNamespace

import numpy
import pytest
from click.testing import CliRunner

import zoo
from tests.small_zoo import small_zoo
from zoo import checks
from zoo.checks import emulated
from zoo.checks.problem import POISONS, Placed, Problem, difference
from zoo.cli import main
from zoo.emulator import Device
from zoo.errors import EmulationError
from zoo.packaged import packaged

KERNEL = zoo.kernel("quantize.fp8b128.rows")
VARIANT = next(v for v in KERNEL.variants if v.arch == "sm_90a" and v.name == "bf16_plain_t256")


def checked():
    return next(outcome for _, outcome in emulated.Emulation().check(packaged, KERNEL, [VARIANT]) if outcome is not None)


def check_with(monkeypatch, change):
    """The kernel as it is, and then `change(device, address of q, its bytes)` of the last launch's arrays."""
    allocated = []
    alloc, launch = Device.alloc, Device.launch

    def noted(device, source, **settings):
        address = alloc(device, source, **settings)
        allocated.append((address, numpy.asarray(source).nbytes))
        return address

    def changed(device, *arguments, **settings):
        report = launch(device, *arguments, **settings)
        change(device, *allocated[-2])  # x, q, scales
        return report

    monkeypatch.setattr(Device, "alloc", noted)
    monkeypatch.setattr(Device, "launch", changed)
    return checked()


def test_the_kernel_as_it_is_passes():
    outcome = checked()
    assert outcome.error is None and outcome.checks > 15 and outcome.left_out > 10


@pytest.mark.parametrize("byte", [0, -1])
def test_a_guard_written_with_what_was_there_is_caught(monkeypatch, byte):
    def write(device, address, size):
        device.write(address + byte % size, numpy.array([POISONS[0]], numpy.uint8))

    outcome = check_with(monkeypatch, write)
    assert "q: 1 bytes that are not the kernel's were written" in outcome.error


def test_an_element_left_alone_is_caught_even_where_poison_is_the_answer(monkeypatch):
    def forget(device, address, size):
        start = device.memory.span(address, size)
        device.memory.state[start + size // 2] &= 1

    assert "q: 1 of its 16 bytes were never written" in check_with(monkeypatch, forget).error


def test_reading_an_output_before_it_is_written_is_a_finding(monkeypatch):
    """The same arrays, x and q exchanged in their roles: what is read was given to nobody."""
    problem = next(checks.problems(KERNEL, VARIANT))
    swapped = Problem(problem.name, {}, {**problem.inputs, **problem.outputs}, problem.settings)
    with pytest.raises(EmulationError, match="uninitialised-global"):
        difference(swapped, KERNEL, VARIANT, emulated.executor(packaged), POISONS[:1])


def test_an_element_that_the_kernel_must_leave_alone():
    """`Placed.untouched`: written with anything, even with what was there, it is not the kernel's."""
    kernel = SimpleNamespace(arguments={"q": SimpleNamespace(alignment=16, forms=())})
    untouched = numpy.array([[False, False], [True, True]])
    problem = Problem("a tail", {}, {"q": Placed(numpy.array([[1, 2], [0, 0]], numpy.uint8), untouched=untouched)})

    def writes(count):
        def execute(kernel, variant, buffers, settings):
            image = buffers["q"].image.copy()
            image[buffers["q"].laid.offset :][:count] = [1, 2, 0, 0][:count]
            return {"q": image}

        return execute

    assert difference(problem, kernel, None, writes(2)) is None
    assert "1 bytes that are not the kernel's" in difference(problem, kernel, None, writes(3))
    assert "never written" in difference(problem, kernel, None, writes(1))


def test_a_zoo_whose_kernel_nobody_has_written_checks_for_is_told_so_by_the_command(tmp_path):
    cubins = small_zoo(
        tmp_path / "cubins", KERNEL.name, lambda variant: variant["symbol"] == VARIANT.symbol and variant["arch"] == VARIANT.arch
    )
    manifest = json.loads((cubins / "manifest.json").read_text())
    entry = manifest["kernels"][KERNEL.name]
    entry["fields"]["formats"] = "bf16_mxfp4"
    manifest["kernels"] = {"quantize.bf16_mxfp4.rows": entry}
    (cubins / "manifest.json").write_text(json.dumps(manifest))
    result = CliRunner().invoke(main, ["--cubins", str(cubins), "verify", "--emulate"], prog_name="zoo")
    assert result.exit_code != 0 and "Traceback" not in result.output
    assert "quantize.bf16_mxfp4.rows: nobody has written checks for the format 'bf16_mxfp4'" in " ".join(result.output.split())
