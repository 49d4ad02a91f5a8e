"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "356082b05939f5a03d4c04c95f6402c778346dc15b363c7b5d8d99640ff4c6a1"
