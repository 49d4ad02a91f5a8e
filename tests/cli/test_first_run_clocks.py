"""What is read of the chip's clock, power, temperature and load, from a stand-in for NVML."""

import time
from types import SimpleNamespace

import pytest

from zoo.cli import first_run
from zoo.cli.system import warn_of_foreign_load
from zoo.runtime.clocks import Management, Watch, foreign_load


class Nvml:
    """Answers with `figures`; 3, "not supported", to what is not among them."""

    def __init__(self, **figures):
        self.figures, self.bus = figures, None

    def nvmlInit_v2(self):
        return self.figures.get("init", 0)

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus, handle):
        self.bus, handle._obj.value = bus, 77
        return 0

    def __getattr__(self, name):
        what = name.removeprefix("nvmlDeviceGet")

        def ask(handle, *given):
            if handle.value != 77 or what not in self.figures:
                return 3
            given[-1]._obj.value = self.figures[what]
            return 0

        return ask


def test_what_a_gpu_does_not_tell_is_left_out():
    nvml = Nvml(ClockInfo=1980, PowerUsage=412_500, MaxClockInfo=1980)
    seen = Management("0000:01:00.0", lambda name: nvml)
    assert nvml.bus == b"0000:01:00.0"
    assert seen.reading() == {"clock_mhz": 1980, "watts": 412.5} and seen.limits() == {"clock_mhz": 1980}


def test_a_library_that_does_not_start_is_as_good_as_none():
    with pytest.raises(OSError, match="status 9"):
        Management("0", lambda name: Nvml(init=9))


def test_readings_of_a_run_are_its_least_median_and_most():
    nvml = Nvml(Temperature=40)
    with Watch(Management("0", lambda name: nvml)) as watch:
        end = time.monotonic() + 20
        while len(watch._seen) < 3 and time.monotonic() < end:
            nvml.figures["Temperature"] = 40 + len(watch._seen)
            time.sleep(0.01)
    seen = watch.summary()["celsius"]
    assert seen["least"] == 40 and seen["least"] <= seen["median"] <= seen["most"] <= 43
    assert first_run._words_of_chip(watch.summary()) == f"\n40 to {seen['most']:.0f} degrees"


def test_without_the_library_nothing_is_read_and_the_run_goes_on():
    with Watch(None) as watch:
        pass
    assert watch.summary() == {} and first_run._words_of_chip({}) == ""


def loaded(*percents):
    """A GPU whose load is another one at each reading."""
    left = list(percents)

    def open_library(name):
        nvml = Nvml()

        def rates(handle, found):
            found._obj.gpu, found._obj.memory = left.pop(0), 99
            return 0

        nvml.nvmlDeviceGetUtilizationRates = rates
        return nvml

    return foreign_load(Management("0", open_library), lambda seconds: None), left


def test_a_gpu_that_others_keep_busy_is_told_from_one_whose_user_has_just_ended():
    assert loaded(100, 100, 97, 99) == (97, [])
    assert loaded(80, 30, 0, 50) == (0, [50])
    assert loaded(0, 50) == (0, [50])  # the usual case does not wait
    assert foreign_load(Management("0", lambda name: Nvml())) == 0 == foreign_load(None)


def test_who_shares_a_gpu_is_warned(monkeypatch, capsys):
    monkeypatch.setattr("zoo.runtime.clocks.management", lambda device: None)
    for load in (97, 0):
        monkeypatch.setattr("zoo.runtime.clocks.foreign_load", lambda management, load=load: load)
        assert warn_of_foreign_load(SimpleNamespace(name="NVIDIA H200")) == load
    assert (
        capsys.readouterr().err
        == "in use     other processes keep NVIDIA H200 busy for 97 % of the time: times\n           will be too long\n"
    )
