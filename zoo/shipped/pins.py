"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "2c00992aa659217263c3363c00d466ba0bf4e2d025f00e4fc734d7bb9d106474"
