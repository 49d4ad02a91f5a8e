"""What the emulated GPUs answer when a program asks for their limits, by the driver's numbers of attributes."""

from zoo.contract import limits

from ..device import MULTIPROCESSORS

MOST_SHARED = 97  # of a CTA that asks for it
_SHARED, _THREADS, _CTAS, _RESERVED = 81, 39, 106, 111  # of a multiprocessor, and of each CTA before its own
REGISTERS_ASSUMED = 32  # a thread: ptxas decides, and the emulator does not run it; so few never limit how many CTAs are resident

_GRID = dict(zip((5, 6, 7), limits.GRID))
_COMMON = {
    1: 1024, 2: 1024, 3: 1024, 4: 64, **_GRID, 8: 48 << 10, 9: 64 << 10, 10: 32, 11: 2**31 - 1, 12: limits.REGISTERS, 14: 512, 15: 1, 19: 1, 30: 512,
    31: 1, 32: 1, 33: 1, 40: 1, 41: 1, 51: 32, 78: 1, 79: 1, 80: 1, 82: 65536, 83: 1, 90: 1, 95: 1, _RESERVED: limits.RESERVED_SHARED, 120: 1, 127: 1,
}  # fmt: skip
# Largest extents and layers of textures and surfaces. Those of mipmaps are not known here, and 0.
_IMAGES = {
    21: 1 << 17, 22: 1 << 17, 23: 1 << 16, **dict.fromkeys((24, 25, 26), 1 << 14), 27: 1 << 15, 28: 1 << 15, 29: 2048, 42: 1 << 15, 43: 2048,
    45: 1 << 15, 46: 1 << 15, 52: 1 << 15, 53: 1 << 15, 54: 2046, 56: 1 << 17, 57: 1 << 16, **dict.fromkeys((58, 59, 60), 1 << 14), 69: 1 << 28,
    70: 1 << 17, 71: 65000,
}  # fmt: skip
_OF_DATA_CENTRES = {_THREADS: 2048, _SHARED: 228 << 10, MOST_SHARED: 227 << 10, _CTAS: 32}
_OF_JETSONS = {**_OF_DATA_CENTRES, _THREADS: 1536, _CTAS: 24}
_OF_DESKTOPS = {_THREADS: 1536, _SHARED: 100 << 10, MOST_SHARED: 99 << 10, _CTAS: 24}


def attributes(arch: str) -> dict[int, int]:
    """The attributes that are not 0."""
    number = int(arch[3:].rstrip("af"))
    own = _OF_DATA_CENTRES if number < 110 else _OF_JETSONS if number < 120 else _OF_DESKTOPS
    return {**_COMMON, **_IMAGES, **own, 16: MULTIPROCESSORS[f"sm_{number}"], 75: number // 10, 76: number % 10}


def resident(arch: str, threads: int, shared: int) -> int:
    """CTAs that one multiprocessor holds, by threads and shared memory."""
    of = attributes(arch)
    warps = -(-threads // 32)
    if not 0 < warps <= 32 or shared > of[MOST_SHARED]:
        return 0
    by_shared = of[_SHARED] // (-(-(shared + of[_RESERVED]) // 128) * 128)
    return min(of[_CTAS], of[_THREADS] // (32 * warps), by_shared)
