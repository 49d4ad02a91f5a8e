"""What `zoo first-run` reads of the chip's clock, power and temperature, from a stand-in for NVML."""

import time

import pytest

from zoo.cli import first_run
from zoo.runtime.clocks import Management, Watch


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
