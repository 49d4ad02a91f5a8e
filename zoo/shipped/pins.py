"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "1f7a0bca528fa1b56fcb0134ad37be604b2626d2371d466dc3df46f68db675f1"
