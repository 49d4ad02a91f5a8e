"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "ff7359ec3d7a8f53168bb225abe2c90c0c3395466077bf43b8b28f5a140c0c0b"
