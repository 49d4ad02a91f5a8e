"""What Hopper and Blackwell allow a launch, as the CUDA programming guide's table of compute capabilities has it."""

GRID = (2**31 - 1, 65535, 65535)
THREADS = 1024  # of a CTA
REGISTERS = 65536  # of a CTA
CLUSTER = 16  # CTAs, where the kernel asks for more than the portable 8
SHARED = 232448  # bytes of a CTA, static and dynamic together: 227 KiB
RESERVED_SHARED = 1024  # bytes before those, at the start of every CTA's shared memory
