"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "0ac772b668e473d88650b8b384199f15276e48b966c5e35d30286e0af594c923"
