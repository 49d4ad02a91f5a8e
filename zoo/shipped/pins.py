"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "b700f68cc4922da6de8388a6a1e6ef7c7ac620d0b1d9598c3920c02bccc24b00"
