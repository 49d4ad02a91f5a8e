"""What is copied to a device, emulated here, that is no numpy array or no array of numbers; and arrays of more than a device can hold."""

from __future__ import annotations

import types

import numpy
import pytest

import zoo
from zoo.emulator import Device

IMPOSTOR = types.SimpleNamespace(__array_interface__={"shape": (4,), "typestr": "<f4", "data": (0, False), "version": 3})


class Raising(numpy.ndarray):
    """numpy's memory, whose words about itself fail."""

    @property
    def T(self):
        raise RuntimeError("no transpose")


LIES = {
    "list": ([1.0], "a list is no numpy array"),
    "impostor": (IMPOSTOR, "a SimpleNamespace is no numpy array"),
    "class": (numpy.ndarray, "a type is no numpy array"),
    "masked": (numpy.ma.masked_array(numpy.zeros(4, "f4"), [True] * 4), "a device has no masks"),
    "objects": (numpy.array([None]), "zoo has no dtype for numpy's object"),
    "records": (numpy.zeros(4, [("a", "<f4"), ("b", "<i4")]), "zoo has no dtype for numpy's void64"),
    "times": (numpy.zeros(4, "datetime64[ns]"), "zoo has no dtype for numpy's datetime64"),
    "words": (numpy.array(["word"]), "zoo has no dtype for numpy's str"),
    "complex": (numpy.zeros(4, "c8"), "zoo has no dtype for numpy's complex64"),
    "wide": (numpy.zeros(4, "f8"), "zoo has no dtype for numpy's float64"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_no_array_of_numbers_is_not_copied(lie):
    given, words = LIES[lie]
    for copy in (Device().array, zoo.to_device):  # refused before a driver is looked for
        with pytest.raises(zoo.ArgumentError, match=words):
            copy(given)


def test_numbers_of_the_other_byte_order_and_subclasses_arrive_as_they_are():
    device = Device()
    assert device.array(numpy.array([1, 2], ">f4")).numpy().tolist() == [1, 2]
    assert device.array(numpy.arange(4, dtype="i4").view(Raising)).numpy().tolist() == [0, 1, 2, 3]
    assert device.array(numpy.float32(3)).numpy() == 3


@pytest.mark.parametrize("shape", [(2**62, 4), (2**32, 2**32), (2**63, 2**63, 0, 2**63), (2**61,)], ids=str)
def test_more_than_memory_is_refused_and_does_not_wrap_to_nothing(shape):
    """Products of extents that are multiples of 2^64 would be 0 bytes."""
    with pytest.raises(zoo.ZooError):
        Device().empty(shape, "f32")


@pytest.mark.parametrize(
    "make", [lambda device: device.empty((4,), "f9"), lambda device: device.alloc(-1), lambda device: device.alloc(2**60)]
)
def test_an_emulated_devices_own_refusals_are_zoos(make):
    with pytest.raises(zoo.ZooError):
        make(Device())
