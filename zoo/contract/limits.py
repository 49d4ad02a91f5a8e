"""What Hopper and Blackwell allow a launch, as the CUDA programming guide's table of compute capabilities has it, and a tensor map,
as the driver's documentation of cuTensorMapEncodeTiled has it."""

GRID = (2**31 - 1, 65535, 65535)
THREADS = 1024  # of a CTA
REGISTERS = 65536  # of a CTA
CLUSTER = 16  # CTAs, where the kernel asks for more than the portable 8
PERSISTENT_CLUSTER = 4  # CTAs of the largest cluster of a kernel whose grid depends on the multiprocessors
SHARED = 232448  # bytes of a CTA, static and dynamic together: 227 KiB
RESERVED_SHARED = 1024  # bytes before those, at the start of every CTA's shared memory

MAP_EXTENT_BITS = 32  # a dimension has up to 2 to this many elements
MAP_STRIDE_BITS = 40  # strides are below 2 to this many bytes
MAP_BOX = 256  # elements of a dimension of the box
MAP_STEP = 8  # the largest element stride
MAP_ALIGNMENT = 16  # bytes that the address and strides are multiples of
MAP_BOX_ROW = 16  # bytes that a row of the box is a multiple of
MAP_PACKED_ALIGNMENT = 32  # of u4_align16 and u6_align16, instead of 16
MAP_PACKED_ROW = 128  # elements of their box's row, and what those of a row in memory are a multiple of
