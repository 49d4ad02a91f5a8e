"""Arrays in an emulated device's memory, which zoo.launch takes like any other array."""

from __future__ import annotations

import numpy as np

from zoo.contract.own_array import OwnArray


class EmulatedArray(OwnArray):
    """A contiguous array or a view of one. The device frees its memory when the array and all views of it are gone."""

    def __del__(self) -> None:
        if self.__dict__.get("base", self) is None:  # a view has a base; an array that was never made has nothing
            self.device.dropped.append(self.address)

    def _read(self, size: int) -> np.ndarray:
        return self.device.read(self.address, size, np.uint8)
