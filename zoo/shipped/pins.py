"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "e2fce488ad2093a1d1d8e779d8a3e38a198be652952af0c41bdddac35fd2e3d6"
