"""What `malloc` in a kernel allocates: global memory, in blocks that stay until a kernel frees them. Their sum is limited, as on a GPU."""

BYTES = 8 << 20  # what CUDA reserves for a device's heap by default
ALIGNMENT = 16


class Heap:
    def __init__(self, memory):
        self._memory = memory
        self._sizes = {}  # address -> bytes

    def allocate(self, size):
        """An address, or 0 where nothing is asked for or too little is left."""
        if not 0 < size <= BYTES - sum(self._sizes.values()):
            return 0
        address = self._memory.allocate(size, ALIGNMENT)
        self._sizes[address] = size
        return address

    def free(self, address):
        """Whether it was a block of the heap; null is none, and fine."""
        if address == 0:
            return True
        if self._sizes.pop(address, None) is None:
            return False
        self._memory.free(address)
        return True
