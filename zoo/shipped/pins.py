"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "c1285b2d9418f4ad7f8e56ace3fe8f4d3c1ecb16c35f040e78028dd73d119c2d"
