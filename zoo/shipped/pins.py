"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "d952cbf631090d0ffb1be7daa90775c00ca838c00186c8f855704fae397f3d2e"
