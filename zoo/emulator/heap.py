"""The heap of `malloc` in kernels: blocks of global memory that stay allocated until a kernel frees them. Their sum is limited, as on a GPU."""

BYTES = 8 << 20  # what CUDA reserves for a device's heap by default
ALIGNMENT = 16


class Heap:
    def __init__(self, memory):
        self._memory = memory
        self._sizes = {}  # address -> bytes

    def allocate(self, size):
        """The address of a block, or 0 if size is 0 or too few bytes are left."""
        if not 0 < size <= BYTES - sum(self._sizes.values()):
            return 0
        address = self._memory.allocate(size, ALIGNMENT)
        self._sizes[address] = size
        return address

    def free(self, address):
        """Frees a block. Returns whether the address was a block's, or null."""
        if address == 0:
            return True
        if self._sizes.pop(address, None) is None:
            return False
        self._memory.free(address)
        return True
