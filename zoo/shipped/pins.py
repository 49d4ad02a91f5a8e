"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "f6634473236f515b248c93ecdae5591b3b1364f608ae50a9e6099c0803bc10ea"
