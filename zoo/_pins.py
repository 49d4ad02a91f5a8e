"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "42b30507e0a22aa0a809b43591f61c19937c409ca335fa245216fb07c1543e33"
