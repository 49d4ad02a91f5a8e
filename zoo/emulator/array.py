"""Arrays in an emulated device's memory, which zoo.launch takes like any other array."""

from __future__ import annotations

import numpy as np

from zoo.contract.own_array import OwnArray


class EmulatedArray(OwnArray):
    """A contiguous array or a view of one. Its memory is the device's and lives as long as that does."""

    def _read(self, size: int) -> np.ndarray:
        return self.device.read(self.address, size, np.uint8)
