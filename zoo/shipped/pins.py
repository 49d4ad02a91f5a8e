"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "e770e6005d5172287070f23bb855fa16080aa590f45dc1a2cc91f53e69dea40f"
